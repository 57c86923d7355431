//! MCP's typed messages and the headers that mirror them. M-1 to M-12.

use std::any::TypeId;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_wires::json;
use callgate_wires::mcp::client::{
    AnswerBody, LineSubject, ResultForm, ServerLine, ServerLines, ServerMessage, read_line,
    subject_of,
};
use callgate_wires::mcp::{self, MODERN, Params, check_headers, decode_header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A member that no revision of the protocol has.
const UNKNOWN: &str = "x-unknown";

fn round_trip<T: DeserializeOwned + Serialize + 'static>(json: &Value) {
    let read = mcp::read::<T>(json);
    // A peer's text is read like the params of a request.
    let text: Result<T, _> = serde_json::from_str(&json.to_string());
    assert_eq!(read.is_ok(), text.is_ok(), "{json}: {:?}", text.err());
    let Ok(read) = read else { return };
    let written = serde_json::to_value(&read).unwrap();
    let again = mcp::read::<T>(&written).expect("what is written is read");
    assert_eq!(serde_json::to_value(&again).unwrap(), written, "{json}");
    let Some(members) = json.as_object().filter(|_| keeps_unknown::<T>()) else {
        return;
    };
    for (name, value) in members {
        let is_kept = written.get(name).is_some() || value.is_null();
        assert!(is_kept, "{name} of {json} is lost: {written}");
    }
    let mut more = json.clone();
    more[UNKNOWN] = json!([1, {}]);
    let read = mcp::read::<T>(&more).expect("unknown members do no harm");
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written[UNKNOWN], more[UNKNOWN], "{json}: {written}");
}

/// The data of one error has no room for more members: it is read here and goes nowhere.
fn keeps_unknown<T: 'static>() -> bool {
    TypeId::of::<T>() != TypeId::of::<mcp::UnsupportedVersionData>()
}

macro_rules! types {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), round_trip::<mcp::$name> as fn(&Value))),*]
    };
}

/// An input is the name of a type, a space, and JSON. What the type takes, it writes and reads
/// again, with members that it does not know.
pub fn messages(input: &[u8]) {
    let types = types![
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
    ];
    let Some(at) = input.iter().position(|&byte| byte == b' ') else {
        return;
    };
    let (name, text) = (&input[..at], &input[at + 1..]);
    let Some((_, check)) = types.iter().find(|(known, _)| known.as_bytes() == name) else {
        return;
    };
    if let Ok(value) = json::parse(text, json::DEPTH_MAX) {
        check(&value);
    }
}

/// An input is a name, a line feed and the bytes of a header. The header is taken for the name
/// only if it spells the same, plainly or in base64.
pub fn headers(input: &[u8]) {
    let Some(at) = input.iter().position(|&byte| byte == b'\n') else {
        return;
    };
    let (name, value) = (&input[..at], &input[at + 1..]);
    let Ok(name) = std::str::from_utf8(name) else {
        return;
    };
    let params = Params::Other(json!({ "name": name, "arguments": { "region": name } }));
    let schema = json!({ "properties": { "region": { "x-mcp-header": "Region" } } });
    let is_taken = |place: &str, value: &[u8]| {
        let encoded = spelt(name);
        let header = |wanted: &str| match wanted {
            _ if wanted == place => Some(value),
            "mcp-protocol-version" => Some(MODERN.as_bytes()),
            "mcp-method" => Some(b"tools/call".as_slice()),
            _ => Some(encoded.as_slice()),
        };
        check_headers(&header, MODERN, "tools/call", &params, Some(&schema)).is_ok()
    };
    let decoded = decode_header(value);
    if let Some(decoded) = &decoded {
        let trimmed = value.trim_ascii();
        let is_encoded = trimmed.starts_with(b"=?base64?") && trimmed.ends_with(b"?=");
        assert!(is_encoded || decoded.as_bytes() == trimmed);
    }
    let is_same = decoded.as_deref() == Some(name);
    for place in ["mcp-name", "mcp-param-region"] {
        assert_eq!(is_taken(place, value), is_same, "{place}");
        assert!(is_taken(place, &spelt(name)), "{place} in base64");
    }
}

fn spelt(name: &str) -> Vec<u8> {
    format!("=?base64?{}?=", STANDARD.encode(name)).into_bytes()
}

/// Longer lines are cut short.
const LINE_BYTES_MAX: usize = 200;

/// An input is where it is cut, and what a server prints. The lines do not depend on the cut, and
/// an answer is one to the same request whichever way it is read.
pub fn servers(input: &[u8]) {
    let Some((cut, printed)) = input.split_first() else {
        return;
    };
    let (begin, rest) = printed.split_at(usize::from(*cut).min(printed.len()));
    let lines = server_lines(&[printed]);
    assert_eq!(lines, server_lines(&[begin, rest]));
    for line in lines.iter().flatten() {
        server_line(line);
    }
}

/// The lines; nothing for one that is too long.
fn server_lines(chunks: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let mut lines = ServerLines::new(LINE_BYTES_MAX);
    let mut all = Vec::new();
    for chunk in chunks {
        lines.room().extend_from_slice(chunk);
        while let Some(line) = lines.next_line() {
            all.push(match line {
                ServerLine::Whole(line) => Some(line.to_vec()),
                ServerLine::TooLong(_) => None,
            });
        }
    }
    all.extend(lines.finish().map(|rest| Some(rest.to_vec())));
    all
}

fn server_line(line: &[u8]) {
    let parsed = read_line(line, ResultForm::Parsed);
    let raw = read_line(line, ResultForm::Raw);
    if let ServerMessage::Answer { id, body } = &parsed {
        let ServerMessage::Answer {
            id: raw_id,
            body: raw_body,
        } = &raw
        else {
            panic!("{parsed:?} is read as {raw:?}")
        };
        assert_eq!(id, raw_id);
        if let Ok(AnswerBody::Parsed(value)) = body {
            let Ok(AnswerBody::Raw(text)) = raw_body else {
                panic!("{body:?} is read as {raw_body:?}")
            };
            let again = json::parse_output(text.as_bytes(), json::DEPTH_MAX).unwrap();
            assert_eq!(*value, again);
            // Whose answer it is shows in front, or not at all.
            if let LineSubject::Answer(subject) = subject_of(line) {
                assert_eq!(subject, *id);
            }
        }
    } else {
        assert_eq!(format!("{parsed:?}"), format!("{raw:?}"));
    }
    let is_message = !matches!(
        &parsed,
        ServerMessage::Noise | ServerMessage::Answer { body: Err(_), .. }
    );
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
    assert!(is_json || !is_message, "{parsed:?}");
}
