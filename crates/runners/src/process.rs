//! One program per call: input on its stdin, output on its stdout, its exit code decides.
//!
//! The program's tree is gone when the call is answered, whatever it started. What confines
//! it is its plan's to say and the sandbox's to do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Fault, Job, Needs, Output, Patience, RunFuture, Runner, Sink, Stream};
use callgate_sandbox::{Child, Ending, Limits, Spawner, Spec, held_env};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::chatter::Chatter;
use crate::egress::Outlet;
use crate::ending;
use crate::hints;
use crate::tail::Tail;

/// How long a killed tree may take to go before the call is answered all the same. Longer
/// only for what the kernel does not let die.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(5);

/// What a process tool is.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The program and its arguments; see `callgate_sandbox::Spec::argv`.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Which of its variables hold a secret, and the secret's name.
    pub secrets: BTreeMap<String, String>,
    /// Its working folder, absolute: the workspace.
    pub cwd: PathBuf,
    /// What each of its processes may take.
    pub limits: Limits,
    /// The most it may print to stdout; beyond, it is killed and the call `TooLarge`.
    pub output_bytes_max: usize,
}

impl ProcessSettings {
    /// The defaults: no limits but 1 MiB of output.
    #[must_use]
    pub fn new(command: Vec<OsString>, env: Vec<(OsString, OsString)>, cwd: PathBuf) -> Self {
        Self {
            command,
            env,
            secrets: BTreeMap::new(),
            cwd,
            limits: Limits::default(),
            output_bytes_max: 1024 * 1024,
        }
    }
}

/// Runs one program per call.
#[derive(Debug)]
pub struct ProcessRunner {
    spawner: Arc<Spawner>,
    settings: ProcessSettings,
}

impl ProcessRunner {
    /// A runner for one tool.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>, settings: ProcessSettings) -> Self {
        Self { spawner, settings }
    }

    async fn call(&self, job: Job<'_>) -> Result<Output, Fault> {
        let deadline = Instant::now() + job.timeout.until();
        let (streams, spec) = self.prepare(job).map_err(|error| Fault::Internal {
            message: format!("make pipes: {error}"),
        })?;
        let child = born(job, deadline, self.spawner.spawn(spec), |child| child).await?;
        let mut child = child.map_err(|error| hints::not_started(job, &error))?;
        let mut outlet = Outlet::of(&mut child, job.plan.confinement.as_deref())?;
        if let Some(outlet) = &mut outlet {
            outlet.begin(true).await?;
        }
        let result = self.attend(job, deadline, &mut child, streams).await;
        if let Some(outlet) = &outlet {
            hints::tell_host(job, outlet.tell(true, job.sink).await);
        }
        let (result, tail) = result;
        if let Err(fault) = &result {
            hints::tell(job, &child, fault, &tail);
        }
        result
    }

    fn prepare(&self, job: Job<'_>) -> io::Result<(Streams, Spec)> {
        let ProcessSettings {
            command,
            env,
            secrets,
            cwd,
            limits,
            ..
        } = &self.settings;
        let (streams, [stdin, stdout, stderr]) = Streams::new(
            input_of(job),
            printed_bytes_max(self.settings.output_bytes_max, job),
        )?;
        let mut spec = Spec::new(command.clone(), cwd.clone());
        confine(&mut spec, job.plan.confinement.as_ref(), env, secrets);
        spec.limits = limits.clone();
        (spec.stdin, spec.stdout, spec.stderr) = (stdin.into(), stdout.into(), stderr.into());
        Ok((streams, spec))
    }

    /// Feeds and listens until the program has ended, or must.
    async fn attend(
        &self,
        job: Job<'_>,
        deadline: Instant,
        child: &mut Child,
        mut streams: Streams,
    ) -> (Result<Output, Fault>, Tail) {
        // All arms may be dropped at any point: what the streams and the child have got so far is
        // kept in them. Biased: an exit outranks too much output, and both outrank a cancellation
        // and the deadline.
        let stopped = tokio::select! {
            biased;
            exit = child.wait() => Ok(exit),
            () = streams.pump(job.sink) => Err(answer::too_large(self.settings.output_bytes_max)),
            fault = stop(job, deadline) => Err(fault),
        };
        let result = match stopped {
            Ok(exit) => {
                let max = self.settings.output_bytes_max;
                hints::tell_end(job, child, exit.ending);
                match streams.finish(job.sink) {
                    Some(()) => streams.judge(exit.ending, job.tool.slots, max),
                    None => Err(answer::too_large(max)),
                }
            }
            Err(fault) => {
                end(child).await;
                streams.chatter.pass_rest(&mut streams.tail, job.sink);
                Err(fault)
            }
        };
        (result, streams.tail)
    }
}

impl Runner for ProcessRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.call(job))
    }

    fn kind(&self) -> &'static str {
        "process"
    }
}

/// Gives a child what its plan holds it to, and what that leaves of its environment.
pub(crate) fn confine(
    spec: &mut Spec,
    needs: Option<&Arc<Needs>>,
    env: &[(OsString, OsString)],
    secrets: &BTreeMap<String, String>,
) {
    spec.confine = needs.cloned();
    spec.env = match needs {
        None => env.to_vec(),
        Some(needs) => held_env(env, secrets, needs),
    };
    // Where its programs are is the owner's to say, whatever it gets to see.
    let path = env.iter().find(|(name, _)| name == "PATH");
    spec.search = path.map(|(_, path)| path.clone());
}

/// Ready, with the reason, when the call must end early.
pub(crate) async fn stop(job: Job<'_>, deadline: Instant) -> Fault {
    // Both arms only wait, and the next call of `stop` makes them anew from the same call and
    // deadline.
    tokio::select! {
        () = job.call.cancel.cancelled() => Fault::Cancelled,
        after = overrun(job.timeout, deadline) => Fault::Timeout { after },
    }
}

/// Ready when the time is over, with how much there was. The first deadline moves while the
/// tool shows progress.
async fn overrun(patience: &Patience, first: Instant) -> Duration {
    let mut known = patience.timeout;
    loop {
        tokio::time::sleep_until(first + (known - patience.timeout)).await;
        let until = patience.until();
        if until <= known {
            return known;
        }
        known = until;
    }
}

/// What comes of `work`, unless the call must end before.
pub(crate) async fn within<T>(
    job: Job<'_>,
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Result<T, Fault> {
    // `work` is given up with the call: a place in a line, a pause, or a request whose connection
    // is closed with it. Biased: work that is done outranks a stop.
    tokio::select! {
        biased;
        done = work => Ok(done),
        fault = stop(job, deadline) => Err(fault),
    }
}

/// A child, or what has one, unless the call must end before. One that is on its way by then is
/// ended like any other: the call is not over while something of it runs.
pub(crate) async fn born<T, E>(
    job: Job<'_>,
    deadline: Instant,
    birth: impl Future<Output = Result<T, E>>,
    child_of: fn(&mut T) -> &mut Child,
) -> Result<Result<T, E>, Fault> {
    let mut birth = std::pin::pin!(birth);
    // `birth` is pinned outside of the select: a child that is on its way is waited for below.
    // Biased: a child that is there outranks a stop.
    let fault = tokio::select! {
        biased;
        born = &mut birth => return Ok(born),
        fault = stop(job, deadline) => fault,
    };
    if let Ok(Ok(mut born)) = tokio::time::timeout(KILL_GRACE, birth).await {
        end(child_of(&mut born)).await;
    }
    Err(fault)
}

/// Ends a child's tree and waits until it is gone.
pub(crate) async fn end(child: &mut Child) {
    child.kill();
    let _ = tokio::time::timeout(KILL_GRACE, child.wait()).await;
}

/// What the program gets on stdin.
fn input_of(job: Job<'_>) -> Vec<u8> {
    let input = job.call.input.text();
    if !job.tool.slots {
        return input.as_bytes().to_vec();
    }
    let mut text = Vec::with_capacity(input.len() + 64);
    text.extend_from_slice(b"{\"input\":");
    text.extend_from_slice(input.as_bytes());
    text.extend_from_slice(b",\"slots\":");
    answer::write_slots(&job.call.slots, &mut text);
    text.push(b'}');
    text
}

/// The most that is taken from stdout: the output, the blanks around it, and where there
/// are slots, as much again for them.
fn printed_bytes_max(output_bytes_max: usize, job: Job<'_>) -> usize {
    const BLANKS: usize = 1024;
    let slots = if job.tool.slots { output_bytes_max } else { 0 };
    output_bytes_max + slots + BLANKS
}

/// The three streams of a running program.
struct Streams {
    input: Vec<u8>,
    written: usize,
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    output: Vec<u8>,
    printed_bytes_max: usize,
    chatter: Chatter,
    tail: Tail,
}

impl Streams {
    /// The near ends, and the far ones in their order.
    fn new(input: Vec<u8>, printed_bytes_max: usize) -> io::Result<(Self, [OwnedFd; 3])> {
        let (stdin_far, stdin) = io::pipe()?;
        let (stdin, written) = fill(pipe::Sender::from_owned_fd(stdin.into())?, &input);
        let (stdout, stdout_far) = io::pipe()?;
        let (chatter, stderr_far) = Chatter::new(Stream::Stderr)?;
        let streams = Self {
            input,
            written,
            stdin,
            stdout: Some(pipe::Receiver::from_owned_fd(stdout.into())?),
            output: Vec::new(),
            printed_bytes_max,
            chatter,
            tail: Tail::default(),
        };
        Ok((streams, [stdin_far.into(), stdout_far.into(), stderr_far]))
    }

    /// Moves bytes for as long as it is polled; ready only when there is too much output.
    async fn pump(&mut self, sink: &dyn Sink) {
        let Self {
            input,
            written,
            stdin,
            stdout,
            output,
            printed_bytes_max,
            chatter,
            tail,
        } = self;
        // Each arm keeps what it moves in the fields that it borrows, in the poll that moves it.
        tokio::select! {
            () = feed(stdin, input, written) => unreachable!("it never ends"),
            () = chatter.pump(tail, sink) => unreachable!("it never ends"),
            () = collect(stdout, output, *printed_bytes_max) => {}
        }
    }

    /// The program has ended: takes what is left in the pipes; nothing if it is too much. Nobody waits for their end,
    /// which a descriptor given away could put off for ever.
    fn finish(&mut self, sink: &dyn Sink) -> Option<()> {
        self.chatter.pass_rest(&mut self.tail, sink);
        let mut buffer = vec![0; 64 * 1024];
        while let Some(stdout) = &self.stdout {
            match rustix::io::read(stdout, &mut buffer) {
                Ok(0) => self.stdout = None,
                Ok(read) => take(&buffer[..read], &mut self.output, self.printed_bytes_max)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        Some(())
    }

    /// The exit code outranks what was printed: a program may print its output and then die
    /// before it has done its work.
    fn judge(&self, ending: Ending, slots: bool, max: usize) -> Result<Output, Fault> {
        let printed = self.output.trim_ascii();
        match ending {
            Ending::Code(0) if slots && !printed.is_empty() => {
                Answer::read(printed)?.into_result(true, max, None)
            }
            Ending::Code(0) if printed.len() > max => Err(answer::too_large(max)),
            Ending::Code(0) => answer::read_output(printed),
            Ending::Code(_) => {
                Err(answer::printed_error(printed)
                    .unwrap_or_else(|| ending::crash(ending, &self.tail)))
            }
            Ending::Signal(_) | Ending::Lost => Err(ending::crash(ending, &self.tail)),
        }
    }
}

/// Puts the input into the pipe before there is a program to read it: were we killed in
/// between, it would else run on half an input. What the pipe does not take is fed later.
fn fill(stdin: pipe::Sender, input: &[u8]) -> (Option<pipe::Sender>, usize) {
    const PIPE_BYTES_MAX: usize = 1024 * 1024;
    const PIPE_BYTES_USUAL: usize = 64 * 1024;
    if input.len() > PIPE_BYTES_USUAL {
        // Refused where the user's pipes are full; then the rest is fed later.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdin, input.len().min(PIPE_BYTES_MAX));
    }
    let mut written = 0;
    while written < input.len() {
        match rustix::io::write(&stdin, &input[written..]) {
            Ok(count) => written += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return (Some(stdin), written),
        }
    }
    (None, written)
}

/// Writes the rest of the input for as long as the program reads it. One that does not is free not to.
async fn feed(stdin: &mut Option<pipe::Sender>, input: &[u8], written: &mut usize) {
    while let Some(pipe) = stdin {
        if *written == input.len() || pipe.writable().await.is_err() {
            *stdin = None;
            continue;
        }
        match pipe.try_write(&input[*written..]) {
            Ok(count) => *written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => *stdin = None,
        }
    }
    std::future::pending().await
}

/// Collects the output; ready only when it is too much.
async fn collect(stdout: &mut Option<pipe::Receiver>, output: &mut Vec<u8>, max: usize) {
    let mut buffer = vec![0; 16 * 1024];
    while let Some(pipe) = stdout {
        if pipe.readable().await.is_err() {
            *stdout = None;
            continue;
        }
        match pipe.try_read(&mut buffer) {
            Ok(0) => *stdout = None,
            Ok(read) => {
                if take(&buffer[..read], output, max).is_none() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => *stdout = None,
        }
    }
    std::future::pending().await
}

/// Adds to the output, unless that is too much.
fn take(bytes: &[u8], output: &mut Vec<u8>, max: usize) -> Option<()> {
    if output.len() + bytes.len() > max {
        return None;
    }
    output.extend_from_slice(bytes);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each report buys another timeout from then on, until the cap; the clock is the test's.
    #[tokio::test(start_paused = true)]
    async fn progress_moves_the_deadline_up_to_the_cap() {
        let seconds = Duration::from_secs;
        let start = Instant::now();
        let patience = Patience::new(seconds(60), seconds(200));
        let reports = async {
            for at in [50, 100, 150, 190] {
                tokio::time::sleep_until(start + seconds(at)).await;
                patience.extend(start.elapsed());
            }
        };
        let deadline = overrun(&patience, start + seconds(60));
        let (after, ()) = tokio::join!(deadline, reports);
        assert_eq!((after, start.elapsed()), (seconds(200), seconds(200)));

        let start = Instant::now();
        let patience = Patience::new(seconds(60), seconds(200));
        patience.extend(seconds(30));
        let after = overrun(&patience, start + seconds(60)).await;
        assert_eq!((after, start.elapsed()), (seconds(90), seconds(90)));
    }
}
