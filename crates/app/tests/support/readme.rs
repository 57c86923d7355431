//! The README's quick starts, as they are written: their blocks, and a shell like that of
//! somebody who types them.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::drive::{Ran, end_of};
use super::outside::{client_python, modules, node};
use super::{Folder, program, search_path};

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of a section that are in this language.
pub fn blocks(section: &str, language: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let (_, section) = readme
        .split_once(&format!("## {section}\n"))
        .expect("a section");
    let section = section.split("\n## ").next().expect("its text");
    let begin = format!("```{language}\n");
    let blocks = section.split(&begin).skip(1);
    let block = |rest: &str| rest.split_once("```").expect("its end").0.to_owned();
    blocks.map(block).collect()
}

/// Copies what is in a folder of the repository.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("its type").is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => {
                std::fs::copy(entry.path(), target).expect("copy");
            }
        }
    }
}

/// Somebody at a shell, whose home is a folder and who has installed what the README asks for.
pub struct Reader {
    pub home: Folder,
}

impl Reader {
    /// With the example and the Python package of the repository.
    pub fn new() -> Self {
        let home = Folder::new();
        copy_folder(&root().join("examples/hello"), &home.join("examples/hello"));
        copy_folder(
            &root().join("sdk/python/callgate"),
            &home.join("packages/callgate"),
        );
        Self { home }
    }

    /// Has the two MCP clients, which were fetched already: `npx` would fetch the first itself.
    pub fn with_clients(self) -> Self {
        std::fs::create_dir(self.home.join("bin")).expect("a folder for programs");
        let inspector =
            modules().join("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
        let node = node(&self.home).get_program().to_owned();
        self.home.executable(
            "bin/npx",
            &format!(
                "#!/bin/sh\n[ \"$1\" = @modelcontextprotocol/inspector@2.12.0 ] || exit 99\nshift\n\
                 exec '{}' '{}' \"$@\"\n",
                node.display(),
                inspector.display()
            ),
        );
        let python = client_python(&self.home).get_program().to_owned();
        self.home.executable(
            "bin/fastmcp",
            &format!(
                "#!/bin/sh\nexec '{}' -m fastmcp.cli \"$@\"\n",
                python.display()
            ),
        );
        self
    }

    /// A program of the reader's, by the folder of the home it is started in.
    pub fn command(&self, program: &str, folder: &str) -> Command {
        let own = self::program().parent().expect("a folder").to_owned();
        let (mine, usual) = ([self.home.join("bin"), own], search_path());
        let path = mine.into_iter().chain(std::env::split_paths(&usual));
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::join_paths(path).expect("folders"))
            .env("HOME", self.home.path())
            .env("PYTHONPATH", self.home.join("packages"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_COLOR", "1")
            .current_dir(self.home.join(folder));
        command
    }

    /// Starts what is typed in a folder of the home. It, and all it leaves in the background, goes
    /// with the guard.
    pub fn types(&self, text: &str, folder: &str) -> Typed {
        let [out, err] = ["out", "err"].map(|name| super::fresh_folder("typed").join(name));
        let file = |path: &PathBuf| Stdio::from(File::create(path).expect("a file"));
        let child = self
            .command("/bin/sh", folder)
            .args(["-ec", text])
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err))
            .process_group(0)
            .spawn()
            .expect("start a shell");
        Typed { child, out, err }
    }
}

/// A shell, and what runs in its background.
pub struct Typed {
    child: Child,
    /// Files, not pipes: those would be open for as long as anything runs.
    out: PathBuf,
    err: PathBuf,
}

impl Typed {
    /// What was said on stderr so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.err).expect("a file")
    }

    /// Waits for the shell, and for nothing in its background.
    pub fn ended(&mut self) -> Ran {
        let status = end_of(&mut self.child, "the shell");
        let out = std::fs::read_to_string(&self.out).expect("a file");
        Ran {
            status,
            out,
            err: self.said(),
        }
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        for file in [&self.out, &self.err] {
            let _ = std::fs::remove_dir_all(file.parent().expect("its folder"));
        }
    }
}
