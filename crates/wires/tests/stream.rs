//! The stream's decoder at its limits, what it borrows and what it holds; and the run request.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod support;

use callgate_wires::stream::{
    Ack, CHUNK_BYTES_MAX, DEPTH_MAX, Decoder, FILE_BYTES_MAX, FRAME_PAYLOAD_MAX, KEYS_MAX, Piece,
    ProxyEndpoint, ProxyProtocol, RunRequest, Storage, StreamFault, encode, payload_len,
};
use serde_json::{Value, json};
use support::stream::{chunk_frame, decode, event_frame, frame};

/// Feeds all of it; the fault it ends with, if any, and how often anything came.
fn count(parts: &[&[u8]]) -> (usize, Option<StreamFault>) {
    let mut decoder = Decoder::new();
    let mut pieces = 0;
    for part in parts {
        let mut input = *part;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(_)) => pieces += 1,
                Ok(None) => break,
                Err(fault) => return (pieces, Some(fault)),
            }
        }
    }
    (pieces, decoder.end().err())
}

/// An event whose payload makes its frame exactly this long.
fn event_of(payload_bytes: usize) -> Vec<u8> {
    let bare = event_frame("item", b"\x81\xa1x\xc6\0\0\0\0").len() - 4;
    let data = payload_bytes - bare;
    let mut payload = b"\x81\xa1x\xc6".to_vec();
    payload.extend_from_slice(&u32::try_from(data).unwrap().to_be_bytes());
    payload.resize(payload.len() + data, 7);
    event_frame("item", &payload)
}

/// ST-3, S-1: just below, at and past the largest frame, judged by the prefix alone.
#[test]
fn the_largest_frame() {
    assert_eq!(FRAME_PAYLOAD_MAX, 16_777_212);
    for bytes in [FRAME_PAYLOAD_MAX - 1, FRAME_PAYLOAD_MAX] {
        let event = event_of(bytes);
        assert_eq!(event.len(), bytes + 4);
        assert_eq!(count(&[&event]), (1, None));
        let parts: Vec<&[u8]> = event.chunks(100_000).collect();
        assert_eq!(count(&parts), (1, None));
    }
    let past = [0x00, 0xff, 0xff, 0xfd];
    let len = 16_777_213;
    assert_eq!(count(&[&past]), (0, Some(StreamFault::TooLarge { len })));
    assert_eq!(payload_len([0, 0xff, 0xff, 0xfc]), Ok(FRAME_PAYLOAD_MAX));
    assert_eq!(payload_len([0; 4]), Err(StreamFault::Empty));
}

/// ST-3: our own encoder refuses what is too large, and leaves no byte of it behind.
#[test]
fn nothing_too_large_is_sent() {
    let payload = vec![0xc0; FRAME_PAYLOAD_MAX];
    let event = encode::Event {
        contract_version: "0",
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
    let mut out = b"before".to_vec();
    let refused = encode::event(&event, &mut out);
    assert!(matches!(refused, Err(StreamFault::TooLarge { .. })));
    let refused = encode::file_head(1, "a", "b", FILE_BYTES_MAX + 1, &mut out);
    assert!(matches!(refused, Err(StreamFault::FileTooLarge { .. })));
    assert_eq!(out, b"before");
}

/// A chunk in an order in which its data must be held.
fn held_chunk(data: &[u8]) -> Vec<u8> {
    let mut payload = b"\x85\xa4data\xc6".to_vec();
    payload.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
    payload.extend_from_slice(data);
    payload.extend_from_slice(b"\xa7is_last\xc3\xa3seq\x01\xabartifact_id\xa3a-1");
    payload.extend_from_slice(b"\xa4type\xaeartifact_chunk");
    frame(&payload)
}

/// ST-64: just below, at and past the largest chunk, passed on or held.
#[test]
fn the_largest_chunk() {
    assert_eq!(CHUNK_BYTES_MAX, 8_388_608);
    for bytes in [CHUNK_BYTES_MAX - 1, CHUNK_BYTES_MAX] {
        let data = vec![9; bytes];
        assert_eq!(count(&[&chunk_frame(&data)]), (3, None));
        assert_eq!(count(&[&held_chunk(&data)]), (3, None));
    }
    let bytes = CHUNK_BYTES_MAX + 1;
    let data = vec![9; bytes];
    let too_large = (0, Some(StreamFault::ChunkTooLarge { bytes }));
    assert_eq!(count(&[&held_chunk(&data)]), too_large);
    let mut passed = chunk_frame(&data[..CHUNK_BYTES_MAX]);
    let head = passed.len() - CHUNK_BYTES_MAX;
    let len = u32::try_from(passed.len() - 3).unwrap();
    passed[..4].copy_from_slice(&len.to_be_bytes());
    passed[head - 4..head].copy_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
    passed.push(9);
    assert_eq!(count(&[&passed]), too_large);
    // It is known by its head alone.
    assert_eq!(count(&[&passed[..head]]), too_large);
    let mut out = Vec::new();
    let head = callgate_wires::stream::ChunkHead {
        artifact_id: "a",
        seq: 1,
        is_last: true,
        bytes,
    };
    assert!(encode::chunk_head(&head, &mut out).is_err() && out.is_empty());
}

/// ST-74: just below, at and past the largest sidecar file.
#[test]
fn the_largest_file() {
    let file = |bytes: usize| {
        let mut payload = b"\x85\xa4type\xaafile_write\xa8write_id\x01\xa8filename\xa1a".to_vec();
        payload.extend_from_slice(b"\xaccontent_type\xa1b\xa4data\xc6");
        payload.extend_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        payload.resize(payload.len() + bytes, 1);
        frame(&payload)
    };
    assert_eq!(count(&[&file(FILE_BYTES_MAX - 1)]), (1, None));
    assert_eq!(count(&[&file(FILE_BYTES_MAX)]), (1, None));
    let bytes = FILE_BYTES_MAX + 1;
    let fault = StreamFault::FileTooLarge { bytes };
    assert_eq!(count(&[&file(bytes)]), (0, Some(fault)));
}

/// S-2: nesting just below, at and past what is read; what is read can be stored as JSON.
#[test]
fn the_deepest_payload() {
    let nested = |lists: usize, inmost: &[u8]| {
        let payload = [b"\x81\xa1x", vec![0x91; lists].as_slice(), inmost].concat();
        event_frame("item", &payload)
    };
    // The frame's map and the payload's are the first two levels.
    for lists in [DEPTH_MAX - 3, DEPTH_MAX - 2] {
        assert_eq!(decode(&[&nested(lists, b"\xc0")]).fault, None);
    }
    let too_deep = (0, Some(StreamFault::TooDeep));
    assert_eq!(count(&[&nested(DEPTH_MAX - 1, b"\xc0")]), too_deep);
    assert_eq!(count(&[&nested(100_000, b"\xc0")]), too_deep);
    // An extension becomes an object.
    assert_eq!(count(&[&nested(DEPTH_MAX - 2, b"\xd4\x01\x01")]), too_deep);
    let deepest = nested(DEPTH_MAX - 3, b"\xd4\x01\x01");
    let (mut decoder, mut input, mut line) = (Decoder::new(), deepest.as_slice(), Vec::new());
    let Some(Piece::Event(event)) = decoder.next(&mut input).unwrap() else {
        panic!("no event");
    };
    event.write_json(&mut line);
    callgate_wires::json::parse(&line, DEPTH_MAX).unwrap();
}

/// S-2: a key is found to come twice among as many as are looked at, and more are refused.
#[test]
fn many_keys() {
    let map = |keys: usize, twice: bool| {
        let count = u32::try_from(keys + usize::from(twice)).unwrap();
        let mut payload = vec![0xdf];
        payload.extend_from_slice(&count.to_be_bytes());
        for key in 0..keys {
            payload.push(0xa3);
            payload.extend_from_slice(&u32::try_from(key).unwrap().to_be_bytes()[1..]);
            // Text it must be.
            let at = payload.len();
            payload[at - 3..].iter_mut().for_each(|byte| *byte &= 0x7f);
            payload.push(0xc0);
        }
        if twice {
            payload.extend_from_slice(b"\xa3\0\0\x05\xc0");
        }
        event_frame("item", &payload)
    };
    for keys in [15, 16, 17, 100] {
        assert_eq!(count(&[&map(keys, false)]), (1, None), "{keys}");
        let fault = count(&[&map(keys, true)]).1;
        assert!(
            matches!(fault, Some(StreamFault::DuplicateKey { .. })),
            "{keys}"
        );
    }
    let mut payload = vec![0xdf];
    payload.extend_from_slice(&u32::try_from(KEYS_MAX + 1).unwrap().to_be_bytes());
    for key in 0..=KEYS_MAX {
        payload.push(0xce);
        payload.extend_from_slice(&u32::try_from(key).unwrap().to_be_bytes());
        payload.push(0xc0);
    }
    let many = event_frame("item", &payload);
    assert_eq!(count(&[&many]), (0, Some(StreamFault::TooManyKeys)));
}

/// True if one is inside the other.
fn inside(part: &[u8], whole: &[u8]) -> bool {
    whole.as_ptr_range().contains(&part.as_ptr())
}

/// ST-8: an event comes out with its last byte, whole, and is borrowed if it came whole.
#[test]
fn events_are_whole_and_borrowed() {
    let event = event_frame("item", b"\x81\xa1a\x01");
    let (mut decoder, mut input) = (Decoder::new(), event.as_slice());
    let Some(Piece::Event(got)) = decoder.next(&mut input).unwrap() else {
        panic!("no event");
    };
    assert!(inside(got.payload(), &event) && inside(got.run_id.as_bytes(), &event));
    for cut in 0..event.len() {
        let mut decoder = Decoder::new();
        let mut input = &event[..cut];
        assert_eq!(decoder.next(&mut input), Ok(None), "before byte {cut}");
        let mut input = &event[cut..];
        let got = decoder.next(&mut input);
        assert!(matches!(got, Ok(Some(Piece::Event(_)))), "cut at {cut}");
    }
}

/// ST-63: the data of a chunk is handed on as it comes, and not one byte of it is copied.
#[test]
fn chunks_pass_through() {
    let data = vec![5; 1 << 20];
    let bytes = chunk_frame(&data);
    let mut decoder = Decoder::new();
    let mut passed = 0;
    for part in bytes.chunks(64 * 1024) {
        let mut input = part;
        while let Some(piece) = decoder.next(&mut input).unwrap() {
            if let Piece::Bytes(now) = piece {
                assert!(inside(now, part));
                passed += now.len();
            }
        }
    }
    assert_eq!(passed, data.len());
    assert_eq!(decoder.end(), Ok(()));
}

/// ST-37: fields of a payload by name, numbers also as floats.
#[test]
fn fields_of_a_payload() {
    let payload = b"\x85\xabartifact_id\xa1a\x01\xa3one\xa4size\xcb\x40\x14\0\0\0\0\0\0\xa4half\xcb\x3f\xe0\0\0\0\0\0\0\xa4more\x81\xa1x\xc4\x01y";
    let bytes = event_frame("artifact", payload);
    let (mut decoder, mut input) = (Decoder::new(), bytes.as_slice());
    let Some(Piece::Event(event)) = decoder.next(&mut input).unwrap() else {
        panic!("no event");
    };
    assert_eq!(event.payload_str("artifact_id"), Some("a"));
    assert_eq!(event.payload_u64("size"), Some(5));
    assert_eq!(event.payload_u64("half"), None);
    assert_eq!(event.payload_u64("artifact_id"), None);
    assert_eq!(event.payload_str("size"), None);
    assert_eq!(event.payload_str("absent"), None);
    let mut json = Vec::new();
    assert!(event.payload_field_json("more", &mut json));
    assert!(!event.payload_field_json("absent", &mut json));
    assert_eq!(json, br#"{"x":"eQ=="}"#);
}

fn request() -> RunRequest {
    RunRequest {
        run_id: "r-7".to_owned(),
        attempt: 2,
        job_id: Some("j-1".to_owned()),
        parent_run_id: Some("r-6".to_owned()),
        job: json!({"q": 1}),
        proxy: Some(ProxyEndpoint {
            protocol: ProxyProtocol::Https,
            host: "proxy.example".to_owned(),
            port: 65_535,
            login: Some(("user".to_owned(), "hunter2".to_owned())),
        }),
        browser_ws_endpoint: Some("ws://localhost".to_owned()),
        storage: Some(Storage {
            dataset: "d".to_owned(),
            source: "s".to_owned(),
            category: "c".to_owned(),
            day: "2026-11-15".to_owned(),
            run_id: "r-7".to_owned(),
        }),
    }
}

fn line(request: &RunRequest) -> Vec<u8> {
    let mut out = Vec::new();
    request.write_line(&mut out);
    out
}

/// ST-10, ST-11, ST-12, ST-13, ST-14, ST-15, ST-16, ST-17, ST-18: a request is one line of JSON
/// that is read as it was written.
#[test]
fn a_request_both_ways() {
    let full = request();
    let bytes = line(&full);
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert!(bytes.ends_with(b"\n"));
    assert_eq!(RunRequest::parse(&bytes).unwrap(), full);
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    let wanted = json!({
        "run_id": "r-7", "attempt": 2, "job_id": "j-1", "parent_run_id": "r-6", "job": {"q": 1},
        "proxy": {"protocol": "https", "host": "proxy.example", "port": 65_535,
            "username": "user", "password": "hunter2"},
        "browser_ws_endpoint": "ws://localhost",
        "storage": {"dataset": "d", "source": "s", "category": "c", "day": "2026-11-15",
            "run_id": "r-7"},
    });
    assert_eq!(value, wanted);
    let bare = RunRequest {
        attempt: 1,
        job_id: None,
        parent_run_id: None,
        job: Value::Null,
        proxy: None,
        browser_ws_endpoint: None,
        storage: None,
        ..full
    };
    let value: Value = serde_json::from_slice(&line(&bare)).unwrap();
    assert_eq!(value, json!({"run_id": "r-7", "attempt": 1, "job": null}));
    assert_eq!(RunRequest::parse(&line(&bare)).unwrap(), bare);
    let more = br#"{"run_id":"r-7","attempt":1,"job":null,"later":[1],"browser_ws_endpoint":""}"#;
    assert_eq!(RunRequest::parse(more).unwrap(), bare);
}

/// ST-11, ST-12, ST-14, ST-15, ST-18, ST-20, ST-21, ST-22, ST-23: each bad request has its reason.
#[test]
fn bad_requests() {
    let good = line(&request());
    let good: Value = serde_json::from_slice(&good).unwrap();
    let change = |path: &str, value: Option<Value>| {
        let mut changed = good.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let object = changed
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap();
        match value {
            Some(value) => object.insert(key.to_owned(), value),
            None => object.remove(key),
        };
        RunRequest::parse(changed.to_string().as_bytes())
    };
    for (path, value, words) in [
        ("/run_id", None, "`run_id` is missing"),
        ("/run_id", Some(json!("")), "`run_id` is empty"),
        ("/run_id", Some(json!(7)), "`run_id` is not text"),
        ("/attempt", None, "`attempt` is not an integer of 1 or more"),
        (
            "/attempt",
            Some(json!(0)),
            "`attempt` is not an integer of 1 or more",
        ),
        (
            "/attempt",
            Some(json!(1.5)),
            "`attempt` is not an integer of 1 or more",
        ),
        (
            "/attempt",
            Some(json!(1)),
            "`parent_run_id` is there for attempt 1",
        ),
        (
            "/parent_run_id",
            None,
            "`parent_run_id` is missing after attempt 1",
        ),
        ("/job_id", Some(json!(1)), "`job_id` is not text"),
        ("/job", None, "`job` is missing"),
        ("/storage", Some(json!([])), "`storage` is not an object"),
        (
            "/storage/day",
            Some(json!("")),
            "`storage` has a part that is missing, empty or not text",
        ),
        (
            "/storage/source",
            None,
            "`storage` has a part that is missing, empty or not text",
        ),
        (
            "/browser_ws_endpoint",
            Some(json!(1)),
            "`browser_ws_endpoint` is not text",
        ),
        (
            "/proxy",
            Some(json!("http://u:hunter2@h")),
            "`proxy` is not an object",
        ),
        (
            "/proxy/protocol",
            Some(json!("ftp")),
            "`proxy` has a protocol that is none of http, https and socks5",
        ),
        ("/proxy/host", Some(json!("")), "`proxy` has no host"),
        (
            "/proxy/port",
            Some(json!(0)),
            "`proxy` has a port that is not 1 to 65535",
        ),
        (
            "/proxy/port",
            Some(json!(65_536)),
            "`proxy` has a port that is not 1 to 65535",
        ),
        (
            "/proxy/password",
            None,
            "`proxy` has a username without a password",
        ),
        (
            "/proxy/username",
            Some(Value::Null),
            "`proxy` has a password without a username",
        ),
        (
            "/proxy/password",
            Some(json!(7)),
            "`proxy` has a username or a password that is no text",
        ),
    ] {
        let error = change(path, value.clone()).unwrap_err();
        assert_eq!(error.to_string(), words, "{path} {value:?}");
    }
    for (path, value) in [("/proxy/port", json!(1)), ("/attempt", json!(u32::MAX))] {
        assert!(change(path, Some(value)).is_ok(), "{path}");
    }
    for text in [
        "",
        "{",
        "[]",
        "null",
        "{} {}",
        r#"{"run_id":"a","run_id":"b"}"#,
    ] {
        let error = RunRequest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "not a JSON object", "{text}");
    }
}

/// ST-24: what shows a proxy does not show its password.
#[test]
fn a_password_is_not_shown() {
    let request = request();
    let proxy = request.proxy.as_ref().unwrap();
    for text in [
        format!("{proxy:?}"),
        format!("{request:#?}"),
        format!("{:?}", proxy.used()),
        proxy.used().to_json().to_string(),
    ] {
        assert!(
            text.contains("proxy.example") && !text.contains("hunter2"),
            "{text}"
        );
    }
    let bad = br#"{"run_id":"r","attempt":1,"job":1,"proxy":{"protocol":"hunter2","host":"hunter2","port":"hunter2","username":"hunter2","password":"hunter2"}}"#;
    let error = RunRequest::parse(bad).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

/// ST-75: an acknowledgement is a frame that a decoder of the other side refuses.
#[test]
fn an_acknowledgement_goes_one_way() {
    let mut out = Vec::new();
    let ack = Ack {
        write_id: 3,
        ok: false,
        error: Some("no room"),
    };
    ack.write(&mut out);
    assert_eq!(Ack::parse(&out[4..]), Ok(ack));
    assert_eq!(count(&[&out]), (0, Some(StreamFault::AckFromExecutor)));
}
