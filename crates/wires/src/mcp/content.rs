//! Content blocks, of which the results of tools, the messages of prompts and of models consist.
//! A block of a type that is not known here survives as it is.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::resources::ResourceContents;
use super::{Extra, RawJson, fields};

/// One block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// `text`.
    Text(TextContent),
    /// `image`.
    Image(MediaContent),
    /// `audio`.
    Audio(MediaContent),
    /// `resource`: a resource as a whole.
    Resource(EmbeddedResource),
    /// `resource_link`: where a resource is.
    ResourceLink(ResourceLink),
    /// A block of another type, whole, with its `type`.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = Map::deserialize(deserializer)?;
        let kind = match members.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            Some(_) => return Err(D::Error::custom("`type` must be a string")),
            None => return Err(D::Error::custom("`type` is required")),
        };
        if !matches!(
            kind.as_str(),
            "text" | "image" | "audio" | "resource" | "resource_link"
        ) {
            return Ok(Self::Other(members));
        }
        members.remove("type");
        let block = Value::Object(members);
        let read = match kind.as_str() {
            "text" => fields::read(&block).map(Self::Text),
            "image" => fields::read(&block).map(Self::Image),
            "audio" => fields::read(&block).map(Self::Audio),
            "resource" => fields::read(&block).map(Self::Resource),
            _ => fields::read(&block).map(Self::ResourceLink),
        };
        read.map_err(D::Error::custom)
    }
}

/// For whom a block or a resource is, and how much it matters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// `user`, `assistant` or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<String>>,
    /// When it changed last, as RFC 3339 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// From 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextContent {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The text.
    pub text: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An image or a sound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaContent {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The bytes, as base64.
    pub data: String,
    /// Their type.
    pub mime_type: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A resource inside a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmbeddedResource {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// The resource.
    pub resource: ResourceContents,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A resource that can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// For models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Pictures, each an [`Icon`](super::Icon).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<RawJson>,
    /// Its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// For programs.
    pub name: String,
    /// Its bytes, before any encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its address.
    pub uri: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
