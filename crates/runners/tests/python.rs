//! Which interpreter serves, and the worker that ships.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{Bench, folder, misbehave, spawner, tagged};
use callgate_call::{Artifact, Fault};
use callgate_runners::{PoolRunner, PythonSettings, python_plan};
use serde_json::json;

fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn bench(settings: PythonSettings, entry: &str) -> Bench {
    let plan = python_plan(settings, |pool| pool.workers_max = 1);
    Bench::new(Arc::new(PoolRunner::new(
        plan.pool(spawner()),
        Some(entry.into()),
        "python",
    )))
}

fn settings(workspace: &Path, interpreter: Option<PathBuf>, path: &str) -> PythonSettings {
    PythonSettings {
        workspace: workspace.to_owned(),
        interpreter,
        worker: vec![workspace.join("worker.py").into()],
        env: vec![("PATH".into(), OsString::from(path))],
    }
}

/// The arguments of the one process that serves `workspace`.
fn arguments(workspace: &Path) -> Vec<String> {
    let pid = tagged(workspace.join("worker.py").to_str().unwrap())[0];
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    line.split_terminator('\0').map(str::to_owned).collect()
}

/// The test program stands in for Python: it is a worker too.
#[tokio::test]
async fn the_interpreter_is_found() {
    let real = misbehave().to_str().unwrap();
    let wrapper = format!("#!/bin/sh\n[ \"$1\" = -c ] && echo {real} && exit 0\nexit 9\n");
    let serves = async |settings: PythonSettings| {
        let workspace = settings.workspace.clone();
        let bench = bench(settings, "a:b");
        assert_eq!(
            bench.value(json!({ "do": "ok" })).await,
            json!({ "ok": true })
        );
        let mut arguments = arguments(&workspace);
        assert_eq!(
            arguments.split_off(1),
            ["-u", workspace.join("worker.py").to_str().unwrap()]
        );
        arguments.remove(0)
    };

    // On PATH, behind a version manager's wrapper.
    let workspace = folder();
    script(&workspace.join("shims/python3"), &wrapper);
    let path = format!("/nonexistent:{}:/bin", workspace.join("shims").display());
    assert_eq!(serves(settings(&workspace, None, &path)).await, real);

    // Configured, relative to the workspace.
    script(&workspace.join("bin/own"), &wrapper);
    let configured = settings(&workspace, Some("bin/own".into()), "/bin");
    assert_eq!(serves(configured).await, real);

    // The workspace's own comes before all, and by its own path: that is how it is known.
    let venv = workspace.join(".venv/bin/python3");
    std::fs::create_dir_all(venv.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(real, &venv).unwrap();
    let both = settings(&workspace, Some("bin/own".into()), "/bin");
    assert_eq!(serves(both).await, venv.to_str().unwrap());
    std::fs::remove_dir_all(workspace).unwrap();
}

#[tokio::test]
async fn no_python_says_so() {
    let workspace = folder();
    let bench = bench(settings(&workspace, None, "/nonexistent"), "a:b");
    assert_eq!(
        bench.fault(json!({})).await,
        "unavailable: unavailable: start `python3`: not found; is it installed and on PATH?"
    );
    std::fs::remove_dir_all(workspace).unwrap();
}

/// T-23 with the worker that ships, and Python itself.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the Python of whoever runs the tests"
)]
async fn the_worker_that_ships_serves() {
    let workspace = folder();
    script(
        &workspace.join("tools/sample.py"),
        "def greet(payload):\n    print('greeting')\n    return {'message': 'Hello ' + payload['name']}\n\
         def keep(payload, slots):\n    slots[6] = {'type': 'note', 'content_json': '\"n\"'}\n    \
         slots.pop(9, None)\n    return len(slots)\n",
    );
    let path = std::env::var("PATH").unwrap();
    let mut settings = settings(&workspace, None, &path);
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/callgate/worker.py");
    settings.worker = vec![worker.into()];
    let home = std::env::var_os("HOME").unwrap_or_default();
    settings.env.push(("HOME".into(), home));

    let greet = bench(settings.clone(), "tools.sample:greet");
    assert_eq!(
        greet.value(json!({ "name": "Ada" })).await,
        json!({ "message": "Hello Ada" })
    );
    assert_eq!(greet.sink.stdout(), "greeting\n");
    let fact = |name| greet.sink.fact_of(name);
    assert_eq!(fact("python_env"), "system");
    assert_eq!(fact("deps_source"), "none");
    assert_eq!(fact("isolation"), "worker");
    assert!(Path::new(&fact("python_path")).is_absolute());
    let fault = greet.run(json!({})).await.unwrap_err();
    assert!(matches!(&fault, Fault::ToolFailed { error_type, .. } if error_type == "KeyError"));

    let mut keep = bench(settings, "tools.sample:keep");
    keep.tool.slots = true;
    keep.slots.0.insert(9, Artifact::default());
    let output = keep.run(json!({})).await.unwrap();
    assert_eq!(output.json.into_value(), json!(1));
    assert_eq!(output.slots.removed, [9]);
    assert_eq!(output.slots.put[&6].content_json, "\"n\"");
    std::fs::remove_dir_all(workspace).unwrap();
}
