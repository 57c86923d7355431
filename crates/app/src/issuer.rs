//! The issuer of `[http.jwt]`, made from what is written there.

use std::sync::Arc;

use callgate_call::Clock;
use callgate_listener::access::jwt::{Algorithm, Issuer, IssuerSettings};
use callgate_registry::config::JwtConfig;

/// The issuer that a configuration names. `roots` are certificates (DER) of the authorities
/// that may vouch for its server; without any it can be checked, and not be asked.
pub fn issuer(
    config: &JwtConfig,
    clock: Arc<dyn Clock>,
    roots: Vec<Vec<u8>>,
) -> Result<Issuer, String> {
    let failed = |reason: String| format!("[http.jwt]: {reason}");
    let algorithm = |name: &String| {
        Algorithm::parse(name)
            .ok_or_else(|| failed(format!("algorithm `{name}` is not asymmetric")))
    };
    let algorithms = config.algorithms.iter().map(algorithm);
    let rate = config.rate.map(|rate| rate.read()).transpose();
    let settings = IssuerSettings {
        issuer: config.issuer.clone(),
        audience: config.audience.clone(),
        jwks_url: config.jwks_url.clone(),
        algorithms: algorithms.collect::<Result<_, _>>()?,
        scopes: config.scopes.clone(),
        rate: rate.map_err(failed)?,
        roots,
    };
    Issuer::new(settings, clock).map_err(failed)
}

/// The authorities this machine believes.
pub fn roots() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    found.certs.iter().map(|cert| cert.to_vec()).collect()
}
