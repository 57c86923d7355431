//! `initialize`, the handshake of the legacy era.

use serde::{Deserialize, Serialize};

use super::capabilities::{ClientCapabilities, ServerCapabilities};
use super::identity::Implementation;
use super::{Extra, RequestMeta};

/// Params of `initialize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The capabilities of the client. The protocol requires them; clients without are not refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<ClientCapabilities>,
    /// The identity of the client. The protocol requires it; clients without are not refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_info: Option<Implementation>,
    /// The revision that the client wants.
    pub protocol_version: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// Words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The revision that both will speak.
    pub protocol_version: String,
    /// The identity of the server.
    pub server_info: Implementation,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
