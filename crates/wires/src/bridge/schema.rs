//! The schema file: what a bridge lists without asking its parent.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::json;

/// One tool of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSchema {
    /// What the bridge's client calls it.
    pub name: String,
    /// For people and models.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// Why a text is no schema file.
#[derive(Debug, thiserror::Error)]
pub enum SchemaFileError {
    /// Not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] json::JsonError),
    /// Not a list.
    #[error("it is not a JSON array of tools")]
    NotAList,
    /// A tool without something.
    #[error("tool {number}: `{field}` must be {wanted}")]
    Field {
        /// Which, from 1.
        number: usize,
        /// Which of its fields.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// Two tools of one name.
    #[error("two tools are named `{name}`")]
    Twice {
        /// The name.
        name: String,
    },
}

/// Reads a schema file. Fields beside the three are ignored.
pub fn read_schemas(bytes: &[u8]) -> Result<Vec<ToolSchema>, SchemaFileError> {
    let Value::Array(entries) = json::parse(bytes, json::DEPTH_MAX)? else {
        return Err(SchemaFileError::NotAList);
    };
    let mut seen = HashSet::new();
    let mut tools = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let tool = read_tool(entry, index + 1)?;
        if !seen.insert(tool.name.clone()) {
            return Err(SchemaFileError::Twice { name: tool.name });
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn read_tool(entry: &Value, number: usize) -> Result<ToolSchema, SchemaFileError> {
    let wrong = |field, wanted| SchemaFileError::Field {
        number,
        field,
        wanted,
    };
    let text = |field: &'static str| {
        let found = entry.get(field).and_then(Value::as_str);
        found
            .map(str::to_owned)
            .ok_or_else(|| wrong(field, "a string"))
    };
    let schema = entry.get("input_schema").filter(|found| found.is_object());
    Ok(ToolSchema {
        name: text("name")?,
        description: text("description")?,
        input_schema: schema
            .cloned()
            .ok_or_else(|| wrong("input_schema", "an object"))?,
    })
}

/// The text of a schema file.
#[must_use]
pub fn write_schemas(tools: &[ToolSchema]) -> String {
    let entries: Vec<Value> = tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            })
        })
        .collect();
    format!("{:#}\n", Value::Array(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BR-29 to BR-32.
    #[test]
    fn there_and_back() {
        let tools = vec![ToolSchema {
            name: "sum".to_owned(),
            description: "Adds.".to_owned(),
            input_schema: json!({"type": "object"}),
        }];
        assert_eq!(
            read_schemas(write_schemas(&tools).as_bytes()).unwrap(),
            tools
        );
        assert_eq!(read_schemas(b"[]").unwrap(), []);
    }

    /// BR-28: what is wrong is told.
    #[test]
    fn broken() {
        let tool = |field: &str, value: Value| {
            let mut tool = json!({"name": "a", "description": "", "input_schema": {}});
            tool[field] = value;
            json!([tool]).to_string()
        };
        for (text, words) in [
            ("[".to_owned(), "not JSON"),
            ("{}".to_owned(), "not a JSON array"),
            ("[1]".to_owned(), "tool 1: `name` must be a string"),
            (tool("name", json!(1)), "`name` must be a string"),
            (tool("description", Value::Null), "`description` must be"),
            (
                tool("input_schema", json!([])),
                "`input_schema` must be an object",
            ),
        ] {
            let error = read_schemas(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let one = json!({"name": "a", "description": "", "input_schema": {}});
        let twice = json!([one, one]).to_string();
        let error = read_schemas(twice.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "two tools are named `a`");
    }
}
