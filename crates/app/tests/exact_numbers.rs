//! Numbers on their way to a tool: what it receives is what was digested, integers are exact up to
//! 64 bits, and those beyond are refused by every wire. Decisions G-1 and G-1b.

use std::collections::HashMap;

use serde_json::json;

use crate::support::drive::{chain, cli, lines_of, spelt};
use crate::support::seen::Seen;
use crate::support::wires::{WIRES, Wires};
use crate::support::workspace::{APPEND, trusted_with};

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
