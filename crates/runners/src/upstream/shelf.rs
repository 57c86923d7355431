//! Requests for what a server has beside its tools. Each is a call of a tool that no list shows, so
//! that policy, leases, records and confinement are those of calls. U-31.

use std::sync::Arc;

use callgate_call::{Job, Load, Output, RunFuture, Runner, ServerControl};
use serde_json::{Value, json};

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

/// Addresses of user interfaces: tools refer to them as they are, and so they are not changed.
const INTERFACE_SCHEME: &str = "ui:";

/// Our address for a resource of a server whose addresses begin with `prefix` here.
#[must_use]
pub fn upstream_address(prefix: &str, uri: &str) -> String {
    match uri.starts_with(INTERFACE_SCHEME) {
        true => uri.to_owned(),
        false => format!("{prefix}{uri}"),
    }
}

/// The resources of a server. The input of a call has our address of one as `uri`.
#[derive(Debug)]
pub struct UpstreamResourceRunner {
    upstream: Arc<Upstream>,
    /// Stands in front of the server's own addresses.
    prefix: String,
}

impl UpstreamResourceRunner {
    /// `prefix` stands in front of the server's own addresses.
    #[must_use]
    pub fn new(upstream: Arc<Upstream>, prefix: impl Into<String>) -> Self {
        Self {
            upstream,
            prefix: prefix.into(),
        }
    }
}

impl Runner for UpstreamResourceRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move {
            let uri = job.call.input.value().get("uri").and_then(Value::as_str);
            let uri = uri.unwrap_or_default();
            let own = uri.strip_prefix(&self.prefix).unwrap_or(uri);
            let params = json!({ "uri": own });
            let mut result = self
                .upstream
                .request("resources/read", &params, job)
                .await?;
            let contents = result.get_mut("contents").and_then(Value::as_array_mut);
            for content in contents.into_iter().flatten() {
                if let Some(Value::String(uri)) = content.get_mut("uri") {
                    *uri = upstream_address(&self.prefix, uri);
                }
            }
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
        self.upstream.refuses(Pinned::Server)
    }

    fn server(&self) -> Option<&dyn ServerControl> {
        Some(&*self.upstream)
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
