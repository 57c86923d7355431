//! The vectors in `vectors/tool-protocol/`.
//!
//! `local.json` is `callgate tool`: `stdin` (a text as it is, all else as JSON), the `reply` on stdout
//! and the code of its `exit` (0). `service.json` is HTTP: a `body` for a `path` (`/tools`), the
//! `status` (200) and the `reply`; each is sent over TCP with the owner's token and over `gate.sock`,
//! and gets the same answer. `messages.json` is tested in `wires`.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use crate::support::drive::{exchange, run_with, verified};
use crate::support::web::{Request, Web, owner};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate};
use callgate_testing::fits;
use serde_json::Value;

const CONFIG: &str = r#"
[service]
path = "/run/here"
allow_entries = ["tools.allowed:*", "json:*"]
[breaker]
failures_max = 0
[[policy]]
tools = ["forbidden"]
decision = "deny"
[[tool]]
name = "greeter"
runner = { kind = "python", entry = "tools.sample_tool:greet" }
[[tool]]
name = "half"
input_schema = { type = "object", properties = { n = { type = "number" }, label = { type = "string" } } }
runner = { kind = "python", entry = "tools.more:half" }
[[tool]]
name = "program"
code = ["work.sh"]
runner = { kind = "process", command = ["/bin/sh", "work.sh"] }
[[tool]]
name = "forbidden"
code = ["work.sh"]
runner = { kind = "process", command = ["/bin/sh", "work.sh"] }
[[tool]]
name = "slow"
timeout_ms = 150
runner = { kind = "process", command = ["/bin/sleep", "600"] }
[[tool]]
name = "sleeps"
runner = { kind = "process", command = ["/bin/sleep", "600"] }
"#;

const WORK: &str = r#"
read -r input
case $input in
  *crash*) echo 'last words' >&2; exit 3 ;;
  *garbage*) echo nonsense ;;
  *fail*) echo '{"error":{"type":"OwnError","message":"own words"}}'; exit 1 ;;
  *) printf '{"got":%s}' "$input" ;;
esac
"#;

/// The contract's two examples give different results for one function.
const GREET: &str = r#"
def greet(payload):
    if "name" not in payload:
        raise ValueError("Missing input")
    return {"message": "Hello " + payload["name"]MORE}
"#;

const MORE: &str = r#"
import os, sys
CONSTANT = 7
def odd(payload): return {1, 2}
def leaves(payload): sys.exit(4)
def add(payload): return {"sum": payload["a"] + payload["b"]}
def half(payload): return {"half": payload["n"] / 2, "label": payload.get("label")}
def chatter(payload):
    print("noise", flush=True)
    print("noise", file=sys.stderr, flush=True)
    return {"said": True}
def forge(payload):
    os.write(1, b'{"ok":true,"protocol_version":1,"result":{"forged":true}}\n')
    return {"forged": False}
"#;

const ALLOWED: &str = "def double(payload): return {'double': 2 * payload['n']}\n";

fn workspace(more: &str) -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("work.sh", WORK),
        ("tools/sample_tool.py", &GREET.replace("MORE", more)),
        ("tools/more.py", MORE),
        ("tools/allowed.py", ALLOWED),
    ])
}

fn check_all(name: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let path = crate::support::vectors().join(format!("tool-protocol/{name}.json"));
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let reason = check(case).err()?;
            Some(format!("{}: {reason}", case["name"]))
        })
        .collect();
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// A text as it is, anything else as JSON.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        value => value.to_string().into_bytes(),
    }
}

#[test]
fn local() {
    let folder = workspace(", \"ok\": True");
    check_all("local", |case| {
        let ran = run_with(callgate(&folder).arg("tool"), &bytes(&case["stdin"]));
        let exit = case["exit"].as_i64().unwrap_or(0);
        if i64::from(ran.code()) != exit {
            return Err(format!("exit {}, not {exit}: {ran:?}", ran.code()));
        }
        if ran.out.lines().count() != 1 {
            return Err(format!("not one line: {ran:?}"));
        }
        fits(&case["reply"], &ran.json())
    });
    verified(&folder);
}

#[test]
fn service() {
    let folder = workspace("");
    let web = Web::start(&folder, &[]);
    let token = owner(&folder);
    check_all("service", |case| {
        let path = case["path"].as_str().unwrap_or("/tools");
        let kind = case["content_type"].as_str().unwrap_or("application/json");
        let request = Request::new(&format!("POST {path}"), &bytes(&case["body"]))
            .with("content-type", kind)
            .by(&token);
        let status = case["status"].as_u64().unwrap_or(200);
        let check = |found: u16, reply: &Value| {
            if u64::from(found) != status {
                return Err(format!("status {found}, not {status}: {reply}"));
            }
            fits(&case["reply"], reply)
        };
        let reply = web.send(&request);
        check(reply.status, &reply.json())?;
        let local = request.without("authorization").with("host", "gate");
        let bytes = local.bytes("connection: close\r\n");
        let (found, reply) = exchange(&web.serve.socket, &bytes).ok_or("no answer")?;
        check(found, &reply).map_err(|reason| format!("gate.sock: {reason}"))
    });
    assert!(web.serve.stop().success());
    verified(&folder);
}
