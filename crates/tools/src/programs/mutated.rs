//! What callers may ask to be run, changed as hostile or broken ones would: for the tests of those
//! who read it. Nothing is run.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use callgate_call::Fault;
use serde_json::{Value, json};

use super::Programs;
use super::variables::{is_plain, refusal};
use crate::files::Lists;
use crate::files::place::Ground;
use callgate_testing::{Random, mutant};

const COMMANDS: [&[u8]; 7] = [
    b"tool",
    b"bin/inside",
    b"./bin/inside",
    b"sub/text",
    b"inside",
    b"nothing",
    b"/bin/sh",
];
const FOLDERS: [&[u8]; 8] = [
    b".",
    b"sub",
    b"sub/\xc3\xa9",
    b"./sub/../bin",
    b"sub/../..",
    b"out",
    b"state/in",
    b"sub/text",
];
const NAMES: [&[u8]; 6] = [b"A", b"TERM", b"PATH", b"LD_PRELOAD", b"ENV", b"PYTHONPATH"];
const TEXTS: [&[u8]; 5] = [b"", b"dumb", b"a b", b"--x=y", b"\xc3\xa9"];
const WORDS: [&[u8]; 12] = [
    b"..", b"/", b"./", b"//", b"=", b"\0", b"LD_", b"sub", b"state", b"\n", b" ", b"\xff",
];

/// A workspace with something of each kind, and a folder of programs beside it.
pub(crate) struct Scene {
    pub(crate) root: PathBuf,
    pub(crate) programs: Programs,
    /// The gate's own things. G-9.
    pub(crate) own: Vec<PathBuf>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("callgate-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&root);
        for folder in [
            "workspace/bin",
            "workspace/sub/é",
            "workspace/state/in",
            "outside",
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let root = root.canonicalize().unwrap();
        for (name, mode) in [
            ("workspace/bin/inside", 0o755),
            ("workspace/sub/text", 0o644),
            ("outside/tool", 0o755),
        ] {
            std::fs::write(root.join(name), "").unwrap();
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(root.join(name), mode).unwrap();
        }
        let workspace = root.join("workspace");
        std::os::unix::fs::symlink(&root, workspace.join("out")).unwrap();
        let folders = [workspace.join("bin"), root.join("outside")];
        let path = std::env::join_paths(folders).unwrap();
        Self {
            own: vec![workspace.join("state")],
            programs: Programs {
                workspace,
                allow_env: vec!["A".to_owned()],
                env: vec![("PATH".into(), path), ("KEPT".into(), "kept".into())],
                ..Programs::default()
            },
            root,
        }
    }

    pub(crate) fn ground(&self) -> Ground {
        Ground::open(&self.programs.workspace, self.own.clone(), Lists::default()).unwrap()
    }

    /// Whether somebody may run something so.
    pub(crate) fn check(&self, asked: &Value, cwd: &Path, env: &[(OsString, OsString)]) {
        assert_eq!(cwd.canonicalize().unwrap(), cwd, "{asked}");
        assert!(cwd.is_dir() && cwd.starts_with(&self.programs.workspace));
        assert!(!self.own.iter().any(|own| cwd.starts_with(own)), "{asked}");
        for (at, (name, value)) in env.iter().enumerate() {
            assert!(env[..at].iter().all(|(other, _)| other != name), "{asked}");
            // As the kernel hands it over, the child reads just this.
            let pair = [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat();
            let split = pair.iter().position(|byte| *byte == b'=');
            assert!(split == Some(name.len()) && !name.is_empty(), "{asked}");
            assert!(!pair.contains(&0), "{asked}");
        }
        let given = |name: &str| env.iter().find(|(known, _)| known == name);
        for (name, value) in asked["env"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap();
            assert!(refusal(name, value).is_none(), "{asked}");
            assert!(!name.starts_with("LD_") && name != "ENV", "{asked}");
            let is_listed = !self.programs.allow.is_empty();
            let is_plain = is_plain(name, value, &self.programs.allow_env);
            assert!(!is_listed || is_plain, "{asked}");
            assert!(
                given(name).is_some_and(|(_, known)| known == value),
                "{asked}"
            );
        }
        assert!(
            given("KEPT").is_some() && given("PATH").is_some(),
            "{asked}"
        );
    }

    /// Where programs are looked for is no place that callers can write to.
    pub(crate) fn check_search(&self, asked: &Value, search: &OsString) {
        let outside = self.root.join("outside");
        assert!(
            search.is_empty() || outside == search.as_os_str(),
            "{asked}"
        );
    }
}

/// A refusal is the caller's to mend, and says where.
pub(crate) fn check_refusal(asked: &Value, fault: &Fault) {
    match fault {
        Fault::NotFound { .. } => {}
        Fault::BadValue { .. } | Fault::Denied { .. } => {
            let data = fault.data();
            let field = data["field"].as_str().unwrap_or_default();
            let field = field.split('.').next().unwrap_or_default();
            assert!(!asked[field].is_null(), "{asked}: {fault:?}");
        }
        other => panic!("{asked}: {other:?}"),
    }
}

fn text(random: &mut Random, seeds: &[&[u8]]) -> String {
    let bytes = match random.one_in(3) {
        true => mutant(random, seeds, &WORDS),
        false => random.pick(seeds).to_vec(),
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Params that fit the schemas of `exec/run` and `terminals/create`, as far as they are the same.
pub(crate) fn params(random: &mut Random) -> Value {
    let mut params = json!({ "command": text(random, &COMMANDS), "shell": random.one_in(3) });
    if random.one_in(2) {
        let args: Vec<String> = (0..random.below(4)).map(|_| text(random, &TEXTS)).collect();
        params["args"] = args.into();
    }
    if random.one_in(2) {
        params["cwd"] = text(random, &FOLDERS).into();
    }
    if random.one_in(2) {
        let pairs = (0..random.below(4)).map(|_| {
            let value = text(random, &TEXTS);
            (text(random, &NAMES), Value::from(value))
        });
        params["env"] = Value::Object(pairs.collect());
    }
    params
}
