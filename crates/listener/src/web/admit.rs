//! Who may speak at all: the names a request uses for us, and the token it brings. Whoever may
//! not is told what is missing as RFC 6750 and RFC 9728 say.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use callgate_call::BearerToken;
use serde_json::Value;

use super::{Entrance, Names};
use crate::access::{Access, Identity, Lack, Stranger};

/// How often the token of whoever only listens is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A request that is not admitted.
pub struct Refused {
    /// The HTTP status of the answer.
    pub status: StatusCode,
    /// For the chain's count of strangers.
    pub reason: &'static str,
    /// For people.
    pub words: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refused {
    /// The door's own answer, with what must stand in its head.
    pub fn finish(self, mut response: Response) -> Response {
        *response.status_mut() = self.status;
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl Entrance {
    /// Who asks, if the request may be looked at at all.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        self.check_names(headers)?;
        let recognised = self.access.recognise(bearer(headers)).await;
        recognised.map_err(|stranger| self.challenge(headers, &stranger))
    }

    /// A browser that was lured to a page must not reach a server on its own machine.
    pub fn check_names(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let Names::Loopback(hosts) = &self.names else {
            return Ok(());
        };
        let refused = |reason: &'static str, what: &str| {
            Err(Refused {
                status: StatusCode::FORBIDDEN,
                reason,
                words: format!("{what} is not one this server answers to"),
                header: None,
            })
        };
        if !only(headers, header::HOST).is_some_and(|host| is_ours(host, hosts)) {
            return refused("host", "the Host header");
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = only(headers, header::ORIGIN).and_then(|origin| {
            let rest = origin.strip_prefix("http://");
            rest.or_else(|| origin.strip_prefix("https://"))
        });
        if origin.is_some_and(|origin| is_ours(origin, hosts)) {
            return Ok(());
        }
        refused("origin", "the Origin header")
    }

    /// RFC 9728: how to get a token for the server as its client names it.
    pub fn metadata(&self, headers: &HeaderMap) -> Option<Value> {
        let resource = format!("{}/mcp", origin_of(headers));
        self.access.metadata(&resource)
    }

    /// RFC 6750 and RFC 9728: what is missing, and where to learn how to get it.
    fn challenge(&self, headers: &HeaderMap, stranger: &Stranger) -> Refused {
        let status = match stranger.lacks {
            Lack::Token | Lack::GoodToken => StatusCode::UNAUTHORIZED,
            Lack::Scope => StatusCode::FORBIDDEN,
            Lack::Answer => StatusCode::SERVICE_UNAVAILABLE,
        };
        let header = match stranger.lacks {
            Lack::Answer => Some((header::RETRY_AFTER, HeaderValue::from_static("30"))),
            Lack::Token | Lack::GoodToken | Lack::Scope => {
                let challenge = HeaderValue::from_str(&self.challenge_words(headers, stranger));
                challenge
                    .ok()
                    .map(|value| (header::WWW_AUTHENTICATE, value))
            }
        };
        Refused {
            status,
            reason: stranger.lacks.as_str(),
            words: stranger.words.to_owned(),
            header,
        }
    }

    fn challenge_words(&self, headers: &HeaderMap, stranger: &Stranger) -> String {
        let mut challenge = "Bearer realm=\"callgate\"".to_owned();
        if stranger.lacks != Lack::Token {
            let (error, words) = (stranger.lacks.as_str(), stranger.words);
            challenge.push_str(&format!(
                ", error=\"{error}\", error_description=\"{words}\""
            ));
        }
        if let Some(document) = self.metadata(headers) {
            let origin = origin_of(headers);
            challenge.push_str(&format!(
                ", resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\""
            ));
            let scopes = document.get("scopes_supported").and_then(Value::as_array);
            let scopes: Vec<&str> = scopes
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            challenge.push_str(&format!(", scope=\"{}\"", scopes.join(" ")));
        }
        challenge
    }
}

/// Ready when the token that a stream was opened with is good no longer. It may be open for
/// days, and a token be revoked or expire meanwhile.
pub async fn no_longer_good(access: Arc<dyn Access>, bearer: Option<BearerToken>) {
    let Some(bearer) = bearer else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        match access.recognise(Some(bearer.reveal())).await {
            Ok(_) => {}
            Err(stranger) if stranger.lacks == Lack::Answer => {}
            Err(_) => return,
        }
    }
}

/// The bearer token of a request, kept for later.
pub fn kept_bearer(headers: &HeaderMap) -> Option<BearerToken> {
    bearer(headers).map(BearerToken::new)
}

/// The value of a header that came once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// The bearer token; the empty one, which is nobody's, if several came.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    if headers.get_all(header::AUTHORIZATION).iter().count() > 1 {
        return Some("");
    }
    let (scheme, token) = only(headers, header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The server's own address as the client wrote it.
fn origin_of(headers: &HeaderMap) -> String {
    let host = only(headers, header::HOST).unwrap_or("localhost");
    let forwarded = headers
        .get("x-forwarded-proto")
        .and_then(|h| h.to_str().ok());
    let scheme = if forwarded == Some("https") {
        "https"
    } else {
        "http"
    };
    format!("{scheme}://{host}")
}

/// True for `localhost`, loopback addresses, and what was configured; ports do not matter
/// unless configured with one.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => name,
        _ => host,
    };
    let loopback = ["localhost", "127.0.0.1", "[::1]"];
    loopback
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
        || hosts
            .iter()
            .any(|known| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let hosts = ["gate.example".to_owned(), "other.example:8443".to_owned()];
        for ours in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:7411",
            "[::1]:7411",
            "[::1]",
            "gate.example",
            "gate.example:443",
            "other.example:8443",
        ] {
            assert!(is_ours(ours, &hosts), "{ours}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "other.example",
            "localhost:",
            "localhost/",
            "user@localhost",
        ] {
            assert!(!is_ours(foreign, &hosts), "{foreign}");
        }
    }

    #[test]
    fn bearers() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["Basic abc"]), None);
        assert_eq!(read(&["bearer  abc "]), Some("abc".to_owned()));
        assert_eq!(read(&["Bearer a", "Bearer b"]), Some(String::new()));
    }
}
