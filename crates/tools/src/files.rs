//! The workspace's files, as tools. Every path is resolved by the kernel beneath the workspace
//! (`place.rs`), every write is whole or not there (`write.rs`), and nothing of the gate's own is
//! reached (G-9).

pub(crate) mod edit;
pub(crate) mod entries;
pub(crate) mod etag;
mod heirs;
mod lists;
mod lock;
mod patch;
pub(crate) mod place;
pub(crate) mod read;
pub(crate) mod search;
mod swept;
mod told;
pub(crate) mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Cancel, Clock, Fault, Job, Output, RunFuture, Runner, Tier, Tool};
use callgate_store::Store;
use serde::Deserialize;
use serde_json::Value;

use crate::{builtin, waited_for};
use etag::Etags;
pub use lists::Lists;
use lock::Lock;
use place::Ground;
use search::SearchRunner;
use told::Told;

/// Bounds of what is read and written at once.
#[derive(Clone, Copy, Debug)]
pub struct FilesLimits {
    /// Content of one answer.
    pub read_bytes_max: u64,
    /// Content of one write, and of a file that is edited.
    pub write_bytes_max: u64,
}

impl Default for FilesLimits {
    fn default() -> Self {
        Self {
            read_bytes_max: 8 * 1024 * 1024,
            write_bytes_max: 16 * 1024 * 1024,
        }
    }
}

/// What the tools share.
pub struct Files {
    ground: Ground,
    etags: Etags,
    clock: Arc<dyn Clock>,
    /// What was too large for an answer can be read like a file.
    store: Arc<Store>,
    limits: FilesLimits,
    /// Held while a name changes hands.
    lock: Lock,
    /// The name under which the lock's holder has new content wait for its place.
    waiting: PathBuf,
    /// Small files that were told of.
    told: Told,
}

impl Files {
    /// The files of `workspace` that `lists` let through, but for those in `own`. `lock` is a file beside our state.
    pub fn open(
        workspace: &Path,
        (own, lists): (Vec<PathBuf>, Lists),
        lock: &Path,
        (clock, store): (Arc<dyn Clock>, Arc<Store>),
        limits: FilesLimits,
    ) -> std::io::Result<Self> {
        Ok(Self {
            ground: Ground::open(workspace, own, lists)?,
            etags: Etags::default(),
            clock,
            store,
            limits,
            lock: Lock::open(lock),
            waiting: lock.with_extension("new"),
            told: Told::default(),
        })
    }

    /// True if a file of this name may be told of.
    #[must_use]
    pub fn shows(&self, path: &Path) -> bool {
        !self.ground.is_hidden(path, false)
    }

    /// What may be reached.
    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Where time comes from.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
}

/// How content is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

impl Encoding {
    fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Base64 => "base64",
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Utf8 => "content",
            Self::Base64 => "content_base64",
        }
    }
}

type Function = fn(&Files, &Value, &Cancel) -> Result<Value, Fault>;
type NowFunction = fn(&Files, &Value) -> Option<Output>;

/// A function over the files, off the gate's own thread: disks may be slow.
struct FileRunner {
    files: Arc<Files>,
    function: Function,
    /// What can be done without waiting for one is done here.
    now: Option<NowFunction>,
}

impl Runner for FileRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        let now = self
            .now
            .and_then(|now| now(&self.files, job.call.input.value()));
        if let Some(done) = now {
            return Box::pin(std::future::ready(Ok(done)));
        }
        let (files, function) = (Arc::clone(&self.files), self.function);
        let input = job.call.input.clone();
        Box::pin(async move {
            let work = move |stop: &Cancel| function(&files, input.value(), stop);
            waited_for(&job, work).await.map(Output::from_value)
        })
    }

    /// What can be told without waiting changes nothing.
    fn only_reads(&self) -> bool {
        self.now.is_some()
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

/// Every tool of this module.
#[must_use]
pub fn tools(files: &Arc<Files>) -> Vec<Tool> {
    let tool = |name: &str, title: &str, about: &str, function: Function, schemas: [Value; 2]| {
        let files = Arc::clone(files);
        let now: Option<NowFunction> = (name == "files/read").then_some(read::read_now);
        let runner = FileRunner {
            files,
            function,
            now,
        };
        described(name, title, about, Arc::new(runner), schemas)
    };
    let reads = |tool: Tool| Tool {
        idempotent: true,
        ..tool
    };
    let writes = |tool: Tool| Tool {
        tier: Tier::Write,
        side_effects: vec!["filesystem_write".to_owned()],
        ..tool
    };
    vec![
        reads(tool(
            "files/read",
            "Read File",
            "Read a file from the workspace",
            |files, input, _| read::read(files, input),
            read::schemas(),
        )),
        writes(tool(
            "files/write",
            "Write File",
            "Write a file of the workspace, whole",
            write::write,
            write::schemas(),
        )),
        writes(tool(
            "files/edit",
            "Edit File",
            "Replace exact texts in a file, or apply a unified patch",
            edit::edit,
            edit::schemas(),
        )),
        reads(tool(
            "files/list",
            "List Folder",
            "List what is in a folder",
            |files, input, _| entries::list(files, input),
            entries::list_schemas(),
        )),
        reads(tool(
            "files/stat",
            "Describe File",
            "Tell what a path is, how large and how old",
            |files, input, _| entries::stat(files, input),
            entries::stat_schemas(),
        )),
        reads(described(
            "files/search",
            "Search Files",
            "Find files by name, and lines by what is in them",
            Arc::new(SearchRunner(Arc::clone(files))),
            search::schemas(),
        )),
        writes(tool(
            "files/delete",
            "Delete File",
            "Delete a file, or a folder",
            entries::delete,
            entries::delete_schemas(),
        )),
        writes(tool(
            "files/move",
            "Move File",
            "Move or rename a file or a folder",
            entries::rename,
            entries::move_schemas(),
        )),
    ]
}

fn described(
    name: &str,
    title: &str,
    about: &str,
    runner: Arc<dyn Runner>,
    [input, output]: [Value; 2],
) -> Tool {
    let aid = format!("AID.{}.v1", name.replace('/', ".").to_uppercase());
    let mut tool = builtin(name, &aid, about, input, runner);
    tool.output_schema = Some(output);
    tool.face.title = Some(title.to_owned());
    tool.tags.push("fs".to_owned());
    tool
}
