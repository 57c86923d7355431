//! The HTTP listener: the short path against hyper, bearer tokens and the keys of their issuer.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_listener::fuzzing;
use callgate_wires::json;

use crate::cuts::cut;

/// Whatever goes the short way is read as hyper reads it, after other bytes on its connection and
/// wherever it is cut.
pub fn short_request(input: &[u8]) {
    let Some((_, parts)) = cut::<2>(input) else {
        return;
    };
    let (earlier, cut_at) = (parts[0], parts[1].len());
    let request = &input[2 + earlier.len()..];
    fuzzing::short_request(earlier, request, cut_at);
}

/// A token is read in one way only. An input with two line feeds is header, claims and signature
/// before they are encoded.
pub fn bearer_token(input: &[u8]) {
    let parts: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    if parts.len() == 3 {
        let parts: Vec<String> = parts
            .iter()
            .map(|part| URL_SAFE_NO_PAD.encode(part))
            .collect();
        fuzzing::bearer_token(&parts.join("."));
    }
    fuzzing::bearer_token(&String::from_utf8_lossy(input));
}

/// A key of a key set is read, and checks a signature, without a panic. An input is a key in JSON,
/// a line feed and a signature.
pub fn public_key(input: &[u8]) {
    let at = input.iter().position(|&byte| byte == b'\n');
    let (key, signature) = input.split_at(at.unwrap_or(input.len()));
    if let Ok(key) = json::parse(key, json::DEPTH_MAX) {
        fuzzing::public_key(&key, b"message", signature.get(1..).unwrap_or_default());
    }
}
