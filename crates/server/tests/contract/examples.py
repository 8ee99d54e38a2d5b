"""Checks the OpenAPI documents named: every schema is one, every example validates against its schema."""

import json
import sys

import jsonschema_rs


def media(node):
    """Every object with a schema and an example or examples."""
    if isinstance(node, list):
        for value in node:
            yield from media(value)
    elif isinstance(node, dict):
        if "schema" in node and ("example" in node or "examples" in node):
            yield node
        for value in node.values():
            yield from media(value)


count = 0
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    for node in media(document):
        schema = {**node["schema"], "components": document["components"]}
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        examples = [node["example"]] if "example" in node else [it["value"] for it in node["examples"].values()]
        for example in examples:
            for error in validator.iter_errors(example):
                sys.exit(f"{path}: {json.dumps(example)}: {error}")
            count += 1
print(f"{count} examples validate")
