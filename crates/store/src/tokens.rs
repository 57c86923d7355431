//! Bearer tokens: who may call over HTTP, and what at most (G-10, G-11). Only a hash of a
//! token is kept. There are few, so all of them are always in memory, like trust. The owner's
//! own token is a file of the state folder.

use std::io;
use std::time::Duration;

use callgate_call::bounded::read_path_text;
use callgate_call::{BearerToken, Digest, RateLimit, Scope, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{SMALL_FILE_BYTES_MAX, Store, StoreError, records};

/// Tokens of a workspace that are not revoked; at the bound a new one is refused.
pub const TOKENS_MAX: usize = 256;
/// Longest name.
const NAME_BYTES_MAX: usize = 64;
/// Patterns of one token, and the longest.
const PATTERNS_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 256;
/// What every token begins with, so that a leaked one is recognised for what it is.
const PREFIX: &str = "cgt_";
/// What the owner's token begins with.
const OWNER_PREFIX: &str = "cgo_";
/// The owner's token, in the state folder.
const OWNER_FILE: &str = "token";

/// What a new token is good for.
#[derive(Clone, Copy, Debug)]
pub struct TokenGrant<'a> {
    /// The caller will be `token:NAME`.
    pub name: &'a str,
    /// What it allows at most.
    pub scope: &'a Scope,
    /// How long it lives; `None`: until it is revoked.
    pub life: Option<Duration>,
}

/// A token as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// What it allows at most.
    pub scope: Scope,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is expired.
    pub expires_at: Option<Timestamp>,
    /// What became of it.
    pub state: TokenState,
}

/// What became of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It is good.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked {
        /// When.
        at: Timestamp,
    },
}

/// A token as the journal and the watermark hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenDoc {
    pub(crate) name: String,
    /// BLAKE3 of the token, in hex.
    pub(crate) hash: String,
    pub(crate) tools: Vec<String>,
    pub(crate) tier_max: u8,
    /// A second, and at once.
    pub(crate) rate: Option<(f64, u32)>,
    pub(crate) created_at: u64,
    pub(crate) expires_at: Option<u64>,
    pub(crate) revoked_at: Option<u64>,
}

impl TokenDoc {
    fn token(&self, now: Timestamp) -> Token {
        let state = match (self.revoked_at, self.expires_at) {
            (Some(at), _) => TokenState::Revoked { at: Timestamp(at) },
            (None, Some(at)) if now.0 >= at => TokenState::Expired,
            (None, _) => TokenState::Active,
        };
        Token {
            name: self.name.clone(),
            scope: Scope {
                is_mcp: false,
                is_only: false,
                client: None,
                tools: self.tools.clone(),
                tier_max: Tier::from_number(u64::from(self.tier_max)).unwrap_or_default(),
                rate: self
                    .rate
                    .map(|(per_second, burst)| RateLimit { per_second, burst }),
            },
            created_at: Timestamp(self.created_at),
            expires_at: self.expires_at.map(Timestamp),
            state,
        }
    }
}

impl Store {
    /// Makes a token. It is returned once and kept nowhere.
    pub fn create_token(&self, grant: TokenGrant<'_>) -> Result<BearerToken, StoreError> {
        check(&grant).map_err(|reason| StoreError::Refused { reason })?;
        let token = fresh(PREFIX)?;
        self.commit(|inner, now| {
            let known = &inner.overlay.small.tokens;
            if let Some(same) = known.get(grant.name)
                && same.token(now).state == TokenState::Active
            {
                let reason = format!("there is a token `{}`: revoke it first", grant.name);
                return Err(StoreError::Refused { reason });
            }
            let others = known
                .values()
                .filter(|doc| doc.revoked_at.is_none() && doc.name != grant.name);
            if others.count() >= TOKENS_MAX {
                let reason = format!("there are {TOKENS_MAX} tokens: revoke some first");
                return Err(StoreError::Refused { reason });
            }
            let doc = TokenDoc {
                name: grant.name.to_owned(),
                hash: Digest::of_bytes(token.reveal().as_bytes()).to_hex(),
                tools: grant.scope.tools.clone(),
                tier_max: grant.scope.tier_max.number(),
                rate: grant.scope.rate.map(|rate| (rate.per_second, rate.burst)),
                created_at: now.0,
                expires_at: grant.life.map(|life| now.plus(life).0),
                revoked_at: None,
            };
            records::token_create(&mut inner.pending, now, doc);
            Ok(())
        })?;
        Ok(token)
    }

    /// All tokens, by name; of the revoked ones the latest.
    pub fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.read(|inner, now| {
            let known = inner.overlay.small.tokens.values();
            Ok(known.map(|doc| doc.token(now)).collect())
        })
    }

    /// Takes a token back. One that is revoked stays so.
    pub fn revoke_token(&self, name: &str) -> Result<Token, StoreError> {
        self.commit(|inner, now| {
            let Some(mut doc) = inner.overlay.small.tokens.get(name).cloned() else {
                return Err(StoreError::NotFound {
                    what: "token".to_owned(),
                });
            };
            if doc.revoked_at.is_none() {
                doc.revoked_at = Some(now.0);
                records::token_revoke(&mut inner.pending, now, doc.clone());
            }
            Ok(doc.token(now))
        })
    }

    /// The token somebody brings, if it ever was one of ours.
    pub fn token(&self, brought: &BearerToken) -> Result<Option<Token>, StoreError> {
        let brought = Digest::of_bytes(brought.reveal().as_bytes());
        self.read(|inner, now| {
            let known = inner.overlay.small.tokens.values();
            // All are compared, so that the time taken says nothing of which came close.
            let found = known.fold(None, |found, doc| {
                let hash = Digest::from_hex(&doc.hash);
                let same = hash.is_some_and(|hash| is_same(hash, brought));
                if same { Some(doc) } else { found }
            });
            Ok(found.map(|doc| doc.token(now)))
        })
    }

    /// The owner's token, and whether it was made just now. It is a file, so that its owner can
    /// look it up.
    pub fn owner_token(&self) -> Result<(BearerToken, bool), StoreError> {
        // Under the lock, so that a workspace has one.
        self.commit(|_, _| {
            let path = self.dir().join(OWNER_FILE);
            match read_path_text(&path, SMALL_FILE_BYTES_MAX) {
                Ok(text) if is_token(text.trim_end(), OWNER_PREFIX) => {
                    Ok((BearerToken::new(text.trim_end()), false))
                }
                Ok(_) => Err(StoreError::read(
                    &path,
                    io::Error::from(io::ErrorKind::InvalidData),
                )),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let token = fresh(OWNER_PREFIX)?;
                    self.replace(OWNER_FILE, &format!("{}\n", token.reveal()))?;
                    Ok((token, true))
                }
                Err(e) => Err(StoreError::read(&path, e)),
            }
        })
    }

    /// The same, if it has been made.
    #[must_use]
    pub fn known_owner_token(&self) -> Option<BearerToken> {
        let text = read_path_text(self.dir().join(OWNER_FILE), SMALL_FILE_BYTES_MAX).ok()?;
        let token = text.trim_end();
        is_token(token, OWNER_PREFIX).then(|| BearerToken::new(token))
    }

    /// Records that strangers were turned away at an HTTP door: `times` of them since the last
    /// such record, the newest for `reason`.
    pub fn refuse_strangers(&self, reason: &str, times: u64) {
        let mut inner = self.inner();
        records::http_refuse(&mut inner.pending, self.clock.now(), reason, times);
        self.bound_pending(&mut inner);
    }
}

/// Compares in the same time whatever is compared.
fn is_same(a: Digest, b: Digest) -> bool {
    blake3::Hash::from_bytes(a.0) == blake3::Hash::from_bytes(b.0)
}

fn fresh(prefix: &str) -> Result<BearerToken, StoreError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|_| StoreError::Random)?;
    let secret = Digest(secret).to_hex();
    Ok(BearerToken::new(&format!("{prefix}{secret}")))
}

fn is_token(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|secret| Digest::from_hex(secret).is_some())
}

fn check(grant: &TokenGrant<'_>) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name = grant.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_name) {
        return Err(format!(
            "a token's name is 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`"
        ));
    }
    let patterns = &grant.scope.tools;
    let is_pattern = |pattern: &String| !pattern.is_empty() && pattern.len() <= PATTERN_BYTES_MAX;
    if patterns.len() > PATTERNS_MAX || !patterns.iter().all(is_pattern) {
        return Err(format!(
            "a token has at most {PATTERNS_MAX} patterns of 1 to {PATTERN_BYTES_MAX} bytes"
        ));
    }
    if let Some(rate) = grant.scope.rate
        && !(rate.per_second.is_finite() && rate.per_second > 0.0 && rate.burst > 0)
    {
        return Err("a rate lets some calls through".to_owned());
    }
    if grant.life.is_some_and(|life| life.is_zero()) {
        return Err("a token lives longer than no time".to_owned());
    }
    Ok(())
}
