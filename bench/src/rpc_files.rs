//! `files/read` of 4 KiB over HTTP, connections that stay open: against bytes made beforehand, and
//! against the official filesystem server of MCP in Node, on its pipes, as many in flight.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::figure::Figure;
use crate::http::Connection;
use crate::lines::{Lines, Writer};
use crate::mcp::{INITIALIZE, INITIALIZED};
use crate::mcp_http::{FEW, MANY, Rounds};
use crate::piped::Piped;
use crate::rpc::{Served, request};
use crate::scratch::Scratch;
use crate::{Bench, Failure, canned};

/// Requests in flight, to the server in Node and ours alike.
const WIDTH: usize = FEW;
const ROUNDS: usize = 9;
/// Calls in a round.
const CALLS: usize = 10_000;
const NODE_CALLS: usize = 2_000;
/// Calls whose answers are looked at, before those that are counted.
const CHECKED: usize = 64;
const FILES: usize = 64;
const FILE_BYTES: usize = 4096;
const CANNED_MIN: f64 = 0.35;
const NODE_MIN: f64 = 5.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("rpc-files")?;
    let mut writer = Writer::new(bench.seed);
    let texts = write_files(&scratch.workspace(), &mut writer)?;
    let mut served = Served::start(bench, &scratch)?;
    let answer = checked(&mut served, &texts)?;
    let (canned_port, canned_runs) = canned::bytes(&scratch, &answer)?;
    let mut node = node(bench, &scratch.workspace())?;
    check_node(&mut node, &scratch.workspace(), &texts)?;
    let canned_at = (canned_port, &canned_runs);
    let (mut ours, mut canned) = <([Rounds; 2], [Rounds; 2])>::default();
    let mut nodes = Rounds::default();
    let reads = served.requests(&calls(CALLS));
    let node_reads = node_calls(&scratch.workspace(), NODE_CALLS);
    for _ in 0..ROUNDS {
        for (at, width) in [FEW, MANY].into_iter().enumerate() {
            ours[at].measure(served.at(), width, &reads)?;
            served.called(CALLS);
            canned[at].measure(canned_at, width, &reads)?;
        }
        let spent = node.exchange(&node_reads, WIDTH)?;
        nodes.rates.push(spent.per_second());
        nodes.cpus.push(spent.cpu_micros());
    }
    drop(canned_runs);
    served.finish(bench, &scratch)?;
    let name = |theirs: &str| format!("rpc-files: 4 KiB reads/s against {theirs}");
    let canned_name = |width: usize| name(&format!("canned bytes, {width} connections"));
    Ok(vec![
        ours[1]
            .against(&canned_name(MANY), &canned[1])
            .at_least(CANNED_MIN),
        ours[0]
            .against(&canned_name(FEW), &canned[0])
            .at_least(CANNED_MIN),
        ours[0]
            .against(&name("MCP's filesystem server in Node"), &nodes)
            .at_least(NODE_MIN),
    ])
}

/// Text as it is written, in lines.
pub fn write_files(workspace: &Path, writer: &mut Writer) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for number in 0..FILES {
        let mut text = String::new();
        while text.len() < FILE_BYTES {
            let word = writer.word();
            text.push_str(&format!(
                "    let value_{word:08x} = \"{number}\" + next;\n"
            ));
        }
        text.truncate(FILE_BYTES);
        fs::write(workspace.join(name(number)), &text)?;
        texts.push(text);
    }
    Ok(texts)
}

fn name(number: usize) -> String {
    format!("file-{}.rs", number % FILES)
}

/// Reads of the files, in turn.
pub fn calls(count: usize) -> Lines {
    let mut lines = Lines::default();
    for number in 0..count {
        lines.push(&request("files/read", json!({ "path": name(number) })));
    }
    lines
}

/// Reads whose answers are looked at; the bytes of the last.
fn checked(served: &mut Served, texts: &[String]) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(served.port)?;
    let requests = served.requests(&calls(CHECKED));
    let mut bytes = Vec::new();
    for number in 0..CHECKED {
        let answer = connection.ask(requests.slice(number, number + 1))?;
        let message = answer.messages()?.pop().unwrap_or_default();
        if message["result"]["content"] != *texts[number % FILES] {
            return Err(format!("read {message}").into());
        }
        bytes = answer.bytes();
    }
    served.called(CHECKED);
    Ok(bytes)
}

/// The official server, after its handshake.
fn node(bench: &Bench, workspace: &Path) -> Result<Piped, Failure> {
    let mut command = bench.rivals.filesystem()?;
    let mut piped = Piped::start(command.arg(workspace))?;
    let answer = piped.ask(INITIALIZE.as_bytes())?;
    if answer["result"]["protocolVersion"].is_null() {
        return Err(format!("answered {answer}").into());
    }
    piped.tell(INITIALIZED.as_bytes())?;
    Ok(piped)
}

fn node_calls(workspace: &Path, count: usize) -> Lines {
    let mut lines = Lines::default();
    for number in 0..count {
        let arguments = json!({ "path": workspace.join(name(number)) });
        let params = json!({ "name": "read_text_file", "arguments": arguments });
        lines.push(&request("tools/call", params));
    }
    lines
}

fn check_node(node: &mut Piped, workspace: &Path, texts: &[String]) -> Result<(), Failure> {
    let calls = node_calls(workspace, CHECKED);
    for (number, call) in calls.each().enumerate() {
        let answer: Value = node.ask(call)?;
        if answer["result"]["content"][0]["text"] != *texts[number % FILES] {
            return Err(format!("read {answer}").into());
        }
    }
    Ok(())
}
