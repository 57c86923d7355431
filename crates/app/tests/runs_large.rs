//! Artifacts as large as they may be: they pass through, and memory does not notice.

use std::time::Duration;

use crate::support::processes::{of_files_kib, peak_kib};
use crate::support::rpc::Line;
use crate::support::stage::Stage;
use callgate_testing::misbehave;
use serde_json::{Value, json};

const CHUNK: u64 = 8 * 1024 * 1024;
const GIB: u64 = 1024 * 1024 * 1024;

/// An artifact of so many bytes in chunks as large as they may be, and its commit record.
fn artifact(bytes: u64) -> Vec<Value> {
    let (whole, rest) = (bytes / CHUNK, bytes % CHUNK);
    vec![
        json!({ "repeat": { "times": whole, "acts": [{ "chunk": { "bytes": CHUNK } }] } }),
        json!({ "chunk": { "bytes": rest, "last": true } }),
        json!({ "emit": { "type": "artifact", "payload": {
            "artifact_id": "a", "name": "large.bin", "content_type": "application/octet-stream",
            "size_bytes": bytes,
        } } }),
        json!({ "complete": {} }),
        json!({ "result": { "status": "completed" } }),
    ]
}

/// The digest of what the executor sends for it.
fn digest(bytes: u64) -> String {
    let mut hasher = blake3::Hasher::new();
    for seq in 1..=bytes / CHUNK + 1 {
        let len = CHUNK.min(bytes - (seq - 1) * CHUNK);
        let letter = b'a' + u8::try_from(seq % 26).expect("a letter");
        hasher.update(&vec![letter; usize::try_from(len).expect("a chunk")]);
    }
    format!("b3-{}", hasher.finalize().to_hex())
}

fn stage() -> Stage {
    let mut stage = Stage::new(misbehave(), "[breaker]\nfailures_max = 0\n");
    if let Line::Pipes(host) = &mut stage.client.line {
        // Nothing is heard until all of it is hashed and on the disk, however slow that is.
        host.patience = Duration::from_secs(30 * 60);
    }
    stage
}

fn gate(stage: &Stage) -> u32 {
    let Line::Pipes(host) = &stage.client.line else {
        panic!("a gate of our own");
    };
    host.pid()
}

/// ST-58, ST-64, S-14: 8 GiB, with the memory of a small run.
#[test]
fn eight_gibibytes() {
    const BYTES: u64 = 8 * GIB;
    let mut stage = stage();
    let small = stage.run(&Value::Array(artifact(1000)));
    assert_eq!(small.outcome, "success", "{small:?}");
    let before = peak_kib(gate(&stage));
    let code = of_files_kib(gate(&stage));
    let max = json!({ "artifact_max": BYTES, "timeout_ms": 3_600_000 });
    let large = stage.run_with(&Value::Array(artifact(BYTES)), &max);
    assert_eq!(large.outcome, "success", "{large:?}");
    let kept = &large.report["resources"][0];
    assert_eq!(kept["size"], BYTES);
    assert_eq!(kept["digest"], digest(BYTES), "{large:?}");
    let after = peak_kib(gate(&stage));
    // So much file on the disk may cost it pages of its code, which its most has counted.
    let code = code.max(of_files_kib(gate(&stage)));
    eprintln!(
        "gate {before} KiB after a small run, {after} KiB after {BYTES} bytes, {code} of its code"
    );
    // Half of one chunk: nothing is held whole.
    assert!(after < before + 4 * 1024, "{before} then {after} KiB");
    // Its own memory at its most. Its code is apart, which alone is nearly as much without
    // optimisation; with it all of the gate is below this.
    assert!(after - code < 32 * 1024, "{after} KiB, {code} of its code");
}

/// ST-69: the bound that holds where nobody gives one, just below, at and past it.
#[test]
fn the_default_bound() {
    let mut stage = stage();
    for bytes in [GIB - 1, GIB] {
        let ended = stage.run_with(
            &Value::Array(artifact(bytes)),
            &json!({ "timeout_ms": 3_600_000 }),
        );
        assert_eq!(ended.outcome, "success", "{bytes}: {ended:?}");
        assert_eq!(ended.report["artifacts"]["bytes"], bytes);
    }
    let past = [
        json!([{ "repeat": { "times": GIB / CHUNK, "acts": [{ "chunk": { "bytes": CHUNK } }] } },
            { "chunk": { "bytes": 1 } }, { "hang": true }]),
        json!([{ "emit": { "type": "artifact", "payload": { "artifact_id": "a", "name": "a",
            "content_type": "text/plain", "size_bytes": GIB + 1 } } }, { "hang": true }]),
    ];
    for acts in past {
        let ended = stage.run_with(&acts, &json!({ "timeout_ms": 3_600_000 }));
        assert_eq!(ended.outcome, "executor_crash", "{ended:?}");
        let bound = format!("at most {GIB} are taken");
        assert!(ended.message.contains(&bound), "{ended:?}");
    }
}
