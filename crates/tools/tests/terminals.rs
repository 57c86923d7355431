//! Terminal sessions below every wire: who is told what, what is bounded, what ends with whom.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callgate_call::{
    Call, CallId, Caller, Cancel, Clock, Document, Fault, Hearer, Job, Needs, NoSink, Patience,
    Plan, Secrets, Subscription, Timestamp, Told, Tool, Topics, Wire,
};
use callgate_sandbox::{Limits, Spawner};
use callgate_tools::programs::{Allowed, Programs};
use callgate_tools::terminals::{
    self, ENDED_MAX, LINES_MAX, SESSIONS_MAX, TerminalBounds, TerminalSettings, Terminals,
};
use serde_json::{Value, json};

/// A clock that moves with every look at it.
#[derive(Default)]
struct Ticking(AtomicU32);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_793_000_000_000 + u64::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

/// The tools over a workspace of its own.
struct Bench {
    workspace: PathBuf,
    topics: Topics,
    tools: Vec<Tool>,
    needs: Arc<Needs>,
}

impl Bench {
    fn new(secrets: &[&str]) -> Self {
        Self::allowing(secrets, &[])
    }

    /// With a list of the programs that may be run.
    fn allowing(secrets: &[&str], allow: &[&str]) -> Self {
        Self::with(secrets, allow, TerminalBounds::default())
    }

    /// Within other bounds.
    fn with(secrets: &[&str], allow: &[&str], bounds: TerminalBounds) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-terminals-{}-{number}", std::process::id());
        let workspace = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&workspace);
        std::fs::create_dir_all(&workspace).unwrap();
        let workspace = workspace.canonicalize().unwrap();
        let needs = Arc::new(Needs {
            writes: vec![workspace.clone()],
            ..Needs::default()
        });
        let settings = TerminalSettings {
            programs: Programs {
                workspace: workspace.clone(),
                allow: allow
                    .iter()
                    .map(|program| Allowed::new(&workspace, program))
                    .collect(),
                env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
                ..Programs::default()
            },
            own: vec![workspace.join("callgate.toml"), workspace.join("state")],
            shell: "/bin/sh".into(),
            secrets: Secrets::new(secrets.iter().map(|&word| word.to_owned()).collect()),
            limits: Limits::default(),
            needs: Arc::clone(&needs),
        };
        let spawner = Spawner::new(callgate_testing::misbehave().to_owned());
        let topics = Topics::default();
        let clock: Arc<dyn Clock> = Arc::new(Ticking::default());
        let terminals = Terminals::bounded(spawner, topics.clone(), clock, bounds);
        Self {
            workspace,
            topics,
            tools: terminals::tools(&terminals, settings).unwrap(),
            needs,
        }
    }

    async fn ask(
        &self,
        method: &str,
        input: Value,
        hearer: Option<&Hearer>,
    ) -> Result<Value, Fault> {
        let name = format!("terminals/{method}");
        let tool = self.tools.iter().find(|tool| tool.name == name).unwrap();
        let (input, caller) = (Document::from_value(input), Caller::uid(0));
        let mut call = Call::new(CallId(1), name, input, caller, Wire::Rpc, Cancel::new());
        call.hearer = hearer.cloned();
        let plan = Plan {
            confinement: tool.needs.as_ref().map(|_| Arc::clone(&self.needs)),
            ..Plan::default()
        };
        let job = Job {
            call: &call,
            tool,
            plan: &plan,
            timeout: &Patience::fixed(Duration::from_secs(60)),
            sink: &NoSink,
        };
        let output = tool.runner.run(job).await?;
        Ok(output.json.into_value())
    }

    async fn good(&self, method: &str, input: Value) -> Value {
        self.ask(method, input, None).await.unwrap()
    }

    /// A shell script as a session.
    async fn sh(&self, script: &str, hearer: Option<&Hearer>) -> String {
        let input = json!({ "command": script, "shell": true });
        let created = self.ask("create", input, hearer).await.unwrap();
        created["session_id"].as_str().unwrap().to_owned()
    }

    async fn log(&self, session: &str) -> String {
        self.pages(session).await.0
    }

    /// All of a log, and in how many answers it came.
    async fn pages(&self, session: &str) -> (String, usize) {
        let (mut text, mut pages, mut since) = (String::new(), 0, Value::Null);
        loop {
            let ask = json!({ "session_id": session, "since_ts": since });
            let mut logs = self.good("read_logs", ask).await;
            let lines = logs["logs"].as_array_mut().unwrap();
            pages += 1;
            // The last line is not the program's where there are more.
            let more = (lines.len() > LINES_MAX).then(|| lines.pop().unwrap());
            text.extend(lines.iter().map(|line| line["data"].as_str().unwrap()));
            let Some(more) = more else {
                return (text, pages);
            };
            assert!(
                more["data"].as_str().unwrap().contains(" lines more: "),
                "{more}"
            );
            assert_eq!(more["ts"], lines[LINES_MAX - 1]["ts"]);
            since = more["ts"].clone();
        }
    }

    async fn status(&self, session: &str) -> String {
        let listed = self.good("list", json!({})).await;
        let mut all = listed["sessions"].as_array().unwrap().iter();
        let found = all.find(|one| one["session_id"] == session).unwrap();
        found["status"].as_str().unwrap().to_owned()
    }

    async fn until_log(&self, session: &str, words: &str) {
        for _ in 0..12_000 {
            if self.log(session).await.contains(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!(
            "waited in vain for {words:?}: {:?}",
            self.log(session).await
        );
    }

    async fn until_over(&self, session: &str) -> String {
        for _ in 0..12_000 {
            let status = self.status(session).await;
            if status != "running" {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it runs on: {:?}", self.log(session).await);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.workspace);
    }
}

/// What a hearer is told until a session ends.
#[derive(Default)]
struct Heard {
    data: String,
    timestamps: Vec<String>,
    exit: Value,
    gaps: u64,
}

impl Heard {
    /// The next thing; true if it is the end.
    async fn take(&mut self, subscription: &mut Subscription) -> bool {
        let told = tokio::time::timeout(Duration::from_secs(60), subscription.next()).await;
        match told.expect("there is more to be told") {
            Told::Gap(_) => self.gaps += 1,
            Told::Event(event) => {
                let body: Value = serde_json::from_str(&event.body).unwrap();
                if event.name == "terminals/exit" {
                    self.exit = body;
                    return true;
                }
                assert_eq!(event.name, "terminals/stream");
                self.data.push_str(body["data"].as_str().unwrap());
                let at = body["timestamp"].as_str().unwrap();
                self.timestamps.push(at.to_owned());
                assert_eq!(body.as_object().unwrap().len(), 4, "{body}");
                assert!(body["session_id"].is_string() && body["stream"] == "stdout");
            }
        }
        false
    }
}

async fn heard(subscription: &mut Subscription) -> Heard {
    let mut all = Heard::default();
    while !all.take(subscription).await {}
    all
}

/// JR-122, JR-131, JR-143, JR-144, R-11: who creates follows unless they say otherwise, who
/// attaches gets the screen and then what comes, and all hear of the end after the last output.
#[tokio::test]
async fn followers_are_told() {
    let bench = Bench::new(&[]);
    let [maker, viewer, stranger] = [(); 3].map(|()| bench.topics.connection());
    let mut made = bench.topics.listen(maker.clone());
    let mut views = bench.topics.listen(viewer.clone());
    let mut strange = bench.topics.listen(stranger.clone());
    let script = "printf 'one\\ntwo'; read line; printf 'got %s' $line; exit 5";
    let session = bench.sh(script, Some(&maker)).await;
    bench.until_log(&session, "two").await;
    let on = json!({ "session_id": session });
    let attached = bench.ask("attach", on.clone(), Some(&viewer)).await;
    assert_eq!(attached.unwrap(), json!({ "ok": true }));
    // Where nobody can be told, read_logs is the way.
    assert_eq!(
        bench.good("attach", on.clone()).await,
        json!({ "ok": true })
    );
    let write = json!({ "session_id": session, "data": "é!\n" });
    assert_eq!(bench.good("write", write).await, json!({ "bytes": 4 }));

    let made = heard(&mut made).await;
    assert_eq!(made.data, "one\r\ntwoé!\r\ngot é!");
    assert_eq!(
        (&made.exit["code"], &made.exit["signal"]),
        (&json!(5), &Value::Null)
    );
    assert!(made.exit["duration_ms"].is_u64() && made.exit["session_id"] == *session);
    assert_eq!(made.exit.as_object().unwrap().len(), 4);

    let viewed = heard(&mut views).await;
    let mut screen = vt100::Parser::new(24, 80, 0);
    screen.process(viewed.data.as_bytes());
    assert_eq!(screen.screen().contents(), "one\ntwoé!\ngot é!");
    assert_eq!(viewed.exit, made.exit);

    // The time of what one was told last is where the log goes on.
    let since = made.timestamps.last().unwrap();
    let rest = json!({ "session_id": session, "since_ts": since });
    assert_eq!(bench.good("read_logs", rest).await, json!({ "logs": [] }));

    assert!(strange.now().is_none());
    let ended = bench.ask("attach", on.clone(), Some(&stranger)).await;
    assert_eq!(ended.unwrap(), json!({ "ok": false }));
    let late = heard(&mut strange).await;
    assert_eq!((late.data.as_str(), late.exit), ("", made.exit));
    assert!(strange.now().is_none());
    // Who was told is not told again.
    let again = bench.ask("attach", on, Some(&viewer)).await;
    assert_eq!(again.unwrap(), json!({ "ok": false }));
    assert!(views.now().is_none());
    let quiet = json!({ "command": "true", "attach": false });
    let quiet = bench.ask("create", quiet, Some(&stranger)).await.unwrap();
    bench
        .until_over(quiet["session_id"].as_str().unwrap())
        .await;
    assert!(strange.now().is_none());
}

/// JR-144, R-11: nothing is missing when the end is told, however close it is to the last output.
#[tokio::test]
async fn the_end_comes_last() {
    let bench = Bench::new(&[]);
    let script = "head -c 100000 /dev/zero | tr '\\0' x; printf end";
    let wanted = "x".repeat(100_000) + "end";
    for _ in 0..20 {
        let viewer = bench.topics.connection();
        let mut viewed = bench.topics.listen(viewer.clone());
        let session = bench.sh(script, Some(&viewer)).await;
        let viewed = heard(&mut viewed).await;
        assert_eq!((viewed.data.len(), viewed.gaps), (wanted.len(), 0));
        assert!(viewed.data == wanted && bench.log(&session).await == wanted);
        assert_eq!(bench.status(&session).await, "exited");
    }
}

/// one who follows and never reads keeps nobody from printing, reading or ending, and
/// is told once of what it missed. Who reads along misses nothing, for as long as the program is not
/// ahead of them by more than is kept: here it waits for them.
#[tokio::test]
async fn who_never_reads_harms_nobody() {
    const BLOCKS: usize = 24;
    const LINES: usize = 90_000;
    let bench = Bench::new(&[]);
    let [idle, busy] = [(); 2].map(|()| bench.topics.connection());
    let mut never = bench.topics.listen(idle.clone());
    let script = format!(
        "stty -echo; echo ready; for i in $(seq {BLOCKS}); do \
         read x; yes 0123456789 | head -n {LINES}; done"
    );
    let session = bench.sh(&script, Some(&idle)).await;
    bench.until_log(&session, "ready").await;
    let mut reads = bench.topics.listen(busy.clone());
    let on = json!({ "session_id": session });
    bench.ask("attach", on, Some(&busy)).await.unwrap();
    let block = "0123456789\r\n".repeat(LINES);
    let mut read = Heard::default();
    // What it shows.
    read.take(&mut reads).await;
    for _ in 0..BLOCKS {
        read.data.clear();
        let enter = json!({ "session_id": session, "data": "\n" });
        bench.good("write", enter).await;
        while read.data.len() < block.len() {
            read.take(&mut reads).await;
        }
        assert!(read.data == block, "{}", read.data.len());
    }
    let end = heard(&mut reads).await;
    assert_eq!((read.gaps + end.gaps, end.data.as_str()), (0, ""));
    assert_eq!(end.exit["code"], 0);
    assert_eq!(bench.until_over(&session).await, "exited");
    let idle = heard(&mut never).await;
    assert_eq!((idle.gaps, &idle.exit), (1, &end.exit));
    assert!(idle.data.len() < BLOCKS * block.len());
    // The log holds its last 4 MiB.
    let log = bench.log(&session).await;
    assert!(log.len() > 3 << 20 && log.len() <= 4 << 20, "{}", log.len());
    assert!(log.ends_with("0123456789\r\n"));
}

/// an answer is bounded, however short the lines are, and who reads on misses nothing.
#[tokio::test]
async fn answers_are_bounded() {
    let bench = Bench::new(&[]);
    let session = bench.sh("yes '' | head -c 400000", None).await;
    assert_eq!(bench.until_over(&session).await, "exited");
    let (text, pages) = bench.pages(&session).await;
    assert!(text == "\r\n".repeat(400_000), "{}", text.len());
    assert_eq!(pages, 400_000_usize.div_ceil(LINES_MAX));
    // The last lines are the last lines.
    let ask = json!({ "session_id": session, "limit_lines": 10.0 });
    let logs = bench.good("read_logs", ask).await;
    let texts = logs["logs"].as_array().unwrap().iter();
    let text: String = texts.map(|line| line["data"].as_str().unwrap()).collect();
    assert_eq!(text, "\r\n".repeat(10));
}

/// secrets are replaced, also where a program prints them in pieces.
#[tokio::test]
async fn secrets_are_replaced() {
    let bounds = TerminalBounds {
        held_max: Duration::from_secs(3600),
        ..TerminalBounds::default()
    };
    let bench = Bench::with(&["hunter22"], &[], bounds);
    let viewer = bench.topics.connection();
    let mut viewed = bench.topics.listen(viewer.clone());
    let script = "stty -echo; printf 'is hun'; read x; printf 'ter22.\\n'; read x";
    let session = bench.sh(script, Some(&viewer)).await;
    let enter = || bench.good("write", json!({ "session_id": session, "data": "\n" }));
    bench.until_log(&session, "is ").await;
    assert_eq!(bench.log(&session).await, "is ");
    enter().await;
    bench.until_log(&session, ".\r\n").await;
    enter().await;
    let viewed = heard(&mut viewed).await;
    assert_eq!(viewed.data, "is [secret].\r\n");
    assert_eq!(bench.log(&session).await, "is [secret].\r\n");
}

/// what only begins like a secret is told after a moment.
#[tokio::test]
async fn beginnings_are_told() {
    let bench = Bench::new(&["hunter22"]);
    let session = bench.sh("printf 'is hunt'; read x", None).await;
    bench.until_log(&session, "is hunt").await;
}

/// JR-128, R-11: who does not read is not waited for beyond patience, and what was not taken is
/// not said to be.
#[tokio::test]
async fn what_is_not_read_is_not_written() {
    let bench = Bench::new(&[]);
    let session = bench
        .sh("stty raw -echo; echo ready; sleep 600", None)
        .await;
    bench.until_log(&session, "ready").await;
    let data = "x".repeat(1 << 20);
    let write = json!({ "session_id": session, "data": data });
    let written = bench.good("write", write).await;
    let bytes = written["bytes"].as_u64().unwrap();
    assert!(bytes > 0 && bytes < 1 << 20, "{bytes}");
    // It can be ended all the same.
    let kill = json!({ "session_id": session, "signal": "SIGKILL" });
    assert_eq!(bench.good("kill", kill).await, json!({ "ok": true }));
    assert_eq!(bench.until_over(&session).await, "killed");
    let late = json!({ "session_id": session, "data": "x" });
    let late = bench.ask("write", late, None).await.unwrap_err();
    assert!(matches!(late, Fault::Unavailable { .. }), "{late:?}");
}

/// `TERM=dumb` is two pipes, told apart.
#[tokio::test]
async fn pipes_where_there_is_no_terminal() {
    let bench = Bench::new(&[]);
    let script = "test -t 1 || echo out; echo err >&2; read x; echo \"$x\"";
    let input = json!({ "command": script, "shell": true, "env": { "TERM": "dumb" } });
    let created = bench.good("create", input).await;
    let session = created["session_id"].as_str().unwrap();
    let resize = json!({ "session_id": session, "cols": 10, "rows": 10 });
    assert_eq!(bench.good("resize", resize).await, json!({ "ok": false }));
    bench.until_log(session, "err").await;
    bench
        .good("write", json!({ "session_id": session, "data": "typed\n" }))
        .await;
    assert_eq!(bench.until_over(session).await, "exited");
    let logs = bench
        .good("read_logs", json!({ "session_id": session }))
        .await;
    let of = |stream: &str| -> String {
        let lines = logs["logs"].as_array().unwrap().iter();
        let lines = lines.filter(|line| line["stream"] == stream);
        lines.map(|line| line["data"].as_str().unwrap()).collect()
    };
    assert_eq!(
        (of("stdout"), of("stderr")),
        ("out\ntyped\n".into(), "err\n".into())
    );
}

/// As many as there may be at once, each by itself; one more is refused until one ends.
#[tokio::test]
async fn as_many_as_there_may_be() {
    let bench = Bench::new(&[]);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS_MAX {
        let cat = bench.good("create", json!({ "command": "cat" })).await;
        sessions.push(cat["session_id"].as_str().unwrap().to_owned());
    }
    let more = bench.ask("create", json!({ "command": "cat" }), None).await;
    assert!(matches!(more, Err(Fault::Unavailable { .. })), "{more:?}");
    for (number, session) in sessions.iter().enumerate() {
        let data = format!("I am {number}.\n");
        bench
            .good("write", json!({ "session_id": session, "data": data }))
            .await;
    }
    for (number, session) in sessions.iter().enumerate() {
        let echoed = format!("I am {number}.\r\n").repeat(2);
        bench.until_log(session, &echoed).await;
        assert_eq!(bench.log(session).await, echoed);
    }
    for session in &sessions {
        bench.good("kill", json!({ "session_id": session })).await;
    }
    // All but the newest that ended are forgotten.
    let mut left = 0;
    for _ in 0..12_000 {
        let listed = bench.good("list", json!({})).await;
        let all = listed["sessions"].as_array().unwrap();
        left = all.len();
        if left == ENDED_MAX && all.iter().all(|one| one["status"] == "exited") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(left, ENDED_MAX);
    bench.good("create", json!({ "command": "cat" })).await;
}

/// Which are forgotten is told by their end, not by their beginning: one that ends is known for a
/// while, however old it is.
#[tokio::test]
async fn the_first_to_end_is_the_first_forgotten() {
    let bench = Bench::new(&[]);
    let old = bench.sh("read x", None).await;
    let mut first = None;
    for _ in 0..ENDED_MAX {
        let short = bench.sh("exit 0", None).await;
        assert_eq!(bench.until_over(&short).await, "exited");
        first.get_or_insert(short);
    }
    let typed = json!({ "session_id": old, "data": "\n" });
    bench.good("write", typed).await;
    assert_eq!(bench.until_over(&old).await, "exited");
    let listed = bench.good("list", json!({})).await;
    let known = listed["sessions"].as_array().unwrap();
    let is_known = |id: &str| known.iter().any(|one| one["session_id"] == id);
    assert_eq!(known.len(), ENDED_MAX);
    assert!(is_known(&old) && !is_known(&first.unwrap()));
}

/// Sessions end with their process, and who follows them hears of it.
#[tokio::test]
async fn sessions_end_with_their_engine() {
    let bench = Bench::new(&[]);
    let viewer = bench.topics.connection();
    let mut viewed = bench.topics.listen(viewer.clone());
    let input = json!({ "command": "sleep", "args": ["600"] });
    let created = bench.ask("create", input, Some(&viewer)).await.unwrap();
    let process = PathBuf::from(format!("/proc/{}", created["pid"]));
    assert!(process.exists());
    drop(bench);
    let exit = heard(&mut viewed).await.exit;
    assert_eq!(
        (&exit["code"], &exit["signal"]),
        (&Value::Null, &Value::Null)
    );
    for _ in 0..12_000 {
        if !process.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it is still there");
}

/// JR-145, G-9: what makes no sense is told with the field, before anything runs.
/// JR-145: the owner's list of programs holds for sessions as it does for `exec/run`.
#[tokio::test]
async fn only_listed_programs() {
    let bench = Bench::allowing(&[], &["true"]);
    for input in [
        json!({ "command": "false" }),
        json!({ "command": "/bin/true" }),
        json!({ "command": "true", "shell": true }),
        json!({}),
    ] {
        let refused = bench.ask("create", input.clone(), None).await.unwrap_err();
        assert!(
            matches!(refused, Fault::Denied { .. }),
            "{input}: {refused:?}"
        );
    }
    let input = json!({ "command": "true" });
    bench
        .ask("create", input, None)
        .await
        .expect("it is listed");
    let bench = Bench::allowing(&[], &["./own"]);
    for place in [".", "x"].map(|folder| bench.workspace.join(folder)) {
        std::fs::create_dir_all(&place).unwrap();
        std::fs::copy("/bin/true", place.join("own")).unwrap();
    }
    let there = |cwd: &str| json!({ "command": "./own", "cwd": cwd });
    let elsewhere = bench.ask("create", there("x"), None).await.unwrap_err();
    assert!(matches!(elsewhere, Fault::Denied { .. }), "{elsewhere:?}");
    bench
        .ask("create", there("."), None)
        .await
        .expect("it is listed");
    let bench = Bench::allowing(&[], &["/bin/sh"]);
    bench
        .ask("create", json!({}), None)
        .await
        .expect("the shell is listed");
}

#[tokio::test]
async fn nonsense_is_refused() {
    let bench = Bench::new(&[]);
    std::fs::create_dir(bench.workspace.join("state")).unwrap();
    std::fs::write(bench.workspace.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/tmp", bench.workspace.join("out")).unwrap();
    for (field, input) in [
        ("cwd", json!({ "cwd": "/tmp" })),
        ("cwd", json!({ "cwd": "../" })),
        ("cwd", json!({ "cwd": "none/../.." })),
        ("cwd", json!({ "cwd": "out" })),
        ("cwd", json!({ "cwd": "file" })),
        ("cwd", json!({ "cwd": "none" })),
        ("cwd", json!({ "cwd": "state" })),
        ("cwd", json!({ "cwd": "a\u{0}b" })),
        ("env.LD_PRELOAD", json!({ "env": { "LD_PRELOAD": "x.so" } })),
        (
            "env.GLIBC_TUNABLES",
            json!({ "env": { "GLIBC_TUNABLES": "x" } }),
        ),
        ("env.A=B", json!({ "env": { "A=B": "x" } })),
        ("env.A", json!({ "env": { "A": "\u{0}" } })),
        ("env.", json!({ "env": { "": "x" } })),
        ("cols", json!({ "cols": 0 })),
        ("cols", json!({ "cols": 1001 })),
        ("rows", json!({ "rows": -1 })),
        ("cols", json!({ "cols": 1000, "rows": 1000 })),
        ("command", json!({ "command": "" })),
        ("command", json!({ "command": "no-such-program" })),
        ("args", json!({ "command": "true", "args": ["\u{0}"] })),
        ("name", json!({ "name": "n".repeat(257) })),
    ] {
        let refused = bench.ask("create", input.clone(), None).await.unwrap_err();
        assert!(
            matches!(refused, Fault::BadValue { .. }),
            "{input}: {refused:?}"
        );
        assert_eq!(refused.data()["field"], field, "{input}");
    }
    let denied = bench
        .ask("create", json!({ "command": "./file" }), None)
        .await;
    assert!(matches!(denied, Err(Fault::Denied { .. })), "{denied:?}");
    for (method, input) in [
        ("attach", json!({ "session_id": "none" })),
        ("kill", json!({ "session_id": "none" })),
        ("read_logs", json!({ "session_id": "none" })),
        ("write", json!({ "session_id": "none", "data": "" })),
        (
            "resize",
            json!({ "session_id": "none", "cols": 1, "rows": 1 }),
        ),
    ] {
        let unknown = bench.ask(method, input, None).await;
        assert!(matches!(unknown, Err(Fault::NotFound { .. })), "{method}");
    }
    assert_eq!(
        bench.good("list", json!({})).await,
        json!({ "sessions": [] })
    );
}

/// all logs together have a bound: whoever ended first gives way first, whoever runs keeps
/// what it has.
#[tokio::test]
async fn logs_share_a_bound() {
    const LOGS_MAX: usize = 256 * 1024;
    const PRINTED: usize = 40_000;
    let bounds = TerminalBounds {
        logs_bytes_max: LOGS_MAX,
        ..TerminalBounds::default()
    };
    let bench = Bench::with(&[], &[], bounds);
    let print = format!("head -c {PRINTED} /dev/zero | tr '\\0' x; [ $1 = ends ] || read x");
    let mut sessions = Vec::new();
    for how in [
        "ends", "ends", "ends", "ends", "stays", "stays", "stays", "stays",
    ] {
        let input = json!({
            "command": "sh", "args": ["-c", print, "_", how], "env": { "TERM": "dumb" },
        });
        let made = bench.good("create", input).await;
        let session = made["session_id"].as_str().unwrap().to_owned();
        if how == "ends" {
            assert_eq!(bench.until_over(&session).await, "exited");
        } else {
            bench.until_log(&session, &"x".repeat(PRINTED)).await;
        }
        sessions.push(session);
    }
    let mut found = Vec::new();
    for session in &sessions {
        found.push(bench.log(session).await.len());
    }
    assert!(found.iter().sum::<usize>() <= LOGS_MAX, "{found:?}");
    assert_eq!(found[4..], [PRINTED; 4], "{found:?}");
    assert_eq!(found[0], 0, "{found:?}");
    assert_eq!(found[3], PRINTED, "{found:?}");
    assert!(found[..4].is_sorted(), "{found:?}");
}
