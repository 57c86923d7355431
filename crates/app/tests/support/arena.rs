//! Where attacks are carried out: a workspace whose tools run `attacks/tool.py`, a folder that
//! no tool is given, and a referee who lays out what is attacked and looks what came of it.
//! `attacks/arena.py` says what an attack is.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::drive::{Host, Ran, python, run};
use super::{Folder, unused_uid};

/// In the environment of the gate, the referee and unconfined tools.
pub const SECRET: (&str, &str) = ("ATTACK_SECRET", "sesame-7f31c2");

/// Who runs the gate, and whose the workspace is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Users {
    pub gate: u32,
    pub owner: u32,
}

impl Users {
    /// The combinations this process can make: as root, root on its own workspace, root on
    /// somebody's, and an ordinary user; else the user we are.
    pub fn all() -> Vec<Self> {
        let own = rustix::process::geteuid().as_raw();
        let both = |uid| Self {
            gate: uid,
            owner: uid,
        };
        if own != 0 {
            return vec![both(own)];
        }
        let (gate, owner) = (0, unused_uid());
        vec![both(unused_uid()), Self { gate, owner }, both(0)]
    }

    /// Does `work` for all of them, side by side.
    pub fn each<R: Send>(work: impl Fn(Self) -> R + Sync) -> Vec<R> {
        side_by_side(Self::all(), work)
    }

    /// For messages.
    pub fn name(self) -> &'static str {
        match (self.gate, self.owner) {
            (0, 0) => "root",
            (0, _) => "root for a user",
            _ => "user",
        }
    }

    /// True if a tool has root's uid.
    pub fn is_root(self) -> bool {
        self.owner == 0
    }
}

/// Does `work` for each, all at the same time; a panic of one is a panic here.
pub fn side_by_side<T: Send, R: Send>(all: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = all
            .into_iter()
            .map(|one| scope.spawn(move || work(one)))
            .collect();
        started
            .into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

/// The workspace and all around it. Its folder has `ws`, `outside` and the gate's `state`.
pub struct Arena {
    pub folder: Folder,
    pub users: Users,
    pub python: String,
    program: PathBuf,
}

/// Files of `attacks/`.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks")
}

impl Arena {
    /// Lays it out. `config` is the workspace's configuration; `COMMAND` in it stands for the
    /// command of a tool that carries out attacks, `PYTHON` for the interpreter.
    pub fn new(users: Users, config: &str) -> Self {
        let folder = Folder::new();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).expect("open the folder");
        let program = folder.join("callgate");
        let mut arena = Self {
            folder,
            users,
            python: String::new(),
            program,
        };
        arena.place_program(&arena.program);
        arena.python = arena.find_python();
        arena.lay_out(config);
        arena
    }

    /// Puts the program where its user can get at it.
    pub fn place_program(&self, to: &Path) {
        place(super::program(), to);
    }

    /// A Node that its user can get at: the one the tests were given may be in root's own folder.
    pub fn node(&self) -> String {
        let Some(given) = std::env::var_os("CALLGATE_TEST_NODE") else {
            return "node".to_owned();
        };
        let to = self.folder.join("node");
        if !to.exists() {
            let real = Path::new(&given).canonicalize().expect("Node is there");
            place(&real, &to);
        }
        to.to_str().expect("a text path").to_owned()
    }

    /// A file of the owner's.
    pub fn put(&self, name: &str, text: &str) {
        give(&self.folder.write(name, text), self.users.owner);
    }

    fn lay_out(&self, config: &str) {
        for name in [
            "ws/victim",
            "ws/out",
            "ws/spare",
            "ws/attacks",
            "outside",
            "state",
        ] {
            std::fs::create_dir_all(self.folder.join(name)).expect("make folders");
        }
        for entry in std::fs::read_dir(sources()).expect("the attacks").flatten() {
            if entry.path().extension().is_some_and(|end| end == "py") {
                let to = self.folder.join("ws/attacks").join(entry.file_name());
                std::fs::copy(entry.path(), to).expect("copy an attack");
            }
        }
        let command = format!(r#"["{}", "-I", "-S", "attacks/tool.py"]"#, self.python);
        let config = config
            .replace("COMMAND", &command)
            .replace("PYTHON", &self.python);
        self.folder.write("ws/callgate.toml", &config);
        give(&self.folder.join("ws"), self.users.owner);
        give(&self.folder.join("outside"), self.users.owner);
        give(&self.folder.join("state"), self.users.gate);
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(self.folder.join("state"), private).expect("close the state");
    }

    pub fn ws(&self) -> PathBuf {
        self.folder.join("ws")
    }

    /// A Python that both can start: the one the tests were given may be out of reach.
    fn find_python(&self) -> String {
        let usual = ["/usr/bin/python3", "/usr/local/bin/python3"].map(str::to_owned);
        let question = "import ctypes, sqlite3, sys; assert sys.version_info >= (3, 9)";
        let mut all = usual.into_iter().chain([python()]);
        all.find(|python| {
            let mut command = self.command(self.users.owner, Path::new(python));
            command.args(["-c", question]);
            command.output().is_ok_and(|ran| ran.status.success())
        })
        .unwrap_or_else(|| panic!("uid {} can start no Python", self.users.owner))
    }

    /// A program as this user, in the workspace.
    pub fn command(&self, uid: u32, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("CALLGATE_STATE", self.folder.join("state"))
            .env("CALLGATE_CODE", self.folder.join("code"))
            .env(SECRET.0, SECRET.1)
            .current_dir(if self.ws().exists() {
                self.ws()
            } else {
                self.folder.path().to_owned()
            });
        if rustix::process::geteuid().is_root() && uid != 0 {
            // Its groups go too.
            command.uid(uid).gid(uid);
        }
        command
    }

    /// `callgate` as the gate's user.
    pub fn callgate(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.users.gate, &self.program);
        command.args(args);
        command
    }

    /// `callgate ARGS…`, to its end.
    pub fn cli(&self, args: &[&str]) -> Ran {
        run(&mut self.callgate(args))
    }

    /// What `doctor` finds under a name, on a machine without `hidden`.
    pub fn finding(&self, name: &str, hidden: &str) -> Value {
        let mut command = self.callgate(&["doctor", "--json"]);
        let told = run(command.env("CALLGATE_HIDE", hidden)).json();
        let checks = told["checks"].as_array().expect("checks");
        let found = checks.iter().find(|check| check["name"] == name);
        found.expect("a row for it").clone()
    }

    /// True if groups are to be had: always as root of this machine, never as a user that nobody
    /// has handed a group to.
    pub fn has_groups(&self) -> bool {
        let means = self.finding("confinement", "");
        let words = means["finding"].as_str().expect("words");
        let has = words.contains("cgroups for memory, processes");
        assert_eq!(
            !has,
            words.contains("no cgroups (root, or a delegated group)"),
            "{words}"
        );
        has
    }

    /// A host of the workspace's tools.
    pub fn host(&self) -> Host {
        let mut command = self.callgate(&["toolhost", "--serve", "."]);
        // An attack may wait longer than a client does that says nothing of its patience.
        Host::spawn(command.env("MACHINA_TOOLHOST_TIMEOUT", "30"))
    }

    /// A referee of all groups, as the user whom tools run as.
    pub fn referee(&self, modules: Option<&Path>) -> Referee {
        self.referee_as(self.users.owner, &[], |command| {
            if let Some(modules) = modules {
                command.env("ATTACK_MODULES", modules);
            }
        })
    }

    /// A referee of some groups.
    pub fn referee_as(
        &self,
        uid: u32,
        groups: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Referee {
        let mut command = self.command(uid, Path::new(&self.python));
        command
            .arg(self.ws().join("attacks/referee.py"))
            .arg(self.folder.path())
            .args(groups);
        change(&mut command);
        Referee(Host::spawn(&mut command))
    }
}

/// Gives a folder and all in it away.
pub fn give(path: &Path, uid: u32) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).expect("give a file away");
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).expect("a folder").flatten() {
            give(&entry.path(), uid);
        }
    }
}

/// Whoever lays out and judges.
pub struct Referee(Host);

/// One attack, by one tool.
#[derive(Clone, Debug)]
pub struct Attack {
    pub name: String,
    pub tools: Vec<String>,
    /// `all`, `root` or `others`.
    pub users: String,
    pub void: Option<String>,
}

impl Attack {
    /// True if it can be tried by these users.
    pub fn is_for(&self, users: Users) -> bool {
        match self.users.as_str() {
            "all" => true,
            "root" => users.is_root(),
            _ => !users.is_root(),
        }
    }

    pub fn group(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }
}

impl Referee {
    pub fn attacks(&mut self) -> Vec<Attack> {
        let listed = self.0.ask(&json!({ "list": true }));
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let one = |value: &Value| Attack {
            name: text(&value["name"]).expect("a name"),
            tools: value["tools"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(text)
                .collect(),
            users: text(&value["users"]).expect("a word"),
            void: text(&value["void"]),
        };
        listed.as_array().expect("a list").iter().map(one).collect()
    }

    /// Carries the act out with all rights: whether it had its effect, and what it said.
    pub fn prove(&mut self, name: &str) -> (bool, String) {
        let answer = self.0.ask(&json!({ "prove": name }));
        let happened = answer["happened"].as_bool().expect("a verdict");
        (happened, answer["output"].to_string())
    }

    /// Lays out an attack: the input for the tool.
    pub fn prepare(&mut self, name: &str) -> Value {
        self.0.ask(&json!({ "prepare": name }))
    }

    /// Whether what was prepared last had its effect; `output` is all that came back.
    pub fn judge(&mut self, output: &str) -> bool {
        let answer = self.0.ask(&json!({ "judge": output }));
        answer["happened"].as_bool().expect("a verdict")
    }

    pub fn end(self) {
        assert!(self.0.end().success(), "the referee ends in order");
    }
}

/// A program in another place, too.
pub fn place(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        super::copy_program(from, to);
    }
}
