//! The person's terminal while a session is shown in it: every key is the session's. As it was
//! before on every way out, a panic's included.

use std::io::{self, Write as _};

use callgate_sandbox::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What a full-screen program may have switched on: its own screen, no cursor, keys and mouse
/// told in other ways, pasted text marked, colours.
const AS_USUAL: &[u8] = b"\x1b[?1049l\x1b[?25h\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\
    \x1b[?1005l\x1b[?1006l\x1b[?2004l\x1b[m\r\n";

/// Puts everything back when it goes.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// From here on nothing typed is edited, echoed or made a signal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(AS_USUAL).and_then(|()| out.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// How large the person's terminal is.
pub fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(TerminalSize {
        cols: size.ws_col,
        rows: size.ws_row,
    })
}
