//! Numbers on their way to a tool: what it receives is what was digested, integers are exact up to
//! 64 bits, and those beyond are refused by every wire. Decisions G-1 and G-1b.

use std::collections::HashMap;

use callgate_call::{Digest, Document};
use callgate_wires::bridge::CallTool;
use callgate_wires::json::{self, DEPTH_MAX};
use callgate_wires::jsonrpc::{self, Message};
use callgate_wires::stream::RunRequest as StreamRequest;
use callgate_wires::tool_protocol::{LocalRequest, ServiceRequest};
use callgate_wires::toolhost::{Request, RequestInput, RunRequest};
use serde_json::{Value, json};

use crate::support::drive::{chain, cli, lines_of, spelt};
use crate::support::seen::Seen;
use crate::support::wires::{WIRES, Wires};
use crate::support::workspace::{APPEND, trusted_with};
use callgate_testing::Random;

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

const EXACT: &str = r#"
[leases]
enforce_from_tier = 3
[[tool]]
name = "exact"
tier = 1
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#;

/// Numbers that are exact, each beside one that is another and once had its digest.
const PAIRS: [[&str; 2]; 4] = [
    ["9007199254740992", "9007199254740993"],
    ["1234567890123456788", "1234567890123456789"],
    ["-9223372036854775807", "-9223372036854775808"],
    ["18446744073709551614", "18446744073709551615"],
];

/// Spellings that share a digest.
const SHARED: [[&str; 2]; 5] = [
    ["9007199254740992.0", "9007199254740993.0"],
    ["1.8446744073709552e19", "18446744073709551617.0"],
    ["9.223372036854776e18", "9223372036854775808.0"],
    ["0.1", "0.10000000000000000555"],
    ["0.0", "2e-324"],
];

/// G-1f: on every wire the tool gets one decimal for one digest, whichever spelling was sent.
#[test]
fn every_wire_hands_on_what_is_digested() {
    let folder = trusted_with(&[("callgate.toml", EXACT), ("tool.sh", APPEND)]);
    let mut wires = Wires::open(&folder);
    for pair in SHARED {
        let mut received = Vec::new();
        for (wire, sent) in WIRES
            .into_iter()
            .flat_map(|wire| pair.map(|sent| (wire, sent)))
        {
            let input = json!({ "n": format!("raw:{sent}") });
            let seen = wires.call(wire, "exact", &input, "", "");
            assert!(
                matches!(seen, Seen::Output { .. }),
                "{wire}, {sent}: {seen:?}"
            );
            let line = lines_of(&folder.join("effects.log")).pop().expect("a line");
            let number = line
                .strip_prefix("{\"n\":")
                .and_then(|rest| rest.strip_suffix('}'));
            received.push((wire, sent, decimal(number.expect("a number"))));
        }
        let first = received[0].2.clone();
        assert!(
            received.iter().all(|(_, _, got)| *got == first),
            "{received:?}"
        );
    }
    wires.close();
}

const WIDE: [&str; 3] = [
    "18446744073709551616",
    "-9223372036854775809",
    "100000000000000000000",
];

/// G-1: the tool gets each number as it was sent, the chain has a digest of its own for each, the
/// same on every wire, and nothing runs with a number beyond 64 bits.
#[test]
fn every_wire_is_exact() {
    let folder = trusted_with(&[("callgate.toml", EXACT), ("tool.sh", APPEND)]);
    let mut wires = Wires::open(&folder);
    let received = || lines_of(&folder.join("effects.log"));
    for wire in WIRES {
        for sent in PAIRS.as_flattened() {
            let seen = wires.call(
                wire,
                "exact",
                &json!({ "n": format!("raw:{sent}") }),
                "",
                "",
            );
            assert!(
                matches!(seen, Seen::Output { .. }),
                "{wire}, {sent}: {seen:?}"
            );
            let line = received().pop().expect("a line");
            assert_eq!(line, format!("{{\"n\":{sent}}}"), "{wire}");
        }
        let before = received().len();
        for sent in WIDE {
            let seen = wires.call(
                wire,
                "exact",
                &json!({ "n": format!("raw:{sent}") }),
                "",
                "",
            );
            assert_eq!(seen, Seen::Fault("bad_input".to_owned()), "{wire}, {sent}");
        }
        assert_eq!(received().len(), before, "{wire}");
    }
    wires.close();
    for sent in PAIRS.as_flattened().iter().chain(&WIDE) {
        let input = format!("{{\"n\":{sent}}}");
        let ran = cli(&folder, &["call", "exact", &input]);
        assert_eq!(ran.code() == 0, !WIDE.contains(sent), "{sent}: {}", ran.err);
        if WIDE.contains(sent) {
            assert!(ran.err.contains("does not fit 64 bits"), "{}", ran.err);
        }
    }
    let starts = chain(&folder);
    let starts = starts.iter().filter(|record| record["kind"] == "start");
    let mut times: HashMap<String, usize> = HashMap::new();
    for start in starts.filter(|start| start["tool"] == "exact") {
        let digest = start["input"].as_str().expect("a digest").to_owned();
        *times.entry(digest).or_default() += 1;
    }
    assert_eq!(times.len(), PAIRS.as_flattened().len(), "{times:?}");
    assert!(
        times.values().all(|count| *count == WIRES.len() + 1),
        "{times:?}"
    );
}

/// G-1, G-6: an approval and a lease for one number permit no other.
#[test]
fn permissions_are_for_one_number() {
    let [other, wanted] = PAIRS[1];
    let config = format!(
        "{EXACT}\n[[policy]]\ntools = [\"exact\"]\ndecision = \"ask\"\n\
         [[tool]]\nname = \"leased\"\ntier = 3\nrunner = {{ kind = \"process\", command = [\"/bin/cat\"] }}\n"
    );
    let folder = trusted_with(&[("callgate.toml", &config), ("tool.sh", APPEND)]);
    let input = |number: &str| format!("{{\"id\":{number}}}");
    let call = |tool: &str, number: &str, more: &[&str]| {
        let input = input(number);
        cli(&folder, &[&["--json", "call", tool, &input], more].concat()).json()
    };
    let asked = call("exact", wanted, &[]);
    let id = asked["fault"]["data"]["approval"]
        .as_str()
        .expect("an approval")
        .to_owned();
    cli(&folder, &["approvals", "grant", &id]).good();
    assert_eq!(call("exact", other, &[])["fault"]["kind"], "needs_approval");
    assert_eq!(call("exact", wanted, &[])["ok"], true);

    let grant = ["lease", "grant", "leased", "--input", &input(wanted)];
    let token = cli(&folder, &grant).good().out.trim().to_owned();
    let refused = call("leased", other, &["--lease", &token]);
    assert_eq!(refused["fault"]["kind"], "lease_rejected", "{refused}");
    assert_eq!(call("leased", wanted, &["--lease", &token])["ok"], true);
}

/// G-3: a key that was used with one number neither replays for its neighbour nor runs with it.
#[test]
fn keys_are_for_one_number() {
    let folder = trusted_with(&[("callgate.toml", EXACT), ("tool.sh", APPEND)]);
    let call = |number: &str| {
        let input = spelt(&json!({ "id": format!("raw:{number}") }));
        cli(&folder, &["--json", "call", "exact", &input, "--key", "k"]).json()
    };
    let [other, wanted] = PAIRS[0];
    assert_eq!(call(wanted)["ok"], true);
    assert_eq!(call(other)["fault"]["kind"], "conflict");
    assert_eq!(call(wanted)["idempotent_hit"], true);
    assert_eq!(lines_of(&folder.join("effects.log")).len(), 1);
}
