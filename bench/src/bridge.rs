//! The bridge: a call over `bridge.sock` against a peer that answers canned bytes and against
//! a parent in Python's asyncio; and how much it takes to start one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::daemon::{Daemon, wait_for};
use crate::figure::{Figure, number, quiet};
use crate::scratch::Scratch;
use crate::{Bench, Failure, canned, chain, cpu, mcp};

const ROUNDS: usize = 12;
const CALLS: usize = 2_048;
const CONNECTIONS: usize = 64;
const STARTS: usize = 30;

/// What a call may cost above an answer without any work.
const ABOVE_ECHO_MICROS_MAX: f64 = 8.0;
/// CPU of a call at [`CONNECTIONS`] against the bare echo's: 2.6 and 4.2 on two machines.
const TIMES_ECHO_MAX: f64 = 4.5;
const START_MS_MAX: f64 = 10.0;

const REQUEST: &[u8] =
    br#"{"method":"call_tool","params":{"name":"builtin_echo","arguments":{"hello":"world"}}}"#;
const ANSWER: &[u8] = br#"{"result":{"content":[{"type":"text","text":"{\"hello\":\"world\"}"}]}}"#;

/// The same echo, as a small asyncio program serves it that keeps to the contract: fields are
/// checked, tools are found by name, failures and sizes are told.
const PYTHON: &str = r#"
import asyncio, json, struct, sys

LIMIT = 10_485_760

async def echo(arguments):
    return json.dumps(arguments)

TOOLS = {"builtin_echo": echo}

class ToolNotFoundError(Exception):
    pass

async def call(message):
    if not isinstance(message, dict) or message.get("method") != "call_tool":
        raise ValueError(f"Unknown method: {message.get('method')}")
    params = message.get("params")
    if not isinstance(params, dict):
        raise ValueError("Invalid params: expected dict")
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str):
        raise ValueError("Invalid tool name: expected string")
    if not isinstance(arguments, dict):
        raise ValueError("Invalid arguments: expected dict")
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolNotFoundError(f"Unknown tool: {name}")
    return {"content": [{"type": "text", "text": await tool(arguments)}]}

async def serve(reader, writer):
    try:
        while True:
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            if length > LIMIT:
                break
            payload = await reader.readexactly(length)
            try:
                answer = {"result": await call(json.loads(payload.decode("utf-8")))}
            except Exception as error:
                answer = {"error": {"message": str(error), "type": type(error).__name__}}
            answer = json.dumps(answer).encode("utf-8")
            if len(answer) > LIMIT:
                break
            writer.write(struct.pack(">I", len(answer)) + answer)
            await writer.drain()
    except asyncio.IncompleteReadError:
        pass
    writer.close()

async def main():
    server = await asyncio.start_unix_server(serve, sys.argv[1], backlog=128)
    await server.serve_forever()

asyncio.run(main())
"#;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = calls(bench)?;
    figures.push(start(bench)?);
    Ok(figures)
}

fn calls(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("bridge")?;
    let _one_core = cpu::OneCore::hold()?;
    let at = |name: &str| scratch.root().join(name);
    let (socket, python, bare) = (at("bridge.sock"), at("p.sock"), at("echo.sock"));
    let mut serve = mcp::callgate(bench, &scratch, &["serve"]);
    let gate = served(serve.arg("--socket").arg(at("gate.sock")), &socket)?;
    let mut rival = Command::new("python3");
    let rival = served(rival.args(["-c", PYTHON]).arg(&python), &python)?;
    let echo = canned::at_socket(&scratch, &frame(ANSWER)?, &bare)?;

    let mut one = Clients::connect(&socket, 1)?;
    let mut canned = Clients::connect(&bare, 1)?;
    let mut many = Clients::connect(&socket, CONNECTIONS)?;
    let mut theirs = Clients::connect(&python, CONNECTIONS)?;
    let mut least = Clients::connect(&bare, CONNECTIONS)?;
    let mut micros: [Vec<f64>; 5] = Default::default();
    for round in 0..=ROUNDS {
        let each = [
            spent(&gate, || one.ask(CALLS))?,
            spent(&echo, || canned.ask(CALLS))?,
            spent(&gate, || many.ask(CALLS))?,
            spent(&rival, || theirs.ask(CALLS))?,
            spent(&echo, || least.ask(CALLS))?,
        ];
        // The first round warms up.
        if round > 0 {
            for (all, one) in micros.iter_mut().zip(each) {
                all.push(one);
            }
        }
    }
    drop((one, canned, many, theirs, least));
    gate.stop()?;
    chain::check(bench, &scratch, (ROUNDS + 1) * 2 * CALLS)?;
    let [one, canned, many, theirs, least] = micros.map(|micros| quiet(&micros));
    Ok(vec![
        Figure::new(
            "bridge: CPU of a call above a bare echo's",
            one - canned,
            "µs",
        )
        .at_most(ABOVE_ECHO_MICROS_MAX)
        .beside(format!(
            "{} µs, the echo {} µs",
            number(one),
            number(canned)
        )),
        Figure::new(
            "bridge: CPU of a call against a bare echo's, 64 connections",
            many / least,
            "x",
        )
        .at_most(TIMES_ECHO_MAX)
        .beside(format!(
            "{} µs, the echo {} µs; a parent in Python's asyncio {} µs, {} x",
            number(many),
            number(least),
            number(theirs),
            number(theirs / many),
        )),
    ])
}

/// Microseconds of its CPU that each of `CALLS` takes.
fn spent(server: &Daemon, ask: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let before = cpu::process(server.pid());
    ask()?;
    Ok(cpu::micros_each(cpu::process(server.pid()) - before, CALLS))
}

/// CPU of a bridge from its start to its first answer.
fn start(bench: &Bench) -> Result<Figure, Failure> {
    let scratch = Scratch::new("bridge-start")?;
    let schema = scratch.root().join("schema.json");
    let tool = r#"{"name":"t","description":"d","input_schema":{"type":"object"}}"#;
    std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&schema)?
        .write_all(format!("[{tool}]").as_bytes())?;
    let mut millis = Vec::new();
    for _ in 0..STARTS {
        let mut child = Command::new(&bench.callgate)
            .arg("bridge")
            .arg(scratch.root().join("none.sock"))
            .arg(&schema)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("a child without its stdin")?;
        stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n")?;
        let stdout = child.stdout.take().ok_or("a child without its stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        millis.push(cpu::process(child.id()).as_secs_f64() * 1e3);
        drop(stdin);
        if !line.contains("inputSchema") || !child.wait()?.success() {
            return Err(format!("answered {line}").into());
        }
    }
    let name = "bridge: CPU from start to the first `tools/list`";
    Ok(Figure::new(name, quiet(&millis), "ms").at_most(START_MS_MAX))
}

/// Connections that ask in turn, each one request at a time.
pub struct Clients(Vec<UnixStream>);

impl Clients {
    pub fn connect(socket: &Path, count: usize) -> Result<Self, Failure> {
        let streams: Result<_, _> = (0..count).map(|_| UnixStream::connect(socket)).collect();
        Ok(Self(streams?))
    }

    pub fn ask(&mut self, calls: usize) -> Result<(), Failure> {
        let request = frame(REQUEST)?;
        let mut prefix = [0; 4];
        let mut answer = Vec::new();
        for _ in 0..calls / self.0.len() {
            for stream in &mut self.0 {
                stream.write_all(&request)?;
            }
            for stream in &mut self.0 {
                stream.read_exact(&mut prefix)?;
                answer.resize(usize::try_from(u32::from_be_bytes(prefix))?, 0);
                stream.read_exact(&mut answer)?;
                if !answer.starts_with(b"{\"result\"") {
                    return Err(String::from_utf8_lossy(&answer).into());
                }
            }
        }
        Ok(())
    }
}

fn frame(payload: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok([&u32::try_from(payload.len())?.to_be_bytes(), payload].concat())
}

/// Starts a program and waits until it serves a socket.
fn served(command: &mut Command, socket: &Path) -> Result<Daemon, Failure> {
    let daemon = Daemon::start(command)?;
    wait_for(&socket.display().to_string(), || {
        UnixStream::connect(socket).is_ok()
    })?;
    Ok(daemon)
}
