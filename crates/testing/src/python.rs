//! The Python that tests run with.

/// The path or name of the interpreter: `CALLGATE_TEST_PYTHON`, else `python3`.
pub fn python() -> String {
    std::env::var("CALLGATE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}
