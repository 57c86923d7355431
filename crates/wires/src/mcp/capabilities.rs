//! The capabilities of clients and servers. A capability is there if its member is; details inside
//! one are objects that later revisions add to.

use serde::{Deserialize, Serialize};

use super::Extra;

/// The capabilities of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientCapabilities {
    /// Puts questions to its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<ElicitationCapability>,
    /// Outside of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Extra>,
    /// Extensions by their names, each with settings of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Extra>,
    /// Names the folders that a server may work in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<RootsCapability>,
    /// Lets a server ask its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Extra>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ClientCapabilities {
    /// Returns whether the capability of this name is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match name {
            "elicitation" => self.elicitation.is_some(),
            "experimental" => self.experimental.is_some(),
            "extensions" => self.extensions.is_some(),
            "roots" => self.roots.is_some(),
            "sampling" => self.sampling.is_some(),
            other => self.extra.contains_key(other),
        }
    }

    /// Returns whether the client knows an extension.
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        let extensions = self.extensions.as_ref();
        extensions.is_some_and(|extensions| extensions.contains_key(name))
    }
}

/// The ways in which a client asks its user. A client with neither member shows forms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ElicitationCapability {
    /// Shows forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Extra>,
    /// Opens addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Extra>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Details of the `roots` capability.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootsCapability {
    /// Tells when they change. Legacy era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The capabilities of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerCapabilities {
    /// Completes arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Extra>,
    /// Outside of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Extra>,
    /// Extensions by their names, each with settings of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Extra>,
    /// Sends log messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Extra>,
    /// Has prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<ListCapability>,
    /// Has resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ListCapability>,
    /// Has tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ListCapability>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Details of a capability that has a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCapability {
    /// Tells when the list changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
    /// Tells when one of the listed changes; resources only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<bool>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
