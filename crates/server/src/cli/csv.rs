//! Any JSON as comma-separated values, so that every command has them without code of its own.
//!
//! A list of objects is one line each; an object is one line. Members of an inner object are
//! columns with both names (`price.amount`); a list of texts or numbers is one cell. An inner list
//! of objects repeats the line for each of them, as a join would: a sale has one line per item.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};

/// Cells of one line by column.
type Cells = Vec<(String, String)>;

/// The value with a line of column names, in the order of the JSON's members.
pub(super) fn of<T: Serialize>(value: &T) -> anyhow::Result<String> {
    let lines = match serde_json::to_value(value)? {
        Value::Array(values) => values.iter().flat_map(|value| lines_of("", value)).collect(),
        value => lines_of("", &value),
    };
    // The lines of a listing may have different members: what is absent in one is empty there.
    let mut columns: Vec<&str> = Vec::new();
    for (column, _) in lines.iter().flatten() {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    let cell = |line: &Cells, column: &str| {
        let found = line.iter().find(|(name, _)| name == column);
        found.map(|(_, cell)| cell.clone()).unwrap_or_default()
    };
    let rows: Vec<Vec<String>> =
        lines.iter().map(|line| columns.iter().map(|column| cell(line, column)).collect()).collect();
    table(&columns, &rows)
}

/// A table that was made by hand.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> anyhow::Result<String> {
    if head.is_empty() {
        return Ok(String::new());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head)?;
    for row in rows {
        writer.write_record(row)?;
    }
    let bytes = writer.into_inner().context("the table cannot be written")?;
    Ok(String::from_utf8(bytes)?)
}

fn lines_of(name: &str, value: &Value) -> Vec<Cells> {
    match value {
        Value::Object(members) => lines_of_object(name, members),
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values.iter().flat_map(|value| lines_of(name, value)).collect()
        }
        Value::Array(values) => {
            let cells: Vec<String> = values.iter().map(text).collect();
            vec![vec![(name.to_owned(), cells.join(" "))]]
        }
        scalar => vec![vec![(name.to_owned(), text(scalar))]],
    }
}

fn lines_of_object(name: &str, members: &Map<String, Value>) -> Vec<Cells> {
    let mut lines: Vec<Cells> = vec![Vec::new()];
    for (member, value) in members {
        let column = if name.is_empty() { member.clone() } else { format!("{name}.{member}") };
        let inner = lines_of(&column, value);
        lines = lines
            .iter()
            .flat_map(|line| inner.iter().map(move |more| [line.as_slice(), more.as_slice()].concat()))
            .collect();
    }
    lines
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of;

    #[test]
    fn json_becomes_lines() {
        for (value, csv) in [
            (
                json!([{"id": 1, "name": "a, \"b\""}, {"id": 2, "note": null}]),
                "id,name,note\n1,\"a, \"\"b\"\"\",\n2,,\n",
            ),
            (
                json!({"sale": "1", "items": [{"id": "11", "price": {"minor": 5}}, {"id": "12"}]}),
                "sale,items.id,items.price.minor\n1,11,5\n1,12,\n",
            ),
            (
                json!({"ok": true, "checked": ["I1", "I2"], "findings": []}),
                "ok,checked,findings\ntrue,I1 I2,\n",
            ),
            (json!([]), ""),
        ] {
            assert_eq!(of(&value).unwrap(), csv, "{value}");
        }
    }
}
