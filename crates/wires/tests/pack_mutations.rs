//! Seeded mutations against the readers of bindings and packs, 100,000 each: none panics, errors
//! point into the file, and what is accepted is read the same when it is written and read again.

use std::fmt::Debug;

use callgate_testing::{Random, mutant};
use callgate_wires::tool_protocol::{
    LineError, read_bindings, read_capabilities, read_pack, write_bindings, write_capabilities,
    write_pack,
};

const CASES: usize = 100_000;

const WORDS: [&[u8]; 24] = [
    b"\n",
    b"  ",
    b"    ",
    b":",
    b": ",
    b"\"",
    b"'",
    b"\\",
    b"#",
    b" #",
    b"- ",
    b"\t",
    b"\r\n",
    b"\xff",
    b"\0",
    b"tools:\n",
    b"  a:\n",
    b"    kind: python\n",
    b"    entry: m:f\n",
    b"    secrets: [\"A\"]\n",
    b"    env: {\"A\":\"b\"}\n",
    b"entrypoints:\n",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
];

const BINDINGS: &[u8] = b"tools:\n  \"greet someone\":\n    kind: \"python\"\n    entry: \"tools.greet:run\"\n  b:\n    kind: python\n    entry: m.n:f\n    runner: container\n    image: 'x'\n    command: [\"a\", \"b\"]\n    env: {\"A\": \"b\"}\n    purity: pure\n    timeout_ms: 5\n    sandbox: false\n    enforcement: declared\n";
const CAPABILITIES: &[u8] = b"capabilities:\n  \"greet someone\":\n    filesystem: \"read\"\n    network: none\n    env: read\n    subprocess: \"allow\"\n    secrets: [\"A\", \"B\"]\n  b:\n    filesystem: none\n    network: outbound\n    env: none\n    subprocess: none\n";
const PACK: &[u8] = b"id: \"a.b\"\nname: \"A\"\nversion: \"1\"\ndescription: \"D: d\"\nauthor: x\nlicense: MIT\ntools:\n  - \"greet someone\"\n  - b\nrunners:\n  default: local\ncontainer:\n  image: i\nservice_url: http://h/p\nentrypoints:\n  b:\n    entry: m:f\n    timeout_ms: 5\nsigner_id: s\nsigned_at: t\ndigest: sha256:0\n";

fn cases<T: PartialEq + Debug>(
    what: &str,
    seed: &[u8],
    read: impl Fn(&str) -> Result<T, LineError>,
    write: impl Fn(&T) -> String,
) {
    let mut random = Random::new(what);
    let mut accepted = 0;
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &[seed], &WORDS);
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        match read(&text) {
            Ok(value) => {
                accepted += 1;
                let again = read(&write(&value));
                assert_eq!(again.as_ref(), Ok(&value), "{text:?}");
            }
            Err(error) => {
                let line = text.lines().nth(error.line - 1).unwrap_or_default();
                let place = error.column - 1;
                assert!(place <= line.chars().count(), "{text:?}: {error}");
            }
        }
    }
    eprintln!("{what}: {accepted} of {CASES} accepted");
    assert!(accepted > 0 && accepted < CASES, "{accepted} of {CASES}");
}

/// TP-59, TP-60.
#[test]
fn bindings() {
    cases("bindings", BINDINGS, read_bindings, write_bindings);
}

/// TP-63.
#[test]
fn capabilities() {
    cases(
        "capabilities",
        CAPABILITIES,
        read_capabilities,
        write_capabilities,
    );
}

/// TP-61.
#[test]
fn packs() {
    cases("packs", PACK, read_pack, write_pack);
}
