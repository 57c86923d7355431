//! The one way out of a private network, for a tool that may reach some hosts: a listener on
//! its loopback. The child makes it before it becomes the tool and gives it away; whoever runs
//! the tool serves it, and decides there what is let through.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::kernel;

/// Where it is. The network is private, so that nobody else can have it.
pub(crate) const PORT: u16 = 3128;

/// Connections that wait to be taken; the kernel lets further ones try again.
const BACKLOG: i32 = 64;

/// Makes it, in a network namespace that is new.
pub(crate) fn open() -> io::Result<OwnedFd> {
    kernel::raise_loopback()?;
    listen_at(PORT)
}

/// Listens at a port of the loopback.
pub(crate) fn listen_at(port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

pub(crate) fn address() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT)
}

/// Names by which programs are told of a proxy.
const PROXY: [&str; 6] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

/// Names by which they are told of hosts to reach without it. There are none.
const DIRECT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Makes Node look at the others.
const NODE: &str = "NODE_USE_ENV_PROXY";

/// Tells the program that gets this environment of the way out, and of no other.
pub(crate) fn announce(env: &mut Vec<(OsString, OsString)>) {
    let is_ours = |name: &OsString| {
        let mut ours = PROXY.iter().chain(&DIRECT).chain([&NODE]);
        ours.any(|own| name == own)
    };
    env.retain(|(name, _)| !is_ours(name));
    let proxy = format!("http://{}", address());
    env.extend(PROXY.map(|name| (name.into(), proxy.clone().into())));
    env.extend(DIRECT.map(|name| (name.into(), OsString::new())));
    env.push((NODE.into(), "1".into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_way_out() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            pair("PATH", "/bin"),
            pair("no_proxy", "*"),
            pair("HTTPS_PROXY", "http://elsewhere:1"),
        ];
        announce(&mut env);
        assert_eq!(env.len(), 10);
        for (name, value) in [
            ("PATH", "/bin"),
            ("HTTPS_PROXY", "http://127.0.0.1:3128"),
            ("http_proxy", "http://127.0.0.1:3128"),
            ("no_proxy", ""),
            ("NODE_USE_ENV_PROXY", "1"),
        ] {
            assert!(env.contains(&pair(name, value)), "{name}");
        }
    }
}
