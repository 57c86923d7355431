//! Terminal sessions, as tools: interactive programs that outlive the call that started them.
//! Contract section 4.6, decision R-11.
//!
//! A session's child is confined by the plan of `terminals/create`. It belongs to this process
//! (`engine.rs`); what it prints is in its log, on its screen and on its way to whoever follows it
//! (`session.rs`) before anybody is answered.

mod clock;
mod engine;
mod log;
mod order;
mod pump;
mod screen;
mod session;
mod text;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use callgate_call::{
    Fault, Job, Needs, Notification, Output, RunFuture, Runner, Secrets, Tier, Tool, whole_number,
};
use callgate_sandbox::Limits;
use callgate_text::parse_rfc3339;
use serde_json::{Value, json};

use crate::files::Lists;
use crate::files::place::Ground;
use crate::programs::{Programs, bad};
use crate::{builtin, closed};
use engine::Birth;
pub use engine::{ENDED_LIFE, ENDED_MAX, SESSIONS_MAX, TerminalBounds, Terminals};
pub use log::{LOG_BYTES_MAX, LOGS_BYTES_MAX};
use order::Order;
pub use session::{LINES_MAX, WRITE_PATIENCE};

/// What the sessions of one configuration are like.
pub struct TerminalSettings {
    /// Which programs, and where they begin.
    pub programs: Programs,
    /// The gate's own things in it. G-9.
    pub own: Vec<PathBuf>,
    /// The user's shell.
    pub shell: OsString,
    /// What is replaced in what they print.
    pub secrets: Secrets,
    /// What each of their processes may take.
    pub limits: Limits,
    /// What holds them.
    pub needs: Arc<Needs>,
}

/// Which of the tools.
#[derive(Clone, Copy)]
enum Method {
    Create,
    Write,
    Resize,
    Kill,
    Attach,
    List,
    ReadLogs,
}

struct TerminalRunner {
    method: Method,
    terminals: Arc<Terminals>,
    settings: Arc<TerminalSettings>,
    /// Where sessions may begin.
    ground: Arc<Ground>,
}

impl Runner for TerminalRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move { self.answer(job).await.map(Output::from_value) })
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

impl TerminalRunner {
    async fn answer(&self, job: Job<'_>) -> Result<Value, Fault> {
        let input = job.call.input.value();
        let session = || {
            self.terminals
                .find(input["session_id"].as_str().unwrap_or_default())
        };
        match self.method {
            Method::Create => self.create(job, input).await,
            Method::Write => {
                let data = input["data"].as_str().unwrap_or_default();
                let bytes = session()?.write(data.as_bytes()).await?;
                Ok(json!({ "bytes": bytes }))
            }
            Method::Resize => {
                let session = session()?;
                let size = order::size(&input["cols"], &input["rows"])?;
                Ok(json!({ "ok": session.resize(size) }))
            }
            Method::Kill => Ok(json!({ "ok": session()?.kill(signal(&input["signal"])) })),
            Method::Attach => {
                let hearer = job.call.hearer.as_ref();
                Ok(json!({ "ok": session()?.follow(hearer) }))
            }
            Method::List => {
                let sessions = self.terminals.list();
                let listed: Vec<Value> = sessions.iter().map(|one| one.listed()).collect();
                Ok(json!({ "sessions": listed }))
            }
            Method::ReadLogs => read_logs(session()?, input).await,
        }
    }

    async fn create(&self, job: Job<'_>, input: &Value) -> Result<Value, Fault> {
        let needs = job.plan.confinement.clone();
        let order = Order::read(input, &self.settings, &self.ground, needs.as_deref())?;
        let attach = input["attach"].as_bool().unwrap_or(true);
        let cwd = order::told(&order.start.path, &self.settings.programs.workspace);
        let birth = Birth {
            needs,
            home: self.settings.programs.home(job).await?,
            asked_env: input["env"].clone(),
            programs: self.settings.programs.clone(),
            secrets: self.settings.secrets.clone(),
            limits: self.settings.limits.clone(),
            cwd,
            hearer: job.call.hearer.clone().filter(|_| attach),
        };
        let patience = job.timeout.until();
        let made = tokio::time::timeout(patience, self.terminals.create(order, birth)).await;
        let session = made.map_err(|_| Fault::Timeout { after: patience })??;
        Ok(json!({
            "session_id": &*session.id,
            "pid": session.pid,
            "name": session.name,
            "cwd": session.cwd,
            "started_at": session.times.started.rfc3339(),
        }))
    }
}

fn signal(asked: &Value) -> u8 {
    match asked.as_str() {
        Some("SIGHUP") => 1,
        Some("SIGKILL") => 9,
        _ => 15,
    }
}

async fn read_logs(session: Arc<session::Session>, input: &Value) -> Result<Value, Fault> {
    let since_us = match input["since_ts"].as_str() {
        None => 0,
        Some(text) => {
            parse_rfc3339(text).ok_or_else(|| bad("since_ts", "not a moment in ISO 8601"))?
        }
    };
    // Zero and less are no bound.
    let lines_max = whole_number(&input["limit_lines"]).filter(|max| *max > 0);
    let lines_max = lines_max.and_then(|max| usize::try_from(max).ok());
    // Off the gate's own thread: it may be some megabytes.
    let logs = tokio::task::spawn_blocking(move || session.logs(since_us, lines_max));
    logs.await.map_err(|_| Fault::Internal {
        message: "the log's task ended early".to_owned(),
    })
}

/// Every tool of this module.
pub fn tools(terminals: &Arc<Terminals>, settings: TerminalSettings) -> io::Result<Vec<Tool>> {
    let workspace = &settings.programs.workspace;
    let ground = Ground::open(workspace, settings.own.clone(), Lists::default())?;
    let (settings, ground) = (Arc::new(settings), Arc::new(ground));
    let tool = |method, name: &str, title: &str, about: &str, [input, output]: [Value; 2]| {
        let runner = TerminalRunner {
            method,
            terminals: Arc::clone(terminals),
            settings: Arc::clone(&settings),
            ground: Arc::clone(&ground),
        };
        let aid = callgate_call::aid_of_name(name);
        let mut tool = builtin(name, &aid, about, input, Arc::new(runner));
        tool.output_schema = Some(output);
        tool.face.title = Some(title.to_owned());
        tool.tags.push("terminal".to_owned());
        tool.tells = notifications();
        tool
    };
    let acts = |tool: Tool| Tool {
        tier: Tier::System,
        side_effects: vec!["process_spawn".to_owned()],
        ..tool
    };
    let reads = |tool: Tool| Tool {
        idempotent: true,
        ..tool
    };
    Ok(vec![
        Tool {
            needs: Some(Arc::clone(&settings.needs)),
            ..acts(tool(
                Method::Create,
                "terminals/create",
                "New Terminal",
                "Start an interactive program in the workspace, the user's shell if none is named",
                create_schemas(),
            ))
        },
        acts(tool(
            Method::Write,
            "terminals/write",
            "Type",
            "Type into a terminal session",
            write_schemas(),
        )),
        acts(tool(
            Method::Resize,
            "terminals/resize",
            "Resize Terminal",
            "Give a terminal session another size",
            resize_schemas(),
        )),
        acts(tool(
            Method::Kill,
            "terminals/kill",
            "End Terminal",
            "Send a signal to a terminal session, SIGTERM if none is named",
            kill_schemas(),
        )),
        tool(
            Method::Attach,
            "terminals/attach",
            "Attach Terminal",
            "Be told what a terminal session shows and prints",
            [of_session(json!({}), &[]), ok()],
        ),
        reads(tool(
            Method::List,
            "terminals/list",
            "List Terminals",
            "List the terminal sessions",
            list_schemas(),
        )),
        reads(tool(
            Method::ReadLogs,
            "terminals/read_logs",
            "Read Terminal Log",
            "Read what a terminal session has printed",
            logs_schemas(),
        )),
    ])
}

/// The input of a method about one session.
fn of_session(mut properties: Value, required: &[&str]) -> Value {
    properties["session_id"] = json!({ "type": "string" });
    closed(properties, &[&["session_id"], required].concat())
}

/// Results that the contract leaves open.
fn ok() -> Value {
    json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] })
}

/// What those who follow a session are told.
fn notifications() -> Vec<Notification> {
    let stream = json!({
        "session_id": { "type": "string" },
        "stream": { "type": "string", "enum": ["stdout", "stderr"] },
        "data": { "type": "string" },
        "timestamp": { "type": "string", "description": "ISO-8601" },
    });
    let exit = json!({
        "session_id": { "type": "string" },
        "code": { "type": ["integer", "null"] },
        "signal": { "type": ["string", "null"] },
        "duration_ms": { "type": "integer", "minimum": 0 },
    });
    vec![
        Notification {
            name: "terminals/stream",
            schema: closed(stream, &["session_id", "stream", "data", "timestamp"]),
        },
        Notification {
            name: "terminals/exit",
            schema: closed(exit, &["session_id", "code", "signal", "duration_ms"]),
        },
    ]
}

fn create_schemas() -> [Value; 2] {
    let input = json!({
        "name": { "type": ["string", "null"] },
        "cwd": { "type": ["string", "null"] },
        "env": { "type": "object", "additionalProperties": { "type": "string" } },
        "command": {
            "type": ["string", "null"],
            "description": "If omitted, spawn user's shell",
        },
        "args": { "type": "array", "items": { "type": "string" }, "default": [] },
        "shell": { "type": "boolean", "default": false },
        "cols": { "type": ["integer", "null"] },
        "rows": { "type": ["integer", "null"] },
        "attach": { "type": "boolean", "default": true },
    });
    let output = json!({
        "session_id": { "type": "string" },
        "pid": { "type": ["integer", "null"] },
        "name": { "type": ["string", "null"] },
        "cwd": { "type": ["string", "null"] },
        "started_at": { "type": "string", "description": "ISO-8601" },
    });
    [
        closed(input, &[]),
        closed(output, &["session_id", "started_at"]),
    ]
}

fn write_schemas() -> [Value; 2] {
    let data = json!({ "type": "string", "description": "UTF-8 text to write to stdin" });
    let output = json!({
        "type": "object",
        "properties": { "bytes": { "type": "integer" } },
        "required": ["bytes"],
    });
    [of_session(json!({ "data": data }), &["data"]), output]
}

fn resize_schemas() -> [Value; 2] {
    let sides = json!({ "cols": { "type": "integer" }, "rows": { "type": "integer" } });
    [of_session(sides, &["cols", "rows"]), ok()]
}

fn kill_schemas() -> [Value; 2] {
    let signal = json!({
        "type": ["string", "null"],
        "enum": ["SIGTERM", "SIGKILL", "SIGHUP", null],
    });
    [of_session(json!({ "signal": signal }), &[]), ok()]
}

fn list_schemas() -> [Value; 2] {
    let session = closed(
        json!({
            "session_id": { "type": "string" },
            "name": { "type": ["string", "null"] },
            "cwd": { "type": ["string", "null"] },
            "started_at": { "type": "string" },
            "ended_at": { "type": ["string", "null"] },
            "status": { "type": "string", "enum": ["running", "exited", "killed"] },
        }),
        &["session_id", "status", "started_at"],
    );
    let sessions = json!({ "sessions": { "type": "array", "items": session } });
    [closed(json!({}), &[]), closed(sessions, &["sessions"])]
}

fn logs_schemas() -> [Value; 2] {
    let input = json!({
        "since_ts": { "type": ["string", "null"] },
        "limit_lines": { "type": ["integer", "null"] },
    });
    let line = closed(
        json!({
            "ts": { "type": "string" },
            "stream": { "type": "string", "enum": ["stdout", "stderr"] },
            "data": { "type": "string" },
        }),
        &["ts", "stream", "data"],
    );
    let logs = json!({ "logs": { "type": "array", "items": line } });
    [of_session(input, &[]), closed(logs, &["logs"])]
}
