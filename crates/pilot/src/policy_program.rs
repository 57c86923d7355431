//! The pilot's policy program: the owner's, which says what a run does next. It gets the path of
//! a file with the question as its last argument and prints one line of the selection grammar.
//! Held as any tool is, and not in any catalog: the pilot alone calls it, through the gate. TH-144.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Fault, Job, Needs, Output, RunFuture, Runner, Tool};
use callgate_sandbox::{Child, Ending, Spawner, Spec, held_env};
use callgate_store::Passing;
use serde_json::json;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::select::judge;

/// How long it may take, where the owner does not say.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(2500);
/// So much of its last words is shown.
const WORDS_BYTES_MAX: usize = 1024;
/// How long a killed tree may take to go before the call is answered all the same.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// What the owner says of it.
pub struct PolicySettings {
    /// The name of the tool in the chain and in policies.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working folder, the workspace.
    pub cwd: PathBuf,
    /// Where its questions are put; it may read there.
    pub questions: Passing,
    /// What confines it.
    pub needs: Arc<Needs>,
    /// The longest it may take.
    pub timeout: Duration,
    /// The most it may print.
    pub output_bytes_max: usize,
}

/// The tool.
#[must_use]
pub fn tool(spawner: Arc<Spawner>, settings: PolicySettings) -> Tool {
    let (needs, timeout) = (Arc::clone(&settings.needs), settings.timeout);
    let name = settings.name.clone();
    let runner = Arc::new(Policy { spawner, settings });
    Tool {
        description: "The pilot's policy program".to_owned(),
        needs: Some(needs),
        timeout: Some(timeout),
        ..Tool::new(&name, runner)
    }
}

struct Policy {
    spawner: Arc<Spawner>,
    settings: PolicySettings,
}

impl Runner for Policy {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.call(job))
    }

    fn kind(&self) -> &'static str {
        "process"
    }
}

impl Policy {
    async fn call(&self, job: Job<'_>) -> Result<Output, Fault> {
        let (questions, name) = (&self.settings.questions, format!("{}.json", job.call.id));
        let path = questions.put(&name, job.call.input.text());
        let path = path.map_err(|error| Fault::Unavailable {
            reason: format!("write the policy's question: {error}"),
        })?;
        let said = self.ask(job, &path).await;
        questions.take_back(&name);
        let text = said?;
        judge(&text, job.call.input.value()).map_err(|reason| Fault::BadOutput { reason })?;
        Ok(Output::from_value(json!({ "text": text })))
    }

    /// What it prints, if it ends well and in time.
    async fn ask(&self, job: Job<'_>, path: &std::path::Path) -> Result<String, Fault> {
        let deadline = Instant::now() + job.timeout.until();
        let (mut heard, spec) = self.prepare(job, path).map_err(|error| Fault::Internal {
            message: format!("make pipes: {error}"),
        })?;
        let late = || Fault::Timeout {
            after: job.timeout.timeout,
        };
        let spawned = tokio::time::timeout_at(deadline, self.spawner.spawn(spec)).await;
        let mut child = spawned.map_err(|_| late())?.map_err(|error| Fault::Crash {
            message: format!("not started: {error}"),
        })?;
        let max = self.settings.output_bytes_max;
        // Any arm may be dropped: what was read stays in `heard`, the state of the child in
        // `child`. Biased: an exit outranks a flood, a cancellation and the deadline.
        let ended = tokio::select! {
            biased;
            exit = child.wait() => Ok(exit),
            () = heard.flood(max) => Err(flooded(max)),
            () = job.call.cancel.cancelled() => Err(Fault::Cancelled),
            () = tokio::time::sleep_until(deadline) => Err(late()),
        };
        match ended {
            Ok(exit) => heard.judge(exit.ending, max),
            Err(fault) => {
                end(&mut child).await;
                Err(fault)
            }
        }
    }

    fn prepare(&self, job: Job<'_>, path: &std::path::Path) -> io::Result<(Heard, Spec)> {
        let settings = &self.settings;
        let mut argv = settings.command.clone();
        argv.push(path.into());
        let mut spec = Spec::new(argv, settings.cwd.clone());
        let search = settings.env.iter().find(|(name, _)| name == "PATH");
        spec.search = search.map(|(_, path)| path.clone());
        spec.confine = job.plan.confinement.clone();
        spec.env = match &spec.confine {
            None => settings.env.clone(),
            Some(needs) => held_env(&settings.env, &std::collections::BTreeMap::new(), needs),
        };
        let (stdout, stdout_far) = io::pipe()?;
        let (stderr, stderr_far) = io::pipe()?;
        spec.stdout = std::os::fd::OwnedFd::from(stdout_far).into();
        spec.stderr = std::os::fd::OwnedFd::from(stderr_far).into();
        let heard = Heard {
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
            answer: Vec::new(),
            words: Vec::new(),
        };
        Ok((heard, spec))
    }
}

/// An answer that is none: a flood counts against the program as nonsense does.
fn flooded(max: usize) -> Fault {
    Fault::BadOutput {
        reason: format!("its answer exceeds {max} bytes"),
    }
}

async fn end(child: &mut Child) {
    child.kill();
    let _ = tokio::time::timeout(KILL_GRACE, child.wait()).await;
}

/// What a program printed so far.
struct Heard {
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    answer: Vec<u8>,
    words: Vec<u8>,
}

impl Heard {
    /// Listens for as long as it is polled; ready only when there is too much.
    async fn flood(&mut self, max: usize) {
        let (mut speaks, mut grumbles) = (true, true);
        while speaks || grumbles {
            // `readable` reads nothing: bytes are read and kept by the arm that was ready, without
            // a wait in between.
            tokio::select! {
                ready = self.stdout.readable(), if speaks => {
                    speaks = ready.is_ok() && take(&self.stdout, &mut self.answer);
                    if self.answer.len() > max {
                        return;
                    }
                }
                ready = self.stderr.readable(), if grumbles => {
                    grumbles = ready.is_ok() && take(&self.stderr, &mut self.words);
                    self.forget_old_words();
                }
            }
        }
        std::future::pending().await
    }

    fn forget_old_words(&mut self) {
        let over = self.words.len().saturating_sub(WORDS_BYTES_MAX);
        self.words.drain(..over);
    }

    /// The program has ended: takes what is left, and tells.
    fn judge(mut self, ending: Ending, max: usize) -> Result<String, Fault> {
        while self.answer.len() <= max && take_some(&self.stdout, &mut self.answer) {}
        while take_some(&self.stderr, &mut self.words) {
            self.forget_old_words();
        }
        let crash = |how: String, words: &[u8]| {
            let words = String::from_utf8_lossy(words);
            let message = format!("{how}: {}", words.trim());
            Fault::Crash {
                message: message.trim_end_matches([':', ' ']).to_owned(),
            }
        };
        match ending {
            Ending::Code(0) if self.answer.len() > max => Err(flooded(max)),
            Ending::Code(0) => String::from_utf8(self.answer).map_err(|_| Fault::BadOutput {
                reason: "its answer is not UTF-8".to_owned(),
            }),
            Ending::Code(code) => Err(crash(format!("exit code {code}"), &self.words)),
            Ending::Signal(signal) => Err(crash(format!("signal {signal}"), &self.words)),
            Ending::Lost => Err(crash("lost".to_owned(), &self.words)),
        }
    }
}

/// Takes what is ready; false at the end.
fn take(from: &pipe::Receiver, into: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 * 1024];
    match from.try_read(&mut buffer) {
        Ok(0) => false,
        Ok(count) => {
            into.extend_from_slice(&buffer[..count]);
            true
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Takes what is left in the pipe, whose writers are gone; false once there is nothing.
fn take_some(from: &pipe::Receiver, into: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 * 1024];
    match rustix::io::read(from, &mut buffer) {
        Ok(count) if count > 0 => {
            into.extend_from_slice(&buffer[..count]);
            true
        }
        Err(rustix::io::Errno::INTR) => true,
        _ => false,
    }
}
