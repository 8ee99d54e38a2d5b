//! The configuration's JSON schema, for editors and for checks in a pipeline: types from the
//! structs, words from the commented defaults.

use std::borrow::Cow;
use std::sync::LazyLock;

use doorbuster_engine::gate::JwtAlgorithm;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{Config, Secret, keys};

/// What stands for a duration: a number and its unit, several of them added up.
pub(super) struct DurationText;

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^([0-9]+ ?[a-zA-Zµ]+ ?)+$",
            "examples": ["500ms", "5s", "10m"],
        })
    }
}

/// What an access token may be signed by.
pub(super) struct AlgorithmWord;

impl JsonSchema for AlgorithmWord {
    fn schema_name() -> Cow<'static, str> {
        "Algorithm".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": JwtAlgorithm::ALL.map(JwtAlgorithm::as_str) })
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

/// The shape of every key, as the structs have it.
static SHAPE: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
});

/// The schema of a configuration file.
pub fn schema() -> Value {
    let mut schema = SHAPE.clone();
    // A file says only what differs from the defaults.
    visit(&mut schema, &|node| {
        node.remove("required");
    });
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "Doorbuster's configuration".into());
        root.insert("description".to_owned(), "Every key may be left out; its default holds then.".into());
    }
    for key in keys::all() {
        let Some(node) = schema.pointer_mut(&pointer(&key.name)).and_then(Value::as_object_mut) else {
            continue;
        };
        node.insert("description".to_owned(), key.meaning.into());
        if let Ok(default) = serde_json::to_value(&key.default) {
            node.insert("default".to_owned(), default);
        }
    }
    schema
}

/// Whether a key's value must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    SHAPE.pointer(&pointer(name)).and_then(|node| node.get("writeOnly")) == Some(&Value::Bool(true))
}

/// Where a key stands in the schema.
fn pointer(name: &str) -> String {
    name.split('.').map(|part| format!("/properties/{part}")).collect()
}

fn visit(node: &mut Value, change: &impl Fn(&mut serde_json::Map<String, Value>)) {
    let Some(node) = node.as_object_mut() else { return };
    change(node);
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        properties.values_mut().for_each(|property| visit(property, change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_stands_in_the_schema_with_its_meaning_and_the_type_of_its_default() {
        let schema = schema();
        for key in keys::all() {
            let node = schema.pointer(&pointer(&key.name)).unwrap_or_else(|| panic!("{}", key.name));
            assert_eq!(node["description"], key.meaning, "{}", key.name);
            let fits = match node["type"].as_str() {
                Some("integer") => key.default.is_integer(),
                Some("string") => key.default.is_str(),
                Some("boolean") => key.default.is_bool(),
                Some("number") => key.default.is_float(),
                Some("array") => key.default.is_array(),
                _ => false,
            };
            assert!(fits, "{}: {node} does not take {}", key.name, key.default);
        }
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema.pointer("/properties/log/properties/format/enum/1").unwrap(), "json");
        assert!(!schema.to_string().contains("\"required\""));
    }

    #[test]
    fn a_secret_is_known_as_one() {
        assert!(is_secret("gate.jwt.secret"));
        assert!(!is_secret("gate.jwt.secret_file"));
        assert!(!is_secret("gate.jwt"));
    }
}
