//! Every way a program with parents can end: real processes, of `programs/parents.rs`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests start real programs, and a test that can not go on has failed"
)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use callgate_sdk::{Parent, Running};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{Bridge, Folder, text};

/// The program, with both of its parents served and a bridge at the first.
struct Program {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    socket: PathBuf,
    bridge: Option<Bridge>,
}

impl Program {
    fn start(folder: &Folder, end: &str) -> Self {
        Self::start_ignoring("", folder, end)
    }

    /// With all three signals as they are for a program in the foreground, but for this one.
    fn start_ignoring(ignored: &str, folder: &Folder, end: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let debug = test.parent().and_then(Path::parent).unwrap();
        // Whoever runs the tests in the background may have them ignored, which is inherited
        // and can not be undone by a shell.
        let python = std::env::var("CALLGATE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = "import os, signal, sys
for name in ('TERM', 'INT', 'HUP'):
    ignored = name == sys.argv[1]
    signal.signal(getattr(signal, 'SIG' + name), signal.SIG_IGN if ignored else signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])";
        let mut child = Command::new(python)
            .args(["-c", script, ignored])
            .arg(debug.join("examples/parents"))
            .arg(&folder.0)
            .arg(end)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut program = Self {
            child,
            lines,
            socket: PathBuf::new(),
            bridge: None,
        };
        program.socket = program.line().into();
        assert_eq!(program.say(), text("plain"));
        program
    }

    /// Calls it, on the connection that is there.
    fn say(&mut self) -> Value {
        let socket = &self.socket;
        let bridge = self.bridge.get_or_insert_with(|| Bridge::connect(socket));
        bridge.call("say", &json!({}))
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes its input and waits for its end.
    fn code(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parent(name: &str) -> Parent {
    let parent = Parent::new().tool("say", "Says.", json!({}), |_| Ok("next".into()));
    parent.named(name)
}

fn said(running: &Running) -> Value {
    Bridge::connect(running.socket()).call("say", &json!({}))
}

/// BR-35: nothing is left by a signal, of both parents, also if one of them asked for it only.
#[test]
fn signals_leave_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let folder = Folder::new();
        let program = Program::start(&folder, "signal");
        assert_eq!(folder.entries(), 6);
        program.signal(signal);
        assert_eq!(program.code(), Some(code));
        assert_eq!(folder.entries(), 0, "after {signal:?}");
    }
}

/// BR-35: nothing is left by a panic, by `exit` on the main thread, or by a `main` that returns
/// without dropping.
#[test]
fn ends_by_itself_leave_nothing() {
    for (end, code) in [("panic", 101), ("exit", 5), ("return", 0)] {
        let folder = Folder::new();
        let program = Program::start(&folder, end);
        assert_eq!(folder.entries(), 6);
        assert_eq!(program.code(), Some(code), "{end}");
        assert_eq!(folder.entries(), 0, "after {end}");
    }
}

/// A signal that the program ignores or handles itself is its own; what it does not is ours, and
/// still ends it when its parents are stopped.
#[test]
fn signals_of_the_program_stay_its_own() {
    let folder = Folder::new();
    let mut program = Program::start_ignoring("HUP", &folder, "signal");
    program.signal(Signal::HUP);
    assert_eq!(program.say(), text("plain"));
    program.signal(Signal::TERM);
    assert_eq!(program.code(), Some(143), "the first one was ignored");

    let mut program = Program::start(&folder, "own handler");
    program.signal(Signal::TERM);
    assert_eq!(program.say(), text("plain"));
    assert_eq!(program.code(), Some(7), "its own end");
    assert_eq!(folder.entries(), 0);
    let program = Program::start(&folder, "own handler");
    program.signal(Signal::INT);
    assert_eq!(program.code(), Some(130), "that one it does not handle");

    let mut program = Program::start(&folder, "stopped");
    drop(program.child.stdin.take());
    assert_eq!(program.line(), "stopped");
    program.signal(Signal::INT);
    assert_eq!(program.code(), Some(130));
    assert_eq!(folder.entries(), 0);
}

/// BR-35, B-7: what a killed parent leaves, and one that left by `exit` on a thread, is swept by
/// the next one; a living one's stays.
#[test]
fn the_next_start_sweeps() {
    for (end, is_killed) in [("signal", true), ("exit on a thread", false)] {
        let folder = Folder::new();
        let living = parent("living").start_in(&folder.0).unwrap();
        let mut program = Program::start(&folder, end);
        let socket = program.socket.clone();
        if is_killed {
            program.child.kill().unwrap();
        }
        assert_eq!(program.code(), if is_killed { None } else { Some(6) });
        assert!(socket.exists(), "{end} leaves its files");
        assert_eq!(folder.entries(), 9);
        let next = parent("next").start_in(&folder.0).unwrap();
        assert!(!socket.exists());
        assert_eq!(folder.entries(), 6, "the living one's and the new one's");
        assert_eq!(said(&living), text("next"));
        next.stop();
        living.stop();
        assert_eq!(folder.entries(), 0);
    }
}

/// B-11: a name is its owner's while that lives, and the next one's once it is dead.
#[test]
fn a_name_is_taken_over() {
    let folder = Folder::new();
    let mut program = Program::start(&folder, "signal");
    let pid = program.child.id();
    let refused = parent("first").start_in(&folder.0).unwrap_err();
    let words = format!("`first` is taken: process {pid} serves there");
    assert_eq!(refused.to_string(), words);
    assert_eq!(program.say(), text("plain"));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let running = parent("first").start_in(&folder.0).unwrap();
    assert_eq!(running.socket(), program.socket);
    assert_eq!(said(&running), text("next"));
    running.stop();
    assert_eq!(folder.entries(), 0);
}
