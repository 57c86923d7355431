//! What a terminal session moves that prints lines of 80 bytes, with its log, its screen and a
//! viewer: against `script`, which has neither, on the same program.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::figure::{Figure, median, number, quiet};
use crate::http::Connection;
use crate::rpc::Served;
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu};

const ROUNDS: usize = 5;
const BYTES: usize = 64 << 20;
const LINE_BYTES: usize = 80;
const RATIO_MIN: f64 = 1.0;
/// The last event of a session.
const EXIT: &[u8] = b"\"terminals/exit\"";

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("rpc-terminal")?;
    let line = "x".repeat(LINE_BYTES - 1);
    let program = format!("yes {line} | head -c {BYTES}");
    let mut served = Served::start(bench, &scratch)?;
    let mut connection = Connection::open(served.port)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let viewer = Viewer::open(served.port)?;
        let (before, began) = (served.cpu()?, Instant::now());
        let params = json!({ "command": "sh", "args": ["-c", program] });
        let made = served.ask(&mut connection, "terminals/create", params)?;
        viewer.until_exit()?;
        ours.push(BYTES as f64 / began.elapsed().as_secs_f64());
        our_cpu.push(served.cpu()?.saturating_sub(before).as_secs_f64());
        let last = json!({ "session_id": made["session_id"], "limit_lines": 3 });
        let logs = served.ask(&mut connection, "terminals/read_logs", last)?;
        let whole = format!("{line}\r\n");
        if logs["logs"][0]["data"] != *whole {
            return Err(format!("its log ends with {logs}").into());
        }
        let (took, spent) = by_script(&program)?;
        theirs.push(BYTES as f64 / took);
        their_cpu.push(spent);
    }
    served.finish(bench, &scratch)?;
    let (us, them) = (median(&ours), median(&theirs));
    let beside = format!(
        "{} against {} MB/s; CPU of {} MB, the program's included, {} against {} s",
        number(us / 1e6),
        number(them / 1e6),
        number(BYTES as f64 / 1e6),
        number(quiet(&our_cpu)),
        number(quiet(&their_cpu)),
    );
    Ok(vec![
        Figure::new(
            "rpc-terminal: bytes/s of a session against `script`",
            us / them,
            "x",
        )
        .at_least(RATIO_MIN)
        .beside(beside),
    ])
}

/// Somebody who follows what is told to us.
struct Viewer(thread::JoinHandle<std::io::Result<bool>>);

impl Viewer {
    /// Listens from now on.
    fn open(port: u16) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        let request = format!(
            "GET /rpc/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut chunk = vec![0; 256 * 1024];
        let read = stream.read(&mut chunk)?;
        if !chunk[..read].starts_with(b"HTTP/1.1 200") {
            return Err("no stream of events".into());
        }
        Ok(Self(thread::spawn(move || {
            let exit = memchr::memmem::Finder::new(EXIT);
            // What came last may have the beginning of it.
            let mut kept = 0;
            loop {
                let read = stream.read(&mut chunk[kept..])?;
                if exit.find(&chunk[..kept + read]).is_some() {
                    return Ok(true);
                }
                if read == 0 {
                    return Ok(false);
                }
                let from = (kept + read).saturating_sub(EXIT.len());
                chunk.copy_within(from..kept + read, 0);
                kept = kept + read - from;
            }
        })))
    }

    fn until_exit(self) -> Result<(), Failure> {
        match self.0.join() {
            Ok(Ok(true)) => Ok(()),
            other => Err(format!("the viewer heard of no end: {other:?}").into()),
        }
    }
}

/// Seconds by the clock and of CPU.
fn by_script(program: &str) -> Result<(f64, f64), Failure> {
    let (before, began) = (cpu::children(), Instant::now());
    let mut child = Command::new("script")
        .args(["-q", "-c", program, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().ok_or("a child without its stdout")?;
    let (mut chunk, mut all) = (vec![0; 64 * 1024], 0);
    loop {
        match stdout.read(&mut chunk)? {
            0 => break,
            read => all += read,
        }
    }
    if !child.wait()?.success() || all < BYTES {
        return Err(format!("`script` moved {all} bytes").into());
    }
    let took = began.elapsed().as_secs_f64();
    Ok((took, (cpu::children() - before).as_secs_f64()))
}
