//! Seeded mutations against the stream's decoders, 100,000 each: none panics, all frames come to
//! the same however they are cut, what is stored of them is strict JSON, and what is taken is read
//! the same when it is written again.

mod support;

use callgate_testing::{Random, mutant};
use callgate_wires::json;
use callgate_wires::stream::{
    Ack, DEPTH_MAX, Decoder, PREFIX_BYTES, Piece, RunRequest, StreamFault,
};
use support::stream::{chunk_frame, event_frame, frame};

const CASES: usize = 100_000;

/// What msgpack is made of, and what it must not be.
const WORDS: [&[u8]; 24] = [
    b"\0\0\0\x01",
    b"\x80",
    b"\x81",
    b"\x90",
    b"\x91",
    b"\xc0",
    b"\xc1",
    b"\xc4\x01x",
    b"\xc6\xff\xff\xff\xff",
    b"\xd6\xff\0\0\0\0",
    b"\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdb\0\0\0\x04type",
    b"\xa4type",
    b"\xaeartifact_chunk",
    b"\xaarun_result",
    b"\xaafile_write",
    b"\xa4data",
    b"\xa3seq",
    b"\xa7payload",
    b"\xff",
    b"\xa1\xff",
    b"text",
];

/// Everything that came, in one buffer that can be compared.
fn decode(parts: &[&[u8]], said: &mut Vec<u8>) -> Option<StreamFault> {
    let mut decoder = Decoder::new();
    for part in parts {
        let mut input = *part;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(Piece::Event(event))) => {
                    let from = said.len();
                    event.write_json(said);
                    json::parse(&said[from..], DEPTH_MAX).expect("strict JSON");
                }
                Ok(Some(Piece::Bytes(bytes))) => said.extend_from_slice(bytes),
                Ok(Some(piece)) => said.extend_from_slice(format!("{piece:?}").as_bytes()),
                Ok(None) => break,
                Err(fault) => return Some(fault),
            }
        }
    }
    decoder.end().err()
}

/// The prefixes are put right, so that the change is inside the frame.
fn reframed(bytes: &[u8]) -> Vec<u8> {
    frame(
        bytes
            .get(4..)
            .filter(|rest| !rest.is_empty())
            .unwrap_or(b"\x80"),
    )
}

/// ST-6, S-2: any bytes in any parts.
#[test]
fn any_bytes_in_any_parts() {
    let event = event_frame(
        "item",
        b"\x84\xa1a\x93\x01\xd6\xff\0\0\0\0\xcb\x40\0\0\0\0\0\0\0\xa1b\x81\x01\xc4\x02xy\xa1c\xa3abc\x05\xc0",
    );
    let chunk = chunk_frame(b"the data of a chunk");
    let mut held =
        b"\x85\xa4data\xc4\x04held\xa7is_last\xc3\xa3seq\x01\xabartifact_id\xa1a".to_vec();
    held.extend_from_slice(b"\xa4type\xaeartifact_chunk");
    let held = frame(&held);
    let result = frame(b"\x83\xa4type\xaarun_result\xa7outcome\x82\xa6status\xa5error\xa7message\xa2no\xaaproxy_used\x84\xa8protocol\xa4http\xa4host\xa1h\xa4port\x50\xa8username\xc0");
    let file = frame(b"\x85\xa4type\xaafile_write\xa8write_id\x01\xa8filename\xa1a\xaccontent_type\xa1b\xa4data\xc4\x01x");
    let two = [event.as_slice(), &chunk, &event].concat();
    let seeds: [&[u8]; 6] = [&event, &chunk, &held, &result, &file, &two];
    let mut random = Random::new("stream");
    let (mut good, mut one, mut other) = (0, Vec::new(), Vec::new());
    for case in 0..CASES {
        let mut bytes = mutant(&mut random, &seeds, &WORDS);
        if !random.one_in(4) {
            bytes = reframed(&bytes);
        }
        one.clear();
        other.clear();
        let fault = decode(&[&bytes], &mut one);
        good += usize::from(fault.is_none() && !bytes.is_empty());
        let mut cuts = [random.below(bytes.len() + 1), random.below(bytes.len() + 1)];
        cuts.sort_unstable();
        let parts = [
            &bytes[..cuts[0]],
            &bytes[cuts[0]..cuts[1]],
            &bytes[cuts[1]..],
        ];
        assert_eq!(
            decode(&parts, &mut other),
            fault,
            "{bytes:02x?} at {cuts:?}"
        );
        assert_eq!(one, other, "{bytes:02x?} at {cuts:?}");
        if case % 16 == 0 {
            other.clear();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(decode(&single, &mut other), fault, "{bytes:02x?}");
            assert_eq!(one, other, "{bytes:02x?}");
        }
    }
    assert!(good > CASES / 100, "only {good} were good");
}

/// Runs the cases against a decoder, which must take some and not all.
fn cases(what: &str, seeds: &[&[u8]], words: &[&[u8]], mut takes: impl FnMut(&[u8]) -> bool) {
    let mut random = Random::new(what);
    let taken = (0..CASES)
        .filter(|_| takes(&mutant(&mut random, seeds, words)))
        .count();
    eprintln!("{what}: {taken} of {CASES} taken");
    assert!(taken > 0 && taken < CASES, "{taken} of {CASES}");
}

/// ST-75: acknowledgements, which come without their prefix. The seeds are those of `acks.json`.
#[test]
fn acks() {
    let seeds: [&[u8]; 4] = [
        b"\x83\xa4type\xaefile_write_ack\xa8write_id\xce\0\0\0\x01\xa2ok\xc3",
        b"\x84\xa4type\xaefile_write_ack\xa8write_id\xce\0\0\0\x01\xa2ok\xc2\xa5error\xbanotes.txt is there already",
        b"\x84\xa5error\xd9\x14gr\xc3\xb6\xc3\x9fer als erlaubt\xa2ok\xc2\xa8write_id\x01\xa4type\xaefile_write_ack",
        b"\x84\xa4type\xaefile_write_ack\xa8write_id\xcd\0\x01\xa2ok\xc3\xa4more\x92\xc0\x81\xa1a\x02",
    ];
    for seed in seeds {
        Ack::parse(seed).expect("an acknowledgement");
    }
    cases("acks", &seeds, &WORDS, |bytes| {
        let Ok(ack) = Ack::parse(bytes) else {
            return false;
        };
        let mut frame = Vec::new();
        ack.write(&mut frame);
        assert_eq!(Ack::parse(&frame[PREFIX_BYTES..]), Ok(ack), "{bytes:02x?}");
        true
    });
}

/// ST-10: run requests that are taken are read the same when they are written again.
#[test]
fn run_requests() {
    let seeds: [&[u8]; 2] = [
        br#"{"run_id":"r","attempt":1,"job":{"a":[1,null]}}"#,
        br#"{"run_id":"r","attempt":2,"parent_run_id":"q","job_id":"j","job":null,"proxy":{"protocol":"http","host":"h","port":1,"username":"u","password":"p"},"storage":{"dataset":"d","source":"s","category":"c","day":"x","run_id":"r"}}"#,
    ];
    let words: [&[u8]; 8] = [
        b"{",
        b"}",
        b"\"",
        b"null",
        b"0",
        b"1e9",
        b",",
        b"\"attempt\":1",
    ];
    cases("run requests", &seeds, &words, |bytes| {
        let Ok(request) = RunRequest::parse(bytes) else {
            return false;
        };
        let mut line = Vec::new();
        request.write_line(&mut line);
        assert_eq!(RunRequest::parse(&line).unwrap(), request);
        true
    });
}
