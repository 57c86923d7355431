//! The bridge's two ends: a call at `bridge.sock` of `callgate serve` against a parent that gives
//! back what it got and does nothing else, and against one written with Python's asyncio; and
//! `callgate bridge` from its start to its first answer.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cpu::Tenant;
use crate::daemon::{Daemon, wait_for};
use crate::figure::{Figure, median, number, quiet};
use crate::lines::Writer;
use crate::mcp::{self, TOOL};
use crate::piped::Piped;
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain, cpu, mcp_start};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 7;
const CALLS: usize = 20_000;
/// The one that is slower gets fewer.
const PYTHON_CALLS: usize = 4_000;
const STARTS: usize = 30;
const CPU_MICROS_MORE_MAX: f64 = 8.0;
const FASTER_THAN_PYTHON: f64 = 4.0;
const START_CPU_MS_MAX: f64 = 10.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("bridge")?;
    let path = |name: &str| scratch.root().join(name);
    let gate_socket = path("gate.sock");
    let mut command = mcp::callgate(bench, &scratch, &["serve", "--socket"]);
    let serve = Daemon::start(command.arg(&gate_socket))?;
    let ours = path("bridge.sock");
    let (bare, python) = (path("bare.sock"), path("python.sock"));
    let tenant = bare_parent(&bare)?;
    let _python = Daemon::start(bench.rivals.asyncio_parent()?.arg(&python))?;
    for socket in [&ours, &bare, &python] {
        wait_for("a parent", || UnixStream::connect(socket).is_ok())?;
    }
    let mut writer = Writer::new(bench.seed);
    let mut spent: [Vec<Spent>; 3] = Default::default();
    for round in 0..=ROUNDS {
        let measured = [
            exchange(&ours, &writer.frames(TOOL, CALLS), || {
                cpu::tree(serve.pid())
            })?,
            exchange(&bare, &writer.frames(TOOL, CALLS), || tenant.cpu())?,
            exchange(&python, &writer.frames(TOOL, PYTHON_CALLS), || {
                Ok(Duration::ZERO)
            })?,
        ];
        // The first round warms up.
        if round > 0 {
            for (all, one) in spent.iter_mut().zip(measured) {
                all.push(one);
            }
        }
    }
    let start = starts(bench, &ours, &path("bridge-schema.json"))?;
    serve.stop()?;
    chain::check(bench, &scratch, (ROUNDS + 1) * CALLS)?;
    let [cpu_ours, cpu_bare, _] = spent.each_ref().map(|all| cpu_of(all));
    let [rate_ours, rate_bare, rate_python] = spent.each_ref().map(|all| rate_of(all));
    Ok(vec![
        Figure::new(
            "bridge: CPU of a call above a bare parent's",
            cpu_ours - cpu_bare,
            "µs",
        )
        .at_most(CPU_MICROS_MORE_MAX)
        .beside(format!(
            "{} against {} µs",
            number(cpu_ours),
            number(cpu_bare)
        )),
        Figure::new(
            "bridge: calls/s against an asyncio parent",
            rate_ours / rate_python,
            "x",
        )
        .at_least(FASTER_THAN_PYTHON)
        .beside(format!(
            "{} against {} calls/s, {CONNECTIONS} connections; a bare parent {}",
            number(rate_ours),
            number(rate_python),
            number(rate_bare),
        )),
        Figure::new("bridge: CPU to the first `tools/list`", start, "ms")
            .at_most(START_CPU_MS_MAX)
            .beside(format!("its end included; {STARTS} starts")),
    ])
}

/// Calls per second and CPU of a call, of one round.
struct Spent {
    rate: f64,
    cpu_micros: f64,
}

fn rate_of(spent: &[Spent]) -> f64 {
    median(&spent.iter().map(|spent| spent.rate).collect::<Vec<_>>())
}

fn cpu_of(spent: &[Spent]) -> f64 {
    quiet(
        &spent
            .iter()
            .map(|spent| spent.cpu_micros)
            .collect::<Vec<_>>(),
    )
}

/// Sends every frame, each connection in its turn, and waits for the answers.
fn exchange(
    socket: &Path,
    frames: &[Vec<u8>],
    cpu: impl Fn() -> Result<Duration, Failure>,
) -> Result<Spent, Failure> {
    let connect = |_| Ok(UnixStream::connect(socket)?);
    let connections: Result<Vec<UnixStream>, Failure> = (0..CONNECTIONS).map(connect).collect();
    let (mut connections, mut answer) = (connections?, Vec::new());
    let before = cpu()?;
    let began = Instant::now();
    for sent in 0..frames.len() + CONNECTIONS {
        let connection = &mut connections[sent % CONNECTIONS];
        if sent >= CONNECTIONS {
            receive(connection, &mut answer)?;
        }
        if let Some(frame) = frames.get(sent) {
            connection.write_all(frame)?;
        }
    }
    let took = began.elapsed();
    Ok(Spent {
        rate: frames.len() as f64 / took.as_secs_f64(),
        cpu_micros: cpu::micros_each(cpu()?.saturating_sub(before), frames.len()),
    })
}

/// Waits for one whole frame, and checks that it is a result.
fn receive(connection: &mut UnixStream, answer: &mut Vec<u8>) -> Result<(), Failure> {
    answer.resize(16 * 1024, 0);
    let mut have = 0;
    while !is_whole(&answer[..have]) {
        match connection.read(&mut answer[have..])? {
            0 => return Err("hung up before it answered".into()),
            read => have += read,
        }
    }
    let payload = &answer[4..have];
    // A bare parent gives back the request.
    if payload.starts_with(b"{\"result\"") || payload.starts_with(b"{\"method\"") {
        return Ok(());
    }
    Err(format!("answered {}", String::from_utf8_lossy(payload)).into())
}

fn is_whole(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|head| u32::from_be_bytes(*head));
    length.is_some_and(|length| bytes.len() >= 4 + length as usize)
}

/// A parent that gives back each frame as it came, in a thread of ours that ends with us.
fn bare_parent(socket: &Path) -> Result<Tenant, Failure> {
    let listener = UnixListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    Tenant::start(async move {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut frame = vec![0; 16 * 1024];
                // A frame is smaller than what one read takes, and sent by one write.
                loop {
                    let read = stream.read(&mut frame).await?;
                    if read == 0 {
                        return std::io::Result::Ok(());
                    }
                    stream.write_all(&frame[..read]).await?;
                }
            });
        }
    })
}

/// CPU of `callgate bridge` that is asked for its tools and ends, in milliseconds.
fn starts(bench: &Bench, socket: &Path, schema: &Path) -> Result<f64, Failure> {
    let mut cpus = Vec::new();
    for _ in 0..STARTS {
        let before = cpu::children();
        let mut command = std::process::Command::new(&bench.callgate);
        let mut bridge = Piped::start(command.arg("bridge").arg(socket).arg(schema))?;
        mcp_start::list(&mut bridge)?;
        bridge.finish()?;
        cpus.push((cpu::children() - before).as_secs_f64() * 1e3);
    }
    Ok(quiet(&cpus))
}
