//! A person at a terminal, and what they see of a program on it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};

use callgate_sandbox::{Terminal, TerminalSize};

use super::drive::end_of;
use super::{Folder, callgate, wait_for};

/// A program on a terminal of the test's, as a person has it.
pub struct Person {
    pub child: Child,
    master: OwnedFd,
    /// The child's end: what its settings are.
    terminal: Terminal,
    pub seen: vt100::Parser,
    all: String,
}

impl Person {
    pub fn start(folder: &Folder, args: &[&str]) -> Self {
        let size = TerminalSize { cols: 70, rows: 15 };
        let (master, terminal) = Terminal::open(size).expect("a terminal");
        let end = || {
            let end = terminal.as_fd().try_clone_to_owned();
            Stdio::from(end.expect("another handle"))
        };
        let program = callgate(folder);
        // In a session of its own, which the terminal controls.
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(program.get_program())
            .args(args);
        command.env_clear().current_dir(folder.path());
        let set = program
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        command.envs(set).env("TERM", "xterm");
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("start it");
        Self {
            child,
            master,
            terminal,
            seen: vt100::Parser::new(size.rows, size.cols, 0),
            all: String::new(),
        }
    }

    pub fn look(&mut self) {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = rustix::io::read(&self.master, &mut buffer) {
            self.seen.process(&buffer[..count]);
            self.all
                .push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// What is on the screen, once `words` are.
    pub fn sees(&mut self, words: &str) -> String {
        wait_for(words, || {
            self.look();
            let shown = self.seen.screen().contents();
            shown.contains(words).then_some(shown)
        })
    }

    /// What is on the screen, once all of these are: a screen is drawn line by line.
    pub fn sees_all(&mut self, all: &[&str]) -> String {
        wait_for(&all.join(", "), || {
            self.look();
            let shown = self.seen.screen().contents();
            all.iter()
                .all(|words| shown.contains(words))
                .then_some(shown)
        })
    }

    pub fn types(&self, text: &str) {
        assert_eq!(
            rustix::io::write(&self.master, text.as_bytes()),
            Ok(text.len())
        );
    }

    pub fn settings(&self) -> String {
        format!(
            "{:?}",
            rustix::termios::tcgetattr(&self.terminal).expect("settings")
        )
    }

    pub fn resize(&mut self, cols: u16, rows: u16) {
        Terminal::resize(&self.master, TerminalSize { cols, rows }).expect("another size");
        self.seen.screen_mut().set_size(rows, cols);
    }

    /// The exit code, and the terminal as it was.
    pub fn ended(mut self, settings: &str) -> (Option<i32>, String) {
        let status = end_of(&mut self.child, "it");
        self.look();
        assert_eq!(self.settings(), settings, "the terminal is as it was");
        assert!(!self.seen.screen().alternate_screen() && !self.seen.screen().hide_cursor());
        (status.code(), self.all.clone())
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
