//! A container for one call, as foreign images have it: a request on stdin, then its end; a
//! reply on stdout, then the program's end. TP-2, TP-14, TP-23 to TP-25, P-15.

use std::time::Duration;

use callgate_call::{Document, Fault, Job, NoSink, Output, Stream};
use callgate_sandbox::{Child, Ending, Spawner, Spec};
use callgate_wires::tool_protocol::{LocalRequest, Reply};
use serde_json::Value;
use tokio::time::Instant;

use crate::answer;
use crate::chatter::Chatter;
use crate::ending;
use crate::line::Line;
use crate::pool::worker::{Served, internal};
use crate::process::{end, stop};
use crate::tail::Tail;

/// What a reply may hold beside the output.
const REPLY_SLACK_BYTES: usize = 64 * 1024;

/// A program that waits for its one request.
#[derive(Debug)]
pub(super) struct OneShot {
    stream: Line,
    child: Child,
    stderr: Chatter,
    tail: Tail,
}

impl OneShot {
    pub async fn start(spawner: &Spawner, mut spec: Spec) -> Result<Self, Fault> {
        let (stream, far) = Line::pair().map_err(internal)?;
        spec.stdin = far.try_clone().map_err(internal)?.into();
        spec.stdout = far.into();
        let (stderr, stderr_far) = Chatter::new(Stream::Stderr).map_err(internal)?;
        spec.stderr = stderr_far.into();
        let child = spawner.spawn(spec).await;
        Ok(Self {
            stream,
            child: child.map_err(|error| ending::not_started(&error))?,
            stderr,
            tail: Tail::default(),
        })
    }

    /// How it ended, if it has.
    pub async fn ended(&mut self) -> Option<String> {
        let exit = tokio::time::timeout(Duration::ZERO, self.child.wait()).await;
        self.stderr.pass_rest(&mut self.tail, &NoSink);
        exit.ok()
            .map(|exit| ending::with_last_words(&ending::describe(exit.ending), &self.tail))
    }

    /// Serves its one call.
    pub async fn serve(
        &mut self,
        entry: &str,
        job: Job<'_>,
        deadline: Instant,
        output_bytes_max: usize,
    ) -> Served {
        self.tail.clear();
        let request = match request(entry, job) {
            Ok(request) => request,
            Err(fault) => return Served::Spent(Err(fault)),
        };
        let max = output_bytes_max + REPLY_SLACK_BYTES;
        let Self {
            stream,
            child,
            stderr,
            tail,
        } = self;
        let exchange = async {
            let reply = exchange(stream, &request, max).await?;
            Some((reply, child.wait().await))
        };
        // A dropped exchange loses the bytes of its reply: the container is ended below, and serves
        // no other call. Biased: a whole reply outranks a cancellation and the deadline.
        let ended = tokio::select! {
            biased;
            ended = exchange => ended.ok_or_else(|| answer::too_large(output_bytes_max)),
            () = stderr.pump(tail, job.sink) => unreachable!("it never ends"),
            fault = stop(job, deadline) => Err(fault),
        };
        if ended.is_err() {
            end(child).await;
        }
        stderr.pass_rest(tail, job.sink);
        Served::Spent(
            ended.and_then(|(reply, exit)| judge(&reply, exit.ending, tail, output_bytes_max)),
        )
    }
}

fn request(entry: &str, job: Job<'_>) -> Result<Vec<u8>, Fault> {
    let Value::Object(payload) = job.call.input.value() else {
        return Err(Fault::BadInput {
            field: String::new(),
            reason: "a tool of this protocol takes an object".to_owned(),
        });
    };
    let request = LocalRequest {
        tool: job.tool.declared_name().to_owned(),
        entry: entry.to_owned(),
        payload: payload.clone(),
        ..LocalRequest::default()
    };
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    Ok(bytes)
}

/// Writes the request and its end, and reads to the end; nothing if that is too much.
async fn exchange(stream: &mut Line, request: &[u8], max: usize) -> Option<Vec<u8>> {
    let (mut left, mut reply) = (request, Vec::new());
    let mut is_told = false;
    loop {
        if !left.is_empty() {
            // If it is gone, what it answered before may still be there.
            let count = stream.write(left).unwrap_or(left.len());
            left = &left[count..];
        }
        if left.is_empty() && !is_told {
            let _ = rustix::net::shutdown(&*stream, rustix::net::Shutdown::Write);
            is_told = true;
        }
        match stream.read(&mut reply, !left.is_empty()).await {
            Ok(Some(0)) | Err(_) => return Some(reply),
            Ok(_) if reply.len() > max => return None,
            Ok(_) => {}
        }
    }
}

/// The exit code outranks what was printed. P-15.
fn judge(reply: &[u8], ending: Ending, tail: &Tail, max: usize) -> Result<Output, Fault> {
    let printed = reply.trim_ascii();
    let failed = !matches!(ending, Ending::Code(0));
    if failed && printed.is_empty() {
        return Err(ending::crash(ending, tail));
    }
    let reply = match Reply::parse(printed) {
        Ok(reply) => reply,
        Err(_) if failed => return Err(ending::crash(ending, tail)),
        Err(error) => return Err(answer::bad(error.to_string())),
    };
    match reply.result {
        Ok(_) if failed => Err(ending::crash(ending, tail)),
        Ok(value) => {
            let output = Output::new(Document::from_value(value));
            if output.json.text().len() > max {
                return Err(answer::too_large(max));
            }
            Ok(output)
        }
        Err(said) => Err(Fault::ToolFailed {
            error_type: answer::clipped(&said.kind),
            message: answer::clipped(&said.message),
            content: None,
        }),
    }
}
