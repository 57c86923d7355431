//! Properties of private parsers, for the fuzz targets. Each function panics if its property is
//! broken.

use std::cell::OnceCell;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::access::jwt::properties::{check_token, issuer};
use crate::access::jwt::{Algorithm, Issuer};
use crate::access::keys::Key;
use crate::tcp::properties::{Last, read_as_by_hyper};

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    static ISSUER: OnceCell<Issuer> = const { OnceCell::new() };
}

/// A request that is read as hyper reads it, after `earlier` on the same connection.
pub fn short_request(earlier: &[u8], request: &[u8], cut: usize) {
    let mut last = Last::default();
    // Refused or not: a request that is hyper's leaves no head behind.
    let _ = last.take(earlier);
    RUNTIME.with(|runtime| {
        let runtime = runtime.get_or_init(|| {
            let runtime = Builder::new_current_thread().build();
            runtime.expect("a runtime without drivers")
        });
        runtime.block_on(read_as_by_hyper(request, &mut last, cut));
    });
}

/// A bearer token that is read in one way only.
pub fn bearer_token(text: &str) {
    ISSUER.with(|kept| {
        let kept = kept.get_or_init(|| issuer(&[]).expect("settings that are good"));
        check_token(kept, text);
    });
}

/// A public key of a key set, and a signature that it checks.
pub fn public_key(key: &Value, message: &[u8], signature: &[u8]) {
    let Some(key) = Key::read(key) else { return };
    let all = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::EdDsa,
    ];
    for algorithm in all {
        let _ = key.verifies(algorithm, message, signature);
    }
}
