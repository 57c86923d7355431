//! The tool protocol over HTTP, a Python function in a worker that stays: against a service
//! that does no more than the protocol, and against bytes made beforehand.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::cpu;
use crate::daemon::Daemon;
use crate::figure::{Figure, median, number, quiet};
use crate::http::{Connection, Connections};
use crate::lines::{Lines, Writer};
use crate::mcp_http::{requests, serve};
use crate::scratch::Scratch;
use crate::{Bench, Failure, canned, chain, mcp, python};

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 5;
/// Calls whose answers are looked at, before those that are counted.
const CHECKED: usize = 50;
const CALLS: usize = 5_000;
const RATE_MIN: f64 = 5_000.0;

const CONFIG: &str = r#"
[[tool]]
name = "greet"
isolation = "worker"
input_schema = { type = "object", properties = { name = { type = "string" } }, required = ["name"] }
runner = { kind = "python", entry = "tools.sample:greet", pool = { calls_max = 1000000 } }
"#;
/// Its code.
const ENTRY: &str = "tools.sample:greet";
const PROGRAM: &str = "def greet(payload): return {'message': f\"Hello {payload['name']}\"}\n";

/// One server, and how it did in each round.
struct Server {
    name: &'static str,
    port: u16,
    runs: Daemon,
    rates: Vec<f64>,
    cpus: Vec<f64>,
}

impl Server {
    fn new(name: &'static str, (port, runs): (u16, Daemon)) -> Self {
        Self {
            name,
            port,
            runs,
            rates: Vec::new(),
            cpus: Vec::new(),
        }
    }

    fn measure(&mut self, writer: &mut Writer) -> Result<(), Failure> {
        let requests = requests(
            &headers(self.port),
            &writer.service_calls("greet", ENTRY, CALLS),
        );
        let mut connections = Connections::open(self.port, CONNECTIONS)?;
        let before = cpu::tree(self.runs.pid())?;
        let took = connections.exchange(&requests)?;
        let cpu = cpu::tree(self.runs.pid())?.saturating_sub(before);
        self.rates.push(CALLS as f64 / took.as_secs_f64());
        self.cpus.push(cpu::micros_each(cpu, CALLS));
        Ok(())
    }
}

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("service")?;
    fs::write(scratch.workspace().join("callgate.toml"), CONFIG)?;
    fs::create_dir(scratch.workspace().join("tools"))?;
    fs::write(scratch.workspace().join("tools/sample.py"), PROGRAM)?;
    mcp::trust(bench, &scratch)?;
    let mut writer = Writer::new(bench.seed);
    let few = writer.service_calls("greet", ENTRY, CHECKED);
    let mut ours = Server::new("ours", serve(bench, &scratch)?);
    let body = checked(ours.port, &few)?;
    let mut rivals = [
        Server::new("hyper's canned bytes", canned::by_hyper(&scratch, &body)?),
        Server::new("Python's http.server", by_hand()?),
    ];
    checked(rivals[1].port, &few)?;
    for _ in 0..ROUNDS {
        ours.measure(&mut writer)?;
        for rival in &mut rivals {
            rival.measure(&mut writer)?;
        }
    }
    let (rate, cpu) = (median(&ours.rates), quiet(&ours.cpus));
    let mut figures = vec![
        Figure::new("service: calls of a Python worker", rate, "/s")
            .at_least(RATE_MIN)
            .beside(format!(
                "{CONNECTIONS} connections; CPU of a call {} µs, worker included",
                number(cpu)
            )),
    ];
    for rival in &rivals {
        let (them, theirs) = (median(&rival.rates), quiet(&rival.cpus));
        let name = format!("service: calls/s against {}", rival.name);
        figures.push(Figure::new(&name, rate / them, "x").beside(format!(
            "{} against {} calls/s; CPU of a call {} against {} µs",
            number(rate),
            number(them),
            number(cpu),
            number(theirs),
        )));
    }
    ours.runs.stop()?;
    chain::check(bench, &scratch, CHECKED + ROUNDS * CALLS)?;
    Ok(figures)
}

/// The same function behind a service of a few lines.
fn by_hand() -> Result<(u16, Daemon), Failure> {
    let mut command = Command::new("python3");
    command.arg("bench/rivals/python/tool_service.py");
    command.env("PATH", python::path_of_python()?);
    let (daemon, port) = Daemon::heard(&mut command)?;
    Ok((port.trim().parse()?, daemon))
}

/// The head of every request, but for its length.
pub fn headers(port: u16) -> String {
    format!("POST /tools HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n")
}

/// Calls whose answers are looked at; the body of the last.
fn checked(port: u16, calls: &Lines) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(port)?;
    let requests = requests(&headers(port), calls);
    let mut body = Value::Null;
    for (index, call) in calls.each().enumerate() {
        let request: Value = serde_json::from_slice(call)?;
        let name = request["payload"]["name"].as_str().unwrap_or_default();
        let messages = connection
            .ask(requests.slice(index, index + 1))?
            .messages()?;
        body = messages.into_iter().next().unwrap_or_default();
        if body["ok"] != true || body["result"]["message"] != format!("Hello {name}") {
            return Err(format!("answered {body}").into());
        }
    }
    Ok(body.to_string().into_bytes())
}
