//! A streamed run by the command line. How runs end and what is kept of them is tested in `doors`.

use crate::support::stage::Stage;
use crate::support::{callgate, drive};
use callgate_testing::misbehave;
use serde_json::{Value, json};

fn stage() -> Stage {
    Stage::new(misbehave(), "")
}

fn joined(parts: &[&[Value]]) -> Value {
    Value::Array(parts.concat())
}

/// The end of a run that is content.
fn good_end() -> [Value; 2] {
    [
        json!({ "complete": { "summary": { "pages": 3 } } }),
        json!({ "result": { "status": "completed" } }),
    ]
}

/// The same run by the command line.
#[test]
fn by_the_command_line() {
    let stage = stage();
    let acts = joined(&[&[json!({ "emit": {} })], &good_end()]);
    let order = Stage::order(&acts, &json!({})).to_string();
    let ran = drive::run(callgate(&stage.folder).args(["call", "runs/start", &order]));
    assert_eq!(ran.good().json()["outcome"], "success");
    let order = Stage::order(&json!([{ "exit": 2 }]), &json!({})).to_string();
    let ran = drive::run(callgate(&stage.folder).args(["call", "runs/start", &order]));
    assert!(
        !ran.status.success() && ran.err.contains("executor_crash"),
        "{ran:?}"
    );
}
