//! The arguments of the tools and the schemas of what they take and give: `search` word for word
//! as the contract has it.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{NaturalNumber, set};
use crate::closed;

/// Items of one call.
const ITEMS_MAX: usize = 1000;
/// Numbers of one vector.
const DIMENSIONS_MAX: usize = callgate_search::DIMENSIONS_MAX;

/// The arguments of `vector/search`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorSearchArguments {
    pub query: Option<String>,
    pub embedding: Option<Vec<f64>>,
    pub top_k: Option<NaturalNumber>,
    pub namespace: Option<String>,
    #[serde(default)]
    pub filter: VectorFilterArguments,
    #[serde(default)]
    pub include_vectors: bool,
    #[serde(default = "set")]
    pub rerank: bool,
}

/// Which pieces a search is about.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorFilterArguments {
    pub path_prefix: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// The schemas of `vector/search`.
pub fn search() -> [Value; 2] {
    let filter = closed(
        json!({
            "path_prefix": { "type": ["string", "null"] },
            "tags": { "type": "array", "items": { "type": "string" } },
        }),
        &[],
    );
    let input = json!({
        "query": { "type": ["string", "null"] },
        "embedding": { "type": ["array", "null"], "items": { "type": "number" } },
        "top_k": { "type": "integer", "minimum": 1, "maximum": 50, "default": 5 },
        "namespace": { "type": ["string", "null"] },
        "filter": filter,
        "include_vectors": { "type": "boolean", "default": false },
        "rerank": { "type": "boolean", "default": true },
    });
    let metadata = closed(
        json!({
            "path": { "type": "string" },
            "line_start": { "type": ["integer", "null"] },
            "line_end": { "type": ["integer", "null"] },
            "lang": { "type": ["string", "null"] },
            "commit": { "type": ["string", "null"] },
            "shard_id": { "type": ["string", "null"] },
            "etag": { "type": ["string", "null"] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "snippet": { "type": ["string", "null"] },
        }),
        &[],
    );
    let one = closed(
        json!({
            "id": { "type": "string" },
            "score": { "type": "number" },
            "vector": { "type": ["array", "null"], "items": { "type": "number" } },
            "metadata": metadata,
        }),
        &["id", "score", "metadata"],
    );
    let usage = closed(
        json!({
            "embedding_model": { "type": ["string", "null"] },
            "embed_time_ms": { "type": ["integer", "null"] },
            "rerank_model": { "type": ["string", "null"] },
        }),
        &[],
    );
    let output = json!({ "matches": { "type": "array", "items": one }, "usage": usage });
    [closed(input, &[]), closed(output, &["matches"])]
}

fn namespace() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 256 })
}

fn id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 1024 })
}

/// The arguments of `vector/upsert`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorUpsertArguments<'a> {
    pub namespace: &'a str,
    #[serde(borrow)]
    pub items: Vec<VectorItemArguments<'a>>,
}

/// One item to be put into a namespace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorItemArguments<'a> {
    pub id: &'a str,
    pub text: Option<&'a str>,
    pub embedding: Option<Vec<f64>>,
    #[serde(borrow, default)]
    pub metadata: VectorMetadataArguments<'a>,
}

/// What is known of an item.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorMetadataArguments<'a> {
    pub path: Option<&'a str>,
    pub line_start: Option<NaturalNumber>,
    pub line_end: Option<NaturalNumber>,
    pub lang: Option<&'a str>,
    pub commit: Option<&'a str>,
    pub etag: Option<&'a str>,
    #[serde(borrow, default)]
    pub tags: Vec<&'a str>,
}

/// The schemas of `vector/upsert`.
pub fn upsert() -> [Value; 2] {
    let metadata = closed(
        json!({
            "path": { "type": "string", "maxLength": 4096 },
            "line_start": { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 },
            "line_end": { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 },
            "lang": { "type": "string", "maxLength": 64 },
            "commit": { "type": "string", "maxLength": 64 },
            "etag": { "type": "string", "maxLength": 256 },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 256 }, "maxItems": 64 },
        }),
        &[],
    );
    let item = closed(
        json!({
            "id": id(),
            "text": { "type": "string", "maxLength": 65536 },
            "embedding": {
                "type": "array",
                "items": { "type": "number" },
                "minItems": 1,
                "maxItems": DIMENSIONS_MAX,
            },
            "metadata": metadata,
        }),
        &["id"],
    );
    let items = json!({ "type": "array", "items": item, "minItems": 1, "maxItems": ITEMS_MAX });
    let input = json!({ "namespace": namespace(), "items": items });
    let output = json!({ "upserted": { "type": "integer" } });
    [
        closed(input, &["namespace", "items"]),
        closed(output, &["upserted"]),
    ]
}

/// The arguments of `vector/delete`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorDeleteArguments<'a> {
    pub namespace: &'a str,
    pub ids: Vec<String>,
}

/// The schemas of `vector/delete`.
pub fn delete() -> [Value; 2] {
    let ids = json!({ "type": "array", "items": id(), "minItems": 1, "maxItems": ITEMS_MAX });
    let input = json!({ "namespace": namespace(), "ids": ids });
    let output = json!({ "deleted": { "type": "integer" } });
    [
        closed(input, &["namespace", "ids"]),
        closed(output, &["deleted"]),
    ]
}
