//! What the documents list is what the program has: every kind of fault with its data, every
//! command with its exit codes.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use callgate_call::{Fault, LeaseRefusal};
use serde_json::json;
use support::Folder;
use support::drive::{Serve, cli, exchange, post_bytes};
use support::workspace::{ONE, trusted};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    std::fs::read_to_string(path).expect("a document")
}

/// The rows of a table by what stands in backticks in their first cell.
fn rows(text: &str) -> BTreeMap<String, Vec<String>> {
    text.lines()
        .filter_map(|line| {
            let cells = line.strip_prefix("| `")?.trim_end().strip_suffix('|')?;
            let (name, cells) = cells.split_once("` |")?;
            let cells = cells.split('|').map(|cell| cell.trim().to_owned());
            Some((name.to_owned(), cells.collect()))
        })
        .collect()
}

/// One fault after another, so that a new one does not compile until it stands here.
fn after(fault: &Fault) -> Option<Fault> {
    let text = String::new;
    let time = Duration::from_secs(1);
    Some(match fault {
        Fault::UnknownTool { .. } => Fault::BadRequest { reason: text() },
        Fault::BadRequest { .. } => Fault::BadInput {
            field: text(),
            reason: text(),
        },
        Fault::BadInput { .. } => Fault::bad_value(text()),
        Fault::BadValue { .. } => Fault::NotFound { message: text() },
        Fault::NotFound { .. } => Fault::denied(text()),
        Fault::Denied { .. } => Fault::NeedsApproval { approval: text() },
        Fault::NeedsApproval { .. } => Fault::NeedsInput {
            requests: serde_json::Map::new(),
            state: None,
        },
        Fault::NeedsInput { .. } => Fault::LeaseRequired {
            tier: 1,
            tool: text(),
            aid: text(),
        },
        Fault::LeaseRequired { .. } => Fault::LeaseRejected {
            refusal: LeaseRefusal::TierTooLow {
                expected: 2,
                got: 1,
            },
        },
        Fault::LeaseRejected { .. } => Fault::conflict(text()),
        Fault::Conflict { .. } => Fault::OutcomeUnknown { call: text() },
        Fault::OutcomeUnknown { .. } => Fault::RateLimited { retry_after: time },
        Fault::RateLimited { .. } => Fault::BreakerOpen { retry_after: time },
        Fault::BreakerOpen { .. } => Fault::Unavailable { reason: text() },
        Fault::Unavailable { .. } => Fault::Unenforceable {
            missing: Vec::new(),
        },
        Fault::Unenforceable { .. } => Fault::GuaranteeBlocked { guarantee: text() },
        Fault::GuaranteeBlocked { .. } => Fault::too_large(text(), 1),
        Fault::TooLarge { .. } => Fault::Timeout { after: time },
        Fault::Timeout { .. } => Fault::Crash { message: text() },
        Fault::Crash { .. } => Fault::BadOutput { reason: text() },
        Fault::BadOutput { .. } => Fault::ToolFailed {
            error_type: text(),
            message: text(),
            content: None,
        },
        Fault::ToolFailed { .. } => Fault::Cancelled,
        Fault::Cancelled => Fault::Internal { message: text() },
        Fault::Internal { .. } => return None,
    })
}

/// Table F on our own wire: each kind of fault stands in the document, with the names of its
/// data, and no other does.
#[test]
fn every_kind_of_fault_is_documented() {
    let text = document("http.md");
    let (_, table) = text.split_once("<!-- fault-table -->").expect("a table");
    let (table, _) = table.split_once("<!-- /fault-table -->").expect("its end");
    let listed: BTreeMap<String, BTreeSet<String>> = rows(table)
        .into_iter()
        .map(|(kind, cells)| {
            let data = cells[1].split('`').skip(1).step_by(2);
            (kind, data.map(str::to_owned).collect())
        })
        .collect();
    let first = Fault::UnknownTool {
        tool: String::new(),
    };
    let faults = std::iter::successors(Some(first), after);
    let known: BTreeMap<String, BTreeSet<String>> = faults
        .map(|fault| {
            let data = fault.data();
            let names = data.as_object().expect("an object").keys().cloned();
            (fault.kind().to_owned(), names.collect())
        })
        .collect();
    assert_eq!(listed, known);
}

/// The statuses of the document: 200 for a call that was taken, however it went.
#[test]
fn the_statuses_are_as_documented() {
    let listed = rows(&document("http.md"));
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let answer = |request: &[u8]| exchange(&serve.socket, request).expect("an answer");
    let post = |body: &[u8]| answer(&post_bytes(body));
    let too_large = vec![b' '; 16 * 1024 * 1024 + 1];
    let put = b"PUT /v1/call HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n";
    for (kind, (status, body)) in [
        ("unknown_tool", post(b"{\"tool\":\"none\"}")),
        ("bad_input", post(b"{\"tool\":\"one\",\"input\":null}")),
        ("bad_request", post(b"{\"tool\":\"one\",\"inputs\":{}}")),
        ("bad_request", serve.get("/v2/call")),
        ("bad_request", answer(put)),
        ("too_large", post(&too_large)),
    ] {
        assert_eq!(
            (&body["ok"], &body["fault"]["kind"]),
            (&json!(false), &json!(kind))
        );
        let mut statuses = listed[kind][0].split(", ");
        assert!(
            statuses.any(|known| known == status.to_string()),
            "{kind}: {status}"
        );
    }
    assert!(serve.stop().success());
}

/// Each command of `callgate --help` has its exit codes in the document, and no other has.
#[test]
fn every_command_s_exit_codes_are_documented() {
    let help = cli(&Folder::new(), &["--help"]).good().out;
    let (_, commands) = help.split_once("Commands:\n").expect("commands");
    let named: BTreeSet<String> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty() && *word != "help")
        .map(str::to_owned)
        .collect();
    let listed: BTreeSet<String> = rows(&document("cli.md")).into_keys().collect();
    assert_eq!(listed, named);
}
