//! An auditor's way, as `docs/audit.md` has it: whose export it is, what is in it, and what its
//! digests are of.

use callgate_call::Digest;
use serde_json::{Value, json};

use crate::support::drive::{chain, cli, run_with};
use crate::support::workspace::{ONE, trusted};
use crate::support::{Folder, callgate};

/// A workspace with some calls, its export as `chain.jsonl`, and its public key.
fn exported() -> (Folder, String) {
    let folder = trusted(ONE);
    for n in 0..3 {
        cli(&folder, &["call", "one", &json!({ "n": n }).to_string()]).good();
    }
    cli(&folder, &["audit", "export", "chain.jsonl"]).good();
    let head = cli(&folder, &["audit", "head"]).good().json();
    let key = head["public_key"].as_str().expect("a key").to_owned();
    (folder, key)
}

/// D-16: the key that signed is named, and what it is: the gate's own, the given one, a foreign or
/// an unknown one. Only a known key makes an export good; a foreign one in place of a given one is
/// an error.
#[test]
fn the_signer_of_an_export_is_named() {
    let (folder, key) = exported();
    let file = folder.join("chain.jsonl");
    let file = file.to_str().expect("a path");
    let verify =
        |folder: &Folder, args: &[&str]| cli(folder, &[&["audit", "verify", file], args].concat());
    let signer = |folder: &Folder, args: &[&str]| {
        let body = verify(folder, &[args, &["--json"]].concat()).json();
        assert_eq!(body["signer"]["public_key"], key, "{body}");
        (
            body["ok"].clone(),
            body["signer"]["is"].clone(),
            body["signer"]["proves_origin"].clone(),
        )
    };
    let is = |ok: bool, word: &str, proves: bool| (json!(ok), json!(word), json!(proves));

    let own = verify(&folder, &[]).good();
    assert!(
        own.out.starts_with("good: ") && own.out.contains(&key),
        "{}",
        own.out
    );
    assert!(own.out.contains("by this workspace's key"), "{}", own.out);
    assert_eq!(signer(&folder, &[]), is(true, "own", true));

    let nowhere = Folder::new();
    let unknown = verify(&nowhere, &[]).good();
    assert!(
        !unknown.out.contains("good") && unknown.out.contains(&key),
        "{}",
        unknown.out
    );
    assert!(unknown.out.contains("by an unknown key"), "{}", unknown.out);
    assert!(
        unknown.err.contains("agrees with itself"),
        "{}",
        unknown.err
    );
    assert!(unknown.err.contains("--public-key"), "{}", unknown.err);
    assert_eq!(signer(&nowhere, &[]), is(true, "unknown", false));
    assert!(!nowhere.join("state").exists(), "to verify makes nothing");

    let given = verify(&nowhere, &["--public-key", &key]).good();
    assert!(
        given.out.starts_with("good: ") && given.out.contains("by the given key"),
        "{}",
        given.out
    );
    assert_eq!(
        signer(&nowhere, &["--public-key", &key]),
        is(true, "given", true)
    );

    let (other, other_key) = exported();
    let foreign = verify(&other, &[]).good();
    assert!(
        !foreign.out.contains("good") && foreign.out.contains("by a foreign key"),
        "{}",
        foreign.out
    );
    assert!(foreign.err.contains(&other_key), "{}", foreign.err);
    assert_eq!(signer(&other, &[]), is(true, "foreign", false));
    // The given key counts, whosever workspace this is.
    let wrong = verify(&folder, &["--public-key", &other_key]);
    assert_eq!(wrong.code(), 1);
    assert!(
        wrong.out.is_empty() && wrong.err.contains("foreign key"),
        "{}",
        wrong.err
    );
    assert!(
        wrong.err.contains(&key) && wrong.err.contains(&other_key),
        "{}",
        wrong.err
    );
    assert_eq!(
        signer(&folder, &["--public-key", &other_key]),
        is(false, "foreign", false)
    );
}

/// D-16: an export is read without the state it came from, as far as it is consistent.
#[test]
fn exports_are_shown() {
    let (folder, _) = exported();
    let nowhere = Folder::new();
    let text = folder.read("chain.jsonl").expect("an export");
    nowhere.write("given.jsonl", &text);
    let records: Vec<Value> = text
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line)
                .expect("JSON")
                .get("record")
                .cloned()
        })
        .collect();
    assert!(records.len() > 3 && records == chain(&folder)[..records.len()]);
    let shown = |args: &[&str]| {
        let args = [&["audit", "show", "given.jsonl", "--json"], args].concat();
        let ran = cli(&nowhere, &args);
        let lines = ran
            .out
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        (ran.code(), lines.collect::<Vec<Value>>())
    };
    assert_eq!(shown(&["--last", "1000"]), (0, records.clone()));
    assert_eq!(
        shown(&["--last", "2"]),
        (0, records[records.len() - 2..].to_vec())
    );
    let ones: Vec<Value> = records
        .iter()
        .filter(|record| record["tool"] == "one")
        .cloned()
        .collect();
    assert!(!ones.is_empty());
    assert_eq!(shown(&["--tool", "one"]), (0, ones));
    let table = cli(&nowhere, &["audit", "show", "given.jsonl"]).good().out;
    assert!(table.lines().count() == records.len() + 1, "{table}");

    // What follows a change is not shown.
    let changed = text.replacen("\"tool\":\"one\"", "\"tool\":\"two\"", 1);
    nowhere.write("given.jsonl", &changed);
    let first = records
        .iter()
        .position(|record| record["tool"] == "one")
        .expect("a call");
    assert_eq!(shown(&["--last", "1000"]), (1, records[..first].to_vec()));
    let ran = cli(&nowhere, &["audit", "show", "given.jsonl"]);
    assert!(
        ran.err.contains(&format!("record {} is bad", first + 1)),
        "{}",
        ran.err
    );
}

/// D-16, G-1b: the digest of an input is the one that its records have, from its canonical form,
/// which can be hashed by other programs.
#[test]
fn input_digests_are_recomputed() {
    let folder = trusted(ONE);
    let given = r#"{ "text": "é\u00e9", "n": 9007199254740993 }"#;
    cli(&folder, &["call", "one", given]).good();
    let records = chain(&folder);
    let start = records
        .iter()
        .find(|record| record["kind"] == "start")
        .expect("a start");
    let digest = |args: &[&str]| {
        let args = [&["audit", "digest"], args].concat();
        cli(&Folder::new(), &args).good()
    };
    assert_eq!(digest(&[given]).out.trim_end(), start["input"]);
    let spelt = r#"{"n":9007199254740993,"text":"éé"}"#;
    let by_stdin = run_with(
        callgate(&folder).args(["audit", "digest", "-"]),
        spelt.as_bytes(),
    );
    assert_eq!(by_stdin.good().out.trim_end(), start["input"]);
    let canonical = digest(&["--canonical", given]).out;
    assert_eq!(canonical, r#"{"n":9007199254740993e0,"text":"éé"}"#);
    assert_eq!(
        Digest::of_bytes(canonical.as_bytes()).to_hex(),
        start["input"]
    );
    let body = digest(&["--json", given]).json();
    assert_eq!(
        (&body["digest"], &body["canonical"]),
        (&start["input"], &json!(canonical))
    );
    let earlier = Digest::of_bytes(r#"{"n":9007199254740992,"text":"éé"}"#.as_bytes());
    assert_eq!(body["digest_of_0_1_0"], earlier.to_hex());
    assert!(
        digest(&["--json", "{}"])
            .json()
            .get("digest_of_0_1_0")
            .is_none()
    );
    for (bad, words) in [
        ("{", "not JSON"),
        (r#"{"n":18446744073709551616}"#, "does not fit 64 bits"),
    ] {
        let ran = cli(&folder, &["audit", "digest", bad]);
        assert_eq!(ran.code(), 1);
        assert!(ran.err.contains(words), "{}", ran.err);
    }
}

/// D-16, D-9: an export can be checked by anybody, by the rules that the page gives.
#[test]
fn the_chain_of_an_export_is_what_the_page_says() {
    let (folder, _) = exported();
    let text = folder.read("chain.jsonl").expect("an export");
    let bytes = |hex: &Value| {
        Digest::from_hex(hex.as_str().expect("hex"))
            .expect("32 bytes")
            .0
    };
    let mut before = [0; 32];
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let parsed: Value = serde_json::from_str(line).expect("JSON");
        if lines.peek().is_none() {
            assert_eq!(bytes(&parsed["head"]["hash"]), before);
            continue;
        }
        let (_, rest) = line.split_once("\"record\":").expect("a record");
        let (body, _) = rest
            .rsplit_once(",\"side\":")
            .expect("what stands beside it");
        let hashed = [&before[..], &bytes(&parsed["side"]), body.as_bytes()].concat();
        before = Digest::of_bytes(&hashed).0;
        assert_eq!(bytes(&parsed["hash"]), before, "{line}");
    }
}
