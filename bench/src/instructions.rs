//! Instructions of a call on each hot path, counted by callgrind in the process of the gate.
//!
//! Seconds and ratios move with the machine; instructions repeat to a few thousandths, so a call
//! that became dearer shows at once. Each path is counted twice, with few calls and with many,
//! and the difference is divided by the calls between them: start and end drop out. Requests
//! are the same bytes in each run, sent one at a time. Client and gate share a core: on two,
//! chance decides how often one waits for the other, and counts differ by 4 %.
//!
//! Not here: programs as tools. Valgrind knows neither Landlock nor seccomp, so the gate refuses
//! to start one; all tools are built-in ones.

use std::fs;

use crate::bridge::Clients;
use crate::daemon::{Daemon, wait_for};
use crate::figure::{Figure, number};
use crate::http::Connections;
use crate::lines::{Lines, Writer};
use crate::mcp::{MODERN_META, TOOL};
use crate::mcp_http::{self, EVERY_BUILTIN, Era, requests};
use crate::piped::Piped;
use crate::scratch::Scratch;
use crate::{
    Bench, Failure, callgrind, chain, cpu, mcp, mcp_stdio, rpc, rpc_files, serve, service,
};

/// The bench's own name.
pub const NAME: &str = "instructions";

const FEW: usize = 1_000;
const MANY: usize = 5_000;
/// Requests are the same in every run.
const SEED: u64 = 19;

/// A way of a call through the gate.
struct HotPath {
    name: &'static str,
    /// Instructions of a call that it is held to.
    reference: f64,
    /// Carries out so many calls in a workspace and says how many instructions that took.
    count: fn(&Counting<'_>, usize) -> Result<u64, Failure>,
}

const HOT_PATHS: [HotPath; 8] = [
    HotPath {
        name: "MCP over HTTP, modern",
        reference: 48_000.0,
        count: |counting, calls| mcp_over_http(counting, Era::Modern, calls),
    },
    HotPath {
        name: "MCP over HTTP, legacy",
        reference: 40_100.0,
        count: |counting, calls| mcp_over_http(counting, Era::Legacy, calls),
    },
    HotPath {
        name: "MCP on pipes, modern",
        reference: 37_100.0,
        count: |counting, calls| mcp_on_pipes(counting, Some(MODERN_META), calls),
    },
    HotPath {
        name: "MCP on pipes, legacy",
        reference: 29_900.0,
        count: |counting, calls| mcp_on_pipes(counting, None, calls),
    },
    HotPath {
        name: "bridge",
        reference: 26_100.0,
        count: bridge,
    },
    HotPath {
        name: "`files/read` of 4 KiB over HTTP",
        reference: 47_100.0,
        count: files_read,
    },
    HotPath {
        name: "toolhost, fresh key",
        reference: 45_100.0,
        count: toolhost,
    },
    HotPath {
        name: "tool protocol over HTTP",
        reference: 65_300.0,
        count: tool_protocol,
    },
];

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let _one_core = cpu::OneCore::hold()?;
    let measure = |path: &HotPath| {
        let measured = path.measure(bench);
        measured.map_err(|failure| format!("{}: {failure}", path.name).into())
    };
    HOT_PATHS.iter().map(measure).collect()
}

impl HotPath {
    fn measure(&self, bench: &Bench) -> Result<Figure, Failure> {
        let few = self.total(bench, FEW)?;
        let many = self.total(bench, MANY)?;
        let each = many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
        let name = format!("{NAME}: {}", self.name);
        let change = (each / self.reference - 1.0) * 100.0;
        eprintln!("{name}: {each:.0}");
        let beside = format!(
            "{change:+.1} % against {}; start and end {} millions",
            number(self.reference),
            number((few as f64 - each * FEW as f64) / 1e6),
        );
        Ok(Figure::new(&name, each, "")
            .held_to(self.reference)
            .beside(beside))
    }

    /// Instructions of a whole run with so many calls, whose records are then counted.
    fn total(&self, bench: &Bench, calls: usize) -> Result<u64, Failure> {
        let scratch = Scratch::new(NAME)?;
        let counting = Counting::new(bench, &scratch)?;
        let total = (self.count)(&counting, calls)?;
        chain::check(bench, &scratch, calls)?;
        Ok(total)
    }
}

/// A trusted workspace, and the program under callgrind.
struct Counting<'a> {
    bench: Bench,
    scratch: &'a Scratch,
}

impl<'a> Counting<'a> {
    fn new(bench: &Bench, scratch: &'a Scratch) -> Result<Self, Failure> {
        let workspace = scratch.workspace();
        let config = [EVERY_BUILTIN, rpc::CONFIG].concat();
        fs::write(workspace.join("callgate.toml"), config)?;
        rpc_files::write_files(&workspace, &mut Writer::new(SEED))?;
        mcp::trust(bench, scratch)?;
        callgrind::prepare(scratch.root())?;
        let mut bench = bench.clone();
        bench.callgrind = Some(scratch.root().to_owned());
        Ok(Self { bench, scratch })
    }

    /// Instructions of `serve` while it gets these requests on one connection.
    fn over_http(
        &self,
        requests: impl FnOnce(u16) -> Result<Lines, Failure>,
    ) -> Result<u64, Failure> {
        let (port, gate) = mcp_http::serve(&self.bench, self.scratch)?;
        let requests = requests(port)?;
        let mut connections = Connections::open(port, 1)?;
        connections.exchange(&requests)?;
        self.stopped(gate)
    }

    /// Instructions of a program on pipes while it gets these lines.
    fn on_pipes(&self, mut program: Piped, lines: &Lines) -> Result<u64, Failure> {
        program.exchange(lines, 1)?;
        let pid = program.pid();
        program.finish()?;
        callgrind::total(self.scratch.root(), pid)
    }

    /// Instructions of a gate, which is stopped.
    fn stopped(&self, gate: Daemon) -> Result<u64, Failure> {
        let pid = gate.pid();
        gate.stop()?;
        callgrind::total(self.scratch.root(), pid)
    }
}

fn mcp_over_http(counting: &Counting<'_>, era: Era, calls: usize) -> Result<u64, Failure> {
    let calls = Writer::new(SEED).tool_calls(TOOL, calls, era.meta());
    counting.over_http(|port| {
        let headers = mcp_http::headers(port, era, TOOL)?;
        Ok(requests(&headers, &calls))
    })
}

fn mcp_on_pipes(counting: &Counting<'_>, meta: Option<&str>, calls: usize) -> Result<u64, Failure> {
    let words = ["mcp", "--standalone", "--only", "builtin/echo"];
    let mut command = mcp::callgate(&counting.bench, counting.scratch, &words);
    let program = mcp_stdio::begun(Piped::start(&mut command)?)?;
    counting.on_pipes(program, &Writer::new(SEED).tool_calls(TOOL, calls, meta))
}

fn bridge(counting: &Counting<'_>, calls: usize) -> Result<u64, Failure> {
    let (_, gate) = mcp_http::serve(&counting.bench, counting.scratch)?;
    let socket = counting.scratch.root().join("bridge.sock");
    wait_for("the bridge's socket", || socket.exists())?;
    Clients::connect(&socket, 1)?.ask(calls)?;
    counting.stopped(gate)
}

fn files_read(counting: &Counting<'_>, calls: usize) -> Result<u64, Failure> {
    let calls = rpc_files::calls(calls);
    counting.over_http(|port| Ok(requests(&rpc::headers(port), &calls)))
}

fn toolhost(counting: &Counting<'_>, calls: usize) -> Result<u64, Failure> {
    let lines = Writer::new(SEED).requests(serve::AID, calls, true);
    let program = serve::host(&counting.bench, counting.scratch)?;
    counting.on_pipes(program, &lines)
}

fn tool_protocol(counting: &Counting<'_>, calls: usize) -> Result<u64, Failure> {
    let calls = Writer::new(SEED).service_calls("builtin/echo", "builtin/echo", calls);
    counting.over_http(|port| Ok(requests(&service::headers(port), &calls)))
}
