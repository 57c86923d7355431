//! Lines of servers, good and bad, and what they are.

use super::*;
use crate::mcp::client::{ServerLine, ServerLines};

/// A message in words.
fn words(line: &[u8]) -> String {
    match read_line(line, ResultForm::Parsed) {
        ServerMessage::Answer {
            id,
            body: Ok(AnswerBody::Parsed(value)),
        } => format!("{id}: {value}"),
        ServerMessage::Answer {
            id,
            body: Ok(AnswerBody::Raw(text)),
        } => format!("{id}: {text}"),
        ServerMessage::Answer {
            id,
            body: Err(AnswerError::Refused(error)),
        } => {
            format!(
                "{id}: error {} {:?} {:?}",
                error.code, error.message, error.data
            )
        }
        ServerMessage::Answer {
            id,
            body: Err(AnswerError::Malformed(reason)),
        } => {
            format!("{id}: malformed: {reason}")
        }
        ServerMessage::Request { id, method } => format!("request {id:?} {method}"),
        ServerMessage::Notification { method, params } => format!("{method} {params:?}"),
        ServerMessage::StrayAnswer => "stray".to_owned(),
        ServerMessage::Noise => "noise".to_owned(),
    }
}

#[test]
fn lines_of_servers() {
    for (line, wanted) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#,
            r#"7: {"a":1}"#,
        ),
        (r#"{"result":{},"id":7}"#, "7: {}"),
        (
            r#" {"jsonrpc":"2.0","id":7,"result":{},"error":null} "#,
            "7: {}",
        ),
        (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "7: null"),
        (
            r#"{"id":7,"result":{"n":18446744073709551616}}"#,
            r#"7: {"n":1.8446744073709552e+19}"#,
        ),
        (r#"{"later":{"x":[1]},"id":7,"result":{}}"#, "7: {}"),
        (
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no","data":[1]}}"#,
            r#"7: error -32602 "no" Some(Array [Number(1)])"#,
        ),
        (r#"{"id":7,"error":"no"}"#, r#"7: error 0 "" None"#),
        // U-7: ids that are none of the client's.
        (r#"{"id":"7","result":{}}"#, "stray"),
        (r#"{"id":null,"error":{"code":1}}"#, "stray"),
        (r#"{"error":{"code":-32700,"message":"parse"}}"#, "stray"),
        (r#"{"id":7.0,"result":{}}"#, "stray"),
        (r#"{"id":-7,"result":{}}"#, "stray"),
        (r#"{"id":99999999999999999999,"result":{}}"#, "stray"),
        (
            r#"{"jsonrpc":"2.0","id":"s","method":"ping"}"#,
            r#"request "s" ping"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":0,"method":"roots/list","params":{}}"#,
            "request 0 roots/list",
        ),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "noise"),
        (
            r#"{"method":"notifications/progress","params":{"progress":1}}"#,
            r#"notifications/progress Some("{\"progress\":1}")"#,
        ),
        (r#"{"jsonrpc":"2.0","method":"n\u0061me"}"#, "name None"),
        // U-9: noise.
        ("", "noise"),
        ("Server running on stdio", "noise"),
        ("7", "noise"),
        ("[1]", "noise"),
        ("{}", "noise"),
        ("{half", "noise"),
        ("{\"a\":1}", "noise"),
        ("{\"id\":7}", "noise"),
        ("\0\0", "noise"),
        (r#"{"id":7,"method":"ping","result":{}}"#, "noise"),
    ] {
        assert_eq!(words(line.as_bytes()), wanted, "{line}");
    }
}

/// What decides a call is read strictly, and what is wrong is told to that call.
#[test]
fn malformed_answers() {
    for (line, wanted) in [
        (&br#"{"id":7,"result":{"a":1,"a":2}}"#[..], "strict"),
        (br#"{"id":7,"result":{"t":"\ud800"}}"#, "strict"),
        (br#"{"id":7,"result":{},"result":{}}"#, "duplicate field"),
        (br#"{"id":7,"result":{},"error":{"code":1}}"#, "both"),
        (b"{\"id\":7,\"result\":{\"t\":\"\xFF\"}}", "UTF-8"),
        (br#"{"id":7,"result":{"a":}}"#, "not JSON"),
        (br#"{"jsonrpc":"2.0","id":7,"result":{"#, "not JSON"),
    ] {
        let words = words(line);
        assert!(
            words.starts_with("7: malformed: ") && words.contains(wanted),
            "{words}"
        );
    }
    // Nobody's, so nobody's fault.
    for line in [
        &b"{\"method\":\"\xFF\"}"[..],
        b"{\"a\":\"\xFF\"}",
        b"{\"id\":1,\"id\":2",
    ] {
        assert_eq!(words(line), "noise");
    }
}

/// A raw result is the bytes as they came.
#[test]
fn raw_results() {
    let text = r#"{"tools": [ {"n": 1.0, "u":"\u00e9"} ]}"#;
    for line in [
        format!(r#"{{"id":7,"result":{text}}}"#),
        format!(r#"{{"x":1,"id":7,"result":{text}}}"#),
    ] {
        match read_line(line.as_bytes(), ResultForm::Raw) {
            ServerMessage::Answer { id: 7, body } => assert_eq!(body, Ok(AnswerBody::Raw(text))),
            other => panic!("{other:?}"),
        }
    }
}

/// U-8: the id of a line that is too long is found if it stands in front.
#[test]
fn subjects_of_heads() {
    let long = "x".repeat(1000);
    for (head, wanted) in [
        (
            r#"{"jsonrpc":"2.0","id":42,"result":{"a"#.to_owned(),
            LineSubject::Answer(42),
        ),
        (
            r#" { "id" : 42 , "error" : "#.to_owned(),
            LineSubject::Answer(42),
        ),
        (r#"{"id":42}"#.to_owned(), LineSubject::Answer(42)),
        (
            r#"{"x":{"id":1,"y":"}\""},"id":42,"result":"#.to_owned(),
            LineSubject::Answer(42),
        ),
        (
            format!(r#"{{"result":"{long}","id":42}}"#),
            LineSubject::Answer(42),
        ),
        (format!(r#"{{"result":"{long}"#), LineSubject::Unknown),
        (r#"{"id":42"#.to_owned(), LineSubject::Unknown),
        (r#"{"id":"42","result":1"#.to_owned(), LineSubject::Unknown),
        (
            r#"{"method":"n","params":""#.to_owned(),
            LineSubject::Message,
        ),
        (
            r#"{"id":42,"method":"n","params":""#.to_owned(),
            LineSubject::Message,
        ),
        (r#"{"x":"#.to_owned(), LineSubject::Unknown),
        (long, LineSubject::Noise),
        (String::new(), LineSubject::Noise),
    ] {
        assert_eq!(subject_of(head.as_bytes()), wanted, "{head}");
    }
}

/// The same messages at every split of the bytes.
#[test]
fn every_split() {
    let bytes = b"hello\n{\"id\":1,\"result\":{}}\r\n{\"method\":\"m\"}\n\n{\"id\":2,\"method\":\"ping\"}\n{\"id\":3,\"error\":{}}";
    let read = |cut: usize| {
        let mut lines = ServerLines::new(1024);
        let mut all = Vec::new();
        for chunk in [&bytes[..cut], &bytes[cut..]] {
            lines.room().extend_from_slice(chunk);
            while let Some(ServerLine::Whole(line)) = lines.next_line() {
                all.push(words(line));
            }
        }
        all.extend(lines.finish().map(words));
        all
    };
    let wanted = [
        "noise",
        "1: {}",
        "m None",
        "noise",
        "request 2 ping",
        "3: error 0 \"\" None",
    ];
    for cut in 0..=bytes.len() {
        assert_eq!(read(cut), wanted, "cut at {cut}");
    }
}

/// Both readers agree where the quick one reads at all.
#[test]
fn the_quick_reader_agrees() {
    let texts = [
        r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a\n"}]}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}"#,
    ];
    json::quick::tests::mutated(&texts, |bytes| {
        let Some(quick) = read_quickly(bytes, ResultForm::Parsed) else {
            return;
        };
        let text = std::str::from_utf8(bytes).expect("it was read");
        let envelope: Envelope<'_> = serde_json::from_str(text).expect(text);
        let slow = envelope.into_message(ResultForm::Parsed);
        assert_eq!(format!("{quick:?}"), format!("{slow:?}"), "{text}");
    });
}
