//! Memory of our own process that `unsafe` alone gives back.

#![allow(unsafe_code, reason = "advice on memory has no safe interface")]

use std::io;

/// Lets go of the pages of our own code. Those that are needed come back by themselves, from the
/// page cache; what only a start needs does not stay resident for as long as we live.
pub fn let_go_of_code() -> io::Result<()> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let program = program.to_string_lossy();
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((from, to)) = code_of(line, &program) else {
            continue;
        };
        // SAFETY: this maps a file that can not be written to while it runs, and was never
        // written to itself: it has the same bytes when it is read again.
        let advised = unsafe { libc::madvise(from as *mut _, to - from, libc::MADV_DONTNEED) };
        if advised != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The addresses of a line of the maps, if they are the program's code: to be run, and not
/// written to.
fn code_of(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut words = line.splitn(6, ' ');
    let (range, mode) = (words.next()?, words.next()?);
    let path = words.nth(3)?.trim_start();
    if mode != "r-xp" || path != program {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some((address(from)?, address(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_runs_and_is_never_written() {
        let line = |mode: &str, path: &str| {
            format!("55d0a000-55d0c000 {mode} 00001000 fe:00 1234                       {path}")
        };
        let found = |mode, path| code_of(&line(mode, path), "/usr/bin/a b");
        assert_eq!(
            found("r-xp", "/usr/bin/a b"),
            Some((0x55d0_a000, 0x55d0_c000))
        );
        for (mode, path) in [
            ("r--p", "/usr/bin/a b"),
            ("rwxp", "/usr/bin/a b"),
            ("rw-p", "/usr/bin/a b"),
            ("r-xp", "/usr/lib/libc.so.6"),
            ("r-xp", "/usr/bin/a b (deleted)"),
            ("r-xp", ""),
        ] {
            assert_eq!(found(mode, path), None, "{mode} {path}");
        }
    }
}
