//! Values that look like secrets: by the name of their variable, by a prefix that a service gives
//! to its tokens, or because they are long and random.

use crate::model::{
    FoundServer, Input, Piece, Secret, SecretField, SecretPlace, SecretReason, Template, Transport,
};
use crate::node::Node;

/// Words of a name whose value is a secret.
const WORDS: [&str; 19] = [
    "TOKEN",
    "KEY",
    "APIKEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "CREDENTIALS",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "PAT",
    "COOKIE",
    "PASSPHRASE",
    "DSN",
    "PASSCODE",
    "JWT",
];
/// Last words of a name whose value is something about a secret.
const ABOUT: [&str; 19] = [
    "PATH",
    "FILE",
    "DIR",
    "NAME",
    "ID",
    "HOST",
    "PORT",
    "ENABLED",
    "TTL",
    "URL",
    "URI",
    "TYPE",
    "METHOD",
    "MODE",
    "HEADER",
    "ALGORITHM",
    "LENGTH",
    "EXPIRY",
    "PROVIDER",
];
/// Beginnings of tokens that services issue.
const PREFIXES: [&str; 38] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxc-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "hf_",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "lin_api_",
    "ntn_",
    "secret_",
    "figd_",
    "sntrys_",
    "sntryu_",
    "tvly-",
    "fc-",
    "eyJ",
    "SG.",
    "pat-",
    "ATATT",
    "-----BEGIN",
];
const PREFIXED_CHARS_MIN: usize = 16;
const RANDOM_CHARS_MIN: usize = 24;
const RANDOM_CHARS_MAX: usize = 4096;
/// Least entropy of a random value, in bits a character.
const RANDOM_BITS_MIN: f64 = 3.3;

/// Finds the secrets of a server.
pub(super) fn find_secrets(server: &mut FoundServer, inputs: &[Input]) {
    let mut found = Vec::new();
    for (name, value) in &server.env {
        let field = SecretField::Env(name.clone());
        check(&field, is_secret_name(name), value, inputs, &mut found);
    }
    for (name, value) in &server.headers {
        let field = SecretField::Header(name.clone());
        check(&field, is_secret_name(name), value, inputs, &mut found);
    }
    match &server.transport {
        Transport::Stdio { args, .. } => check_args(args, inputs, &mut found),
        Transport::Http { url, .. } | Transport::Sse { url } => {
            check(&SecretField::Url, false, url, inputs, &mut found);
        }
        Transport::Native { .. } | Transport::Other { .. } => {}
    }
    if let Some(oauth) = &server.oauth
        && let Ok(oauth) = serde_json::from_str::<serde_json::Value>(oauth)
    {
        oauth_secrets(&oauth, &mut found);
    }
    let is_known = |place: &SecretPlace, places: &[SecretPlace]| {
        places
            .iter()
            .any(|known| known.field == place.field && known.value == place.value)
    };
    for place in found {
        if !is_known(&place, &server.secrets) {
            server.secrets.push(place);
        }
    }
}

fn check_args(args: &[Template], inputs: &[Input], found: &mut Vec<SecretPlace>) {
    let mut is_value = false;
    for (index, arg) in args.iter().enumerate() {
        let field = SecretField::Arg(index);
        let text = arg.as_literal().unwrap_or_default();
        let option = text.starts_with('-').then(|| text.trim_start_matches('-'));
        match option.map(|option| option.split_once('=').unwrap_or((option, ""))) {
            Some((name, value)) if !value.is_empty() => {
                let value = Template::literal(value);
                check(&field, is_secret_name(name), &value, inputs, found);
                is_value = false;
            }
            Some((name, _)) => is_value = is_secret_name(name),
            None => {
                // `-e NAME=value` of containers, and such.
                match text
                    .split_once('=')
                    .filter(|(name, _)| is_secret_name(name))
                {
                    Some((_, value)) => {
                        check(&field, true, &Template::literal(value), inputs, found);
                    }
                    None => check(&field, is_value, arg, inputs, found),
                }
                is_value = false;
            }
        }
    }
}

fn check(
    field: &SecretField,
    is_named: bool,
    value: &Template,
    inputs: &[Input],
    found: &mut Vec<SecretPlace>,
) {
    let mut note = |reason, value: Option<&str>| {
        found.push(SecretPlace {
            field: field.clone(),
            reason,
            value: value.map(Secret::new),
        });
    };
    for piece in &value.pieces {
        match piece {
            Piece::Input(id)
                if inputs
                    .iter()
                    .any(|input| input.id == *id && input.is_password) =>
            {
                note(SecretReason::Kept, None);
            }
            Piece::Literal(text) => {
                let is_named = is_named && value.as_literal().is_some();
                if let Some((reason, text)) = secret_in(text, is_named) {
                    note(reason, Some(text));
                }
            }
            _ => {}
        }
    }
}

/// Returns the secret in a text, and why it looks like one.
fn secret_in(text: &str, is_named: bool) -> Option<(SecretReason, &str)> {
    let text = without_scheme(text);
    if let Some(password) = password_of(text) {
        return Some((SecretReason::Url, password));
    }
    if has_prefix(text) {
        return Some((SecretReason::Prefix, text));
    }
    if let Some(part) = random_part(text) {
        return Some((SecretReason::Random, if is_named { text } else { part }));
    }
    // `$(command)` is the way to a secret.
    let is_value = is_named && !text.is_empty() && !text.starts_with("$(");
    is_value.then_some((SecretReason::Name, text))
}

/// Adds the texts of a document that look like secrets, wherever they stand.
pub(super) fn secret_texts(node: &Node, is_named: bool, to: &mut Vec<String>) {
    if let Some((_, text)) = node.as_text().and_then(|text| secret_in(text, is_named)) {
        to.push(text.to_owned());
    }
    for item in node.items() {
        secret_texts(item, is_named, to);
    }
    for member in node.members() {
        secret_texts(&member.node, is_secret_name(&member.key), to);
    }
}

/// Returns a header's value without the scheme in front of it.
fn without_scheme(text: &str) -> &str {
    let text = text.trim();
    for scheme in ["Bearer ", "bearer ", "Basic ", "Token ", "token "] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return rest.trim_start();
        }
    }
    match text {
        "Bearer" | "bearer" | "Basic" | "Token" | "token" => "",
        _ => text,
    }
}

/// Returns whether a variable, header or option of this name holds a secret.
fn is_secret_name(name: &str) -> bool {
    let mut words: Vec<String> = Vec::new();
    let mut was_lower = false;
    for char in name.chars() {
        if !char.is_ascii_alphanumeric() {
            words.push(String::new());
        } else {
            if words.is_empty() || (was_lower && char.is_ascii_uppercase()) {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.push(char.to_ascii_uppercase());
            }
        }
        was_lower = char.is_ascii_lowercase();
    }
    let is_about = words
        .last()
        .is_some_and(|last| ABOUT.contains(&last.as_str()));
    !is_about && words.iter().any(|word| WORDS.contains(&word.as_str()))
}

/// Returns the password of an address, or the value of a query's member that is named as a secret.
fn password_of(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some((user, _)) = authority.rsplit_once('@')
        && let Some((_, password)) = user.split_once(':')
        && !password.is_empty()
    {
        return Some(password);
    }
    let (_, query) = rest.split_once('?')?;
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, value)| is_secret_name(name) && !value.is_empty())
        .map(|(_, value)| value)
}

fn has_prefix(text: &str) -> bool {
    text.len() >= PREFIXED_CHARS_MIN && PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

/// Returns the random part of a text: the text, or a part of an address.
fn random_part(text: &str) -> Option<&str> {
    let is_address = text.contains("://");
    let separators: &[char] = if is_address {
        &['/', '?', '&', '=']
    } else {
        &[]
    };
    text.split(separators).find(|part| is_random(part))
}

fn is_random(text: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+=/~".contains(&byte);
    if !(RANDOM_CHARS_MIN..=RANDOM_CHARS_MAX).contains(&text.len())
        || text.starts_with(['/', '-', '~'])
        || !text.bytes().all(is_of_token)
    {
        return false;
    }
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let has = |test: fn(&u8) -> bool| text.bytes().any(|byte| test(&byte));
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && digits > 0;
    let is_dense = digits >= 4 && text.bytes().filter(|byte| *byte == b'-').count() <= 4;
    let entropy = {
        let mut counts = [0_u32; 256];
        text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        let len = text.len() as f64;
        let share = |count: &u32| f64::from(*count) / len;
        -counts
            .iter()
            .filter(|count| **count > 0)
            .map(|count| share(count) * share(count).log2())
            .sum::<f64>()
    };
    entropy >= RANDOM_BITS_MIN && (is_mixed || is_dense)
}

fn oauth_secrets(value: &serde_json::Value, found: &mut Vec<SecretPlace>) {
    let Some(members) = value.as_object() else {
        return;
    };
    for (name, value) in members {
        match value.as_str() {
            Some(text) if name.to_ascii_lowercase().contains("secret") && !text.is_empty() => {
                found.push(SecretPlace {
                    field: SecretField::Oauth,
                    reason: SecretReason::Name,
                    value: Some(Secret::new(text)),
                });
            }
            Some(_) => {}
            None => oauth_secrets(value, found),
        }
    }
}
