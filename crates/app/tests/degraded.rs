//! A machine that lacks something: levels drop, what was asked for and can not be kept is
//! refused before anything runs, and reply and chain say why. Once by the switch that hides a
//! facility, once for real, behind a filter that answers for the kernel.

use std::path::Path;
use std::process::Command;

use crate::support::arena::{Arena, Users};
use crate::support::drive::{Host, run, run_with};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[breaker]
failures_max = 0

[[tool]]
name = "pure"
purity = "pure"
reads = ["attacks", "victim"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "bold"
purity = "pure"
reads = ["attacks", "victim"]
allow_unsafe_execution = true
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "childless"
writes = ["out"]
guarantees = { no_subprocess = true }
allow_unsafe_execution = true
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "wide"
writes = ["."]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "plain"
runner = { kind = "process", command = COMMAND }
"#;

/// What a machine lacks.
#[derive(Clone, Copy, Debug)]
struct Lack {
    /// For the switch.
    hidden: &'static str,
    /// For `without.py`.
    real: &'static str,
    /// What `pure` is then refused for; nothing: it is served.
    refused: &'static [&'static str],
    /// What is kept all the same.
    kept: &'static [&'static str],
}

const LACKS: [Lack; 3] = [
    Lack {
        hidden: "landlock",
        real: "landlock",
        refused: &[
            "no_filesystem_read",
            "no_filesystem_write",
            "no_env_read",
            "secrets_allowed",
        ],
        kept: &["no_network", "no_subprocess"],
    },
    Lack {
        hidden: "seccomp",
        real: "seccomp",
        refused: &["no_filesystem_write", "no_network", "no_subprocess"],
        kept: &["no_filesystem_read", "no_env_read"],
    },
    Lack {
        hidden: "userns,mountns,netns",
        real: "namespaces",
        refused: &[],
        kept: &["no_filesystem_write", "no_network", "no_subprocess"],
    },
];

/// A machine: the arena's, with something gone.
struct Machine<'a> {
    arena: &'a Arena,
    lack: Option<Lack>,
    is_real: bool,
}

impl Machine<'_> {
    fn callgate(&self, args: &[&str]) -> Command {
        let mut plain = self.arena.callgate(args);
        let Some(lack) = self.lack else { return plain };
        if !self.is_real {
            plain.env("CALLGATE_HIDE", lack.hidden);
            return plain;
        }
        let python = Path::new(&self.arena.python);
        let mut command = self.arena.command(self.arena.users.gate, python);
        command
            .arg(self.arena.ws().join("attacks/without.py"))
            .arg(lack.real)
            .arg(plain.get_program())
            .args(args);
        command
    }

    /// A call that only says something.
    fn call(&self, tool: &str) -> Value {
        let mut command = self.callgate(&["call", tool, "-", "--json", "--standalone"]);
        let facts = json!({ "attack": "controls.pipes", "token": "heard" });
        let ran = run_with(&mut command, facts.to_string().as_bytes());
        ran.json()
    }

    fn name(&self) -> String {
        let (who, lack) = (self.arena.users.name(), self.lack.map(|lack| lack.hidden));
        format!("as {who} without {lack:?}, for real: {}", self.is_real)
    }
}

fn served(reply: &Value) -> bool {
    reply["output"]["said"] == "heard"
}

/// P-3, F.
#[test]
fn levels_drop_and_what_can_not_be_kept_is_refused() {
    Users::each(|users| {
        let arena = Arena::new(users, CONFIG);
        arena.cli(&["trust"]).good();
        let whole = Machine {
            arena: &arena,
            lack: None,
            is_real: false,
        };
        let reply = whole.call("pure");
        assert!(served(&reply), "{reply}");
        assert_eq!(reply["enforcement"]["level"], "enforced", "{reply}");
        for lack in LACKS {
            for is_real in [false, true] {
                check(&Machine {
                    arena: &arena,
                    lack: Some(lack),
                    is_real,
                });
            }
        }
    });
}

fn check(machine: &Machine<'_>) {
    let name = machine.name();
    let lack = machine.lack.expect("something is gone");
    let reply = machine.call("pure");
    if lack.refused.is_empty() {
        assert!(served(&reply), "{name}: {reply}");
    } else {
        assert_eq!(reply["fault"]["kind"], "unenforceable", "{name}: {reply}");
    }
    let why = reply["fault"]["message"].as_str().unwrap_or_default();
    for refused in lack.refused {
        assert!(why.contains(refused), "{name}: {refused} in {why}");
    }
    for kept in lack.kept {
        assert!(!why.contains(kept), "{name}: {kept} in {why}");
    }
    overridden(machine, lack);
    if lack.hidden.contains("mountns") {
        let reply = machine.call("wide");
        let writes = &reply["enforcement"]["writes"];
        assert!(served(&reply), "{name}: {reply}");
        assert_eq!(writes["level"], "partial", "{name}: {reply}");
        let missing = writes["missing"].as_str().unwrap_or_default();
        assert!(missing.contains("callgate.toml"), "{name}: {reply}");
    }
}

/// The owner's override lets it run: the reply says how each promise is kept and what is
/// missing, and the chain that it was an override.
fn overridden(machine: &Machine<'_>, lack: Lack) {
    let name = machine.name();
    let reply = machine.call("bold");
    assert!(served(&reply), "{name}: {reply}");
    let enforcement = &reply["enforcement"];
    for weak in lack.refused {
        let held = &enforcement["guarantees"][*weak];
        assert_ne!(held["level"], "enforced", "{name}: {weak} in {reply}");
        assert!(held["missing"].is_string(), "{name}: {weak} in {reply}");
    }
    for kept in lack.kept {
        let held = &enforcement["guarantees"][*kept];
        assert_eq!(held["level"], "enforced", "{name}: {kept} in {reply}");
    }
    let is_override = !lack.refused.is_empty();
    assert_eq!(
        enforcement["unsafe_override"] == true,
        is_override,
        "{name}: {reply}"
    );
    let mut shown = machine
        .arena
        .callgate(&["audit", "show", "--last", "1", "--json"]);
    let record: Value = run(&mut shown).good().json();
    assert_eq!(record["call"], reply["call_id"], "{record}");
    assert_eq!(record["enforcement"], enforcement["level"], "{record}");
    assert_eq!(record["unsafe_override"] == true, is_override, "{record}");
}

/// What is still called enforced without Landlock is enforced: nobody gets out by the network
/// or by a child.
#[test]
fn what_is_left_holds() {
    let users = Users::all()[0];
    let arena = Arena::new(users, CONFIG);
    let machine = Machine {
        arena: &arena,
        lack: Some(LACKS[0]),
        is_real: true,
    };
    let mut referee = arena.referee_as(users.owner, &["network", "children"], |_| {});
    let mut host = Host::spawn(&mut machine.callgate(&["toolhost", "--serve", "."]));
    let mut stopped = 0;
    for attack in referee.attacks() {
        // Abstract sockets are the filter's as well; `online` is another tool's.
        if !attack.is_for(users) {
            continue;
        }
        let tool = if attack.group() == "network" {
            "BOLD"
        } else {
            "CHILDLESS"
        };
        let facts = referee.prepare(&attack.name);
        let request = json!({ "aid": format!("AID.TOOL.{tool}.v1"), "inputs": facts });
        let reply = host.ask(&request).to_string();
        assert!(!referee.judge(&reply), "{} worked: {reply}", attack.name);
        let has_run = reply.contains("said") || reply.contains("SIGSYS");
        assert!(has_run, "{}: {reply}", attack.name);
        stopped += 1;
    }
    assert!(stopped > 50, "{stopped}");
    referee.end();
    assert!(host.end().success());
}
