//! The toolhost: `--list`, `--run`, `--serve` and `tool_exec`. Contract
//! `docs/contracts/toolhost.md`, decisions T.
//!
//! One pipe is one conversation and strictly sequential, because of its slots (T-18). Many
//! lines may wait in the pipe: they are answered in order and their answers share one write.

mod slots;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Call, Caller, Cancel, Document, Fault, IdempotencyKey, LeaseToken, Outcome, ReplayWindow,
    SlotChange, Slots, Tier, Wire,
};
use callgate_gate::{FoundTool, Gate, LeaseRequest, Ticket};
use callgate_wires::line::{Line, LineSplitter};
use callgate_wires::toolhost::{
    self as wire, Entry, IDEMP_DEFAULT_TTL_MS, IDEMP_MAX_ENTRIES, LeaseCommand, LeaseIssued,
    MAX_STDIN_BYTES, REPLY_BYTES_MAX, Reply, ReplyState, Request, RequestError, RequestInput,
    Status, TookCall,
};

use crate::pipe::{PipeReader, PipeWriter, Whole};
use slots::{Held, Sent, after, fits_line, fits_snapshot, to_wire};

/// What the host is told at its start.
#[derive(Clone, Debug)]
pub struct Host {
    /// The owner of the pipe.
    pub caller: Caller,
    /// For tools that have no timeout of their own. T-2.
    pub default_timeout: Duration,
    /// The client's patience, less our margin. T-2.
    pub timeout_max: Option<Duration>,
    /// `ok` is false beside a failing status. T-6.
    pub strict_ok: bool,
    /// `_lease.issue` and `_lease.gc` are served. T-15.
    pub in_band_leases: bool,
    /// Ends the call under way and then the host.
    pub stop: Cancel,
}

/// What a one-shot prints and how it exits.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    /// For standard output.
    pub bytes: Vec<u8>,
    /// The exit code.
    pub code: u8,
}

/// The exit code of a request that can not be read. TH-13, TH-17.
const EXIT_BAD_REQUEST: u8 = 5;
/// The exit code of `--run` for an AID the plugin does not have. T-20.
const EXIT_UNKNOWN_AID: u8 = 4;

/// The `ds_state` of a hit, on every entry. T-9.
const NOTHING_CHANGED: ReplyState<'static> = ReplyState::Delta(&BTreeMap::new(), &[]);

/// Largest read, and largest batch of answers before they are written.
const BATCH_BYTES: usize = 256 * 1024;

/// So many answers are written together. Few enough that a client with more calls under way
/// can send the next ones while we are at work, many enough that a write costs each little.
const BATCH_ANSWERS: usize = 48;

/// How long a client may take to read what is answered once we are told to stop.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// `--list`: every tool, sorted by AID so that the order is stable.
#[must_use]
pub fn list(gate: &Gate) -> Vec<u8> {
    let catalog = gate.catalog();
    let mut tools: Vec<_> = catalog.tools().collect();
    tools.sort_by(|a, b| a.aid.cmp(&b.aid));
    let mut out = Vec::new();
    wire::write_list(
        tools.into_iter().map(|tool| wire::ListedTool {
            aid: &tool.aid,
            name: tool.declared_name(),
            deterministic: tool.deterministic,
            tags: &tool.tags,
            side_effects: &tool.side_effects,
            replay_inputs: &tool.replay_inputs,
        }),
        &mut out,
    );
    out
}

/// `--run PLUGIN AID` and `tool_exec AID`: one request is the whole of standard input.
pub async fn run_once(
    gate: &Gate,
    host: &Host,
    entry: Entry,
    aid: &str,
    stdin: &mut PipeReader,
) -> io::Result<Answered> {
    // An unknown AID answers without reading stdin.
    let found = gate.find(aid);
    if let Err(fault) = found.entry() {
        let ticket = gate.refuse(aid, &host.caller, Wire::Toolhost, fault);
        // Nothing was done: that there is no such tool is told, recorded or not.
        let _ = gate.settle(ticket).await;
        return Ok(unknown_aid(entry, aid, host));
    }
    let refuse = |error: &str, detail: Option<&str>| {
        let reply = Reply::Refused {
            error,
            detail,
            extra: Vec::new(),
            with_status: entry == Entry::ToolExec,
        };
        Ok(Answered {
            bytes: encode(&reply),
            code: EXIT_BAD_REQUEST,
        })
    };
    let not_json = match entry {
        Entry::ToolExec => "invalid JSON on stdin",
        Entry::Run | Entry::Serve => "invalid JSON request on stdin",
    };
    // A dropped `read_all` loses the beginning of the request. Nothing was called yet, and the
    // process ends with an error.
    let whole = tokio::select! {
        whole = stdin.read_all(MAX_STDIN_BYTES) => whole?,
        () = host.stop.cancelled() => return Err(io::ErrorKind::Interrupted.into()),
    };
    let bytes = match whole {
        Whole::Bytes(bytes) => bytes,
        Whole::TooLarge => return refuse("stdin exceeds 10MB limit", None),
    };
    let request = match Request::parse(&bytes) {
        Ok(request) => request,
        Err(RequestError::Wrong(reason)) => return refuse(&reason, None),
        Err(error) => return refuse(not_json, Some(&error.to_string())),
    };
    if request.aid.as_deref().is_some_and(|named| named != aid) {
        return refuse("the request names another aid than the command line", None);
    }
    let mut conversation = Conversation::new(gate, host, entry);
    conversation.take(aid.to_owned(), &found, request).await;
    conversation.settle().await;
    Ok(Answered {
        bytes: conversation.out,
        code: 0,
    })
}

fn unknown_aid(entry: Entry, aid: &str, host: &Host) -> Answered {
    let none = BTreeMap::new();
    match entry {
        Entry::ToolExec => {
            let reply = Reply::Took(TookCall {
                status: Status::ToolError,
                output_json: "{}",
                error: &format!("MISSING_TOOL: {aid}"),
                idempotent_hit: false,
                state: ReplyState::Snapshot(&none),
                strict_ok: host.strict_ok,
            });
            Answered {
                bytes: encode(&reply),
                code: 0,
            }
        }
        Entry::Run | Entry::Serve => {
            let mut bytes = Vec::new();
            wire::write_refusal(&format!("tool not found in plugin: {aid}"), &mut bytes);
            Answered {
                bytes,
                code: EXIT_UNKNOWN_AID,
            }
        }
    }
}

/// `--serve PLUGIN`: NDJSON until a zero-length line or the end of input (T-10).
pub async fn serve(
    gate: &Gate,
    host: &Host,
    stdin: &mut PipeReader,
    stdout: &PipeWriter,
) -> io::Result<()> {
    let mut conversation = Conversation::new(gate, host, Entry::Serve);
    let mut splitter = LineSplitter::new(MAX_STDIN_BYTES);
    let mut chunk = vec![0; BATCH_BYTES];
    loop {
        let count = tokio::select! {
            // Reading is cancel-safe: bytes leave the pipe only when the read returns them.
            count = stdin.read(&mut chunk) => count?,
            () = host.stop.cancelled() => 0,
        };
        splitter.feed(&chunk[..count]);
        while let Some(line) = splitter.next_line() {
            if host.stop.is_cancelled() {
                return conversation.send(stdout).await; // what is not begun is not answered
            }
            if conversation.is_full() {
                conversation.send(stdout).await?;
            }
            match line {
                Line::Text([]) => return conversation.send(stdout).await,
                Line::Text(line) => conversation.answer_line(line, stdout).await?,
                Line::TooLong => conversation.refuse_line("line exceeds 10MB limit", None),
            }
        }
        if count == 0 {
            if let Some(rest) = splitter.finish() {
                conversation.answer_line(rest, stdout).await?;
            }
            return conversation.send(stdout).await;
        }
        conversation.send(stdout).await?;
    }
}

/// Ready when we are stopped and a client that is only slow has had the time to read.
async fn patience_ends(stop: &Cancel) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_WORDS).await;
}

/// One pipe: its slots, and the answers that have not been written yet.
struct Conversation<'a> {
    gate: &'a Gate,
    host: &'a Host,
    entry: Entry,
    /// One call at a time, and nothing else ends it: no token of its own.
    stop: Arc<Cancel>,
    slots: Held,
    out: Vec<u8>,
    /// How many answers are in it.
    answers: usize,
    /// Where each unsettled answer begins, so that one that could not be recorded can be
    /// taken back.
    unsettled_from: usize,
    ticket: Option<Ticket>,
    /// For `_lease.gc`, which counts them per pipe.
    leases_rejected: u64,
}

impl<'a> Conversation<'a> {
    fn new(gate: &'a Gate, host: &'a Host, entry: Entry) -> Self {
        Self {
            gate,
            host,
            entry,
            stop: Arc::new(host.stop.clone()),
            slots: Held::default(),
            out: Vec::new(),
            answers: 0,
            unsettled_from: 0,
            ticket: None,
            leases_rejected: 0,
        }
    }

    /// Answers one line of `--serve`.
    async fn answer_line(&mut self, line: &[u8], stdout: &PipeWriter) -> io::Result<()> {
        let mut request = match Request::parse(line) {
            Ok(request) => request,
            Err(RequestError::NotJson(reason)) => {
                self.refuse_line("invalid JSON", Some(&reason));
                return Ok(());
            }
            Err(RequestError::NotAnObject) => {
                self.refuse_line("missing aid", None);
                return Ok(());
            }
            Err(RequestError::Wrong(reason)) => {
                self.refuse_line(&reason, None);
                return Ok(());
            }
        };
        let Some(aid) = request.aid.take().filter(|aid| !aid.is_empty()) else {
            self.refuse_line("missing aid", None);
            return Ok(());
        };
        if self.host.in_band_leases && LeaseCommand::is_named(&aid) {
            self.lease_command(line);
            return Ok(());
        }
        // What is answered already does not wait for a tool that takes its time.
        let found = self.gate.find(&aid);
        if !self.out.is_empty() && !found.answers_at_once() {
            self.send(stdout).await?;
        }
        self.take(aid, &found, request).await;
        self.end_line();
        Ok(())
    }

    /// True if what is answered is to be written before more is.
    fn is_full(&self) -> bool {
        self.out.len() > BATCH_BYTES || self.answers >= BATCH_ANSWERS
    }

    fn end_line(&mut self) {
        self.out.push(b'\n');
        self.answers += 1;
    }

    fn refuse_line(&mut self, error: &str, detail: Option<&str>) {
        Reply::Refused {
            error,
            detail,
            extra: Vec::new(),
            with_status: false,
        }
        .write(&mut self.out);
        self.end_line();
    }

    /// Takes one request for `aid`, which is the tool `found`, through the gate and appends its
    /// reply.
    async fn take(&mut self, aid: String, found: &FoundTool, request: Request) {
        let (merged, sent) = self.slots.merge(request.state);
        let (value, text) = match request.input {
            RequestInput::Json(value, text) => (value, text),
            // The gate never sees it: there is no input to check.
            RequestInput::Broken(reason) => {
                return self.refuse_input(&aid, found, &reason, (merged, sent));
            }
        };
        let id = self.gate.next_id();
        let input = Document::of_input(value, text);
        let (caller, cancel) = (self.host.caller.clone(), Arc::clone(&self.stop));
        let mut call = Call::new(id, aid, input, caller, Wire::Toolhost, cancel);
        call.key = request
            .idempotency_key
            .as_deref()
            .and_then(IdempotencyKey::new);
        call.replay_window = Some(ReplayWindow {
            max_age: Duration::from_millis(IDEMP_DEFAULT_TTL_MS),
            entries_max: IDEMP_MAX_ENTRIES,
        });
        call.lease = request.lease_token.as_deref().map(LeaseToken::new);
        call.default_timeout = self.host.default_timeout;
        call.timeout_max = self.host.timeout_max;
        call.slots = merged;
        call.fits = match self.entry {
            Entry::Serve => fits_line,
            Entry::Run | Entry::ToolExec => fits_snapshot,
        };
        let answer = self.gate.invoke_found(&call, found).await;
        self.ticket = self.ticket.max(Some(answer.ticket));
        self.reply(call, answer.outcome, sent);
    }

    /// Answers a call whose `input_json` is not JSON. It counts as taken, so that what the
    /// caller sent of its slots stays, like after any other bad input. TH-89.
    fn refuse_input(
        &mut self,
        aid: &str,
        found: &FoundTool,
        reason: &str,
        (merged, sent): (Slots, Sent),
    ) {
        let fault = found.entry().err().cloned();
        let fault = fault.unwrap_or_else(|| Fault::BadInput {
            field: "input_json".to_owned(),
            reason: format!("is not JSON: {reason}"),
        });
        let ticket = self
            .gate
            .refuse(aid, &self.host.caller, Wire::Toolhost, &fault);
        self.ticket = self.ticket.max(Some(ticket));
        if status_of(&fault).is_some() {
            self.slots.keep(merged, sent);
        }
        self.reply_fault(aid, &fault);
    }

    fn reply(&mut self, call: Call, outcome: Outcome, sent: Sent) {
        match outcome.result {
            Ok(output) if outcome.replayed => {
                let (slots, none) = (self.slots.now().clone(), SlotChange::default());
                self.write_took(Status::Ok, output.json.text(), "", true, &slots, &none);
            }
            Ok(output) => {
                let (after, change) = after(&call.slots, &output.slots);
                self.write_took(Status::Ok, output.json.text(), "", false, &after, &change);
                match change.is_empty() {
                    true => self.slots.keep(call.slots, sent),
                    false => self.slots.change(call.slots, sent, after),
                }
            }
            Err(fault) => {
                if status_of(&fault).is_some() && !outcome.replayed {
                    self.slots.keep(call.slots, sent);
                }
                if outcome.replayed {
                    self.reply_fault_hit(&fault);
                } else {
                    self.reply_fault(&call.tool, &fault);
                }
            }
        }
    }

    fn reply_fault_hit(&mut self, fault: &Fault) {
        let status = status_of(fault).unwrap_or(Status::ToolError);
        let slots = self.slots.now().clone();
        self.write_took(
            status,
            &output_of(fault),
            &fault.to_string(),
            true,
            &slots,
            &SlotChange::default(),
        );
    }

    fn reply_fault(&mut self, aid: &str, fault: &Fault) {
        if let Some(status) = status_of(fault) {
            let slots = self.slots.now().clone();
            let error = fault.to_string();
            let output = output_of(fault);
            return self.write_took(
                status,
                &output,
                &error,
                false,
                &slots,
                &SlotChange::default(),
            );
        }
        self.leases_rejected += u64::from(matches!(fault, Fault::LeaseRejected { .. }));
        let (error, extra) = refusal_of(aid, fault);
        let with_status = self.entry == Entry::ToolExec;
        Reply::Refused {
            error: &error,
            detail: None,
            extra,
            with_status,
        }
        .write(&mut self.out);
    }

    fn write_took(
        &mut self,
        status: Status,
        output_json: &str,
        error: &str,
        idempotent_hit: bool,
        after: &Slots,
        change: &SlotChange,
    ) {
        let (whole, put);
        let state = match self.entry {
            _ if idempotent_hit => NOTHING_CHANGED,
            Entry::Serve => {
                put = to_wire(&change.put);
                ReplyState::Delta(&put, &change.removed)
            }
            Entry::Run | Entry::ToolExec => {
                whole = to_wire(&after.0);
                ReplyState::Snapshot(&whole)
            }
        };
        let strict_ok = self.host.strict_ok;
        let took = TookCall {
            status,
            output_json,
            error,
            idempotent_hit,
            state,
            strict_ok,
        };
        let from = self.out.len();
        Reply::Took(took).write(&mut self.out);
        // An output that is too large was refused before; what is left are the caller's own
        // slots, which it has. TH-57.
        if self.out.len() - from >= REPLY_BYTES_MAX {
            self.out.truncate(from);
            Reply::Took(TookCall {
                state: NOTHING_CHANGED,
                ..took
            })
            .write(&mut self.out);
        }
    }

    /// Makes what is answered so far durable. If that fails the answers since the last time
    /// are taken back, and what their tools did to the slots: an outcome that is not recorded is
    /// not told.
    async fn settle(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        if let Err(fault) = self.gate.settle(ticket).await {
            let lines = self.out[self.unsettled_from..]
                .iter()
                .filter(|&&b| b == b'\n')
                .count();
            self.out.truncate(self.unsettled_from);
            self.slots.take_back();
            for _ in 0..lines.max(usize::from(self.entry != Entry::Serve)) {
                self.reply_fault("", &fault);
                if self.entry == Entry::Serve {
                    self.out.push(b'\n');
                }
            }
        }
        self.unsettled_from = self.out.len();
        self.slots.settle();
    }

    /// Settles and writes all answers, in one write.
    async fn send(&mut self, stdout: &PipeWriter) -> io::Result<()> {
        self.settle().await;
        // Biased so that a reader who is there gets the answers even after the stop.
        tokio::select! {
            biased;
            written = stdout.write_all(&self.out) => written?,
            // What is lost here is recorded: a retry with its key gets it.
            () = patience_ends(&self.host.stop) => {
                let unread = "standard output is not read, so answers were left unwritten";
                return Err(io::Error::new(io::ErrorKind::TimedOut, unread));
            }
        }
        self.out.clear();
        if self.out.capacity() > 4 * BATCH_BYTES {
            self.out = Vec::new();
        }
        self.unsettled_from = 0;
        self.answers = 0;
        Ok(())
    }

    /// `_lease.issue` and `_lease.gc` on this pipe. T-15.
    fn lease_command(&mut self, line: &[u8]) {
        match self.carry_out_lease_command(line) {
            Ok(()) => self.end_line(),
            Err(reason) => self.refuse_line(&reason, None),
        }
    }

    fn carry_out_lease_command(&mut self, line: &[u8]) -> Result<(), String> {
        match LeaseCommand::parse(line).map_err(|error| error.to_string())? {
            LeaseCommand::Issue {
                tool_aid,
                tier,
                ttl_ms,
            } => {
                if tool_aid.is_empty() || tool_aid == "*" {
                    return Err("a lease needs the aid of one tool".to_owned());
                }
                if tier > 2 {
                    return Err("a lease issued in band goes up to tier 2".to_owned());
                }
                let request = LeaseRequest {
                    tool: tool_aid.clone(),
                    tier: Tier::from_number(tier),
                    ttl: Some(Duration::from_millis(ttl_ms)),
                    caller: Some(self.host.caller.clone()),
                    input: None,
                };
                let granted = self
                    .gate
                    .grant_lease(&request)
                    .map_err(|fault| fault.to_string())?;
                let token_id = granted.token.reveal();
                Reply::LeaseIssued(LeaseIssued {
                    token_id,
                    tool_aid: &tool_aid,
                    tier,
                })
                .write(&mut self.out);
            }
            LeaseCommand::Collect => {
                let counts = self
                    .gate
                    .lease_totals()
                    .map_err(|fault| fault.to_string())?;
                Reply::LeaseCounts {
                    active: counts.active,
                    issued: counts.active + counts.spent + counts.expired + counts.revoked,
                    consumed: counts.spent,
                    rejected: self.leases_rejected,
                }
                .write(&mut self.out);
            }
        }
        Ok(())
    }
}

/// How a fault reads beside `ok: true`; `None` for the requests the host could not take,
/// which are `ok: false`. Table F.
pub fn status_of(fault: &Fault) -> Option<Status> {
    match fault {
        Fault::UnknownTool { .. }
        | Fault::BadRequest { .. }
        | Fault::LeaseRequired { .. }
        | Fault::LeaseRejected { .. } => None,
        Fault::BadInput { .. } => Some(Status::InvalidPick),
        Fault::RateLimited { .. } | Fault::BreakerOpen { .. } | Fault::Unavailable { .. } => {
            Some(Status::BreakerTrip)
        }
        Fault::BadValue { .. }
        | Fault::NotFound { .. }
        | Fault::Denied { .. }
        | Fault::NeedsApproval { .. }
        | Fault::NeedsInput { .. }
        | Fault::Conflict { .. }
        | Fault::OutcomeUnknown { .. }
        | Fault::Unenforceable { .. }
        | Fault::GuaranteeBlocked { .. }
        | Fault::TooLarge { .. }
        | Fault::Timeout { .. }
        | Fault::Crash { .. }
        | Fault::BadOutput { .. }
        | Fault::ToolFailed { .. }
        | Fault::Cancelled
        | Fault::Internal { .. } => Some(Status::ToolError),
    }
}

/// What a failed call has to show: where an output is that was too large for a line. T-19b.
fn output_of(fault: &Fault) -> String {
    match fault.data().get("artifact") {
        Some(artifact) => serde_json::json!({ "artifact": artifact }).to_string(),
        None => "{}".to_owned(),
    }
}

/// The contract's own shapes for requests that are not taken.
fn refusal_of(aid: &str, fault: &Fault) -> (String, Vec<(&'static str, serde_json::Value)>) {
    match fault {
        Fault::LeaseRequired { tier, .. } => (
            "lease_required".to_owned(),
            vec![("tier", (*tier).into()), ("aid", aid.into())],
        ),
        Fault::LeaseRejected { refusal } => {
            let mut extra = vec![("reason", refusal.as_str().into())];
            if let Some((expected, got)) = refusal.details() {
                extra.extend([("expected", expected), ("got", got)]);
            }
            ("lease_rejected".to_owned(), extra)
        }
        // The contract's whole text. TH-41.
        Fault::UnknownTool { tool, .. } => (format!("tool not found: {tool}"), Vec::new()),
        other => (other.to_string(), Vec::new()),
    }
}

fn encode(reply: &Reply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    reply.write(&mut out);
    out
}

#[cfg(test)]
mod tests;
