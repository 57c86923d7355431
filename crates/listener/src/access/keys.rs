//! An issuer's public keys: fetched when first needed, kept for a while, fetched again when a
//! key is named that is not among them. Pinned to that issuer: its discovery document must
//! name the issuer itself, and redirections are not followed.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_call::{Clock, Timestamp};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use tokio::sync::Mutex;

use super::fetch::{self, Address, Fetch};
use super::jwt::Algorithm;

/// Keys that are kept; those beyond are not looked at.
const KEYS_MAX: usize = 64;
/// After so long they are fetched again at the next use.
const FRESH_FOR: Duration = Duration::from_secs(3600);
/// Without a fresh set the old one is good so long.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);
/// Strangers that name keys nobody knows make us ask no more often than this.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Largest number of an RSA key, as bytes.
const RSA_BYTES_MAX: usize = 1024;

/// The keys of one issuer.
pub(super) struct Keys {
    issuer: String,
    jwks: Option<Address>,
    discovery: Vec<Address>,
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    kept: ArcSwapOption<Kept>,
    /// When the issuer was last asked. Held while it is asked, across awaits, so that one asks for
    /// all. No other lock is held with it: keys are looked up without one.
    asked: Mutex<Option<Timestamp>>,
}

struct Kept {
    keys: Vec<Arc<Key>>,
    at: Timestamp,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has none like that.
    Unknown,
    /// The issuer does not answer.
    Unreachable,
}

impl Keys {
    pub fn new(
        issuer: &str,
        jwks_url: Option<&str>,
        fetch: Fetch,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let named = fetch::address(issuer).map_err(|reason| format!("issuer: {reason}"))?;
        let jwks = match jwks_url {
            None => None,
            Some(url) => Some(fetch::address(url).map_err(|reason| format!("jwks_url: {reason}"))?),
        };
        Ok(Self {
            issuer: issuer.to_owned(),
            jwks,
            // RFC 8414 puts its word before the issuer's path, OpenID Connect behind it.
            discovery: vec![
                named.with_path(|path| format!("/.well-known/oauth-authorization-server{path}")),
                named.with_path(|path| format!("{path}/.well-known/openid-configuration")),
            ],
            fetch,
            clock,
            kept: ArcSwapOption::empty(),
            asked: Mutex::new(None),
        })
    }

    /// The key a token is signed by, if what it says is true.
    pub async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<Key>, NoKey> {
        if let Some(key) = self.look(kid, algorithm, FRESH_FOR) {
            return Ok(key);
        }
        let (keys, wanted) = (Arc::clone(self), kid.map(str::to_owned));
        // A task of its own: a client that hangs up must not take everybody's keys with it.
        let refreshed = tokio::spawn(async move {
            keys.refresh(wanted.as_deref(), algorithm).await;
        });
        let _ = refreshed.await;
        match self.look(kid, algorithm, GOOD_FOR) {
            Some(key) => Ok(key),
            None if self.has_kept(GOOD_FOR) => Err(NoKey::Unknown),
            None => Err(NoKey::Unreachable),
        }
    }

    /// Asks the issuer, if nobody did so just now.
    async fn refresh(&self, kid: Option<&str>, algorithm: Algorithm) {
        // Whoever waits here finds what the one before fetched.
        let mut asked = self.asked.lock().await;
        let now = self.clock.now();
        if self.look(kid, algorithm, FRESH_FOR).is_some()
            || asked.is_some_and(|at| now.since(at) < ASK_EVERY)
        {
            return;
        }
        *asked = Some(now);
        match self.ask().await {
            Ok(keys) => self.kept.store(Some(Arc::new(Kept { keys, at: now }))),
            Err(reason) => {
                tracing::warn!(target: "callgate_doors::access::keys", issuer = self.issuer, reason, "fetch keys")
            }
        }
    }

    fn has_kept(&self, age: Duration) -> bool {
        let kept = self.kept.load();
        kept.as_ref()
            .is_some_and(|kept| self.clock.now().since(kept.at) < age)
    }

    fn look(&self, kid: Option<&str>, algorithm: Algorithm, age: Duration) -> Option<Arc<Key>> {
        let kept = self.kept.load();
        let kept = kept.as_ref()?;
        if self.clock.now().since(kept.at) >= age {
            return None;
        }
        let mut fitting = kept.keys.iter().filter(|key| {
            kid.is_none_or(|kid| key.kid.as_deref() == Some(kid)) && key.is_for(algorithm)
        });
        let first = fitting.next()?;
        // A token that names no key can mean one only where there is one.
        fitting.next().is_none().then(|| Arc::clone(first))
    }

    async fn ask(&self) -> Result<Vec<Arc<Key>>, String> {
        let jwks = match &self.jwks {
            Some(jwks) => jwks.clone(),
            None => self.discover().await?,
        };
        let set = self.fetch.json(&jwks).await?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("the key set has no `keys`")?;
        let keys = keys.iter().take(KEYS_MAX).filter_map(Key::read);
        Ok(keys.map(Arc::new).collect())
    }

    async fn discover(&self) -> Result<Address, String> {
        let mut failed = String::new();
        for address in &self.discovery {
            match self.fetch.json(address).await {
                Ok(document) => {
                    let text = |name: &str| document.get(name).and_then(Value::as_str);
                    if text("issuer") != Some(&self.issuer) {
                        return Err("the discovery document is another issuer's".to_owned());
                    }
                    let jwks = text("jwks_uri").ok_or("the discovery document has no jwks_uri")?;
                    return fetch::address(jwks);
                }
                Err(reason) => failed = reason,
            }
        }
        Err(failed)
    }
}

/// One public key.
pub(crate) struct Key {
    kid: Option<String>,
    /// The only algorithm it may be used with, if it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Key {
    /// `None` for what is no key to check signatures with, here.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let bytes = |name: &str, max: usize| {
            let bytes = URL_SAFE_NO_PAD.decode(text(name)?).ok()?;
            (bytes.len() <= max).then_some(bytes)
        };
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let point = |size: usize| {
            let (x, y) = (bytes("x", size)?, bytes("y", size)?);
            (x.len() == size && y.len() == size).then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => Material::Rsa {
                n: bytes("n", RSA_BYTES_MAX)?,
                e: bytes("e", 8)?,
            },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x", 32)?),
            _ => return None,
        };
        let algorithm = match text("alg") {
            None => None,
            Some(name) => Some(Algorithm::parse(name)?),
        };
        Some(Self {
            kid: text("kid").map(str::to_owned),
            algorithm,
            material,
        })
    }

    /// True if `algorithm` is one of this type of key.
    fn is_for(&self, algorithm: Algorithm) -> bool {
        let of_type = match self.material {
            Material::Rsa { .. } => matches!(
                algorithm,
                Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 | Algorithm::Ps256
            ),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
        };
        of_type && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// True if `signature` is this key's under `message`.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.is_for(algorithm) {
            return false;
        }
        let point = |how: &'static dyn signature::VerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(how, point)
                .verify(message, signature)
                .is_ok()
        };
        match &self.material {
            Material::P256(key) => point(&signature::ECDSA_P256_SHA256_FIXED, key),
            Material::P384(key) => point(&signature::ECDSA_P384_SHA384_FIXED, key),
            Material::Ed25519(key) => point(&signature::ED25519, key),
            Material::Rsa { n, e } => {
                // Keys below 2048 bits verify nothing.
                let how = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return false,
                };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(how, message, signature).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use callgate_call::ManualClock;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const N: &str = concat!(
        "tp15UjmdWA9mN1TAL8SANmWveQOqxQMVQO_kyJt0-5dDAdzmkfvi8q5mR2ARuH6Riwdf3y1M0NNE8WxX",
        "LHEFeUJim-nfxSfzzyZOfMun3B0q4jeWbTfqYUTDu5NlO9zmTKONtrl9949XROB2gLaHIe1IlV-NFL_A",
        "zdVBZE_swpG4kK97GC0P8tL-Qt7cJv304HJpreVPikbmXLI9c9FWrSlhzhdzA-u_S7szKJyJ--bo4DQ-",
        "10xtTLDNFpwNBqRKlM9u-srwed49RZfE8YdhX1pZoQL8NP0UCKurr3jV69mv84PL1LK7BhkdCEntivkj",
        "qp9Jvsuv5a3JYjYtt4h7Pw",
    );
    const PKCS1: &str = concat!(
        "qcxlE9o6y-q5jponUUac83p5pNK6S7U6ORsaq0nHhP3iutRovAqJO1qwCPcnYltUsgroBsr7NtevJQj8",
        "E-3_EAnaz8Bwdl-DbD2mZd8WRiDM35FMocSTHc8CUAc3nDDa2zonQd_USbfghSEbt9K6oWwK-zBkAvVA",
        "FKsr546SCc695JARCoCoqr-xsm9QrMJpl5EHUXatLWFlFjOyM5_Ru8dhjGkSiEZV-GfkosHDhl0AxMoa",
        "b4pZAH_1rA1UFjEGYblkOITBvZ7YJHqOg-dc1rPN3wwSav7CP3cJJIswCafFV49HhYbAndTKr3Y3_DOL",
        "SDdNibvzS8vLOkOeXYoBSQ",
    );
    const PSS: &str = concat!(
        "tjpuZoFsBK_tHy1tRskCDWnTmePrwULJgSXvf2HOpOG3zSNsS5XngQlLOUpJ8kkt_qVfVj_u3pR8eXnI",
        "tG9t-bfv10YIS-dpwzZpgdDnw7PPZy05cgiSLRmmKP4aex-EMJYZ0eRduSuL_sho21O6-A99MJ_LA2P1",
        "MkQ0KijdeUcJbtfassRHk-Fi-bsVlIi-8yUdz7vv5HV9UaQ38vnsyVhdc5lF3q7CVpS6e9ZgRhf5p3p3",
        "ivUf0G_2o_Zr9oGAMawUSWOb4lBikUP-DLBUvAisylggCFNYwQ6tsK3Tg0OAedRN5TEnUWv1beoZh2Yl",
        "CqfqJdQO2UUkJ39vFqU0Kw",
    );

    fn signature(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    #[test]
    fn rsa_signatures() {
        let key = Key::read(&json!({ "kty": "RSA", "n": N, "e": "AQAB" })).unwrap();
        let (pkcs1, pss) = (signature(PKCS1), signature(PSS));
        assert!(key.verifies(Algorithm::Rs256, b"callgate", &pkcs1));
        assert!(key.verifies(Algorithm::Ps256, b"callgate", &pss));
        assert!(!key.verifies(Algorithm::Rs256, b"callgatf", &pkcs1));
        assert!(!key.verifies(Algorithm::Rs256, b"callgate", &pss));
        assert!(!key.verifies(Algorithm::Rs384, b"callgate", &pkcs1));
        assert!(!key.verifies(Algorithm::Es256, b"callgate", &pkcs1));
        assert!(!key.verifies(Algorithm::Rs256, b"callgate", b""));
        let only = json!({ "kty": "RSA", "n": N, "e": "AQAB", "alg": "PS256" });
        let only = Key::read(&only).unwrap();
        assert!(!only.verifies(Algorithm::Rs256, b"callgate", &pkcs1));
        assert!(only.verifies(Algorithm::Ps256, b"callgate", &pss));
    }

    #[test]
    fn what_is_no_key() {
        for value in [
            json!({}),
            json!({ "kty": "oct", "k": "AAAA" }),
            json!({ "kty": "RSA", "n": N }),
            json!({ "kty": "RSA", "n": N, "e": "AQAB", "use": "enc" }),
            json!({ "kty": "RSA", "n": N, "e": "AQAB", "alg": "HS256" }),
            json!({ "kty": "EC", "crv": concat!("P-", "256"), "x": "AAAA", "y": "AAAA" }),
            json!({ "kty": "EC", "crv": "secp256k1", "x": N, "y": N }),
        ] {
            assert!(Key::read(&value).is_none(), "{value}");
        }
    }

    /// An issuer on a socket: its discovery names `issuer`, its set is `kids`.
    async fn issuer(
        named: Option<&str>,
        kids: Arc<std::sync::Mutex<Vec<&'static str>>>,
    ) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let named = named.unwrap_or(&address).to_owned();
        let asked = Arc::new(AtomicUsize::new(0));
        let (at, count) = (address.clone(), Arc::clone(&asked));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let bytes = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..bytes]).into_owned();
                let key = |kid: &&str| json!({ "kty": "RSA", "n": N, "e": "AQAB", "kid": kid });
                let (status, body) = if head.starts_with("GET /jwks ") {
                    count.fetch_add(1, Ordering::SeqCst);
                    let keys: Vec<Value> = kids.lock().unwrap().iter().map(key).collect();
                    (
                        if keys.is_empty() { 500 } else { 200 },
                        json!({ "keys": keys }),
                    )
                } else if head.starts_with("GET /.well-known/openid-configuration ") {
                    let jwks = format!("{at}/jwks");
                    (200, json!({ "issuer": named, "jwks_uri": jwks }))
                } else {
                    (404, json!({}))
                };
                let body = body.to_string();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (address, asked)
    }

    async fn find(keys: &Arc<Keys>, kid: Option<&str>) -> Result<(), NoKey> {
        keys.find(kid, Algorithm::Rs256).await.map(|_| ())
    }

    fn keys_of(address: &str, jwks: Option<&str>) -> (Arc<Keys>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let fetch = Fetch::new(&[]);
        let keys = Arc::new(Keys::new(address, jwks, fetch, Arc::clone(&clock) as _).unwrap());
        (keys, clock)
    }

    /// Fetched once, again for a new key but not often, and good for a while without.
    #[tokio::test]
    async fn keys_are_kept_and_renewed() {
        let kids = Arc::new(std::sync::Mutex::new(vec!["a"]));
        let (address, asked) = issuer(None, Arc::clone(&kids)).await;
        let (keys, clock) = keys_of(&address, None);
        assert_eq!(find(&keys, Some("a")).await, Ok(()));
        assert_eq!(find(&keys, None).await, Ok(()));
        assert_eq!(find(&keys, Some("b")).await, Err(NoKey::Unknown));
        *kids.lock().unwrap() = vec!["b", "c"];
        clock.advance(ASK_EVERY - Duration::from_millis(1));
        assert_eq!(find(&keys, Some("b")).await, Err(NoKey::Unknown));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        clock.advance(Duration::from_millis(1));
        assert_eq!(find(&keys, Some("b")).await, Ok(()));
        assert_eq!(find(&keys, Some("a")).await, Err(NoKey::Unknown));
        assert_eq!(find(&keys, None).await, Err(NoKey::Unknown), "one of two");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        kids.lock().unwrap().clear();
        clock.advance(FRESH_FOR);
        assert_eq!(find(&keys, Some("b")).await, Ok(()), "the old set is good");
        clock.advance(GOOD_FOR);
        assert_eq!(find(&keys, Some("b")).await, Err(NoKey::Unreachable));
    }

    #[tokio::test]
    async fn another_issuers_document_is_not_believed() {
        let kids = Arc::new(std::sync::Mutex::new(vec!["a"]));
        let (address, asked) = issuer(Some("https://evil.example"), kids).await;
        let (keys, _) = keys_of(&address, None);
        assert_eq!(find(&keys, Some("a")).await, Err(NoKey::Unreachable));
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let (keys, _) = keys_of(&address, Some(&format!("{address}/jwks")));
        assert_eq!(find(&keys, Some("a")).await, Ok(()), "told where they are");
    }
}
