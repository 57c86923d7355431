//! The Python package that ships inside the binary, laid out in the state folder so that a
//! Python tool works without installing anything.

use std::path::PathBuf;

use callgate_call::Digest;
use callgate_store::{Store, StoreError};

macro_rules! package {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../../sdk/python/callgate/", $file)))),*]
    };
}

const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "__main__.py",
    "_process.py",
    "client.py",
    "convert.py",
    "dispatch.py",
    "docstring.py",
    "schema.py",
    "tool.py",
    "worker.py",
];

/// The path of the worker, after seeing to it that the package is there.
pub fn worker(store: &Store) -> Result<PathBuf, StoreError> {
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
