//! Questions to the person at the terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use crate::error::CommandError;
use crate::show;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1024;

/// Asks a question that takes yes or no, where no is the default. `--yes` answers it. Without a
/// terminal to ask on, and without `--yes`, it is an error.
pub fn confirm(question: &str, yes: bool) -> Result<bool, CommandError> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CommandError::NobodyToAsk(question.to_owned()));
    }
    show::prompt(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let mut input = io::stdin().lock().take(ANSWER_BYTES_MAX);
    // bound: `ANSWER_BYTES_MAX`
    let read = input.read_line(&mut answer);
    read.map_err(CommandError::system("read the answer"))?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
