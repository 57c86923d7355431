//! Seeded mutations against every decoder of this crate, 100,000 each: none panics, and what is
//! accepted is read the same when it is written and read again. Every decoder that is fed bytes
//! is fed them at every split.

use callgate_testing::{Random, mutant};
use callgate_wires::bridge::{
    Answer, CallTool, FrameDecoder, read_schemas, write_call, write_schemas,
};
use callgate_wires::json;
use callgate_wires::jsonrpc::{
    Batch, Malformed, Message, parse_batch, write_notification, write_request, write_result,
};
use callgate_wires::line::{Line, LineSplitter};
use callgate_wires::mcp::{MODERN, Params, RequestMeta, check_headers, decode_header, meta};
use callgate_wires::tool_protocol::{
    HandshakeReply, HandshakeRequest, LocalRequest, Reply, ServiceRequest, Told, write_local,
};
use callgate_wires::toolhost::{
    LeaseCommand, Manifest, Request, RequestInput, RunRequest, Selection, SelectionKind,
    StateMessage, patch_value, read_patch, write_delta, write_snapshot,
};
use serde_json::{Value, json};

const CASES: usize = 100_000;

/// What JSON is made of, and what it must not be.
const WORDS: [&[u8]; 34] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e308",
    b"1e309",
    b"18446744073709551616",
    b"\"\\ud83d\\ude00\"",
    b"\\ud800",
    b"\xff",
    b"\xc3\x28",
    b"\0",
    b"\n",
    b"\"aid\":",
    b"\"aid\":\"A\",",
    b"\"slots\":",
    b"\"delta\":true,",
    b"\"256\"",
    b"\"removed_slots\":[1]",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"NaN",
    b"\"input_json\":\"{\\\"a\\\":1}\"",
    b"\"tools\":[",
    b"4.9e-324",
    b"0.1",
];

const REQUESTS: [&[u8]; 5] = [
    br#"{"aid":"AID.TEST.ECHO.v1","input_json":"{\"a\":[1,2.5,null]}","idempotency_key":"k"}"#,
    br#"{"aid":"AID.TEST.ECHO.v1","inputs":{"text":"h\u00e9llo","n":-3},"_lease_token":"lease_00"}"#,
    br#"{"aid":"A","ds_state":{"delta":true,"slots":{"6":{"type":"t","content_json":"{}","size_bytes":2}},"removed_slots":[1,"2"]},"other":[{}]}"#,
    br#"{"ds_state":{"slots":{"0":{"type":"x","provenance":"p","content_json":"1","size_bytes":0}}},"aid":"B"}"#,
    br#"{"aid":"_lease.issue","tool_aid":"AID.TEST.ECHO.v1","tier":1,"ttl_ms":5000}"#,
];

const STATES: [&[u8]; 3] = [
    br#"{"delta":true,"slots":{"6":{"type":"t","content_json":"{}","size_bytes":2}},"removed_slots":[1,"2"]}"#,
    br#"{"slots":{"0":{"type":"x","provenance":"p","content_json":"1","size_bytes":18446744073709551615},"255":{}}}"#,
    br#"{"delta":false,"slots":null,"removed_slots":null}"#,
];

const MANIFESTS: [&[u8]; 2] = [
    br#"{"toolpack_id":"toolpack.x","toolpack_version":"1","trust_tier":"tier1_signed","tools":[{"aid":"AID.X.Y.v1","name":"y","tags":["t"],"inputs_schema":{"type":"object"},"side_effects":["none"],"tier":2,"runner":{"kind":"process","command":["x"]}}]}"#,
    br#"{"tools":[{"aid":"A","name":"a","deterministic":false,"timeout_ms":5},{"aid":"B","name":"b","slots":true,"aliases":["c"]}]}"#,
];

/// Runs the cases; says how many were accepted, which must be some and not all.
fn cases(what: &str, seeds: &[&[u8]], mut accepts: impl FnMut(&[u8]) -> bool) {
    let mut random = Random::new(what);
    let accepted = (0..CASES)
        .filter(|_| accepts(&mutant(&mut random, seeds, &WORDS)))
        .count();
    eprintln!("{what}: {accepted} of {CASES} accepted");
    assert!(accepted > 0 && accepted < CASES, "{accepted} of {CASES}");
}

/// G-1, TH-36: strict JSON, at both depths.
#[test]
fn json_texts() {
    let seeds: Vec<&[u8]> = REQUESTS
        .into_iter()
        .chain(STATES)
        .chain(MANIFESTS)
        .collect();
    cases("json", &seeds, |bytes| {
        for depth_max in [32, json::DEPTH_MAX] {
            let Ok(value) = json::parse(bytes, depth_max) else {
                continue;
            };
            let text = value.to_string();
            assert_eq!(
                json::parse(text.as_bytes(), depth_max).unwrap(),
                value,
                "{text}"
            );
            let plain: Value = serde_json::from_slice(bytes).expect("strict JSON is JSON");
            assert_eq!(plain, value, "what is read is what any parser reads");
        }
        json::parse(bytes, json::DEPTH_MAX).is_ok()
    });
}

/// A request written out again, field by field.
fn rewritten(request: &Request) -> String {
    let mut body = json!({});
    let mut put = |name: &str, text: &Option<String>| {
        if let Some(text) = text {
            body[name] = json!(text);
        }
    };
    put("aid", &request.aid);
    put("idempotency_key", &request.idempotency_key);
    put("_lease_token", &request.lease_token);
    let input = match &request.input {
        RequestInput::Json(_, text) => text.clone(),
        RequestInput::Broken(_) => "{broken".to_owned(),
    };
    body["input_json"] = json!(input);
    if let Some(state) = written(&request.state) {
        body["ds_state"] = serde_json::from_slice(&state).expect("we wrote JSON");
    }
    body.to_string()
}

fn written(state: &StateMessage) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match state {
        StateMessage::Keep => return None,
        StateMessage::Replace(slots) => {
            write_snapshot(
                slots.iter().map(|(&slot, artifact)| (slot, artifact)),
                &mut out,
            );
        }
        StateMessage::Change(delta) => {
            let slots = delta.slots.iter().map(|(&slot, artifact)| (slot, artifact));
            write_delta(slots, &delta.removed_slots, &mut out);
        }
    }
    Some(out)
}

/// TH-25 to TH-36, T-1, T-24, T-25: requests and what is inside them.
#[test]
fn requests() {
    cases("requests", &REQUESTS, |bytes| {
        let _ = LeaseCommand::parse(bytes);
        let Ok(request) = Request::parse(bytes) else {
            return false;
        };
        let text = rewritten(&request);
        let again = Request::parse(text.as_bytes()).unwrap();
        if matches!(request.input, RequestInput::Broken(_)) {
            assert!(matches!(again.input, RequestInput::Broken(_)), "{text}");
            assert_eq!(
                (again.aid, again.state),
                (request.aid, request.state),
                "{text}"
            );
        } else {
            assert_eq!(again, request, "{text}");
        }
        true
    });
}

/// TH-77 to TH-87, T-24: slots, as a whole and as a difference.
#[test]
fn states() {
    cases("states", &STATES, |bytes| {
        let Ok(value) = json::parse(bytes, 32) else {
            return false;
        };
        let Ok(state) = StateMessage::from_value(value) else {
            return false;
        };
        if let Some(bytes) = written(&state) {
            let value = json::parse(&bytes, 32).unwrap();
            assert_eq!(StateMessage::from_value(value).unwrap(), state);
        }
        true
    });
}

/// TH-95 to TH-108: toolpack manifests.
#[test]
fn manifests() {
    cases("manifests", &MANIFESTS, |bytes| {
        let Ok(manifest) = Manifest::parse(bytes) else {
            return false;
        };
        let value = json::parse(bytes, json::DEPTH_MAX).unwrap();
        let again = Manifest::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{manifest:?}"));
        true
    });
}

/// TH-140 to TH-142: a selector's answers. The text is kept, only a pick has an entry, and a patch
/// is an object. What is no UTF-8 never gets here.
#[test]
fn selections() {
    const SELECTIONS: [&[u8]; 5] = [
        b"<ASK_SUP><END>",
        b" <NOOP><END>\n",
        br#"<PICK><SID0007> as it fits <INP>{"a":{"b":[1,null]},"_queue":1}</INP><END>"#,
        b"<PICK><SID0001><INP64>eyJhIjoxfQ==</INP64><END>",
        b"<PICK><SID9999><INP64> eyJh IjoxfQ </INP64><INP>{}</INP><END>",
    ];
    cases("selections", &SELECTIONS, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let selection = Selection::parse(&text);
        assert_eq!(selection.raw, text);
        let is_pick = selection.kind == SelectionKind::Pick;
        assert_eq!(selection.sid.is_some(), is_pick, "{text}");
        if let Some(patch) = &selection.input_patch_json {
            assert!(is_pick, "{text}");
            let read = json::parse(patch.as_bytes(), 32).unwrap();
            assert_eq!(read, Value::Object(selection.patch()), "{text}");
        }
        assert_eq!(Selection::parse(&selection.raw), selection, "{text}");
        selection.kind != SelectionKind::Invalid
    });
}

/// TH-135: requests for runs, recorded and read again.
#[test]
fn run_requests() {
    const RUN_REQUESTS: [&[u8]; 3] = [
        br#"{"goal_id":"g","candidate_tags":["tag.a","tag.meta"],"inputs":{"n":[1,null]},"control_mode":"BLENDED","request_id":"r"}"#,
        br#"{"goal_id":"g","_capabilities":{"allowed_tools":["AID.*"],"blocked_tools":["x"]},"_queue":{"max_attempts":3,"base_delay_ms":250}}"#,
        br#"{"goal_id":"g","candidate_tags":[],"control_mode":"POLICY_ONLY","other":{}}"#,
    ];
    cases("run requests", &RUN_REQUESTS, |bytes| {
        let Ok(request) = RunRequest::parse(bytes) else {
            return false;
        };
        let text = request.to_value().to_string();
        assert_eq!(RunRequest::parse(text.as_bytes()), Ok(request), "{text}");
        true
    });
}

/// TH-91: state patches, all of one or nothing.
#[test]
fn patches() {
    const PATCHES: [&[u8]; 3] = [
        br#"[{"op":"add","path":"/slots/6","value":{"type":"t","content_json":"{}","size_bytes":2}}]"#,
        br#"[{"op":"replace","path":"/slots/0","value":{"type":"x","provenance":"p","content_json":"1","size_bytes":1}},{"op":"remove","path":"/slots/7"}]"#,
        br#"[{"op":"remove","path":"/slots/1"}]"#,
    ];
    cases("patches", &PATCHES, |bytes| {
        let Ok(value) = json::parse(bytes, 32) else {
            return false;
        };
        let Ok(patch) = read_patch(&value) else {
            return false;
        };
        assert_eq!(read_patch(&patch_value(&patch)), Ok(patch), "{value}");
        true
    });
}

/// The lines of a stream, fed in these pieces; `None` for one that was too long.
fn split(pieces: &[&[u8]], line_bytes_max: usize) -> Vec<Option<Vec<u8>>> {
    let mut splitter = LineSplitter::new(line_bytes_max);
    let mut lines = Vec::new();
    for piece in pieces {
        splitter.feed(piece);
        while let Some(line) = splitter.next_line() {
            lines.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
        }
    }
    lines.extend(splitter.finish().map(|rest| Some(rest.to_vec())));
    lines
}

/// What the lines are by their definition.
fn lines_by_definition(bytes: &[u8], line_bytes_max: usize) -> Vec<Option<Vec<u8>>> {
    let mut parts: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    let whole = |part: &&[u8]| (part.len() <= line_bytes_max).then(|| part.to_vec());
    parts.iter().map(whole).collect()
}

/// T-8, TH-34, TH-42: lines out of any bytes in any pieces are those of the definition.
#[test]
fn lines_in_any_pieces() {
    let mut random = Random::new("lines");
    let seeds: [&[u8]; 3] = [
        b"one\n\ntwo words\nexactly8\nninechars\nlast",
        b"\n\n\n",
        b"a line that is much too long for the limit\nshort\n",
    ];
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &seeds, &WORDS);
        let limit = random.below(16);
        let mut cuts: Vec<usize> = (0..random.below(5))
            .map(|_| random.below(bytes.len() + 1))
            .collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        assert_eq!(
            split(&pieces, limit),
            lines_by_definition(&bytes, limit),
            "{bytes:?} {cuts:?}"
        );
    }
}

/// TH-44: requests in a stream of lines, at every split of the stream.
#[test]
fn every_split_of_a_stream_of_requests() {
    let stream = [REQUESTS.join(&b'\n').as_slice(), b"\nbroken\n\n{}\n"].concat();
    let read = |pieces: &[&[u8]]| -> Vec<Option<Request>> {
        let lines = split(pieces, 1 << 20).into_iter().flatten();
        lines.map(|line| Request::parse(&line).ok()).collect()
    };
    let wanted = read(&[&stream]);
    assert_eq!(wanted.len(), REQUESTS.len() + 3);
    for cut in 0..=stream.len() {
        assert_eq!(
            read(&[&stream[..cut], &stream[cut..]]),
            wanted,
            "cut at {cut}"
        );
    }
    let single: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(read(&single), wanted);
}

const BRIDGE: [&[u8]; 5] = [
    br#"{"method":"call_tool","params":{"name":"sum","arguments":{"a":1,"b":[2.5,null]}}}"#,
    br#"{"id":7,"method":"call_tool","params":{"name":"x","_meta":{"callgate/idempotencyKey":"k"}}}"#,
    br#"{"result":{"content":[{"type":"text","text":"3"}],"isError":false}}"#,
    br#"{"error":{"message":"'k'","type":"KeyError"}}"#,
    br#"[{"name":"sum","description":"Adds.","input_schema":{"type":"object"}}]"#,
];

/// BR-7 to BR-17, BR-29: what is taken is read the same when it is written again.
#[test]
fn bridge_messages() {
    let mut random = Random::new("bridge messages");
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &BRIDGE, &WORDS);
        if let Ok(call) = CallTool::parse(&bytes) {
            let meta = call.meta.as_ref().and_then(|meta| meta.as_ref().ok());
            let mut again = Vec::new();
            let meta = meta.map(|meta| json!(meta).as_object().cloned().unwrap());
            let meta = meta.unwrap_or_default();
            write_call(&call.name, &call.arguments, &meta, &mut again).unwrap();
            let read = CallTool::parse(&again[4..]).unwrap();
            assert_eq!((read.name, read.arguments), (call.name, call.arguments));
        }
        if let Ok(tools) = read_schemas(&bytes) {
            let again = write_schemas(&tools);
            assert_eq!(read_schemas(again.as_bytes()).unwrap(), tools);
        }
        let _ = Answer::parse(&bytes);
    }
}

/// BR-2: any bytes, cut anywhere, give the same frames and the same end.
#[test]
fn bridge_frames() {
    let mut random = Random::new("bridge frames");
    let seeds: [&[u8]; 3] = [
        b"\0\0\0\x02{}\0\0\0\0\0\0\0\x07payload",
        b"\0\xa0\0\0rest",
        b"\0\0\0\x01x\xff\xff\xff\xff",
    ];
    let words: [&[u8]; 4] = [b"\0\0\0", b"\0\0\0\x03", b"\xff", b"{}"];
    let decode = |chunks: [&[u8]; 2]| {
        let mut decoder = FrameDecoder::default();
        let mut frames = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk);
            loop {
                match decoder.next_frame() {
                    Ok(Some(payload)) => frames.push(payload.to_vec()),
                    Ok(None) => break,
                    Err(error) => return (frames, Err(error)),
                }
            }
        }
        (frames, decoder.finish())
    };
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &seeds, &words);
        let cut = random.below(bytes.len() + 1);
        let whole = decode([&bytes, b""]);
        assert_eq!(
            decode([&bytes[..cut], &bytes[cut..]]),
            whole,
            "{bytes:?} at {cut}"
        );
    }
}

const TOOL_PROTOCOL: [&[u8]; 7] = [
    br#"{"protocol_version":1,"tool":"greeter","entry":"tools.sample_tool:greet","payload":{"name":"Ada"},"sandbox":true,"trace_id":"uuid","capability_context":{"guarantees":{"no_network":true,"secrets_allowed":["A"]},"sources":{"no_network":"tool"},"filesystem_root":"/a","filesystem_read_roots":["/b"]}}"#,
    br#"{"protocol_version":1,"tool_name":"greeter","kind":"python","entry":"tools.sample_tool:greet","payload":{"n":[1.5,null]},"timeout_ms":10000,"trace_id":"uuid","project":{"app_root":"/path","flow":null},"callgate/idempotencyKey":"k"}"#,
    br#"{"protocol_version":1,"tool_name":"greeter","runner":"service","required_guarantees":{"no_network":true,"no_env_read":false}}"#,
    br#"{"ok":true,"protocol_version":1,"result":{"message":"Hello Ada","ok":true},"capability_checks":[{"capability":"network","allowed":true,"guarantee_source":"tool","reason":"guarantee_allowed"}]}"#,
    br#"{"ok":false,"protocol_version":1,"error":{"type":"ValueError","message":"Missing input","reason_code":"guarantee_blocked"}}"#,
    br#"{"ok":false,"error_type":"KeyError","error_message":"k"}"#,
    br#"{"ok":true,"enforcement":"enforced","supported_guarantees":{"no_network":true},"service_version":"1.0.0"}"#,
];

/// Reads again what `write` writes.
fn again<T>(write: impl FnOnce(&mut Vec<u8>), read: impl FnOnce(&[u8]) -> T) -> T {
    let mut out = Vec::new();
    write(&mut out);
    read(&out)
}

/// TP-2, TP-37, G-1: requests of the tool protocol.
#[test]
fn tool_protocol_requests() {
    cases("tool protocol requests", &TOOL_PROTOCOL, |bytes| {
        let mut taken = false;
        if let Ok(mut request) = LocalRequest::parse(bytes) {
            let mut read = again(|out| request.write(out), LocalRequest::parse).unwrap();
            // Whether any of ours came along is all that is known of those we do not know.
            (request.ours.knows_us, read.ours.knows_us) = (false, false);
            assert_eq!(read, request);
            taken = true;
        }
        if let Ok(mut request) = ServiceRequest::parse(bytes) {
            let mut read = again(|out| request.write(out), ServiceRequest::parse).unwrap();
            (request.ours.knows_us, read.ours.knows_us) = (false, false);
            assert_eq!(read, request);
            taken = true;
        }
        if let Ok(request) = HandshakeRequest::parse(bytes) {
            let read = again(|out| request.write(out), HandshakeRequest::parse).unwrap();
            assert_eq!(read, request);
            taken = true;
        }
        taken
    });
}

/// TP-14, TP-25, TP-53: its replies.
#[test]
fn tool_protocol_replies() {
    cases("tool protocol replies", &TOOL_PROTOCOL[3..], |bytes| {
        if let Ok(reply) = HandshakeReply::parse(bytes) {
            let read = again(|out| reply.write(out), HandshakeReply::parse).unwrap();
            assert_eq!(read, reply);
        }
        let Ok(reply) = Reply::parse(bytes) else {
            return false;
        };
        let text = reply.result.as_ref().map(Value::to_string);
        let told = Told {
            result: text.as_deref().map_err(|said| *said),
            checks: Some(&reply.checks),
            call: None,
        };
        let read = again(|out| write_local(&told, out), Reply::parse).unwrap();
        assert_eq!(read, reply);
        true
    });
}

const ENVELOPES: [&[u8]; 7] = [
    br#"{"jsonrpc":"2.0","method":"files/read","params":{"path":"src/main.rs"},"id":1}"#,
    br#"{"jsonrpc":"2.0","id":"a","method":"m","params":{},"callgate":{"idempotency_key":"k"}}"#,
    br#"{"jsonrpc":"2.0","id":2,"method":"m","params":{"a":[]},"callgate":{"lease_token":"lease_00","trace_id":null,"timeout_ms":1.5e3}}"#,
    br#"{"jsonrpc":"2.0","method":"m"}"#,
    br#"{"jsonrpc":"2.0","id":1.50,"result":{"a":[null,true]}}"#,
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Internal error"}}"#,
    br#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},7]"#,
];

/// A message written out again, where it is one that either side writes.
fn envelope(message: &Message) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match message {
        Message::Request {
            id,
            method,
            params: Some(params),
            ours,
        } => {
            write_request(id, method, params, &mut out);
            if let Some(ours) = ours {
                out.pop();
                out.extend_from_slice(b",\"callgate\":");
                json::write_value(ours, &mut out);
                out.push(b'}');
            }
        }
        Message::Notification {
            method,
            params: Some(params),
        } => write_notification(method, params, &mut out),
        Message::Response {
            id,
            result: Ok(result),
        } => write_result(id, result, &mut out),
        _ => return None,
    }
    Some(out)
}

/// JR-1, JR-2, JR-3, JR-4, R-2: what is a message is the same one when it is written again;
/// what is none has one of the three codes.
#[test]
fn json_rpc_envelopes() {
    let good = |one: &Result<Message, Malformed>| match one {
        Ok(message) => {
            if let Some(bytes) = envelope(message) {
                let again = parse_batch(&bytes, 64);
                assert!(matches!(&again, Batch::One(Ok(same)) if same == message));
            }
            true
        }
        Err(Malformed { code, .. }) => {
            assert!([-32700, -32602, -32600].contains(code), "{code}");
            false
        }
    };
    let accepts = |bytes: &[u8]| match parse_batch(bytes, 64) {
        Batch::One(one) => {
            if let Ok(Message::Request { params, ours, .. }) = &one {
                let plain: Value = serde_json::from_slice(bytes).expect("it is JSON");
                let said = [plain.get("params"), plain.get("callgate")];
                assert_eq!([params.as_ref(), ours.as_ref()], said, "{plain}");
            }
            good(&one)
        }
        Batch::Many(many) => {
            assert!((1..=64).contains(&many.len()));
            many.iter().filter(|one| good(one)).count() > 0
        }
    };
    cases("json-rpc envelopes", &ENVELOPES, accepts);
}

const METADATA: [&[u8]; 3] = [
    br#"{"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/logLevel":"info"}}"#,
    br#"{"name":"x","_meta":{"callgate/idempotencyKey":"k","callgate/leaseToken":"lease_1","progressToken":"t"}}"#,
    br#"{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","callgate/traceparent":null}}"#,
];

/// What a request says of itself is what stands there, or the request is refused.
#[test]
fn mcp_metadata() {
    cases("MCP metadata", &METADATA, |bytes| {
        let Ok(params) = json::parse(bytes, json::DEPTH_MAX) else {
            return false;
        };
        let Ok(read) = RequestMeta::read(Some(&params)) else {
            return false;
        };
        let said = &params["_meta"];
        assert_eq!(read.progress_token.as_ref(), said.get("progressToken"));
        for (text, key) in [
            (&read.version, meta::VERSION),
            (&read.log_level, meta::LOG_LEVEL),
            (&read.idempotency_key, meta::KEY),
            (&read.lease_token, meta::LEASE),
        ] {
            assert_eq!(text.as_deref(), said[key].as_str(), "{params}");
        }
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some((trace, span)) = read.trace() {
            for (id, length) in [(trace, 32), (span, 16)] {
                assert!(id.len() == length && is_hex(id), "{params}");
            }
        }
        if read.check_modern().is_ok() {
            assert_eq!(read.version.as_deref(), Some(MODERN));
            assert!(read.capabilities.is_some());
        }
        true
    });
}

/// A header is taken for what it mirrors only if it says the same, however it is spelt.
#[test]
fn mcp_headers() {
    let seeds: [&[u8]; 5] = [
        b"files_read",
        b" files_read\t",
        b"=?base64?ZmlsZXNfcmVhZA==?=",
        b"=?base64?w7w=?=",
        b"=?base64??=",
    ];
    let params = json!({ "name": "files_read", "arguments": { "region": "files_read" } });
    let params = Params::Other(params);
    let schema = json!({ "properties": { "region": { "x-mcp-header": "Region" } } });
    cases("MCP headers", &seeds, |bytes| {
        let read = decode_header(bytes);
        let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
        if let Some(read) = &read {
            assert!(bytes.trim_ascii().iter().all(is_plain));
            // What was not encoded is as it came.
            let is_encoded = bytes.trim_ascii().starts_with(b"=?base64?");
            assert!(is_encoded || read.as_bytes() == bytes.trim_ascii());
        }
        let is_same = read.as_deref() == Some("files_read");
        for place in ["mcp-name", "mcp-param-region"] {
            let header = |name: &str| match name {
                _ if name == place => Some(bytes),
                "mcp-protocol-version" => Some(MODERN.as_bytes()),
                "mcp-method" => Some(b"tools/call".as_slice()),
                _ => Some(b"files_read".as_slice()),
            };
            let checked = check_headers(&header, MODERN, "tools/call", &params, Some(&schema));
            assert_eq!(checked.is_ok(), is_same, "{place}: {bytes:?}");
        }
        is_same
    });
}
