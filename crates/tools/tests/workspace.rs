//! Tools over a workspace, below every wire: what takes too long, what is cancelled, what is large.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use callgate_call::{
    Call, CallId, Caller, Cancel, Clock, Document, Fault, Job, Needs, NoSink, Partition, Patience,
    Plan, RunEvent, RunPolicy, RunStart, Runs as _, Secrets, Timestamp, Tool, Wire,
};
use callgate_sandbox::{Child, Limits, Spawner};
use callgate_store::{Options, RunKeeper, Store};
use callgate_tools::exec::{self, ExecParts, ExecSettings, Hosts, HostsFuture, OpenHosts};
use callgate_tools::files::{self, Files, FilesLimits, Lists};
use callgate_tools::programs::Programs;
use callgate_tools::runs;
use serde_json::{Value, json};

/// A clock that moves a millisecond with every look at it, and may cancel a call at one.
#[derive(Default)]
struct Looked {
    looks: AtomicU64,
    cancels_at: u64,
    cancel: Cancel,
}

impl Clock for Looked {
    fn now(&self) -> Timestamp {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        if looks == self.cancels_at {
            self.cancel.cancel();
        }
        Timestamp(1_793_000_000_000 + looks)
    }
}

/// A workspace and a state, gone with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-workspace-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("workspace")).unwrap();
        Self(root.canonicalize().unwrap())
    }

    fn workspace(&self) -> PathBuf {
        self.0.join("workspace")
    }

    fn store(&self, clock: &Arc<dyn Clock>) -> Arc<Store> {
        let store = Store::open(&self.0.join("state"), Options::default(), Arc::clone(clock));
        Arc::new(store.unwrap())
    }

    fn write(&self, name: &str) {
        let path = self.workspace().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "text\n").unwrap();
    }

    fn files(&self, clock: &Arc<dyn Clock>, lists: Lists) -> Vec<Tool> {
        let files = Files::open(
            &self.workspace(),
            (Vec::new(), lists),
            &self.0.join("files.lock"),
            (Arc::clone(clock), self.store(clock)),
            FilesLimits::default(),
        );
        files::tools(&Arc::new(files.unwrap()))
    }

    fn search(&self, clock: &Arc<dyn Clock>) -> Tool {
        self.tool("files/search", clock)
    }

    fn tool(&self, name: &str, clock: &Arc<dyn Clock>) -> Tool {
        let mut tools = self.files(clock, Lists::default()).into_iter();
        tools.find(|tool| tool.name == name).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn ask(tool: &Tool, input: Value, cancel: Cancel, time: Duration) -> Result<Value, Fault> {
    let (input, caller) = (Document::from_value(input), Caller::uid(0));
    let call = Call::new(CallId(1), &tool.name, input, caller, Wire::Rpc, cancel);
    let job = Job {
        call: &call,
        tool,
        plan: &Plan::default(),
        timeout: &Patience::fixed(time),
        sink: &NoSink,
    };
    let output = tool.runner.run(job).await?;
    Ok(output.json.into_value())
}

/// names that fit nothing take time as well: a page ends, and the next goes on behind it
/// until all have been looked at.
#[tokio::test]
async fn a_search_that_finds_nothing_has_an_end() {
    let place = Place::new();
    for folder in ["", "a/", "a/b/", "c/", "c/d/e/"] {
        for number in 0..20 {
            place.write(&format!("{folder}file-{number}.txt"));
        }
    }
    std::fs::create_dir_all(place.workspace().join("b/empty/still")).unwrap();
    for name in ["a/b/needle", "c/d/needle", "needle", "z/needle"] {
        place.write(name);
    }
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let search = place.search(&clock);
    for time_ms in [2, 10, 40] {
        let (mut found, mut pages, mut cursor) = (Vec::new(), 0, Value::Null);
        loop {
            let input = json!({ "glob": ["needle"], "cursor": cursor });
            let time = Duration::from_millis(time_ms);
            let mut page = ask(&search, input, Cancel::new(), time).await.unwrap();
            let matches = page["matches"].as_array().unwrap().iter();
            found.extend(matches.map(|one| one["path"].as_str().unwrap().to_owned()));
            assert_ne!(page["next_cursor"], cursor, "it comes further");
            pages += 1;
            cursor = page["next_cursor"].take();
            if cursor.is_null() {
                break;
            }
            assert!(pages < 1000, "it comes to its end");
        }
        assert!(pages > 3, "{pages} pages in {time_ms} ms each");
        assert_eq!(found, ["a/b/needle", "c/d/needle", "needle", "z/needle"]);
    }
}

/// who goes away is not searched for, whatever there is to look at.
#[tokio::test]
async fn a_search_that_finds_nothing_is_cancelled() {
    let place = Place::new();
    for number in 0..1000 {
        place.write(&format!("{}/file-{number}.txt", number % 10));
    }
    let clock = Arc::new(Looked {
        cancels_at: 100,
        ..Looked::default()
    });
    let (cancel, dynamic) = (clock.cancel.clone(), Arc::clone(&clock) as Arc<dyn Clock>);
    let search = place.search(&dynamic);
    let input = json!({ "glob": ["needle"] });
    let ended = ask(&search, input, cancel, Duration::from_secs(20)).await;
    assert!(matches!(ended, Err(Fault::Cancelled)), "{ended:?}");
    let looks = clock.looks.load(Ordering::Relaxed);
    assert!(looks < 200, "{looks} looks");
}

/// JR-24, R-5: 16 MiB are written at once, whichever way they come, and not a byte more. No line of
/// JSON-RPC has room for so much.
#[tokio::test]
async fn the_most_that_is_written() {
    const BYTES_MAX: usize = 16 * 1024 * 1024;
    let place = Place::new();
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let write = place.tool("files/write", &clock);
    for bytes in [BYTES_MAX - 1, BYTES_MAX, BYTES_MAX + 1] {
        // Zeros are all `A` in base64, but for the signs that end it.
        let mut coded = "A".repeat(bytes.div_ceil(3) * 4);
        let padding = bytes.div_ceil(3) * 3 - bytes;
        coded.replace_range(coded.len() - padding.., &"=".repeat(padding));
        for (name, content) in [("content", "\0".repeat(bytes)), ("content_base64", coded)] {
            place.write("f");
            let input = json!({ "path": "f", name: content, "overwrite": true });
            let hour = Duration::from_secs(3600);
            let done = ask(&write, input, Cancel::new(), hour).await;
            let there = std::fs::read(place.workspace().join("f")).unwrap();
            match done {
                Ok(done) => {
                    assert!(bytes <= BYTES_MAX, "{bytes} in {name}");
                    assert_eq!(done["size"], bytes);
                    assert!(done["etag"].as_str().unwrap().starts_with("st-"));
                    assert!(there == vec![0; bytes], "{bytes} in {name}");
                }
                Err(fault) => {
                    let wanted = Fault::too_large("content", BYTES_MAX as u64);
                    assert_eq!(fault, wanted.with("bytes", bytes), "{name}");
                    assert!(bytes > BYTES_MAX && there == b"text\n", "{bytes} in {name}");
                }
            }
        }
    }
}

/// a folder with too many names is counted, and does not stand in the way of others.
#[tokio::test]
async fn a_folder_with_too_many_names() {
    let place = Place::new();
    place.write("a/needle");
    place.write("z/needle");
    let folder = place.workspace().join("many");
    std::fs::create_dir(&folder).unwrap();
    // Names of one file, which are made sooner than files.
    for number in 0..=100_000 {
        let from = folder.join((number / 50_000 * 50_000).to_string());
        match number % 50_000 {
            0 => std::fs::write(from, "").unwrap(),
            _ => std::fs::hard_link(from, folder.join(number.to_string())).unwrap(),
        }
    }
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let search = place.search(&clock);
    let hour = Duration::from_secs(3600);
    let input = json!({ "query": "text" });
    let all = ask(&search, input, Cancel::new(), hour).await.unwrap();
    let paths = all["matches"].as_array().unwrap().iter();
    let paths: Vec<_> = paths.map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(
        (paths, &all["skipped"]),
        (vec!["a/needle", "z/needle"], &json!(1))
    );
    // Asked for itself, it is refused.
    let input = json!({ "query": "text", "path": "many" });
    let refused = ask(&search, input, Cancel::new(), hour).await;
    assert!(
        matches!(refused, Err(Fault::BadValue { .. })),
        "{refused:?}"
    );
}

/// Calls one of `tools`, which has a minute.
async fn ask_one(tools: &[Tool], name: &str, input: Value) -> Result<Value, Fault> {
    let tool = tools.iter().find(|tool| tool.name == name).unwrap();
    ask(tool, input, Cancel::new(), Duration::from_secs(60)).await
}

/// JR-165, R-8: what is in a folder is held to the lists where it goes, too; and one that can not be
/// looked into, here since its path is too long, is not taken to hold nothing.
#[tokio::test]
async fn moved_to_where_it_may_not_be() {
    let place = Place::new();
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let deny = [".github/workflows/**", "**/.env"].map(str::to_owned);
    let tools = place.files(&clock, Lists::new(&[], &deny).unwrap());
    place.write("d/in/workflows/x.yml");
    let to = |from: &str, to: &str| json!({ "from": from, "to": to });
    let input = to("d/in", ".github");
    let refused = ask_one(&tools, "files/move", input).await.unwrap_err();
    assert!(matches!(refused, Fault::Denied { .. }), "{refused:?}");
    assert_eq!(refused.data()["field"], "to");
    ask_one(&tools, "files/move", to("d/in", "e"))
        .await
        .unwrap();
    assert!(place.workspace().join("e/workflows/x.yml").exists());
    // Two halves of a path that nobody can say at once.
    let name = "n".repeat(250);
    let half: PathBuf = std::iter::repeat_n(name.as_str(), 10).collect();
    for folder in ["d/upper", "d/lower"] {
        std::fs::create_dir_all(place.workspace().join(folder).join(&half)).unwrap();
    }
    place.write(
        Path::new("d/lower")
            .join(&half)
            .join(".env")
            .to_str()
            .unwrap(),
    );
    let below = place.workspace().join("d/upper").join(&half).join("lower");
    std::fs::rename(place.workspace().join("d/lower"), below).unwrap();
    for (name, input) in [
        ("files/move", to("d/upper", "d/other")),
        (
            "files/delete",
            json!({ "path": "d/upper", "recursive": true }),
        ),
    ] {
        let refused = ask_one(&tools, name, input).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    assert!(place.workspace().join("d/upper").join(&half).exists());
}

/// whoever changes names waits for another process to be done with that, though not for ever:
/// until the call's time is over, or nobody wants it any more. Then nothing has changed.
#[tokio::test]
async fn who_waits_for_a_lock_has_an_end() {
    let place = Place::new();
    for name in ["edited", "moved", "deleted"] {
        place.write(name);
    }
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let tools = place.files(&clock, Lists::default());
    let other = std::fs::File::open(place.0.join("files.lock")).unwrap();
    other.lock().unwrap();
    let edits = json!([{ "old": "text", "new": "other" }]);
    let calls = [
        ("files/write", json!({ "path": "written", "content": "x" })),
        ("files/edit", json!({ "path": "edited", "edits": edits })),
        ("files/move", json!({ "from": "moved", "to": "to" })),
        ("files/delete", json!({ "path": "deleted" })),
    ];
    let all = async |cancel: Cancel, time: Duration| {
        let [a, b, c, d] = calls.each_ref().map(|(name, input)| {
            let tool = tools.iter().find(|tool| tool.name == *name).unwrap();
            ask(tool, input.clone(), cancel.clone(), time)
        });
        // At once, so that those wait that are not the first of this process as well.
        <[_; 4]>::from(tokio::join!(a, b, c, d))
    };
    // What is wrong by its letters is told without the lock.
    for (name, input, field) in [
        ("files/delete", json!({ "path": "../out" }), "path"),
        (
            "files/move",
            json!({ "from": "../out", "to": "to" }),
            "from",
        ),
        ("files/move", json!({ "from": "moved", "to": "/out" }), "to"),
    ] {
        let refused = ask_one(&tools, name, input).await;
        let expected = Fault::bad_value("Path outside workspace")
            .with("reason", "Path outside workspace")
            .with("field", field);
        assert_eq!(refused, Err(expected), "{name}");
    }
    let after = Duration::from_millis(30);
    let late = all(Cancel::new(), after).await;
    assert_eq!(late, [(); 4].map(|()| Err(Fault::Timeout { after })));
    let (cancel, hour) = (Cancel::new(), Duration::from_secs(3600));
    let later = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (cancelled, ()) = tokio::join!(all(cancel.clone(), hour), later);
    assert_eq!(cancelled, [(); 4].map(|()| Err(Fault::Cancelled)));
    let is_there = |name: &str| place.workspace().join(name).exists();
    assert!(!is_there("written") && !is_there("to") && is_there("deleted"));
    let later = async {
        tokio::task::yield_now().await;
        other.unlock().unwrap();
    };
    let (done, ()) = tokio::join!(all(Cancel::new(), hour), later);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert!(is_there("written") && is_there("to") && !is_there("deleted"));
}

/// P-16: what root makes in somebody's folder is theirs, as far down as it is made; what is replaced
/// stays whose it was, and what is made among root's things is root's.
#[tokio::test]
async fn new_files_belong_to_whose_folder_it_is() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let (place, is_root) = (Place::new(), rustix::process::geteuid().is_root());
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let tools = place.files(&clock, Lists::default());
    for name in ["theirs/here", "ours/here"] {
        place.write(name);
    }
    let path = |name: &str| place.workspace().join(name);
    let own = std::fs::metadata(path("ours")).unwrap();
    let (ours, theirs, others) = match is_root {
        true => ((0, 0), (1234, 1235), (1236, 1237)),
        // Who can give nothing away makes all for themselves.
        false => (
            (own.uid(), own.gid()),
            (own.uid(), own.gid()),
            (own.uid(), own.gid()),
        ),
    };
    if is_root {
        chown(path("theirs"), Some(theirs.0), Some(theirs.1)).unwrap();
        chown(path("theirs/here"), Some(others.0), Some(others.1)).unwrap();
        // As one leaves it that is killed before a new folder has its name.
        std::fs::create_dir(path("theirs/.callgate-0123456789abcdef.tmp")).unwrap();
    }
    for name in [
        "theirs/a",
        "theirs/b/c/d",
        "theirs/b/e",
        "theirs/here",
        "ours/b/c",
    ] {
        let input = json!({ "path": name, "content": "x", "overwrite": true });
        ask_one(&tools, "files/write", input).await.unwrap();
    }
    let input = json!({ "from": "ours/here", "to": "theirs/f/g" });
    ask_one(&tools, "files/move", input).await.unwrap();
    for (name, owner) in [
        ("theirs/a", theirs),
        ("theirs/b", theirs),
        ("theirs/b/c", theirs),
        ("theirs/b/c/d", theirs),
        ("theirs/b/e", theirs),
        ("theirs/here", others),
        ("theirs/f", theirs),
        ("theirs/f/g", ours),
        ("ours/b", ours),
        ("ours/b/c", ours),
    ] {
        let about = std::fs::metadata(path(name)).unwrap();
        assert_eq!((about.uid(), about.gid()), owner, "{name}");
    }
    let names = std::fs::read_dir(path("theirs")).unwrap();
    assert_eq!(names.count(), 4, "nothing else is left");
}

struct Nobody;

impl Hosts for Nobody {
    fn open<'a>(
        &'a self,
        _: &'a mut Child,
        _: &'a Needs,
    ) -> HostsFuture<'a, Result<Option<Box<dyn OpenHosts>>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// True if some process was started with this word.
fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| {
        line.split(|byte| *byte == 0)
            .any(|part| part == word.as_bytes())
    })
}

fn exec_tool(place: &Place) -> Tool {
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let settings = ExecSettings {
        programs: Programs {
            workspace: place.workspace(),
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            ..Programs::default()
        },
        own: Vec::new(),
        limits: Limits::default(),
        tier: callgate_call::Tier::System,
        needs: Arc::new(Needs::default()),
    };
    let parts = ExecParts {
        spawner: Spawner::new(callgate_testing::misbehave().to_owned()),
        hosts: Box::new(Nobody),
        store: place.store(&clock),
        secrets: Secrets::default(),
        clock,
    };
    exec::tool(settings, parts).unwrap()
}

/// nothing is left of a program when its call is answered, nor of one that was about to start
/// when its call was cancelled.
#[tokio::test]
async fn cancelled_while_it_starts() {
    let place = Place::new();
    let tool = exec_tool(&place);
    let minute = Duration::from_secs(60);
    let input = json!({ "command": "true" });
    let ended = ask(&tool, input, Cancel::new(), minute).await.unwrap();
    assert_eq!(ended["exit_code"], 0);
    for number in 0..200 {
        let word = format!("98765{number}.{}", std::process::id());
        let cancel = Cancel::new();
        let input = json!({ "command": "sleep", "args": [word] });
        // A little later each time, until long after its start.
        let later = async {
            for _ in 0..number * 5 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(ask(&tool, input, cancel.clone(), minute), later);
        assert!(matches!(ended, Err(Fault::Cancelled)), "{ended:?}");
        assert!(!runs(&word), "it runs on after {number} others");
    }
    assert!(runs_self(Path::new("/proc/self/cmdline")));
}

/// The way of looking does find what runs.
fn runs_self(line: &Path) -> bool {
    let line = std::fs::read(line).unwrap();
    let first = line.split(|byte| *byte == 0).next().unwrap();
    runs(std::str::from_utf8(first).unwrap())
}

/// A run with so many events.
fn run_with_events(store: &Arc<Store>, count: u64) {
    let start = RunStart {
        run_id: "r1".to_owned(),
        call: CallId(1),
        attempt: 1,
        job_id: None,
        parent_run_id: None,
        partition: Partition {
            dataset: "d".to_owned(),
            source: "s".to_owned(),
            category: "c".to_owned(),
            day: "2026-11-15".to_owned(),
        },
        policy: RunPolicy::Strict,
    };
    let mut log = RunKeeper::new(Arc::clone(store)).begin(&start).unwrap();
    for seq in 1..=count {
        let line = json!({ "seq": seq }).to_string();
        let event = RunEvent {
            seq,
            kind: "item",
            line: line.as_bytes(),
        };
        log.event(&event).unwrap();
    }
    log.seal().unwrap();
}

fn run_readers(store: &Arc<Store>) -> Vec<Tool> {
    runs::readers(store)
}

/// A run may have gigabytes of events: looking at runs is not done on the thread that all calls
/// share. The only thread there is beside that one is taken until the look was asked for.
#[test]
fn a_look_at_runs_holds_nobody_up() {
    let place = Place::new();
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let store = place.store(&clock);
    run_with_events(&store, 1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    for tool in run_readers(&store) {
        runtime.block_on(async {
            let (go, wait) = std::sync::mpsc::sync_channel::<()>(1);
            let taken = tokio::task::spawn_blocking(move || wait.recv());
            let input = json!({ "run_id": "r1", "artifact_id": "a", "events_from": 0 });
            let time = Duration::from_secs(60);
            let mut asked = std::pin::pin!(ask(&tool, input, Cancel::new(), time));
            let waits =
                std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await;
            assert!(waits, "{}", tool.name);
            go.send(()).unwrap();
            taken.await.unwrap().unwrap();
            let _ = asked.await;
        });
        assert!(
            tool.runner.only_reads() && !tool.runner.is_pure(),
            "{}",
            tool.name
        );
    }
}

/// pages of events go on at the byte that the page before named; one that is no event's
/// beginning is refused.
#[tokio::test]
async fn pages_of_events() {
    let place = Place::new();
    let clock: Arc<dyn Clock> = Arc::new(Looked::default());
    let store = place.store(&clock);
    run_with_events(&store, 5);
    let mut tools = run_readers(&store).into_iter();
    let get = tools.find(|tool| tool.name == "runs/get").unwrap();
    let asks = async |from: &Value, offset: &Value| {
        let mut input = json!({ "run_id": "r1", "events_from": from, "events_limit": 2 });
        if !offset.is_null() {
            input["events_offset"] = offset.clone();
        }
        ask(&get, input, Cancel::new(), Duration::from_secs(60)).await
    };
    let (mut from, mut offset, mut seen) = (json!(0), Value::Null, Vec::new());
    while !from.is_null() {
        let page = asks(&from, &offset).await.unwrap();
        let counted = asks(&from, &Value::Null).await.unwrap();
        assert_eq!(page, counted, "the same without the offset");
        let seqs = page["events"].as_array().unwrap().iter();
        seen.push(seqs.map(|event| event["seq"].clone()).collect::<Vec<_>>());
        (from, offset) = (page["events_next"].clone(), page["events_offset"].clone());
    }
    assert_eq!(json!(seen), json!([[1, 2], [3, 4], [5]]));
    let after = asks(&json!(5), &offset).await.unwrap();
    assert_eq!(after["events"], json!([]));
    assert_eq!(
        after["events_offset"], offset,
        "whoever follows goes on here"
    );
    for wrong in [1, 2, 1_000_000] {
        let refused = asks(&json!(1), &json!(wrong)).await.unwrap_err();
        assert!(
            matches!(&refused, Fault::BadInput { field, .. } if field == "events_offset"),
            "{refused:?}"
        );
    }
}
