//! Input that no wire takes, and a tool with a schema that some input does not fit.

use serde_json::{Value, json};

/// The configuration of one tool, which has a schema and notes in `effects.log` that it ran.
pub const CONFIG: &str = r#"
[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
input_schema = { type = "object", properties = { text = { type = "string" }, n = { type = "integer", minimum = 0 }, pad = {}, deep = {} }, required = ["text"], additionalProperties = false }
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }
"#;

/// The tool, as `append.sh`.
pub const APPEND: &str = r#"
cat > /dev/null
echo ran >> effects.log
echo '{"appended":true}'
"#;

/// The AID of the tool.
pub const AID: &str = "AID.TEST.APPEND.v1";

/// Texts that are no JSON a wire takes, whatever is around them. G-1.
pub fn broken_json() -> Vec<Vec<u8>> {
    let deep = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    let texts: [&[u8]; 22] = [
        b"{",
        b"}",
        b"{\"aid\"",
        b"{\"aid\":}",
        b"{'aid':'x'}",
        b"{\"aid\":\"x\",}",
        b"{\"aid\":\"x\"} {}",
        b"{\"aid\":\"x\"}x",
        b"// words\t{}",
        b"{\"aid\":NaN}",
        b"{\"aid\":Infinity}",
        b"{\"aid\":1e999}",
        b"{\"aid\":01}",
        b"{\"aid\":\"\\ud800\"}",
        b"{\"aid\":\"\\x41\"}",
        b"{\"aid\":\"\xff\"}",
        b"{\"\xc3\x28\":1}",
        b"\xef\xbb\xbf{}",
        b"{\"a\":1,\"a\":2}",
        b"{\"a\":{\"b\":1,\"\\u0062\":2}}",
        b"nul",
        b"{\"aid\":\"tab\there\"}",
    ];
    let mut all: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
    all.push(deep(200).into_bytes());
    all.push("[".repeat(1 << 20).into_bytes());
    all.push("{\"a\":".repeat(1 << 18).into_bytes());
    all
}

/// Inputs that do not fit the tool's schema; with the field that is told.
pub fn wrong_inputs() -> Vec<(Value, &'static str)> {
    vec![
        (json!({}), "text"),
        (json!({ "text": 1 }), "text"),
        (json!({ "text": null }), "text"),
        (json!({ "text": "x", "n": -1 }), "n"),
        (json!({ "text": "x", "n": "1" }), "n"),
        (json!({ "text": "x", "n": 1.5 }), "n"),
        (json!({ "text": "x", "other": 1 }), "other"),
    ]
}

/// A request whose text has exactly so many bytes.
pub fn padded(around: impl Fn(&str) -> String, bytes: usize) -> Vec<u8> {
    let empty = around("").len();
    let text = around(&"p".repeat(bytes - empty)).into_bytes();
    assert_eq!(text.len(), bytes);
    text
}
