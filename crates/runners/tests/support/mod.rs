//! Calls to run and processes to look for.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::{
    Answers, Call, CallId, Caller, Cancel, Document, Fault, Job, Log, NoSink, Output, Patience,
    Plan, Progress, Runner, Sink, Slots, Stream, Tool, Wire,
};
use callgate_sandbox::Spawner;
use serde_json::Value;

pub use callgate_testing::misbehave;

/// Far more than anything here takes.
pub const LONG: Duration = Duration::from_secs(120);

pub fn spawner() -> Arc<Spawner> {
    Spawner::new(misbehave().to_owned())
}

/// A word that no other process has in its arguments.
pub fn tag() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "tag-{}-{}-",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

pub fn folder() -> PathBuf {
    // What a killed run of the same number left behind is not ours, and need not let itself be
    // removed.
    loop {
        let path = std::env::temp_dir().join(format!("callgate-runners-{}", tag()));
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made.unwrap();
                return path;
            }
        }
    }
}

/// The processes with this tag, zombies excepted.
pub fn tagged(tag: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(tag))
    })
    .collect()
}

/// True if none of them is left, not even dead and unburied. Those that outlived their parent are
/// buried by the machine's first process, in its own time.
pub fn gone(pids: &[u32]) -> bool {
    let is_left = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| {
            let state = stat.rsplit(") ").next().unwrap_or_default();
            !state.starts_with("Z 1 ")
        })
    };
    !pids.iter().any(is_left)
}

/// Waits for a state, not for time.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain until {what}");
}

/// A tool and what a call of it meets.
pub struct Bench {
    pub tool: Tool,
    pub sink: Heard,
    pub timeout: Duration,
    pub slots: Slots,
    pub answers: Option<Answers>,
    pub plan: Plan,
    pub cancel: Cancel,
    /// The caller wants to hear what the tool says.
    pub listens: bool,
}

impl Bench {
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        let tool = Tool {
            input_schema: Value::Bool(true),
            ..Tool::new("test/tool", runner)
        };
        let (sink, cancel) = (Heard::default(), Cancel::new());
        Self {
            tool,
            sink,
            timeout: LONG,
            slots: Slots::default(),
            answers: None,
            plan: Plan::default(),
            cancel,
            listens: false,
        }
    }

    pub async fn run(&self, input: Value) -> Result<Output, Fault> {
        self.run_input(Document::from_value(input)).await
    }

    pub async fn run_input(&self, input: Document) -> Result<Output, Fault> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = CallId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let (caller, cancel) = (Caller::uid(0), self.cancel.clone());
        let mut call = Call::new(id, &self.tool.name, input, caller, Wire::Gate, cancel);
        call.slots = self.slots.clone();
        call.answers = self.answers.clone();
        if self.listens {
            call.sink = Some(Arc::new(NoSink));
        }
        let patience = Patience::fixed(self.timeout);
        let job = Job {
            call: &call,
            tool: &self.tool,
            plan: &self.plan,
            timeout: &patience,
            sink: &self.sink,
        };
        self.tool.runner.run(job).await
    }

    /// The fault in words.
    pub async fn fault(&self, input: Value) -> String {
        let fault = self.run(input).await.expect_err("a fault");
        format!("{}: {fault}", fault.kind())
    }

    pub async fn value(&self, input: Value) -> Value {
        self.run(input).await.expect("an output").json.into_value()
    }
}

/// Remembers what it was told, up to a bound.
#[derive(Default)]
pub struct Heard(
    Mutex<(Vec<u8>, Vec<u8>)>,
    Mutex<Vec<String>>,
    Mutex<Vec<String>>,
);

impl Heard {
    /// Progress and logs, in words.
    pub fn reports(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }

    /// What was told for the trace, as `name=value`.
    pub fn facts(&self) -> Vec<String> {
        self.2.lock().unwrap().clone()
    }

    /// What was last told of a name.
    pub fn fact_of(&self, name: &str) -> String {
        let facts = self.facts();
        let mut found = facts.iter().rev().filter_map(|fact| fact.split_once('='));
        let (_, value) = found.find(|(known, _)| *known == name).unwrap();
        value.to_owned()
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap().0).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap().1).into_owned()
    }
}

impl Sink for Heard {
    fn chunk(&self, stream: Stream, bytes: &[u8]) {
        let mut heard = self.0.lock().unwrap();
        let kept = match stream {
            Stream::Stdout => &mut heard.0,
            Stream::Stderr => &mut heard.1,
        };
        let room = (8usize << 20).saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
    }

    fn fact(&self, name: &'static str, value: &str) {
        self.2.lock().unwrap().push(format!("{name}={value}"));
    }

    fn progress(&self, progress: &Progress) {
        let Progress {
            done,
            total,
            message,
        } = progress;
        let words = format!("{done} of {total:?}: {message:?}");
        self.1.lock().unwrap().push(words);
    }

    fn log(&self, log: &Log) {
        let words = format!("{} {:?} {}", log.level.as_str(), log.logger, log.data);
        self.1.lock().unwrap().push(words);
    }
}
