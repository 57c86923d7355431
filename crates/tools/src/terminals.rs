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
pub(crate) mod schemas;
mod screen;
mod session;
mod text;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use callgate_call::{Fault, Job, Needs, Output, RunFuture, Runner, Secrets, Tier, Tool};
use callgate_sandbox::Limits;
use callgate_text::parse_rfc3339;
use serde_json::{Value, json};

use crate::arguments::arguments;
use crate::builtin;
use crate::files::Lists;
use crate::files::place::Ground;
use crate::programs::{Programs, bad, names_home};
use engine::Birth;
pub use engine::{ENDED_LIFE, ENDED_MAX, SESSIONS_MAX, TerminalBounds, Terminals};
pub use log::{LOG_BYTES_MAX, LOGS_BYTES_MAX};
use order::Order;
use schemas::{
    TerminalAttachArguments, TerminalCreateArguments, TerminalKillArguments, TerminalListArguments,
    TerminalLogArguments, TerminalResizeArguments, TerminalWriteArguments,
};
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
        match self.method {
            Method::Create => self.create(job, &arguments(input)?).await,
            Method::Write => {
                let asked: TerminalWriteArguments<'_> = arguments(input)?;
                let session = self.terminals.find(asked.session_id)?;
                let bytes = session.write(asked.data.as_bytes()).await?;
                Ok(json!({ "bytes": bytes }))
            }
            Method::Resize => {
                let asked: TerminalResizeArguments<'_> = arguments(input)?;
                let session = self.terminals.find(asked.session_id)?;
                let size = order::size(Some(asked.cols), Some(asked.rows))?;
                Ok(json!({ "ok": session.resize(size) }))
            }
            Method::Kill => {
                let asked: TerminalKillArguments<'_> = arguments(input)?;
                let session = self.terminals.find(asked.session_id)?;
                let signal = asked.signal.unwrap_or_default();
                Ok(json!({ "ok": session.kill(signal.number()) }))
            }
            Method::Attach => {
                let asked: TerminalAttachArguments<'_> = arguments(input)?;
                let session = self.terminals.find(asked.session_id)?;
                Ok(json!({ "ok": session.follow(job.call.hearer.as_ref()) }))
            }
            Method::List => {
                let TerminalListArguments {} = arguments(input)?;
                let sessions = self.terminals.list();
                let listed: Vec<Value> = sessions.iter().map(|one| one.listed()).collect();
                Ok(json!({ "sessions": listed }))
            }
            Method::ReadLogs => {
                let asked: TerminalLogArguments<'_> = arguments(input)?;
                read_logs(self.terminals.find(asked.session_id)?, &asked).await
            }
        }
    }

    async fn create(
        &self,
        job: Job<'_>,
        asked: &TerminalCreateArguments<'_>,
    ) -> Result<Value, Fault> {
        let needs = job.plan.confinement.clone();
        let order = Order::read(asked, &self.settings, &self.ground, needs.as_deref())?;
        let cwd = order::told(&order.start.path, &self.settings.programs.workspace);
        let birth = Birth {
            needs,
            home: self.settings.programs.home(job).await?,
            names_home: names_home(&asked.env),
            programs: self.settings.programs.clone(),
            secrets: self.settings.secrets.clone(),
            limits: self.settings.limits.clone(),
            cwd,
            hearer: job.call.hearer.clone().filter(|_| asked.attach),
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

async fn read_logs(
    session: Arc<session::Session>,
    asked: &TerminalLogArguments<'_>,
) -> Result<Value, Fault> {
    let since_us = match asked.since_ts {
        None => 0,
        Some(text) => {
            parse_rfc3339(text).ok_or_else(|| bad("since_ts", "not a moment in ISO 8601"))?
        }
    };
    // Zero and less are no bound.
    let lines_max = asked.limit_lines.filter(|max| max.0 > 0);
    let lines_max = lines_max.and_then(|max| usize::try_from(max.0).ok());
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
        tool.tells = schemas::notifications();
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
                schemas::create(),
            ))
        },
        acts(tool(
            Method::Write,
            "terminals/write",
            "Type",
            "Type into a terminal session",
            schemas::write(),
        )),
        acts(tool(
            Method::Resize,
            "terminals/resize",
            "Resize Terminal",
            "Give a terminal session another size",
            schemas::resize(),
        )),
        acts(tool(
            Method::Kill,
            "terminals/kill",
            "End Terminal",
            "Send a signal to a terminal session, SIGTERM if none is named",
            schemas::kill(),
        )),
        tool(
            Method::Attach,
            "terminals/attach",
            "Attach Terminal",
            "Be told what a terminal session shows and prints",
            schemas::attach(),
        ),
        reads(tool(
            Method::List,
            "terminals/list",
            "List Terminals",
            "List the terminal sessions",
            schemas::list(),
        )),
        reads(tool(
            Method::ReadLogs,
            "terminals/read_logs",
            "Read Terminal Log",
            "Read what a terminal session has printed",
            schemas::read_logs(),
        )),
    ])
}
