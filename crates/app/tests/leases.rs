//! Leases: one permission, one call, whoever races for it; and where its token is not. Tokens that
//! are not good are tested in `doors`.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use crate::support::drive::{Host, Serve, cli, count_of, run_with, verified};
use crate::support::workspace::{APPEND, effects, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[leases]
enforce_from_tier = 1

[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "other"
aid = "AID.TEST.OTHER.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "system"
aid = "AID.TEST.SYSTEM.v1"
tier = 2
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "free"
aid = "AID.TEST.FREE.v1"
tier = 0
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }
"#;

fn workspace() -> Folder {
    trusted_with(&[("callgate.toml", CONFIG), ("append.sh", APPEND)])
}

fn place(folder: &Folder) -> &str {
    folder.path().to_str().expect("a text path")
}

/// Grants a lease and gives its token.
fn grant(folder: &Folder, args: &[&str]) -> String {
    let granted = cli(folder, &[&["lease", "grant", "--json"], args].concat())
        .good()
        .json();
    let token = granted["token"].as_str().expect("a token").to_owned();
    let hex = token.strip_prefix("lease_").expect("T-4: its form");
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    assert!(hex.len() == 32 && hex.chars().all(is_hex), "{token}");
    token
}

fn request(aid: &str, input: &Value, token: &str) -> Value {
    json!({ "aid": aid, "inputs": input, "_lease_token": token })
}

/// How the racers fared: successes and refusals as already consumed. Anything else panics.
fn tally(replies: &[Value]) -> (usize, usize) {
    let won = replies
        .iter()
        .filter(|reply| reply["status"] == "OK")
        .count();
    let consumed = json!({"ok":false,"error":"lease_rejected","reason":"already consumed"});
    let lost = replies.iter().filter(|reply| {
        consumed
            .as_object()
            .expect("an object")
            .iter()
            .all(|(name, value)| reply[name] == *value)
    });
    let lost = lost.count();
    assert_eq!(won + lost, replies.len(), "{replies:?}");
    (won, lost)
}

/// TH-70, TH-45, T-16, D-2: 64 callers in 8 processes race for one lease, again and again; one
/// wins each time.
#[test]
fn one_lease_is_spent_once_by_64_callers_in_8_processes() {
    const ROUNDS: usize = 8;
    let folder = workspace();
    let mut hosts: Vec<Host> = (0..8)
        .map(|_| Host::start(&folder, place(&folder)))
        .collect();
    for round in 0..ROUNDS {
        let token = grant(&folder, &["append"]);
        let request = request("AID.TEST.APPEND.v1", &json!({ "round": round }), &token);
        let burst = format!("{request}\n").repeat(8);
        let together = Barrier::new(hosts.len());
        let replies: Vec<Value> = thread::scope(|scope| {
            let racers: Vec<_> = hosts
                .iter_mut()
                .map(|host| {
                    scope.spawn(|| {
                        together.wait();
                        assert!(host.send_bytes(burst.as_bytes()));
                        (0..8).map(|_| host.reply()).collect::<Vec<_>>()
                    })
                })
                .collect();
            racers
                .into_iter()
                .flat_map(|racer| racer.join().expect("a racer"))
                .collect()
        });
        assert_eq!(tally(&replies), (1, 63), "round {round}");
        assert_eq!(effects(&folder), round + 1);
    }
    for host in hosts {
        assert!(host.end().success());
    }
    verified(&folder);
    assert_eq!(count_of(&folder, "start"), ROUNDS);
}

/// TH-70, TH-71, T-16: the same with 64 processes of one call each.
#[test]
fn one_lease_is_spent_once_by_64_processes() {
    let folder = workspace();
    let token = grant(&folder, &["append"]);
    let body = json!({ "inputs": {}, "_lease_token": token }).to_string();
    let together = Barrier::new(64);
    let replies: Vec<Value> = thread::scope(|scope| {
        let race = || {
            let mut command = callgate(&folder);
            command.args(["tool_exec", "AID.TEST.APPEND.v1"]);
            together.wait();
            let reply = run_with(&mut command, body.as_bytes()).good().json();
            // T-20: the client of `tool_exec` looks at the status alone.
            assert!(reply["status"].is_string(), "{reply}");
            reply
        };
        let racers: Vec<_> = (0..64).map(|_| scope.spawn(race)).collect();
        racers
            .into_iter()
            .map(|racer| racer.join().expect("a racer"))
            .collect()
    });
    assert_eq!(tally(&replies), (1, 63));
    assert_eq!(effects(&folder), 1);
    verified(&folder);
}

/// G-5: the same with 64 connections to one gate.
#[test]
fn one_lease_is_spent_once_by_64_connections() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let token = grant(&folder, &["append"]);
    let body = json!({ "tool": "append", "input": {}, "lease_token": token });
    let together = Barrier::new(64);
    let kinds: Vec<String> = thread::scope(|scope| {
        let race = || {
            together.wait();
            let answer = serve.call(&body);
            if answer["ok"] == true {
                "won".to_owned()
            } else {
                answer["fault"]["data"].to_string()
            }
        };
        let racers: Vec<_> = (0..64).map(|_| scope.spawn(race)).collect();
        racers
            .into_iter()
            .map(|racer| racer.join().expect("a racer"))
            .collect()
    });
    assert_eq!(
        kinds.iter().filter(|kind| *kind == "won").count(),
        1,
        "{kinds:?}"
    );
    let consumed = json!({ "reason": "already consumed" }).to_string();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == consumed).count(),
        63,
        "{kinds:?}"
    );
    assert_eq!(effects(&folder), 1);
    assert!(serve.stop().success());
    verified(&folder);
}

/// True if a file under `folder` has these bytes.
fn has_bytes(folder: &Path, wanted: &[u8]) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() {
            if let Some(found) = has_bytes(&path, wanted) {
                return Some(found);
            }
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).expect("a file of ours");
            if bytes.windows(wanted.len()).any(|window| window == wanted) {
                return Some(path);
            }
        }
    }
    None
}

/// G-5: the store has hashes of tokens, never a token, whatever became of it; the words of the
/// daemon and its log have none either.
#[test]
fn tokens_are_not_on_disk() {
    let folder = workspace();
    let serve = Serve::spawn(
        callgate(&folder).arg("serve").env("CALLGATE_LOG", "trace"),
        folder.join("state/gate.sock"),
    );
    let tokens: Vec<String> = (0..4).map(|_| grant(&folder, &["append"])).collect();
    for tool in ["append", "other"] {
        for token in &tokens[..2] {
            serve.call(&json!({ "tool": tool, "input": {}, "lease_token": token }));
        }
    }
    cli(&folder, &["lease", "revoke", &tokens[2]]).good();
    let listed = cli(&folder, &["lease", "list", "--json"]).good();
    cli(&folder, &["audit", "export", "exported"]).good();
    // The log is on.
    serve.wait_said("call finished");
    let said = serve.said();
    assert!(serve.stop().success());
    for token in &tokens {
        let hex = token.strip_prefix("lease_").expect("its form");
        assert_eq!(has_bytes(folder.path(), hex.as_bytes()), None);
        assert!(!said.contains(hex) && !listed.out.contains(hex));
    }
    let states: Vec<&str> = listed.json()["leases"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|lease| match lease["state"].as_str() {
            Some("spent") => "spent",
            Some("revoked") => "revoked",
            _ => "active",
        })
        .collect();
    assert_eq!(states.iter().filter(|state| **state == "spent").count(), 2);
    assert_eq!(
        states.iter().filter(|state| **state == "revoked").count(),
        1
    );
    assert_eq!(states.iter().filter(|state| **state == "active").count(), 1);
}

/// G-5, F-14: a program that is not there has run nothing, so that the same token serves once
/// it is; by each door, and again after a host that was never told. Two that race for what was
/// given back do not both run.
#[test]
fn a_missing_program_spends_nothing() {
    let folder = Folder::new();
    let config = CONFIG
        .replace("[\"/bin/sh\", \"append.sh\"]", "[\"./late.sh\"]")
        .replace("code = [\"append.sh\"]\n", "");
    folder.write("callgate.toml", &config);
    cli(&folder, &["trust"]).good();
    let token = grant(&folder, &["append"]);
    let request = request("AID.TEST.APPEND.v1", &json!({}), &token);
    let mut hosts: Vec<Host> = (0..8)
        .map(|_| Host::start(&folder, place(&folder)))
        .collect();
    for host in &mut hosts {
        assert_eq!(host.ask(&request)["status"], "BREAKER_TRIP");
    }
    let by_gate = ["call", "append", "{}", "--lease", &token, "--json"];
    let body = cli(&folder, &by_gate).json();
    assert_eq!(body["fault"]["kind"], "unavailable", "{body}");

    folder.executable("late.sh", &format!("#!/bin/sh\n{APPEND}"));
    let together = Barrier::new(hosts.len());
    let replies: Vec<Value> = thread::scope(|scope| {
        let racers: Vec<_> = hosts
            .iter_mut()
            .map(|host| {
                scope.spawn(|| {
                    together.wait();
                    host.ask(&request)
                })
            })
            .collect();
        let join = |racer: thread::ScopedJoinHandle<'_, Value>| racer.join().expect("a racer");
        racers.into_iter().map(join).collect()
    });
    assert_eq!(tally(&replies), (1, 7));
    assert_eq!(effects(&folder), 1);
    for host in hosts {
        assert!(host.end().success());
    }
    verified(&folder);
}

/// A name that is not among the workspace's tools may be one of a plugin: the refusal says how that is
/// named, and so does the help.
#[test]
fn a_plugin_s_tool_is_found_by_its_plugin() {
    let folder = Folder::new();
    folder.write("pack/callgate.toml", ONE_OF_A_PACK);
    let unknown = cli(&folder, &["lease", "grant", "packed"]);
    assert_eq!(unknown.code(), 1);
    assert!(unknown.err.contains("--plugin PATH"), "{unknown:?}");
    cli(&folder, &["lease", "grant", "packed", "--plugin", "pack"]).good();
    let unknown = cli(&folder, &["lease", "grant", "other", "--plugin", "pack"]);
    assert!(
        unknown.code() == 1 && !unknown.err.contains("add --plugin"),
        "{unknown:?}"
    );
    let help = cli(&folder, &["lease", "grant", "--help"]).good();
    assert!(help.out.contains("--plugin <PATH>"), "{help:?}");
}

const ONE_OF_A_PACK: &str = r#"
[[tool]]
name = "packed"
tier = 1
runner = { kind = "process", command = ["/bin/true"] }
"#;
