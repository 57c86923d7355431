//! Frames as an executor writes them. The data of chunks and files is not copied: only what is
//! before it is written here, and the sender writes the data after it.

use serde_json::Value;

use super::control::{ChunkHead, RunResult};
use super::fault::StreamFault;
use super::frame;
use super::limits::{CHUNK_BYTES_MAX, FILE_BYTES_MAX, FRAME_PAYLOAD_MAX, PREFIX_BYTES};

/// An event to be written. Its payload is one msgpack map.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub struct Event<'a> {
    pub contract_version: &'a str,
    pub event_id: &'a str,
    pub run_id: &'a str,
    pub seq: u64,
    pub kind: &'a str,
    pub ts: &'a str,
    pub payload: &'a [u8],
    pub attempt: u32,
    pub job_id: Option<&'a str>,
    pub parent_run_id: Option<&'a str>,
}

/// Appends the frame of an event, keys in the order executors are used to. One that would be too
/// large is taken back, and its size told.
pub fn event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), StreamFault> {
    let at = open(out);
    let ids = [
        ("job_id", event.job_id),
        ("parent_run_id", event.parent_run_id),
    ];
    let ids = ids.into_iter().filter_map(|(key, id)| Some((key, id?)));
    map_head(8 + u32::try_from(ids.clone().count()).unwrap_or(0), out);
    field("contract_version", event.contract_version, out);
    field("event_id", event.event_id, out);
    field("run_id", event.run_id, out);
    field("type", event.kind, out);
    field("ts", event.ts, out);
    text("payload", out);
    out.extend_from_slice(event.payload);
    text("attempt", out);
    uint(u64::from(event.attempt), out);
    for (key, id) in ids {
        field(key, id, out);
    }
    text("seq", out);
    uint(event.seq, out);
    close(at, 0, out)
}

/// Appends a chunk up to its data, of which `head.bytes` bytes must follow.
pub fn chunk_head(head: &ChunkHead<'_>, out: &mut Vec<u8>) -> Result<(), StreamFault> {
    if head.bytes > CHUNK_BYTES_MAX {
        let bytes = head.bytes;
        return Err(StreamFault::ChunkTooLarge { bytes });
    }
    let at = open(out);
    map_head(5, out);
    field("type", frame::CHUNK, out);
    field("artifact_id", head.artifact_id, out);
    text("seq", out);
    uint(head.seq, out);
    text("is_last", out);
    bool(head.is_last, out);
    text("data", out);
    bytes_head(head.bytes, out);
    close(at, head.bytes, out)
}

/// Appends a sidecar file up to its data, of which `bytes` bytes must follow.
pub fn file_head(
    write_id: u32,
    filename: &str,
    content_type: &str,
    bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), StreamFault> {
    if bytes > FILE_BYTES_MAX {
        return Err(StreamFault::FileTooLarge { bytes });
    }
    let at = open(out);
    map_head(5, out);
    field("type", frame::FILE, out);
    text("write_id", out);
    uint(u64::from(write_id), out);
    field("filename", filename, out);
    field("content_type", content_type, out);
    text("data", out);
    bytes_head(bytes, out);
    close(at, bytes, out)
}

/// Appends the frame of a run result. What is not known of it is nil.
pub fn run_result(result: &RunResult<'_>, out: &mut Vec<u8>) -> Result<(), StreamFault> {
    let at = open(out);
    map_head(2 + u32::from(result.proxy_used.is_some()), out);
    field("type", frame::RESULT, out);
    text("outcome", out);
    map_head(4, out);
    field("status", result.status.as_str(), out);
    for (key, words) in [
        ("message", result.message),
        ("error_type", result.error_type),
        ("stack", result.stack),
    ] {
        text(key, out);
        maybe_text(words, out);
    }
    if let Some(proxy) = result.proxy_used {
        text("proxy_used", out);
        map_head(4, out);
        field("protocol", proxy.protocol.as_str(), out);
        field("host", proxy.host, out);
        text("port", out);
        uint(u64::from(proxy.port), out);
        text("username", out);
        maybe_text(proxy.username, out);
    }
    close(at, 0, out)
}

/// Leaves room for the prefix of a frame whose payload is appended next; gives its place.
pub(super) fn open(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    at
}

/// Fills in the prefix of the frame opened at `at`, of which `more` bytes follow.
pub(super) fn close(at: usize, more: usize, out: &mut Vec<u8>) -> Result<(), StreamFault> {
    let bytes = out.len() - at - PREFIX_BYTES + more;
    let len = u32::try_from(bytes).unwrap_or(u32::MAX);
    if bytes > FRAME_PAYLOAD_MAX {
        out.truncate(at);
        return Err(StreamFault::TooLarge { len });
    }
    out[at..at + PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// A text and a text: a field of a map.
pub fn field(key: &str, value: &str, out: &mut Vec<u8>) {
    text(key, out);
    text(value, out);
}

fn maybe_text(value: Option<&str>, out: &mut Vec<u8>) {
    match value {
        Some(value) => text(value, out),
        None => nil(out),
    }
}

/// Nothing.
pub fn nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

/// True or false.
pub fn bool(value: bool, out: &mut Vec<u8>) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

/// A number of 0 or more, as short as it can be.
pub fn uint(value: u64, out: &mut Vec<u8>) {
    if let Ok(value) = u8::try_from(value) {
        if value >= 0x80 {
            out.push(0xcc);
        }
        out.push(value);
    } else if let Ok(value) = u16::try_from(value) {
        out.push(0xcd);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        out.push(0xce);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        out.push(0xcf);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Any whole number, as short as it can be.
pub fn int(value: i64, out: &mut Vec<u8>) {
    if let Ok(value) = u64::try_from(value) {
        return uint(value, out);
    }
    if let Ok(value) = i8::try_from(value) {
        if value < -32 {
            out.push(0xd0);
        }
        out.push(value.cast_unsigned());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xd1);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xd2);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        out.push(0xd3);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// A float.
pub fn float(value: f64, out: &mut Vec<u8>) {
    out.push(0xcb);
    out.extend_from_slice(&value.to_be_bytes());
}

/// A text.
pub fn text(value: &str, out: &mut Vec<u8>) {
    match value.len() {
        length @ 0..32 => out.push(0xa0 | length.to_be_bytes()[size_of::<usize>() - 1]),
        length => head([0xd9, 0xda, 0xdb], length, out),
    }
    out.extend_from_slice(value.as_bytes());
}

/// The head of that many bytes, which are written after it.
pub fn bytes_head(length: usize, out: &mut Vec<u8>) {
    head([0xc4, 0xc5, 0xc6], length, out);
}

/// The head of a map of that many keys.
pub fn map_head(count: u32, out: &mut Vec<u8>) {
    collection(0x80, [0xde, 0xdf], count, out);
}

/// The head of a list of that many values.
pub fn array_head(count: u32, out: &mut Vec<u8>) {
    collection(0x90, [0xdc, 0xdd], count, out);
}

fn head(markers: [u8; 3], length: usize, out: &mut Vec<u8>) {
    // What does not fit into 4 GiB does not fit into a frame either.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if let Ok(length) = u8::try_from(length) {
        out.extend_from_slice(&[markers[0], length]);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(markers[1]);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(markers[2]);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

fn collection(few: u8, markers: [u8; 2], count: u32, out: &mut Vec<u8>) {
    match (u8::try_from(count), u16::try_from(count)) {
        (Ok(count), _) if count < 16 => out.push(few | count),
        (_, Ok(count)) => {
            out.push(markers[0]);
            out.extend_from_slice(&count.to_be_bytes());
        }
        _ => {
            out.push(markers[1]);
            out.extend_from_slice(&count.to_be_bytes());
        }
    }
}

/// A JSON value as msgpack.
pub fn value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => nil(out),
        Value::Bool(value) => bool(*value, out),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => uint(number, out),
            (None, Some(number)) => int(number, out),
            _ => float(number.as_f64().unwrap_or(f64::NAN), out),
        },
        Value::String(words) => text(words, out),
        Value::Array(items) => {
            array_head(u32::try_from(items.len()).unwrap_or(u32::MAX), out);
            for item in items {
                self::value(item, out);
            }
        }
        Value::Object(members) => {
            map_head(u32::try_from(members.len()).unwrap_or(u32::MAX), out);
            for (key, member) in members {
                text(key, out);
                self::value(member, out);
            }
        }
    }
}
