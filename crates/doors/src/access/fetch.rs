//! Gets one JSON document from a server that configuration names: over TLS, or plainly from
//! this machine. One connection, one answer, no redirection, all of it bounded.

use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::{Scheme, Uri};
use axum::http::{Request, StatusCode, header};
use callgate_wires::json;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Largest document.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Depth of a document.
const DEPTH_MAX: usize = 16;
/// The whole exchange.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a document is.
#[derive(Clone, Debug)]
pub(super) struct Address {
    tls: bool,
    /// Without brackets.
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl Address {
    /// Reads an `https` address, or an `http` one of this machine.
    pub fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("`{url}` is no address"))?;
        let tls = uri.scheme() == Some(&Scheme::HTTPS);
        let authority = uri.authority().filter(|at| !at.as_str().contains('@'));
        let (Some(authority), true) = (authority, tls || uri.scheme() == Some(&Scheme::HTTP))
        else {
            return Err(format!("`{url}` is no https address"));
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if !tls && !["localhost", "127.0.0.1", "::1"].contains(&host.as_str()) {
            return Err(format!(
                "`{url}`: only https, except on this machine, since anybody on the way \
                 could put keys of its own there"
            ));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            tls,
            host,
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.to_string(),
            path: path.to_owned(),
        })
    }

    /// Another path at the same server; `path` gets the present one without a last slash.
    pub fn with_path(&self, path: impl FnOnce(&str) -> String) -> Self {
        let path = path(self.path.trim_end_matches('/'));
        Self {
            path,
            ..self.clone()
        }
    }
}

/// Gets documents.
pub(super) struct Fetch {
    tls: TlsConnector,
}

impl Fetch {
    /// Believes servers that one of `roots` (DER) vouches for.
    pub fn new(roots: &[Vec<u8>]) -> Self {
        let mut store = RootCertStore::empty();
        let certificates = roots.iter().cloned().map(CertificateDer::from);
        // A machine's list holds certificates that are odd; the others are good none the less.
        store.add_parsable_certificates(certificates);
        let config = ClientConfig::builder()
            .with_root_certificates(store)
            .with_no_client_auth();
        Self {
            tls: TlsConnector::from(Arc::new(config)),
        }
    }

    /// The document at `from`.
    pub async fn json(&self, from: &Address) -> Result<Value, String> {
        let got = tokio::time::timeout(PATIENCE, self.get(from)).await;
        let body = got.map_err(|_| format!("{}: no answer in time", from.authority))??;
        json::parse(&body, DEPTH_MAX)
            .map_err(|error| format!("{}{}: {error}", from.authority, from.path))
    }

    async fn get(&self, from: &Address) -> Result<Bytes, String> {
        let failed = |error: &dyn std::error::Error| format!("{}: {error}", from.authority);
        let stream = TcpStream::connect((from.host.as_str(), from.port))
            .await
            .map_err(|error| failed(&error))?;
        if !from.tls {
            return exchange(stream, from).await;
        }
        let name = ServerName::try_from(from.host.clone()).map_err(|error| failed(&error))?;
        let stream = self.tls.connect(name, stream).await;
        exchange(stream.map_err(|error| failed(&error))?, from).await
    }
}

async fn exchange<S>(stream: S, from: &Address) -> Result<Bytes, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: &dyn std::error::Error| format!("{}: {error}", from.authority);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    let request = Request::get(&from.path)
        .header(header::HOST, &from.authority)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(&error))?;
    let exchange = async {
        let sent = sender.send_request(request).await;
        let response = sent.map_err(|error| failed(&error))?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(format!("{}{}: {status}", from.authority, from.path));
        }
        let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX);
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(format!("{}{}: {error}", from.authority, from.path)),
        }
    };
    // The connection must be driven while we wait, and ends with us.
    tokio::pin!(connection, exchange);
    tokio::select! {
        got = &mut exchange => got,
        ended = &mut connection => match ended {
            // All of it may be here already.
            Ok(()) => exchange.await,
            Err(error) => Err(failed(&error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in [
            "https://issuer.example",
            "https://issuer.example:8443/realms/a",
            "http://127.0.0.1:9/x?y",
            "http://localhost/",
            "http://[::1]:9/",
        ] {
            assert!(Address::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "issuer.example",
            "ftp://issuer.example",
            "http://issuer.example",
            "http://localhost.example/",
            "https://user@issuer.example",
            "file:///etc/passwd",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
        let realm = Address::parse("https://issuer.example/realms/a/").unwrap();
        let path = realm.with_path(|path| format!("/.well-known/x{path}")).path;
        assert_eq!(path, "/.well-known/x/realms/a");
    }
}
