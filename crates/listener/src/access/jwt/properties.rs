//! What holds of any text that comes as a token: it is read in one way only, and what it allows is
//! in its claims. For the seeded mutations and the fuzz target `bearer-tokens`.

use callgate_call::ManualClock;

use super::*;

/// An issuer that counts until its keys are asked for.
pub(crate) fn issuer(scopes: &[(&str, &[&str])]) -> Result<Issuer, String> {
    let scopes = scopes.iter().map(|(word, ours)| {
        let ours = ours.iter().map(|word| (*word).to_owned()).collect();
        ((*word).to_owned(), ours)
    });
    let settings = IssuerSettings {
        issuer: "https://issuer".to_owned(),
        audience: "us".to_owned(),
        jwks_url: None,
        algorithms: Vec::new(),
        scopes: scopes.collect(),
        rate: None,
        roots: Vec::new(),
    };
    let clock = ManualClock::at(Timestamp(1_000_000_000));
    Issuer::new(settings, Arc::new(clock))
}

/// Panics unless what was signed is what is read. Returns whether `text` has the form of a token.
pub(crate) fn check_token(issuer: &Issuer, text: &str) -> bool {
    let Some(signed) = Signed::read(text) else {
        return false;
    };
    let signature = URL_SAFE_NO_PAD.encode(&signed.signature);
    let message = std::str::from_utf8(signed.message).expect("a part of a text");
    assert_eq!(format!("{message}.{signature}"), text);
    let now = Timestamp(1_000_000_000);
    if issuer.check_origin(&signed.claims).is_ok()
        && issuer.check_time(&signed.claims, now).is_ok()
        && let Ok(identity) = issuer.identity(&signed.claims)
    {
        assert_eq!(signed.claims["iss"], "https://issuer");
        let expires = signed.claims["exp"].as_f64().expect("it was compared");
        assert!(expires > 0.0);
        assert!(identity.scope.is_some_and(|scope| !scope.tools.is_empty()));
    }
    true
}
