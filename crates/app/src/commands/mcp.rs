//! `callgate mcp`: MCP on standard input and output. Attaches to the workspace's running
//! `serve`, so that all its clients share one gate; stands alone where there is none, or no
//! longer. Prints what a host's settings need to start it.

mod hosts;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::{Cancel, idle_only_words, names_tool};
use callgate_client::mcp_requests::McpRequests;
use callgate_client::relay::{Attached, Pipe, RELAYED_BYTES, Relay};
use callgate_doors::mcp::Server;
use callgate_doors::mcp::http::{
    BUILTINS, CLIENT, CLIENT_PIPE_PROTOCOL, NARROW_PIPE_PROTOCOL, ONLY, PIPE_PROTOCOL,
};
use callgate_doors::mcp::stdio::Socket;
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_registry::trust::Basis;
use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::serve::http::PORT_DEFAULT;
use super::{relayed, user_gate};
use crate::cli::{Done, Place, runtime};
use crate::compose;
use crate::error::{ArgumentError, CommandError};
use crate::mcp;
use crate::show;
use crate::watch::Watched;
use hosts::{Host, Way};

/// Where a running gate has this conversation.
fn pipe(only: &[String]) -> Pipe {
    let header = |pattern: &String| (ONLY, pattern.clone());
    Pipe {
        path: "/mcp/pipe",
        protocol: if only.is_empty() {
            PIPE_PROTOCOL
        } else {
            NARROW_PIPE_PROTOCOL
        },
        headers: only.iter().map(header).collect(),
        notify: relayed::say,
    }
}

/// The conversation of an MCP client with the user's gate.
fn client_pipe(name: &str, builtins: bool) -> Pipe {
    let mut headers = vec![(CLIENT, name.to_owned())];
    if builtins {
        headers.push((BUILTINS, "1".to_owned()));
    }
    Pipe {
        path: "/mcp/pipe",
        protocol: CLIENT_PIPE_PROTOCOL,
        headers,
        notify: relayed::say,
    }
}

/// Serve MCP on standard input and output.
#[derive(Args)]
pub struct Mcp {
    /// Do not attach to a running `callgate serve`
    #[arg(long)]
    standalone: bool,
    /// Serve only tools that fit this pattern, as in 'files/*' or files_read (* stands for anything;
    /// may be given several times; names every built-in tool that fits)
    #[arg(long, value_name = "PATTERN", value_parser = pattern, conflicts_with = "http")]
    only: Vec<String>,
    /// Serve one MCP client by your own gate: the servers that `[[client]]` of this name lists in
    /// your settings, and nothing else. The gate is started if it does not run, shared by all your
    /// clients, and ends by itself
    #[arg(long, value_name = "NAME", value_parser = pattern, conflicts_with_all = ["standalone", "only", "print_config"])]
    client: Option<String>,
    /// With --client: the built-in tools as well
    #[arg(long, requires = "client")]
    builtins: bool,
    /// Print the settings of a host that is to reach this workspace, and where they go
    #[arg(long, value_name = "HOST", conflicts_with = "standalone")]
    print_config: Option<Host>,
    /// With --print-config: by the HTTP of a running `callgate serve`
    #[arg(long, requires = "print_config")]
    http: bool,
    /// With --http: its port [default: that of the running gate, else 7411]
    #[arg(long, requires = "http")]
    port: Option<u16>,
}

/// Longest pattern of `--only`: that of a tool's name.
const PATTERN_BYTES_MAX: usize = 128;

/// Reads a pattern of `--only`.
fn pattern(text: &str) -> Result<String, ArgumentError> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./*".contains(&byte);
    match text.len() {
        1..=PATTERN_BYTES_MAX if text.bytes().all(is_known) => Ok(text.to_owned()),
        _ => Err(ArgumentError::Pattern {
            bytes_max: PATTERN_BYTES_MAX,
        }),
    }
}

pub fn run(environment: &Environment, place: &Place, args: &Mcp) -> Done {
    if let Some(host) = args.print_config {
        return print_config(environment, place, args, host);
    }
    let runtime = runtime()?;
    if let Some(client) = &args.client {
        let place = user_gate::place(environment, place)?;
        let pipe = client_pipe(client, args.builtins);
        let served = relayed::converse_by_user_gate::<McpRequests>(environment, &place, &pipe);
        runtime.block_on(served)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut relay = None;
    if !args.standalone {
        if !args.only.is_empty() {
            runtime.block_on(warn_of_idle(environment, place, &args.only));
        }
        let attached = runtime.block_on(relayed::converse(environment, place, &pipe(&args.only)));
        match attached? {
            Attached::Never => {}
            Attached::Over => return Ok(ExitCode::SUCCESS),
            Attached::Lost(left) => relay = Some(left),
        }
    }
    let parts = Arc::new(super::open(environment, place)?);
    let served = runtime.block_on(async {
        let watched = Watched::now(&parts)?;
        let in_force = parts.in_force()?;
        let setup = match in_force.basis {
            // A host shows what a server says of itself, and seldom why one has ended.
            Basis::Nothing(_) => Parts::closed(&in_force),
            _ => parts.setup_in_force(in_force)?,
        };
        super::warn_of_doubt(&setup);
        warn_of_patterns(setup.catalog.idle_patterns(&args.only));
        let gate = Arc::new(compose::gate(&parts, setup));
        let server = mcp::server(&parts, Arc::clone(&gate), mcp::TASK_AFTER);
        let mut services = super::services_of(&parts, &gate, watched, |_| {});
        let stop = Cancel::new();
        let work = alone(&server, environment.uid, &args.only, relay, &stop);
        let (served, ended) = services.while_running(work, |_| stop.cancel()).await;
        services.stop().await;
        served.and(ended.map_or(Ok(()), |ended| Err(ended.into())))
    });
    super::close(&parts);
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Warns of patterns that fit no tool of the running gate. One that does not answer is no concern of
/// this: attaching to it says so.
async fn warn_of_idle(environment: &Environment, place: &Place, only: &[String]) {
    let Ok(paths) = place.paths(environment) else {
        return;
    };
    let Ok(Some(client)) = super::running_gate(place, &paths).await else {
        return;
    };
    let Ok(body) = client.ask(Method::GET, "/v1/tools", String::new()).await else {
        return;
    };
    let Some(tools) = body["tools"].as_array() else {
        return;
    };
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    let fits = |pattern: &&String| {
        let pattern = std::slice::from_ref(*pattern);
        let is_named = |tool| names_tool(pattern, &text(tool, "name"), &text(tool, "aid"));
        tools.iter().any(is_named)
    };
    let idle = only.iter().filter(|pattern| !fits(pattern));
    warn_of_patterns(idle.map(String::as_str).collect());
}

fn warn_of_patterns(idle: Vec<&str>) {
    idle.into_iter()
        .for_each(|pattern| show::warn(&idle_only_words(pattern)));
}

/// Serves without a running gate: our pipes, or what a gate that is gone has left.
async fn alone(
    server: &Arc<Server>,
    uid: u32,
    only: &[String],
    relay: Option<Box<Relay<McpRequests>>>,
    stop: &Cancel,
) -> Result<(), CommandError> {
    let Some(mut relay) = relay else {
        return mcp::serve_stdio(server, uid, only, stop).await;
    };
    let (near, far) = tokio::io::duplex(RELAYED_BYTES);
    let (served, _) = tokio::join!(
        mcp::serve_ends(server, uid, only, Socket(far), stop),
        relay.carry(near)
    );
    // What is given up the relay says.
    served.map(drop)
}

/// The settings on stdout, the words on stderr: what is printed can be piped into a file.
fn print_config(environment: &Environment, place: &Place, args: &Mcp, host: Host) -> Done {
    let way = if args.http {
        let paths = place.paths(environment)?;
        let running = paths.gate.and_then(|gate| gate.port);
        let port = args.port.or(running).unwrap_or(PORT_DEFAULT);
        Way::Http {
            url: format!("http://127.0.0.1:{port}/mcp"),
        }
    } else {
        stdio(environment, place, &args.only)?
    };
    let settings = host
        .settings(&way)
        .ok_or_else(|| "its settings take programs only: leave out --http".to_owned())?;
    show::say(&format!("for {}:", host.place()));
    show::data(&format!("{settings:#}\n"));
    if args.http {
        show::say(hosts::TOKEN_WORDS);
    }
    Ok(ExitCode::SUCCESS)
}

/// This program, with everything said that a host does not hand on.
fn stdio(environment: &Environment, place: &Place, only: &[String]) -> Result<Way, CommandError> {
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(CommandError::NotUtf8(path.to_owned())),
    };
    let paths = place.paths(environment)?;
    let program = std::fs::read_link(&environment.program)
        .map_err(CommandError::system("find this program"))?;
    let mut args = vec!["mcp".to_owned(), "--workspace".to_owned()];
    args.push(text(&paths.workspace)?);
    // A host starts its servers without most of this environment.
    if !paths.is_default_state(environment) {
        args.extend(["--state".to_owned(), text(&paths.state)?]);
    }
    if place.socket.is_some() {
        args.extend(["--socket".to_owned(), text(&paths.socket)?]);
    }
    for pattern in only {
        args.extend(["--only".to_owned(), pattern.clone()]);
    }
    Ok(Way::Stdio {
        program: text(&program)?,
        args,
    })
}
