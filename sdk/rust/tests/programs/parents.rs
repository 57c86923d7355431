//! A program with two parents, the first one named, that ends as it is told: what
//! `tests/ends.rs` starts. `parents FOLDER END` prints the first one's socket once both serve,
//! and ends by itself when its input does.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program of the tests"
)]

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use callgate_sdk::{Parent, Running};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, end] = words.as_slice() else {
        panic!("usage: parents FOLDER END");
    };
    let folder = Path::new(folder);
    let said = |parent: Parent| parent.tool("say", "Says.", json!({}), |_| Ok("plain".into()));
    let start = || {
        let first = said(Parent::new()).named("first");
        let second = said(Parent::new());
        // One that asks for it is enough for all.
        let second = match end.as_str() {
            "signal" | "stopped" | "own handler" => second.exit_on_signals(),
            _ => second,
        };
        let both = [first, second].map(|parent| parent.start_in(folder).unwrap());
        println!("{}", both[0].socket().display());
        both
    };
    match end.as_str() {
        "own handler" => own_handler(start),
        "stopped" => {
            let both = start();
            until_told();
            both.into_iter().for_each(Running::stop);
            println!("stopped");
            forever()
        }
        "signal" => {
            let _both = start();
            forever()
        }
        "panic" => {
            let _both = start();
            until_told();
            panic!("on purpose");
        }
        "exit" => {
            let _both = start();
            until_told();
            std::process::exit(5);
        }
        "exit on a thread" => {
            let _both = start();
            until_told();
            let exit = std::thread::spawn(|| std::process::exit(6));
            exit.join().unwrap();
            ExitCode::FAILURE
        }
        "return" => {
            // As in a static, which is never dropped.
            std::mem::forget(start());
            until_told();
            ExitCode::SUCCESS
        }
        other => panic!("no end is called {other}"),
    }
}

/// A program that watches for SIGTERM itself, and has something to say before it ends.
fn own_handler(start: impl FnOnce() -> [Running; 2]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let both = start();
        terminate.recv().await;
        // Whoever else heard of the signal has all the time it needs to end us.
        until_told();
        drop(both);
    });
    ExitCode::from(7)
}

fn until_told() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn forever() -> ! {
    loop {
        std::thread::park();
    }
}
