//! Seeded mutations of an exported chain: verifying it never panics, and no changed file is
//! good. The other decoders are mutated where they live.

use crate::support::Folder;
use crate::support::drive::{Host, cli, line};
use callgate_store::verify_file;
use callgate_testing::{Random, mutant};

const CASES: usize = 100_000;

const WORDS: [&[u8]; 16] = [
    b"{",
    b"}",
    b"\"",
    b"\n",
    b"\\",
    b"{\"hash\":\"",
    b"\",\"record\":{",
    b"{\"head\":{",
    b"\"seq\":1",
    b"\"seq\":2,",
    b"\"kind\":\"start\"",
    b"null",
    b"\xff",
    b"0",
    b" ",
    b"e",
];

/// D-1, D-8: 100,000 changed exports; what is good is byte for byte what was exported.
#[test]
fn exported_chains() {
    let mut random = Random::new("exported chains");
    let folder = Folder::new();
    let mut host = Host::start(&folder, "builtin");
    for key in ["a", "b", "a"] {
        host.ask(&line("AID.BUILTIN.ECHO.v1", &serde_json::json!({}), key));
    }
    assert!(host.end().success());
    cli(&folder, &["audit", "export", "chain.jsonl"]).good();
    let head = cli(&folder, &["audit", "head"]).good().json();
    let hex = head["public_key"].as_str().expect("a key");
    let key = callgate_call::Digest::from_hex(hex)
        .expect("64 hex digits")
        .0;
    let chain = std::fs::read(folder.join("chain.jsonl")).expect("an export");
    let is_good = |mut bytes: &[u8]| {
        let verdict = verify_file(&mut bytes, Some(&key)).expect("reading memory does not fail");
        verdict.is_good()
    };
    assert!(is_good(&chain));
    let mut unchanged = 0;
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &[&chain], &WORDS);
        let good = is_good(&bytes);
        assert_eq!(good, bytes == chain, "{}", String::from_utf8_lossy(&bytes));
        unchanged += usize::from(good);
    }
    eprintln!("exported chains: {unchanged} of {CASES} came out unchanged");
}
