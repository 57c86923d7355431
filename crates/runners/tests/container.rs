//! Tools in real containers: what is promised is proven from inside, and nothing is left.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::docker::{Docker, Engine};
use crate::support::{Bench, folder, misbehave, until};
use callgate_call::{
    Asker, Call, CallId, Caller, Cancel, Document, Fault, Guarantee, Isolation, Level, Needs, Plan,
    Wire,
};
use callgate_runners::{
    ContainerRunner, ContainerSettings, Containers, NamedSecrets, Profiles, Talking, over_stdio,
    seccomp_profile,
};
use callgate_sandbox::Limits;
use callgate_testing::podman::{IMAGE, Podman};
use serde_json::{Value, json};

/// What tools do inside.
const INSIDE: &str = include_str!("support/inside.py");

/// A runtime, a workspace with the tools, and the containers of one gate.
struct Scene {
    // Before the engine: what is left is removed while it is still there.
    host: Option<Arc<Containers>>,
    engine: Box<dyn Engine>,
    workspace: std::path::PathBuf,
    /// Its own, so that clients of scenes side by side are told apart by their names.
    id: String,
}

impl Scene {
    fn new(engine: impl Engine + 'static) -> Self {
        let workspace = folder().canonicalize().unwrap();
        std::fs::create_dir_all(workspace.join("tools")).unwrap();
        std::fs::write(workspace.join("tools/inside.py"), INSIDE).unwrap();
        std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o755)).unwrap();
        static NEXT: AtomicU64 = AtomicU64::new(0x0123_4567_89ab_0000);
        let id = format!("{:016x}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            host: Some(Containers::new(misbehave().to_owned(), &id)),
            engine: Box::new(engine),
            workspace,
            id,
        }
    }

    fn host(&self) -> &Arc<Containers> {
        self.host.as_ref().unwrap()
    }

    fn profiles(&self) -> Option<Profiles> {
        let stock = std::fs::read("/usr/share/containers/seccomp.json").unwrap();
        let stock: Value = serde_json::from_slice(&stock).unwrap();
        let write = |name: &str, may_fork: bool| {
            let path = self.engine.folder().join(name);
            let profile = seccomp_profile(&stock, may_fork).unwrap();
            std::fs::write(&path, profile.to_string()).unwrap();
            path
        };
        Some(Profiles {
            usual: write("usual.json", true),
            without_forks: write("without-forks.json", false),
        })
    }

    fn settings(&self, talking: Talking) -> ContainerSettings {
        ContainerSettings {
            image: IMAGE.to_owned(),
            talking,
            env: Vec::new(),
            secrets: Arc::default(),
            user: None,
            workspace: self.workspace.clone(),
            limits: Limits {
                address_space_bytes: Some(64 << 20),
                processes: Some(32),
                ..Limits::default()
            },
            profiles: self.profiles(),
            containers_max: 1,
            queue_max: 8,
            idle_max: Duration::from_secs(300),
            calls_max: 1000,
            output_bytes_max: 100_000,
        }
    }

    fn bench_with(&self, settings: ContainerSettings, needs: Needs) -> Bench {
        let (options, env) = (self.engine.options(), self.engine.env());
        let client =
            self.host()
                .client(self.engine.runtime(), options, env, self.workspace.clone());
        let runner = ContainerRunner::new(Arc::clone(self.host()), client, settings);
        let mut bench = Bench::new(runner);
        bench.tool.needs = Some(Arc::new(needs));
        bench
    }

    /// The tool `tools.inside:ENTRY`.
    fn bench(&self, entry: &str, needs: Needs) -> Bench {
        self.bench_with(self.settings(worker(entry)), needs)
    }

    /// What a tool of this workspace needs.
    fn needs(&self, guarantees: &[Guarantee]) -> Needs {
        let mut needs = Needs {
            code: vec![self.workspace.join("tools")],
            isolation: Isolation::Worker,
            ..Needs::default()
        };
        for one in guarantees {
            needs.guarantees.require(*one, Asker::Tool);
        }
        needs
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(self.host.take());
        let _ = std::fs::remove_dir_all(&self.workspace);
    }
}

fn worker(entry: &str) -> Talking {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/callgate/worker.py");
    let text = std::fs::read_to_string(path).unwrap();
    let text = over_stdio(&format!("__file__ = 'callgate/worker.py'\n{text}"));
    Talking::Worker {
        command: ["python3", "-u", "-c", &text].map(Into::into).to_vec(),
        entry: Some(format!("tools.inside:{entry}")),
    }
}

async fn plan(bench: &Bench) -> Result<Plan, Fault> {
    let (caller, cancel) = (Caller::uid(0), Cancel::new());
    let input = Document::from_value(json!({}));
    let mut call = Call::new(
        CallId(1),
        &bench.tool.name,
        input,
        caller,
        Wire::Gate,
        cancel,
    );
    call.default_timeout = Duration::from_secs(60);
    bench.tool.runner.plan(&call, &bench.tool).unwrap().await
}

/// P-12, must-show 5: network, memory, pids, read-only and user, from inside; and the plan
/// says what the running container showed.
async fn proven_from_inside(scene: Scene) {
    let guarantees = [
        Guarantee::NoFilesystemRead,
        Guarantee::NoFilesystemWrite,
        Guarantee::NoNetwork,
        Guarantee::NoEnvRead,
        Guarantee::SecretsAllowed,
    ];
    let needs = || scene.needs(&guarantees);
    let bench = scene.bench("status", needs());
    let planned = plan(&bench).await.unwrap();
    assert_eq!(planned.enforcement.level, Level::Enforced);
    let detail = planned.enforcement.detail.unwrap();
    assert_eq!(detail.isolation, Isolation::Worker);
    assert!(!detail.unsafe_override);
    assert_eq!(detail.held.len(), guarantees.len());
    assert!(detail.held.iter().all(|held| !held.mechanisms.is_empty()));

    let status = bench.value(json!({})).await;
    assert_eq!(
        (&status["uid"], &status["gid"]),
        (&json!(65534), &json!(65534))
    );
    assert_eq!(status["capabilities"], json!(["0000000000000000"]));
    assert_eq!(status["no_new_privs"], "1");
    assert_eq!(status["interfaces"], json!(["lo"]));
    assert_eq!(status["pid"], 1);
    assert_eq!(status["cwd"], "/workspace");
    let facts = bench.sink.facts();
    let runtime = scene.engine.runtime().as_str();
    assert_eq!(facts[0], format!("container_runtime={runtime}"));
    assert_eq!(facts[1], format!("image={IMAGE}"));
    assert_eq!(facts[2], "command=worker tools.inside:status");
    assert!(facts[3].starts_with("image_digest=sha256:"), "{facts:?}");
    assert_eq!(
        facts[4],
        "container_enforcement=verified: no network, read-only, memory 67108864, pids 32, \
         user 65534, no capabilities"
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let network = scene
        .bench("network", needs())
        .value(json!({ "port": port }))
        .await;
    assert_eq!(network["near"], "ECONNREFUSED");
    assert_eq!(network["far"], "ENETUNREACH");
    assert_ne!(network["vsock"], "done");
    assert!(listener.accept().is_err(), "nobody came");

    let paths = [
        "/x",
        "/etc/passwd",
        "/workspace/x",
        "/workspace/tools/inside.py",
        "/tmp/x",
    ];
    let written = scene
        .bench("write", needs())
        .value(json!({ "paths": paths }))
        .await;
    for path in &paths[..4] {
        assert_eq!(written[path], "EROFS", "{path}");
    }
    assert_eq!(written["/tmp/x"], "done");
    assert_eq!(
        std::fs::read_to_string(scene.workspace.join("tools/inside.py")).unwrap(),
        INSIDE
    );
    let secret = scene.workspace.join("secret");
    std::fs::write(&secret, "s").unwrap();
    let paths = [secret.to_str().unwrap(), "/workspace/secret", "/etc/shadow"];
    let read = scene
        .bench("read", needs())
        .value(json!({ "paths": paths }))
        .await;
    assert!(paths.iter().all(|path| read[path] == "ENOENT"), "{read}");

    let memory = scene.bench("memory", needs());
    assert_eq!(memory.value(json!({ "bytes": 16 << 20 })).await, 16 << 20);
    let fault = memory.fault(json!({ "bytes": 200 << 20 })).await;
    assert!(fault.starts_with("crash: "), "{fault}");

    let processes = scene
        .bench("processes", needs())
        .value(json!({ "max": 100 }))
        .await;
    assert_eq!(processes["stopped"], "EAGAIN", "{processes}");
    assert!(processes["started"].as_u64().unwrap() < 32, "{processes}");
}

/// P-12: one container serves many calls; what a tool prints is no reply.
async fn one_container_for_many_calls(scene: Scene) {
    let bench = scene.bench("count", scene.needs(&[]));
    for round in 1..=20 {
        assert_eq!(
            bench.value(json!({})).await,
            json!({ "count": round, "pid": 1 })
        );
    }
    assert_eq!(scene.engine.containers().len(), 1);
    bench.tool.runner.stop();
    until("it is removed", || scene.engine.containers().is_empty()).await;
    assert_eq!(bench.value(json!({})).await["count"], 1);

    let cold = Needs {
        isolation: Isolation::Cold,
        ..scene.needs(&[Guarantee::NoEnvWrite])
    };
    let cold = scene.bench("count", cold);
    assert_eq!(
        plan(&cold).await.unwrap().enforcement.level,
        Level::Enforced
    );
    for _ in 0..2 {
        assert_eq!(cold.value(json!({})).await["count"], 1);
    }
    let speak = scene.bench("speak", scene.needs(&[]));
    // What it prints comes by way of the engine. What comes later than the answer is told to
    // nobody: the next call is another caller's.
    for _ in 0..1000 {
        assert_eq!(speak.value(json!({ "a": 1 })).await, json!({ "a": 1 }));
        if speak.sink.stderr().contains("words of the tool") {
            return;
        }
    }
    panic!("nothing was heard of what it prints");
}

/// What no profile can promise is refused; the owner may let it run, and then nothing forks
/// all the same.
async fn forks_are_denied_and_that_is_only_part_of_it(scene: Scene) {
    let usual = scene.bench("fork", scene.needs(&[])).value(json!({})).await;
    assert_eq!(usual, json!({ "fork": "done", "spawn": "done" }));
    let bench = scene.bench("fork", scene.needs(&[Guarantee::NoSubprocess]));
    let refused = plan(&bench).await.unwrap_err().to_string();
    assert!(
        refused.contains("no_subprocess (exec in place stays possible)"),
        "{refused}"
    );
    let mut needs = scene.needs(&[Guarantee::NoSubprocess]);
    needs.unsafe_execution = true;
    let bench = scene.bench("fork", needs);
    let planned = plan(&bench).await.unwrap().enforcement;
    assert_eq!(planned.level, Level::Partial);
    assert!(planned.detail.unwrap().unsafe_override);
    let denied = bench.value(json!({})).await;
    assert_eq!(
        (&denied["fork"], &denied["spawn"]),
        (&json!("EPERM"), &json!("EPERM"))
    );
}

/// What is declared comes in, and only that.
async fn folders_and_variables_that_are_declared(scene: Scene) {
    let out = scene.workspace.join("out");
    std::fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(12345), Some(12345)).unwrap();
    let mut needs = scene.needs(&[]);
    needs.writes = vec![out.clone()];
    let bench = scene.bench("write", needs.clone());
    let paths = json!({ "paths": ["/workspace/out/made", "/workspace/tools/x"] });
    let written = bench.value(paths).await;
    assert_eq!(
        written,
        json!({ "/workspace/out/made": "done", "/workspace/tools/x": "EROFS" })
    );
    assert_eq!(std::fs::read_to_string(out.join("made")).unwrap(), "x");
    needs
        .guarantees
        .require(Guarantee::NoFilesystemWrite, Asker::User);
    let refused = plan(&scene.bench("write", needs)).await.unwrap_err();
    assert!(
        refused.to_string().contains("it may write /workspace/out"),
        "{refused}"
    );

    let mut settings = scene.settings(worker("status"));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    settings.env = vec![
        pair("PLAIN", "p"),
        pair("KEY", "sk-12345"),
        pair("HOME", "/tmp"),
    ];
    settings.secrets = Arc::new(NamedSecrets::new(vec![pair("OPENAI_API_KEY", "sk-12345")]));
    let names = async |needs: Needs| {
        let bench = scene.bench_with(settings.clone(), needs);
        plan(&bench).await.unwrap();
        let status = bench.value(json!({})).await;
        let has = |name: &str| {
            status["environment"]
                .as_array()
                .unwrap()
                .contains(&json!(name))
        };
        [has("PLAIN"), has("KEY"), has("PATH")]
    };
    assert_eq!(names(scene.needs(&[])).await, [true, true, true]);
    assert_eq!(
        names(scene.needs(&[Guarantee::SecretsAllowed])).await,
        [true, false, true]
    );
    assert_eq!(
        names(scene.needs(&[Guarantee::NoEnvRead])).await,
        [false, false, true]
    );
}

/// Must-show 5: whoever ends, and however, no container is left.
async fn no_container_is_left(mut scene: Scene) {
    // The call's own end: by its time, and by its caller.
    let mut bench = scene.bench("hang", scene.needs(&[]));
    plan(&bench).await.unwrap();
    let [name] = &scene.engine.containers()[..] else {
        panic!("one container")
    };
    let ours = format!("callgate-{}", scene.id);
    assert!(name.starts_with(&format!("{ours}-")), "{name}");
    let first = scene.engine.pid(name);
    bench.timeout = Duration::from_millis(500);
    assert_eq!(
        bench.fault(json!({})).await,
        "timeout: timed out after 500 ms"
    );
    // The call waits for that, but not for ever where the runtime takes its time.
    until("the tree is gone with the call", || {
        crate::support::gone(&[first])
    })
    .await;
    until("its record too", || scene.engine.containers().is_empty()).await;
    bench.timeout = crate::support::LONG;
    let cancel = bench.cancel.clone();
    let stopped = async {
        until("it runs", || !scene.engine.containers().is_empty()).await;
        cancel.cancel();
    };
    let (fault, ()) = ended_by(bench.fault(json!({})), stopped).await;
    assert_eq!(fault, "cancelled: cancelled");
    until("it is removed", || scene.engine.containers().is_empty()).await;
    drop(bench);

    // The client killed while a call runs. Not by its time: each look at the runtime keeps the call
    // waiting, and may take long.
    let mut bench = scene.bench("hang", scene.needs(&[]));
    bench.timeout = 10 * crate::support::LONG;
    let killed = async {
        until("it runs", || !scene.engine.containers().is_empty()).await;
        let name = scene.engine.containers()[0].clone();
        until("its process is there", || {
            let pid = scene
                .engine
                .run(&["inspect", "--format", "{{.State.Pid}}", &name]);
            String::from_utf8_lossy(&pid.stdout)
                .trim()
                .parse::<u32>()
                .is_ok_and(|pid| pid > 0)
        })
        .await;
        let (pid, client) = (scene.engine.pid(&name), client_of(&name));
        let client = rustix::process::Pid::from_raw(i32::try_from(client).unwrap()).unwrap();
        rustix::process::kill_process(client, rustix::process::Signal::KILL).unwrap();
        pid
    };
    let (fault, pid) = ended_by(bench.fault(json!({})), killed).await;
    assert!(
        fault.starts_with("crash: ") || fault.starts_with("unavailable: "),
        "{fault}"
    );
    until("its tree is gone", || crate::support::gone(&[pid])).await;
    until("its record is gone", || {
        scene.engine.containers().is_empty()
    })
    .await;
    drop(bench);

    // The gate's orderly end waits for the removal of what is idle.
    let bench = scene.bench("count", scene.needs(&[]));
    bench.value(json!({})).await;
    assert_eq!(scene.engine.containers().len(), 1);
    drop(bench);
    drop(scene.host.take());
    assert_eq!(scene.engine.containers(), [""; 0]);

    // What a dead gate left is removed by the next; what a living one has is not.
    let alive = {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let started = rest.split_whitespace().nth(19).unwrap();
        format!("{ours}-{}-{started}-9", std::process::id())
    };
    let dead = format!("{ours}-1-1-1");
    for name in [alive.as_str(), &dead, "callgate-other-1-1-1"] {
        scene
            .engine
            .good(&["create", "--name", name, IMAGE, "/bin/sleep", "1"]);
    }
    scene.host = Some(Containers::new(misbehave().to_owned(), &scene.id));
    let bench = scene.bench("count", scene.needs(&[]));
    bench.value(json!({})).await;
    let mut left = scene.engine.containers();
    left.retain(|name| {
        name == &alive || !name.starts_with(&format!("{ours}-{}-", std::process::id()))
    });
    left.sort();
    assert_eq!(left, [alive.as_str(), "callgate-other-1-1-1"]);
}

/// A call and what ends it; one that ends before has failed.
async fn ended_by<T>(
    call: impl Future<Output = String>,
    end: impl Future<Output = T>,
) -> (String, T) {
    let mut call = std::pin::pin!(call);
    let ended = tokio::select! {
        biased;
        fault = &mut call => panic!("it ended by itself: {fault}"),
        ended = end => ended,
    };
    (call.await, ended)
}

/// A call that is taken back at the worst moment: its client is there and has made a container,
/// and the runner has not heard of it yet. All is done on this thread, which hears nothing while
/// it looks.
async fn no_container_is_left_of_a_start_that_is_taken_back(scene: Scene) {
    let bench = scene.bench("hang", scene.needs(&[]));
    let mut call = Box::pin(bench.fault(json!({})));
    let here = scene.engine.folder().display().to_string();
    let begun = || {
        let clients = crate::support::tagged("--name\0callgate-");
        let of_ours = crate::support::tagged(&here);
        clients.iter().any(|client| of_ours.contains(client))
    };
    for _ in 0..1000 {
        tokio::select! {
            biased;
            fault = &mut call => panic!("it ended by itself: {fault}"),
            () = std::future::ready(()) => {}
        }
        if holds_soon(Duration::from_millis(200), begun) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let made = || !scene.engine.containers().is_empty();
    assert!(holds_soon(crate::support::LONG, made), "a container");
    drop(call);
    let removed = until("it is removed", || scene.engine.containers().is_empty());
    let removed = tokio::time::timeout(crate::support::LONG, removed).await;
    let left = scene.engine.run(&["ps", "--all", "--no-trunc"]);
    assert!(removed.is_ok(), "a container is left: {left:?}");
}

/// Waits without letting anybody else on this thread do anything.
fn holds_soon(max: Duration, holds: impl Fn() -> bool) -> bool {
    let until = std::time::Instant::now() + max;
    while std::time::Instant::now() < until {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The pid of the client that started a container; a fork of it may be on its way to exec.
fn client_of(name: &str) -> u32 {
    let clients = crate::support::tagged(&format!("--name\0{name}\0"));
    clients.into_iter().min().expect("its client runs")
}

/// An image that is not there, and a program that is not in it, are said.
async fn what_cannot_start_says_why(scene: Scene) {
    let mut settings = scene.settings(worker("count"));
    settings.image = "localhost/no-such-image:latest".to_owned();
    let bench = scene.bench_with(settings, scene.needs(&[]));
    let refused = plan(&bench).await.unwrap_err().to_string();
    assert!(
        refused.contains("could not run it") && refused.contains("no-such-image"),
        "{refused}"
    );
    let talking = Talking::Worker {
        command: vec!["no-such-program".into()],
        entry: None,
    };
    let bench = scene.bench_with(scene.settings(talking), scene.needs(&[]));
    let fault = bench.fault(json!({})).await;
    assert!(fault.contains("no-such-program"), "{fault}");
    until("nothing is left", || scene.engine.containers().is_empty()).await;
}

/// TP-2 to TP-6, TP-14 to TP-19, TP-23, TP-24, P-15, and the image by its digest: a foreign
/// image that speaks the protocol's local form, a container for each call.
async fn a_program_for_one_call(scene: Scene) {
    let talking = Talking::OneShot {
        command: vec!["oneshot".into()],
        entry: "tools.x:y".to_owned(),
    };
    let mut settings = scene.settings(talking);
    settings.image = scene.engine.image_by_digest();
    let (_, digest) = settings.image.rsplit_once("sha256:").unwrap();
    let digest = digest.to_owned();
    let needs = scene.needs(&[Guarantee::NoNetwork, Guarantee::NoEnvWrite]);
    let mut bench = scene.bench_with(settings.clone(), needs);
    // The name it was declared by, not the one that stands for it on wires without blanks.
    bench.tool.declared = Some("Fetch a page".to_owned());
    let planned = plan(&bench).await.unwrap().enforcement;
    assert_eq!(planned.level, Level::Enforced);
    assert_eq!(planned.detail.unwrap().isolation, Isolation::Cold);
    let output = bench.value(json!({ "n": 1.5 })).await;
    let request = json!({
        "protocol_version": 1, "tool": "Fetch a page", "entry": "tools.x:y", "payload": { "n": 1.5 },
    });
    assert_eq!(output["request"], request);
    assert!(bench.sink.stderr().contains("words of the tool"));
    assert!(bench.sink.facts()[1].contains(&digest));
    until("it is removed", || scene.engine.containers().is_empty()).await;
    for (payload, wanted) in [
        (json!({ "do": "fail" }), "tool_failed: no"),
        (json!({ "do": "fail", "exit": 1 }), "tool_failed: no"),
        (json!({ "do": "die" }), "crash: exit 3"),
    ] {
        let fault = bench.fault(payload.clone()).await;
        assert!(fault.starts_with(wanted), "{payload}: {fault}");
    }
    let mut bench = bench;
    bench.timeout = Duration::from_secs(3);
    let fault = bench.fault(json!({ "do": "hang" })).await;
    assert_eq!(fault, "timeout: timed out after 3000 ms");
    until("it is removed", || scene.engine.containers().is_empty()).await;
}

/// All of them, with either.
macro_rules! with_both {
    ($($scene:ident,)*) => {
        mod with_podman {
            use super::*;
            $(#[tokio::test]
            async fn $scene() {
                super::$scene(Scene::new(Podman::new(folder()))).await;
            })*
        }
        mod with_docker {
            use super::*;
            $(#[tokio::test]
            async fn $scene() {
                super::$scene(Scene::new(Docker::new(folder()))).await;
            })*
        }
    };
}

with_both! {
    proven_from_inside,
    one_container_for_many_calls,
    forks_are_denied_and_that_is_only_part_of_it,
    folders_and_variables_that_are_declared,
    no_container_is_left,
    no_container_is_left_of_a_start_that_is_taken_back,
    what_cannot_start_says_why,
    a_program_for_one_call,
}
