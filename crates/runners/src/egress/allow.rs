//! Whom a tool may reach: names or addresses with a port, and which addresses a name may turn
//! out to be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The hosts of a tool, as its owner wrote them: `api.example.com:443`, `*.example.com:443`,
/// `127.0.0.1:8080`, `[::1]:8080`, `registry.example.com:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    host: Host,
    /// Any, where nothing is said.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
    /// Every name below this one.
    Below(String),
}

/// Why a connection was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error("{host}:{port} is not among the hosts this tool may reach")]
    NotAllowed { host: String, port: u16 },
    #[error("{host} is {address}, which must be named itself to be reached")]
    Special { host: String, address: IpAddr },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("{host}:{port} could not be reached: {reason}")]
    Unreachable {
        host: String,
        port: u16,
        reason: String,
    },
    #[error("{0}")]
    BadRequest(&'static str),
}

impl Refusal {
    /// The host and port to name for this to be allowed, if they can be named.
    pub(super) fn host(&self) -> Option<String> {
        const HOST_BYTES_MAX: usize = 253;
        let Self::NotAllowed { host, port } = self else {
            return None;
        };
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let fits = host.len() <= HOST_BYTES_MAX && host.bytes().all(is_part);
        fits.then(|| format!("{host}:{port}"))
    }

    /// In few words, for records: what a tool asked for is its own to choose, and may be long or
    /// no text at all.
    pub(super) fn brief(&self) -> String {
        match self {
            Self::NotAllowed { host, port } => format!("{}:{port} not allowed", shown(host)),
            Self::Special { host, address } => {
                format!("{} is {address}, which is not named", shown(host))
            }
            Self::NoAddress { host } => format!("{} has no address", shown(host)),
            Self::Unreachable { host, port, .. } => format!("{}:{port} unreachable", shown(host)),
            Self::BadRequest(reason) => format!("no request of a proxy: {reason}"),
        }
    }
}

fn shown(host: &str) -> String {
    const CHARS_MAX: usize = 64;
    let plain = |c: char| match c.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    host.chars().take(CHARS_MAX).map(plain).collect()
}

impl Allowed {
    /// Reads the owner's list. The error says which entry and why.
    pub fn parse(entries: &[String]) -> Result<Self, String> {
        entries
            .iter()
            .map(|entry| {
                Entry::parse(entry).map_err(|why| format!("network.allow: `{entry}`: {why}"))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether a connection to `host` may be tried at all. Asked before its name is resolved, so
    /// that names do not become a way to talk.
    pub fn check_host(&self, host: &str, port: u16) -> Result<(), Refusal> {
        let host = plain(host);
        if self.0.iter().any(|entry| entry.fits(&host, port)) {
            return Ok(());
        }
        Err(Refusal::NotAllowed { host, port })
    }

    /// Whether `host` may turn out to be `address`: this machine and its link only where they
    /// were named themselves.
    pub fn check_address(&self, host: &str, address: IpAddr, port: u16) -> Result<(), Refusal> {
        let host = plain(host);
        let address = unmapped(address);
        let named = self.0.iter().any(|entry| {
            entry.host == Host::Address(address) && entry.port.is_none_or(|own| own == port)
        });
        if named || !is_special(address) || (address.is_loopback() && is_loopback_name(&host)) {
            return Ok(());
        }
        Err(Refusal::Special { host, address })
    }
}

impl Entry {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, port) = text.rsplit_once(':').ok_or("say a port: `host:443`")?;
        let port = match port {
            "*" => None,
            digits => match digits.parse() {
                Ok(0) | Err(_) => return Err("a port is a number from 1 to 65535, or `*`"),
                Ok(port) => Some(port),
            },
        };
        let host = plain(host);
        let host = match host.strip_prefix("*.") {
            Some(domain) if is_name(domain) => Host::Below(domain.to_owned()),
            Some(_) => return Err("`*.` stands before a name"),
            None => match host.parse::<IpAddr>() {
                Ok(address) => Host::Address(unmapped(address)),
                Err(_) if is_name(&host) => Host::Name(host),
                Err(_) => return Err("not a host name or address"),
            },
        };
        Ok(Self { host, port })
    }

    fn fits(&self, host: &str, port: u16) -> bool {
        let host_fits = match &self.host {
            Host::Name(name) => host == name,
            Host::Below(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.ends_with('.')),
            Host::Address(own) => host.parse().is_ok_and(|address| unmapped(address) == *own),
        };
        host_fits && self.port.is_none_or(|own| own == port)
    }
}

/// A host as it is compared: lower case, no brackets, no dot at its end.
fn plain(host: &str) -> String {
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        })
}

/// Names that mean this machine by RFC 6761, whatever a resolver says.
pub(super) fn is_loopback_name(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// An IPv4 address that comes dressed as IPv6 is judged as what it is.
fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else {
        return address;
    };
    let [a, b, c, d, e, f, high, low] = six.segments();
    let [h1, h0] = high.to_be_bytes();
    let [l1, l0] = low.to_be_bytes();
    let is_nat64 = [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0];
    match six.to_ipv4_mapped() {
        Some(four) => IpAddr::V4(four),
        None if is_nat64 => IpAddr::V4(Ipv4Addr::new(h1, h0, l1, l0)),
        None => address,
    }
}

/// Where clouds tell a machine its keys, beside the link-local address that most have.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// This machine, its link, its cloud, everybody at once, or nobody: none of them is a host out
/// there.
fn is_special(address: IpAddr) -> bool {
    match address {
        known if METADATA.contains(&known) => true,
        IpAddr::V4(four) => {
            four.is_loopback()
                || four.is_link_local()
                || four.is_unspecified()
                || four.is_multicast()
                || four.is_broadcast()
                || four.octets()[0] == 0
        }
        IpAddr::V6(six) => {
            six == Ipv6Addr::LOCALHOST
                || six.is_unicast_link_local()
                || six.is_unspecified()
                || six.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(entries: &[&str]) -> Allowed {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        Allowed::parse(&entries).unwrap()
    }

    #[test]
    fn names_and_ports_must_fit() {
        let list = allowed(&["API.example.com:443", "*.cdn.test:80", "any.test:*"]);
        for (host, port, fits) in [
            ("api.example.com", 443, true),
            ("Api.Example.Com.", 443, true),
            ("api.example.com", 80, false),
            ("example.com", 443, false),
            ("evil-api.example.com", 443, false),
            ("api.example.com.evil.test", 443, false),
            ("a.cdn.test", 80, true),
            ("a.b.cdn.test", 80, true),
            ("cdn.test", 80, false),
            ("xcdn.test", 80, false),
            ("any.test", 1, true),
        ] {
            assert_eq!(list.check_host(host, port).is_ok(), fits, "{host}:{port}");
        }
    }

    #[test]
    fn special_addresses_must_be_named() {
        let list = allowed(&["api.test:443", "127.0.0.1:8080", "[::1]:8080"]);
        for (address, port, fits) in [
            ("93.184.216.34", 443, true),
            ("10.1.2.3", 443, true),
            ("127.0.0.1", 443, false),
            ("127.0.0.1", 8080, true),
            ("::1", 8080, true),
            ("127.0.0.2", 8080, false),
            ("169.254.169.254", 443, false),
            ("::ffff:169.254.169.254", 443, false),
            ("64:ff9b::a9fe:a9fe", 443, false),
            ("fe80::1", 443, false),
            ("fd00:ec2::254", 443, false),
            ("100.100.100.200", 443, false),
            ("0.0.0.0", 443, false),
            ("0.1.2.3", 443, false),
            ("::", 443, false),
            ("224.0.0.1", 443, false),
            ("ff02::1", 443, false),
            ("255.255.255.255", 443, false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let got = list.check_address("api.test", address, port);
            assert_eq!(got.is_ok(), fits, "{address}:{port}");
        }
        let loopback = "127.0.0.1".parse().unwrap();
        let named = allowed(&["api.localhost:443"]);
        assert!(named.check_address("api.localhost", loopback, 443).is_ok());
    }

    #[test]
    fn an_entry_that_means_nothing_is_refused() {
        for entry in [
            "",
            "host",
            "host:0",
            "host:65536",
            "host:x",
            ":80",
            "*:80",
            "a..b:80",
            "*.:80",
            "a b:80",
            "http://a:80",
        ] {
            assert!(Allowed::parse(&[entry.to_owned()]).is_err(), "{entry}");
        }
    }
}
