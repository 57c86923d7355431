//! Clients of other people, by every way and in every era they know: each operation, asserted.
//! The drivers are in `tests/clients/`; they tell what they saw, and here it is judged.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::drive::{run_within, verified};
use crate::support::mcp::serve_http;
use crate::support::outside::{client_python, node};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, program};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[builtins]
allow = ["*"]
[[tool]]
name = "text/greet"
description = "Greets"
input_schema = { type = "object", properties = { name = { type = "string" } }, required = ["name"] }
output_schema = { type = "object", properties = { message = { type = "string" } }, required = ["message"] }
runner = { kind = "python", entry = "tools:greet" }
[[tool]]
name = "text/fail"
description = "Fails"
runner = { kind = "python", entry = "tools:fail" }
[[tool]]
name = "text/large"
description = "Gives a megabyte"
runner = { kind = "python", entry = "tools:large" }
[[tool]]
name = "text/steps"
description = "Shows its progress"
runner = { kind = "python", entry = "tools:steps" }
[[tool]]
name = "shell/hang"
description = "Makes the file `mark` and hangs"
writes = ["."]
code = ["hang.sh"]
runner = { kind = "process", command = ["/bin/sh", "hang.sh"] }
"#;

const TOOLS: &str = r#"
import os
import time

import callgate

def greet(payload):
    return {"message": "Hello " + payload["name"]}

def fail(payload):
    raise ValueError("no such name")

def large(payload):
    return "".join(f"{number:07d} " for number in range(125_000))

def steps(payload):
    for step in (1, 2, 3):
        callgate.progress(step, 3, f"step {step}")
        if "mark" in payload:
            wait(f"{payload['mark']}-{step}")
    return "done"

def wait(name):
    for _ in range(6000):
        if os.path.exists(name):
            return
        time.sleep(0.01)
    raise TimeoutError(name)
"#;

/// Its process has the mark among its words, by which it is found: its pid is its own.
const HANG: &str = r#"
read -r input
mark=${input#*'"mark":"'}; mark=${mark%%'"'*}
exec /bin/sh -c ': > "$0"; while :; do sleep 60; done' "$mark"
"#;

/// The tools as hosts see them, in the order of their names.
const NAMES: &[&str] = &[
    "artifacts_read",
    "builtin_echo",
    "exec_run",
    "files_delete",
    "files_edit",
    "files_list",
    "files_move",
    "files_read",
    "files_search",
    "files_stat",
    "files_write",
    "memory_append",
    "memory_query",
    "planner_create_plan",
    "planner_delete_plan",
    "planner_get_plan",
    "planner_list_plans",
    "planner_update_task",
    "runs_get",
    "runs_list",
    "runs_start",
    "shell_hang",
    "terminals_attach",
    "terminals_create",
    "terminals_kill",
    "terminals_list",
    "terminals_read_logs",
    "terminals_resize",
    "terminals_write",
    "text_fail",
    "text_greet",
    "text_large",
    "text_steps",
    "vector_delete",
    "vector_search",
    "vector_upsert",
];

/// A client: its driver, the eras it knows, and what its own design keeps it from.
struct Client {
    name: &'static str,
    driver: &'static str,
    eras: &'static [&'static str],
    /// It shows nobody the progress it is told.
    hides_progress: bool,
    /// It takes a call back only by leaving.
    only_leaves: bool,
}

const fn library(
    name: &'static str,
    driver: &'static str,
    eras: &'static [&'static str],
) -> Client {
    Client {
        name,
        driver,
        eras,
        hides_progress: false,
        only_leaves: false,
    }
}

const BOTH: &[&str] = &["modern", "legacy"];

const CLIENTS: [Client; 5] = [
    library("Python mcp 2.3.0", "python_mcp.py", BOTH),
    library("fastmcp 4.1.0", "python_fastmcp.py", BOTH),
    library("TypeScript SDK 1.32.2", "ts_v1.mjs", &["legacy"]),
    library("TypeScript client 2.4.0", "ts_v2.mjs", BOTH),
    Client {
        hides_progress: true,
        only_leaves: true,
        ..library("Inspector CLI 2.12.0", "inspector.mjs", BOTH)
    },
];

const OPERATIONS: [&str; 7] = [
    "list", "call", "error", "unicode", "1 MB", "progress", "cancel",
];

/// One line of the matrix: a cell for each operation, in words.
struct Row {
    name: String,
    cells: Vec<Result<&'static str, String>>,
}

#[test]
fn every_client_does_everything() {
    let folder = trusted_with(&[
        ("callgate.toml", CONFIG),
        ("tools.py", TOOLS),
        ("hang.sh", HANG),
    ]);
    let state = folder.join("state");
    // No client hands its own environment on, so the words say where the state is.
    let attach = format!(
        "exec {} mcp --standalone --workspace {} --state {}",
        program().display(),
        folder.path().display(),
        state.display()
    );
    folder.write("gate.sh", &attach);
    let (serve, port) = serve_http(&folder);
    let url = format!("http://127.0.0.1:{port}/mcp");
    let rows: Vec<Row> = std::thread::scope(|scope| {
        let (folder, url) = (&folder, &url);
        let each = CLIENTS.map(|client| scope.spawn(move || rows_of(&client, folder, url)));
        each.into_iter()
            .flat_map(|rows| rows.join().expect("a driver that does not hang"))
            .collect()
    });
    assert!(serve.stop().success());
    verified(&folder);
    print(&rows);
    let bad: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            let faults = row.cells.iter().filter_map(|cell| cell.as_ref().err());
            faults.map(|fault| format!("{}: {fault}", row.name))
        })
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

fn rows_of(client: &Client, folder: &Folder, url: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for era in client.eras {
        for (way, server) in [
            (
                "stdio",
                json!({ "command": ["/bin/sh", folder.join("gate.sh")] }),
            ),
            ("HTTP", json!({ "url": url })),
        ] {
            let mut settings = server;
            settings["era"] = (*era).into();
            settings["mark"] = format!("mark-{}-{era}-{way}", client.driver).into();
            // All operations of one driver, while the others are at theirs.
            let mut command = driver(client, folder);
            command.arg(settings.to_string());
            let ran = run_within(&mut command, b"", Duration::from_secs(10 * 60));
            let seen = match serde_json::from_str(&ran.out) {
                Ok(seen) if ran.status.success() => judge(client, era, &seen),
                _ => vec![Err(format!("{ran:?}"))],
            };
            rows.push(Row {
                name: format!("{}, {way}, {era}", client.name),
                cells: seen,
            });
        }
    }
    rows
}

fn driver(client: &Client, folder: &Folder) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/clients")
        .join(client.driver);
    let mut command = if client.driver.ends_with(".py") {
        client_python(folder)
    } else {
        node(folder)
    };
    command.arg(script);
    command
}

/// What was seen against what must be, an operation a cell.
fn judge(client: &Client, era: &str, seen: &Value) -> Vec<Result<&'static str, String>> {
    let greeting = json!({ "text": "{\"message\":\"Hello Ada\"}", "error": false });
    let version = match (client.only_leaves, era) {
        (true, era) => era,
        (false, "modern") => "2026-07-28",
        (false, _) => "2025-11-25",
    };
    // The Inspector looks the name up in the list itself, and does not ask for what is not there.
    let unknown = if client.only_leaves {
        json!({ "code": "tool_not_found" })
    } else {
        json!({ "code": -32602 })
    };
    let errors = json!([{ "text": "no such name", "error": true }, unknown]);
    let progress = if client.hides_progress {
        json!("not shown")
    } else {
        json!([
            [1.0, 3.0, "step 1"],
            [2.0, 3.0, "step 2"],
            [3.0, 3.0, "step 3"]
        ])
    };
    let cancel = if client.only_leaves {
        json!({ "ended": "left", "tool": "gone" })
    } else {
        json!({ "ended": "cancelled", "tool": "gone", "after": greeting })
    };
    let cell = |words: &'static str, found: Value, wanted: Value| {
        if same(&found, &wanted) {
            Ok(words)
        } else {
            Err(format!("{found} is not {wanted}"))
        }
    };
    vec![
        cell(
            "ok",
            json!([seen["version"], seen["list"]]),
            json!([version, NAMES]),
        ),
        cell("ok", seen["call"].clone(), greeting),
        cell(
            "ok",
            json!([seen["tool_error"], seen["unknown_tool"]]),
            errors,
        ),
        cell("ok", seen["unicode"].clone(), json!(true)),
        cell("ok", seen["large"].clone(), json!(1_000_000)),
        cell(
            if client.hides_progress {
                "shows none"
            } else {
                "ok"
            },
            seen["progress"].clone(),
            progress,
        ),
        cell(
            if client.only_leaves {
                "by leaving"
            } else {
                "ok"
            },
            seen["cancel"].clone(),
            cancel,
        ),
    ]
}

/// Equal, whether a number was written `1` or `1.0`.
fn same(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) => found.as_f64() == wanted.as_f64(),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| same(a, b))
        }
        _ => found == wanted,
    }
}

fn print(rows: &[Row]) {
    let mut text = format!("{:<42}", "");
    for operation in OPERATIONS {
        text.push_str(&format!("{operation:<11}"));
    }
    for row in rows {
        text.push_str(&format!("\n{:<42}", row.name));
        for cell in &row.cells {
            text.push_str(&format!(
                "{:<11}",
                cell.as_ref().map_or("FAILED", |words| words)
            ));
        }
    }
    // Past the capture of the test's output: the matrix is to be seen when it is good as well.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
