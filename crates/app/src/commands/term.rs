//! `callgate term`: the terminal sessions of the running gate, for people.

mod attach;
mod raw;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use callgate_call::Fault;
use callgate_client::{Client, ClientError, Talk};
use callgate_registry::environment::Environment;
use callgate_registry::paths::Paths;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};

use crate::cli::{Done, Failure, Place, runtime};
use crate::show;
use attach::{DetachKey, attach};

/// List, start, attach and end terminal sessions of the running gate.
#[derive(Args)]
pub struct Term {
    #[command(subcommand)]
    command: TermCommand,
}

#[derive(Subcommand)]
enum TermCommand {
    /// List the sessions, those that have ended in the last hour included
    Ls,
    /// Start a session and print its id; your shell if no command is named
    New {
        /// What you want to call it
        #[arg(long)]
        name: Option<String>,
        /// The folder of the workspace to start in
        #[arg(long, value_name = "DIR")]
        cwd: Option<String>,
        /// Attach to it at once
        #[arg(long)]
        attach: bool,
        /// The program and its arguments
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Show a session here and type into it, until it ends or you detach
    Attach {
        /// Its id, the beginning of that, or its name
        session: String,
        /// What you press to detach
        #[arg(long, value_name = "KEY", default_value = "ctrl-]")]
        detach_key: DetachKey,
    },
    /// Send a signal to a session
    Kill {
        /// Its id, the beginning of that, or its name
        session: String,
        /// Which; a shell that ignores SIGTERM gets SIGHUP
        #[arg(long, value_enum, ignore_case = true, default_value_t = Signal::Sigterm)]
        signal: Signal,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Signal {
    #[value(alias = "TERM")]
    Sigterm,
    #[value(alias = "KILL")]
    Sigkill,
    #[value(alias = "HUP")]
    Sighup,
}

impl Signal {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sigterm => "SIGTERM",
            Self::Sigkill => "SIGKILL",
            Self::Sighup => "SIGHUP",
        }
    }
}

pub fn run(environment: &Environment, place: &Place, term: &Term) -> Done {
    let paths = place.paths(environment)?;
    runtime()?.block_on(async {
        match &term.command {
            TermCommand::Ls => list(place, &paths).await,
            TermCommand::New {
                name,
                cwd,
                attach,
                command,
            } => {
                let input = order(name.as_deref(), cwd.as_deref(), command);
                create(place, &paths, input, *attach).await
            }
            TermCommand::Attach {
                session,
                detach_key,
            } => {
                must_be_terminal()?;
                let session = find(&paths, session).await?;
                attach_to(place, &paths, &session, *detach_key).await
            }
            TermCommand::Kill { session, signal } => {
                let session = find(&paths, session).await?;
                kill(place, &paths, &session, *signal).await
            }
        }
    })
}

/// A connection to the running gate, whose sessions these are.
async fn gate(paths: &Paths) -> Result<Talk, Failure> {
    let Some(client) = Client::connect(&paths.socket).await else {
        let words = "no gate is running here, and terminal sessions belong to it: \
                     start `callgate serve`";
        return Err(words.to_owned().into());
    };
    Ok(client.talk().await?)
}

/// A call of a tool, and its output.
async fn call(talk: &mut Talk, tool: &str, input: Value) -> Result<Value, Failure> {
    output(ask(talk, tool, input).await?)
}

/// A call of a tool, and what the gate says of it.
async fn ask(talk: &mut Talk, tool: &str, input: Value) -> Result<Value, ClientError> {
    let body = json!({ "tool": tool, "input": input }).to_string();
    talk.ask(Method::POST, "/v1/call", body).await
}

/// What came of a call.
fn output(mut answer: Value) -> Result<Value, Failure> {
    if answer["ok"] == true {
        return Ok(answer["output"].take());
    }
    let words = answer["fault"]["message"].as_str();
    let words = words.unwrap_or("the gate's answer makes no sense");
    Err(words.to_owned().into())
}

async fn sessions(paths: &Paths) -> Result<Vec<Value>, Failure> {
    let mut talk = gate(paths).await?;
    let mut listed = call(&mut talk, "terminals/list", json!({})).await?;
    match listed["sessions"].take() {
        Value::Array(sessions) => Ok(sessions),
        _ => Err("the gate's answer makes no sense".to_owned().into()),
    }
}

async fn list(place: &Place, paths: &Paths) -> Done {
    let sessions = sessions(paths).await?;
    if place.json {
        show::json(&json!({ "sessions": sessions }));
        return Ok(ExitCode::SUCCESS);
    }
    let row = |session: &Value| -> Vec<String> {
        let cells = [
            "session_id",
            "name",
            "status",
            "started_at",
            "ended_at",
            "cwd",
        ];
        let text = |cell| session[cell].as_str().unwrap_or("-").to_owned();
        cells.map(text).to_vec()
    };
    let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    show::table_or(
        &["SESSION", "NAME", "STATUS", "STARTED", "ENDED", "FOLDER"],
        &rows,
        "no terminal sessions; start one with `callgate term new`",
    );
    Ok(ExitCode::SUCCESS)
}

fn order(name: Option<&str>, cwd: Option<&str>, command: &[String]) -> Value {
    let mut input = json!({ "name": name, "cwd": cwd });
    if let Some((program, args)) = command.split_first() {
        input["command"] = json!(program);
        input["args"] = json!(args);
    }
    input
}

async fn create(place: &Place, paths: &Paths, input: Value, attached: bool) -> Done {
    if attached {
        must_be_terminal()?;
    }
    let mut talk = gate(paths).await?;
    let created = call(&mut talk, "terminals/create", input).await?;
    let id = created["session_id"].as_str().unwrap_or_default();
    if attached {
        return attach_to(place, paths, id, DetachKey::default()).await;
    }
    if place.json {
        show::json(&created);
    } else {
        show::data(&format!("{id}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn attach_to(place: &Place, paths: &Paths, session: &str, key: DetachKey) -> Done {
    if place.json {
        return Err("attach shows a terminal: leave out --json"
            .to_owned()
            .into());
    }
    attach(paths, session, key).await
}

async fn kill(place: &Place, paths: &Paths, session: &str, signal: Signal) -> Done {
    let mut talk = gate(paths).await?;
    let input = json!({ "session_id": session, "signal": signal.as_str() });
    let killed = call(&mut talk, "terminals/kill", input).await?;
    if place.json {
        show::json(&killed);
    }
    if killed["ok"] != true {
        return Err(format!("session {session} has ended already").into());
    }
    Ok(ExitCode::SUCCESS)
}

fn must_be_terminal() -> Result<(), Failure> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return Ok(());
    }
    let words = "attaching needs a terminal here; `callgate call terminals/read_logs` reads \
                 a session without one";
    Err(words.to_owned().into())
}

/// The session that is meant: its id, a name that one running session has, or how one id begins;
/// else the newest of that name, which has ended.
async fn find(paths: &Paths, word: &str) -> Result<String, Failure> {
    let sessions = sessions(paths).await?;
    let id = |session: &Value| {
        session["session_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let all = |wanted: &dyn Fn(&Value) -> bool| -> Vec<String> {
        sessions.iter().filter(|one| wanted(one)).map(id).collect()
    };
    let mut over = all(&|one| one["name"] == word);
    let newest = over.pop().into_iter().collect();
    let ways = [
        all(&|one| one["session_id"] == word),
        all(&|one| one["name"] == word && one["status"] == "running"),
        all(&|one| !word.is_empty() && id(one).starts_with(word)),
        newest,
    ];
    match ways.iter().find(|found| !found.is_empty()) {
        None => Err(Fault::NotFound {
            message: format!("no session {word}: `callgate term ls` lists them"),
        }
        .into()),
        Some(found) => match found.as_slice() {
            [one] => Ok(one.clone()),
            several => Err(format!("several sessions are meant: {}", several.join(", ")).into()),
        },
    }
}
