//! Driving the program: one run to its end, a conversation with `--serve`, the daemon and its
//! socket. Every wait has a deadline, so that a test that finds a hang says so.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Folder, callgate, wait_for};

pub use callgate_testing::python;

/// No single step takes this long; whoever waits longer has found something blocked for ever.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// SIGKILL, as an exit status tells it.
pub const KILLED: Option<i32> = Some(9);

/// One run of the program, over.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// True if it died by SIGKILL.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == KILLED
    }

    /// The exit code; panics if it died by a signal.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("no exit code: {self:?}"))
    }

    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The same run, which must have succeeded.
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }
}

/// Runs to the end with `input` on standard input.
pub fn run_with(command: &mut Command, input: &[u8]) -> Ran {
    run_within(command, input, PATIENCE)
}

/// The same for what has many steps, which together may take this long.
pub fn run_within(command: &mut Command, input: &[u8], patience: Duration) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the program");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    thread::scope(|scope| {
        // A program that ends without reading is no error of the test.
        scope.spawn(move || drop(stdin.write_all(input)));
        let read = |from: &mut dyn std::io::Read| {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let out = scope.spawn(move || read(&mut stdout));
        let err = scope.spawn(move || read(&mut stderr));
        let status = end_within(&mut child, "the program", patience);
        let (out, err) = (
            out.join().expect("read stdout"),
            err.join().expect("read stderr"),
        );
        Ran { status, out, err }
    })
}

/// Runs to the end without input.
pub fn run(command: &mut Command) -> Ran {
    run_with(command, b"")
}

/// A script in place of the program, in the same surroundings; `$0` is the program.
pub fn script(command: &Command, script: &str) -> Ran {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", script])
        .arg(command.get_program())
        .env_clear();
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    run(&mut shell)
}

/// Waits for a child; kills it and panics at the deadline.
pub fn end_of(child: &mut Child, what: &str) -> ExitStatus {
    end_within(child, what, PATIENCE)
}

fn end_within(child: &mut Child, what: &str, patience: Duration) -> ExitStatus {
    let deadline = std::time::Instant::now() + patience;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait().expect("wait for a child of ours") {
            return status;
        }
        if std::time::Instant::now() > deadline {
            let _ = child.kill();
            panic!("{what} did not end");
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// `callgate ARGS…` in `folder`.
pub fn cli(folder: &Folder, args: &[&str]) -> Ran {
    run(callgate(folder).args(args))
}

/// `callgate audit verify` must be happy; how many records there are.
pub fn verified(folder: &Folder) -> u64 {
    let verdict = cli(folder, &["audit", "verify", "--json"]).good().json();
    assert_eq!(verdict["ok"], true, "{verdict}");
    verdict["records"].as_u64().expect("a count")
}

/// The records of the chain.
pub fn chain(folder: &Folder) -> Vec<Value> {
    chain_of(&cli(folder, &["audit", "show", "--last", "1000000", "--json"]).good())
}

/// The records that `audit show --json` has printed.
pub fn chain_of(shown: &Ran) -> Vec<Value> {
    let lines = shown.out.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect()
}

/// The records of the one call that was made since there were `before`, without what differs from
/// call to call. What a pilot notes of its own is not of the call.
pub fn call_records(folder: &Folder, before: usize) -> Vec<Value> {
    let own = ["seq", "at", "call", "wire", "took_ms", "key", "run"];
    let of_pilot = |record: &Value| {
        let kind = record["kind"].as_str();
        kind.is_some_and(|kind| kind.starts_with("pilot."))
    };
    let mut records = chain(folder).split_off(before);
    records.retain(|record| !of_pilot(record));
    for record in &mut records {
        let members = record.as_object_mut().expect("a record");
        members.retain(|name, _| !own.contains(&name.as_str()));
    }
    records
}

/// The same where the call was a streamed run, without what its own name and times change: who
/// kept it, and the digests of its events, its report and its answer.
pub fn run_records(folder: &Folder, before: usize) -> Vec<Value> {
    let own = ["owner", "events_digest", "report_digest", "output"];
    let mut records = call_records(folder, before);
    for record in &mut records {
        let members = record.as_object_mut().expect("a record");
        members.retain(|name, _| !own.contains(&name.as_str()));
    }
    records
}

/// How many records of a kind the chain has.
pub fn count_of(folder: &Folder, kind: &str) -> usize {
    chain(folder)
        .iter()
        .filter(|record| record["kind"] == kind)
        .count()
}

/// A `--serve` process and its pipes.
pub struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
    /// How long a reply is waited for.
    pub patience: Duration,
}

impl Host {
    /// Starts `callgate toolhost --serve PLUGIN`.
    pub fn start(folder: &Folder, plugin: &str) -> Self {
        Self::spawn(callgate(folder).args(["toolhost", "--serve", plugin]))
    }

    /// Starts a command that speaks lines.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("start the host");
        let stdout = child.stdout.take().expect("piped");
        // Bounded, so that a host that is not listened to feels it.
        let (sender, replies) = sync_channel(1024);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            replies,
            patience: PATIENCE,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes bytes; false if the host is gone.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stdin
            .as_mut()
            .is_some_and(|stdin| stdin.write_all(bytes).is_ok())
    }

    /// Writes one line; false if the host is gone.
    pub fn send(&mut self, request: &Value) -> bool {
        self.send_bytes(format!("{}\n", spelt(request)).as_bytes())
    }

    /// The next reply; `None` if the host is gone.
    pub fn try_reply(&self) -> Option<Value> {
        let line = match self.replies.recv_timeout(self.patience) {
            Ok(line) => line,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the host does not answer"),
        };
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// The next reply.
    pub fn reply(&self) -> Value {
        self.try_reply().expect("the host lives")
    }

    /// Asks and waits for the reply; `None` if the host is gone.
    pub fn try_ask(&mut self, request: &Value) -> Option<Value> {
        if self.send(request) {
            self.try_reply()
        } else {
            None
        }
    }

    /// Asks and waits for the reply.
    pub fn ask(&mut self, request: &Value) -> Value {
        self.try_ask(request)
            .unwrap_or_else(|| panic!("the host is gone at {request}"))
    }

    /// Closes its input.
    pub fn close_input(&mut self) {
        self.stdin.take();
    }

    /// Closes its input and waits for its end.
    pub fn end(mut self) -> ExitStatus {
        self.stdin.take();
        while self.try_reply().is_some() {}
        end_of(&mut self.child, "the host")
    }

    /// SIGKILL, and the replies that it had written by then and nobody heard.
    pub fn kill_and_hear(mut self) -> Vec<Value> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The last may be cut off.
        let lines = self.replies.iter();
        lines
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request line for a keyed call.
pub fn line(aid: &str, input: &Value, key: &str) -> Value {
    json!({ "aid": aid, "inputs": input, "idempotency_key": key })
}

/// `callgate serve`, killed with its guard.
pub struct Serve {
    child: Child,
    pub socket: PathBuf,
    said: Arc<Mutex<String>>,
}

impl Serve {
    /// Starts it and waits until it answers.
    pub fn start(folder: &Folder) -> Self {
        Self::spawn(
            callgate(folder).arg("serve"),
            folder.join("state/gate.sock"),
        )
    }

    /// Starts a command that serves `socket`, and waits until it answers.
    pub fn spawn(command: &mut Command, socket: PathBuf) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the gate");
        let said = Arc::new(Mutex::new(String::new()));
        let (words, stderr) = (Arc::clone(&said), child.stderr.take().expect("piped"));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { break };
                let mut said = words.lock().expect("no panic holds it");
                said.push_str(&line);
                said.push('\n');
            }
        });
        let mut serve = Self {
            child,
            socket,
            said,
        };
        let mut gone = None;
        wait_for("the gate's socket", || {
            gone = serve.child.try_wait().expect("wait for a child of ours");
            (gone.is_some() || UnixStream::connect(&serve.socket).is_ok()).then_some(())
        });
        assert!(gone.is_none(), "the gate ended: {gone:?}: {}", serve.said());
        serve
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said on stderr so far.
    pub fn said(&self) -> String {
        self.said.lock().expect("no panic holds it").clone()
    }

    /// Waits until it has said `words`.
    pub fn wait_said(&self, words: &str) {
        wait_for(words, || self.said().contains(words).then_some(()));
    }

    /// `POST /v1/call`; `None` if the gate is gone.
    pub fn try_call(&self, body: &Value) -> Option<Value> {
        post(&self.socket, body)
    }

    /// `POST /v1/call`.
    pub fn call(&self, body: &Value) -> Value {
        self.try_call(body)
            .unwrap_or_else(|| panic!("the gate is gone: {}", self.said()))
    }

    /// `GET path`.
    pub fn get(&self, path: &str) -> (u16, Value) {
        let head = format!("GET {path} HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n");
        exchange(&self.socket, head.as_bytes()).expect("the gate answers")
    }

    /// SIGTERM, and the end in order.
    pub fn stop(mut self) -> ExitStatus {
        signal(self.pid(), Signal::TERM);
        end_of(&mut self.child, "the gate")
    }

    /// Waits for an end by itself.
    pub fn ended(mut self) -> ExitStatus {
        end_of(&mut self.child, "the gate")
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process of ours.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    let _ = kill_process(pid, signal);
}

/// The text of a message. A string `raw:JSON` in it stands for that JSON, so that a message can
/// have numbers that a `Value` does not hold. The JSON must be without quotes.
pub fn spelt(message: &Value) -> String {
    const MARK: &str = "\"raw:";
    let text = message.to_string();
    if !text.contains(MARK) {
        return text;
    }
    let mut parts = text.split(MARK);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (raw, rest) = part.split_once('"').expect("a string has an end");
        whole.push_str(raw);
        whole.push_str(rest);
    }
    whole
}

/// `POST /v1/call` at a socket; `None` if nobody answers.
pub fn post(socket: &Path, body: &Value) -> Option<Value> {
    exchange(socket, &post_bytes(spelt(body).as_bytes())).map(|(_, body)| body)
}

/// The bytes of a `POST /v1/call`.
pub fn post_bytes(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/call HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// One HTTP exchange on a connection of its own; `None` if it ends without a whole answer.
pub fn exchange(socket: &Path, request: &[u8]) -> Option<(u16, Value)> {
    let answer = raw_exchange(socket, request)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

/// All bytes that come back on a connection of its own; `None` if there is none.
pub fn raw_exchange(socket: &Path, request: &[u8]) -> Option<Vec<u8>> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut writing = stream.try_clone().expect("a second handle");
    thread::scope(|scope| {
        // The gate may answer and hang up before it has read everything.
        scope.spawn(move || drop(writing.write_all(request)));
        let mut answer = Vec::new();
        let mut chunk = [0; 16 * 1024];
        let mut reading = &stream;
        loop {
            match reading.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&chunk[..count]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("the gate does not answer")
                }
                Err(_) => break,
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
        (!answer.is_empty()).then_some(answer)
    })
}

/// A text file's lines; none if it is not there.
pub fn lines_of(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
