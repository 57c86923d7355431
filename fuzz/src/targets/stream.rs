//! Streamed runs: frames, MessagePack, what is stored of them, acknowledgements and requests.

use callgate_wires::json;
use callgate_wires::stream::{
    Ack, CommitRecord, DEPTH_MAX, Decoder, EventHead, EventKind, PREFIX_BYTES, Piece, Rules,
    RunRequest, Session, StreamFault,
};
use serde_json::Value;

use crate::cuts::cut;

/// Any bytes in any parts come to the same pieces and the same end, and what is stored of an
/// event is strict JSON. ST-6, S-2.
pub fn frames(input: &[u8]) {
    let Some((whole, parts)) = cut::<3>(input) else {
        return;
    };
    let at_once = decode(&[whole]);
    assert_eq!(decode(&parts), at_once);
    if whole.len() <= 64 {
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(decode(&single), at_once);
    }
}

/// All pieces as bytes that can be compared, and the fault that ended them.
fn decode(parts: &[&[u8]]) -> (Vec<u8>, Option<StreamFault>) {
    let mut pieces = Vec::new();
    let mut decoder = Decoder::new();
    for part in parts {
        let mut rest = *part;
        loop {
            match decoder.next(&mut rest) {
                Ok(Some(Piece::Event(event))) => {
                    let from = pieces.len();
                    event.write_json(&mut pieces);
                    json::parse(&pieces[from..], DEPTH_MAX).expect("strict JSON");
                    let from = pieces.len();
                    event.payload_json(&mut pieces);
                    json::parse(&pieces[from..], DEPTH_MAX).expect("strict JSON");
                }
                Ok(Some(Piece::Bytes(bytes))) => pieces.extend_from_slice(bytes),
                Ok(Some(piece)) => pieces.extend_from_slice(format!("{piece:?}").as_bytes()),
                Ok(None) => break,
                Err(fault) => {
                    // ST-7: nothing follows a fault but the same fault.
                    assert_eq!(
                        decoder.next(&mut &b"\0\0\0\x01\x80"[..]),
                        Err(fault.clone())
                    );
                    return (pieces, Some(fault));
                }
            }
        }
        assert!(rest.is_empty(), "all of a part is taken");
    }
    let end = decoder.end().err();
    (pieces, end)
}

/// The bounds of artifacts here: small, so that inputs reach them.
const ARTIFACT_BYTES_MAX: u64 = 64;

/// A run held to its contract counts what it was given: events in order, artifacts within their
/// bound, a whole artifact of the declared size.
pub fn session(input: &[u8]) {
    let mut session = Session::new(Rules {
        run_id: "r".to_owned(),
        attempt: 1,
        versions: vec!["1".to_owned()],
        artifact_bytes_max: ARTIFACT_BYTES_MAX,
    });
    let (mut events, mut bytes) = (0, 0);
    let mut steps = input;
    while let Some((step, rest)) = steps.split_first_chunk::<4>() {
        steps = rest;
        let &[what, which, first, second] = step;
        let id = ["", "a", "b", "c"][usize::from(which % 4)];
        match what % 4 {
            0 => {
                let kinds = ["item", "artifact", "log", "run_complete", "run_error"];
                let head = EventHead {
                    contract_version: if which == 9 { "2" } else { "1" },
                    run_id: if which == 8 { "s" } else { "r" },
                    attempt: if which == 7 { 2 } else { 1 },
                    seq: u64::from(second),
                    kind: kinds[usize::from(first) % kinds.len()],
                };
                if let Ok(kind) = session.event(&head) {
                    events += 1;
                    assert_eq!(head.seq, events);
                    assert_eq!(kind == EventKind::Artifact, head.kind == "artifact");
                }
            }
            1 => {
                let record = CommitRecord {
                    artifact_id: (which != 9).then_some(id),
                    name: Some("n"),
                    content_type: None,
                    size_bytes: (which != 8).then_some(u64::from(first)),
                };
                if let Ok(Some(whole)) = session.commit(&record) {
                    assert!(whole.bytes == u64::from(first) && whole.bytes <= ARTIFACT_BYTES_MAX);
                }
            }
            2 => {
                let length = u64::from(first);
                let is_last = which >= 128;
                if session
                    .chunk(id, u64::from(second), is_last, length)
                    .is_ok()
                {
                    bytes += length;
                    assert!(session.bytes() <= bytes);
                    if let Some(whole) = session.chunk_end() {
                        assert!(whole.bytes <= ARTIFACT_BYTES_MAX);
                    }
                }
            }
            _ => {
                let _ = session.file();
            }
        }
        assert_eq!(session.events(), events);
    }
    let _ = (session.end(), session.tally());
}

/// Acknowledgements and run requests that are taken are read the same when written again. ST-10,
/// ST-75.
pub fn messages(input: &[u8]) {
    if let Ok(ack) = Ack::parse(input) {
        let mut frame = Vec::new();
        ack.write(&mut frame);
        assert_eq!(Ack::parse(&frame[PREFIX_BYTES..]), Ok(ack));
    }
    if let Ok(request) = RunRequest::parse(input) {
        let plain: Value = serde_json::from_slice(input).expect("a request is JSON");
        assert!(plain.is_object());
        let mut line = Vec::new();
        request.write_line(&mut line);
        assert_eq!(RunRequest::parse(&line).unwrap(), request);
    }
}
