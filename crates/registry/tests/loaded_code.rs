//! What a tool's process loads as code from the workspace: closed to callers, or not loaded. G-9d.

use std::os::unix::fs::symlink;

use callgate_call::Fault;
use callgate_registry::candidate::Candidate;
use callgate_registry::declared::Declarations;
use callgate_testing::python;
use callgate_testing::scripts::folder_of;
use serde_json::{Value, json};

use crate::support::calls::{call, failure, output, refusal};
use crate::support::in_process::{Folder, Opened, trust, trusted_with};

/// A tool that says where its modules come from.
const REPORT: &str = "\
import csv

def run(payload):
    return csv.__file__

def helper(payload):
    import helper
    return helper.WORD

def lib(payload):
    from lib import words
    return words.WORD

def spawned(payload):
    import subprocess, sys
    code = 'import csv; print(csv.__file__)'
    return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout.strip()
";

pub const PLANTED: &str = "WORD = 'planted'\nraise SystemExit('planted code ran')\n";

/// `[[tool]]` of these names: functions of `report.py`, with more lines.
fn functions(names: &[&str], more: &str) -> String {
    let tool = |name: &&str| {
        format!(
            "[[tool]]\nname = \"{name}\"\ninput_schema = {{}}\n{more}\n\
             runner = {{ kind = \"python\", entry = \"report:{name}\", python = \"{}\" }}\n",
            python()
        )
    };
    names.iter().map(tool).collect()
}

pub fn write(folder: &Folder, path: &str, content: &str) -> Result<Value, Fault> {
    let input = json!({ "path": path, "content": content, "overwrite": true });
    call(folder, "files/write", &input)
}

/// A path that callers cannot write, by the gate's word.
pub fn closed(folder: &Folder, path: &str) {
    let fault = write(folder, path, PLANTED).expect_err("it was written");
    let words = fault.to_string();
    assert!(words.contains("gate's own"), "{path}: {words}");
}

/// Runs a shell line by `exec/run`, which may write the whole workspace.
fn shell(folder: &Folder, line: &str) -> Value {
    let input = json!({ "command": line, "shell": true });
    call(folder, "exec/run", &input).expect("a shell")
}

/// Whether this machine can mount, without which a wide root leaves open what is in it (G-9b).
fn can_mount(folder: &Folder) -> bool {
    let facts = Opened::new(folder).parts.spawner.facts();
    facts.mount_namespace && rustix::process::geteuid().is_root()
}

/// The code that is not listed, as the owner is shown it before the configuration is trusted.
fn unlisted(folder: &Folder) -> String {
    let opened = Opened::new(folder);
    let candidate = Candidate::read(&opened.parts, Declarations::default());
    let candidate = candidate.expect("a configuration that reads");
    candidate.unlisted(&opened.parts).join("\n")
}

/// G-9d. A module of the workspace hides none of the standard library, however it got there:
/// not in a tool, in a fork of it, in an interpreter that it starts, nor one that is text.
#[test]
fn a_planted_module_is_not_imported() {
    let config = functions(&["run", "spawned"], "")
        + &functions(&["run"], "isolation = \"call\"")
            .replace("\"run\"\ninput", "\"forked\"\ninput");
    let folder = trusted_with(&[("callgate.toml", &config), ("report.py", REPORT)]);
    for name in [
        "csv.py",
        "encodings.py",
        "contextlib.py",
        "sitecustomize.py",
        "usercustomize.py",
    ] {
        write(&folder, name, PLANTED).expect("it is open");
    }
    write(&folder, "csv/__init__.py", PLANTED).expect("it is open");
    for tool in ["run", "forked", "spawned"] {
        let file = output(&folder, tool);
        let file = file.as_str().expect("a path");
        let inside = folder.path().to_str().expect("a text path");
        assert!(
            file.ends_with("csv.py") && !file.starts_with(inside),
            "{tool}: {file}"
        );
    }
}

/// G-9d. Of the workspace only the entry's package and listed code can be imported, and the error
/// says what to list; what is listed is closed to callers.
#[test]
fn only_listed_code_is_imported() {
    let files = [
        ("report.py", REPORT),
        ("helper.py", "WORD = 'mine'\n"),
        ("lib/words.py", "WORD = 'mine'\n"),
    ];
    let config = functions(&["helper", "lib"], "");
    let folder = folder_of(&files);
    folder.write("callgate.toml", &config);
    trust(&folder);
    let told = failure(&folder, "helper");
    assert!(
        told.contains("code = [\\\"helper.py\\\"]") || told.contains("code = [\"helper.py\"]"),
        "{told}"
    );
    let told = failure(&folder, "lib");
    assert!(told.contains("lib/**"), "{told}");
    write(&folder, "helper.py", "WORD = 'theirs'\n").expect("it is open");
    closed(&folder, "report.py");

    folder.write("helper.py", "WORD = 'mine'\n");
    folder.write(
        "callgate.toml",
        &functions(&["helper", "lib"], "code = [\"helper.py\", \"lib/**\"]"),
    );
    trust(&folder);
    assert_eq!(output(&folder, "helper"), "mine");
    assert_eq!(output(&folder, "lib"), "mine");
    for path in [
        "helper.py",
        "lib/words.py",
        "lib/new.py",
        "report/__init__.py",
    ] {
        closed(&folder, path);
    }
    if can_mount(&folder) {
        shell(
            &folder,
            "echo \"WORD = 'theirs'\" > helper.py; mv lib lib.old; cp helper.py lib/words.py",
        );
        assert_eq!(output(&folder, "helper"), "mine");
        assert_eq!(output(&folder, "lib"), "mine");
    }
}

/// G-9d. Bytecode of the workspace is never loaded: neither a cache that claims to be of the
/// source, nor a module without source.
#[test]
fn bytecode_of_the_workspace_is_not_loaded() {
    const COMPILES: &str = "\
import importlib.util, os, py_compile, sys
cache = importlib.util.cache_from_source('lib/words.py')
open('planted.py', 'w').write(\"WORD = 'planted'\\n\")
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
py_compile.compile('planted.py', cfile=cache, invalidation_mode=mode)
py_compile.compile('planted.py', cfile='lib/bare.pyc', invalidation_mode=mode)
";
    const BARE: &str = "def run(payload):\n    from lib import bare\n    return bare.WORD\n";
    let config = functions(&["lib"], "code = [\"lib/**\"]")
        + &functions(&["run"], "code = [\"lib/**\"]").replace("report:run", "bare:run");
    let folder = folder_of(&[
        ("callgate.toml", &config),
        ("report.py", REPORT),
        ("bare.py", BARE),
        ("lib/words.py", "WORD = 'mine'\n"),
    ]);
    let compiled = std::process::Command::new(python())
        .args(["-c", COMPILES])
        .current_dir(folder.path())
        .status();
    assert!(compiled.expect("a Python").success());
    trust(&folder);
    assert_eq!(output(&folder, "lib"), "mine");
    assert!(failure(&folder, "run").contains("bare"));
}

/// G-9d. A module beside a folder of the entry's name does not take its place.
#[test]
fn a_module_beside_the_package_is_not_loaded() {
    let config = functions(&["run"], "").replace("report:run", "tools.report:run");
    let folder = trusted_with(&[("callgate.toml", &config), ("tools/report.py", REPORT)]);
    closed(&folder, "tools.py");
    shell(&folder, "echo \"raise SystemExit('planted')\" > tools.py");
    assert!(folder.join("tools.py").exists());
    output(&folder, "run");
}

/// G-9d. An entry whose name is taken by the standard library runs nothing else instead.
#[test]
fn an_entry_is_the_workspaces_or_nothing() {
    let config = functions(&["run"], "").replace("report:run", "platform:system");
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("platform.py", "def system(p): return 1\n"),
    ]);
    let told = failure(&folder, "run");
    assert!(told.contains("needs another name"), "{told}");
}

/// G-9d. The folder of a script is closed, for helpers beside it too, under all names of them.
#[test]
fn helpers_beside_a_script_are_closed() {
    let config = "[[tool]]\nname = \"job\"\ninput_schema = {}\n\
                  runner = { kind = \"process\", command = [\"/bin/sh\", \"jobs/run.sh\"] }\n";
    let folder = folder_of(&[
        ("callgate.toml", config),
        (
            "jobs/run.sh",
            ". jobs/helper.sh; . jobs/linked.sh; . jobs/second.sh; cat > /dev/null; echo '\"'$a$b$c'\"'\n",
        ),
        ("jobs/helper.sh", "a=mine\n"),
        ("common/linked.sh", "b=mine\n"),
        ("other/second.sh", "c=mine\n"),
    ]);
    symlink("../common/linked.sh", folder.join("jobs/linked.sh")).expect("a link");
    std::fs::hard_link(
        folder.join("other/second.sh"),
        folder.join("jobs/second.sh"),
    )
    .expect("a second name");
    trust(&folder);
    for path in [
        "jobs/helper.sh",
        "jobs/new.sh",
        "common/linked.sh",
        "other/second.sh",
    ] {
        closed(&folder, path);
    }
    for (from, to) in [
        ("jobs", "gone"),
        ("jobs/helper.sh", "gone"),
        ("common", "gone"),
    ] {
        let moved = call(&folder, "files/move", &json!({ "from": from, "to": to }));
        assert!(moved.is_err(), "{from} was moved");
    }
    if can_mount(&folder) {
        shell(
            &folder,
            "echo a=x > jobs/helper.sh; echo b=x > common/linked.sh; echo c=x > other/second.sh; mv jobs gone; mv common gone; ln jobs/helper.sh h; echo a=x > h",
        );
    }
    assert_eq!(
        output(&folder, "job"),
        "minemineminemine".replacen("mine", "", 1)
    );
}

/// G-9d. Where it is not known what a tool loads, `trust` refuses and says what to list.
#[test]
fn trust_asks_for_the_code_of_scripts_in_the_root() {
    let runner = |command: &str| {
        format!(
            "[[tool]]\nname = \"t\"\ninput_schema = {{}}\nLINE\nrunner = {{ kind = \"process\", command = {command} }}\n"
        )
    };
    let tool = runner("[\"/bin/sh\", \"run.sh\"]");
    let root = Folder::new();
    let absolute = runner(&format!(
        "[\"/bin/sh\", \"{}/run.sh\"]",
        root.path().display()
    ));
    let planner = "[planner]\ncommand = [\"/bin/sh\", \"run.sh\"]\nLINE\n".to_owned();
    let pilot = "[pilot]\npolicy = [\"/bin/sh\", \"run.sh\"]\nLINE\n".to_owned();
    let executor = tool.replace("process", "executor");
    let pool = tool.replace("process", "pool");
    let shell = runner("[\"/bin/sh\", \"-c\", \". ./run.sh; x\"]");
    let option = runner("[\"node\", \"--require=./run.sh\", \"-p\", \"1\"]");
    let direct = runner("[\"./run.sh\"]");
    for config in [
        tool, absolute, planner, pilot, executor, pool, shell, option, direct,
    ] {
        root.write("run.sh", "cat\n");
        root.write("callgate.toml", &config.replace("LINE", ""));
        let told = refusal(&root);
        assert!(
            told.contains("run.sh") && told.contains("code = [\"run.sh\"]"),
            "{config}: {told}"
        );
        assert!(unlisted(&root).contains("run.sh"), "{config}");
        root.write(
            "callgate.toml",
            &config.replace("LINE", "code = [\"run.sh\"]"),
        );
        trust(&root);
        closed(&root, "run.sh");
    }
    for (command, word) in [
        ("[\"make\", \"x\"]", "Makefile"),
        ("[\"npm\", \"run\", \"x\"]", "package.json"),
        ("[\"python3\", \"-m\", \"tools.x\"]", "-m"),
        ("[\"python3\", \"-c\", \"import x\"]", "-c"),
        ("[\"python3\", \".\"]", "root"),
    ] {
        root.write("callgate.toml", &runner(command).replace("LINE", ""));
        let told = refusal(&root);
        assert!(told.contains(word), "{command}: {told}");
    }
    for (line, word) in [
        ("code = [\"*.py\"]", "*.py"),
        ("code = [\"../x\"]", "../x"),
        ("code = [\".\"]", "`.`"),
    ] {
        let config = runner("[\"/bin/cat\"]").replace("LINE", line);
        root.write("callgate.toml", &config);
        let told = refusal(&root);
        assert!(told.contains(word), "{line}: {told}");
    }
    root.write("jobs/run.sh", "cat\n");
    let config =
        runner("[\"/bin/sh\", \"jobs/run.sh\"]").replace("LINE", "writes = [\"jobs/data\"]");
    root.write("callgate.toml", &config);
    assert!(refusal(&root).contains("jobs/data"));
}

/// G-9d. Variables that name code: a folder is closed, the root is refused.
#[test]
fn variables_that_name_code() {
    let tool = |value: &str| {
        format!(
            "[[tool]]\nname = \"t\"\ninput_schema = {{}}\n\
             runner = {{ kind = \"python\", entry = \"report:run\", env = {{ PYTHONPATH = \"{value}\" }} }}\n"
        )
    };
    let folder = folder_of(&[("report.py", REPORT), ("lib/words.py", "")]);
    for root in [".", ":/usr/x", folder.path().to_str().expect("a path")] {
        folder.write("callgate.toml", &tool(root));
        assert!(refusal(&folder).contains("PYTHONPATH"), "{root}");
    }
    folder.write("callgate.toml", &tool("lib"));
    trust(&folder);
    closed(&folder, "lib/sitecustomize.py");
}

/// G-9d. A Python program in the root has that folder on its path; a planted module is passed
/// over all the same.
#[test]
fn python_programs_are_held_too() {
    let tool = |name: &str, words: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\ninput_schema = {{}}\ncode = [\"job.py\", \"words.py\"]\n\
             runner = {{ kind = \"process\", command = [\"{}\", {words}] }}\n",
            python()
        )
    };
    let config = tool("script", "\"job.py\"") + &tool("module", "\"-m\", \"job\"");
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        (
            "job.py",
            "import csv, json, words\nprint(json.dumps([csv.__file__, words.WORD]))\n",
        ),
        ("words.py", "WORD = 'mine'\n"),
    ]);
    write(&folder, "csv.py", PLANTED).expect("it is open");
    write(&folder, "json/__init__.py", PLANTED).expect("it is open");
    for name in ["script", "module"] {
        let told = output(&folder, name);
        assert!(
            !told[0]
                .as_str()
                .expect("a path")
                .starts_with(folder.path().to_str().expect("a path"))
        );
        assert_eq!(told[1], "mine");
    }
}

/// G-9d, TP-5. Functions that are not registered: the packages that patterns name are closed, and
/// a module that came after the gate's start is not run.
#[test]
fn allowed_entries_are_closed() {
    let config = "[service]\nallow_entries = [\"tools.*\", \"job*\"]\ncode = [\"lib/**\"]\n";
    let folder = trusted_with(&[
        ("callgate.toml", config),
        ("tools/a.py", "def run(p): return 1\n"),
        ("job_a.py", "def run(p): return 1\n"),
        ("other.py", ""),
        ("lib/x.py", ""),
    ]);
    for path in ["tools/a.py", "tools/b.py", "job_a.py", "lib/x.py"] {
        closed(&folder, path);
    }
    write(&folder, "other.py", "").expect("it is open");
}

/// G-9d. Packages of Node and virtual environments are closed where a tool loads from them, and
/// open to `npm ci` and `pip install` elsewhere.
#[test]
fn packages_are_closed_where_they_are_loaded() {
    let plain = trusted_with(&[("callgate.toml", "[exec]\nprocesses = 1000\n")]);
    for path in ["node_modules/a/index.js", ".venv/lib/x.py", "package.json"] {
        write(&plain, path, "{}").expect("it is open");
    }
    let told = shell(
        &plain,
        "echo 1 > node_modules/a/index.js; echo 1 > .venv/lib/x.py; mkdir -p .venv/bin; rm -r node_modules",
    );
    assert_eq!(told["exit_code"], 0, "{told}");

    let node = "[[tool]]\nname = \"n\"\ninput_schema = {}\nrunner = { kind = \"node\", entry = \"tools/n.mjs:run\" }\n";
    let folder = trusted_with(&[
        ("callgate.toml", node),
        ("tools/n.mjs", "export const run = () => 1;\n"),
        ("node_modules/a/index.js", ""),
    ]);
    for path in [
        "node_modules/a/index.js",
        "node_modules/b/index.js",
        "tools/node_modules/b.js",
        "package.json",
        "tools/x.mjs",
    ] {
        closed(&folder, path);
    }
    write(&folder, ".venv/x.py", "").expect("it is open");

    let folder = trusted_with(&[
        ("callgate.toml", &functions(&["run"], "")),
        ("report.py", REPORT),
    ]);
    closed(&folder, ".venv/lib/x.py");
    write(&folder, "node_modules/x.js", "").expect("it is open");

    let cli_of = |command: &str| {
        format!(
            "[[tool]]\nname = \"t\"\ninput_schema = {{}}\nrunner = {{ kind = \"process\", command = [\"{command}\"] }}\n"
        )
    };
    for (program, place) in [
        ("node_modules/.bin/x", "node_modules/y/z.js"),
        ("env/bin/x", "env/lib/y.py"),
    ] {
        let files = [
            ("env/lib/y.py", ""),
            ("env/bin/z", ""),
            ("node_modules/.bin/z", ""),
        ];
        let folder = folder_of(&files);
        folder.write("callgate.toml", &cli_of(program));
        folder.executable(program, "#!/bin/sh\n");
        trust(&folder);
        closed(&folder, place);
    }
}

/// G-9d. A Node tool loads nothing of the workspace but its folder, listed code and packages.
#[test]
fn node_tools_load_listed_code_only() {
    let node = std::env::var("CALLGATE_TEST_NODE").unwrap_or_else(|_| "node".to_owned());
    let tool = |name: &str, more: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\ninput_schema = {{}}\n{more}\n\
             runner = {{ kind = \"node\", entry = \"tools/n.mjs:{name}\", node = \"{node}\" }}\n"
        )
    };
    let names = ["beside", "outside", "required", "mapped", "data"];
    let config: String = names.iter().map(|name| tool(name, "")).collect();
    let files = [
        (
            "tools/n.mjs",
            "\
import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
export const beside = async () => (await import('./b.mjs')).word;
export const outside = async () => (await import('../lib/c.mjs')).word;
export const required = () => require('../lib/d.cjs').word;
export const mapped = async () => (await import('#x')).word;
export const data = () => require('../data.json').word;
",
        ),
        ("tools/b.mjs", "export const word = 'b';\n"),
        ("lib/c.mjs", "export const word = 'c';\n"),
        ("lib/d.cjs", "exports.word = 'd';\n"),
        ("package.json", "{\"imports\":{\"#x\":\"./lib/c.mjs\"}}"),
        ("data.json", "{\"word\":\"data\"}"),
    ];
    let folder = folder_of(&files);
    folder.write("callgate.toml", &config);
    trust(&folder);
    assert_eq!(output(&folder, "beside"), "b");
    assert_eq!(output(&folder, "data"), "data");
    for name in ["outside", "required", "mapped"] {
        let told = failure(&folder, name);
        assert!(told.contains("lib/**"), "{name}: {told}");
    }
    let config: String = names
        .iter()
        .map(|name| tool(name, "code = [\"lib/**\"]"))
        .collect();
    folder.write("callgate.toml", &config);
    trust(&folder);
    assert_eq!(
        ["outside", "required", "mapped"].map(|name| output(&folder, name)),
        ["c", "d", "c"]
    );
    closed(&folder, "lib/c.mjs");
}
