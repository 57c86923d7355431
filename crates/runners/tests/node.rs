//! The Node worker that ships: what a function gets beside its input.

use std::path::Path;
use std::sync::Arc;

use crate::support::{Bench, folder, spawner};
use callgate_call::{Artifact, Asker, Fault, Guarantee, Needs};
use callgate_runners::{NodeSettings, PoolRunner, node_plan};
use serde_json::json;

const TOOL: &str = r#"
export async function act(input, desk) {
  switch (input.do) {
    case "report":
      desk.progress(1, 2, "half");
      desk.log("info", { step: 1 }, "l");
      desk.progress(2);
      return "done";
    case "keep":
      desk.slots[6] = { type: "note", content_json: '"n"' };
      delete desk.slots[9];
      return Object.keys(desk.slots).length;
    case "wrong":
      desk.slots[256] = {};
      return null;
    case "fail":
      desk.slots[6] = {};
      throw new Error("after the change");
    case "blocked":
      throw new Error("wrapped", { cause: Object.assign(new Error("no"), input.error) });
  }
}
"#;

#[expect(
    clippy::disallowed_methods,
    reason = "the Node of whoever runs the tests"
)]
fn bench(workspace: &Path) -> Bench {
    std::fs::write(workspace.join("t.mjs"), TOOL).unwrap();
    let settings = NodeSettings {
        workspace: workspace.to_owned(),
        interpreter: std::env::var_os("CALLGATE_TEST_NODE").map(Into::into),
        worker: vec![
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../sdk/node/worker.mjs")
                .into(),
        ],
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
    };
    let plan = node_plan(settings, |pool| pool.workers_max = 1);
    Bench::new(Arc::new(PoolRunner::new(
        plan.pool(spawner()),
        Some("t.mjs:act".into()),
        "node",
    )))
}

#[tokio::test]
async fn reports() {
    let workspace = folder();
    let bench = bench(&workspace);
    assert_eq!(bench.value(json!({ "do": "report" })).await, json!("done"));
    assert_eq!(
        bench.sink.reports(),
        [
            "1 of Some(2.0): Some(\"half\")",
            "info Some(\"l\") {\"step\":1}",
            "2 of None: None",
        ]
    );
    assert!(Path::new(&bench.sink.fact_of("node_path")).is_absolute());
    std::fs::remove_dir_all(workspace).unwrap();
}

/// T-23; T-17: not after a failure.
#[tokio::test]
async fn slots() {
    let workspace = folder();
    let mut bench = bench(&workspace);
    bench.tool.slots = true;
    bench.slots.0.insert(9, Artifact::default());
    let output = bench.run(json!({ "do": "keep" })).await.unwrap();
    assert_eq!(output.json.into_value(), json!(1));
    assert_eq!(output.slots.removed, [9]);
    assert_eq!(output.slots.put[&6].content_json, "\"n\"");
    let fault = bench.fault(json!({ "do": "wrong" })).await;
    assert!(
        fault.contains("slot numbers are integers from 0 to 255"),
        "{fault}"
    );
    let fault = bench.fault(json!({ "do": "fail" })).await;
    assert_eq!(fault, "tool_failed: after the change");
    std::fs::remove_dir_all(workspace).unwrap();
}

/// P-3: which guarantee stood in the way, as far as Node tells.
#[tokio::test]
async fn blocked_attempts() {
    let workspace = folder();
    let mut bench = bench(&workspace);
    let blocked = |code: &str, syscall: &str| json!({ "do": "blocked", "error": { "code": code, "syscall": syscall } });
    let fault = bench.run(blocked("EPERM", "connect")).await.unwrap_err();
    assert_eq!(fault.kind(), "tool_failed");
    let mut needs = Needs {
        isolation: callgate_call::Isolation::Worker,
        reads: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/node")],
        ..Needs::default()
    };
    for one in [
        Guarantee::NoFilesystemWrite,
        Guarantee::NoNetwork,
        Guarantee::NoSubprocess,
    ] {
        needs.guarantees.require(one, Asker::Engine);
    }
    bench.plan.confinement = Some(Arc::new(needs));
    for (code, syscall, wanted) in [
        ("EPERM", "connect", Some("no_network")),
        ("EAI_AGAIN", "getaddrinfo", Some("no_network")),
        ("ECONNREFUSED", "connect", None),
        ("EACCES", "open", Some("no_filesystem_write")),
        ("EROFS", "open", Some("no_filesystem_write")),
        ("EACCES", "scandir", None),
        ("EPERM", "spawn ls", Some("no_subprocess")),
        ("ENOENT", "spawn ls", None),
    ] {
        let fault = bench.run(blocked(code, syscall)).await.unwrap_err();
        let told = match &fault {
            Fault::GuaranteeBlocked { guarantee, .. } => Some(guarantee.as_str()),
            _ => None,
        };
        assert_eq!(told, wanted, "{code} {syscall}: {fault}");
    }
    std::fs::remove_dir_all(workspace).unwrap();
}
