//! The table of all targets, a module for each wire or crate.

mod bridge;
mod call;
mod doors;
mod importer;
mod json;
mod jsonrpc;
mod listener;
mod mcp;
mod pipe;
mod registry;
mod runners;
mod search;
mod store;
mod stream;
mod text;
mod tool_protocol;
mod toolhost;

use crate::Target;

const fn target(
    name: &'static str,
    about: &'static str,
    input_bytes_max: usize,
    run: fn(&[u8]),
) -> Target {
    Target {
        name,
        about,
        input_bytes_max,
        run,
    }
}

/// Every target, in the order in which they are run.
#[rustfmt::skip]
pub static TARGETS: &[Target] = &[
    target("http-short", "small HTTP requests: read as hyper reads them", 1024, listener::short_request),
    target("json-quick", "quick JSON reader: the same values as the strict reader", 512, json::quick),
    target("json-strict", "strict JSON: the values of serde_json, and its own output", 512, json::strict),
    target("json-rpc", "JSON-RPC: alone, in a batch and written again", 768, jsonrpc::envelopes),
    target("mcp-requests", "MCP requests: typed params are the params", 1024, jsonrpc::mcp_requests),
    target("mcp-messages", "MCP messages: round trip, unknown members survive", 1024, mcp::messages),
    target("mcp-servers", "lines of MCP servers: the same however they are cut and read", 768, mcp::servers),
    target("mcp-headers", "MCP headers: taken only for what they spell", 256, mcp::headers),
    target("bearer-tokens", "JSON Web Tokens: read in one way only", 768, listener::bearer_token),
    target("public-keys", "keys of an issuer, and signatures", 1024, listener::public_key),
    target("sealed", "session ids and cursors: only what was sealed opens", 256, doors::sealed),
    target("web-socket", "WebSocket messages: the same however they are cut", 512, doors::web_socket),
    target("toolhost-requests", "requests of a toolhost's parent: round trip", 768, toolhost::requests),
    target("toolhost-states", "states and state patches: round trip", 768, toolhost::states),
    target("toolhost-runs", "manifests and run requests: round trip", 768, toolhost::runs),
    target("toolhost-selections", "answers of selectors: only a pick has an entry", 512, toolhost::selections),
    target("tool-messages", "requests and replies of the tool protocol: round trip", 768, tool_protocol::messages),
    target("tool-lines", "bindings, capabilities and packs: round trip", 768, tool_protocol::lines),
    target("bridge-frames", "frames of the bridge: the same however they are cut", 256, bridge::frames),
    target("bridge-messages", "messages of the bridge: round trip", 512, bridge::messages),
    target("stream-frames", "frames and MessagePack of streams: the same however they are cut", 512, stream::frames),
    target("stream-session", "a run held to its contract: counts and bounds", 256, stream::session),
    target("stream-messages", "acknowledgements and run requests of streams: round trip", 512, stream::messages),
    target("pipe-lines", "lines of pipes: those of their definition", 128, pipe::lines),
    target("worker-lines", "lines of workers: the same however they are cut", 768, runners::worker_lines),
    target("proxy-heads", "requests to the egress proxy: one request to the host that was checked", 512, runners::proxy_heads),
    target("secrets", "secrets out of output: none leaks however it is cut", 128, call::redaction),
    target("tool-patterns", "patterns of tool names: as their definition", 96, call::patterns),
    target("timestamps", "timestamps of cursors: round trip", 64, text::timestamps),
    target("journal-frames", "journal bytes: named as what they are", 512, store::frames),
    target("journal-records", "journal frames: damage of one bit shows", 512, store::records),
    target("exported-chain", "exported chains: good ones have a signed head", 2048, store::exported_chain),
    target("pack-seals", "seals of packs: round trip", 1024, registry::seal),
    target("configuration", "configurations: read the same when written again", 1024, registry::configuration),
    target("project-settings", "settings and policies of projects", 768, registry::project),
    target("client-settings", "settings files of MCP clients: edits keep everything else", 1024, importer::client_settings),
    target("model-files", "archive and tensors of the search model: within their bounds", 512, search::model_files),
];
