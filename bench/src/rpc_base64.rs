//! A file of 1 GiB, read in ranges as base64: against `base64` of coreutils on the same file, in
//! the same run. Both are read by us, and nothing is done with what they say.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::figure::{Figure, median, number, quiet};
use crate::http::{Connection, Connections};
use crate::lines::{Lines, Writer};
use crate::rpc::{Served, request};
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu};

const ROUNDS: usize = 3;
const FILE: &str = "large.bin";
const FILE_BYTES: u64 = 1 << 30;
/// Of one call: whole groups of base64, and within what one answer may have.
const RANGE_BYTES: u64 = 6 << 20;
/// Requests in flight.
const WIDTH: usize = 2;
const RATIO_MIN: f64 = 0.5;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("rpc-base64")?;
    let file = scratch.workspace().join(FILE);
    fill(&file, &mut Writer::new(bench.seed))?;
    let mut served = Served::start(bench, &scratch)?;
    check(&mut served, &file)?;
    let ranges = served.requests(&ranges());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = served.cpu()?;
        let took = Connections::open(served.port, WIDTH)?.exchange(&ranges)?;
        let spent = served.cpu()?.saturating_sub(before);
        ours.push(FILE_BYTES as f64 / took.as_secs_f64());
        our_cpu.push(spent.as_secs_f64());
        served.called(ranges.len());
        let (took, spent) = by_coreutils(&file)?;
        theirs.push(FILE_BYTES as f64 / took);
        their_cpu.push(spent);
    }
    served.finish(bench, &scratch)?;
    let (us, them) = (median(&ours), median(&theirs));
    let beside = format!(
        "{} against {} MB/s; CPU of the whole file {} against {} s",
        number(us / 1e6),
        number(them / 1e6),
        number(quiet(&our_cpu)),
        number(quiet(&their_cpu)),
    );
    Ok(vec![
        Figure::new(
            "rpc-base64: bytes/s of 1 GiB against `base64`",
            us / them,
            "x",
        )
        .at_least(RATIO_MIN)
        .beside(beside),
    ])
}

/// Bytes that nothing can be saved on.
fn fill(file: &Path, writer: &mut Writer) -> Result<(), Failure> {
    let mut to = BufWriter::with_capacity(1 << 20, File::create(file)?);
    for _ in 0..FILE_BYTES / 8 {
        to.write_all(&writer.word().to_le_bytes())?;
    }
    to.into_inner()
        .map_err(|error| error.into_error())?
        .sync_all()?;
    Ok(())
}

fn ranges() -> Lines {
    let mut lines = Lines::default();
    let mut offset = 0;
    while offset < FILE_BYTES {
        let params = json!({
            "path": FILE, "encoding": "base64", "offset": offset, "length": RANGE_BYTES,
        });
        lines.push(&request("files/read", params));
        offset += RANGE_BYTES;
    }
    lines
}

/// The last range is what `base64` says of the same bytes.
fn check(served: &mut Served, file: &Path) -> Result<(), Failure> {
    let offset = FILE_BYTES / RANGE_BYTES * RANGE_BYTES;
    let params = json!({
        "path": FILE, "encoding": "base64", "offset": offset, "length": RANGE_BYTES,
    });
    let mut connection = Connection::open(served.port)?;
    let read = served.ask(&mut connection, "files/read", params)?;
    let said = Command::new("sh")
        .args(["-c", "tail -c +$2 -- \"$1\" | base64 -w 0", "_"])
        .arg(file)
        .arg((offset + 1).to_string())
        .output()?;
    if read["content_base64"].as_str().map(str::as_bytes) != Some(&said.stdout) {
        return Err("the last range is another than `base64` says".into());
    }
    Ok(())
}

/// Seconds by the clock and of CPU.
fn by_coreutils(file: &Path) -> Result<(f64, f64), Failure> {
    let (before, began) = (cpu::children(), Instant::now());
    let mut child = Command::new("base64")
        .stdin(File::open(file)?)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().ok_or("a child without its stdout")?;
    let mut chunk = vec![0; 64 * 1024];
    while stdout.read(&mut chunk)? > 0 {}
    if !child.wait()?.success() {
        return Err("`base64` failed".into());
    }
    let took = began.elapsed().as_secs_f64();
    Ok((took, (cpu::children() - before).as_secs_f64()))
}
