//! The proxy of a run. On the command line it has no password, since everybody on the machine
//! can read that; it comes from a file or the environment. No message quotes what was read. S-18.

use callgate_registry::environment::Environment;
use serde_json::{Value, json};

use super::{Run, ask};

use crate::error::ArgumentError;

/// The longest file with a proxy in it.
const FILE_BYTES_MAX: usize = 16 * 1024;

/// The proxy that is asked for, as `runs/start` has it.
pub fn read(environment: &Environment, asked: &Run) -> Result<Option<Value>, ArgumentError> {
    if let Some(url) = &asked.proxy {
        if url.contains('@') {
            return Err(ArgumentError::ProxyPassword);
        }
        return parse(url).map(Some).map_err(|reason| ArgumentError::Proxy {
            place: "--proxy".to_owned(),
            reason,
        });
    }
    let Some(from) = &asked.proxy_from else {
        return Ok(None);
    };
    let text = match from.strip_prefix("env:") {
        Some(name) => environment
            .text(name)
            .ok_or_else(|| ArgumentError::Unset {
                option: "--proxy-from",
                variable: name.to_owned(),
            })?
            .to_owned(),
        None => ask::read_file(environment, from, FILE_BYTES_MAX, "--proxy-from")?,
    };
    let read = parse(text.trim()).map_err(|reason| ArgumentError::Proxy {
        place: format!("--proxy-from {from}"),
        reason,
    })?;
    Ok(Some(read))
}

/// Reads `PROTOCOL://[USER:PASSWORD@]HOST:PORT`. ST-20 to ST-24.
fn parse(url: &str) -> Result<Value, &'static str> {
    const FORM: &str = "it is PROTOCOL://HOST:PORT, with USER:PASSWORD@ before the host in a file";
    let (protocol, rest) = url.split_once("://").ok_or(FORM)?;
    if !["http", "https", "socks5"].contains(&protocol) {
        return Err("the protocols are http, https and socks5");
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    // A password may have an @ in it, a host not.
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let (host, port) = place.rsplit_once(':').ok_or("it needs a port")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.ok_or("a port is 1 to 65535")?;
    let is_name = |c: char| c.is_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || !host.chars().all(is_name) {
        return Err(FORM);
    }
    let mut proxy = json!({ "protocol": protocol, "host": host, "port": port });
    if let Some(login) = login {
        let (user, password) = login
            .split_once(':')
            .ok_or("a user goes with a password, and only with one")?;
        proxy["username"] = json!(decoded(user).ok_or("the user is badly encoded")?);
        proxy["password"] = json!(decoded(password).ok_or("the password is badly encoded")?);
    }
    Ok(proxy)
}

/// A part of an address without its `%40`s.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else {
            return None;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-18, ST-20, ST-21, ST-22, ST-23, ST-24.
    #[test]
    fn addresses_of_proxies() {
        assert_eq!(
            parse("socks5://proxy.example:1080"),
            Ok(json!({ "protocol": "socks5", "host": "proxy.example", "port": 1080 }))
        );
        assert_eq!(
            parse("http://me:p%40ss:w@rd@[::1]:3128/"),
            Ok(json!({
                "protocol": "http", "host": "::1", "port": 3128,
                "username": "me", "password": "p@ss:w@rd",
            }))
        );
        for wrong in [
            "proxy:1080",
            "ftp://proxy:1080",
            "http://proxy",
            "http://proxy:0",
            "http://proxy:70000",
            "http://:80",
            "http://me@proxy:80",
            "http://me:%4@proxy:80",
            "http://proxy/x:80",
        ] {
            let why = parse(wrong).expect_err(wrong);
            assert!(!why.contains("me"), "{why}");
        }
    }
}
