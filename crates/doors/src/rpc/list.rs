//! `tools/list`: exactly the contract's fields..

use std::sync::LazyLock;

use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_call::Tool;
use callgate_gate::{Gate, Schema};
use callgate_wires::jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Peer, Reached, bad_params, error_of};

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: u64 = 200;
/// Of a tool that has none of its own: the version that is called by `X.v1`..
const VERSION_DEFAULT: &str = "1.0.0";
/// Before the name in a cursor, so that not every text is one.
const CURSOR: &str = "after:";

pub(super) fn tools(
    gate: &Gate,
    peer: &Peer,
    reached: &Reached,
    params: Map<String, Value>,
) -> Result<Value, RpcError> {
    let asked = Asked::read(params)?;
    let entries = gate.visible_tools(&peer.caller, peer.scope.as_deref());
    let mut wanted = entries
        .iter()
        .map(|entry| &entry.tool)
        .filter(|tool| asked.fits(tool))
        .filter(|tool| {
            asked
                .after
                .as_deref()
                .is_none_or(|after| tool.name.as_str() > after)
        });
    let page: Vec<&Tool> = wanted.by_ref().take(asked.limit).collect();
    let next_cursor = match (wanted.next(), page.last()) {
        (Some(_), Some(last)) => json!(URL_SAFE_NO_PAD.encode(format!("{CURSOR}{}", last.name))),
        _ => Value::Null,
    };
    let tools: Vec<Value> = page
        .into_iter()
        .map(|tool| {
            described(
                tool,
                gate.asks_leave(tool, &peer.caller, peer.lease_group),
                reached,
            )
        })
        .collect();
    Ok(json!({ "tools": tools, "next_cursor": next_cursor }))
}

/// What it takes and gives, as the contract has it.
pub(super) fn schemas() -> [Value; 2] {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let closed = |properties: Value, required: &[&str]| {
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    };
    let filter = json!({ "names": texts, "tags": texts, "enabled": { "type": "boolean" } });
    let input = json!({
        "filter": closed(filter, &[]),
        "cursor": { "type": ["string", "null"] },
        "limit": {
            "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT,
        },
    });
    let server = json!({
        "id": { "type": "string" },
        "transport": { "type": "string", "enum": ["stdio", "http"] },
        "endpoint": { "type": ["string", "null"] },
    });
    let tool = json!({
        "name": { "type": "string" },
        "title": { "type": "string" },
        "description": { "type": "string" },
        "version": { "type": "string" },
        "input_schema": { "type": "object" },
        "output_schema": { "type": ["object", "null"] },
        "tags": texts,
        "auth_required": { "type": "boolean" },
        "rate_limit": { "type": ["object", "null"] },
        "server": closed(server, &["id", "transport"]),
        "enabled": { "type": "boolean" },
    });
    let always = [
        "name",
        "description",
        "input_schema",
        "auth_required",
        "server",
        "enabled",
    ];
    let output = json!({
        "tools": { "type": "array", "items": closed(tool, &always) },
        "next_cursor": { "type": ["string", "null"] },
    });
    [closed(input, &[]), closed(output, &["tools"])]
}

fn described(tool: &Tool, auth_required: bool, reached: &Reached) -> Value {
    let (transport, endpoint) = match reached {
        Reached::Stdio => ("stdio", None),
        Reached::Http(host) => ("http", host.as_ref().and_then(endpoint)),
    };
    let rate_limit = tool
        .rate_limit
        .map(|rate| json!({ "per_second": rate.per_second, "burst": rate.burst }));
    json!({
        "name": tool.name,
        "title": tool.face.title.as_deref().unwrap_or(&tool.name),
        "description": tool.description,
        "version": tool.version.as_deref().unwrap_or(VERSION_DEFAULT),
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "tags": tool.tags,
        "auth_required": auth_required,
        "rate_limit": rate_limit,
        "server": { "id": "callgate", "transport": transport, "endpoint": endpoint },
        "enabled": tool.runner.is_there(),
    })
}

/// Where the client found us, in its own words.
fn endpoint(host: &HeaderValue) -> Option<String> {
    let host = host.to_str().ok()?;
    Some(format!("http://{host}/rpc"))
}

/// The schema that params are checked by, which is the one that is shown.
static INPUT: LazyLock<Schema> = LazyLock::new(|| Schema::builtin(&schemas()[0]));

/// The params, which fit their schema.
#[derive(Deserialize)]
struct ListParams {
    #[serde(default)]
    filter: Filter,
    cursor: Option<String>,
    /// A whole number, which may be written with a point.
    limit: Option<f64>,
}

#[derive(Default, Deserialize)]
struct Filter {
    names: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    enabled: Option<bool>,
}

/// What is asked for.
struct Asked {
    names: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    enabled: Option<bool>,
    after: Option<String>,
    limit: usize,
}

impl Asked {
    fn read(params: Map<String, Value>) -> Result<Self, RpcError> {
        let params = Value::Object(params);
        INPUT
            .check_input(&params)
            .map_err(|fault| error_of(&fault))?;
        let ListParams {
            filter,
            cursor,
            limit,
        } = serde_json::from_value(params).map_err(|_| bad_params("", "are malformed"))?;
        Ok(Self {
            names: filter.names,
            tags: filter.tags,
            enabled: filter.enabled,
            after: cursor.as_deref().map(after).transpose()?,
            limit: limit.map_or(LIMIT_DEFAULT, |limit| limit as usize),
        })
    }

    /// Any of the tags is enough.
    fn fits(&self, tool: &Tool) -> bool {
        let named = |names: &Vec<String>| names.contains(&tool.name);
        let tagged = |tags: &Vec<String>| tags.iter().any(|tag| tool.tags.contains(tag));
        self.names.as_ref().is_none_or(named)
            && self.tags.as_ref().is_none_or(tagged)
            && self
                .enabled
                .is_none_or(|enabled| enabled == tool.runner.is_there())
    }
}

fn after(cursor: &str) -> Result<String, RpcError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.as_deref()
        .and_then(|text| text.strip_prefix(CURSOR))
        .map(str::to_owned)
        .ok_or_else(|| bad_params("cursor", "is none of ours"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// 100,000 changed cursors: what is taken as one is one of ours.
    #[test]
    fn mutated_cursors() {
        const CASES: usize = 100_000;
        const WORDS: [&[u8]; 6] = [b"YWZ0", b"=", b"-_", b"A", b"\0", b"\xff"];
        let cursor_of = |name: &str| URL_SAFE_NO_PAD.encode(format!("{CURSOR}{name}"));
        let seeds = ["files/read", "", "acme.greeter/say_hello", "\u{e9}"].map(cursor_of);
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        let mut random = Random::new("mutated cursors of tools/list");
        let mut taken = 0;
        for _ in 0..CASES {
            let bytes = mutant(&mut random, &seeds, &WORDS);
            let cursor = String::from_utf8_lossy(&bytes);
            match after(&cursor) {
                Ok(name) => {
                    assert_eq!(cursor_of(&name), cursor);
                    taken += 1;
                }
                Err(error) => assert_eq!(error.code, -32602, "{cursor}"),
            }
        }
        assert!(taken > 0 && taken < CASES, "{taken} of {CASES}");
    }
}
