//! What a command, an entry and variables name as code: chains of links, other spellings of a path,
//! and programs that start programs. All of it is closed to callers of `files/*`. G-9d.

use std::os::unix::fs::symlink;

use callgate_testing::python;
use callgate_testing::scripts::folder_of;
use serde_json::json;

use crate::loaded_code::{PLANTED, closed, write};
use crate::support::calls::{call, output, refusal};
use crate::support::in_process::{Folder, trust};

const MINE: &str = "echo '\"mine\"'\n";
const MINE_PYTHON: &str = "print('\"mine\"')\n";

/// `[[tool]]` of the name `t` with this runner.
fn tool_of(runner: &str, more: &str) -> String {
    format!("[[tool]]\nname = \"t\"\ninput_schema = {{}}\n{more}\nrunner = {{ {runner} }}\n")
}

/// `[[tool]]` of the name `t` that runs a command.
fn program_of(command: &[&str], more: &str) -> String {
    let command = json!(command);
    tool_of(&format!("kind = \"process\", command = {command}"), more)
}

fn links(folder: &Folder, links: &[(&str, &str)]) {
    for (link, target) in links {
        let place = folder.join(link);
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("folders");
        symlink(target, place).expect("a link");
    }
}

/// Attacks a trusted workspace by `files/*`: neither link nor file can be replaced.
fn attacked(folder: &Folder, what: &str, paths: &[&str], removed: &[&str]) {
    for path in removed {
        let deleted = call(folder, "files/delete", &json!({ "path": path }));
        assert!(deleted.is_err(), "{what}: {path} was deleted");
        let moved = json!({ "from": path, "to": "elsewhere" });
        let moved = call(folder, "files/move", &moved);
        assert!(moved.is_err(), "{what}: {path} was moved");
    }
    for path in paths {
        let words = match write(folder, path, PLANTED) {
            Ok(_) => panic!("{what}: {path} was written"),
            Err(fault) => fault.to_string(),
        };
        assert!(words.contains("gate's own"), "{what}: {path}: {words}");
    }
}

/// G-9d. Of a chain of links every one is closed, whatever names it: a command, an entry, `code`.
#[test]
fn every_link_of_a_chain_is_closed() {
    let python = python();
    let node = std::env::var("CALLGATE_TEST_NODE").unwrap_or_else(|_| "node".to_owned());
    let entry = |entry: &str, more: &str| {
        let runner = format!("kind = \"python\", entry = \"{entry}\", python = \"{python}\"");
        tool_of(&runner, more)
    };
    let node = format!("kind = \"node\", entry = \"app/n.mjs:run\", node = \"{node}\"");
    let app = [("app", "current"), ("current", "releases/v1")];
    let function = "def run(payload):\n    return 'mine'\n";
    let listed = "def run(payload):\n    from lib import words\n    return words.WORD\n";
    let export = "export const run = () => 'mine';\n";
    type Case<'a> = (String, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 7] = [
        (
            program_of(&[&python, "app/run.py"], ""),
            &app,
            &[("releases/v1/run.py", MINE_PYTHON)],
        ),
        (
            entry("pkg.a:run", ""),
            &[("pkg", "cur"), ("cur", "src/pkg")],
            &[("src/pkg/a.py", function), ("src/pkg/__init__.py", "")],
        ),
        (tool_of(&node, ""), &app, &[("releases/v1/n.mjs", export)]),
        (
            entry("report:run", "code = [\"lib/**\"]"),
            &[("lib", "cur"), ("cur", "vendor/lib2")],
            &[
                ("vendor/lib2/words.py", "WORD = 'mine'\n"),
                ("report.py", listed),
            ],
        ),
        (
            program_of(&["/bin/sh", "tools/run"], ""),
            &[("tools/run", "../other/mid"), ("other/mid", "../real/run")],
            &[("real/run", MINE)],
        ),
        (
            program_of(&["/bin/sh", "a/b/run"], ""),
            &[("a/b", "../c/d"), ("c/d", "../e"), ("e", "f/g")],
            &[("f/g/run", MINE)],
        ),
        (
            program_of(&["/bin/sh", "jobs/run"], ""),
            &[("jobs/part", "../mid"), ("mid", "real/part")],
            &[("real/part", MINE), ("jobs/run", ". jobs/part\n")],
        ),
    ];
    for (config, chain, files) in cases {
        let folder = folder_of(files);
        folder.write("callgate.toml", &config);
        links(&folder, chain);
        trust(&folder);
        assert_eq!(output(&folder, "t"), "mine", "{config}");
        let names: Vec<&str> = chain.iter().map(|(link, _)| *link).collect();
        let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
        attacked(&folder, &config, &paths, &names);
        assert_eq!(output(&folder, "t"), "mine", "{config}");
    }

    let folder = folder_of(&[
        ("callgate.toml", "[exec]\nallow = [\"./ci.sh\"]\n"),
        ("real/ci.sh", MINE),
    ]);
    links(&folder, &[("ci.sh", "mid.sh"), ("mid.sh", "real/ci.sh")]);
    trust(&folder);
    attacked(&folder, "exec.allow", &["real/ci.sh"], &["ci.sh", "mid.sh"]);
}

/// G-9d. A path with `..`, and one that reaches the workspace by another name, are the files that
/// they lead to.
#[test]
fn other_spellings_of_a_path_are_closed() {
    let outer = Folder::new();
    let folder = folder_of(&[
        ("tools/run", MINE),
        ("py/bin/python3", "#!/bin/sh\n"),
        ("py/lib/x.py", ""),
        ("lib/index.js", ""),
        ("b/cat", ""),
        ("rc/env", ""),
        ("x/keep", ""),
    ]);
    folder.executable("b/run", "#!/bin/sh\necho '\"mine\"'\n");
    symlink(folder.path(), outer.join("alias")).expect("a link");
    let alias = outer.join("alias/tools/run");
    let alias = alias.to_str().expect("a text path");
    let own = folder.path().file_name().expect("a name");
    let around = format!("../{}/tools/run", own.to_str().expect("a text name"));
    let env = |name: &str, value: &str| {
        tool_of(
            &format!(
                "kind = \"process\", command = [\"/bin/true\"], env = {{ {name} = \"{value}\" }}"
            ),
            "",
        )
    };
    let of_python = "kind = \"python\", entry = \"m:f\", python = \"x/../py/bin/python3\"";
    let cases = [
        (program_of(&["x/../b/run"], ""), "b/run"),
        (
            program_of(&["/bin/sh", "tools/../tools/run"], ""),
            "tools/run",
        ),
        (program_of(&["/bin/sh", "x/../tools/run"], ""), "tools/run"),
        (program_of(&["/bin/sh", "x/../tools/run"], ""), "x"),
        (program_of(&["/bin/sh", &around], ""), "tools/run"),
        (program_of(&["/bin/sh", ".//tools/./run"], ""), "tools/run"),
        (
            program_of(&["/bin/sh", "/proc/self/cwd/tools/run"], ""),
            "tools/run",
        ),
        (program_of(&["/bin/sh", alias], ""), "tools/run"),
        (program_of(&[alias], ""), "tools/run"),
        (program_of(&["nice", "/bin/sh", alias], ""), "tools/run"),
        (
            tool_of("kind = \"pool\", command = [\"x/../b/run\"]", ""),
            "b/run",
        ),
        (tool_of(of_python, ""), "py/lib/x.py"),
        (env("NODE_PATH", "lib/../lib"), "lib/index.js"),
        (env("PATH", "/usr/bin:b/../b"), "b/cat"),
        (env("BASH_ENV", "x/../rc/env"), "rc/env"),
        (
            "[planner]\ncommand = [\"/bin/sh\", \"x/../tools/run\"]\n".to_owned(),
            "tools/run",
        ),
        (
            "[pilot]\npolicy = [\"/bin/sh\", \"x/../tools/run\"]\n".to_owned(),
            "tools/run",
        ),
        ("[exec]\nallow = [\"x/../b/run\"]\n".to_owned(), "b/run"),
    ];
    for (config, path) in cases {
        folder.write("callgate.toml", &config);
        trust(&folder);
        attacked(&folder, &config, &[path], &[path]);
    }
    links(&folder, &[("here", ".")]);
    for command in [
        ["python3", "here"],
        ["python3", "x/.."],
        ["python3", "tools/../"],
    ] {
        folder.write("callgate.toml", &program_of(&command, ""));
        assert!(refusal(&folder).contains("root"), "{command:?}");
    }
}

/// G-9d. What a command names in the workspace is code, whichever program of it reads the name.
#[test]
fn programs_that_start_programs() {
    let files = [
        ("tools/common", "go() { echo '\"mine\"'; }\n"),
        ("tools/x.py", MINE_PYTHON),
        ("tools/x.pl", "use Word; print $Word::WORD;\n"),
        ("tools/p", "BEGIN { print \"\\\"mine\\\"\" }\n"),
        ("lib/Word.pm", "package Word; our $WORD = '\"mine\"'; 1;\n"),
        ("lib/words.py", ""),
    ];
    let folder = folder_of(&files);
    folder.executable("tools/run", "#!/bin/sh\necho '\"mine\"'\n");
    let cases: [(&[&str], &str); 14] = [
        (&["env", "-u", "X", "sh", "tools/run"], "tools/run"),
        (&["sh", "-c", "tools/run"], "tools/run"),
        (&["sh", "-c", ". tools/common && go"], "tools/common"),
        (&["sh", "-c", "sh tools/run"], "tools/run"),
        (&["sh", "-c", "exec $PWD/tools/run"], "tools/run"),
        (&["sh", "-c", "cd tools; sh run"], "tools/run"),
        (
            &["sh", "-c", "for f in tools/ru*; do . $f; done"],
            "tools/run",
        ),
        (
            &["xargs", "-a", "/dev/null", "sh", "-c", ". tools/run"],
            "tools/run",
        ),
        (&["nice", "tools/run"], "tools/run"),
        (&["setsid", "-w", "sh", "tools/run"], "tools/run"),
        (
            &["find", "tools", "-name", "run", "-exec", "tools/run", ";"],
            "tools/run",
        ),
        (&["perl", "-Ilib", "tools/x.pl"], "lib/Word.pm"),
        (&["awk", "-ftools/p"], "tools/p"),
        (&["timeout", "9", "tools/run"], "tools/common"),
    ];
    for (command, path) in cases {
        // A word such as `go` may be a program that loads from its folder.
        folder.write("callgate.toml", &program_of(command, ""));
        if command.contains(&". tools/common && go") {
            assert!(refusal(&folder).contains("`go`"), "{command:?}");
            let config = program_of(command, "code = [\"tools/**\"]");
            folder.write("callgate.toml", &config);
        }
        trust(&folder);
        let what = format!("{command:?}");
        assert_eq!(output(&folder, "t"), "mine", "{what}");
        attacked(&folder, &what, &[path], &[path]);
        assert_eq!(output(&folder, "t"), "mine", "{what}");
    }
    let perl =
        "kind = \"process\", command = [\"perl\", \"tools/x.pl\"], env = { PERLLIB = \"lib\" }";
    let python = ["env", "PYTHONPATH=lib", "python3", "tools/x.py"];
    for config in [tool_of(perl, ""), program_of(&python, "")] {
        folder.write("callgate.toml", &config);
        trust(&folder);
        attacked(&folder, &config, &["lib/Word.pm", "lib/csv.py"], &["lib"]);
    }

    let cases: [&[&str]; 10] = [
        &["timeout", "9", "make", "-s", "x"],
        &["timeout", "9", "python3", "-m", "pkg"],
        &["env", "-S", "python3 -m pkg"],
        &["env", "-u", "X", "python3", "-m", "pkg"],
        &["sh", "-c", "make -s x"],
        &["sh", "-ce", "true; make -s x"],
        &["nice", "python3", "-mpkg", "x"],
        &["sh", "-c", "true; python3 -m pkg"],
        &["xargs", "npm", "run"],
        &["perl", "-I.", "tools/x.pl"],
    ];
    for command in cases {
        folder.write("callgate.toml", &program_of(command, ""));
        assert!(refusal(&folder).contains("code = ["), "{command:?}");
        let config = program_of(command, "code = [\"pkg/**\"]");
        folder.write("callgate.toml", &config);
        trust(&folder);
        closed(&folder, "pkg/__main__.py");
    }
}

/// G-9d. What tools write, and what `reads` names, stays open to callers: it is data.
#[test]
fn data_that_a_command_names_stays_open() {
    let folder = folder_of(&[
        ("in/a.txt", ""),
        ("work/out/a.txt", ""),
        ("work/b.txt", ""),
        ("docs/a.txt", ""),
    ]);
    let command = ["/bin/ls", "in", "--hide=docs", "work"];
    let more = "reads = [\"in\", \"docs\"]\nwrites = [\"work/out\"]";
    folder.write("callgate.toml", &program_of(&command, more));
    trust(&folder);
    for path in ["in/a.txt", "docs/b.txt", "work/out/a.txt", "c.txt"] {
        write(&folder, path, "x").expect("it is open");
    }
    closed(&folder, "work/b.txt");
}
