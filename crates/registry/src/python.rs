//! The Python package that ships inside the binary, laid out in the state folder so that a
//! Python tool works without installing anything.

use std::ffi::OsString;
use std::path::PathBuf;

use callgate_call::Digest;
use callgate_runners::over_stdio;
use callgate_store::{Store, StoreError};
use serde_json::{Map, Value};

use callgate_call::chain;

macro_rules! package {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../../sdk/python/callgate/", $file)))),*]
    };
}

const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "__main__.py",
    "_process.py",
    "ask.py",
    "blocked.py",
    "check.py",
    "client.py",
    "convert.py",
    "dispatch.py",
    "docstring.py",
    "guard/sitecustomize.py",
    "imports.py",
    "prepared.py",
    "report.py",
    "schema.py",
    "tool.py",
    "worker.py",
    "zygote.py",
];

/// Runs the worker out of the text it stands in, and has the package for tools that import it:
/// the last to be asked, as its folder would be the last on the path.
const FROM_TEXT: &str = r#"
import sys
# Before the first import: the current folder is the workspace, where others may write.
sys.path[:] = [folder for folder in sys.path if folder]
from importlib.util import spec_from_loader

class Shipped:
    def find_spec(self, name, path=None, target=None):
        if name in FILES:
            return spec_from_loader(name, self, is_package=name == "callgate")

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(FILES[name], "<%s>" % name, "exec"), module.__dict__)

sys.meta_path.append(Shipped())
__file__ = "callgate/worker.py"
exec(compile(FILES["callgate.worker"], "<callgate.worker>", "exec"))
"#;

/// What the interpreter is to run: the worker's file, after seeing to it that the package is
/// there. Where the state can not take it, the worker as text: a state that can not be written
/// must not cost the calls that need no record (T-12).
pub fn worker(store: &Store) -> Vec<OsString> {
    match lay_out(store) {
        Ok(path) => vec![path.into()],
        Err(error) => {
            tracing::debug!(target: "callgate::python", error = chain(&error), "lay out the Python worker");
            worker_as_text()
        }
    }
}

/// The same, without a file.
pub fn worker_as_text() -> Vec<OsString> {
    vec!["-c".into(), as_text().into()]
}

fn lay_out(store: &Store) -> Result<PathBuf, StoreError> {
    let mut all = Vec::new();
    for (name, text) in PACKAGE {
        all.extend_from_slice(name.as_bytes());
        all.extend_from_slice(text.as_bytes());
    }
    let name = format!("python-{}", &Digest::of_bytes(&all).to_hex()[..16]);
    let files: Vec<(String, &str)> = PACKAGE
        .iter()
        .map(|(file, text)| (format!("callgate/{file}"), *text))
        .collect();
    let folder = store.unpack(&name, &files)?;
    Ok(folder.join("callgate/worker.py"))
}

/// The whole package as one program. JSON's texts are Python's as well.
fn as_text() -> String {
    let files: Map<String, Value> = PACKAGE
        .iter()
        .filter(|(file, _)| !file.contains('/'))
        .map(|(file, text)| {
            let name = match file.trim_end_matches(".py") {
                "__init__" => "callgate".to_owned(),
                module => format!("callgate.{module}"),
            };
            (name, Value::from(compact(text)))
        })
        .collect();
    format!("FILES = {}\n{FROM_TEXT}", Value::Object(files))
}

/// The text of a module with one blank for each level of indentation and without its lines of
/// comment, because the kernel bounds an argument.
fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    for line in text.lines() {
        let rest = line.trim_start_matches(' ');
        if !rest.starts_with('#') {
            let indentation = line.len() - rest.len();
            compact.push_str(&" ".repeat(indentation.div_ceil(4)));
            compact.push_str(rest);
        }
        compact.push('\n');
    }
    compact
}

/// The same for where there is only standard input and output: inside a container.
pub fn worker_over_stdio() -> String {
    over_stdio(&as_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel takes no longer argument than 32 pages.
    #[test]
    fn the_text_fits_an_argument() {
        const ARGUMENT_BYTES_MAX: usize = 32 * 4096;
        assert!(as_text().len() < ARGUMENT_BYTES_MAX);
        assert!(worker_over_stdio().len() < ARGUMENT_BYTES_MAX);
    }
}
