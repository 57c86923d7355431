//! Numbers as every parser hands them on: the value that was sent, of which two inputs share a digest
//! exactly if they are the same, and integers beyond 64 bits refused. Decisions G-1 and G-1b.

use std::collections::HashMap;

use callgate_call::{Digest, Document};
use callgate_testing::Random;
use callgate_wires::bridge::CallTool;
use callgate_wires::json::{self, DEPTH_MAX};
use callgate_wires::jsonrpc::{self, Message};
use callgate_wires::stream::RunRequest as StreamRequest;
use callgate_wires::tool_protocol::{LocalRequest, ServiceRequest};
use callgate_wires::toolhost::{Request, RequestInput, RunRequest};
use serde_json::Value;

/// A number by its value. JSON without a fraction or an exponent is an integer, all else a double;
/// a double that is a whole number is that number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Exact {
    Whole(i128),
    Double(u64),
}

/// Returns the value of a number as it is spelt, without the parser that is tested; `None` for an
/// integer beyond 64 bits.
fn exact(spelling: &str) -> Option<Exact> {
    if !spelling.contains(['.', 'e', 'E']) {
        let whole: i128 = spelling.parse().ok()?;
        let fits = i128::from(i64::MIN) <= whole && whole <= i128::from(u64::MAX);
        return fits.then_some(Exact::Whole(whole));
    }
    let double: f64 = spelling.parse().expect("a number");
    let is_whole = double.fract() == 0.0 && double.abs() < 1e38;
    Some(match is_whole {
        true => Exact::Whole(double as i128),
        false => Exact::Double(double.to_bits()),
    })
}

/// Spellings of doubles that are other decimals than the double is digested as.
const ROUNDED: [&str; 9] = [
    "9007199254740993.0",
    "1.8446744073709552e19",
    "18446744073709551617.0",
    "9.223372036854776e18",
    "0.1",
    "0.10000000000000000555",
    "2e-324",
    "5e-324",
    "1000000000000000000000.5",
];

/// A number as a decimal, without rounding: its sign, its digits without zeros around them, and the
/// power of ten that they are multiplied by.
fn decimal(spelling: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = spelling.split_once(['e', 'E']).unwrap_or((spelling, "0"));
    let unsigned = mantissa.trim_start_matches('-');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        return (false, String::new(), 0);
    }
    let zeros = all.len() - all.trim_end_matches('0').len();
    let shift = i64::try_from(zeros).expect("few") - i64::try_from(fraction.len()).expect("few");
    let exponent: i64 = exponent.parse().expect("a small exponent");
    (
        mantissa.starts_with('-'),
        digits.to_owned(),
        exponent + shift,
    )
}

/// A number near an edge, in any spelling.
fn number(random: &mut Random) -> String {
    let edges: [i128; 8] = [
        0,
        1 << 53,
        -(1 << 53),
        1 << 63,
        -(1 << 63),
        1 << 64,
        1_234_567_890_123_456_789,
        100_000_000_000_000_000_000,
    ];
    let near = i128::try_from(random.below(9)).expect("small") - 4;
    let whole = random.pick(&edges) + near;
    match random.below(9) {
        6 => random.pick(&ROUNDED).to_string(),
        7 => format!(
            "{}{:06}",
            random.below(1 << 40) as f64 / 1e9,
            random.below(1_000_000)
        ),
        8 => format!("{}.{:019}", random.below(4), random.next()),
        0 => format!("{whole}.0"),
        1 => format!("{whole}e0"),
        2 => format!("{}.5", random.below(1 << 40)),
        3 => format!("{:e}", f64::from_bits(random.next() >> 2)),
        _ => whole.to_string(),
    }
}

/// What a parser makes of an input that is spelt so; an error by its words.
type Parser = fn(&str) -> Result<Document, String>;

/// The parsers of all wires: whatever they are sent as, `input` is what the tool would get.
const PARSERS: [(&str, Parser); 12] = [
    ("toolhost inputs", |input| {
        toolhost(&format!(r#"{{"aid":"A","inputs":{input}}}"#))
    }),
    ("toolhost input_json", |input| {
        let text = Value::from(input).to_string();
        toolhost(&format!(r#"{{"aid":"A","input_json":{text}}}"#))
    }),
    ("toolhost input_json, unusual", |input| {
        let text = Value::from(input).to_string();
        toolhost(&format!(r#"{{"x":1,"aid":"A","input_json":{text}}}"#))
    }),
    ("HTTP, command line, --payload", |input| {
        json::parse_text(input, DEPTH_MAX)
            .map(Document::from_value)
            .map_err(|error| error.to_string())
    }),
    ("JSON-RPC, MCP", |input| {
        json_rpc(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{input}}}"#
        ))
    }),
    ("JSON-RPC, MCP, unusual", |input| {
        json_rpc(&format!(
            r#"{{"\u0078":1,"jsonrpc":"2.0","id":1,"method":"m","params":{input}}}"#
        ))
    }),
    ("bridge", |input| {
        bridge(&format!(
            r#"{{"method":"call_tool","params":{{"name":"t","arguments":{input}}}}}"#
        ))
    }),
    ("bridge, unusual", |input| {
        bridge(&format!(
            r#"{{"x":1,"method":"call_tool","params":{{"name":"t","arguments":{input}}}}}"#
        ))
    }),
    ("tool protocol, stdin", |input| {
        let text = format!(r#"{{"protocol_version":1,"tool":"t","entry":"t","payload":{input}}}"#);
        let request = LocalRequest::parse(text.as_bytes());
        request
            .map(|request| Document::from_value(Value::Object(request.payload)))
            .map_err(|error| error.to_string())
    }),
    ("tool protocol, HTTP", |input| {
        let text = format!(r#"{{"protocol_version":1,"tool_name":"t","payload":{input}}}"#);
        let request = ServiceRequest::parse(text.as_bytes());
        request
            .map(|request| Document::from_value(Value::Object(request.payload)))
            .map_err(|error| error.to_string())
    }),
    ("run request", |input| {
        let text = format!(r#"{{"run_id":"r","attempt":1,"job":{input}}}"#);
        let request = StreamRequest::parse(text.as_bytes());
        let job = request.map(|request| Document::from_value(request.job));
        job.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            source.unwrap_or_default()
        })
    }),
    ("run of the pilot", |input| {
        let text = format!(r#"{{"goal_id":"goal.x","inputs":{input}}}"#);
        let request = RunRequest::parse(text.as_bytes());
        request
            .map(|request| Document::from_value(Value::Object(request.inputs)))
            .map_err(|error| error.to_string())
    }),
];

fn toolhost(text: &str) -> Result<Document, String> {
    let request = Request::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    match request.input {
        // The tool gets the text.
        RequestInput::Json(value, text) => Ok(Document::of_input(value, text)),
        RequestInput::Broken(reason) => Err(reason),
    }
}

fn json_rpc(text: &str) -> Result<Document, String> {
    match jsonrpc::parse(text.as_bytes()) {
        Ok(Message::Request { params, .. }) => Ok(Document::from_value(params.expect("params"))),
        Ok(other) => panic!("{other:?}"),
        Err(malformed) => {
            assert_eq!(
                malformed.id,
                Some(jsonrpc::Id::number(1)),
                "the caller is answered"
            );
            Err(malformed.message)
        }
    }
}

fn bridge(text: &str) -> Result<Document, String> {
    let call = CallTool::parse(text.as_bytes()).map_err(|said| said.message)?;
    Ok(Document::from_value(Value::Object(call.arguments)))
}

fn digest_of(value: &Value) -> Digest {
    Digest::of_json(value)
}

/// G-1, G-1b, G-1f: whatever the wire, an integer beyond 64 bits is refused with words that say so;
/// of all other numbers the tool gets the value that was sent, and two inputs share a digest exactly
/// if they have the same value, and if the tool gets the same decimal.
#[test]
fn every_parser_is_exact() {
    let mut random = Random::new("exact numbers");
    let (mut by_value, mut by_digest) = (HashMap::new(), HashMap::new());
    let (mut decimals, mut digests) = (HashMap::new(), HashMap::new());
    for _ in 0..20_000 {
        let sent = number(&mut random);
        let input = format!(r#"{{"a":[{sent}],"b":"\"{sent}"}}"#);
        let value = exact(&sent);
        let (name, parser) = random.pick(&PARSERS);
        let got = match (parser(&input), value.is_some()) {
            (Ok(got), true) => got,
            (Err(words), false) => {
                assert!(
                    words.contains("does not fit 64 bits"),
                    "{name}, {sent}: {words}"
                );
                continue;
            }
            (got, _) => panic!("{name}, {sent}: {got:?}"),
        };
        // As the tool gets it, by the text or spelt anew by its runner.
        let text = got.text().split(['[', ']']).nth(1).expect("an array");
        assert_eq!(exact(text), value, "{name}: {sent} is handed on as {text}");
        let got = got.value();
        let anew = got["a"][0].to_string();
        assert_eq!(decimal(&anew), decimal(text), "{name}: {sent}");
        // The other member tells inputs apart, too.
        let digest = digest_of(&got["a"]);
        let known = decimals.entry(digest).or_insert_with(|| decimal(text));
        assert_eq!(
            *known,
            decimal(text),
            "{name}: {sent} is handed on as {text}"
        );
        let known = digests.entry(decimal(text)).or_insert(digest);
        assert_eq!(*known, digest, "{name}: {sent}");
        let known = by_value.entry(value.clone()).or_insert(digest);
        assert_eq!(*known, digest, "{name}: {sent}");
        let known = by_digest.entry(digest).or_insert_with(|| value.clone());
        assert_eq!(*known, value, "{name}: {sent}");
    }
    assert!(by_value.len() > 50, "{}", by_value.len());
}
