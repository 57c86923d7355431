//! Signals of our own process, which only `unsafe` can set.

#![allow(unsafe_code, reason = "signal dispositions have no safe interface")]

/// Makes a write beyond the file-size limit fail with `EFBIG` instead of killing us, so that
/// a limited host can refuse what it can not record and serve the rest (T-12). Children get
/// the default back.
pub fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ, and no handler of ours is replaced.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
