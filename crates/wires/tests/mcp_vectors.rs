//! The vectors in `vectors/mcp/`: each is JSON of one type, which is read and written again, or
//! refused in words that name the malformed member. M-1 to M-12.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use callgate_wires::mcp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads JSON into a type and writes it again.
type RoundTrip = fn(&Value) -> Result<Value, String>;

fn round_trip<T: DeserializeOwned + Serialize>(json: &Value) -> Result<Value, String> {
    let read = mcp::read::<T>(json).map_err(|error| error.to_string());
    // A peer's text is read like the params of a request.
    let text: Result<T, _> = serde_json::from_str(&json.to_string());
    match (read, text) {
        (Ok(read), Ok(text)) => {
            let written = serde_json::to_value(&read).unwrap();
            assert_eq!(serde_json::to_value(&text).unwrap(), written);
            Ok(written)
        }
        (Err(error), Err(_)) => Err(error),
        (read, text) => panic!("{:?} {:?} {json}", read.err(), text.err()),
    }
}

macro_rules! types {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), round_trip::<mcp::$name> as RoundTrip)),*]
    };
}

fn types() -> BTreeMap<&'static str, RoundTrip> {
    BTreeMap::from(types![
        AcknowledgedParams,
        CallToolParams,
        CallToolResult,
        CancelledParams,
        ChangeParams,
        CompleteParams,
        CompleteResult,
        ContentBlock,
        CreateMessageParams,
        CreateMessageResult,
        CreateTaskResult,
        DiscoverResult,
        ElicitParams,
        ElicitResult,
        ElicitationCompleteParams,
        EmptyParams,
        EmptyResult,
        GetPromptParams,
        GetPromptResult,
        InitializeParams,
        InitializeResult,
        InputRequiredResult,
        LegacyListTasksResult,
        LegacyTask,
        ListParams,
        ListPromptsResult,
        ListResourceTemplatesResult,
        ListResourcesResult,
        ListRootsResult,
        ListToolsResult,
        ListenParams,
        LogParams,
        ProgressParams,
        PromptDefinition,
        ReadResourceParams,
        ReadResourceResult,
        ResourceDefinition,
        ResourceTemplate,
        SetLevelParams,
        SubscribeParams,
        Task,
        TaskParams,
        ToolDefinition,
        ToolUse,
        UnsupportedVersionData,
        UpdateTaskParams,
    ])
}

#[test]
fn vectors() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/mcp");
    let types = types();
    let mut checked: BTreeMap<&str, usize> = types.keys().map(|name| (*name, 0)).collect();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
        for case in &cases {
            let name = case["name"].as_str().unwrap();
            let (kind, round_trip) = types.get_key_value(case["type"].as_str().unwrap()).unwrap();
            let wanted = match case["error"].as_str() {
                Some(error) => Err(error.to_owned()),
                None => Ok(case.get("back").unwrap_or(&case["json"]).clone()),
            };
            assert_eq!(round_trip(&case["json"]), wanted, "{name}");
            *checked.get_mut(kind).unwrap() += 1;
        }
    }
    for (name, cases) in checked {
        assert!(cases >= 4, "{name} has {cases} vectors");
    }
}

/// M-4: schemas and structured content keep their bytes, spaces and order among them.
#[test]
fn what_is_passed_on_keeps_its_bytes() {
    let tool = r#"{"inputSchema":{ "z" : 1e2, "a":"\u00e9" },"name":"t"}"#;
    let read: mcp::ToolDefinition = serde_json::from_str(tool).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), tool);
    let result = r#"{"content":[],"structuredContent":{ "z" : 1e2, "a": null }}"#;
    let read: mcp::CallToolResult = serde_json::from_str(result).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), result);
}
