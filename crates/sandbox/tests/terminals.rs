//! Children on a terminal of their own: what they find there and what stays closed to them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::Needs;
use callgate_sandbox::{Child, Ending, Spawner, Spec, Terminal, TerminalSize};
use rustix::io::Errno;
use support::{BOTH, folder, spawner};

const SIZE: TerminalSize = TerminalSize { cols: 91, rows: 17 };

/// A program on a terminal, confined or not.
async fn start(spawner: &Spawner, words: &[&str], confined: bool) -> (Child, OwnedFd, PathBuf) {
    let cwd = folder();
    let mut spec = Spec::new(words.iter().map(Into::into).collect(), cwd.clone());
    spec.env = vec![
        ("PATH".into(), "/usr/bin:/bin".into()),
        ("TERM".into(), "xterm".into()),
    ];
    spec.confine = confined.then(|| {
        Arc::new(Needs {
            writes: vec![cwd.clone()],
            ..Needs::default()
        })
    });
    let (master, terminal) = Terminal::open(SIZE).unwrap();
    spec.terminal = Some(terminal);
    (spawner.spawn(spec).await.unwrap(), master, cwd)
}

/// Adds what is there to `seen`; false at the end.
fn read(master: &OwnedFd, seen: &mut String) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(master, &mut buffer) {
            Ok(0) | Err(Errno::IO) => return false,
            Ok(read) => seen.push_str(&String::from_utf8_lossy(&buffer[..read])),
            Err(Errno::AGAIN) => return true,
            Err(Errno::INTR) => {}
            Err(error) => panic!("read the terminal: {error}"),
        }
    }
}

/// Reads on until what was read holds `words`.
async fn until(master: &OwnedFd, seen: &mut String, words: &str) {
    for _ in 0..12_000 {
        read(master, seen);
        if seen.contains(words) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain for {words:?}: {seen:?}");
}

/// All that a program prints until it ends.
async fn said(spawner: &Spawner, words: &[&str], confined: bool) -> (String, Ending) {
    let (mut child, master, cwd) = start(spawner, words, confined).await;
    let mut seen = String::new();
    let ended = async {
        loop {
            read(&master, &mut seen);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let exit = tokio::select! {
        exit = child.wait() => exit,
        () = ended => unreachable!("never ends"),
    };
    assert!(!read(&master, &mut seen), "nobody holds its other end");
    std::fs::remove_dir_all(cwd).unwrap();
    (seen.replace("\r\n", "\n"), exit.ending)
}

/// Its standard streams are the terminal, it is of the size asked for, and it controls the child.
#[tokio::test]
async fn a_child_has_a_terminal() {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size && \
        echo tty >/dev/tty && stty size </dev/tty && \
        name=$(readlink /proc/self/fd/0 || tty) && echo again >$name && exit 7";
    for trees in BOTH {
        let spawner = spawner(trees);
        for confined in [false, true] {
            let (seen, ending) = said(&spawner, &["bash", "-c", script], confined).await;
            let words = (seen.as_str(), ending);
            assert_eq!(
                words,
                ("17 91\ntty\n17 91\nagain\n", Ending::Code(7)),
                "{trees:?} {confined}"
            );
        }
    }
}

/// A shell finds itself in charge of its terminal, and can put programs into its foreground.
#[tokio::test]
async fn a_shell_controls_its_jobs() {
    let spawner = spawner(BOTH[0]);
    let words = ["bash", "--norc", "-i"];
    let (mut child, master, cwd) = start(&spawner, &words, true).await;
    let mut seen = String::new();
    let typed = |text: &str| rustix::io::write(&master, text.as_bytes()).unwrap();
    typed("sleep 600\n");
    until(&master, &mut seen, "sleep 600").await;
    // A fork of the shell may be in the foreground before it heeds signals as a program does.
    support::until("the program is in the foreground", || {
        let group = rustix::termios::tcgetpgrp(&master).unwrap();
        let name = std::fs::read_to_string(format!("/proc/{}/comm", group.as_raw_nonzero()));
        name.is_ok_and(|name| name == "sleep\n")
    })
    .await;
    // The terminal's own: stops what is in the foreground.
    typed("\x1a");
    until(&master, &mut seen, "Stopped").await;
    assert!(!seen.contains("no job control"), "{seen}");
    typed("exec sh -c 'exit 3'\n");
    assert_eq!(child.wait().await.ending, Ending::Code(3), "{seen}");
    std::fs::remove_dir_all(cwd).unwrap();
}

/// Nobody types for its user, and no other terminal is open to it.
#[tokio::test]
async fn other_terminals_stay_closed() {
    let (_other, terminal) = Terminal::open(SIZE).unwrap();
    let name = rustix::termios::ttyname(&terminal, Vec::new()).unwrap();
    let script = format!(
        "import fcntl\n\
         for what in (lambda: fcntl.ioctl(0, 0x5412, b'x'), lambda: open('{}', 'w'), \
         lambda: open('/dev/ptmx', 'w')):\n  \
         try: what(); print('done')\n  \
         except OSError as e: print(e.errno)\n",
        name.to_str().unwrap()
    );
    let words = ["/usr/bin/python3", "-I", "-S", "-c", script.as_str()];
    for trees in BOTH {
        let (seen, _) = said(&spawner(trees), &words, true).await;
        assert_eq!(seen, "1\n13\n13\n", "{trees:?}");
    }
}

/// A new size is told to whoever is in the foreground.
#[tokio::test]
async fn sizes_change() {
    let spawner = spawner(BOTH[0]);
    let script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done";
    let (mut child, master, cwd) = start(&spawner, &["bash", "-c", script], true).await;
    let mut seen = String::new();
    until(&master, &mut seen, "ready").await;
    let larger = TerminalSize {
        cols: 200,
        rows: 50,
    };
    Terminal::resize(&master, larger).unwrap();
    until(&master, &mut seen, "50 200").await;
    assert_eq!(child.wait().await.ending, Ending::Code(0));
    std::fs::remove_dir_all(cwd).unwrap();
}

/// A signal reaches the child; one that it bears does not end it.
#[tokio::test]
async fn signals_are_passed_on() {
    for trees in BOTH {
        let spawner = spawner(trees);
        let script = "trap 'echo term' TERM; echo ready; while :; do sleep 0.01; done";
        let (mut child, master, cwd) = start(&spawner, &["bash", "-c", script], true).await;
        let mut seen = String::new();
        until(&master, &mut seen, "ready").await;
        assert!(child.signal(15));
        until(&master, &mut seen, "term").await;
        assert!(child.signal(1));
        assert_eq!(child.wait().await.ending, Ending::Signal(1), "{trees:?}");
        assert!(!child.signal(15), "there is nobody");
        // Its nanny is not given to the next one.
        let (seen, ending) = said(&spawner, &["echo", "next"], true).await;
        assert_eq!((seen.as_str(), ending), ("next\n", Ending::Code(0)));
        std::fs::remove_dir_all(cwd).unwrap();
    }
}
