//! The other side of a run: reads what an executor writes and answers its files.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses some of it, and one that can not go on has failed"
)]

use std::fs::File;
use std::io::{Read, Write};

use callgate_wires::stream::{Ack, Decoder, Piece, StreamFault};
use serde_json::{Value, json};

/// All that an executor wrote.
#[derive(Debug, Default)]
pub struct Stream {
    /// Events as they are, chunks, files and results under their name.
    pub frames: Vec<Value>,
    /// Bytes of the chunks, by artifact.
    pub artifacts: std::collections::BTreeMap<String, Vec<u8>>,
    pub end: Option<StreamFault>,
}

impl Stream {
    /// The types of its events and the names of other frames, in order.
    pub fn kinds(&self) -> Vec<&str> {
        let kind = |frame: &'_ Value| {
            let object = frame.as_object().unwrap();
            object.keys().next().unwrap().clone()
        };
        self.frames
            .iter()
            .map(|frame| match frame["type"].as_str() {
                Some(event) => event,
                None => ["chunk", "file_write", "run_result"]
                    .into_iter()
                    .find(|name| *name == kind(frame))
                    .unwrap(),
            })
            .collect()
    }

    /// The events alone.
    pub fn events(&self) -> Vec<&Value> {
        let is_event = |frame: &&Value| frame["type"].is_string();
        self.frames.iter().filter(is_event).collect()
    }
}

/// Reads a stream to its end. `answer` is asked about each file; nothing: it was stored.
pub fn serve(
    mut from: impl Read,
    mut to: Option<File>,
    answer: impl Fn(&str) -> Option<String>,
) -> Stream {
    let mut stream = Stream::default();
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut open = String::new();
    loop {
        let count = from.read(&mut buffer).unwrap();
        if count == 0 {
            stream.end = decoder.end().err();
            return stream;
        }
        let mut input = &buffer[..count];
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(piece)) => note(&mut stream, &piece, &mut open, &mut to, &answer),
                Err(fault) => {
                    stream.end = Some(fault);
                    return stream;
                }
            }
        }
    }
}

fn note(
    stream: &mut Stream,
    piece: &Piece<'_>,
    open: &mut String,
    to: &mut Option<File>,
    answer: &impl Fn(&str) -> Option<String>,
) {
    match piece {
        Piece::Event(event) => {
            let mut line = Vec::new();
            event.write_json(&mut line);
            stream.frames.push(serde_json::from_slice(&line).unwrap());
        }
        Piece::Chunk(head) => {
            head.artifact_id.clone_into(open);
            stream.artifacts.entry(open.clone()).or_default();
            stream.frames.push(json!({ "chunk": {
                "artifact_id": head.artifact_id,
                "seq": head.seq,
                "is_last": head.is_last,
                "bytes": head.bytes,
            } }));
        }
        Piece::Bytes(bytes) => stream
            .artifacts
            .get_mut(open)
            .unwrap()
            .extend_from_slice(bytes),
        Piece::ChunkEnd => {}
        Piece::RunResult(result) => stream.frames.push(json!({ "run_result": {
            "status": result.status.as_str(),
            "message": result.message,
            "error_type": result.error_type,
            "stack": result.stack,
            "proxy_used": result.proxy_used.map(|proxy| proxy.to_json()),
        } })),
        Piece::FileWrite(file) => {
            stream.frames.push(json!({ "file_write": {
                "write_id": file.write_id,
                "filename": file.filename,
                "content_type": file.content_type,
                "data": file.data,
            } }));
            let error = answer(file.filename);
            let ack = Ack {
                write_id: file.write_id,
                ok: error.is_none(),
                error: error.as_deref(),
            };
            let mut frame = Vec::new();
            ack.write(&mut frame);
            if let Some(to) = to {
                to.write_all(&frame).unwrap();
            }
        }
    }
}
