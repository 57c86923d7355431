//! The check after each bench: the chain is good, and has the records of every call.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::scratch::Scratch;
use crate::{Bench, Failure};

/// Verifies the chain in a scratch folder's state and counts that each of `calls` calls has
/// its start and its good outcome there, in two records or in one, and nothing else does.
pub fn check(bench: &Bench, scratch: &Scratch, calls: usize) -> Result<(), Failure> {
    check_state(bench, &scratch.workspace(), &scratch.state(), calls)
}

/// The same for a state folder anywhere.
pub fn check_state(
    bench: &Bench,
    workspace: &Path,
    state: &Path,
    calls: usize,
) -> Result<(), Failure> {
    let audit = |words: &[&str]| {
        let mut command = Command::new(&bench.callgate);
        command.arg("audit").args(words);
        command
            .arg("--workspace")
            .arg(workspace)
            .arg("--state")
            .arg(state);
        command
    };
    let verified = audit(&["verify", "--json"]).output()?;
    let verdict: Value = serde_json::from_slice(&verified.stdout)?;
    if !verified.status.success() || verdict["ok"] != true {
        return Err(format!("the chain is not good: {verdict}").into());
    }
    let found = count(&mut audit(&["export", "-"]))?;
    if found.starts + found.both != calls || found.outcomes + found.both != calls {
        return Err(format!("{calls} calls, but the chain has {found:?}").into());
    }
    let all = found.starts + found.outcomes + found.both + found.others;
    if verdict["records"].as_u64() != Some(all as u64) {
        return Err(format!("{all} records exported, but verified {verdict}").into());
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Records {
    starts: usize,
    /// With success.
    outcomes: usize,
    /// Start and outcome in one, with success.
    both: usize,
    others: usize,
}

fn count(export: &mut Command) -> Result<Records, Failure> {
    let mut child = export
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("a child without its stdout")?;
    let mut reader = BufReader::with_capacity(1 << 20, stdout);
    let start = memchr::memmem::Finder::new(br#""kind":"start""#);
    let both = memchr::memmem::Finder::new(br#""kind":"call","ok":true"#);
    let outcome = memchr::memmem::Finder::new(br#""kind":"outcome","ok":true"#);
    let kind = memchr::memmem::Finder::new(br#""kind":""#);
    let mut records = Records::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if start.find(&line).is_some() {
            records.starts += 1;
        } else if both.find(&line).is_some() {
            records.both += 1;
        } else if outcome.find(&line).is_some() {
            records.outcomes += 1;
        } else if kind.find(&line).is_some() {
            records.others += 1;
        }
    }
    let status = child.wait()?;
    if status.success() {
        Ok(records)
    } else {
        Err(format!("export: {status}").into())
    }
}
