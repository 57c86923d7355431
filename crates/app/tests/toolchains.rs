//! Toolchains under confinement: what people build and test with runs by `exec/run`, for every pair
//! of users, in a home of its own, and nothing else of the owner's home can be read..

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::arena::{Users, give};
use crate::support::drive::{self, Host, run};
use crate::support::owner::{OwnerHome, SECRET, SECRETS, Stand};
use crate::support::wait_for;

/// A manifest and sources of a crate that depends on another by its path.
const RUST: [(&str, &str); 4] = [
    (
        "Cargo.toml",
        "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
         [dependencies]\nother = { path = \"other\" }\nitoa = \"=VERSION\"\n",
    ),
    (
        "src/main.rs",
        "fn main() { println!(\"{}\", itoa::Buffer::new().format(other::seven())) }\n\
         #[test] fn seven() { assert_eq!(other::seven(), 7) }\n",
    ),
    (
        "other/Cargo.toml",
        "[package]\nname = \"other\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    ),
    ("other/src/lib.rs", "pub fn seven() -> u8 { 7 }\n"),
];

/// JR-76, R-42. The contract's own example: `cargo build`, and `cargo test`, by rustup's proxies,
/// with a crate of the owner's registry cache and without network.
#[test]
fn cargo() {
    let (home, version) = OwnerHome::new().with_rust().with_crate("itoa");
    for users in Users::all() {
        let manifest = RUST[0].1.replace("VERSION", &version);
        let mut files = RUST.to_vec();
        files[0].1 = &manifest;
        let stand = Stand::new(users, &home, &files);
        stand.run(&["cargo", "build", "--offline"]);
        assert_eq!(stand.run(&["target/debug/demo"]), "7\n");
        let tested = stand.run(&["cargo", "test", "--offline"]);
        assert!(tested.contains("1 passed"), "{tested}");
        // What cargo keeps is in a home of the caller's, and stays for the next call.
        let kept = stand.run(&["sh", "-c", "ls -d ~/.cargo/registry/src/*/itoa-*"]);
        assert!(kept.contains("/homes/"), "{kept}");
    }
}

/// `git`, where the owner has settings of their own that nobody may read.
#[test]
fn git() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = Stand::new(users, &home, &[("a", "one\n")]);
        stand.run(&["git", "init"]);
        for setting in [["user.name", "agent"], ["user.email", "agent@example.com"]] {
            stand.run(&["git", "config", "--global", setting[0], setting[1]]);
        }
        stand.run(&["git", "add", "a"]);
        stand.run(&["git", "commit", "-m", "one"]);
        assert_eq!(stand.run(&["git", "log", "--format=%an %s"]), "agent one\n");
    }
}

/// What a configuration may be that a repository has.
const CONFIGURATION: &str = "# of the gate\n[exec]\nprocesses = 200\n";

/// A stand whose configuration and a file `a` are committed by a program of a caller.
fn committed<'a>(users: Users, home: &'a OwnerHome) -> Stand<'a> {
    let files = [("callgate.toml", CONFIGURATION), ("a", "one\n")];
    let stand = Stand::new(users, home, &files);
    stand.run(&["git", "init", "-q"]);
    for setting in [["user.name", "agent"], ["user.email", "agent@example.com"]] {
        stand.run(&["git", "config", "--global", setting[0], setting[1]]);
    }
    stand.run(&["git", "add", "-A"]);
    stand.run(&["git", "commit", "-qm", "one"]);
    stand
}

/// G-9f. A configuration that is committed is a regular file to `git` and others.
#[test]
fn git_with_the_configuration() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = committed(users, &home);
        let shown = || stand.run(&["git", "show", "HEAD:callgate.toml"]);
        assert_eq!(shown(), CONFIGURATION);
        assert_eq!(stand.run(&["git", "status", "--porcelain"]), "");
        stand.run(&["git", "diff", "--exit-code", "HEAD"]);
        stand.write("a", "two\n");
        assert_eq!(stand.run(&["git", "diff", "--name-only"]), "a\n");
        stand.run(&["git", "add", "-A"]);
        stand.run(&["git", "commit", "-qam", "two"]);
        let changed = ["git", "show", "--name-only", "--format=", "HEAD"];
        assert_eq!(stand.run(&changed), "a\n");
        assert_eq!(shown(), CONFIGURATION);
        stand.write("a", "three\n");
        stand.run(&["git", "stash", "-q"]);
        assert_eq!(stand.read("a").as_deref(), Some(&b"two\n"[..]));
        stand.run(&["git", "stash", "pop", "-q"]);
        stand.run(&["git", "checkout", "-q", "-b", "other"]);
        assert_eq!(stand.run(&["git", "log", "--format=%s"]), "two\none\n");
        let found = stand.run(&["grep", "-rl", "of the gate", "."]);
        assert_eq!(found, "./callgate.toml\n");
        let copied = "cp -r . $TMPDIR/copy && cmp callgate.toml $TMPDIR/copy/callgate.toml";
        stand.run(&["sh", "-c", copied]);
        let kind = stand.run(&["stat", "-c", "%F", "callgate.toml"]);
        assert_eq!(kind, "regular file\n");
        // A run that sends no stream is a crash, but has copied the file.
        let copy = ["run", "-q", "--", "sh", "-c", "cp callgate.toml copied"];
        assert_eq!(stand.cli(&copy).code(), 2);
        let copied = stand.read("copied");
        assert_eq!(copied.as_deref(), Some(CONFIGURATION.as_bytes()));
    }
}

/// G-9f. Nobody but the owner changes it: `git` and others say so, and the file is as it was.
#[test]
fn git_cannot_change_the_configuration() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = committed(users, &home);
        // A change of the owner's can be committed.
        let later = format!("{CONFIGURATION}# later\n");
        stand.write("callgate.toml", &later);
        stand.run(&["git", "commit", "-qam", "two"]);
        for words in [
            &["git", "checkout", "-q", "HEAD~", "--", "callgate.toml"][..],
            &["git", "reset", "-q", "--hard", "HEAD~"],
            &["git", "mv", "callgate.toml", "moved"],
            &["git", "rm", "-q", "-f", "callgate.toml"],
            &["mv", "callgate.toml", "moved"],
            &["cp", "--remove-destination", "a", "callgate.toml"],
            &["sed", "-i", "s/200/300/", "callgate.toml"],
            &["truncate", "-s0", "callgate.toml"],
            &["chmod", "777", "callgate.toml"],
            &["ln", "callgate.toml", "linked"],
            &["sh", "-c", "echo x >>callgate.toml"],
        ] {
            let ended = stand.exec(&json!({ "command": words[0], "args": words[1..] }));
            let who = users.name();
            assert_ne!(ended["exit_code"], 0, "{words:?} as {who}: {ended}");
            let errors = ["busy", "Read-only", "cross-device"];
            let said = ended["stderr"].as_str().expect("text");
            let is_clean = errors.iter().any(|error| said.contains(error));
            assert!(is_clean, "{words:?} as {who}: {ended}");
            assert_eq!(
                stand.read("callgate.toml").as_deref(),
                Some(later.as_bytes())
            );
        }
        // A checkout goes on without it.
        stand.run(&["git", "reset", "-q"]);
        let words = ["checkout", "-q", "HEAD~"];
        let ended = stand.exec(&json!({ "command": "git", "args": words }));
        assert!(
            ended["stderr"].to_string().contains("unable to unlink"),
            "{ended}"
        );
        assert_eq!(stand.run(&["git", "log", "--format=%s"]), "one\n");
        assert_eq!(
            stand.read("callgate.toml").as_deref(),
            Some(later.as_bytes())
        );
    }
}

/// G-9f. Where the owner put the sockets into the workspace, the list of tools beside them is a
/// regular file too, which nobody changes.
#[test]
fn git_beside_the_sockets() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = committed(users, &home);
        let schema = "bridge-schema.json";
        stand.write(schema, "[]\n");
        let script = "git add -A && git commit -qm two && git show HEAD:bridge-schema.json; \
            echo x >bridge-schema.json; rm -f bridge-schema.json; true";
        let input = json!({ "command": script, "shell": true }).to_string();
        let words = ["--socket", "gate.sock", "--standalone"];
        let ran = stand.cli(&[&["call", "exec/run", &input], &words[..]].concat());
        let ended = ran.good().json();
        assert_eq!(ended["stdout"], "[]\n", "{}: {ended}", users.name());
        assert_eq!(stand.read(schema).as_deref(), Some(&b"[]\n"[..]));
    }
}

/// A virtual environment, packages from wheels, and `pytest`; locks and a pool of processes.
#[test]
fn python() {
    let home = OwnerHome::new().with_python();
    let wheels = std::env::var("CALLGATE_TEST_WHEELS")
        .expect("this test runs by `cargo xtask test`, which fetches the wheels");
    for users in Users::all() {
        let stand = Stand::new(
            users,
            &home,
            &[
                (
                    "test_sum.py",
                    "def test_sum():\n    assert sum([1, 2]) == 3\n",
                ),
                ("pool.py", POOL),
            ],
        );
        assert_eq!(stand.run(&["python3", "pool.py"]), "[1, 4, 9]\n");
        stand.copy_in(wheels.as_ref(), "wheels");
        stand.run(&["python3", "-m", "venv", "env"]);
        let install = ["install", "--no-index", "--find-links", "wheels", "pytest"];
        stand.run(&[&["env/bin/pip"], &install[..]].concat());
        let tested = stand.run(&["env/bin/pytest", "-q", "test_sum.py"]);
        assert!(tested.contains("1 passed"), "{tested}");
    }
}

const POOL: &str = "import multiprocessing

def square(number):
    return number * number

if __name__ == '__main__':
    with multiprocessing.Lock(), multiprocessing.Pool(2) as pool:
        print(pool.map(square, [1, 2, 3]))
";

/// `npm ci`, with a package from a tarball whose script is run.
#[test]
fn npm() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = Stand::new(
            users,
            &home,
            &[
                (
                    "package.json",
                    "{\"name\":\"demo\",\"version\":\"1.0.0\",\
                      \"dependencies\":{\"other\":\"file:other-1.0.0.tgz\"}}",
                ),
                (
                    "other/package.json",
                    "{\"name\":\"other\",\"version\":\"1.0.0\",\"main\":\"index.js\",\
                      \"scripts\":{\"postinstall\":\"node -e 'fs.writeFileSync(`made`, `x`)'\"}}",
                ),
                ("other/index.js", "module.exports = () => 7;\n"),
            ],
        );
        let offline = ["--offline", "--no-audit", "--no-fund"];
        stand.run(&["npm", "pack", "./other", "--offline"]);
        let lock = ["npm", "install", "--package-lock-only"];
        stand.run(&[&lock[..], &offline].concat());
        stand.run(&[&["npm", "ci"][..], &offline].concat());
        assert!(stand.read("node_modules/other/made").is_some());
        assert_eq!(stand.run(&["node", "-p", "require('other')()"]), "7\n");
    }
}

/// `go build`, with a module from the owner's module cache, and `make`.
#[test]
fn go_and_make() {
    let home = OwnerHome::new();
    for (name, text) in [
        ("list", "v1.0.0\n"),
        ("v1.0.0.info", "{\"Version\":\"v1.0.0\"}"),
        ("v1.0.0.mod", "module example.com/other\n"),
    ] {
        home.write(
            &format!("go/pkg/mod/cache/download/example.com/other/@v/{name}"),
            text,
        );
    }
    let zip = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as module:\n\
        \x20   at = 'example.com/other@v1.0.0/'\n\
        \x20   module.writestr(at + 'go.mod', 'module example.com/other\\n')\n\
        \x20   module.writestr(at + 'other.go', 'package other\\n\\nfunc Seven() int { return 7 }\\n')\n";
    let mut maker = std::process::Command::new(drive::python());
    let to = home.join("go/pkg/mod/cache/download/example.com/other/@v/v1.0.0.zip");
    run(maker.args(["-c", zip]).arg(to)).good();
    for users in Users::all() {
        let stand = Stand::new(
            users,
            &home,
            &[
                (
                    "go.mod",
                    "module demo\n\nrequire example.com/other v1.0.0\n",
                ),
                (
                    "main.go",
                    "package main\n\nimport \"example.com/other\"\n\n\
                     func main() { println(other.Seven()) }\n",
                ),
                (
                    "Makefile",
                    "built: main.go\n\tgo build -mod=mod -o built .\n",
                ),
            ],
        );
        // The module is nobody's in the world, and no server knows its sum.
        let env = json!({ "GONOSUMDB": "example.com", "CGO_ENABLED": "0" });
        stand.run_with(&["make"], &env);
        let ended = stand.exec(&json!({ "command": "./built" }));
        assert_eq!(ended["stderr"], "7\n", "{ended}");
    }
}

/// Nothing else of the owner's home can be read, by path or by list, from any kind of
/// program; and with `toolchains = false` nothing at all.
#[test]
fn the_rest_of_the_home_is_closed() {
    let home = OwnerHome::new().with_rust();
    for users in Users::all() {
        let stand = Stand::new(users, &home, &[]);
        let list = home.join("");
        let files = SECRETS.map(|name| home.join(name).display().to_string());
        let script = format!(
            "cat {}; ls -a {} {}/.cargo; cat {}/.rustup/settings.toml; true",
            files.join(" "),
            list.display(),
            list.display(),
            list.display(),
        );
        let seen = stand
            .exec(&json!({ "command": "sh", "args": ["-c", script] }))
            .to_string();
        assert!(!seen.contains(SECRET), "{}: {seen}", users.name());
        for name in [
            ".gitconfig\\n",
            ".ssh\\n",
            "credentials.toml\\n",
            "default_toolchain",
        ] {
            assert!(!seen.contains(name), "{}: {name}: {seen}", users.name());
        }
        let toolchains = home.join(".rustup/toolchains").display().to_string();
        stand.run(&["ls", &toolchains]);
        stand.write("callgate.toml", "[exec]\ntoolchains = false\n");
        // As a restriction it holds before anybody trusts it.
        let closed = stand.exec(&json!({ "command": "ls", "args": [toolchains] }));
        assert_ne!(closed["exit_code"], 0, "{closed}");
        stand.cli(&["trust"]).good();
        let closed = stand.exec(&json!({ "command": "ls", "args": [toolchains] }));
        assert_ne!(closed["exit_code"], 0, "{closed}");
    }
}

/// `doctor` names the folders in force, for people and for programs.
#[test]
fn doctor_names_them() {
    let home = OwnerHome::new().with_rust();
    for users in Users::all() {
        let stand = Stand::new(users, &home, &[]);
        let toolchains = home.join(".rustup/toolchains");
        let told = |stand: &Stand<'_>| {
            let text = stand.cli(&["doctor"]).out;
            let data = stand.cli(&["doctor", "--json"]).json();
            let in_text = text.contains(&format!("{}", toolchains.display()));
            let paths = data["toolchains"].as_array().expect("a list").clone();
            let in_data = paths.iter().any(|one| one["path"] == json!(toolchains));
            let others = paths
                .iter()
                .any(|one| one["path"] == json!(home.join(".cargo")));
            (in_text, in_data, others)
        };
        assert_eq!(told(&stand), (true, true, false));
        stand.write("callgate.toml", "[exec]\ntoolchains = false\n");
        stand.cli(&["trust"]).good();
        assert_eq!(told(&stand), (false, false, false));
    }
}

/// A page whose words are made by a script.
const PAGE: &str = "<body style='background: rgb(0, 170, 0)'><p id=p>plain</p>\
    <script>document.getElementById('p').textContent = 'made ' + 'by script'</script></body>";

/// `--no-sandbox`: the browser's own sandbox wants namespaces, which programs do not get to make.
/// It is confined as a whole instead.
const CHROMIUM: &str = "chromium --headless --no-sandbox --disable-gpu \
    --window-size=200,100";

/// S-1, R-9. A headless Chromium takes a picture of a local page: by `exec/run` as it is, with
/// network, and as a tool.
#[test]
fn chromium() {
    let home = OwnerHome::new();
    for users in Users::all() {
        // `/proc` of its own takes a pid namespace, which only root can have.
        let reads = match users.gate {
            0 => "",
            _ => "reads = [\"/proc\"]\n",
        };
        let tool = format!(
            "{reads}[[tool]]\nname = \"shot\"\ncode = [\"shot.sh\"]\nwrites = [\"out\"]\nnetwork = true\nipc = true\n{reads}\
             input_schema = {{ type = \"object\" }}\n\
             runner = {{ kind = \"process\", command = [\"/bin/sh\", \"shot.sh\"] }}\n"
        );
        let shot = format!(
            "export HOME=$TMPDIR\n{CHROMIUM} --screenshot=$PWD/out/tool.png file://$PWD/page.html >/dev/null 2>&1\n\
             echo '{{}}'\n"
        );
        let plain = format!("[exec]\n{tool}");
        let files = [
            ("callgate.toml", &*plain),
            ("page.html", PAGE),
            ("shot.sh", &shot),
        ];
        let stand = Stand::new(users, &home, &files);
        let picture = |name: &str| {
            let bytes = stand.read(name).unwrap_or_default();
            let is_png = bytes.starts_with(b"\x89PNG\r\n\x1a\n");
            assert!(is_png, "{name} as {}: {} bytes", users.name(), bytes.len());
            let side = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
            assert_eq!((side(16), side(20)), (200, 100), "{name}");
        };
        let browse = |what: &str| {
            let script = format!("{CHROMIUM} {what} file://$PWD/page.html 2>/dev/null");
            stand.run(&["sh", "-c", &script])
        };
        let page = browse("--dump-dom");
        assert!(page.contains("made by script"), "{page}");
        browse("--screenshot=shot.png");
        picture("shot.png");
        // An executor is held as programs are; this one streams nothing, which is the run's failure.
        let script = format!("{CHROMIUM} --screenshot=run.png file://$PWD/page.html >&2");
        let run = json!({ "command": ["sh", "-c", script] }).to_string();
        stand.cli(&["call", "runs/start", &run]);
        picture("run.png");
        stand.call("shot", &json!({}));
        picture("out/tool.png");
        let open = format!("[exec]\nnetwork = true\nipc = true\n{tool}");
        stand.write("callgate.toml", &open);
        stand.cli(&["trust"]).good();
        browse("--screenshot=open.png");
        picture("open.png");
    }
}

/// The answer of a call that an approval lets through, by way of that approval.
fn approved(stand: &Stand<'_>, params: &Value) -> Value {
    let input = params.to_string();
    let asked = run(stand
        .callgate()
        .args(["call", "--json", "exec/run", &input]));
    let text = format!("{}{}", asked.out, asked.err);
    let answer: Value = text
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("{text}"));
    let id = answer["fault"]["data"]["approval"].as_str();
    let id = id.unwrap_or_else(|| panic!("no approval is asked for: {answer}"));
    stand.cli(&["approvals", "grant", id]).good();
    stand.call("exec/run", params)
}

/// A call that somebody has approved has a home that nobody has used, and that is gone with
/// it; what an unapproved one has left does not count, and stays.
#[test]
fn an_approved_call_has_a_fresh_home() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = Stand::new(users, &home, &[]);
        stand.run(&["sh", "-c", "echo planted > ~/.gitconfig"]);
        let ask = "[[policy]]\ntools = [\"exec/run\"]\ndecision = \"ask\"\n";
        stand.write("callgate.toml", ask);
        stand.cli(&["trust"]).good();
        let look = json!({ "command": "sh", "args": ["-c", "ls -A ~; pwd -P; cd && pwd -P; echo x > ~/y"] });
        let ended = approved(&stand, &look);
        let said = ended["stdout"].as_str().expect("text");
        assert!(!said.contains(".gitconfig"), "{said}");
        let fresh = said.lines().last().expect("its home").to_owned();
        assert!(fresh.contains("/fresh/"), "{fresh}");
        assert!(!std::path::Path::new(&fresh).exists());
        stand.write("callgate.toml", "");
        stand.cli(&["trust"]).good();
        assert_eq!(stand.run(&["sh", "-c", "cat ~/.gitconfig"]), "planted\n");
    }
}

/// What a killed gate leaves of a fresh home is gone with the next one.
#[test]
fn a_fresh_home_of_a_killed_gate_goes() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let ask = "[[policy]]\ntools = [\"exec/run\"]\ndecision = \"ask\"\n";
        let stand = Stand::new(users, &home, &[("callgate.toml", ask)]);
        let mut host = Host::spawn(stand.callgate().arg("rpc"));
        let script = "echo x > ~/x; echo $HOME > started; exec sleep 1000";
        let request = |id: u64| {
            json!({
                "jsonrpc": "2.0", "id": id, "method": "exec/run",
                "params": { "command": "sh", "args": ["-c", script] },
            })
        };
        let asked = host.ask(&request(1));
        let id = asked["error"]["data"]["approval"].as_str();
        let id = id.unwrap_or_else(|| panic!("{asked}"));
        stand.cli(&["approvals", "grant", id]).good();
        assert!(host.send(&request(2)));
        let fresh = wait_for("its home", || {
            let told = String::from_utf8(stand.read("started")?).ok()?;
            told.strip_suffix('\n').map(PathBuf::from)
        });
        host.kill();
        assert!(fresh.to_string_lossy().contains("/fresh/"), "{fresh:?}");
        approved(&stand, &json!({ "command": "true" }));
        let left = std::fs::read_dir(fresh.parent().expect("a folder")).expect("its entries");
        assert_eq!(left.count(), 0);
    }
}

/// Without mount namespaces the home is there, and closed all the same.
#[test]
fn without_mounts_the_home_is_closed() {
    let home = OwnerHome::new().with_rust();
    for users in Users::all() {
        // Root's own things are seen to by mounts, so that it takes the owner's word.
        let word = "[exec]\nallow_unsafe_execution = true\n";
        let stand = Stand::new(users, &home, &[("callgate.toml", word)]);
        for name in SECRETS {
            let params =
                json!({ "command": "cat", "args": [home.join(name)], "timeout_ms": 60_000 });
            let mut command = stand.callgate();
            let input = params.to_string();
            command
                .args(["call", "exec/run", &input])
                .env("CALLGATE_HIDE", "mountns");
            let ended = run(&mut command).good().json();
            assert_eq!(
                (&ended["exit_code"], &ended["stdout"]),
                (&json!(1), &json!("")),
                "{ended}"
            );
        }
        let mut command = stand.callgate();
        let input = json!({ "command": "cargo", "args": ["--version"] }).to_string();
        command
            .args(["call", "exec/run", &input])
            .env("CALLGATE_HIDE", "mountns");
        let ended = run(&mut command).good().json();
        assert_eq!(ended["exit_code"], 0, "{ended}");
    }
}

/// A home past its bound is emptied before its next use, and the workspace is not.
#[test]
fn a_home_is_bounded() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let config = "[exec]\nhome_max_bytes = 1048576\n";
        let stand = Stand::new(users, &home, &[("callgate.toml", config)]);
        stand.run(&[
            "sh",
            "-c",
            "head -c 2000000 /dev/zero > ~/big && cp ~/big big",
        ]);
        // As if a minute had passed: how large it was is known for so long.
        for entry in std::fs::read_dir(stand.homes()).expect("homes").flatten() {
            if entry.path().extension().is_some_and(|end| end == "size") {
                std::fs::remove_file(entry.path()).expect("a count");
            }
        }
        assert_eq!(stand.run(&["sh", "-c", "ls -A ~"]), "");
        assert_eq!(
            stand.read("big").expect("a file of the workspace").len(),
            2_000_000
        );
        let refused = stand.cli(&["trust", "--show"]);
        assert!(refused.status.success(), "{refused:?}");
        stand.write("callgate.toml", "[exec]\nhome_max_bytes = 5\n");
        let refused = stand.cli(&["trust"]);
        assert!(refused.err.contains("exec.home_max_bytes"), "{refused:?}");
    }
}

/// Terminals and runs live in the same home as `exec/run`.
#[test]
fn one_home_for_all_ways_to_run() {
    let home = OwnerHome::new();
    for users in Users::all() {
        let stand = Stand::new(users, &home, &[]);
        let said = stand.run(&["sh", "-c", "echo $HOME"]);
        let mut host = Host::spawn(stand.callgate().arg("rpc"));
        let words = ["-c", "echo $HOME > $0; echo x > ~/$0"];
        let terminal = json!({ "command": "sh", "args": [words[0], words[1], "terminal"] });
        let run = json!({ "command": ["sh", words[0], words[1], "run"] });
        for (id, (method, params)) in [("terminals/create", terminal), ("runs/start", run)]
            .into_iter()
            .enumerate()
        {
            host.ask(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        }
        for name in ["terminal", "run"] {
            let told = wait_for(name, || {
                let bytes = stand.read(name)?;
                bytes.ends_with(b"\n").then_some(bytes)
            });
            assert_eq!(String::from_utf8_lossy(&told), said, "{name}");
        }
        host.end();
        assert_eq!(stand.run(&["sh", "-c", "ls ~"]), "run\nterminal\n");
        // Nobody else's, though they are of the same user.
        let other = stand.homes().join("other");
        std::fs::create_dir(&other).expect("another home");
        std::fs::write(other.join("mark"), "marked").expect("a mark");
        give(&other, users.owner);
        let script = format!("cat {0}/mark; ls {0}; echo x > {0}/y", other.display());
        let seen = stand.exec(&json!({ "command": "sh", "args": ["-c", script] }));
        assert!(!seen.to_string().contains("marked"), "{seen}");
        assert!(!other.join("y").exists(), "{seen}");
    }
}
