//! The toolhost: tools that are not there, and how many keys are kept. T-7, T-20.

use callgate_testing::scripts::workspace;
use callgate_wires::toolhost::Entry;
use serde_json::{Value, json};

use crate::support::host::{Host, run_once};
use callgate_testing_workspace::{Folder, records, verified};

const ECHO: &str = "AID.BUILTIN.ECHO.v1";

/// T-20: a tool that is not there is refused on every entry, whatever its input, and the chain says
/// so.
#[test]
fn unknown_tools_are_recorded() {
    let folder = workspace("");
    let refusals = || {
        let unknown = |record: &&Value| {
            record["fault"] == "unknown_tool" && record["tool"] == "AID.TEST.NOBODY.v1"
        };
        records(&folder).iter().filter(unknown).count()
    };
    let mut host = Host::toolhost_builtins(&folder);
    host.ask(&json!({ "aid": "AID.TEST.NOBODY.v1" }));
    host.ask(&json!({ "aid": "AID.TEST.NOBODY.v1", "input_json": "{" }));
    assert_eq!(refusals(), 2);
    for (entry, code) in [(Entry::Run, 4), (Entry::ToolExec, 0)] {
        let answered = run_once(&folder, entry, "AID.TEST.NOBODY.v1", b"");
        assert_eq!(answered.code, code, "{entry:?}");
    }
    assert_eq!(refusals(), 4);
    verified(&folder);
}

/// TH-65, T-7: 1024 finished keys are kept on this wire; one more drops the oldest.
#[test]
fn the_oldest_of_1025_keys_goes() {
    let folder = Folder::new();
    let mut host = Host::toolhost_builtins(&folder);
    let mut ask = |key: usize| {
        let reply = host.ask(&json!({ "aid": ECHO, "idempotency_key": key.to_string() }));
        assert_eq!(reply["status"], "OK");
        reply["idempotent_hit"] == true
    };
    assert!((0..1024).all(|key| !ask(key)));
    assert!(ask(0) && ask(1023), "1024 keys are kept");
    assert!(!ask(1024));
    assert!(ask(1) && ask(1024), "only the oldest is gone");
    assert!(!ask(0), "the oldest is gone, and is finished anew");
    assert!(!ask(1), "which made the next one the oldest");
}
