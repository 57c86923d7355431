//! A tool that a foreign service carries out: one POST a call, over connections that are
//! kept, after a handshake where one is due.
//!
//! What the service enforces is its own claim and is reported as such; `no_network` speaks of
//! the tool behind it, not of the hop to it (P-6). Nothing is asked twice: a connection lost
//! after the question was sent is a failure, because the tool may have run.

mod handshake;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Call, Document, Fault, Guarantee, Guarantees, Held, Isolation, Job, Output, Plan, PlanFuture,
    RunFuture, Runner, Tool,
};
use callgate_dial::{Address, Ask, Dialer, Peer, Reply, Trouble};
use callgate_wires::tool_protocol::{
    CapabilityContext, HANDSHAKE_PATH, Project, Reply as ToolReply, ServiceRequest,
};
use hyper::header::{AUTHORIZATION, HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use crate::answer;
use crate::coverage::{self, Kept, is_unsafe};
use crate::leaks::NamedSecrets;
use crate::process::within;
use handshake::{Handshakes, Told};

/// What a reply may hold beside the output: names, braces, a tool's own error.
const REPLY_SLACK_BYTES: usize = 64 * 1024;

/// The longest a handshake may take; a call with less time waits no longer than that.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// When a service is asked what it enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandshakeWhen {
    /// Before every tool's first call.
    Always,
    /// Before a call that asks for a promise.
    #[default]
    Required,
    /// Never: no promise can be kept then.
    Never,
}

/// Where a tool's service is and what it is sent.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// As configured, with path and query.
    pub url: String,
    /// `module:function`, for services that want it.
    pub entry: Option<String>,
    /// The tool's name at the service; its own if not said.
    pub tool_name: Option<String>,
    /// When it is asked what it enforces.
    pub handshake: HandshakeWhen,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<BearerSecret>,
    /// Sent as the caller's project.
    pub workspace: PathBuf,
    /// The largest output; beyond, the call is `TooLarge`.
    pub output_bytes_max: usize,
    /// Values that a payload may carry only if the tool may have them.
    pub secrets: Arc<NamedSecrets>,
}

/// A token. Prints as `…`, whoever prints it.
#[derive(Clone)]
pub struct BearerSecret(HeaderValue);

impl BearerSecret {
    /// Nothing if it cannot stand in a header.
    #[must_use]
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl fmt::Debug for BearerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Runs one tool at a service.
#[derive(Debug)]
pub struct ServiceRunner {
    settings: ServiceSettings,
    peer: Peer,
    handshakes: Handshakes,
}

impl ServiceRunner {
    /// Refuses an address that is none, and a token that anybody on the way could read.
    pub fn new(dialer: Arc<Dialer>, settings: ServiceSettings) -> Result<Self, String> {
        let address = Address::parse(&settings.url)?;
        if settings.token.is_some() && !address.is_private() {
            return Err(format!(
                "`{}`: a token goes over https only, except on this machine",
                settings.url
            ));
        }
        Ok(Self {
            settings,
            peer: Peer::new(dialer, address),
            handshakes: Handshakes::default(),
        })
    }

    async fn call(&self, job: Job<'_>) -> Result<Output, Fault> {
        let deadline = Instant::now() + job.timeout.until();
        for (name, value) in self.facts(job.call, job.tool) {
            job.sink.fact(name, &value);
        }
        let body = self.body(job)?;
        let max = self.settings.output_bytes_max;
        let ask = self.post(self.peer.address().path(), body);
        // Dropping the question closes its connection.
        let reply = within(job, deadline, self.peer.ask(ask, max + REPLY_SLACK_BYTES)).await?;
        read_reply(reply, max)
    }

    fn body(&self, job: Job<'_>) -> Result<Vec<u8>, Fault> {
        let Value::Object(payload) = job.call.input.value() else {
            return Err(Fault::BadInput {
                field: String::new(),
                reason: "a tool service takes an object".to_owned(),
            });
        };
        let wanted = coverage::wanted(job.call, job.tool);
        let request = ServiceRequest {
            tool_name: self.tool_name(job.tool).to_owned(),
            kind: Some("python".to_owned()),
            entry: self.settings.entry.clone(),
            payload: payload.clone(),
            timeout_ms: u64::try_from(job.timeout.until().as_millis()).ok(),
            trace_id: trace_id(job),
            project: Some(Project {
                app_root: Some(self.settings.workspace.to_string_lossy().into_owned()),
                flow: None,
            }),
            context: (!wanted.is_empty()).then(|| context(&wanted)),
            ..ServiceRequest::default()
        };
        let mut body = Vec::new();
        request.write(&mut body);
        Ok(body)
    }

    fn tool_name<'a>(&'a self, tool: &'a Tool) -> &'a str {
        let named = self.settings.tool_name.as_deref();
        named.unwrap_or(tool.declared_name())
    }

    fn post(&self, path: &str, body: Vec<u8>) -> Ask {
        let mut ask = Ask::post(path, body);
        if let Some(BearerSecret(token)) = &self.settings.token {
            ask.header(AUTHORIZATION, token.clone());
        }
        ask
    }

    /// TP-73, TP-81, TP-82.
    fn facts(&self, call: &Call, tool: &Tool) -> Vec<(&'static str, String)> {
        let wanted = coverage::wanted(call, tool);
        let told = self
            .asks(&wanted)
            .then(|| self.handshakes.peek(&wanted))
            .flatten();
        let mut facts = vec![
            ("service_url", self.settings.url.clone()),
            ("service_handshake", told.is_some().to_string()),
        ];
        if let Some(told) = told {
            facts.push(("enforcement_level", told.level().as_str().to_owned()));
        }
        facts
    }

    /// True if a handshake is due for such a call.
    fn asks(&self, wanted: &Guarantees) -> bool {
        match self.settings.handshake {
            HandshakeWhen::Always => true,
            HandshakeWhen::Required => !wanted.is_empty(),
            HandshakeWhen::Never => false,
        }
    }

    async fn make_plan(&self, call: &Call, tool: &Tool) -> Result<Plan, Fault> {
        let wanted = coverage::wanted(call, tool);
        if let Some(allowed) = wanted.secrets() {
            self.settings.secrets.look(call.input.value(), allowed)?;
        }
        if !self.asks(&wanted) {
            if wanted.is_empty() {
                return Ok(Plan::default());
            }
            return coverage::plan(tool, &wanted, Isolation::Cold, |_| {
                Kept::none("the service is not asked: handshake = false")
            });
        }
        let told = self.shake_hands(call, tool, &wanted).await?;
        match &told.refusal {
            // Nothing is asked for that could be missing, and still it does not want to.
            Some(reason) if wanted.is_empty() && !is_unsafe(tool) => Err(Fault::Unavailable {
                reason: reason.clone(),
            }),
            None if wanted.is_empty() => Ok(Plan::default()),
            _ => coverage::plan(tool, &wanted, Isolation::Cold, |one| {
                told.kept(one, &wanted)
            }),
        }
    }

    /// What the service says, from memory while that is fresh.
    async fn shake_hands(
        &self,
        call: &Call,
        tool: &Tool,
        wanted: &Guarantees,
    ) -> Result<Arc<Told>, Fault> {
        if let Some(told) = self.handshakes.fresh(wanted) {
            return told;
        }
        let body = handshake::body(self.tool_name(tool), wanted);
        let ask = self.post(HANDSHAKE_PATH, body);
        let patience = call.timeout(tool.timeout).min(HANDSHAKE_MAX);
        let asked = self.peer.ask(ask, handshake::ANSWER_BYTES_MAX);
        // A dropped handshake closes its connection. It changes nothing at the service, and the
        // next call asks again.
        let reply = tokio::select! {
            reply = tokio::time::timeout(patience, asked) => reply,
            () = call.cancel.cancelled() => return Err(Fault::Cancelled),
        };
        self.handshakes.learn(wanted, reply.ok())
    }
}

impl Runner for ServiceRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.call(job))
    }

    fn plan<'a>(&'a self, call: &'a Call, tool: &'a Tool) -> Option<PlanFuture<'a>> {
        Some(Box::pin(self.make_plan(call, tool)))
    }

    fn facts_of_refusal(&self, call: &Call, tool: &Tool) -> Vec<(&'static str, String)> {
        self.facts(call, tool)
    }

    fn outlook(&self, tool: &Tool) -> Option<Vec<Held>> {
        let needs = tool.needs.as_ref();
        let wanted = needs.map_or_else(Guarantees::default, |needs| needs.guarantees.clone());
        let told = self.handshakes.peek(&wanted);
        let kept = |one: Guarantee| match &told {
            Some(told) => told.kept(one, &wanted),
            None => Kept::none("its service has not been asked yet"),
        };
        Some(coverage::outlook(tool, kept))
    }

    fn kind(&self) -> &'static str {
        "service"
    }

    fn stop(&self) {
        self.peer.close();
    }
}

/// TP-45 to TP-47.
fn read_reply(reply: Result<Reply, Trouble>, max: usize) -> Result<Output, Fault> {
    let body = match reply {
        Ok(Reply {
            body: Some(body), ..
        }) => body,
        Ok(Reply { status, body: None }) => {
            return Err(Fault::Crash {
                message: format!("the service answered with status {status}"),
            });
        }
        Err(trouble) => return Err(fault_of(trouble, max)),
    };
    let reply = ToolReply::parse(&body).map_err(|error| answer::bad(error.to_string()))?;
    let value = reply.result.map_err(|said| Fault::ToolFailed {
        error_type: answer::clipped(&said.kind),
        message: answer::clipped(&said.message),
        content: None,
    })?;
    let output = Output::new(Document::from_value(value));
    if output.json.text().len() > max {
        return Err(answer::too_large(max));
    }
    Ok(output)
}

/// What was agreed on goes with the call as well: another Callgate holds the tool to it, and
/// who does not know the field ignores it.
fn context(wanted: &Guarantees) -> CapabilityContext {
    CapabilityContext {
        guarantees: handshake::as_asked(wanted),
        sources: wanted
            .iter()
            .map(|(one, asker)| (one.name().to_owned(), asker.as_str().to_owned()))
            .collect(),
        ..CapabilityContext::default()
    }
}

fn fault_of(trouble: Trouble, max: usize) -> Fault {
    match trouble {
        Trouble::Unsent(reason) => Fault::Unavailable { reason },
        Trouble::Lost(reason) => Fault::Crash {
            message: format!("the service hung up before it answered: {reason}"),
        },
        Trouble::TooLarge { .. } => answer::too_large(max),
    }
}

/// Returns the trace id a service is told. That of a call which a person approved is our own: the
/// caller's was not displayed. G-6f.
fn trace_id(job: Job<'_>) -> Option<String> {
    match job.plan.approved {
        true => Some(job.call.id.to_string()),
        false => job.call.trace_id.clone(),
    }
}
