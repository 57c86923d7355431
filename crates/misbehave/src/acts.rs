//! What it does as a process tool: one act per input.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

/// Does what `input.do` says. An act that answers prints one JSON value.
pub fn perform(input: &Value) {
    let text = |name: &str| input[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| input[name].as_i64().unwrap_or_default();
    match input["do"].as_str().unwrap_or("slots") {
        "ok" => println!("{}", json!({ "ok": true })),
        "echo" => println!("{input}"),
        "slots" => slots(input),
        "hang" => hang(),
        "flood" => flood(&mut std::io::stdout()),
        "stderr_flood" => flood(&mut std::io::stderr()),
        "stderr_much" => {
            let _ = std::io::stderr().write_all(&vec![b'e'; usize(number("bytes"))]);
            println!("{}", json!({ "ok": true }));
        }
        "huge" => println!("\"{}\"", "h".repeat(usize(number("bytes")))),
        "garbage" => print_bytes(&[0xFF, b'{', 0, b'\n', b'[']),
        "print" => print_bytes(text("text").as_bytes()),
        "nothing" => {}
        "half" => print_bytes(b"{\"ok\": tr"),
        "exit" => exit(&text("stdout"), &text("stderr"), number("code")),
        "signal" => signal(number("signal")),
        "slow" => {
            std::thread::sleep(Duration::from_millis(number("ms").unsigned_abs()));
            println!("{}", json!({ "slow": true }));
        }
        "close" => close_all_and_hang(),
        "close_stdout" => {
            println!("{}", json!({ "closed": true }));
            close_descriptor(1);
            std::thread::sleep(Duration::from_millis(number("ms").unsigned_abs()));
        }
        "daemon" => {
            daemon(&text("path"));
            println!("{}", json!({ "daemon": true }));
        }
        "daemon_hang" => {
            daemon(&text("path"));
            hang()
        }
        "chain" => {
            chain();
            println!("{}", json!({ "chain": true }));
        }
        "bomb" => bomb(usize(number("processes"))),
        "fds" => println!("{}", fds()),
        "env" => println!("{}", env()),
        "self" => println!("{}", itself()),
        "spend" => {
            spend(Duration::from_millis(number("ms").unsigned_abs()));
            println!("{}", json!({ "spent": true }));
        }
        "take_memory" => {
            let taken = vec![1u8; usize(number("bytes"))];
            println!(
                "{}",
                json!({ "taken": taken.iter().map(|&b| u64::from(b)).sum::<u64>() })
            );
        }
        "write_file" => {
            let written = std::fs::write(text("path"), vec![b'w'; usize(number("bytes"))]);
            println!(
                "{}",
                json!({ "error": written.err().map(|error| error.to_string()) })
            );
        }
        other => {
            eprintln!("no such act: {other}");
            std::process::exit(64);
        }
    }
}

/// Sleeps for ever.
pub fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Writes for ever, or until nobody reads.
pub fn flood(to: &mut dyn std::io::Write) {
    let block = [b'f'; 65536];
    while to.write_all(&block).is_ok() {}
    hang();
}

/// Dies by a signal.
pub fn signal(number: i64) {
    let number = i32::try_from(number).unwrap_or(libc::SIGKILL);
    // SAFETY: plain calls without pointers; the default disposition installs no code.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        libc::raise(number);
    }
}

/// Does not care about a signal from now on.
pub fn ignore(number: i64) {
    let number = i32::try_from(number).unwrap_or(libc::SIGTERM);
    // SAFETY: ignoring installs no code.
    unsafe { libc::signal(number, libc::SIG_IGN) };
}

/// Closes one descriptor behind the back of whoever owns it.
pub fn close_descriptor(fd: i32) {
    // SAFETY: nothing in this program relies on the descriptor afterwards.
    unsafe { libc::close(fd) };
}

/// Closes everything and lives on.
pub fn close_all_and_hang() -> ! {
    (0..1024).for_each(close_descriptor);
    hang()
}

/// Forks a daemon by the book: fork, new session, fork, and both parents leave. It ignores
/// what signals it can, keeps all descriptors open and touches `path` when it is there.
pub fn daemon(path: &str) {
    let (ready, done) = pipe();
    if fork() == 0 {
        // SAFETY: plain calls without pointers.
        unsafe { libc::setsid() };
        if fork() != 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGPIPE] {
            // SAFETY: ignoring installs no code.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        if !path.is_empty() {
            let _ = std::fs::write(path, std::process::id().to_string());
        }
        close_descriptor(ready);
        close_descriptor(done);
        hang()
    }
    close_descriptor(done);
    let mut byte = 0u8;
    // SAFETY: `byte` has room for the one byte that never comes; the end does.
    unsafe { libc::read(ready, (&raw mut byte).cast(), 1) };
}

/// Twenty processes, each the child of the one before, half of them in a session of their
/// own; the last ones outlive the first.
fn chain() {
    let (ready, done) = pipe();
    if fork() == 0 {
        for depth in 0..20 {
            if depth % 2 == 0 {
                // SAFETY: a plain call without pointers.
                unsafe { libc::setsid() };
            }
            if fork() != 0 {
                close_descriptor(done);
                hang()
            }
        }
        close_descriptor(done);
        hang()
    }
    close_descriptor(done);
    let mut byte = 0u8;
    // SAFETY: as in `daemon`.
    unsafe { libc::read(ready, (&raw mut byte).cast(), 1) };
}

/// Forks until there are `max` in sight or the kernel says no, and each copy goes on.
fn bomb(max: usize) {
    for _ in 0..max {
        fork();
    }
    hang()
}

fn fork() -> i32 {
    // SAFETY: this program has one thread.
    unsafe { libc::fork() }
}

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    unsafe { libc::pipe(ends.as_mut_ptr()) };
    (ends[0], ends[1])
}

fn exit(stdout: &str, stderr: &str, code: i64) -> ! {
    print_bytes(stdout.as_bytes());
    eprint!("{stderr}");
    std::process::exit(i32::try_from(code).unwrap_or(1))
}

/// Takes so much processor time, however long that lasts.
fn spend(time: Duration) {
    let mut sum = 0u64;
    while used() < time {
        for _ in 0..10_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }
}

fn used() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// With slots: sets slot 6 to the input, removes slot 9, counts what it was given.
fn slots(request: &Value) {
    let input = &request["input"];
    let given = request["slots"].as_object().map_or(0, serde_json::Map::len);
    let content = input.to_string();
    println!(
        "{}",
        json!({
            "output": { "given": given, "slots": request["slots"] },
            "slots": { "6": {
                "type": "echo", "provenance": "misbehave",
                "size_bytes": content.len(), "content_json": content,
            } },
            "removed_slots": [9],
        })
    );
}

fn fds() -> Value {
    let entries = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let mut all: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            Some((number, target.to_string_lossy().into_owned()))
        })
        .collect();
    all.retain(|(_, target)| !target.starts_with("/proc/"));
    all.sort();
    json!(all)
}

fn env() -> Value {
    std::env::vars()
        .map(|(name, value)| (name, Value::String(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What a tool can see of itself.
fn itself() -> Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .unwrap_or_default()
            .to_owned()
    };
    let by_pid = std::fs::read_to_string(format!("/proc/{}/comm", std::process::id()));
    // SAFETY: plain calls without pointers.
    let (umask, session) = unsafe { (libc::umask(0), libc::getsid(0)) };
    json!({
        "uid": field("Uid:"),
        "blocked": field("SigBlk:"),
        // The Rust runtime of this program ignores SIGPIPE by itself.
        "ignored": field("SigIgn:"),
        "no_new_privs": field("NoNewPrivs:"),
        "umask": format!("{umask:03o}"),
        "leads_session": session == i32::try_from(std::process::id()).unwrap_or(0),
        "own_comm_by_pid": by_pid.unwrap_or_default().trim(),
        "cwd": std::env::current_dir().unwrap_or_default(),
        "arg_lengths": std::env::args().map(|arg| arg.len()).collect::<Vec<_>>(),
        "open_files_max": limit(libc::RLIMIT_NOFILE),
        "core_max": limit(libc::RLIMIT_CORE),
    })
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` outlives the call.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}

fn print_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

fn usize(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
