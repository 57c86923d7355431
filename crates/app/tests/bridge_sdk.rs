//! The bridge and a parent of the Rust SDK: parallel calls, and a parent that comes and goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::Folder;
use crate::support::bridge::{bridge, told, tools_call};
use crate::support::drive::{Host, Serve, python};
use callgate_sdk::Parent;
use serde_json::json;

/// B-2, BR-3 to BR-5: 64 MCP calls at once on one bridge; eight run at a time, each on its own
/// connection, they end in another order than they began, and none gets another's answer.
#[test]
fn parallel_calls_are_not_crossed() {
    const CALLS: u64 = 64;
    const AT_ONCE: usize = 8;
    let folder = Folder::new();
    let together = Arc::new(tokio::sync::Barrier::new(AT_ONCE));
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let parent = {
        let most = Arc::clone(&most);
        Parent::new().tool_async("wait", "Waits.", json!({}), move |arguments| {
            let (together, inside) = (Arc::clone(&together), Arc::clone(&inside));
            let most = Arc::clone(&most);
            async move {
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                // Ends only if eight calls are really there at the same time.
                together.wait().await;
                let number = arguments["n"].as_u64().unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(number * 7 % 13)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok(number.to_string().into())
            }
        })
    };
    let running = parent.start_in(&folder.join("parents")).unwrap();
    let mut bridge = bridge(&folder, running.socket(), running.schema());
    let calls: String = (0..CALLS)
        .map(|id| format!("{}\n", tools_call(id, "wait", &json!({ "n": id }))))
        .collect();
    assert!(bridge.send_bytes(calls.as_bytes()));
    let mut answers = BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..CALLS {
        let reply = bridge.reply();
        let id = reply["id"].as_u64().unwrap();
        order.push(id);
        answers.insert(id, told(&reply).0.to_owned());
    }
    let wanted: BTreeMap<u64, String> = (0..CALLS).map(|id| (id, id.to_string())).collect();
    assert_eq!(answers, wanted);
    assert!(!order.is_sorted(), "the delays differ: {order:?}");
    assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    assert!(bridge.end().success());
}

/// B-3, B-11: a bridge goes on with its parent when that is stopped and started again, and, under
/// its name, when it is killed and another process follows, of whichever SDK.
#[test]
fn a_parent_that_comes_back() {
    let folder = Folder::new();
    let parent = says("before");
    let start = || parent.start_in(&folder.join("parents")).unwrap();
    let running = start();
    let mut client = bridge(&folder, running.socket(), running.schema());
    let mut id = 0;
    let mut asked = |bridge: &mut Host| {
        id += 1;
        let reply = bridge.ask(&tools_call(id, "say", &json!({})));
        let (words, is_error) = told(&reply);
        (words.to_owned(), is_error)
    };
    let good = |words: &str| (words.to_owned(), false);
    assert_eq!(asked(&mut client), good("before"));
    running.stop();
    let running = start();
    assert_eq!(asked(&mut client), good("before"));
    running.stop();
    assert!(asked(&mut client).1, "nobody is there");
    let running = start();
    assert_eq!(asked(&mut client), good("before"));
    running.stop();
    assert!(client.end().success());

    let process = |words: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "bridge_sdk::a_parent_by_name", "--nocapture"])
            .env("CALLGATE_TEST_PARENT", folder.join("parents"))
            .env("CALLGATE_TEST_SAYS", words);
        Serve::spawn(&mut command, folder.join("parents/notes.sock"))
    };
    let first = process("first");
    let schema = folder.join("parents/notes.json");
    let mut client = bridge(&folder, &first.socket, &schema);
    assert_eq!(asked(&mut client), good("first"));
    first.kill();
    let second = process("second");
    assert_eq!(asked(&mut client), good("second"));
    second.kill();
    let python = python_parent(&folder);
    assert_eq!(asked(&mut client), good("python"));
    let refused = says("").named("notes").start_in(&folder.join("parents"));
    assert_eq!(
        refused.err().map(|error| error.to_string()),
        Some(format!(
            "`notes` is taken: process {} serves there",
            python.pid()
        ))
    );
    python.kill();
    let (words, is_error) = asked(&mut client);
    assert!(is_error && words.contains("Cannot connect"), "{words}");
    let third = process("third");
    assert_eq!(asked(&mut client), good("third"));
    assert_eq!(third.stop().code(), Some(143));
    assert!(client.end().success());
    let left = std::fs::read_dir(folder.join("parents")).unwrap().count();
    assert_eq!(left, 0);
}

/// The process of the test above, and nothing when nobody starts it as one.
#[test]
fn a_parent_by_name() {
    let given = |name: &str| std::env::var(name).ok();
    let Some(folder) = given("CALLGATE_TEST_PARENT") else {
        return;
    };
    let words: &'static str = given("CALLGATE_TEST_SAYS").unwrap().leak();
    let parent = says(words).named("notes").exit_on_signals();
    let _running = parent.start_in(Path::new(&folder)).unwrap();
    loop {
        std::thread::park();
    }
}

/// A program in Python under the same name.
fn python_parent(folder: &Folder) -> Serve {
    let script = "
import sys, threading
from callgate import Parent
parent = Parent(sys.argv[1], name='notes')
parent.register(lambda _: 'python', name='say', description='', input_schema={})
parent.start()
threading.Event().wait()
";
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    let mut command = Command::new(python());
    command
        .args(["-c", script])
        .arg(folder.join("parents"))
        .env("PYTHONPATH", sdk)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Serve::spawn(&mut command, folder.join("parents/notes.sock"))
}

fn says(words: &'static str) -> Parent {
    Parent::new().tool("say", "Says.", json!({}), move |_| Ok(words.into()))
}
