//! Requests that are signed instead of bringing their token along: HMAC-SHA256 in hexadecimal over
//! time, nonce, method, path and the body's SHA-256, each followed by a newline. That a nonce counts
//! once is the store's to see to: workers share it, and it outlives them.

use std::time::Duration;

use axum::http::HeaderMap;
use callgate_call::Timestamp;
use callgate_text::{decode_hex, encode_hex};
use ring::{digest, hmac};

const TIME: &str = "x-machina-ts";
const NONCE: &str = "x-machina-nonce";
const SIGNATURE: &str = "x-machina-signature";

/// How far a request's time may be from ours; a nonce is remembered for as long.
const WINDOW: Duration = Duration::from_secs(60);
/// Longest nonce.
const NONCE_BYTES_MAX: usize = 128;
/// Times from this number on are milliseconds, below it seconds.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// A request does not count as signed: it is not, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsigned;

/// A signature that holds, unless it came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// What tells it apart.
    pub nonce: String,
    /// It no longer holds after this.
    pub until: Timestamp,
}

/// True if a request means to be signed.
pub fn is_signed(headers: &HeaderMap) -> bool {
    headers.contains_key(SIGNATURE)
}

/// Whose signatures count.
pub struct Signatures {
    key: hmac::Key,
}

impl Signatures {
    pub fn new(secret: &str) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
        }
    }

    /// Whether a request was signed just now, by who has the key.
    pub fn check(
        &self,
        headers: &HeaderMap,
        (method, path): (&str, &str),
        body: &[u8],
        now: Timestamp,
    ) -> Result<Signed, Unsigned> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(time), Some(nonce), Some(signature)) = (text(TIME), text(NONCE), text(SIGNATURE))
        else {
            return Err(Unsigned);
        };
        // Clients that name the version of their scheme mean this one.
        let signature = signature.strip_prefix("v1=").unwrap_or(signature);
        let signature = decode_hex(signature).ok_or(Unsigned)?;
        let signed = signed_text([time, nonce, method, path], body);
        hmac::verify(&self.key, signed.as_bytes(), &signature).map_err(|_| Unsigned)?;
        let window_ms = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        let at = time.parse().map_err(|_| Unsigned)?;
        let at = if at < MILLISECONDS_FROM {
            at * 1000
        } else {
            at
        };
        if now.0.abs_diff(at) > window_ms || nonce.is_empty() || nonce.len() > NONCE_BYTES_MAX {
            return Err(Unsigned);
        }
        Ok(Signed {
            nonce: nonce.to_owned(),
            until: Timestamp(at.saturating_add(window_ms)),
        })
    }
}

fn signed_text(head: [&str; 4], body: &[u8]) -> String {
    let body = digest::digest(&digest::SHA256, body);
    let body = encode_hex(body.as_ref());
    let lines = head.into_iter().chain([body.as_str()]);
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"{}";
    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn headers(time: &str, nonce: &str) -> HeaderMap {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let text = signed_text([time, nonce, "POST", "/enqueue"], BODY);
        let tag = hmac::sign(&key, text.as_bytes());
        let tag = encode_hex(tag.as_ref());
        let mut headers = HeaderMap::new();
        for (name, value) in [(TIME, time), (NONCE, nonce), (SIGNATURE, &tag)] {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    /// TH-150: what is signed, that each part of it counts, and for how long.
    #[test]
    fn signatures() {
        let ours = Signatures::new("secret");
        let check = |headers: &HeaderMap, method, path, body| {
            let checked = ours.check(headers, (method, path), body, NOW);
            checked.map(|signed| (signed.nonce, signed.until.0 - NOW.0))
        };
        let counts = |nonce: &str, until| Ok((nonce.to_owned(), until));
        let good = headers("1700000000", "n1");
        assert_eq!(
            signed_text(["1", "n", "POST", "/enqueue"], b"{}"),
            "1\nn\nPOST\n/enqueue\n\
             44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\n"
        );
        assert_eq!(check(&good, "GET", "/enqueue", BODY), Err(Unsigned));
        assert_eq!(check(&good, "POST", "/shutdown", BODY), Err(Unsigned));
        assert_eq!(check(&good, "POST", "/enqueue", b"[]"), Err(Unsigned));
        let mut other = good.clone();
        other.insert(NONCE, "n2".parse().unwrap());
        assert_eq!(check(&other, "POST", "/enqueue", BODY), Err(Unsigned));
        assert_eq!(check(&good, "POST", "/enqueue", BODY), counts("n1", 60_000));
        let with_prefix = |prefix: &str| {
            let mut headers = good.clone();
            let text = good[SIGNATURE].to_str().unwrap();
            headers.insert(SIGNATURE, format!("{prefix}{text}").parse().unwrap());
            check(&headers, "POST", "/enqueue", BODY)
        };
        assert_eq!(with_prefix("v1="), counts("n1", 60_000));
        for prefix in ["v0=", "v2=", "v1", "v1=v1=", "V1=", " v1="] {
            assert_eq!(with_prefix(prefix), Err(Unsigned), "{prefix}");
        }
        let in_ms = headers("1700000000001", "n3");
        assert_eq!(
            check(&in_ms, "POST", "/enqueue", BODY),
            counts("n3", 60_001)
        );
        for (time, verdict) in [
            ("1700000060", counts("n", 120_000)),
            ("1699999940", counts("n", 0)),
            ("1700000061", Err(Unsigned)),
            ("1699999939", Err(Unsigned)),
            ("soon", Err(Unsigned)),
        ] {
            let checked = check(&headers(time, "n"), "POST", "/enqueue", BODY);
            assert_eq!(checked, verdict, "{time}");
        }
        assert_eq!(decode_hex("0g"), None);
        assert_eq!(decode_hex("0"), None);
        let strangers = Signatures::new("other");
        let checked = strangers.check(
            &headers("1700000000", "n4"),
            ("POST", "/enqueue"),
            BODY,
            NOW,
        );
        assert_eq!(checked, Err(Unsigned));
    }
}
