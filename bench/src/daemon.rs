//! A program that serves until it is told to stop.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Failure;

/// What a program may take until it listens: interpreters load for seconds on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

pub struct Daemon(Child);

impl Daemon {
    /// Starts it, with nowhere to talk to.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(spawn(quiet)?))
    }

    /// Starts it, and waits for the first line it says.
    pub fn heard(command: &mut Command) -> Result<(Self, String), Failure> {
        let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        let stdout = child.stdout.take().ok_or("a child without its stdout")?;
        let daemon = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok((daemon, line))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to stop and waits for it to end well.
    pub fn stop(mut self) -> Result<(), Failure> {
        kill(Pid::from_raw(self.pid().cast_signed()), Signal::SIGTERM)?;
        let status = self.0.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("ended with {status}").into())
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended, or nothing more is asked of it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    let spawned = command.stdin(Stdio::null()).spawn();
    spawned.map_err(|error| format!("start {}: {error}", command.get_program().display()).into())
}

/// Waits until somebody listens at a port of ours.
pub fn wait_for_port(port: u16) -> Result<(), Failure> {
    wait_for(&format!("port {port}"), || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
}

/// Waits until something is as it should be.
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + START_MAX;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("{what} does not answer").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
