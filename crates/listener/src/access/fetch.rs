//! Gets one JSON document from a server that configuration names: over TLS, or plainly from
//! this machine. One connection, one answer, no redirection, all of it bounded.

use std::time::Duration;

pub(super) use callgate_dial::Address;
use callgate_dial::{Ask, Dialer};
use callgate_wires::json;
use serde_json::Value;

/// Largest document.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Depth of a document.
const DEPTH_MAX: usize = 16;
/// The whole exchange.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads an `https` address, or an `http` one of this machine.
pub(super) fn address(url: &str) -> Result<Address, String> {
    let address = Address::parse(url)?;
    if !address.is_private() {
        return Err(format!(
            "`{url}`: only https, except on this machine, since anybody on the way could put \
             keys of its own there"
        ));
    }
    Ok(address)
}

/// Gets documents.
pub(super) struct Fetch {
    dialer: Dialer,
}

impl Fetch {
    /// Believes servers that one of `roots` (DER) vouches for.
    pub fn new(roots: &[Vec<u8>]) -> Self {
        let roots = roots.to_vec();
        Self {
            dialer: Dialer::new(move || roots.clone()),
        }
    }

    /// The document at `from`.
    pub async fn json(&self, from: &Address) -> Result<Value, String> {
        let ask = Ask::get(from.path());
        let asked = self.dialer.ask(from, ask, DOCUMENT_BYTES_MAX);
        let reply = tokio::time::timeout(PATIENCE, asked)
            .await
            .map_err(|_| format!("{from}: no answer in time"))?
            .map_err(|trouble| trouble.to_string())?;
        match reply.body {
            Some(body) if reply.status == 200 => {
                json::parse(&body, DEPTH_MAX).map_err(|error| format!("{from}: {error}"))
            }
            _ => Err(format!("{from}: status {}", reply.status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_can_forge() {
        for good in ["https://issuer.example", "http://127.0.0.1:9/x?y"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "http://issuer.example",
            "http://localhost.example/",
            "issuer",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
