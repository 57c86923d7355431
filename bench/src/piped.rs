//! A program that answers lines with lines, and the driver that keeps it busy.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lines::Lines;
use crate::{Failure, cpu};

pub struct Piped {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    buffer: Vec<u8>,
}

/// What an exchange took.
#[derive(Clone, Copy)]
pub struct Spent {
    pub wall: Duration,
    /// Of the program and all it started.
    pub cpu: Duration,
    /// Of the program alone.
    pub own_cpu: Duration,
    /// Reads and writes of the program itself.
    pub io_calls: u64,
    pub lines: usize,
}

impl Spent {
    pub fn per_second(&self) -> f64 {
        self.lines as f64 / self.wall.as_secs_f64()
    }

    pub fn cpu_micros(&self) -> f64 {
        cpu::micros_each(self.cpu, self.lines)
    }

    pub fn own_cpu_micros(&self) -> f64 {
        cpu::micros_each(self.own_cpu, self.lines)
    }
}

impl Piped {
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start {}: {error}", command.get_program().display()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a child without its stdout")?;
        Ok(Self {
            child,
            stdin,
            stdout,
            buffer: vec![0; 64 * 1024],
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends every line, `window` of them unanswered at any time, and waits for the answers.
    /// Each line is a write of its own, as a client sends its calls. A window must fit into a
    /// pipe, or both sides could wait for each other.
    pub fn exchange(&mut self, lines: &Lines, window: usize) -> Result<Spent, Failure> {
        let pid = self.pid();
        let (cpu_before, io_before) = (cpu::tree(pid)?, cpu::io_calls(pid));
        let own_before = cpu::process(pid);
        let began = Instant::now();
        let stdin = self.stdin.as_mut().ok_or("its stdin is closed")?;
        let count = lines.len();
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            while sent < count.min(answered + window) {
                stdin.write_all(lines.slice(sent, sent + 1))?;
                sent += 1;
            }
            let read = self.stdout.read(&mut self.buffer)?;
            if read == 0 {
                return Err(format!("ended after {answered} of {count} answers").into());
            }
            answered += memchr::memchr_iter(b'\n', &self.buffer[..read]).count();
        }
        let wall = began.elapsed();
        let io_after = cpu::io_calls(pid);
        Ok(Spent {
            wall,
            cpu: cpu::tree(pid)?.saturating_sub(cpu_before),
            own_cpu: cpu::process(pid).saturating_sub(own_before),
            io_calls: io_after.unwrap_or(0).saturating_sub(io_before.unwrap_or(0)),
            lines: count,
        })
    }

    /// Sends every line and checks that each call was answered with success.
    pub fn check(&mut self, lines: &Lines) -> Result<(), Failure> {
        for line in lines.each() {
            let answer = self.ask(line)?;
            if answer["status"] != "OK" {
                return Err(format!("answered {answer}").into());
            }
        }
        Ok(())
    }

    /// Sends one line and waits for the one that answers it.
    pub fn ask(&mut self, line: &[u8]) -> Result<Value, Failure> {
        self.tell(line)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") {
            let read = self.stdout.read(&mut self.buffer)?;
            if read == 0 {
                return Err("ended before it answered".into());
            }
            answer.extend_from_slice(&self.buffer[..read]);
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Sends one line that is not answered.
    pub fn tell(&mut self, line: &[u8]) -> Result<(), Failure> {
        let stdin = self.stdin.as_mut().ok_or("its stdin is closed")?;
        stdin.write_all(&[line, b"\n"].concat())?;
        Ok(())
    }

    /// Closes its input and waits for it to end well.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.stdin = None;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("ended with {status}").into())
        }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.stdin = None;
        // It has ended, or something went wrong and nobody waits for its answers.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
