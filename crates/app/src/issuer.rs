//! The issuer of `[http.jwt]`, made from what is written there.

use std::sync::Arc;

use callgate_call::Clock;
use callgate_listener::access::jwt::{Algorithm, Issuer, IssuerSettings};
use callgate_registry::config::{JwtConfig, RateError};

/// Why `[http.jwt]` names no issuer.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// An algorithm whose keys are secrets, or that there is not.
    #[error("[http.jwt]: algorithm `{0}` is not asymmetric")]
    Algorithm(String),
    /// `rate`.
    #[error("[http.jwt]")]
    Rate(#[source] RateError),
    /// What the door does not take.
    #[error("[http.jwt]: {0}")]
    Settings(String),
}

/// The issuer that a configuration names. `roots` are certificates (DER) of the authorities
/// that may vouch for its server; without any it can be checked, and not be asked.
pub fn issuer(
    config: &JwtConfig,
    clock: Arc<dyn Clock>,
    roots: Vec<Vec<u8>>,
) -> Result<Issuer, IssuerError> {
    let algorithm =
        |name: &String| Algorithm::parse(name).ok_or_else(|| IssuerError::Algorithm(name.clone()));
    let algorithms = config.algorithms.iter().map(algorithm);
    let rate = config.rate.map(|rate| rate.read()).transpose();
    let settings = IssuerSettings {
        issuer: config.issuer.clone(),
        audience: config.audience.clone(),
        jwks_url: config.jwks_url.clone(),
        algorithms: algorithms.collect::<Result<_, _>>()?,
        scopes: config.scopes.clone(),
        rate: rate.map_err(IssuerError::Rate)?,
        roots,
    };
    Issuer::new(settings, clock).map_err(IssuerError::Settings)
}

/// The authorities this machine believes.
pub fn roots() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    found.certs.iter().map(|cert| cert.to_vec()).collect()
}
