//! Requests for what a server has beside its tools. Each is a call of a tool that no list shows, so
//! that policy, leases, records and confinement are those of calls. U-31.

use std::sync::Arc;

use callgate_call::{Job, Load, Output, RunFuture, Runner, ServerControl};
use serde_json::json;

use super::Upstream;
use super::link::Request;
use super::pins::Pinned;

/// One prompt of a server. The input of a call has the arguments of the prompt.
#[derive(Debug)]
pub struct UpstreamPromptRunner {
    upstream: Arc<Upstream>,
    /// Its name at the server.
    prompt: String,
}

impl UpstreamPromptRunner {
    /// `prompt` is its name at the server.
    #[must_use]
    pub fn new(upstream: Arc<Upstream>, prompt: impl Into<String>) -> Self {
        Self {
            upstream,
            prompt: prompt.into(),
        }
    }
}

impl Runner for UpstreamPromptRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move {
            let params = json!({ "name": self.prompt, "arguments": job.call.input.value() });
            let subject = Pinned::Prompt(&self.prompt);
            let request = Request::Method("prompts/get", &params, subject);
            let result = self.upstream.ask(request, job).await?;
            Ok(Output::from_value(result))
        })
    }

    fn kind(&self) -> &'static str {
        "server"
    }

    fn load(&self) -> Option<Load> {
        Some(self.upstream.load())
    }

    fn is_hidden(&self) -> bool {
        self.upstream.refuses(Pinned::Prompt(&self.prompt))
    }

    fn server(&self) -> Option<&dyn ServerControl> {
        Some(&*self.upstream)
    }
}
