//! The Node worker that ships inside the binary, laid out in the state folder.

use std::ffi::OsString;
use std::path::PathBuf;

use callgate_call::Digest;
use callgate_store::{Store, StoreError};

use callgate_call::chain;

const FILE: &str = "worker.mjs";
const WORKER: &str = include_str!("../../../sdk/node/worker.mjs");

/// The worker as text, for whoever can not get at its file.
pub fn worker_as_text() -> Vec<OsString> {
    let words = ["--input-type=module", "-e", WORKER, "--"];
    words.map(OsString::from).to_vec()
}

/// What Node is to run: the worker's file, after seeing to it that it is there. Where the state
/// can not take it, the worker as text, as for Python.
pub fn worker(store: &Store) -> Vec<OsString> {
    match lay_out(store) {
        Ok(path) => vec![path.into()],
        Err(error) => {
            tracing::debug!(target: "callgate::node", error = chain(&error), "lay out the Node worker");
            worker_as_text()
        }
    }
}

fn lay_out(store: &Store) -> Result<PathBuf, StoreError> {
    let name = format!(
        "node-{}",
        &Digest::of_bytes(WORKER.as_bytes()).to_hex()[..16]
    );
    let folder = store.unpack(&name, &[(FILE.to_owned(), WORKER)])?;
    Ok(folder.join(FILE))
}
