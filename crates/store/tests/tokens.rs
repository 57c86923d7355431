//! Bearer tokens: kept hashed, shared by all processes, gone at once when revoked.

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use callgate_call::{BearerToken, RateLimit, Scope, Tier};
use callgate_store::{Options, Store, StoreError, TOKENS_MAX, TokenGrant, TokenState, Tuning};

fn scope() -> Scope {
    Scope {
        is_mcp: false,
        is_only: false,
        client: None,
        tools: vec!["files/*".to_owned()],
        tier_max: Tier::Write,
        rate: Some(RateLimit {
            per_second: 0.1,
            burst: 2,
        }),
    }
}

fn create(store: &Store, name: &str, life: Option<Duration>) -> Result<BearerToken, StoreError> {
    let scope = scope();
    store.create_token(TokenGrant {
        name,
        scope: &scope,
        life,
    })
}

fn state(store: &Store, token: &BearerToken) -> Option<TokenState> {
    store.token(token).unwrap().map(|token| token.state)
}

/// True if a file below holds the text.
fn holds(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, text);
        }
        let bytes = std::fs::read(path).unwrap();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[test]
fn a_token_is_known_by_its_hash_until_it_is_revoked() {
    let folder = Folder::new("tokens");
    let (store, other) = (open(&folder), open(&folder));
    let token = create(&store, "ci", None).unwrap();
    let known = other.token(&token).unwrap().unwrap();
    assert_eq!((known.name.as_str(), &known.scope), ("ci", &scope()));
    assert_eq!(state(&other, &BearerToken::new("cgt_00")), None);
    assert_eq!(state(&other, &BearerToken::new("")), None);
    let secret = token.reveal().strip_prefix("cgt_").unwrap();
    assert!(!holds(&folder.0, secret), "the secret is on disk");
    assert_eq!(format!("{token:?}"), "…");

    assert!(create(&store, "ci", None).is_err(), "one of a name");
    store.revoke_token("ci").unwrap();
    assert!(matches!(
        state(&other, &token),
        Some(TokenState::Revoked { .. })
    ));
    assert!(store.revoke_token("nobody").is_err());
    let again = create(&other, "ci", None).unwrap();
    assert_eq!(state(&store, &again), Some(TokenState::Active));
    assert_eq!(state(&store, &token), None, "the old one is forgotten");
    assert_eq!(
        kinds(&store),
        ["token.create", "token.revoke", "token.create"]
    );
    assert_good(&store);
}

#[test]
fn a_token_ends_with_its_life() {
    let folder = Folder::new("token-life");
    let clock = clock();
    let store = open_with(&folder, Options::default(), &clock);
    let token = create(&store, "short", Some(Duration::from_secs(60))).unwrap();
    clock.advance(Duration::from_millis(59_999));
    assert_eq!(state(&store, &token), Some(TokenState::Active));
    clock.advance(Duration::from_millis(1));
    assert_eq!(state(&store, &token), Some(TokenState::Expired));
    create(&store, "short", None).unwrap();
}

/// Folded into the watermark, and found again without the index.
#[test]
fn tokens_outlive_folds_and_the_index() {
    let folder = Folder::new("token-fold");
    let options = Options {
        tuning: Tuning {
            fold_bytes: 1,
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = open_with(&folder, options.clone(), &clock());
    let (kept, revoked) = (
        create(&store, "a", None).unwrap(),
        create(&store, "b", None),
    );
    store.revoke_token("b").unwrap();
    store.close().unwrap();
    assert!(store.stats().folds > 0);
    for index_is_there in [true, false] {
        if !index_is_there {
            std::fs::remove_file(folder.0.join("state.db")).unwrap();
        }
        let store = open_with(&folder, options.clone(), &clock());
        assert_eq!(state(&store, &kept), Some(TokenState::Active));
        assert!(matches!(
            state(&store, revoked.as_ref().unwrap()),
            Some(TokenState::Revoked { .. })
        ));
        assert_eq!(store.tokens().unwrap().len(), 2);
        assert_good(&store);
    }
}

#[test]
fn tokens_are_bounded() {
    let folder = Folder::new("token-bound");
    let store = open(&folder);
    for number in 0..TOKENS_MAX {
        create(&store, &format!("t{number}"), None).unwrap();
    }
    assert!(create(&store, "more", None).is_err());
    store.revoke_token("t7").unwrap();
    create(&store, "more", None).unwrap();
    assert_eq!(store.tokens().unwrap().len(), TOKENS_MAX);
    for name in ["", "a b", "a/b", "é", &"x".repeat(65)] {
        assert!(create(&store, name, None).is_err(), "{name:?}");
    }
    assert!(create(&store, "zero", Some(Duration::ZERO)).is_err());
}

/// G-10: one for the workspace, for its owner alone.
#[test]
fn the_owners_token_is_made_once() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("token-owner");
    let (token, fresh) = open(&folder).owner_token().unwrap();
    assert!(fresh && token.reveal().starts_with("cgo_"));
    let (same, fresh) = open(&folder).owner_token().unwrap();
    assert!(!fresh && same.reveal() == token.reveal());
    let path = folder.0.join("token");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&path, "").unwrap();
    assert!(
        open(&folder).owner_token().is_err(),
        "an empty token is none"
    );
}
