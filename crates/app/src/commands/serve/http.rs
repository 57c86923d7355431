//! HTTP on TCP: which port, who is asked for a token, and whose tokens count. Decision G-10.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use callgate_call::{Caller, Cancel, Clock};
use callgate_doors::port::Port;
use callgate_gate::Gate;
use callgate_listener::access::jwt::Issuer;
use callgate_listener::access::{Access, Everybody, Guard};
use callgate_listener::tcp::Limits;
use callgate_listener::web::{Entrance, Names};
use callgate_registry::config::{Config, HttpConfig, JwtConfig};
use callgate_registry::setup::Parts;
use callgate_registry::trust::Basis;
use callgate_store::StoreError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

use crate::compose::chain;
use crate::error::CommandError;
use crate::issuer::{self, IssuerError};
use crate::show;

/// Where MCP over HTTP is, unless somebody says otherwise. G-10.
pub const PORT_DEFAULT: u16 = 7411;

/// What the command line says of it.
#[derive(Clone, Copy)]
pub struct Asked {
    /// `--port`.
    pub port: Option<u16>,
    /// `--no-auth`.
    pub no_auth: bool,
    /// `--background`: no port, whatever the configuration says.
    pub off: bool,
}

impl Asked {
    fn wants_port(self, config: &HttpConfig) -> bool {
        !self.off && (!config.off || self.port.is_some() || self.no_auth)
    }
}

/// A port we have, and whom we let in there.
pub struct Tcp {
    listener: TcpListener,
    pub port: u16,
    hosts: Vec<String>,
    /// `None` under `--no-auth`.
    guard: Option<Arc<Guard>>,
}

/// Opens the port, if there is to be one. One that nobody asked for and another has is not
/// worth failing.
pub async fn open(
    parts: &Parts,
    gate: &Arc<Gate>,
    owner: Caller,
    asked: Asked,
) -> Result<Opened, CommandError> {
    let config = configured(parts)?.http;
    if !asked.wants_port(&config) {
        return Ok(Opened::Unwanted);
    }
    if asked.no_auth && !config.hosts.is_empty() {
        return Err(CommandError::OpenToOthers);
    }
    let wanted = asked.port.or(config.port);
    let port = wanted.unwrap_or(PORT_DEFAULT);
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
    let (port, listener) = match bound {
        Ok(bound) => bound,
        Err(error) if wanted.is_some() => {
            let advice = other_port(&error);
            return Err(CommandError::Port {
                port,
                error,
                advice,
            });
        }
        Err(error) => {
            let advice = other_port(&error);
            let why = format!("no HTTP, only the socket: port {port}: {error}{advice}");
            return Ok(Opened::Taken(why));
        }
    };
    let guard = if asked.no_auth {
        show::say(
            "WARNING: --no-auth: every program of every user of this machine may call, as `anonymous`",
        );
        None
    } else {
        Some(Arc::new(guard(parts, gate, owner, &config)?))
    };
    Ok(Opened::Port(Tcp {
        listener,
        port,
        hosts: config.hosts,
        guard,
    }))
}

/// Returns the advice for a port that another program has.
fn other_port(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; name another one with --port, or pass --port 0 for any that is free"
        }
        _ => "",
    }
}

/// What came of opening a port.
pub enum Opened {
    /// It is open.
    Port(Tcp),
    /// It is somebody else's, in words; nobody asked for this one.
    Taken(String),
    /// Nobody wants one.
    Unwanted,
}

impl Opened {
    /// What to tell of it.
    pub fn words(&self) -> Option<String> {
        match self {
            Self::Port(tcp) => Some(tcp.words()),
            Self::Taken(why) => Some(why.clone()),
            Self::Unwanted => None,
        }
    }

    /// The port, if there is one.
    pub fn port(&self) -> Option<&Tcp> {
        match self {
            Self::Port(tcp) => Some(tcp),
            Self::Taken(_) | Self::Unwanted => None,
        }
    }

    /// The same, to be served.
    pub fn into_port(self) -> Option<Tcp> {
        match self {
            Self::Port(tcp) => Some(tcp),
            Self::Taken(_) | Self::Unwanted => None,
        }
    }
}

/// Makes the owner's token, and shows it, if a port will ask for it and there is none yet. To be
/// called before the setup is made, which masks it in what programs print. R-15.
pub fn make_token(parts: &Parts, asked: Asked) -> Result<(), CommandError> {
    if asked.no_auth || !asked.wants_port(&configured(parts)?.http) {
        return Ok(());
    }
    let (token, is_new) = parts.store.owner_token()?;
    if is_new {
        show::say(&format!(
            "your own token for HTTP, shown this once (again: callgate token owner): {}",
            token.reveal()
        ));
    }
    Ok(())
}

/// Asks for tokens.
fn guard(
    parts: &Parts,
    gate: &Arc<Gate>,
    owner: Caller,
    config: &HttpConfig,
) -> Result<Guard, CommandError> {
    let issuer = issuer(parts, config.jwt.as_ref())?;
    let (token, _) = parts.store.owner_token()?;
    let guard = Guard::new(Arc::clone(gate), owner, &token);
    guard.set_issuer(issuer);
    Ok(guard)
}

/// What the configuration in force says.
pub fn configured(parts: &Parts) -> Result<Config, StoreError> {
    Ok(parts.in_force()?.into_config())
}

fn issuer(parts: &Parts, config: Option<&JwtConfig>) -> Result<Option<Issuer>, IssuerError> {
    let make = |config| issuer::issuer(config, Arc::clone(&parts.clock), issuer::roots());
    config.map(make).transpose()
}

impl Tcp {
    /// Who decides whose tokens count, while it is asked.
    pub fn guard(&self) -> Option<Arc<Guard>> {
        self.guard.clone()
    }

    /// How to reach it, for people.
    pub fn words(&self) -> String {
        let who = match self.guard {
            None => "for anybody on this machine",
            Some(_) => "with a token (`callgate token owner`, `callgate token create`)",
        };
        let port = self.port;
        format!(
            "MCP on http://127.0.0.1:{port}/mcp, {who}\n\
             the tool protocol on http://127.0.0.1:{port}/tools, JSON-RPC on /rpc, the same way"
        )
    }

    /// The port itself, for a door that serves it alone.
    pub fn into_listener(self) -> TcpListener {
        self.listener
    }

    /// Whom the doors of this port let in.
    pub fn entrance(&self) -> Entrance {
        let access: Arc<dyn Access> = match &self.guard {
            None => Arc::new(Everybody(Caller::named("anonymous"))),
            Some(guard) => Arc::clone(guard) as Arc<dyn Access>,
        };
        Entrance::new(access, Names::Loopback(self.hosts.clone()))
    }

    /// Serves until `stop`, and then until `calls` is ready.
    pub async fn serve(
        self,
        port: Port,
        clock: Arc<dyn Clock>,
        calls: impl Future<Output = ()>,
        stop: Cancel,
    ) {
        let limits = Limits {
            connections_max: connections_max(),
            ..Limits::default()
        };
        port.serve(self.listener, limits, clock, calls, stop).await;
    }
}

/// Connections at the same time, where the system lets us have the descriptors.
const CONNECTIONS_MAX: u64 = 2048;

/// Half of the descriptors we may have are for connections; the rest are for what they ask for.
/// As many as we are allowed are asked for first.
fn connections_max() -> usize {
    let given = getrlimit(Resource::Nofile);
    let wanted = given
        .maximum
        .map_or(4 * CONNECTIONS_MAX, |max| max.min(4 * CONNECTIONS_MAX));
    let mut open_files_max = given.current.unwrap_or(u64::MAX);
    if open_files_max < wanted {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: given.maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            open_files_max = wanted;
        }
    }
    usize::try_from((open_files_max / 2).min(CONNECTIONS_MAX)).unwrap_or(usize::MAX)
}

/// Another configuration counts: so do the tokens of its issuer, and no other's. The port and
/// the hosts stay until the next start.
pub fn follow(parts: &Parts, guard: &Guard) {
    let in_force = match parts.in_force() {
        Ok(in_force) if matches!(in_force.basis, Basis::Files(_)) => in_force,
        // The old configuration is kept; and so is its issuer.
        Ok(_) | Err(_) => return,
    };
    match issuer(parts, in_force.into_config().http.jwt.as_ref()) {
        Ok(issuer) => guard.set_issuer(issuer),
        Err(error) => {
            let reason = chain(&error);
            guard.set_issuer(None);
            show::complain(&format!("no issuer's tokens count: {reason}"));
        }
    }
}
