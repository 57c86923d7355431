//! What a confined child can and cannot do, judged by effect.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Asker, Guarantee, Guarantees, Ipc, Needs, Network};
use callgate_sandbox::{Ending, Folder, SpawnError, Spec};
use callgate_testing::is_skipped_without_root;
use support::{BOTH, folder, run, spawner};

/// A shell script in `cwd`, confined.
fn sh(script: &str, cwd: &Path, needs: &Needs) -> Spec {
    command(&["sh", "-c", script], cwd, needs)
}

fn python(script: &str, cwd: &Path, needs: &Needs) -> Spec {
    command(&["/usr/bin/python3", "-I", "-S", "-c", script], cwd, needs)
}

fn command(words: &[&str], cwd: &Path, needs: &Needs) -> Spec {
    let words = words.iter().map(Into::into).collect();
    let mut spec = Spec::new(words, cwd.to_owned());
    spec.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    spec.confine = Some(Arc::new(needs.clone()));
    spec
}

fn requires(guarantees: &[Guarantee]) -> Needs {
    let mut all = Guarantees::default();
    for one in guarantees {
        all.require(*one, Asker::Tool);
    }
    Needs {
        guarantees: all,
        ..Needs::default()
    }
}

fn writes(paths: &[PathBuf]) -> Needs {
    Needs {
        writes: paths.to_vec(),
        ..Needs::default()
    }
}

/// Runs a script in a fresh folder: what it printed there.
async fn said(script: &str, needs: &Needs) -> String {
    let cwd = folder();
    let (text, _) = run(&spawner(BOTH[0]), sh(script, &cwd, needs)).await;
    std::fs::remove_dir_all(cwd).unwrap();
    text
}

#[tokio::test]
async fn nothing_is_written_but_what_was_declared() {
    for trees in BOTH {
        let (cwd, elsewhere, spawner) = (folder(), folder(), spawner(trees));
        std::fs::write(cwd.join("there"), "before").unwrap();
        let stray = elsewhere.join("new");
        let script = format!(
            "echo x >new; echo x >there; mkdir dir; rm there; echo x >'{}'; \
             echo x >out/new && echo x >notes.txt && cat there",
            stray.display()
        );
        let needs = writes(&[cwd.join("out"), cwd.join("notes.txt")]);
        let (text, exit) = run(&spawner, sh(&script, &cwd, &needs)).await;
        assert_eq!((text.as_str(), exit.ending), ("before", Ending::Code(0)));
        assert!(!cwd.join("new").exists() && !cwd.join("dir").exists());
        assert!(!stray.exists());
        let read = |name| std::fs::read_to_string(cwd.join(name)).unwrap();
        assert_eq!(
            (read("out/new"), read("notes.txt")),
            ("x\n".into(), "x\n".into())
        );
        // The same without confinement, or the test shows nothing.
        let mut spec = sh(&script, &cwd, &needs);
        spec.confine = None;
        run(&spawner, spec).await;
        assert!(cwd.join("dir").exists() && stray.exists());
        for made in [cwd, elsewhere] {
            std::fs::remove_dir_all(made).unwrap();
        }
    }
}

#[tokio::test]
async fn reading_nothing_leaves_what_programs_need() {
    let cwd = folder();
    std::fs::write(cwd.join("secret"), "s").unwrap();
    std::fs::write(cwd.join("named"), "n").unwrap();
    let mut needs = requires(&[Guarantee::NoFilesystemRead]);
    needs.reads = vec![cwd.join("named")];
    let script = "cat named; cat secret; cat /etc/passwd; ls; ls /proc/1";
    let spawner = spawner(BOTH[0]);
    let (text, _) = run(&spawner, sh(script, &cwd, &needs)).await;
    assert_eq!(text, "n");
    let (text, _) = run(&spawner, sh("cat secret", &cwd, &Needs::default())).await;
    assert_eq!(text, "s");
    std::fs::remove_dir_all(cwd).unwrap();
}

/// A program whose name is a link to where its confinement does not let it look, as that of a
/// virtual environment may be: the message says where that is, and what to do.
#[tokio::test]
async fn a_program_out_of_reach_is_told() {
    let (cwd, elsewhere) = (folder(), folder());
    let real = elsewhere.join("shell");
    let spawner = spawner(BOTH[0]);
    let script = format!("cp /bin/sh '{0}' && ln -s '{0}' shell", real.display());
    let mut make = sh(&script, &cwd, &Needs::default());
    make.confine = None;
    run(&spawner, make).await;
    let mut needs = requires(&[Guarantee::NoFilesystemRead]);
    // What callers name brings along nothing that it may read.
    let named = |needs: &Needs| {
        let mut spec = command(&["./shell", "-c", "echo ran"], &cwd, needs);
        spec.named_by_caller = true;
        spec
    };
    let refused = spawner.spawn(named(&needs)).await;
    let text = refused.err().unwrap().to_string();
    let real = real.canonicalize().unwrap();
    assert!(text.contains(&real.display().to_string()), "{text}");
    assert!(text.contains("`reads`"), "{text}");
    needs.reads = vec![elsewhere.clone()];
    let (text, _) = run(&spawner, named(&needs)).await;
    assert_eq!(text, "ran\n");
    for made in [cwd, elsewhere] {
        std::fs::remove_dir_all(made).unwrap();
    }
}

#[tokio::test]
async fn sockets_are_denied_unless_declared() {
    let script = "import socket\n\
        try:\n socket.socket(); print('made')\n\
        except PermissionError: print('denied')";
    let cwd = folder();
    let any = Needs {
        network: Network::Any,
        ..Needs::default()
    };
    for (needs, wanted) in [(Needs::default(), "denied\n"), (any, "made\n")] {
        let (text, _) = run(&spawner(BOTH[0]), python(script, &cwd, &needs)).await;
        assert_eq!(text, wanted);
    }
    std::fs::remove_dir_all(cwd).unwrap();
}

/// Hosts alone: the one way out is on a loopback of its own, is ours to serve and not among the
/// tool's descriptors; nothing else can be connected to, not even by this machine's addresses.
#[tokio::test]
async fn a_way_out_of_a_network_of_its_own() {
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let script = format!(
        "import os, socket\n\
        print(os.environ['HTTPS_PROXY'], os.environ['no_proxy'] == '')\n\
        def opened(fd):\n\
        \x20try: return os.fstat(fd)\n\
        \x20except OSError: return None\n\
        print([fd for fd in range(3, 256) if opened(fd)])\n\
        def tried(what):\n\
        \x20try: return what()\n\
        \x20except OSError as error: return 'denied'\n\
        print(socket.create_connection(('127.0.0.1', 3128), 30).recv(100))\n\
        print(tried(lambda: socket.create_connection(('127.0.0.1', {port}), 30)))\n\
        print(tried(lambda: socket.socket(socket.AF_UNIX)))\n\
        print(tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW)))\n"
    );
    let needs = Needs {
        network: Network::Hosts(vec!["a.test:1".to_owned()]),
        ..Needs::default()
    };
    let cwd = folder();
    for trees in BOTH {
        let spawner = spawner(trees);
        if !spawner.facts().net_listener {
            return;
        }
        let (mut output, writer) = std::io::pipe().unwrap();
        let mut spec = python(&script, &cwd, &needs);
        spec.stdout = OwnedFd::from(writer).into();
        let mut child = spawner.spawn(spec).await.unwrap();
        let listener = child.take_outlet().unwrap();
        assert!(child.take_outlet().is_none());
        let served = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"served").unwrap();
        });
        served.await.unwrap();
        assert_eq!(child.wait().await.ending, Ending::Code(0));
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let wanted = "http://127.0.0.1:3128 True\n[]\nb'served'\ndenied\ndenied\ndenied\n";
        assert_eq!(text, wanted);
    }
    outside.set_nonblocking(true).unwrap();
    assert!(outside.accept().is_err(), "nobody came");
    std::fs::remove_dir_all(cwd).unwrap();
}

/// Its first exec works, none after it; neither by it nor by a child, of which there is none.
#[tokio::test]
async fn exec_works_once() {
    let needs = requires(&[Guarantee::NoSubprocess]);
    let script = "exec 2>/dev/null; echo one; exec /bin/echo two";
    assert_eq!(said(script, &needs).await, "one\n");
    assert_eq!(said("echo one; /bin/echo two &", &needs).await, "one\n");
    assert_eq!(said(script, &Needs::default()).await, "one\ntwo\n");
}

/// A first exec that fails says where and why.
#[tokio::test]
async fn a_failing_exec_is_told() {
    let cwd = folder();
    std::fs::write(cwd.join("script"), "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(cwd.join("script"), mode).unwrap();
    let needs = requires(&[Guarantee::NoSubprocess]);
    for trees in BOTH {
        let spec = command(&["./script"], &cwd, &needs);
        let error = spawner(trees).spawn(spec).await.unwrap_err().to_string();
        assert!(
            error.contains("the interpreter named in the first line"),
            "{error}"
        );
    }
    std::fs::remove_dir_all(cwd).unwrap();
}

/// Its temporary folder is its own and goes with it, whatever it put there.
#[tokio::test]
async fn a_temporary_folder_of_its_own() {
    let script = "cd $TMPDIR && mkdir -p a/b/c .lifted-1 && mkdir -m 0 d && echo x >a/b/c/x && \
        ln -s /etc a/b/link && stat -c %a . && pwd";
    for trees in BOTH {
        let (cwd, spawner) = (folder(), spawner(trees));
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (text, exit) = run(&spawner, sh(script, &cwd, &Needs::default())).await;
            assert_eq!(exit.ending, Ending::Code(0), "{text}");
            let (mode, path) = text.trim().split_once('\n').unwrap();
            assert_eq!(mode, "700");
            assert!(!Path::new(path).exists(), "{path}");
            seen.push(path.to_owned());
        }
        assert_ne!(seen[0], seen[1]);
        std::fs::remove_dir_all(cwd).unwrap();
    }
}

/// A folder that was not used may be the next child's; one that was, in whatever way, is not.
#[tokio::test]
async fn a_used_temporary_folder_is_not_the_next_childs() {
    let (cwd, spawner) = (folder(), spawner(BOTH[0]));
    // What may be written is there so that rights and times may be changed at all.
    let needs = writes(&[cwd.join("out")]);
    let look = async || {
        let (text, _) = run(&spawner, sh("echo $TMPDIR; ls -A $TMPDIR", &cwd, &needs)).await;
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    assert_eq!(look().await, look().await);
    for use_it in [
        "echo x >$TMPDIR/x",
        "mkdir $TMPDIR/d",
        "echo x >$TMPDIR/x; rm $TMPDIR/x",
        "chmod 755 $TMPDIR",
        "touch -d @1 $TMPDIR",
    ] {
        // Without mounts rights and times stay as they are.
        if !is_root() && !use_it.starts_with("echo") && !use_it.starts_with("mkdir") {
            continue;
        }
        let before = look().await;
        let (_, exit) = run(&spawner, sh(use_it, &cwd, &needs)).await;
        assert_eq!(exit.ending, Ending::Code(0), "{use_it}");
        assert!(!Path::new(before.trim()).exists(), "{use_it}");
        assert_ne!(look().await, before, "{use_it}");
    }
    let left = look().await;
    drop(spawner);
    support::until("it is gone with its nanny", || {
        !Path::new(left.trim()).exists()
    })
    .await;
    std::fs::remove_dir_all(cwd).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// G-9: inside a root as wide as the workspace, what is the gate's can not be changed, and its
/// configuration not even read; all else can be written, rights and times too.
#[tokio::test]
async fn what_is_the_gates_stays_so_in_a_wide_root() {
    if is_skipped_without_root("mounts") {
        return;
    }
    let cwd = folder();
    for (name, text) in [
        ("callgate.toml", "c"),
        ("tool.py", "t"),
        ("packs/p/x", "p"),
        ("lib/deep/code", "d"),
    ] {
        std::fs::create_dir_all(cwd.join(name).parent().unwrap()).unwrap();
        std::fs::write(cwd.join(name), text).unwrap();
    }
    std::fs::create_dir(cwd.join("state")).unwrap();
    std::fs::write(cwd.join("state/token"), "s").unwrap();
    std::fs::create_dir(cwd.join("state/python-1")).unwrap();
    std::fs::write(cwd.join("state/python-1/worker.py"), "w").unwrap();
    let mut needs = writes(std::slice::from_ref(&cwd));
    needs.code = vec![cwd.join("state/python-1")];
    needs.kept = vec![
        cwd.join("tool.py"),
        cwd.join("packs"),
        cwd.join("absent"),
        cwd.join("lib/deep/code"),
    ];
    needs.hidden = vec![cwd.join("callgate.toml"), cwd.join("state")];
    let script = "cat callgate.toml state/token; cat tool.py packs/p/x \
        state/python-1/worker.py; for file in callgate.toml tool.py packs/p/x packs/new \
        state/token state/new state/python-1/worker.py state/python-1/new; do \
        echo x >$file; rm -rf $file; mv $file moved; mv new $file; done; \
        rm -rf packs state; mv lib moved; mv lib/deep moved; mv packs moved; mv state moved; chmod 777 tool.py; \
        echo x >new && chmod 600 new && touch -d 2001-01-01 new";
    let (text, _) = run(&spawner(BOTH[0]), sh(script, &cwd, &needs)).await;
    assert_eq!(text, "tpw");
    let read = |name| std::fs::read_to_string(cwd.join(name)).unwrap();
    for (name, text) in [
        ("callgate.toml", "c"),
        ("tool.py", "t"),
        ("packs/p/x", "p"),
        ("lib/deep/code", "d"),
        ("state/token", "s"),
        ("state/python-1/worker.py", "w"),
        ("new", "x\n"),
    ] {
        assert_eq!(read(name), text, "{name}");
    }
    let new = std::fs::metadata(cwd.join("new")).unwrap();
    let year = new
        .modified()
        .unwrap()
        .duration_since(std::time::UNIX_EPOCH);
    assert!(year.unwrap().as_secs() < 1_000_000_000);
    std::fs::remove_dir_all(cwd).unwrap();
}

/// What is kept can not be moved away with the folder it is in, and another put in its place.
#[tokio::test]
async fn the_way_to_what_is_kept_stays() {
    if is_skipped_without_root("mounts") {
        return;
    }
    let cwd = folder();
    std::fs::create_dir_all(cwd.join("deep/inner")).unwrap();
    std::fs::write(cwd.join("deep/inner/code"), "c").unwrap();
    let mut needs = writes(std::slice::from_ref(&cwd));
    needs.kept = vec![cwd.join("deep/inner/code")];
    let script = "mv deep/inner deep/gone; mv deep gone; mkdir -p deep/inner; \
        echo x >deep/inner/code; echo x >deep/new; echo x >deep/inner/new";
    run(&spawner(BOTH[0]), sh(script, &cwd, &needs)).await;
    let read = |name| std::fs::read_to_string(cwd.join(name)).ok();
    assert_eq!(read("deep/inner/code").as_deref(), Some("c"));
    assert_eq!(read("deep/inner/new").as_deref(), Some("x\n"));
    assert_eq!(read("deep/new").as_deref(), Some("x\n"));
    std::fs::remove_dir_all(cwd).unwrap();
}

/// P-16: a child of root is whoever owns what it may write, else the workspace, and nobody has
/// a capability.
#[tokio::test]
async fn roots_children_are_the_owners() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    if is_skipped_without_root("children of another user") {
        return;
    }
    let cwd = folder();
    std::fs::create_dir(cwd.join("out")).unwrap();
    chown(cwd.join("out"), Some(1234), Some(1235)).unwrap();
    let mut needs = writes(&[cwd.join("out")]);
    needs.reads = vec!["/proc".into()];
    let script = "id -u; id -g; id -G; grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status; \
        echo x >out/new";
    let (text, _) = run(&spawner(BOTH[0]), sh(script, &cwd, &needs)).await;
    let (ids, status) = text.split_once("Cap").unwrap();
    assert_eq!(ids, "1234\n1235\n1235\n");
    assert_eq!(status.matches("0000000000000000").count(), 5, "{status}");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert_eq!(std::fs::metadata(cwd.join("out/new")).unwrap().uid(), 1234);

    needs.writes.clear();
    let (text, _) = run(&spawner(BOTH[0]), sh(script, &cwd, &needs)).await;
    let (ids, status) = text.split_once("Cap").unwrap();
    assert_eq!(ids, "0\n0\n0\n");
    assert_eq!(status.matches("0000000000000000").count(), 5, "{status}");
    std::fs::remove_dir_all(cwd).unwrap();
}

/// With `/proc` among what it may read, a tree sees itself and nobody else.
#[tokio::test]
async fn proc_is_its_own() {
    if is_skipped_without_root("a pid namespace") {
        return;
    }
    let cwd = folder();
    let needs = Needs {
        reads: vec!["/proc".into()],
        ..Needs::default()
    };
    let script = "ls /proc | grep -cE '^[0-9]+$'; tr '\\0' '\\n' </proc/1/environ | wc -l";
    let (text, _) = run(&spawner(BOTH[0]), sh(script, &cwd, &needs)).await;
    let count: usize = text.lines().next().unwrap().parse().unwrap();
    assert!(count <= 5, "{text}");
    std::fs::remove_dir_all(cwd).unwrap();
}

/// A link that one tool plants where another has a root leads nowhere.
#[tokio::test]
async fn a_planted_link_is_not_followed() {
    let (cwd, outside) = (folder(), folder());
    let spawner = spawner(BOTH[0]);
    let inner = Arc::new(writes(&[cwd.join("a/b")]));
    let spec = || {
        let mut spec = sh("echo x >a/b/x", &cwd, &inner);
        spec.confine = Some(Arc::clone(&inner));
        spec
    };
    let (_, exit) = run(&spawner, spec()).await;
    assert_eq!(exit.ending, Ending::Code(0));
    let plant = format!("rm -r a/b && ln -s {} a/b", outside.display());
    let (_, exit) = run(&spawner, sh(&plant, &cwd, &writes(&[cwd.join("a")]))).await;
    assert_eq!(exit.ending, Ending::Code(0));
    let error = spawner.spawn(spec()).await.unwrap_err().to_string();
    // Whichever step meets it first.
    let told = ["view of the files", "what it may reach"];
    assert!(told.iter().any(|words| error.contains(words)), "{error}");
    assert!(!outside.join("x").exists());
    std::fs::remove_dir_all(cwd).unwrap();
    std::fs::remove_dir_all(outside).unwrap();
}

/// P-16: a tool of root's own workspace stays root in name, and still does not read what is root's
/// alone; what is everybody's it reads, and what the owner names.
#[tokio::test]
async fn what_is_roots_alone_is_not_read_by_its_tools() {
    if is_skipped_without_root("to others the files are closed already") {
        return;
    }
    let cwd = folder();
    let script = "id -u; head -c 1 /etc/shadow | wc -c; head -c 1 /etc/gshadow | wc -c; \
        head -c 1 /etc/passwd | wc -c; ls /etc/ssl >/dev/null && echo listed";
    let spawner = spawner(BOTH[0]);
    let mut plain = sh(script, &cwd, &Needs::default());
    plain.confine = None;
    let (text, _) = run(&spawner, plain).await;
    assert_eq!(text, "0\n1\n1\n1\nlisted\n", "it works unconfined");
    let (text, _) = run(&spawner, sh(script, &cwd, &Needs::default())).await;
    assert_eq!(text, "0\n0\n0\n1\nlisted\n");
    let named = Needs {
        reads: vec![PathBuf::from("/etc/shadow")],
        ..Needs::default()
    };
    let (text, _) = run(&spawner, sh(script, &cwd, &named)).await;
    assert_eq!(text, "0\n1\n0\n1\nlisted\n");
    std::fs::remove_dir_all(cwd).unwrap();
}

/// A folder inside what it may write is somebody else's once a link is swapped in for it: being
/// started there opens nothing.
#[tokio::test]
async fn a_link_in_place_of_its_folder_opens_nothing() {
    let (home, elsewhere) = (folder(), folder());
    std::fs::write(elsewhere.join("secret"), "s").unwrap();
    std::os::unix::fs::symlink(&elsewhere, home.join("sub")).unwrap();
    let needs = writes(std::slice::from_ref(&home));
    let spec = sh("cat secret", &home.join("sub"), &needs);
    let (text, exit) = run(&spawner(BOTH[0]), spec).await;
    assert_eq!((text.as_str(), exit.ending), ("", Ending::Code(1)));
    for folder in [home, elsewhere] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// R-9, R-11: a child starts in the folder that was found, under its own view of the files, or not
/// at all: neither where a link leads that was swapped in for it since, nor in another folder.
#[tokio::test]
async fn another_folder_in_place_of_its_own_is_not_entered() {
    let (home, elsewhere) = (folder(), folder());
    let (sub, kept) = (home.join("sub"), home.join("sub/kept"));
    let needs = Needs {
        kept: vec![kept.clone()],
        ..writes(std::slice::from_ref(&home))
    };
    let swaps: [(&str, &dyn Fn()); 3] = [
        ("itself", &|| {}),
        ("a link", &|| {
            std::os::unix::fs::symlink(&elsewhere, &sub).unwrap();
        }),
        ("a folder", &|| std::fs::create_dir(&sub).unwrap()),
    ];
    for trees in BOTH {
        let spawner = spawner(trees);
        for confined in [true, false] {
            for (what, swap) in swaps {
                std::fs::create_dir(&sub).unwrap();
                std::fs::write(&kept, "as it was").unwrap();
                let mut spec = sh("pwd -P; echo x > kept || echo held", &sub, &needs);
                spec.confine = spec.confine.filter(|_| confined);
                let found = std::fs::File::open(&sub).unwrap();
                spec.folder = Some(Folder::new(found.into()).unwrap());
                if what != "itself" {
                    std::fs::rename(&sub, home.join("old")).unwrap();
                }
                swap();
                if what == "itself" {
                    let (text, _) = run(&spawner, spec).await;
                    assert!(text.starts_with(sub.to_str().unwrap()), "{text}");
                    let has_view = confined && spawner.facts().mount_namespace;
                    assert_eq!(text.ends_with("held\n"), has_view, "{text}");
                } else {
                    let refused = spawner.spawn(spec).await.unwrap_err();
                    let SpawnError::Cwd { source, .. } = &refused else {
                        panic!("{what}: {refused:?}");
                    };
                    assert_eq!(source.raw_os_error(), Some(libc::ESTALE), "{what}");
                    std::fs::remove_dir_all(home.join("old")).unwrap();
                }
                match what {
                    "a link" => std::fs::remove_file(&sub).unwrap(),
                    _ => std::fs::remove_dir_all(&sub).unwrap(),
                }
            }
        }
    }
    for folder in [home, elsewhere] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// K-4. What `ipc` gives reaches nobody else: memory of its own at `/dev/shm`, Unix sockets that
/// listen, and with `Local` a loopback of its own and a view without the sockets of others.
#[tokio::test]
async fn ipc_is_its_own() {
    let (home, outside) = (folder(), folder());
    let path = outside.join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let script = format!(
        r#"/usr/bin/python3 - <<'END'
import os, socket
def tried(what, act):
    try:
        act()
        print(what, "ok")
    except OSError as error:
        print(what, "no")
own = os.environ["TMPDIR"] + "/socket"
def listen():
    one = socket.socket(socket.AF_UNIX)
    one.bind(own)
    one.listen()
    globals()["kept"] = one
def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)
def loopback():
    one = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(one.getsockname())
tried("shm", lambda: open("/dev/shm/mark", "w").write("x"))
tried("listen", listen)
tried("connect", lambda: connect(own))
tried("outside", lambda: connect("{}"))
tried("loopback", loopback)
tried("processes", lambda: os.listdir("/proc/self/fd"))
END"#,
        path.display()
    );
    for trees in BOTH {
        let spawner = spawner(trees);
        let facts = spawner.facts();
        let whole = facts.mount_namespace && facts.net_namespace;
        for (ipc, wanted) in [
            (Ipc::None, "no no no no no"),
            (Ipc::Private, "ok ok no no no"),
            (Ipc::Local, "ok ok ok no ok"),
        ] {
            let needs = Needs {
                ipc,
                ..writes(std::slice::from_ref(&home))
            };
            let mut guarded = needs.clone();
            guarded
                .guarantees
                .require(Guarantee::NoNetwork, Asker::Engine);
            let (text, _) = run(&spawner, sh(&script, &home, &guarded)).await;
            let words: Vec<&str> = text.split_whitespace().skip(1).step_by(2).collect();
            let wanted = if whole { wanted } else { "no no no no no" };
            assert_eq!(words[..5].join(" "), wanted, "{trees:?} {ipc:?}: {text}");
            let own_processes = facts.pid_namespace || facts.pid_namespace_by_user;
            let sees_processes = ipc != Ipc::None && whole && own_processes;
            assert_eq!(words[5] == "ok", sees_processes, "{trees:?} {ipc:?}");
        }
    }
    assert!(!std::path::Path::new("/dev/shm/mark").exists());
    assert!(listener.accept().is_err(), "nobody came");
    for folder in [home, outside] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// What servers of other people ask of a machine at their start. With `Ipc::Private` and some
/// files to read Node knows its memory, processors and interfaces, and Python can make locks that
/// processes share; neither sees processes, interfaces or shared memory of others.
#[tokio::test]
async fn runtimes_find_what_they_ask_for() {
    let node = "const os = require('os');
        const names = Object.keys(os.networkInterfaces());
        const told = [
            process.memoryUsage().rss > 0,
            os.cpus().length > 0 && os.availableParallelism() > 0,
            os.totalmem() > 0 && os.freemem() > 0,
            names.every((name) => name === 'lo'),
            require('fs').readdirSync('/proc').filter((name) => name > 0).length < 4,
        ];
        console.log(told.join(' '));";
    let python = "import multiprocessing, os, socket
def child(lock, number):
    with lock:
        number.value += 1
lock, number = multiprocessing.Lock(), multiprocessing.Value('i', 0)
all = [multiprocessing.Process(target=child, args=(lock, number)) for _ in range(3)]
[one.start() for one in all], [one.join() for one in all]
families = []
for protocol in range(22):
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        families.append(protocol)
    except OSError:
        pass
try:
    names = [name for _, name in socket.if_nameindex()]
except OSError:
    names = None
print(number.value, names, families, os.cpu_count() > 0)";
    let reads = ["/sys/devices/system/cpu", "/sys/fs/cgroup"].map(PathBuf::from);
    for trees in BOTH {
        let spawner = spawner(trees);
        let facts = spawner.facts();
        let own_processes = facts.pid_namespace || facts.pid_namespace_by_user;
        if !(facts.mount_namespace && facts.net_namespace && own_processes) {
            continue;
        }
        for (network, wanted) in [
            (Network::None, "3 ['lo'] [0] True"),
            (
                Network::Hosts(vec!["host.test:443".to_owned()]),
                "3 ['lo'] [0] True",
            ),
            (Network::Any, "3 None [] True"),
        ] {
            let (cwd, is_private) = (folder(), network != Network::Any);
            let needs = Needs {
                ipc: Ipc::Private,
                network,
                reads: reads.to_vec(),
                ..writes(std::slice::from_ref(&cwd))
            };
            if is_private {
                let spec = command(&["node", "-e", node], &cwd, &needs);
                let (text, exit) = run(&spawner, spec).await;
                let wanted = ("true true true true true", Ending::Code(0));
                assert_eq!((text.trim(), exit.ending), wanted, "{trees:?}");
            }
            let spec = command(&["/usr/bin/python3", "-I", "-c", python], &cwd, &needs);
            let (text, _) = run(&spawner, spec).await;
            assert_eq!(text.trim(), wanted, "{trees:?}");
            std::fs::remove_dir_all(cwd).unwrap();
        }
    }
    // Without means of their own to talk they are told nothing.
    let text = said(
        "/usr/bin/python3 -c 'import socket; socket.socket(16, 3, 0)' 2>&1",
        &writes(&[]),
    )
    .await;
    assert!(text.contains("PermissionError"), "{text}");
}
