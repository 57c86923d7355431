//! `artifacts/read`: bytes of an artifact, for callers and, at `callgate://artifacts/…`, for MCP
//! clients as a resource.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_call::{Cancel, Digest, Fault, Output, Tool};
use callgate_store::{KeptArtifact, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::seen::{ShownArtifact, reader};
use super::unread;
use crate::arguments::{NaturalNumber, arguments};
use crate::programs::bad;

/// Where artifacts are: the digest follows.
pub(super) const ADDRESS: &str = "callgate://artifacts/";
/// The same, for those who fill in places.
pub const ARTIFACT_TEMPLATE: &str = "callgate://artifacts/{digest}";

/// Bytes of one reading, and of one that does not say.
const LENGTH_MAX: u64 = 4 * 1024 * 1024;
const LENGTH_DEFAULT: u64 = 256 * 1024;

/// The arguments of `artifacts/read`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactReadArguments<'a> {
    digest: Option<&'a str>,
    run_id: Option<&'a str>,
    artifact_id: Option<&'a str>,
    offset: Option<NaturalNumber>,
    length: Option<NaturalNumber>,
    uri: Option<&'a str>,
}

/// Some of the bytes of an artifact, in an answer.
#[derive(Serialize)]
struct ShownPiece<'a> {
    #[serde(flatten)]
    artifact: ShownArtifact<'a>,
    offset: u64,
    data: String,
    /// The offset of the bytes after these; null if there are none.
    next: Option<u64>,
}

/// A whole artifact, as clients of MCP have resources.
#[derive(Serialize)]
struct ShownResource<'a> {
    uri: &'a str,
    #[serde(rename = "mimeType")]
    mime_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
}

/// The schema of the input of `artifacts/read`.
pub(crate) fn schema() -> Value {
    let word = json!({ "type": "string", "minLength": 1 });
    crate::closed(
        json!({
            "digest": word,
            "run_id": word,
            "artifact_id": word,
            "offset": { "type": "integer", "minimum": 0, "default": 0 },
            "length": { "type": "integer", "minimum": 1, "maximum": LENGTH_MAX,
                "default": LENGTH_DEFAULT },
            "uri": { "type": "string", "description": "It is read as this resource" },
        }),
        &[],
    )
}

/// The tool.
pub fn read(store: Arc<Store>) -> Tool {
    let look = move |input: &Value, _: &Cancel| given(&store, input);
    reader(
        "artifacts/read",
        "AID.ARTIFACTS.READ.v1",
        "Read bytes of an artifact, by its digest or by its run and id",
        schema(),
        look,
    )
}

fn given(store: &Store, input: &Value) -> Result<Output, Fault> {
    let asked: ArtifactReadArguments<'_> = arguments(input)?;
    let (kept, mut file) = find(store, &asked)?;
    if let Some(uri) = asked.uri {
        return resource(uri, &kept, &file);
    }
    let offset = asked.offset.map_or(0, |offset| offset.0);
    let length = asked.length.map_or(LENGTH_DEFAULT, |length| length.0);
    let bytes = (|| {
        file.seek(SeekFrom::Start(offset))?;
        taken(&file, length)
    })();
    let bytes = bytes.map_err(lost)?;
    let end = offset.saturating_add(bytes.len() as u64);
    Ok(Output::from_value(json!(ShownPiece {
        artifact: ShownArtifact::new(&kept),
        offset,
        data: STANDARD.encode(&bytes),
        next: (end < kept.bytes).then_some(end),
    })))
}

/// All of it, as clients of MCP have resources: text as text, all else as base64.
fn resource(uri: &str, kept: &KeptArtifact, file: &File) -> Result<Output, Fault> {
    if kept.bytes > LENGTH_MAX {
        let fault = Fault::too_large("artifact", LENGTH_MAX);
        return Err(fault.with("hint", "artifacts/read gives it in pieces"));
    }
    let bytes = taken(file, LENGTH_MAX).map_err(lost)?;
    let (text, blob) = match String::from_utf8(bytes) {
        Ok(text) if is_text(&kept.content_type) => (Some(text), None),
        Ok(text) => (None, Some(STANDARD.encode(text))),
        Err(bytes) => (None, Some(STANDARD.encode(bytes.as_bytes()))),
    };
    let mime_type = &kept.content_type;
    let content = ShownResource {
        uri,
        mime_type,
        text,
        blob,
    };
    Ok(Output::from_value(json!({ "contents": [content] })))
}

fn is_text(content_type: &str) -> bool {
    content_type.starts_with("text/")
        || content_type.starts_with("application/json")
        || content_type.ends_with("+json")
}

fn taken(file: &File, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // bound: `LENGTH_MAX`, by the schema
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn find(store: &Store, asked: &ArtifactReadArguments<'_>) -> Result<(KeptArtifact, File), Fault> {
    let missing = || Fault::NotFound {
        message: "there is no such artifact".to_owned(),
    };
    let damaged = || Fault::Internal {
        message: "the bytes of the artifact are gone".to_owned(),
    };
    match (asked.digest, asked.run_id, asked.artifact_id) {
        (Some(digest), None, None) => {
            let hex = digest.strip_prefix("b3-").unwrap_or(digest);
            let kept = store.artifacts_by(hex).map_err(|error| unread(&error))?;
            let kept = kept.into_iter().next().ok_or_else(missing)?;
            let digest = Digest::from_hex(hex).ok_or_else(missing)?;
            let file = store.artifact(&digest).map_err(|error| unread(&error))?;
            Ok((kept, file.ok_or_else(damaged)?))
        }
        (None, Some(run_id), Some(artifact_id)) => {
            let found = store.artifact_of(run_id, artifact_id);
            let (kept, file) = found.map_err(|error| unread(&error))?.ok_or_else(missing)?;
            Ok((kept, file.ok_or_else(damaged)?))
        }
        _ => Err(bad("digest", "say it alone, or run_id and artifact_id")),
    }
}

fn lost(error: std::io::Error) -> Fault {
    Fault::Internal {
        message: format!("read an artifact: {error}"),
    }
}
