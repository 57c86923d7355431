//! The programs that tests run with.

use std::ffi::OsString;
use std::path::PathBuf;

/// The path or name of the Python interpreter: `CALLGATE_TEST_PYTHON`, else `python3`.
pub fn python() -> String {
    std::env::var("CALLGATE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// The search path of tools. The folder of the given Python comes first: a shim in front of it costs
/// more than many a test.
pub fn search_path() -> OsString {
    let given = std::env::var_os("CALLGATE_TEST_PYTHON").map(PathBuf::from);
    let first = given.and_then(|python| python.parent().map(PathBuf::from));
    let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let rest: Vec<PathBuf> = std::env::split_paths(&inherited).collect();
    std::env::join_paths(first.into_iter().chain(usual).chain(rest))
        .expect("folders without a colon")
}
