//! Proxies: as an executor is given one, with its password, and as it tells of one it used,
//! without.

use std::fmt;

use serde_json::{Map, Value};

/// How a proxy is spoken to. ST-20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub enum ProxyProtocol {
    Http,
    Https,
    Socks5,
}

impl ProxyProtocol {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
        }
    }

    /// The protocol of that name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::Socks5]
            .into_iter()
            .find(|protocol| protocol.as_str() == word)
    }
}

/// A proxy for a run. ST-20 to ST-24.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyEndpoint {
    /// How it is spoken to.
    pub protocol: ProxyProtocol,
    /// Where it is.
    pub host: String,
    /// Not 0.
    pub port: u16,
    /// Who we are to it, and its password. Both or neither.
    pub login: Option<(String, String)>,
}

/// Never shows the password.
impl fmt::Debug for ProxyEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.used().fmt(f)
    }
}

impl ProxyEndpoint {
    /// The same without its password.
    #[must_use]
    pub fn used(&self) -> ProxyUsed<'_> {
        ProxyUsed {
            protocol: self.protocol,
            host: &self.host,
            port: self.port,
            username: self.login.as_ref().map(|(name, _)| name.as_str()),
        }
    }

    /// As a run request has it: with the password.
    pub(super) fn to_json(&self) -> Value {
        let mut object = self.used().fields();
        match &self.login {
            Some((_, password)) => object.insert("password".to_owned(), password.as_str().into()),
            None => object.remove("username"),
        };
        Value::Object(object)
    }

    /// Reads one of a run request; an error says what is wrong, without any of its values.
    pub(super) fn from_json(value: &Value) -> Result<Self, &'static str> {
        let object = value.as_object().ok_or("is not an object")?;
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let port = object.get("port").and_then(Value::as_u64);
        let login = match (object.get("username"), object.get("password")) {
            (None | Some(Value::Null), None | Some(Value::Null)) => None,
            (Some(Value::String(name)), Some(Value::String(password))) => {
                Some((name.clone(), password.clone()))
            }
            (Some(Value::String(_)), None | Some(Value::Null)) => {
                return Err("has a username without a password");
            }
            (None | Some(Value::Null), Some(Value::String(_))) => {
                return Err("has a password without a username");
            }
            _ => return Err("has a username or a password that is no text"),
        };
        Ok(Self {
            protocol: text("protocol")
                .and_then(ProxyProtocol::parse)
                .ok_or("has a protocol that is none of http, https and socks5")?,
            host: text("host")
                .filter(|host| !host.is_empty())
                .ok_or("has no host")?
                .to_owned(),
            port: port
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port > 0)
                .ok_or("has a port that is not 1 to 65535")?,
            login,
        })
    }
}

/// A proxy that was used. There is no place in it for a password. ST-25.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyUsed<'a> {
    /// How it was spoken to.
    pub protocol: ProxyProtocol,
    /// Where it is.
    pub host: &'a str,
    /// Not 0.
    pub port: u16,
    /// Who we are to it.
    pub username: Option<&'a str>,
}

impl ProxyUsed<'_> {
    /// As a report has it: `username` is null where there is none.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.fields())
    }

    fn fields(&self) -> Map<String, Value> {
        Map::from_iter([
            ("protocol".to_owned(), self.protocol.as_str().into()),
            ("host".to_owned(), self.host.into()),
            ("port".to_owned(), self.port.into()),
            ("username".to_owned(), self.username.into()),
        ])
    }
}
