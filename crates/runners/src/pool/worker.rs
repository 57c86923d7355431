//! One worker: a process that takes a line and answers with a line, one at a time.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Fault, Guarantee, Isolation, Job, Needs, NoSink, Output, Stream};
use callgate_sandbox::{Child, Ending, SpawnError, Spawner, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::ask;
use super::report::Reports;
use super::verdict::Verdict;
use crate::answer::{self, Answer, Asked};
use crate::chatter::Chatter;
use crate::egress::Outlet;
use crate::ending;
use crate::flood::{FLOOD_PAUSE, FREE_BYTES};
use crate::hints;
use crate::line::Line;
use crate::process::{end, stop};
use crate::tail::Tail;

/// The worker's end of the lines, and the variable that says so.
const FD: u32 = 3;
const FD_VARIABLE: &str = "CALLGATE_FD";

/// What a reply line may hold beside the output: names, braces, a tool's own error.
const REPLY_SLACK_BYTES: usize = 64 * 1024;

/// Buffers that have grown beyond this are given back after the call.
const BUFFER_KEPT_BYTES: usize = 64 * 1024;

/// How long a worker that hung up may take to be dead. One that is not has only closed its
/// descriptor.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// What a worker is fit for: no other call may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitness {
    pub isolation: Isolation,
    /// What confines it from its birth.
    pub needs: Option<Arc<Needs>>,
}

impl Fitness {
    /// True if what confines it has to keep this promise.
    pub fn forbids(&self, guarantee: Guarantee) -> bool {
        self.needs
            .as_deref()
            .is_some_and(|needs| !needs.unconfined && needs.guarantees.requires(guarantee))
    }
}

/// A running worker. Dropping it ends its tree.
#[derive(Debug)]
pub(crate) struct Worker {
    pub fitness: Fitness,
    stream: Line,
    child: Child,
    /// Its way to the hosts it may reach, and no others.
    outlet: Option<Outlet>,
    stdout: Chatter,
    stderr: Chatter,
    tail: Tail,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Calls begun.
    pub calls: u64,
    /// The pool's generation it was started in.
    pub generation: u64,
    pub idle_since: Instant,
}

/// How a call on a worker went.
pub(crate) enum Served {
    /// Answered; the worker can take another.
    Answered(Result<Output, Fault>),
    /// Answered, or stopped by us; the worker is not to be trusted further.
    Spent(Result<Output, Fault>),
    /// The worker died of it.
    Crashed(Fault),
}

/// How an idle worker is found.
pub(crate) enum Found {
    Ready,
    /// Spoke without being asked, or left in good order.
    Unfit,
    Crashed(String),
}

impl Worker {
    /// One that speaks by a descriptor of its own, so that what it prints is no reply.
    pub async fn start(
        spawner: &Spawner,
        mut spec: Spec,
        fitness: Fitness,
        (job, generation): (Job<'_>, u64),
    ) -> Result<Self, Fault> {
        let (stream, far) = Line::pair().map_err(internal)?;
        let (stdout, stdout_far) = Chatter::new(Stream::Stdout).map_err(internal)?;
        spec.stdout = stdout_far.into();
        spec.extra.push((far, FD));
        spec.env.push((FD_VARIABLE.into(), FD.to_string().into()));
        let job = Some(job);
        Self::born(spawner, spec, fitness, (stream, stdout), (job, generation)).await
    }

    /// One that speaks by its standard input and output, where nothing else reaches it.
    pub async fn over_stdio(
        spawner: &Spawner,
        mut spec: Spec,
        generation: u64,
    ) -> Result<Self, Fault> {
        let (stream, far) = Line::pair().map_err(internal)?;
        spec.stdin = far.try_clone().map_err(internal)?.into();
        spec.stdout = far.into();
        let stdout = Chatter::silent(Stream::Stdout);
        // What confines it is where it is.
        let fitness = Fitness {
            isolation: Isolation::Worker,
            needs: None,
        };
        Self::born(spawner, spec, fitness, (stream, stdout), (None, generation)).await
    }

    async fn born(
        spawner: &Spawner,
        mut spec: Spec,
        fitness: Fitness,
        (stream, stdout): (Line, Chatter),
        (job, generation): (Option<Job<'_>>, u64),
    ) -> Result<Self, Fault> {
        let (stderr, stderr_far) = Chatter::new(Stream::Stderr).map_err(internal)?;
        spec.stderr = stderr_far.into();
        let mut child = spawner
            .spawn(spec)
            .await
            .map_err(|error: SpawnError| match job {
                Some(job) => hints::not_started(job, &error),
                None => ending::not_started(&error),
            })?;
        let outlet = Outlet::of(&mut child, fitness.needs.as_deref())?;
        Ok(Self {
            fitness,
            stream,
            child,
            outlet,
            stdout,
            stderr,
            tail: Tail::default(),
            request: Vec::new(),
            reply: Vec::new(),
            calls: 0,
            generation,
            idle_since: Instant::now(),
        })
    }

    /// Its process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended, if it has.
    pub async fn ended(&mut self) -> Option<String> {
        let exit = tokio::time::timeout(Duration::ZERO, self.child.wait()).await;
        self.stderr.pass_rest(&mut self.tail, &NoSink);
        exit.ok()
            .map(|exit| self.reason(&ending::describe(exit.ending)))
    }

    /// Serves one call. `entry` is JSON.
    pub async fn serve(
        &mut self,
        entry: &str,
        job: Job<'_>,
        deadline: Instant,
        output_bytes_max: usize,
    ) -> Served {
        // Nobody of an earlier call is left in it, so nothing of theirs is to be reached either.
        let alone = self.fitness.isolation != Isolation::Worker;
        if let Some(outlet) = &mut self.outlet
            && let Err(fault) = outlet.begin(alone).await
        {
            return Served::Spent(Err(fault));
        }
        let served = self.take(entry, job, deadline, output_bytes_max).await;
        if let Some(outlet) = &self.outlet {
            hints::tell_host(job, outlet.tell(alone, job.sink).await);
        }
        if let Served::Answered(Err(fault)) | Served::Spent(Err(fault)) | Served::Crashed(fault) =
            &served
        {
            hints::tell(job, &self.child, fault, &self.tail);
        }
        served
    }

    async fn take(
        &mut self,
        entry: &str,
        job: Job<'_>,
        deadline: Instant,
        output_bytes_max: usize,
    ) -> Served {
        self.calls += 1;
        self.tail.clear();
        self.stdout.begin();
        self.stderr.begin();
        write_request(&mut self.request, entry, job);
        let slots = if job.tool.slots { output_bytes_max } else { 0 };
        let reply_bytes_max = output_bytes_max + slots + REPLY_SLACK_BYTES;
        match self.exchange(job, deadline, reply_bytes_max).await {
            Exchange::Line(length) => {
                if self.fitness.isolation == Isolation::Cold {
                    end(&mut self.child).await;
                }
                self.pass_rest(job);
                let served = self.judge(length, job, output_bytes_max);
                self.shrink();
                served
            }
            Exchange::Judged { answer, verdict } => {
                self.pass_rest(job);
                let served = self.judge_end(answer, verdict, job, output_bytes_max).await;
                self.shrink();
                served
            }
            Exchange::Overlong => {
                end(&mut self.child).await;
                Served::Spent(Err(answer::too_large(output_bytes_max)))
            }
            Exchange::Stopped(fault) => {
                end(&mut self.child).await;
                self.pass_rest(job);
                Served::Spent(Err(fault))
            }
            Exchange::HungUp => self.hung_up(job).await,
        }
    }

    /// Looks after a worker that has been idle.
    pub async fn find(&mut self) -> Found {
        let [stream, stdout, stderr] = self.ready();
        if stream {
            let mut byte = [0];
            return match rustix::io::read(&self.stream, &mut byte) {
                Ok(0) | Err(_) => self.found_dead().await,
                Ok(_) => Found::Unfit,
            };
        }
        // Said between calls: it belongs to none.
        if stdout {
            self.stdout.pass_rest(&mut self.tail, &NoSink);
        }
        if stderr {
            self.stderr.pass_rest(&mut self.tail, &NoSink);
        }
        Found::Ready
    }

    async fn found_dead(&mut self) -> Found {
        let exit = tokio::time::timeout(LAST_BREATH, self.child.wait()).await;
        self.stderr.pass_rest(&mut self.tail, &NoSink);
        match exit {
            Ok(exit) if exit.ending == Ending::Code(0) => Found::Unfit,
            Ok(exit) => Found::Crashed(self.reason(&ending::describe(exit.ending))),
            Err(_) => Found::Crashed(self.reason("closed its reply descriptor")),
        }
    }

    /// What the pool says of a crash: how, and the last lines.
    pub fn reason(&self, how: &str) -> String {
        ending::with_last_words(how, &self.tail)
    }

    /// One line out, reports and one line in. Dropping it loses bytes, and with them the worker.
    async fn exchange(&mut self, job: Job<'_>, deadline: Instant, max: usize) -> Exchange {
        let Self {
            stream,
            stdout,
            stderr,
            tail,
            request,
            reply,
            fitness,
            ..
        } = self;
        reply.clear();
        let mut talk = Talk {
            reports: Reports::new(job, call_of(request)),
            forks: fitness.isolation == Isolation::Call,
            line_at: 0,
            searched: 0,
            passed_over: 0,
            max,
        };
        // A dropped exchange loses bytes of the request or the reply: `serve` ends the worker then.
        // What the worker printed is kept in `tail`. Biased: an answer outranks a cancellation and
        // the deadline.
        tokio::select! {
            biased;
            exchanged = lines(stream, request, reply, &mut talk) => exchanged,
            () = listen(stdout, stderr, tail, job) => unreachable!("it never ends"),
            // A worker that always has something to say uses up what a task may do at a time,
            // and without that a clock would not even be looked at.
            fault = unconstrained(stop(job, deadline)) => Exchange::Stopped(fault),
        }
    }

    /// What it printed before it answered belongs to this call.
    fn pass_rest(&mut self, job: Job<'_>) {
        let [_, stdout, stderr] = self.ready();
        if stdout {
            self.stdout.pass_rest(&mut self.tail, job.sink);
        }
        if stderr {
            self.stderr.pass_rest(&mut self.tail, job.sink);
        }
    }

    /// Which of stream, stdout and stderr have something. Asks the kernel, once.
    fn ready(&self) -> [bool; 3] {
        let stream = self.stream.as_fd();
        let fds = [
            stream,
            self.stdout.fd().unwrap_or(stream),
            self.stderr.fd().unwrap_or(stream),
        ];
        let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(
            &mut polled,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        ) {
            Ok(_) => polled.map(|fd| !fd.revents().is_empty()),
            Err(_) => [false; 3],
        }
    }

    fn judge(&self, length: usize, job: Job<'_>, output_bytes_max: usize) -> Served {
        let beyond = &self.reply[length + 1..];
        match self.read(length, job, output_bytes_max) {
            Ok(result) if beyond.is_empty() => Served::Answered(result),
            Ok(result) => Served::Spent(result),
            Err(lie) => Served::Spent(Err(lie)),
        }
    }

    /// A call that had a process of its own: how that ended outranks what it said. A lie costs
    /// the process that told it, which is gone.
    async fn judge_end(
        &mut self,
        answer: Option<usize>,
        verdict: Result<Verdict, String>,
        job: Job<'_>,
        output_bytes_max: usize,
    ) -> Served {
        let Verdict { ending, left } = match verdict {
            Ok(verdict) => verdict,
            Err(reason) => {
                let reason = format!("not the end of a call: {reason}");
                return Served::Spent(Err(answer::bad(reason)));
            }
        };
        let result = match (ending, answer) {
            (Ending::Code(0), Some(length)) => {
                self.read(length, job, output_bytes_max).unwrap_or_else(Err)
            }
            (Ending::Code(code), _) => Err(ending::left(code, &self.tail)),
            (ending, _) => Err(ending::crash(ending, &self.tail)),
        };
        if left {
            end(&mut self.child).await;
            return Served::Spent(result);
        }
        Served::Answered(result)
    }

    /// What the reply of so many bytes says; an error if it is no answer to this call.
    fn read(
        &self,
        length: usize,
        job: Job<'_>,
        output_bytes_max: usize,
    ) -> Result<Result<Output, Fault>, Fault> {
        let answer = Answer::read(&self.reply[..length])?;
        if answer.call.as_deref().map(str::as_bytes) != Some(call_of(&self.request)) {
            return Err(answer::bad("it answered another call than it was asked"));
        }
        if let (Some(asked), Some(reach)) = (asked_of(job), self.child.reach()) {
            hints::tell_attempts(job, asked, reach, &answer.attempts);
        }
        Ok(match (answer.asks(), answer.exits()) {
            (Some(ask), _) => Err(ask::needs_input(ask, job.call)),
            (None, Some(code)) => Err(ending::left(code, &self.tail)),
            (None, None) => answer.into_result(job.tool.slots, output_bytes_max, asked_of(job)),
        })
    }

    async fn hung_up(&mut self, job: Job<'_>) -> Served {
        let exit = tokio::time::timeout(LAST_BREATH, self.child.wait()).await;
        self.pass_rest(job);
        match exit {
            Ok(exit) if exit.ending == Ending::Code(0) => {
                // An end in good order is none while a call waits.
                let message = self.reason("the worker ended (exit 0) without answering");
                Served::Crashed(Fault::Crash { message })
            }
            Ok(exit) => Served::Crashed(ending::crash(exit.ending, &self.tail)),
            Err(_) => {
                end(&mut self.child).await;
                let message = "the worker closed its reply descriptor".to_owned();
                Served::Crashed(Fault::Crash { message })
            }
        }
    }

    fn shrink(&mut self) {
        for buffer in [&mut self.request, &mut self.reply] {
            if buffer.capacity() > BUFFER_KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}

pub(crate) fn internal(error: std::io::Error) -> Fault {
    Fault::Internal {
        message: format!("make a worker's streams: {error}"),
    }
}

enum Exchange {
    /// A reply of so many bytes and its newline.
    Line(usize),
    /// The end of a call's own process, and the reply it gave before, if it did.
    Judged {
        answer: Option<usize>,
        verdict: Result<Verdict, String>,
    },
    Overlong,
    HungUp,
    Stopped(Fault),
}

/// Writes the request and reads the answer's line, at the same time: a worker may answer before
/// it has read all. Reports before the answer are passed on.
async fn lines(
    stream: &mut Line,
    request: &[u8],
    reply: &mut Vec<u8>,
    talk: &mut Talk<'_>,
) -> Exchange {
    let mut left = request;
    loop {
        if !left.is_empty() {
            // If it is gone, what it answered before may still be there.
            let count = stream.write(left).unwrap_or(left.len());
            left = &left[count..];
        }
        match stream.read(reply, !left.is_empty()).await {
            Ok(None) => continue,
            Ok(Some(0)) | Err(_) => return Exchange::HungUp,
            Ok(Some(_)) => {}
        }
        if let Some(exchanged) = talk.hear(reply) {
            return exchanged;
        }
        if talk.passed_over > FREE_BYTES {
            tokio::time::sleep(FLOOD_PAUSE).await;
        }
    }
}

/// How far the lines of a reply have been looked at.
struct Talk<'a> {
    reports: Reports<'a>,
    /// The call has a process of its own, of whose end we are told.
    forks: bool,
    /// Where the line begins that is not complete yet. What is before it is the answer.
    line_at: usize,
    searched: usize,
    /// Bytes of lines that were no answer.
    passed_over: u64,
    max: usize,
}

impl Talk<'_> {
    /// Takes the lines that are complete; what they come to, if they do.
    fn hear(&mut self, reply: &mut Vec<u8>) -> Option<Exchange> {
        // Lines that were dealt with leave together: one by one, each would move all behind it.
        let mut begin = self.line_at;
        while let Some(at) = memchr::memchr(b'\n', &reply[self.searched..]) {
            let end = self.searched + at;
            let line = &reply[begin..end];
            if line.len() > self.max {
                return Some(Exchange::Overlong);
            }
            let answer = self.line_at.checked_sub(1);
            if self.forks
                && let Some(verdict) = Verdict::find(line)
            {
                return Some(Exchange::Judged { answer, verdict });
            }
            self.searched = end + 1;
            // After its answer a call has nothing more to say.
            if answer.is_some() || self.reports.take(line) {
                begin = self.searched;
                continue;
            }
            let length = line.len();
            reply.drain(..begin);
            if !self.forks {
                return Some(Exchange::Line(length));
            }
            self.line_at = length + 1;
            (begin, self.searched) = (self.line_at, self.line_at);
        }
        self.passed_over += (begin - self.line_at) as u64;
        reply.drain(self.line_at..begin);
        self.searched = reply.len();
        (reply.len() - self.line_at > self.max).then_some(Exchange::Overlong)
    }
}

/// Listens to both streams for as long as it is polled.
async fn listen(stdout: &mut Chatter, stderr: &mut Chatter, tail: &mut Tail, job: Job<'_>) {
    let mut unused = Tail::default();
    // Reasons are on stderr; what is on stdout is for the sink only.
    tokio::join!(
        stdout.pump(&mut unused, job.sink),
        stderr.pump(tail, job.sink)
    );
}

/// `{"call":"…","tool":"…","entry":…,"input":…}` and a newline; before the brace there may be
/// `"slots":{…}`, `"answers":{…}` and `"guarantees":[…]`.
fn write_request(out: &mut Vec<u8>, entry: &str, job: Job<'_>) {
    use std::io::Write as _;
    out.clear();
    let input = job.call.input.text();
    write!(out, "{{\"call\":\"{}\",\"tool\":", job.call.id).expect("a Vec takes all");
    serde_json::to_writer(&mut *out, job.tool.declared_name()).expect("a Vec takes all");
    out.extend_from_slice(b",\"entry\":");
    out.extend_from_slice(entry.as_bytes());
    out.extend_from_slice(b",\"input\":");
    // Strict JSON has newlines between its tokens only, but a line has none at all.
    if memchr::memchr(b'\n', input.as_bytes()).is_some() {
        serde_json::to_writer(&mut *out, job.call.input.value()).expect("a Vec takes all");
    } else {
        out.extend_from_slice(input.as_bytes());
    }
    if job.tool.slots {
        out.extend_from_slice(b",\"slots\":");
        answer::write_slots(&job.call.slots, out);
    }
    let answers = ask::answers(job.call);
    if !answers.is_empty() {
        out.extend_from_slice(b",\"answers\":");
        serde_json::to_writer(&mut *out, &answers).expect("a Vec takes all");
    }
    if let Some(asked) = asked_of(job) {
        let mut before = ",\"guarantees\":[\"";
        for guarantee in asked.all() {
            write!(out, "{before}{}", guarantee.name()).expect("a Vec takes all");
            before = "\",\"";
        }
        out.extend_from_slice(b"\"]");
    }
    out.extend_from_slice(b"}\n");
}

/// What the tool is held to, if it is to anything.
fn asked_of(job: Job<'_>) -> Option<Asked<'_>> {
    let needs = job.plan.confinement.as_deref()?;
    let is_held = !needs.guarantees.is_empty() || needs.roots.is_some();
    (!needs.unconfined && is_held).then_some(Asked(needs))
}

/// The call id in a request written by `write_request`.
fn call_of(request: &[u8]) -> &[u8] {
    let start = b"{\"call\":\"".len();
    &request[start..start + 32]
}

#[cfg(test)]
mod mutations;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod properties;
