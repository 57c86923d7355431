//! Pieces of a stream as JSON, so that they can be compared however the bytes came.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses some of it, and one that can not go on has failed"
)]

use callgate_wires::stream::encode::{self, Event};
use callgate_wires::stream::{ChunkHead, Decoder, Piece, StreamFault};
use serde_json::{Value, json};

/// All that a stream came to.
#[derive(Debug, PartialEq)]
pub struct Got {
    pub pieces: Vec<Value>,
    pub fault: Option<String>,
}

/// Decodes bytes that came in these parts, and then ended.
pub fn decode(parts: &[&[u8]]) -> Got {
    let mut decoder = Decoder::new();
    let mut pieces = Vec::new();
    for part in parts {
        let mut input = *part;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(piece)) => note(&piece, &mut pieces),
                Ok(None) => break,
                Err(fault) => return failed(decoder, fault, pieces),
            }
        }
        assert!(input.is_empty(), "all of it is taken");
    }
    let fault = decoder.end().err().map(|fault| fault.to_string());
    Got { pieces, fault }
}

/// ST-7: after a fault there is nothing but that fault.
fn failed(mut decoder: Decoder, fault: StreamFault, pieces: Vec<Value>) -> Got {
    let good = event_frame("item", b"\x80");
    let mut input = good.as_slice();
    assert_eq!(decoder.next(&mut input), Err(fault.clone()));
    assert_eq!(decoder.end(), Err(fault.clone()));
    let fault = Some(fault.to_string());
    Got { pieces, fault }
}

fn note(piece: &Piece<'_>, pieces: &mut Vec<Value>) {
    match piece {
        Piece::Event(event) => {
            let mut line = Vec::new();
            event.write_json(&mut line);
            let value: Value = serde_json::from_slice(&line).unwrap();
            pieces.push(json!({ "event": value }));
        }
        Piece::Chunk(head) => pieces.push(json!({
            "chunk": {
                "artifact_id": head.artifact_id,
                "seq": head.seq,
                "is_last": head.is_last,
                "bytes": head.bytes,
            },
            "data": [],
            "open": true,
        })),
        Piece::Bytes(bytes) => {
            assert!(!bytes.is_empty());
            let data = pieces.last_mut().unwrap()["data"].as_array_mut().unwrap();
            data.extend(bytes.iter().map(|byte| json!(byte)));
        }
        Piece::ChunkEnd => {
            let chunk = pieces.last_mut().unwrap().as_object_mut().unwrap();
            assert!(chunk.remove("open").is_some());
            assert_eq!(
                chunk["data"].as_array().unwrap().len(),
                chunk["chunk"]["bytes"]
            );
        }
        Piece::RunResult(result) => pieces.push(json!({ "run_result": {
            "status": result.status.as_str(),
            "message": result.message,
            "error_type": result.error_type,
            "stack": result.stack,
            "proxy_used": result.proxy_used.map(|proxy| proxy.to_json()),
        } })),
        Piece::FileWrite(file) => pieces.push(json!({
            "file_write": {
                "write_id": file.write_id,
                "filename": file.filename,
                "content_type": file.content_type,
            },
            "data": file.data,
        })),
    }
}

/// The frame of an event with this payload.
pub fn event_frame(kind: &str, payload: &[u8]) -> Vec<u8> {
    let event = Event {
        contract_version: "0.1.0",
        event_id: "e-1",
        run_id: "r-1",
        seq: 1,
        kind,
        ts: "2026-11-15T09:30:00.000Z",
        payload,
        attempt: 1,
        job_id: None,
        parent_run_id: None,
    };
    let mut out = Vec::new();
    encode::event(&event, &mut out).unwrap();
    out
}

/// The frame of a chunk with this data.
pub fn chunk_frame(data: &[u8]) -> Vec<u8> {
    let head = ChunkHead {
        artifact_id: "a-1",
        seq: 1,
        is_last: true,
        bytes: data.len(),
    };
    let mut out = Vec::new();
    encode::chunk_head(&head, &mut out).unwrap();
    out.extend_from_slice(data);
    out
}

/// Puts the length before a payload.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    [&len.to_be_bytes()[..], payload].concat()
}
