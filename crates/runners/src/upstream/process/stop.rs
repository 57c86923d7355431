//! The end of a process: in good order where it is ours to choose, and with all that it started.
//! U-29.

use std::time::Duration;

use callgate_sandbox::Home;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::{EndCause, Process, ProcessEnd, print};
use crate::process::{KILL_GRACE, end};

impl Process {
    /// Ends what is left of the process.
    pub async fn finish(mut self, cause: EndCause) -> (ProcessEnd, Option<Home>) {
        match &cause {
            EndCause::Exited(_) => {}
            cause if cause.is_orderly() => self.stop().await,
            _ => end(&mut self.child).await,
        }
        let Self {
            stderr,
            redactor,
            tail,
            parts,
            ..
        } = &mut self;
        stderr.pass_rest(|bytes| print(bytes, redactor, tail, parts));
        let rest = redactor.finish();
        tail.push(&rest);
        parts.journal.push(&rest);
        let mut process_end = ProcessEnd::of(self.child, self.tail, cause);
        process_end.ready_for = self.ready_since.map(|since| since.elapsed());
        process_end.was_busy = self.link.in_flight() > 0;
        (process_end, self.home)
    }

    /// Closes its input, then asks it to end, then ends it with all it has started.
    async fn stop(&mut self) {
        let settings = &self.parts.settings;
        let (close_grace, term_grace) = (settings.close_grace, settings.term_grace);
        self.link.close_input();
        if self.ended_within(close_grace).await {
            return;
        }
        self.child.signal(15);
        if !self.ended_within(term_grace).await {
            self.child.kill();
            self.ended_within(KILL_GRACE).await;
        }
    }

    /// Waits for its end. What it prints meanwhile is read: else it might never get there.
    async fn ended_within(&mut self, limit: Duration) -> bool {
        let Self {
            child,
            stdout,
            stderr,
            redactor,
            tail,
            parts,
            ..
        } = self;
        let waited = async {
            // What the other arms drop is what nobody waits for any more.
            tokio::select! {
                _ = child.wait() => {}
                () = swallow(stdout) => unreachable!("it never ends"),
                () = stderr.pump(|bytes| print(bytes, redactor, tail, parts)) => {
                    unreachable!("it never ends")
                }
            }
        };
        tokio::time::timeout(limit, waited).await.is_ok()
    }
}

async fn swallow(stdout: &mut pipe::Receiver) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = stdout.read(&mut buffer).await {}
    std::future::pending().await
}
