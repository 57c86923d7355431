//! The tool protocol: requests, replies, and the lines of `tools.yaml` and its siblings.

use std::fmt::Debug;

use callgate_wires::tool_protocol::{
    HandshakeReply, HandshakeRequest, LineError, LocalRequest, Reply, ServiceRequest, Told,
    read_bindings, read_capabilities, read_pack, write_bindings, write_capabilities, write_local,
    write_pack,
};
use serde_json::Value;

fn again<T>(write: impl FnOnce(&mut Vec<u8>), read: impl FnOnce(&[u8]) -> T) -> T {
    let mut out = Vec::new();
    write(&mut out);
    read(&out)
}

/// Requests and replies that are taken are the same when written again. TP-2, TP-14, TP-25, TP-37,
/// TP-53.
pub fn messages(input: &[u8]) {
    if let Ok(mut request) = LocalRequest::parse(input) {
        let mut read = again(|out| request.write(out), LocalRequest::parse).unwrap();
        // Unknown members of ours are not written again; that there were some is all that is kept.
        (request.ours.knows_us, read.ours.knows_us) = (false, false);
        assert_eq!(read, request);
    }
    if let Ok(mut request) = ServiceRequest::parse(input) {
        let mut read = again(|out| request.write(out), ServiceRequest::parse).unwrap();
        (request.ours.knows_us, read.ours.knows_us) = (false, false);
        assert_eq!(read, request);
    }
    if let Ok(request) = HandshakeRequest::parse(input) {
        let read = again(|out| request.write(out), HandshakeRequest::parse).unwrap();
        assert_eq!(read, request);
    }
    if let Ok(reply) = HandshakeReply::parse(input) {
        let read = again(|out| reply.write(out), HandshakeReply::parse).unwrap();
        assert_eq!(read, reply);
    }
    if let Ok(reply) = Reply::parse(input) {
        let text = reply.result.as_ref().map(Value::to_string);
        let told = Told {
            result: text.as_deref().map_err(|said| *said),
            checks: Some(&reply.checks),
            call: None,
        };
        let read = again(|out| write_local(&told, out), Reply::parse).unwrap();
        assert_eq!(read, reply);
    }
}

/// Bindings, capabilities and packs that are taken are the same when written again, and an error
/// points into the file. TP-59 to TP-63.
pub fn lines(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    check(text, read_bindings, write_bindings);
    check(text, read_capabilities, write_capabilities);
    check(text, read_pack, write_pack);
}

fn check<T: PartialEq + Debug>(
    text: &str,
    read: impl Fn(&str) -> Result<T, LineError>,
    write: impl Fn(&T) -> String,
) {
    match read(text) {
        Ok(value) => {
            let written = write(&value);
            assert_eq!(read(&written).as_ref(), Ok(&value), "{written}");
        }
        Err(error) => {
            let line = text.lines().nth(error.line - 1).unwrap_or_default();
            assert!(error.column - 1 <= line.chars().count(), "{error}");
        }
    }
}
