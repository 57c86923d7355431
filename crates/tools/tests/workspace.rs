//! Tools over a workspace, below every wire: what takes too long, what is cancelled, what is large.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../misbehave/src/locate.rs"]
mod locate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use callgate_call::{
    Call, CallId, Caller, Cancel, Clock, Document, Fault, Job, Needs, NoSink, Patience, Plan,
    Secrets, Timestamp, Tool, Wire,
};
use callgate_sandbox::{Child, Limits, Spawner};
use callgate_store::{Options, Store};
use callgate_tools::exec::{self, ExecParts, ExecSettings, Hosts, HostsFuture, OpenHosts};
use callgate_tools::files::{self, Files, FilesLimits, Lists};
use callgate_tools::programs::Programs;
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

    fn search(&self, clock: &Arc<dyn Clock>) -> Tool {
        let files = Files::open(
            &self.workspace(),
            (Vec::new(), Lists::default()),
            &self.0.join("files.lock"),
            (Arc::clone(clock), self.store(clock)),
            FilesLimits::default(),
        );
        let mut tools = files::tools(&Arc::new(files.unwrap())).into_iter();
        tools.find(|tool| tool.name == "files/search").unwrap()
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
        spawner: Spawner::new(locate::misbehave().to_owned()),
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
