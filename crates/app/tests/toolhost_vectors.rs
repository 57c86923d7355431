//! The vectors in `vectors/toolhost/`, each carried out with the real program.
//!
//! A case is one run of the program, or `steps` that are one run each and share a state. A
//! run has `args`, `env`, `program` (the name it is started under), its input as `stdin` or as
//! `lines`, and what to `expect`. Before it, `config` is written as the pack's `callgate.toml`
//! and `files` beside the pack. `needs` names a feature of the build.
//!
//! In texts, `$PACK`, `$WORKSPACE` and what earlier steps put under `capture` stand for their
//! values. In what is sent, `{"<repeat>":"x","times":9}`, `{"<json>":…}` (the value as text),
//! `{"<join>":[…]}` and, outside of JSON, `{"<hex>":"ff"}` make texts. In what is expected,
//! `"<any>"` fits anything, `{"<contains>":"x"}` texts with x inside, and `{"<json>":…}` texts
//! that hold such JSON; everything else fits only itself.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::{ChildStdin, Output, Stdio};

use crate::support::{Folder, callgate_as, copy_pack};
use callgate_testing::fits;
use serde_json::Value;

/// The files of the folder, each a test of its own so that they run side by side.
const FILES: [(&str, fn()); 9] = [
    ("arguments", arguments),
    ("faults", faults),
    ("idempotency", idempotency),
    ("leases", leases),
    ("lines", lines),
    ("plugins", plugins),
    ("replies", replies),
    ("requests", requests),
    ("state", state),
];

#[test]
fn arguments() {
    check_file("arguments");
}

#[test]
fn faults() {
    check_file("faults");
}

#[test]
fn idempotency() {
    check_file("idempotency");
}

#[test]
fn leases() {
    check_file("leases");
}

#[test]
fn lines() {
    check_file("lines");
}

#[test]
fn plugins() {
    check_file("plugins");
}

#[test]
fn replies() {
    check_file("replies");
}

#[test]
fn requests() {
    check_file("requests");
}

#[test]
fn state() {
    check_file("state");
}

#[test]
fn every_file_is_a_test() {
    let mut found: Vec<String> = std::fs::read_dir(crate::support::vectors().join("toolhost"))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".json").map(str::to_owned)
        })
        .collect();
    found.sort();
    assert_eq!(found, FILES.map(|(name, _)| name));
}

fn check_file(name: &str) {
    let path = crate::support::vectors()
        .join("toolhost")
        .join(format!("{name}.json"));
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in cases.as_array().unwrap() {
        if case["needs"] == "failpoints" && !cfg!(feature = "failpoints") {
            continue;
        }
        if let Err(reason) = check(case, None) {
            wrong.push(format!("{}: {reason}", case["name"]));
        }
        // The same bytes in two writes, cut at telling places.
        let bytes = if case["cut"] == true {
            World::new(case).input(case)
        } else {
            Vec::new()
        };
        for at in cuts(&bytes) {
            if let Err(reason) = check(case, Some(at)) {
                wrong.push(format!("{} cut at {at}: {reason}", case["name"]));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// In the first line, around its newline, in the middle and before the end.
fn cuts(bytes: &[u8]) -> Vec<usize> {
    let Some(newline) = bytes.iter().position(|&b| b == b'\n') else {
        return Vec::new();
    };
    let mut cuts = vec![
        1,
        newline / 2,
        newline,
        newline + 1,
        bytes.len() / 2,
        bytes.len() - 1,
    ];
    cuts.retain(|&at| 0 < at && at < bytes.len());
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Carries a case out and compares.
fn check(case: &Value, cut: Option<usize>) -> Result<(), String> {
    let mut world = World::new(case);
    let Some(steps) = case["steps"].as_array() else {
        return world.check_step(case, cut);
    };
    for (index, step) in steps.iter().enumerate() {
        world.put_files(step);
        world
            .check_step(step, None)
            .map_err(|reason| format!("step {}: {reason}", index + 1))?;
    }
    Ok(())
}

/// One case's folder and what its steps have captured.
struct World {
    folder: Folder,
    texts: BTreeMap<String, String>,
}

impl World {
    fn new(case: &Value) -> Self {
        let folder = Folder::new();
        let pack = copy_pack(&folder);
        let texts = BTreeMap::from([
            ("PACK".to_owned(), pack.display().to_string()),
            ("WORKSPACE".to_owned(), folder.path().display().to_string()),
        ]);
        let world = Self { folder, texts };
        if let Some(config) = case["config"].as_str() {
            world.folder.write("pack/callgate.toml", config);
        }
        world.put_files(case);
        world
    }

    /// Writes the files that a case begins with, or one of its steps.
    fn put_files(&self, of: &Value) {
        for (name, text) in of["files"].as_object().into_iter().flatten() {
            let path = self.folder.write(name, "");
            std::fs::write(path, self.bytes(text)).unwrap();
        }
    }

    fn check_step(&mut self, step: &Value, cut: Option<usize>) -> Result<(), String> {
        let output = self.run(step, cut);
        self.compare(&self.placed(&step["expect"]), &output)
            .map_err(|reason| {
                let shown = |bytes: &[u8]| {
                    String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned()
                };
                format!(
                    "{reason}\n  stdout: {}\n  stderr: {}",
                    shown(&output.stdout),
                    shown(&output.stderr)
                )
            })?;
        for (name, pointer) in step["capture"].as_object().into_iter().flatten() {
            let value: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
            let found = value
                .pointer(pointer.as_str().unwrap())
                .and_then(Value::as_str);
            let text = found.ok_or_else(|| format!("nothing to capture as {name}"))?;
            self.texts.insert(name.clone(), text.to_owned());
        }
        Ok(())
    }

    fn run(&self, step: &Value, cut: Option<usize>) -> Output {
        let mut command = callgate_as(step["program"].as_str().unwrap_or("callgate"), &self.folder);
        for arg in step["args"].as_array().unwrap() {
            command.arg(self.place(arg.as_str().unwrap()));
        }
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            command.env(name, self.place(value.as_str().unwrap()));
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        if step["stdin"] == "<open>" {
            let output = child.wait_with_output().unwrap();
            drop(stdin);
            return output;
        }
        let bytes = self.input(step);
        std::thread::scope(|scope| {
            scope.spawn(move || send(stdin, &bytes, cut));
            child.wait_with_output().unwrap()
        })
    }

    /// What the program gets on its standard input.
    fn input(&self, step: &Value) -> Vec<u8> {
        let Some(lines) = step["lines"].as_array() else {
            return match &step["stdin"] {
                Value::Null => Vec::new(),
                stdin => self.bytes(stdin),
            };
        };
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(self.bytes(line));
            bytes.push(b'\n');
        }
        bytes
    }

    fn compare(&self, expect: &Value, output: &Output) -> Result<(), String> {
        for (what, wanted) in expect.as_object().ok_or("a case without `expect`")? {
            let found = match what.as_str() {
                "exit" => Value::from(output.status.code()),
                "stdout" => one_value(&output.stdout, false)?,
                "stdout_line" => one_value(&output.stdout, true)?,
                "stdout_text" => text(&output.stdout)?,
                "stdout_bytes" => Value::from(output.stdout.len()),
                "stderr" => text(&output.stderr)?,
                "lines" => lines_of(&output.stdout)?,
                "files" => self.files(wanted),
                other => return Err(format!("`{other}` is nothing to expect")),
            };
            fits(wanted, &found).map_err(|reason| format!("{what}{reason}"))?;
        }
        Ok(())
    }

    /// The files that are asked for, as they are now.
    fn files(&self, wanted: &Value) -> Value {
        let names = wanted
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name);
        names
            .map(|name| (name.clone(), Value::from(self.folder.read(name))))
            .collect()
    }

    /// A text with its placeholders filled in.
    fn place(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.texts {
            text = text.replace(&format!("${name}"), value);
        }
        text
    }

    fn placed(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.place(text).into(),
            Value::Array(items) => items.iter().map(|item| self.placed(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone(), self.placed(value)))
                .collect(),
            other => other.clone(),
        }
    }

    /// A value with its generated texts in place.
    fn made(&self, value: &Value) -> Value {
        match value {
            Value::Object(members) => match self.generated(value) {
                Some(bytes) => String::from_utf8(bytes).unwrap().into(),
                None => members
                    .iter()
                    .map(|(name, value)| (name.clone(), self.made(value)))
                    .collect(),
            },
            Value::Array(items) => items.iter().map(|item| self.made(item)).collect(),
            other => self.placed(other),
        }
    }

    /// A text as it is, anything else as JSON.
    fn bytes(&self, value: &Value) -> Vec<u8> {
        match (value, self.generated(value)) {
            (_, Some(bytes)) => bytes,
            (Value::String(text), _) => self.place(text).into_bytes(),
            (value, _) => self.made(value).to_string().into_bytes(),
        }
    }

    fn generated(&self, value: &Value) -> Option<Vec<u8>> {
        if let Some(part) = value["<repeat>"].as_str() {
            let times = value["times"].as_u64().unwrap();
            return Some(part.repeat(usize::try_from(times).unwrap()).into_bytes());
        }
        if let Some(parts) = value["<join>"].as_array() {
            return Some(parts.iter().flat_map(|part| self.bytes(part)).collect());
        }
        if let Some(digits) = value["<hex>"].as_str() {
            let byte =
                |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            return Some(digits.as_bytes().chunks(2).map(byte).collect());
        }
        value
            .get("<json>")
            .map(|value| self.made(value).to_string().into_bytes())
    }
}

/// Writes everything, in two parts if it is cut: the second only when the first was read. A
/// program that reads no further is free to.
fn send(mut stdin: ChildStdin, bytes: &[u8], cut: Option<usize>) {
    let (first, second) = bytes.split_at(cut.unwrap_or(bytes.len()));
    if stdin.write_all(first).is_err() || second.is_empty() {
        return;
    }
    while rustix::io::ioctl_fionread(&stdin).unwrap() > 0 && !has_no_reader(&stdin) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let _ = stdin.write_all(second);
}

fn has_no_reader(stdin: &ChildStdin) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT)];
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .unwrap();
    fds[0].revents().contains(PollFlags::ERR)
}

fn text(bytes: &[u8]) -> Result<Value, String> {
    String::from_utf8(bytes.to_vec())
        .map(Value::from)
        .map_err(|error| error.to_string())
}

/// One JSON object: without a newline, or as one line.
fn one_value(bytes: &[u8], line: bool) -> Result<Value, String> {
    let body = if line {
        bytes.strip_suffix(b"\n").ok_or("no newline at the end")?
    } else {
        bytes
    };
    if body.contains(&b'\n') {
        return Err("a newline where none should be".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn lines_of(bytes: &[u8]) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    let body = bytes
        .strip_suffix(b"\n")
        .ok_or("the last line does not end")?;
    body.split(|&b| b == b'\n')
        .map(|line| serde_json::from_slice::<Value>(line).map_err(|error| error.to_string()))
        .collect()
}
