//! MCP over HTTP, connections that stay open, both eras: against bytes made beforehand, the
//! TypeScript SDK and FastMCP; and how soon the answer comes that is a stream.

use std::fs;
use std::net::TcpListener;
use std::time::Instant;

use crate::daemon::{Daemon, wait_for_port};
use crate::figure::{Figure, median, number, quiet};
use crate::http::{Connection, Connections};
use crate::lines::{Lines, Writer};
use crate::mcp::{self, INITIALIZE, INITIALIZED, MODERN_META, TOOL};
use crate::scratch::Scratch;
use crate::{Bench, Failure, canned, chain, cpu, python};

/// Connections at once: few, where each answer wakes a client that has nothing else to do, which
/// bytes that were made beforehand never wait for; and as many as keep client and server busy.
pub const FEW: usize = 8;
pub const MANY: usize = 64;
const ROUNDS: usize = 9;
/// Calls that are looked at, before those that are counted. They warm compilers up as well.
const CHECKED: usize = 50;
/// Calls of ours in a round.
const CALLS: usize = 10_000;
/// Who is measured.
const OURS: &str = "ours";
/// What the names of those end with that no one has made to be used.
const CANNED: &str = "canned bytes";
/// Serial calls whose answers are streams.
const STREAMS: usize = 500;
const STREAM_P99_MS_MAX: f64 = 5.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = rates(bench)?;
    figures.extend(streams(bench)?);
    Ok(figures)
}

/// The two forms of the protocol.
#[derive(Clone, Copy, PartialEq)]
pub enum Era {
    Modern,
    Legacy,
}

impl Era {
    const ALL: [Self; 2] = [Self::Modern, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }

    pub fn meta(self) -> Option<&'static str> {
        match self {
            Self::Modern => Some(MODERN_META),
            Self::Legacy => None,
        }
    }
}

/// A server at a port, and what is sent to it in each era.
struct Server {
    name: &'static str,
    port: u16,
    runs: Daemon,
    calls: usize,
    /// How much faster than it we want to be, if it is a rival.
    wanted: Option<f64>,
    /// Those of each round, in each era.
    few: [Rounds; 2],
    many: [Rounds; 2],
}

/// Calls per second and CPU of a call, of each round.
#[derive(Default)]
pub struct Rounds {
    pub rates: Vec<f64>,
    pub cpus: Vec<f64>,
}

impl Rounds {
    /// One more, of these requests.
    pub fn measure(
        &mut self,
        (port, runs): (u16, &Daemon),
        width: usize,
        requests: &Lines,
    ) -> Result<(), Failure> {
        let mut connections = Connections::open(port, width)?;
        let before = cpu::tree(runs.pid())?;
        let took = connections.exchange(requests)?;
        let spent = cpu::tree(runs.pid())?.saturating_sub(before);
        self.rates.push(requests.len() as f64 / took.as_secs_f64());
        self.cpus.push(cpu::micros_each(spent, requests.len()));
        Ok(())
    }

    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// How ours compare with others.
    pub fn against(&self, name: &str, theirs: &Self) -> Figure {
        let beside = format!(
            "{} against {} calls/s; CPU of a call {} against {} µs",
            number(self.rate()),
            number(theirs.rate()),
            number(quiet(&self.cpus)),
            number(quiet(&theirs.cpus)),
        );
        Figure::new(name, self.rate() / theirs.rate(), "x").beside(beside)
    }
}

impl Server {
    fn new(
        name: &'static str,
        (port, runs): (u16, Daemon),
        calls: usize,
        wanted: Option<f64>,
    ) -> Self {
        Self {
            name,
            port,
            runs,
            calls,
            wanted,
            few: Default::default(),
            many: Default::default(),
        }
    }

    /// True if others have made it.
    fn is_rival(&self) -> bool {
        self.name != OURS && !self.name.ends_with(CANNED)
    }

    /// One round in one era.
    fn measure(&mut self, era: Era, headers: &str, writer: &mut Writer) -> Result<(), Failure> {
        let calls = writer.tool_calls(TOOL, self.calls, era.meta());
        let (at, requests) = ((self.port, &self.runs), requests(headers, &calls));
        self.few[era as usize].measure(at, FEW, &requests)?;
        // The others are slower by far, however many ask.
        if !self.is_rival() {
            self.many[era as usize].measure(at, MANY, &requests)?;
        }
        Ok(())
    }
}

fn rates(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("mcp-http")?;
    let mut writer = Writer::new(bench.seed);
    let mut ours = Server::new(OURS, serve(bench, &scratch)?, CALLS, None);
    let few = Era::ALL.map(|era| writer.tool_calls(TOOL, CHECKED, era.meta()));
    let answer = checked(ours.port, &few)?;
    let body = memchr::memmem::find(&answer, b"\r\n\r\n").map_or(0, |at| at + 4);
    let body = answer[body..].to_vec();
    let mut rivals = [
        Server::new(CANNED, canned::bytes(&scratch, &answer)?, CALLS, Some(0.4)),
        Server::new(
            "hyper's canned bytes",
            canned::by_hyper(&scratch, &body)?,
            CALLS,
            None,
        ),
        Server::new("TypeScript SDK", typescript(bench)?, 1_000, Some(25.0)),
        Server::new("FastMCP", fastmcp(bench)?, 200, Some(50.0)),
    ];
    for rival in rivals.iter().filter(|rival| rival.is_rival()) {
        // Canned bytes are the answer to something else.
        checked(rival.port, &few)?;
    }
    for _ in 0..ROUNDS {
        for era in Era::ALL {
            ours.measure(era, &headers(ours.port, era, TOOL)?, &mut writer)?;
            for rival in &mut rivals {
                // Canned bytes are no handshake.
                let port = if rival.is_rival() {
                    rival.port
                } else {
                    ours.port
                };
                let headers = headers(port, era, TOOL)?;
                rival.measure(era, &headers, &mut writer)?;
            }
        }
    }
    let mut figures = Vec::new();
    for era in Era::ALL {
        let (name, era) = (era.name(), era as usize);
        for rival in &rivals {
            let few = format!("mcp-http, {name}: calls/s against {}", rival.name);
            if rival.is_rival() {
                let figure = ours.few[era].against(&few, &rival.few[era]);
                figures.push(figure.maybe_at_least(rival.wanted));
                continue;
            }
            let many = format!("{few}, {MANY} connections");
            let figure = ours.many[era].against(&many, &rival.many[era]);
            figures.push(figure.maybe_at_least(rival.wanted));
            let few = format!("{few}, {FEW} connections");
            let figure = ours.few[era].against(&few, &rival.few[era]);
            figures.push(figure.maybe_at_least(rival.wanted));
        }
    }
    ours.runs.stop()?;
    chain::check(bench, &scratch, 2 * (CHECKED + 2 * ROUNDS * CALLS))?;
    Ok(figures)
}

/// The tool that is measured is none of those that are served over MCP by default.
pub const EVERY_BUILTIN: &str = "[builtins]\nallow = [\"*\"]\n";

/// `callgate serve` and its port.
pub fn serve(bench: &Bench, scratch: &Scratch) -> Result<(u16, Daemon), Failure> {
    let config = scratch.workspace().join("callgate.toml");
    if !config.exists() {
        fs::write(config, EVERY_BUILTIN)?;
        mcp::trust(bench, scratch)?;
    }
    let words = ["serve", "--no-auth", "--port", "0", "--json"];
    let mut command = mcp::callgate(bench, scratch, &words);
    command
        .arg("--socket")
        .arg(scratch.root().join("gate.sock"));
    command.env("PATH", python::path_of_python()?);
    let (daemon, said) = Daemon::heard(&mut command)?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    let port = said["port"].as_u64().and_then(|port| port.try_into().ok());
    Ok((port.ok_or("`serve` names no port")?, daemon))
}

fn typescript(bench: &Bench) -> Result<(u16, Daemon), Failure> {
    let (daemon, port) = Daemon::heard(bench.rivals.typescript()?.arg("http"))?;
    Ok((port.trim().parse()?, daemon))
}

/// It can not choose a port itself.
fn fastmcp(bench: &Bench) -> Result<(u16, Daemon), Failure> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let mut command = bench.rivals.fastmcp()?;
    let daemon = Daemon::start(command.args(["http", &port.to_string()]))?;
    wait_for_port(port)?;
    Ok((port, daemon))
}

/// Calls in each era, every answer looked at; the bytes of one of them.
fn checked(port: u16, few: &[Lines; 2]) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(port)?;
    let mut bytes = Vec::new();
    for (era, calls) in Era::ALL.into_iter().zip(few) {
        let requests = requests(&headers(port, era, TOOL)?, calls);
        for (index, call) in calls.each().enumerate() {
            let answer = connection.ask(requests.slice(index, index + 1))?;
            let messages = answer.messages()?;
            mcp::check(call, messages.last().ok_or("an answer without a message")?)?;
            bytes = answer.bytes();
        }
    }
    Ok(bytes)
}

/// What the head of every `tools/call` has, after the handshake where its era has one.
pub fn headers(port: u16, era: Era, tool: &str) -> Result<String, Failure> {
    let mut common = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n"
    );
    match era {
        Era::Modern => common.push_str(&format!(
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n"
        )),
        Era::Legacy => {
            let mut connection = Connection::open(port)?;
            let first = connection.ask(request(&common, INITIALIZE).as_bytes())?;
            let session = first.field("mcp-session-id").map(<[u8]>::to_vec);
            common.push_str("mcp-protocol-version: 2025-11-25\r\n");
            if let Some(session) = session {
                let session = String::from_utf8(session)?;
                common.push_str(&format!("mcp-session-id: {session}\r\n"));
            }
            connection.ask(request(&common, INITIALIZED).as_bytes())?;
        }
    }
    Ok(common)
}

/// A tool that says how far it is before it answers, so that the answer is a stream.
const REPORT: &str = r#"
[[tool]]
name = "report"
description = "Gives back the message, and reports before it does"
runner = { kind = "python", entry = "report:report" }
"#;
const REPORT_PROGRAM: &str = "\
import callgate

def report(payload):
    callgate.progress(1, 2)
    return payload
";

/// How long a client waits that asks one thing after the other.
fn streams(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("mcp-streams")?;
    fs::write(scratch.workspace().join("callgate.toml"), REPORT)?;
    fs::write(scratch.workspace().join("report.py"), REPORT_PROGRAM)?;
    mcp::trust(bench, &scratch)?;
    let (port, runs) = serve(bench, &scratch)?;
    let mut writer = Writer::new(bench.seed);
    let mut figures = Vec::new();
    for era in Era::ALL {
        let mut took_ms = Vec::new();
        let headers = headers(port, era, "report")?;
        let mut connection = Connection::open(port)?;
        let calls = writer.tool_calls("report", CHECKED + STREAMS, Some(&reporting(era)));
        let requests = requests(&headers, &calls);
        for (index, call) in calls.each().enumerate() {
            let began = Instant::now();
            let answer = connection.ask(requests.slice(index, index + 1))?;
            took_ms.push(began.elapsed().as_secs_f64() * 1e3);
            match answer.messages()?.as_slice() {
                [progress, message]
                    if answer.is_stream() && progress["method"] == "notifications/progress" =>
                {
                    mcp::check(call, message)?;
                }
                other => return Err(format!("no stream with progress: {other:?}").into()),
            }
        }
        let warm = &mut took_ms[CHECKED..];
        warm.sort_by(f64::total_cmp);
        let p99 = warm[STREAMS * 99 / 100];
        let name = format!("mcp-http, {}: p99 of {STREAMS} streams", era.name());
        let figure = Figure::new(&name, p99, "ms").at_most(STREAM_P99_MS_MAX);
        figures.push(figure.beside(format!(
            "a Python worker reports and answers; median {} ms, worst {} ms",
            number(warm[STREAMS / 2]),
            number(warm[STREAMS - 1]),
        )));
    }
    runs.stop()?;
    // `trust` asks the module what it declares, because it imports `callgate`: a call of its own.
    let described = 1;
    chain::check(bench, &scratch, described + 2 * (CHECKED + STREAMS))?;
    Ok(figures)
}

/// The `_meta` of a call that wants to hear how far it is.
fn reporting(era: Era) -> String {
    match era.meta() {
        Some(meta) => meta.replacen('{', r#"{"progressToken":1,"#, 1),
        None => r#"{"progressToken":1}"#.to_owned(),
    }
}

fn request(headers: &str, body: &str) -> String {
    format!("{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// Whole requests, whose bodies end with the newline that ends a line.
pub fn requests(headers: &str, calls: &Lines) -> Lines {
    let mut requests = Lines::default();
    for call in calls.each() {
        let call = String::from_utf8_lossy(call);
        let length = call.len() + 1;
        requests.push(&format!("{headers}content-length: {length}\r\n\r\n{call}"));
    }
    requests
}
