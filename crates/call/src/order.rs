//! What is asked of a streamed run before it is one.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::RunPolicy;

/// What a run is to work on, and where its events go.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOrder {
    /// The run's name, where its caller chose one; else that of its call.
    pub run_id: Option<String>,
    /// For the script; any JSON.
    pub job: Value,
    /// What it works on, where that has a name.
    pub job_id: Option<String>,
    /// 1 for the first try of a job.
    pub attempt: u32,
    /// The try before this one: there for each but the first.
    pub parent_run_id: Option<String>,
    /// The dataset its events belong to.
    pub dataset: String,
    /// Whose data it is.
    pub source: String,
    /// What kind of data it is.
    pub category: String,
    /// When events are written.
    pub policy: RunPolicy,
    /// The largest artifact, where it is not the contract's.
    pub artifact_bytes_max: Option<u64>,
    /// Versions of the contract that its executor may speak; none: those of our major one.
    pub contract_versions: Vec<String>,
    /// By which it reaches others.
    pub proxy: Option<RunProxy>,
    /// A browser that is there already.
    pub browser_ws_endpoint: Option<String>,
    /// All the time it has, where that is not its tool's.
    pub timeout: Option<Duration>,
}

impl Default for RunOrder {
    fn default() -> Self {
        Self {
            run_id: None,
            job: Value::Null,
            job_id: None,
            attempt: 1,
            parent_run_id: None,
            dataset: "callgate".to_owned(),
            source: "default".to_owned(),
            category: "default".to_owned(),
            policy: RunPolicy::default(),
            artifact_bytes_max: None,
            contract_versions: Vec::new(),
            proxy: None,
            browser_ws_endpoint: None,
            timeout: None,
        }
    }
}

/// A proxy, with what opens it. Prints without the password. S-18.
#[derive(Clone, PartialEq, Eq)]
pub struct RunProxy {
    /// `http`, `https` or `socks5`.
    pub protocol: String,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who we are there; only together with a password.
    pub username: Option<String>,
    /// For the run request alone.
    pub password: Option<String>,
}

impl fmt::Debug for RunProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.protocol, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-18.
    #[test]
    fn a_password_does_not_print() {
        let proxy = RunProxy {
            protocol: "http".to_owned(),
            host: "proxy".to_owned(),
            port: 8080,
            username: Some("me".to_owned()),
            password: Some("s3cret".to_owned()),
        };
        let order = RunOrder {
            proxy: Some(proxy),
            ..RunOrder::default()
        };
        assert!(!format!("{order:?}").contains("s3cret"));
    }
}
