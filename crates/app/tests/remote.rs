//! Tools that are no children of the gate: at another gate's service, and in containers of a
//! real podman.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

#[path = "../../runners/tests/support/podman.rs"]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod podman;
mod support;

use std::path::PathBuf;

use podman::{IMAGE, Podman};
use serde_json::{Value, json};
use support::drive::{Serve, cli, count_of};
use support::web::Web;
use support::workspace::{folder_of, trusted_with};
use support::{Folder, callgate, is_alive, wait_for};

const GREET: &str = "def greet(payload):\n    return {'message': 'Hello ' + payload['name']}\n";

/// TP-36 to TP-46: one gate calls a tool of another's, and fails as it does.
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
        support::drive::run(&mut command)
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
    let failed = with_token(&["call", "--json", "hello", "{}"]).json();
    assert_eq!(failed["fault"]["kind"], "tool_failed", "{failed}");
    assert_eq!(failed["fault"]["data"]["type"], "KeyError", "{failed}");
    // Both ends have it in their chains.
    assert_eq!((count_of(&near, "start"), count_of(&far, "start")), (2, 2));

    // Without its token the far gate says 401, which is no answer of a tool's.
    let stranger = folder_of(&[("callgate.toml", &config(""))]);
    cli(&stranger, &["trust"]).good();
    let failed = cli(&stranger, &["call", "--json", "hello", "{}"]).json();
    assert_eq!(
        failed["fault"]["message"],
        "the service answered with status 401"
    );
}

/// A workspace whose tool lives in a container of this podman.
fn workspace(podman: &Podman, entry: &str) -> (Folder, impl Fn(&[&str]) -> std::process::Command) {
    let options: Vec<String> = podman
        .options()
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let config = format!(
        "[[tool]]\nname = \"inside\"\ntimeout_ms = 60000\nrunner = {{ kind = \"container\", \
         image = \"{IMAGE}\", entry = \"{entry}\", runtime = \"podman\", \
         runtime_options = {options:?}, limits = {{ memory_bytes = 67108864, processes = 32 }} }}\n"
    );
    let tool = "import os, time\n\
        def status(_):\n    return {'uid': os.getuid(), 'net': os.listdir('/sys/class/net')}\n\
        def hang(_):\n    time.sleep(1000)\n";
    let folder = folder_of(&[("callgate.toml", &config), ("tools/sample.py", tool)]);
    let (env, path) = (podman.env(), folder.path().to_owned());
    let commands = move |args: &[&str]| {
        let mut command = std::process::Command::new(support::program());
        command
            .env_clear()
            .envs(env.clone())
            .env("CALLGATE_STATE", path.join("state"))
            .args(args)
            .current_dir(&path);
        command
    };
    (folder, commands)
}

fn podman() -> Podman {
    let folder = std::env::temp_dir().join(format!("callgate-podman-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("make a folder");
    Podman::new(folder)
}

/// P-12, must-show 5 with the program itself: a call in a container, the gate's end in order,
/// the gate killed with a call running, and what the next gate makes of it.
#[test]
fn containers_end_with_their_gate() {
    let podman = podman();
    let (folder, commands) = workspace(&podman, "tools.sample:status");
    let run = |args: &[&str]| support::drive::run(&mut commands(args));
    run(&["trust"]).good();
    // Alone, the program starts a container and leaves none.
    let answer = run(&["call", "--json", "inside", "{}"]).good().json();
    assert_eq!(answer["output"], json!({ "uid": 65534, "net": ["lo"] }));
    assert_eq!(podman.containers(), [""; 0]);

    let socket: PathBuf = folder.join("state/gate.sock");
    let serve = Serve::spawn(&mut commands(&["serve", "--port", "0"]), socket.clone());
    let answer = serve.call(&json!({ "tool": "inside", "input": {} }));
    assert_eq!(answer["output"]["uid"], 65534, "{answer}");
    assert_eq!(podman.containers().len(), 1);
    assert!(serve.stop().success());
    assert_eq!(podman.containers(), [""; 0], "an end in order leaves none");

    // A gate that is killed takes the processes along; the record goes with the next start.
    let text = folder.read("callgate.toml").expect("written above");
    folder.write("callgate.toml", &text.replace(":status", ":hang"));
    run(&["trust"]).good();
    let serve = Serve::spawn(&mut commands(&["serve", "--port", "0"]), socket.clone());
    let caller = socket.clone();
    let call = std::thread::spawn(move || -> Option<Value> {
        support::drive::post(&caller, &json!({ "tool": "inside", "input": {} }))
    });
    let name = wait_for("a container", || podman.containers().pop());
    let pid = wait_for("its process", || {
        let asked = podman.run(&["inspect", "--format", "{{.State.Pid}}", &name]);
        let pid = String::from_utf8_lossy(&asked.stdout).trim().parse::<u32>();
        pid.ok().filter(|&pid| pid > 0)
    });
    wait_for("the call's start", || {
        (count_of(&folder, "start") > 2).then_some(())
    });
    serve.kill();
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    let _ = call.join();
    let serve = Serve::spawn(&mut commands(&["serve", "--port", "0"]), socket);
    wait_for("the record's end", || {
        podman.containers().is_empty().then_some(())
    });
    assert!(serve.stop().success());
}
