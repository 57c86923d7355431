//! JSON Web Tokens of one configured issuer: whose signature counts, what the claims must say,
//! and what their scopes allow. Where the keys come from is `keys.rs`.
//!
//! Only asymmetric algorithms exist here, and a key is used with an algorithm of its own type
//! alone: `none` and an HMAC with the public key have nothing to hold on to. What went wrong
//! is told in general words; the token's text is told nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_call::{Caller, Clock, RateLimit, Scope, Tier, Timestamp};
use callgate_wires::json;
use serde_json::{Map, Value, json};

use super::fetch::Fetch;
use super::keys::{Keys, NoKey};
use super::{Identity, Lack, Stranger};

/// How far the issuer's clock may be from ours.
const LEEWAY_MS: u64 = 30_000;
/// Longest `sub` that can be a caller's name.
const SUB_BYTES_MAX: usize = 256;
/// Depth of header and claims.
const DEPTH_MAX: usize = 16;
/// Patterns one token may bring.
const PATTERNS_MAX: usize = 64;

/// Which tokens count, and for what.
#[derive(Clone, Debug)]
pub struct IssuerSettings {
    /// `iss`, exactly.
    pub issuer: String,
    /// `aud` must hold this.
    pub audience: String,
    /// Where its keys are; else its discovery document says.
    pub jwks_url: Option<String>,
    /// What counts of the algorithms; all of ours if none is named.
    pub algorithms: Vec<Algorithm>,
    /// The issuer's scope words as ours; where empty, it is to use ours itself.
    pub scopes: BTreeMap<String, Vec<String>>,
    /// Calls a second, for each caller.
    pub rate: Option<RateLimit>,
    /// Certificates (DER) of authorities that vouch for the issuer's server.
    pub roots: Vec<Vec<u8>>,
}

/// A signature's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA, PKCS #1 v1.5, SHA-256.
    Rs256,
    /// RSA, PKCS #1 v1.5, SHA-384.
    Rs384,
    /// RSA, PKCS #1 v1.5, SHA-512.
    Rs512,
    /// RSA, PSS, SHA-256.
    Ps256,
    /// ECDSA on P-256, SHA-256.
    Es256,
    /// ECDSA on P-384, SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// The algorithm of a name; `None` for all that is not asymmetric.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// One issuer.
pub struct Issuer {
    settings: IssuerSettings,
    keys: Arc<Keys>,
    clock: Arc<dyn Clock>,
}

impl Issuer {
    /// Believes what `settings` says. The error is for whoever wrote them.
    pub fn new(settings: IssuerSettings, clock: Arc<dyn Clock>) -> Result<Self, String> {
        for word in settings.scopes.values().flatten() {
            Grant::read(word).ok_or_else(|| {
                format!("scope `{word}`: ours are `tools:PATTERN` and `tier:0` to `tier:3`")
            })?;
        }
        if settings.audience.is_empty() {
            return Err("audience is empty".to_owned());
        }
        let fetch = Fetch::new(&settings.roots);
        let keys = Keys::new(
            &settings.issuer,
            settings.jwks_url.as_deref(),
            fetch,
            Arc::clone(&clock),
        )?;
        Ok(Self {
            settings,
            keys: Arc::new(keys),
            clock,
        })
    }

    /// RFC 9728.
    pub(super) fn metadata(&self, resource: &str) -> Value {
        let scopes: Vec<&str> = if self.settings.scopes.is_empty() {
            vec!["tools:*", "tier:0", "tier:1", "tier:2", "tier:3"]
        } else {
            self.settings.scopes.keys().map(String::as_str).collect()
        };
        json!({
            "resource": resource,
            "authorization_servers": [self.settings.issuer],
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": "Callgate",
        })
    }

    /// Who brings this token.
    pub(super) async fn recognise(&self, token: &str) -> Result<Identity, Stranger> {
        let signed = Signed::read(token).ok_or(MALFORMED)?;
        let counts = &self.settings.algorithms;
        if !counts.is_empty() && !counts.contains(&signed.algorithm) {
            return Err(MALFORMED);
        }
        // Before the signature: a foreign token must not make us ask our issuer for keys.
        self.check_origin(&signed.claims)?;
        self.check_time(&signed.claims, self.clock.now())?;
        let key = self.keys.find(signed.kid.as_deref(), signed.algorithm);
        let key = key.await.map_err(|no_key| match no_key {
            NoKey::Unknown => UNSIGNED,
            NoKey::Unreachable => Stranger {
                lacks: Lack::Answer,
                words: "the issuer's keys can not be had just now",
            },
        })?;
        if !key.verifies(signed.algorithm, signed.message, &signed.signature) {
            return Err(UNSIGNED);
        }
        self.identity(&signed.claims)
    }

    fn check_origin(&self, claims: &Map<String, Value>) -> Result<(), Stranger> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(&self.settings.issuer) {
            return Err(not_good("the token is of another issuer"));
        }
        let ours = |audience: &Value| audience.as_str() == Some(&self.settings.audience);
        let is_ours = match claims.get("aud") {
            Some(Value::Array(several)) => several.iter().any(ours),
            Some(one) => ours(one),
            None => false,
        };
        if is_ours {
            Ok(())
        } else {
            Err(not_good("the token is for another audience"))
        }
    }

    /// A token without an end is not taken: nobody could take it back.
    fn check_time(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<(), Stranger> {
        let expires = seconds(claims, "exp")?.ok_or(MALFORMED)?;
        if now.0 >= expires.saturating_add(LEEWAY_MS) {
            return Err(not_good("the token has expired"));
        }
        match seconds(claims, "nbf")? {
            Some(from) if now.0.saturating_add(LEEWAY_MS) < from => {
                Err(not_good("the token is not good yet"))
            }
            _ => Ok(()),
        }
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, Stranger> {
        let sub = claims.get("sub").and_then(Value::as_str).filter(|sub| {
            !sub.is_empty() && sub.len() <= SUB_BYTES_MAX && !sub.chars().any(char::is_control)
        });
        let sub = sub.ok_or(not_good("the token names nobody"))?;
        let scope = self.scope(&words(claims)).ok_or(Stranger {
            lacks: Lack::Scope,
            words: "the token's scopes allow no tool",
        })?;
        Ok(Identity {
            caller: Caller::named(&format!("sub:{sub}")),
            scope: Some(Arc::new(scope)),
            has_owner_token: false,
        })
    }

    /// What the words allow together: the tools of all, up to the highest tier, which is 0
    /// unless one says more. `None` if they allow no tool.
    fn scope(&self, words: &[&str]) -> Option<Scope> {
        let mapped = &self.settings.scopes;
        let ours: Vec<&str> = if mapped.is_empty() {
            words.to_vec()
        } else {
            let known = words.iter().filter_map(|word| mapped.get(*word));
            known.flatten().map(String::as_str).collect()
        };
        let mut scope = Scope {
            is_mcp: false,
            is_only: false,
            client: None,
            tools: Vec::new(),
            tier_max: Tier::Safe,
            rate: self.settings.rate,
        };
        for grant in ours.iter().filter_map(|word| Grant::read(word)) {
            match grant {
                Grant::Tools(pattern) => scope.tools.push(pattern.to_owned()),
                Grant::Tier(tier) => scope.tier_max = scope.tier_max.max(tier),
            }
        }
        scope.tools.truncate(PATTERNS_MAX);
        (!scope.tools.is_empty()).then_some(scope)
    }
}

/// One scope word of ours.
enum Grant<'a> {
    Tools(&'a str),
    Tier(Tier),
}

impl<'a> Grant<'a> {
    fn read(word: &'a str) -> Option<Self> {
        if let Some(pattern) = word.strip_prefix("tools:") {
            return (!pattern.is_empty()).then_some(Self::Tools(pattern));
        }
        let number = word.strip_prefix("tier:")?.parse().ok()?;
        Tier::from_number(number).map(Self::Tier)
    }
}

/// The scope words: RFC 9068's `scope`, or `scp` as some issuers have it.
fn words(claims: &Map<String, Value>) -> Vec<&str> {
    let said = claims.get("scope").or_else(|| claims.get("scp"));
    match said {
        Some(Value::String(words)) => words.split_ascii_whitespace().collect(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A time of the claims in milliseconds.
fn seconds(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, Stranger> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            // Beyond the largest number it becomes the largest.
            Some(seconds) if seconds >= 0.0 => Ok(Some((seconds * 1000.0) as u64)),
            _ => Err(MALFORMED),
        },
    }
}

/// A token in its parts, none of them believed yet.
struct Signed<'a> {
    algorithm: Algorithm,
    kid: Option<String>,
    claims: Map<String, Value>,
    message: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Signed<'a> {
    fn read(token: &'a str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let object = |part: &str| match json::parse(&URL_SAFE_NO_PAD.decode(part).ok()?, DEPTH_MAX)
        {
            Ok(Value::Object(object)) => Some(object),
            _ => None,
        };
        let header = object(header)?;
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        // What must be understood and is not makes a token no token (RFC 7515, 4.1.11).
        if header.contains_key("crit") || header.contains_key("b64") {
            return None;
        }
        // Tokens of other kinds (identity, logout) are signed by the same keys.
        let is_access = |kind: &str| {
            let kind = kind.strip_prefix("application/").unwrap_or(kind);
            kind.eq_ignore_ascii_case("jwt") || kind.eq_ignore_ascii_case("at+jwt")
        };
        if header.contains_key("typ") && !text("typ").is_some_and(is_access) {
            return None;
        }
        Some(Self {
            algorithm: Algorithm::parse(text("alg")?)?,
            kid: text("kid").map(str::to_owned),
            claims: object(claims)?,
            message: message.as_bytes(),
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }
}

const MALFORMED: Stranger = not_good("the token is not one that can be checked here");
const UNSIGNED: Stranger = not_good("the token's signature is not one of the issuer's");

const fn not_good(words: &'static str) -> Stranger {
    Stranger {
        lacks: Lack::GoodToken,
        words,
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod properties;

#[cfg(test)]
mod tests {
    use super::properties::{check_token, issuer};
    use super::*;

    #[test]
    fn scopes() {
        let ours = issuer(&[]).ok().unwrap();
        let read = |issuer: &Issuer, words: &[&str]| {
            let scope = issuer.scope(words)?;
            Some((scope.tools.join(" "), scope.tier_max.number()))
        };
        let wanted = |tools: &str, tier| Some((tools.to_owned(), tier));
        assert_eq!(read(&ours, &[]), None);
        assert_eq!(read(&ours, &["tier:3"]), None);
        assert_eq!(read(&ours, &["tools:"]), None);
        assert_eq!(read(&ours, &["openid", "tools:a/*"]), wanted("a/*", 0));
        assert_eq!(
            read(&ours, &["tools:a", "tier:1", "tools:b", "tier:9"]),
            wanted("a b", 1)
        );
        let mapped = issuer(&[("mcp:write", &["tools:*", "tier:1"])])
            .ok()
            .unwrap();
        assert_eq!(read(&mapped, &["mcp:write"]), wanted("*", 1));
        assert_eq!(read(&mapped, &["tools:*", "tier:3"]), None);
        assert!(issuer(&[("x", &["everything"])]).is_err());
    }

    /// G-10: at, just below and just past the edges.
    #[test]
    fn times() {
        let issuer = issuer(&[]).ok().unwrap();
        let check = |claims: Value, now_ms: u64| {
            let claims = claims.as_object().cloned().unwrap();
            issuer.check_time(&claims, Timestamp(now_ms)).is_ok()
        };
        let (exp, leeway) = (json!({ "exp": 100 }), LEEWAY_MS);
        assert!(check(exp.clone(), 99_999 + leeway));
        assert!(!check(exp, 100_000 + leeway));
        let nbf = json!({ "exp": 1000, "nbf": 100 });
        assert!(check(nbf.clone(), 100_000 - leeway));
        assert!(!check(nbf, 99_999 - leeway));
        for claims in [
            json!({}),
            json!({ "exp": "1000" }),
            json!({ "exp": -1 }),
            json!({ "exp": null }),
        ] {
            assert!(!check(claims.clone(), 0), "{claims}");
        }
        assert!(check(json!({ "exp": 1e300 }), 0));
    }

    #[test]
    fn headers() {
        let read = |header: Value| {
            let header = URL_SAFE_NO_PAD.encode(header.to_string());
            Signed::read(&format!("{header}.e30.AA")).is_some()
        };
        assert!(read(json!({ "alg": "ES256" })));
        assert!(read(json!({ "alg": "RS256", "typ": "at+jwt", "kid": "1" })));
        for header in [
            json!({}),
            json!({ "alg": "none" }),
            json!({ "alg": "HS256" }),
            json!({ "alg": "ES256", "crit": ["exp"] }),
            json!({ "alg": "ES256", "typ": "logout+jwt" }),
            json!({ "alg": "ES256", "typ": 1 }),
        ] {
            assert!(!read(header.clone()), "{header}");
        }
        for token in ["", ".", "..", "a.b.c", "e30.e30", "e30.e30.", "e30..e30"] {
            assert!(Signed::read(token).is_none(), "{token}");
        }
    }

    /// Seeded mutations, 100,000: a token is read in one way only, so that what was signed is
    /// what was read, and none panics on the way to its signature.
    #[test]
    fn tokens_that_were_tampered_with() {
        use callgate_testing::{Random, mutant};
        const CASES: usize = 100_000;
        let token = |header: &str, claims: &str| {
            let parts = [header, claims, "signature"].map(|part| URL_SAFE_NO_PAD.encode(part));
            parts.join(".").into_bytes()
        };
        let headers = [
            r#"{"alg":"ES256","kid":"1","typ":"at+jwt"}"#,
            r#"{"alg":"EdDSA","typ":"application/JWT"}"#,
        ];
        let claims = [
            r#"{"iss":"https://issuer","aud":["us","x"],"exp":2000000,"nbf":1,"sub":"a","scope":"tools:* tier:2"}"#,
            r#"{"iss":"https://issuer","aud":"us","exp":1e9,"sub":"b","scp":["tools:a/*","tier:9"]}"#,
        ];
        let words: [&[u8]; 19] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b"\"",
            b"null",
            b"-1",
            b"1e309",
            b"\\ud800",
            b"\xff",
            b"\"alg\":\"none\"",
            b"\"alg\":\"HS256\"",
            b"\"crit\":[]",
            b"\"exp\":0",
            b"\"aud\":\"us\"",
            b"..",
            b"tools:",
            b"\n",
        ];
        let whole: Vec<Vec<u8>> = headers
            .iter()
            .flat_map(|header| claims.map(|claims| token(header, claims)))
            .collect();
        let whole: Vec<&[u8]> = whole.iter().map(Vec::as_slice).collect();
        let (headers, claims) = (headers.map(str::as_bytes), claims.map(str::as_bytes));
        let issuer = issuer(&[]).ok().unwrap();
        let mut random = Random::new("tokens");
        let mut read = 0;
        for _ in 0..CASES {
            // Inside the parts, or across them.
            let bytes = if random.one_in(2) {
                let header = mutant(&mut random, &headers, &words);
                let claims = mutant(&mut random, &claims, &words);
                let parts = [header, claims, b"signature".to_vec()];
                parts
                    .map(|part| URL_SAFE_NO_PAD.encode(part))
                    .join(".")
                    .into_bytes()
            } else {
                mutant(&mut random, &whole, &words)
            };
            let text = String::from_utf8_lossy(&bytes);
            read += usize::from(check_token(&issuer, &text));
        }
        eprintln!("{read} of {CASES} read");
        assert!(read > 0 && read < CASES);
    }
}
