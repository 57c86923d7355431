//! The vectors in `vectors/stream/`, whose README says what is in them. Each is decoded at every
//! split, and byte by byte.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod support;

use std::path::PathBuf;

use callgate_wires::stream::encode::{self, Event};
use callgate_wires::stream::{
    Ack, ChunkHead, Decoder, Envelope, PREFIX_BYTES, Piece, RunRequest, payload_len,
};
use serde_json::{Value, json};
use support::stream::{Got, decode};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/stream")
}

fn vectors(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Hex digits and text in quotes.
fn parse_bytes(notation: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, part) in notation.split('\'').enumerate() {
        if at % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let hex = part.split_whitespace();
        bytes.extend(hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

fn bytes_of(vector: &Value) -> Vec<u8> {
    match vector["file"].as_str() {
        Some(file) => std::fs::read(folder().join(file)).unwrap(),
        None => parse_bytes(vector["bytes"].as_str().unwrap()),
    }
}

fn expected(vector: &Value) -> Got {
    let mut pieces = vector["pieces"].as_array().unwrap().clone();
    for piece in &mut pieces {
        if let Some(data) = piece.get_mut("data") {
            *data = json!(parse_bytes(data.as_str().unwrap()));
        }
    }
    let fault = vector["fault"].as_str().map(str::to_owned);
    Got { pieces, fault }
}

fn check(vector: &Value) {
    let name = vector["name"].as_str().unwrap();
    let (bytes, wanted) = (bytes_of(vector), expected(vector));
    for cut in 0..=bytes.len() {
        let got = decode(&[&bytes[..cut], &bytes[cut..]]);
        assert_eq!(got, wanted, "{name}, cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single), wanted, "{name}, byte by byte");
}

/// Every kind of frame, at every split.
#[test]
fn frames() {
    let vectors = vectors("frames.json");
    assert!(vectors.len() > 40);
    vectors.iter().for_each(check);
}

/// Every bad stream has its reason, and nothing after it is read.
#[test]
fn faults() {
    let vectors = vectors("faults.json");
    assert!(vectors.len() > 80);
    vectors.iter().for_each(check);
}

/// ST-75: every answer to a file, read and written.
#[test]
fn acks() {
    for vector in vectors("acks.json") {
        let bytes = bytes_of(&vector);
        let prefix = bytes[..PREFIX_BYTES].try_into().unwrap();
        assert_eq!(payload_len(prefix), Ok(bytes.len() - PREFIX_BYTES));
        let ack = Ack::parse(&bytes[PREFIX_BYTES..]).unwrap();
        let wanted = &vector["ack"];
        assert_eq!(wanted["write_id"], ack.write_id, "{vector}");
        assert_eq!(wanted["ok"], ack.ok, "{vector}");
        assert_eq!(wanted["error"].as_str(), ack.error, "{vector}");
        let mut written = Vec::new();
        ack.write(&mut written);
        assert_eq!(vector["written"], written == bytes, "{vector}");
    }
}

/// Run requests are read as they are, written as they were read, and told of without passwords.
#[test]
fn requests() {
    for vector in vectors("requests.json") {
        let line = vector["line"].as_str().unwrap();
        let request = RunRequest::parse(line.as_bytes()).unwrap();
        let mut written = Vec::new();
        request.write_line(&mut written);
        assert_eq!(written.pop(), Some(b'\n'));
        let said: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(said, vector["says"], "{vector}");
        let used = request.proxy.as_ref().map(|proxy| {
            let mut used = proxy.used().to_json();
            let members = used.as_object_mut().unwrap();
            members.retain(|_, value| !value.is_null());
            used
        });
        assert_eq!(used.as_ref(), vector.get("proxy_used"), "{vector}");
        assert!(!format!("{request:?}").contains("p@ss"), "{request:?}");
    }
}

/// A whole run of the original implementation is what its manifest says.
#[test]
fn a_run_of_the_original() {
    let file = folder().join("original/e2e_fixture.bin");
    let bytes = std::fs::read(file).unwrap();
    let text = std::fs::read_to_string(folder().join("original/e2e_fixture.manifest.json"));
    let manifest: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let whole = decode(&[&bytes]);
    for cut in 0..=bytes.len() {
        assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), whole, "at {cut}");
    }
    assert_eq!(whole.fault, None);
    assert_eq!(manifest["size_bytes"], bytes.len());
    assert_eq!(manifest["frame_count"], whole.pieces.len());
    let events = whole.pieces.iter().filter_map(|piece| piece.get("event"));
    let events: Vec<&Value> = events.collect();
    let listed = manifest["expected_events"].as_array().unwrap();
    assert_eq!(events.len(), listed.len());
    for (event, listed) in events.iter().zip(listed) {
        assert_eq!(event["run_id"], manifest["run_id"]);
        for (key, value) in listed.as_object().unwrap() {
            let found = event.get(key).unwrap_or(&event["payload"][key]);
            assert_eq!(found, value, "{key} of {event}");
        }
    }
    let chunks: Vec<&Value> = whole
        .pieces
        .iter()
        .filter(|p| p["chunk"].is_object())
        .collect();
    assert_eq!(manifest["expected_artifact_chunks"], chunks.len());
    let commit = events
        .iter()
        .find(|event| event["type"] == "artifact")
        .unwrap();
    assert_eq!(
        chunks[0]["chunk"]["artifact_id"],
        commit["payload"]["artifact_id"]
    );
    assert_eq!(chunks[0]["chunk"]["bytes"], commit["payload"]["size_bytes"]);
}

fn write_event(event: &Envelope<'_>, out: &mut Vec<u8>) {
    let event = Event {
        contract_version: event.contract_version,
        event_id: event.event_id,
        run_id: event.run_id,
        seq: event.seq,
        kind: event.kind,
        ts: event.ts,
        payload: event.payload(),
        attempt: event.attempt,
        job_id: event.job_id,
        parent_run_id: event.parent_run_id,
    };
    encode::event(&event, out).unwrap();
}

/// What our own encoder writes of the same pieces is the same to the byte.
#[test]
fn our_own_frames() {
    let vectors = vectors("frames.json");
    let written = vectors.iter().filter(|vector| vector["written"] == true);
    for vector in written {
        let bytes = bytes_of(vector);
        let (mut decoder, mut input, mut out) = (Decoder::new(), bytes.as_slice(), Vec::new());
        while let Some(piece) = decoder.next(&mut input).unwrap() {
            match piece {
                Piece::Event(event) => write_event(&event, &mut out),
                Piece::Chunk(head) => encode::chunk_head(&head, &mut out).unwrap(),
                Piece::Bytes(data) => out.extend_from_slice(data),
                Piece::ChunkEnd => {}
                Piece::RunResult(result) => encode::run_result(&result, &mut out).unwrap(),
                Piece::FileWrite(file) => {
                    let (name, kind) = (file.filename, file.content_type);
                    let bytes = file.data.len();
                    encode::file_head(file.write_id, name, kind, bytes, &mut out).unwrap();
                    out.extend_from_slice(file.data);
                }
            }
        }
        assert_eq!(out, bytes, "{}", vector["name"]);
    }
}

/// JSON values that an executor emits come out as they went in.
#[test]
fn values_through_msgpack() {
    let value = json!({
        "numbers": [0, 127, 128, 255, 256, 65_535, 65_536, u32::MAX, u64::MAX, -1, -32, -33, -128,
            -129, -32_768, -32_769, i32::MIN, i64::MIN, 0.1, -1.5e300],
        "texts": ["", "x".repeat(31), "x".repeat(32), "x".repeat(256), "x".repeat(65_536), "ä\u{0}\"\\"],
        "lists": [[], vec![0; 15], vec![0; 16], vec![0; 65_536]],
        "maps": [{}, (0..16).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>()],
        "rest": [null, true, false],
    });
    let mut payload = Vec::new();
    encode::value(&value, &mut payload);
    let mut bytes = Vec::new();
    let head = ChunkHead {
        artifact_id: "a",
        seq: 1,
        is_last: true,
        bytes: 0,
    };
    encode::chunk_head(&head, &mut bytes).unwrap();
    let event = Event {
        contract_version: "0.1.0",
        event_id: "e",
        run_id: "r",
        seq: 1,
        kind: "item",
        ts: "t",
        payload: &payload,
        attempt: 1,
        job_id: None,
        parent_run_id: None,
    };
    encode::event(&event, &mut bytes).unwrap();
    let got = decode(&[&bytes]);
    assert_eq!(got.fault, None);
    assert_eq!(got.pieces[1]["event"]["payload"], value);
}
