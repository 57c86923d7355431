//! Tools that are no children of the gate: at another gate's service, and in containers of a
//! real podman.

use std::net::TcpListener;
use std::process::Command;

use crate::support::drive::{Ran, Serve, cli, count_of, post, run};
use crate::support::web::Web;
use crate::support::workspace::{folder_of, trusted_with};
use crate::support::{Folder, callgate, copy_program, fresh_folder, is_alive, wait_for};
use callgate_testing::podman::{IMAGE, Podman};
use serde_json::{Value, json};

const GREET: &str = "def greet(payload):\n    return {'message': 'Hello ' + payload['name']}\n";

/// TP-36 to TP-46, TP-57: one gate calls a tool of another's, and fails as it does.
#[test]
fn a_gate_is_another_gates_service() {
    let far = trusted_with(&[
        (
            "callgate.toml",
            "[[tool]]\nname = \"greeter\"\nrunner = { kind = \"python\", entry = \"tools.sample:greet\" }\n",
        ),
        ("tools/sample.py", GREET),
    ]);
    let web = Web::start(&far, &[]);
    let token = far.read("state/token").expect("the owner's token");
    let config = |more: &str| {
        format!(
            "[[tool]]\nname = \"hello\"\nrunner = {{ kind = \"service\", \
             url = \"http://127.0.0.1:{}/tools\", tool_name = \"greeter\"{more} }}\n",
            web.port
        )
    };
    let near = folder_of(&[("callgate.toml", &config(", token_env = \"FAR_TOKEN\""))]);
    let with_token = |args: &[&str]| {
        let mut command = callgate(&near);
        command.args(args).env("FAR_TOKEN", token.trim());
        run(&mut command)
    };
    // Nothing is asked before the token is there.
    let refused = cli(&near, &["trust"]);
    assert!(
        refused.err.contains("token_env: `FAR_TOKEN` is not set"),
        "{refused:?}"
    );
    with_token(&["trust"]).good();
    let answer = with_token(&["call", "--json", "hello", r#"{"name":"Ada"}"#])
        .good()
        .json();
    assert_eq!(answer["output"], json!({ "message": "Hello Ada" }));
    // TP-65, TP-73, TP-81: who carried it out, and that nothing was asked of it before.
    let traced = || with_token(&["trace", "--last", "--json"]).good().json();
    let trace = traced();
    assert_eq!(trace["runner"], "service", "{trace}");
    let url = format!("http://127.0.0.1:{}/tools", web.port);
    assert_eq!(trace["service_url"], url, "{trace}");
    assert_eq!(trace["service_handshake"], false, "{trace}");
    assert_eq!(trace["enforcement_level"], Value::Null, "{trace}");
    assert_eq!(trace["sandbox"], Value::Null, "{trace}");
    let failed = with_token(&["call", "--json", "hello", "{}"]).json();
    assert_eq!(failed["fault"]["kind"], "tool_failed", "{failed}");
    assert_eq!(failed["fault"]["data"]["type"], "KeyError", "{failed}");
    // Both ends have it in their chains.
    assert_eq!((count_of(&near, "start"), count_of(&far, "start")), (2, 2));

    // Guarantees go by a handshake. What the far gate holds every call of its tool to counts;
    // what it could do if it were asked does not (P-5).
    let asking = |guarantee: &str| {
        let text = config(", token_env = \"FAR_TOKEN\"");
        let asks = format!("guarantees = {{ {guarantee} = true }}\n");
        near.write("callgate.toml", &(text + &asks));
        with_token(&["trust"]).good();
        with_token(&["call", "--json", "hello", r#"{"name":"Ada"}"#]).json()
    };
    let held = asking("no_network");
    assert_eq!(held["output"]["message"], "Hello Ada", "{held}");
    let enforcement = &held["enforcement"];
    assert_eq!(enforcement["level"], "enforced", "{held}");
    let promise = &enforcement["guarantees"]["no_network"];
    assert_eq!(
        promise["mechanisms"],
        json!(["service handshake"]),
        "{held}"
    );
    // TP-82: and what it answered.
    let trace = traced();
    assert_eq!(trace["service_handshake"], true, "{trace}");
    assert_eq!(trace["enforcement_level"], "enforced", "{trace}");
    let refused = asking("no_env_write");
    assert_eq!(refused["fault"]["kind"], "unenforceable", "{refused}");
    let trace = traced();
    assert_eq!(
        trace["capability_checks"][0]["reason"], "coverage_missing",
        "{trace}"
    );
    assert_eq!(
        (&trace["status"], &trace["stopped_at"]),
        (&json!("blocked"), &json!("plan"))
    );
    assert_eq!(
        refused["fault"]["data"]["missing"],
        json!(["no_env_write"]),
        "{refused}"
    );
    // TP-73, TP-81, TP-82: a call that stopped at the handshake says where and what it heard.
    assert_eq!(trace["service_url"], url, "{trace}");
    assert_eq!(trace["service_handshake"], true, "{trace}");
    assert_eq!(trace["enforcement_level"], "none", "{trace}");

    // A service that is not there has heard nothing.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let text = config("").replace(&web.port.to_string(), &port.to_string());
    let asks = "guarantees = { no_network = true }\n";
    let lost = folder_of(&[("callgate.toml", &(text + asks))]);
    cli(&lost, &["trust"]).good();
    let refused = cli(&lost, &["call", "--json", "hello", "{}"]).json();
    assert_eq!(refused["fault"]["kind"], "unavailable", "{refused}");
    let trace = cli(&lost, &["trace", "--last", "--json"]).good().json();
    assert_eq!(trace["stopped_at"], "plan", "{trace}");
    let address = format!("http://127.0.0.1:{port}/tools");
    assert_eq!(trace["service_url"], address, "{trace}");
    assert_eq!(trace["service_handshake"], false, "{trace}");
    assert_eq!(trace["enforcement_level"], Value::Null, "{trace}");

    // Without its token the far gate says 401, which is no answer of a tool's.
    let stranger = folder_of(&[("callgate.toml", &config(""))]);
    cli(&stranger, &["trust"]).good();
    let failed = cli(&stranger, &["call", "--json", "hello", "{}"]).json();
    assert_eq!(
        failed["fault"]["message"],
        "the service answered with status 401"
    );
}

/// A workspace whose tool lives in a container of this podman, and the program there.
struct Place {
    podman: Podman,
    folder: Folder,
}

impl Place {
    fn new(name: &str, uid: Option<u32>, more: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let podman = Podman::of(fresh_folder(&format!("podman-{name}")), uid);
        let options: Vec<String> = podman
            .options()
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let config = format!(
            "[[tool]]\nname = \"inside\"\ntimeout_ms = 60000\n\
             guarantees = {{ no_network = true, no_filesystem_write = true }}\nrunner = {{ kind = \"container\", \
             image = \"{IMAGE}\", entry = \"tools.sample:status\", runtime = \"podman\", \
             runtime_options = {options:?}{more} }}\n"
        );
        let folder = folder_of(&[("callgate.toml", &config), ("tools/sample.py", INSIDE)]);
        std::fs::create_dir(folder.join("state")).expect("make the state");
        for path in [folder.path().to_owned(), folder.join("state")] {
            std::os::unix::fs::chown(&path, uid, uid).expect("give it away");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("open it");
        }
        let program = folder.join("callgate");
        copy_program(crate::support::program(), &program);
        Self { podman, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.podman.command(&self.folder.join("callgate"));
        command
            .args(args)
            .env("CALLGATE_STATE", self.folder.join("state"))
            .current_dir(self.folder.path());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn change(&self, from: &str, to: &str) {
        let text = self.folder.read("callgate.toml").expect("it is there");
        self.folder.write("callgate.toml", &text.replace(from, to));
        self.run(&["trust"]).good();
    }

    fn serve(&self) -> Serve {
        let socket = self.folder.join("state/gate.sock");
        Serve::spawn(&mut self.command(&["serve", "--port", "0"]), socket)
    }
}

const INSIDE: &str = "import os, time\n\
    def status(_):\n    return {'uid': os.getuid(), 'net': os.listdir('/sys/class/net')}\n\
    def hang(_):\n    time.sleep(1000)\n";

/// P-12, must-show 5 with the program itself: a call in a container, the gate's end in order,
/// the gate killed with a call running, and what the next gate makes of it.
#[test]
fn containers_end_with_their_gate() {
    let limits = ", limits = { memory_bytes = 67108864, processes = 32 }";
    let place = Place::new("own", None, limits);
    let podman = &place.podman;
    place.run(&["trust"]).good();
    // Alone, the program starts a container and leaves none.
    let answer = place.run(&["call", "--json", "inside", "{}"]).good().json();
    assert_eq!(answer["output"], json!({ "uid": 65534, "net": ["lo"] }));
    let promises = &answer["enforcement"]["guarantees"];
    assert_eq!(answer["enforcement"]["level"], "enforced", "{answer}");
    let walls = json!(["network namespace", "seccomp profile"]);
    assert_eq!(promises["no_network"]["mechanisms"], walls, "{answer}");
    assert_eq!(podman.containers(), [""; 0]);
    // TP-65, TP-74, TP-75, TP-76, TP-83: what its trace has of the container.
    let trace = place.run(&["trace", "--last", "--json"]).good().json();
    assert_eq!(trace["runner"], "container", "{trace}");
    assert_eq!(trace["container_runtime"], "podman", "{trace}");
    assert_eq!(trace["image"], IMAGE, "{trace}");
    let digest = trace["image_digest"].as_str().expect("a digest");
    let hex = digest.strip_prefix("sha256:").expect("its kind");
    let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(hex.len() == 64 && is_hex, "{trace}");
    assert_eq!(trace["command"], "worker tools.sample:status", "{trace}");
    let shown =
        "verified: no network, read-only, memory 67108864, pids 32, user 65534, no capabilities";
    assert_eq!(trace["container_enforcement"], shown, "{trace}");
    assert_eq!(trace["enforcement"]["level"], "enforced", "{trace}");

    let serve = place.serve();
    let answer = serve.call(&json!({ "tool": "inside", "input": {} }));
    assert_eq!(answer["output"]["uid"], 65534, "{answer}");
    assert_eq!(podman.containers().len(), 1);
    assert!(serve.stop().success());
    assert_eq!(podman.containers(), [""; 0], "an end in order leaves none");

    // A gate that is killed takes the processes along; the record goes with the next start.
    place.change(":status", ":hang");
    let serve = place.serve();
    let socket = serve.socket.clone();
    let call = std::thread::spawn(move || -> Option<Value> {
        post(&socket, &json!({ "tool": "inside", "input": {} }))
    });
    let name = wait_for("a container", || podman.containers().pop());
    let pid = wait_for("its process", || {
        let asked = podman.run(&["inspect", "--format", "{{.State.Pid}}", &name]);
        let pid = String::from_utf8_lossy(&asked.stdout).trim().parse::<u32>();
        pid.ok().filter(|&pid| pid > 0)
    });
    let starts = || count_of(&place.folder, "start");
    wait_for("the call's start", || (starts() > 2).then_some(()));
    serve.kill();
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    let _ = call.join();
    let serve = place.serve();
    wait_for("the record's end", || {
        podman.containers().is_empty().then_some(())
    });
    assert!(serve.stop().success());
}

/// P-12: without root, and what the runtime ignores is not believed. With cgroups of the first
/// version podman only warns that it sets no limits; the call is refused.
#[test]
fn without_root() {
    let uid = match std::env::var("CALLGATE_TEST_UID") {
        Ok(uid) => uid.parse().expect("a number"),
        Err(_) => rustix::process::geteuid().as_raw(),
    };
    // Without further numbers in `/etc/subuid` there is but one user inside.
    let place = Place::new("user", Some(uid), ", user = \"0:0\"");
    place.run(&["trust"]).good();
    let answer = place.run(&["call", "--json", "inside", "{}"]).good().json();
    assert_eq!(answer["output"], json!({ "uid": 0, "net": ["lo"] }));
    assert_eq!(answer["enforcement"]["level"], "enforced", "{answer}");
    assert_eq!(place.podman.containers(), [""; 0]);

    place.change("user = ", "limits = { memory_bytes = 67108864 }, user = ");
    let ran = place.run(&["call", "--json", "inside", "{}"]);
    let answer = ran.json();
    let v1 = std::path::Path::new("/sys/fs/cgroup/memory").exists();
    if v1 {
        let message = answer["fault"]["message"].as_str().unwrap_or_default();
        let words = "the container's memory limit is not in force";
        assert!(message.contains(words), "{answer}");
    } else {
        assert_eq!(answer["output"]["net"], json!(["lo"]), "{ran:?}");
    }
    assert_eq!(place.podman.containers(), [""; 0]);
}

/// What is mounted is mounted whole: nothing of the gate's own may be in it, and nobody filters
/// a container's network.
#[test]
fn containers_get_nothing_of_the_gates_own() {
    let folder = folder_of(&[("tools/sample.py", INSIDE), ("data/x", ""), ("out/x", "")]);
    let trust = |more: &str| {
        let config = format!(
            "[[tool]]\nname = \"inside\"\n{more}\nrunner = {{ kind = \"container\", \
             image = \"i\", entry = \"tools.sample:status\" }}\n"
        );
        folder.write("callgate.toml", &config);
        cli(&folder, &["trust"])
    };
    for bad in [
        "writes = [\".\"]",
        "writes = [\"tools\"]",
        "writes = [\"tools/out\"]",
        "reads = [\".\"]",
        "reads = [\"state\"]",
    ] {
        let ran = trust(bad);
        let is_told = ["is the gate's own", "code of this tool"];
        let is_told = is_told.iter().any(|words| ran.err.contains(words));
        assert!(is_told, "{bad}: {ran:?}");
    }
    let ran = trust("network = { allow = [\"a.example:443\"] }");
    assert!(ran.err.contains("everybody or nobody"), "{ran:?}");
    trust("writes = [\"out\"]\nreads = [\"data\"]\nnetwork = true").good();
}
