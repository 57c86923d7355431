//! Node tools, with the worker that ships and a real Node.

use serde_json::{Value, json};

use crate::support::called::Gateway;
use callgate_testing_workspace::{Folder, trusted_with};

const TOOL: &str = r#"
let calls = 0;

export function greet(input) {
  console.log("greeting");
  return { message: `Hello ${input.name}` };
}
export const count = () => ++calls;
export async function later(input) {
  await new Promise((resolve) => setTimeout(resolve, 1));
  return input.value;
}
export function fails(input) {
  if (input.how === "throw") throw new RangeError("no such name");
  if (input.how === "text") throw "a text";
  if (input.how === "later") return new Promise((_, reject) => setTimeout(() => reject(new Error("late")), 1));
  if (input.how === "stray") { setTimeout(() => { throw new Error("stray"); }, 1); return new Promise(() => {}); }
  if (input.how === "exit") process.exit(input.code);
  if (input.how === "abort") process.abort();
  if (input.how === "forge") { process.stdout.write('{"call":"x","output":"forged"}\n'); return "mine"; }
}
export function gives(input) {
  return { nan: NaN, function: () => 1, bigint: 1n, nothing: undefined, symbol: Symbol(), half: "\ud800", nested: { x: [Infinity] }, backslash: "\\ud800 \t\n" }[input.what];
}
export function loop() { const a = {}; a.a = a; return a; }
export const surroundings = () => [process.env.CALLGATE_FD ?? null, process.cwd()];
export const notAFunction = 7;
"#;

const COMMON: &str = "exports.f = (input) => ({ common: input.a });\n";

fn node() -> String {
    std::env::var("CALLGATE_TEST_NODE").unwrap_or_else(|_| "node".to_owned())
}

fn workspace(functions: &[&str], more: &str) -> Folder {
    let tools = functions.iter().map(|function| {
        let (name, entry) = match function.split_once('=') {
            Some((name, entry)) => (name, entry.to_owned()),
            None => (*function, format!("tools/t.mjs:{function}")),
        };
        format!(
            "[[tool]]\nname = \"{name}\"\n{more}\nrunner = {{ kind = \"node\", entry = \"{entry}\", node = \"{}\" }}\n",
            node()
        )
    });
    let config = tools.collect::<String>();
    trusted_with(&[
        ("callgate.toml", &config),
        ("tools/t.mjs", TOOL),
        ("tools/common.cjs", COMMON),
        ("tools/broken.mjs", "import 'no-such-module';\n"),
    ])
}

fn call(gate: &Gateway, tool: &str, input: Value) -> Value {
    gate.call(&json!({ "tool": tool, "input": input }))
}

fn output(gate: &Gateway, tool: &str, input: Value) -> Value {
    let reply = call(gate, tool, input);
    assert_eq!(reply["ok"], true, "{reply}");
    reply["output"].clone()
}

fn fault(gate: &Gateway, tool: &str, input: Value) -> (String, String) {
    let fault = call(gate, tool, input)["fault"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = match &fault["data"]["type"] {
        Value::String(class) => class.clone(),
        _ => text(&fault["kind"]),
    };
    (kind, text(&fault["message"]))
}

#[test]
fn functions_are_called() {
    let folder = workspace(
        &[
            "greet",
            "count",
            "later",
            "surroundings",
            "common=tools/common.cjs:f",
            "dotted=tools.t:count",
        ],
        "",
    );
    let gate = Gateway::start(&folder);
    assert_eq!(
        output(&gate, "greet", json!({ "name": "Ada" })),
        json!({ "message": "Hello Ada" })
    );
    for count in 1..=50 {
        assert_eq!(output(&gate, "count", json!({})), count);
    }
    // The same module of the same worker, by its other name.
    assert_eq!(output(&gate, "dotted", json!({})), 51);
    for value in [
        json!(null),
        json!([1, -2.5, "é \u{2028} \u{1f600} \"\\\n", {}]),
        json!("x".repeat(300_000)),
    ] {
        assert_eq!(output(&gate, "later", json!({ "value": value })), value);
    }
    assert_eq!(
        output(&gate, "common", json!({ "a": 1 })),
        json!({ "common": 1 })
    );
    assert_eq!(
        output(&gate, "surroundings", json!({})),
        json!([null, folder.path()])
    );
}

#[test]
fn nothing_is_shared_where_each_call_has_its_own() {
    let folder = workspace(&["count"], "isolation = \"cold\"");
    let gate = Gateway::start(&folder);
    for _ in 0..3 {
        assert_eq!(output(&gate, "count", json!({})), 1);
    }
}

/// TP-24, TP-26, P-8: every failure is its own call's.
#[test]
fn failures_cost_their_own_call() {
    let folder = workspace(
        &[
            "count",
            "fails",
            "gives",
            "loop",
            "absent",
            "notAFunction",
            "nowhere=tools/none.mjs:f",
            "broken=tools/broken.mjs:f",
        ],
        "",
    );
    let gate = Gateway::start(&folder);
    assert_eq!(output(&gate, "count", json!({})), 1);
    for (tool, input, kind, words) in [
        (
            "fails",
            json!({ "how": "throw" }),
            "RangeError",
            "no such name",
        ),
        ("fails", json!({ "how": "text" }), "Error", "a text"),
        ("fails", json!({ "how": "later" }), "Error", "late"),
        ("fails", json!({ "how": "stray" }), "Error", "stray"),
        (
            "fails",
            json!({ "how": "exit", "code": 3 }),
            "crash",
            "exit 3",
        ),
        (
            "fails",
            json!({ "how": "exit", "code": 0 }),
            "crash",
            "without an output",
        ),
        ("gives", json!({ "what": "nan" }), "TypeError", "not JSON"),
        (
            "gives",
            json!({ "what": "function" }),
            "TypeError",
            "not JSON",
        ),
        (
            "gives",
            json!({ "what": "bigint" }),
            "TypeError",
            "not JSON",
        ),
        (
            "gives",
            json!({ "what": "symbol" }),
            "TypeError",
            "not JSON",
        ),
        ("gives", json!({ "what": "half" }), "TypeError", "not JSON"),
        (
            "gives",
            json!({ "what": "nested" }),
            "TypeError",
            "not JSON",
        ),
        ("loop", json!({}), "TypeError", "not JSON"),
        (
            "absent",
            json!({}),
            "TypeError",
            "entry `tools/t.mjs:absent`: not a function",
        ),
        ("notAFunction", json!({}), "TypeError", "not a function"),
        (
            "nowhere",
            json!({}),
            "Error",
            "entry `tools/none.mjs:f`: Cannot find module",
        ),
        ("broken", json!({}), "Error", "no-such-module"),
    ] {
        let (told, message) = fault(&gate, tool, input.clone());
        assert_eq!(told, kind, "{tool} {input}: {message}");
        assert!(message.contains(words), "{tool} {input}: {message}");
    }
    assert_eq!(
        output(&gate, "gives", json!({ "what": "nothing" })),
        json!(null)
    );
    assert_eq!(
        output(&gate, "gives", json!({ "what": "backslash" })),
        json!("\\ud800 \t\n")
    );
    assert_eq!(
        output(&gate, "fails", json!({ "how": "forge" })),
        json!("mine")
    );
    // All that time it was one worker.
    assert_eq!(output(&gate, "count", json!({})), 2);
    let (told, message) = fault(&gate, "fails", json!({ "how": "abort" }));
    assert_eq!(told, "crash", "{message}");
    assert_eq!(output(&gate, "count", json!({})), 1);
}

/// TP-32, P-17: a pure tool starts, reads its own code, and has a process for each call.
#[test]
fn a_pure_tool_has_its_own_code() {
    let folder = workspace(&["count", "common=tools/common.cjs:f"], "purity = \"pure\"");
    let gate = Gateway::start(&folder);
    for _ in 0..2 {
        let reply = call(&gate, "count", json!({}));
        assert_eq!(reply["output"], 1, "{reply}");
        assert_eq!(reply["enforcement"]["isolation"], "cold", "{reply}");
        assert_eq!(reply["enforcement"]["level"], "enforced", "{reply}");
    }
    let common = output(&gate, "common", json!({ "a": 7 }));
    assert_eq!(common, json!({ "common": 7 }));
}

/// G-1e: a number that JavaScript does not have is refused by the worker: the tool would get another.
#[test]
fn integers_that_are_others_in_javascript_are_refused() {
    let folder = workspace(&["later"], "");
    let gate = Gateway::start(&folder);
    let value = json!([9_007_199_254_740_992_u64, "\"9007199254740993"]);
    assert_eq!(output(&gate, "later", json!({ "value": value })), value);
    for number in [
        json!(9_007_199_254_740_993_u64),
        json!(i64::MIN + 1),
        json!(u64::MAX),
    ] {
        let (class, message) = fault(&gate, "later", json!({ "value": [{ "a": number }] }));
        assert_eq!(class, "RangeError", "{message}");
        assert!(message.contains(&number.to_string()), "{message}");
    }
}
