//! Tokens of a configured issuer (JWT): who is let in, as whom, to what, and every way in which
//! one can be wrong. The issuer is a small server with a key pair of its own. G-10, G-11.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::drive::{chain, cli, verified};
use crate::support::web::{
    Heard, Issuer, Request, Web, assert_refused, code, modern, new_pair, nobody, now, owner, sign,
    signed, token, trusted,
};
use crate::support::workspace::builtins;
use crate::support::{Folder, wait_for};
use callgate_tools::MCP_DEFAULT;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use ring::signature::KeyPair as _;
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Where in the files below a text is.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

fn with_issuer(issuer: &Issuer) -> Folder {
    trusted(&format!(
        "[http.jwt]\nissuer = \"{}\"\naudience = \"https://gate.test/mcp\"",
        issuer.url
    ))
}

/// A JWT of the configured issuer is let in as its subject, to what its scopes say.
#[test]
fn a_token_of_the_issuer_opens_its_scopes() {
    let issuer = Issuer::start();
    let folder = with_issuer(&issuer);
    let web = Web::start(&folder, &[]);
    let token = |scope: &str| issuer.token(&issuer.claims(scope));
    assert_eq!(web.tools(&token("openid tools:papers/*")), ["papers_read"]);
    assert_eq!(
        web.tools(&token("tools:papers/* tools:slow tier:1")),
        ["papers_read", "papers_write", "slow"]
    );
    let mut several = issuer.claims("tools:slow");
    several["aud"] = json!(["https://other.test", "https://gate.test/mcp"]);
    assert_eq!(web.tools(&issuer.token(&several)), ["slow"]);
    let got = web.call(&token("tools:*"), "papers_read", json!({}));
    assert_eq!(got.text(), r#"{"got":{}}"#);
    assert_eq!(
        code(&web.call(&token("tools:*"), "papers_write", json!({}))),
        -32602
    );
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "keys are kept");

    for scope in ["", "openid profile", "tier:3"] {
        let reply = web.ask(Some(&token(scope)), "tools/list", json!({}));
        assert_eq!(reply.status, 403, "{reply:?}");
        let challenge = reply.header("www-authenticate").expect("a challenge");
        assert!(
            challenge.contains("error=\"insufficient_scope\""),
            "{challenge}"
        );
        assert!(challenge.contains("scope=\"tools:* tier:0"), "{challenge}");
    }
    for (path, host) in [
        ("/.well-known/oauth-protected-resource", "127.0.0.1"),
        ("/.well-known/oauth-protected-resource/mcp", "localhost"),
    ] {
        let host = format!("{host}:{}", web.port);
        let request = Request::new(&format!("GET {path}"), b"").with("host", &host);
        let reply = web.send(&request);
        assert_eq!(reply.status, 200, "{reply:?}");
        let document = reply.json();
        assert_eq!(document["resource"], format!("http://{host}/mcp"));
        assert_eq!(document["authorization_servers"], json!([issuer.url]));
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
        let scopes = document["scopes_supported"].as_array().expect("a list");
        assert!(scopes.contains(&json!("tools:*")), "{document}");
        let reply = web.send(&modern(None, "tools/list", json!({})).with("host", &host));
        assert_refused(&reply, "");
        let challenge = reply.header("www-authenticate").expect("a challenge");
        let metadata =
            format!("resource_metadata=\"http://{host}/.well-known/oauth-protected-resource/mcp\"");
        assert!(challenge.contains(&metadata), "{challenge}");
        assert!(challenge.contains("scope=\""), "{challenge}");
    }

    // The trust is taken back, and with it the word of its issuer.
    let good = token("tools:*");
    assert_eq!(web.ask(Some(&good), "tools/list", json!({})).status, 200);
    cli(&folder, &["trust", "--revoke"]).good();
    web.serve.wait_said("trust was taken back");
    wait_for("the issuer to count no more", || {
        let reply = web.ask(Some(&good), "tools/list", json!({}));
        (reply.status == 401).then_some(())
    });
    assert!(web.serve.stop().success());
    let records = chain(&folder);
    let starts = records.iter().filter(|record| record["kind"] == "start");
    let callers: Vec<&Value> = starts.map(|record| &record["caller"]).collect();
    assert_eq!(callers, ["sub:alice"]);
}

/// Every way a JWT can be wrong: 401 with `invalid_token`, the issuer is not asked again and
/// again, the next good one is let in, and no token's text is anywhere.
#[test]
fn tokens_that_are_not_the_issuers_are_refused() {
    let issuer = Issuer::start();
    let folder = with_issuer(&issuer);
    let web = Web::start(&folder, &[]);
    let other = new_pair();
    let heard = Heard::default();
    let good = issuer.claims("tools:* tier:3");
    let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "k1" });
    let claims = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().expect("an object").remove(name);
        claims
    };
    let headed = |name: &str, value: &str| {
        let mut header = header.clone();
        header[name] = json!(value);
        signed(&header, &good, |message| sign(&issuer.pair, message))
    };
    // The public key as the secret of an HMAC: as its point, and as the text of its set.
    let hs256 = |secret: &[u8]| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let header = json!({ "alg": "HS256", "kid": "k1" });
        signed(&header, &good, |message| {
            ring::hmac::sign(&key, message).as_ref().to_vec()
        })
    };
    let tampered = {
        let token = issuer.token(&issuer.claims("tools:papers/*"));
        let more = issuer.token(&good);
        let (signature, claims) = (token.rsplit('.').next(), more.split('.').nth(1));
        let head = token.split('.').next().expect("a header");
        format!(
            "{head}.{}.{}",
            claims.expect("claims"),
            signature.expect("one")
        )
    };
    let bad = [
        ("expired", issuer.token(&claims("exp", json!(now() - 3600)))),
        ("without end", issuer.token(&without("exp"))),
        ("not yet", issuer.token(&claims("nbf", json!(now() + 3600)))),
        (
            "other issuer",
            issuer.token(&claims("iss", json!("https://evil.test"))),
        ),
        (
            "issuer with a slash",
            issuer.token(&claims("iss", json!(format!("{}/", issuer.url)))),
        ),
        ("no issuer", issuer.token(&without("iss"))),
        (
            "other audience",
            issuer.token(&claims("aud", json!("https://other.test"))),
        ),
        (
            "other audiences",
            issuer.token(&claims("aud", json!(["a", "b"]))),
        ),
        ("no audience", issuer.token(&without("aud"))),
        ("nobody", issuer.token(&without("sub"))),
        (
            "a line in its name",
            issuer.token(&claims("sub", json!("a\nb"))),
        ),
        (
            "none",
            signed(&json!({ "alg": "none" }), &good, |_| Vec::new()),
        ),
        ("none, signed", headed("alg", "none")),
        (
            "hmac with the point",
            hs256(issuer.pair.public_key().as_ref()),
        ),
        ("hmac with nothing", hs256(b"")),
        ("unknown kid", headed("kid", "k2")),
        ("another algorithm", headed("alg", "RS256")),
        ("another kind", headed("typ", "logout+jwt")),
        (
            "another key",
            signed(&header, &good, |message| sign(&other, message)),
        ),
        ("no signature", signed(&header, &good, |_| Vec::new())),
        ("short signature", signed(&header, &good, |_| vec![0; 63])),
        ("zero signature", signed(&header, &good, |_| vec![0; 64])),
        ("tampered", tampered),
    ];
    for (what, token) in &bad {
        let reply = heard.keep(web.ask(Some(token), "tools/list", json!({})));
        assert_eq!(reply.status, 401, "{what}: {reply:?}");
        assert_refused(&reply, "invalid_token");
        let challenge = reply.header("www-authenticate").expect("a challenge");
        assert!(
            challenge.contains("resource_metadata=\""),
            "{what}: {challenge}"
        );
    }
    assert!(issuer.asked.load(Ordering::SeqCst) <= 2, "asked for each");
    let token = issuer.token(&good);
    assert_eq!(
        web.tools(&token).len(),
        builtins() + 4,
        "a good one is let in"
    );
    heard.keep(web.call(&token, "papers_read", json!({})));

    let mine = owner(&folder);
    let made = token_and_uses(&folder, &web, &heard);
    // The words of the first start hold the owner's token, and nothing else does.
    let said = web.serve.said().replacen(&mine, "", 1);
    assert!(web.serve.stop().success());
    let secrets: Vec<&str> = bad
        .iter()
        .map(|(_, token)| token.as_str())
        .chain([token.as_str(), made.as_str(), mine.as_str()])
        .filter_map(|token| token.rsplit(['.', '_']).next())
        .filter(|secret| secret.len() > 16)
        .collect();
    for secret in secrets {
        assert!(!heard.holds(secret), "told in a reply");
        assert!(!said.contains(secret), "told in the log");
        let files = files_with(&folder.join("state"), secret);
        let wanted: &[String] = if mine.ends_with(secret) {
            &[folder.join("state/token").display().to_string()]
        } else {
            &[]
        };
        assert_eq!(files, wanted, "on disk");
    }
    verified(&folder);
}

/// A token of the store, used well and badly.
fn token_and_uses(folder: &Folder, web: &Web, heard: &Heard) -> String {
    let made = token(folder, &["leaky"]);
    heard.keep(web.call(&made, "papers_read", json!({})));
    heard.keep(web.call(&made, "nope", json!({})));
    heard.keep(web.send(&modern(Some(&made), "tools/list", json!({})).with("host", "x")));
    cli(folder, &["token", "revoke", "leaky"]).good();
    heard.keep(web.ask(Some(&made), "tools/list", json!({})));
    let listed = cli(folder, &["token", "list"]).good();
    assert!(!listed.out.contains(&made));
    made
}

/// An issuer that does not answer is told as such, and asked no more often than it should be.
#[test]
fn a_silent_issuer_is_no_reason_to_throw_a_token_away() {
    let mut issuer = Issuer::start();
    let (port, _held) = nobody();
    issuer.url = format!("http://127.0.0.1:{port}");
    let folder = with_issuer(&issuer);
    let web = Web::start(&folder, &[]);
    let token = issuer.token(&issuer.claims("tools:*"));
    for _ in 0..3 {
        let reply = web.ask(Some(&token), "tools/list", json!({}));
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.header("retry-after").is_some());
        assert!(reply.header("www-authenticate").is_none());
    }
    assert_eq!(
        web.tools(&owner(&folder)).len(),
        MCP_DEFAULT.len() + 4,
        "the others are let in"
    );
    assert!(web.serve.stop().success());
}

/// An authority made for the test: its certificate, and a server it vouches for.
struct Authority {
    pem: String,
    server: Arc<ServerConfig>,
}

impl Authority {
    /// Vouches for the server of `name`.
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        let issuer = rcgen::Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let vouched = params.signed_by(&key, &issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![vouched.der().clone()], key);
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, own.der());
        Self {
            pem: format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"),
            server: Arc::new(server.expect("a server")),
        }
    }

    /// An issuer behind that server.
    fn issuer(&self) -> Issuer {
        let server = Arc::clone(&self.server);
        Issuer::start_over("https", move |stream| {
            let connection = ServerConnection::new(Arc::clone(&server)).expect("a connection");
            Box::new(StreamOwned::new(connection, stream))
        })
    }
}

/// Keys over TLS: from a server that an authority of this machine vouches for, by its name, and
/// from no other. Nobody is let in by keys that anybody could have put there.
#[test]
fn keys_come_over_tls_from_a_trusted_server_only() {
    let (known, unknown) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let misnamed = Authority::new("other.test");
    for (what, authority, believed, good) in [
        ("a server that is vouched for", &known, &known, true),
        ("by an authority nobody knows", &unknown, &known, false),
        ("under another name", &misnamed, &misnamed, false),
    ] {
        let issuer = authority.issuer();
        let folder = with_issuer(&issuer);
        let roots = folder.write("roots.pem", &believed.pem);
        let web = Web::start_with(&folder, |command| {
            command.env("SSL_CERT_FILE", &roots);
        });
        let token = issuer.token(&issuer.claims("tools:slow"));
        if good {
            assert_eq!(web.tools(&token), ["slow"], "{what}");
        } else {
            let reply = web.ask(Some(&token), "tools/list", json!({}));
            assert_eq!(reply.status, 503, "{what}: {reply:?}");
            assert!(reply.header("retry-after").is_some());
            // The reply may be quicker than the words.
            web.serve.wait_said("certificate");
        }
        let asked = issuer.asked.load(Ordering::SeqCst);
        assert_eq!(asked, usize::from(good), "{what}");
        assert!(web.serve.stop().success());
    }
}
