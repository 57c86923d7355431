//! What a caller requires of a service before it calls, and what the service says to it.

use serde_json::{Map, Value};

use super::context::GuaranteeSet;
use super::fields::{Fields, RequestError};
use super::reply::Said;
use super::request::{put, put_some, versioned};
use crate::json;

/// TP-49 to TP-52.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeRequest {
    /// The tool it is about.
    pub tool_name: String,
    /// `service`, where it is said.
    pub runner: Option<String>,
    /// What the caller must have enforced.
    pub required: GuaranteeSet,
}

impl HandshakeRequest {
    /// Reads a body.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let mut fields = Fields::of_request(bytes)?;
        Ok(Self {
            tool_name: fields.required_text("tool_name")?,
            runner: fields.text("runner")?,
            required: GuaranteeSet::required(
                fields.object("required_guarantees")?.unwrap_or_default(),
            )?,
        })
    }

    /// Appends the request as one JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut message = versioned();
        put(&mut message, "tool_name", self.tool_name.as_str());
        put_some(&mut message, "runner", self.runner.as_deref());
        put(
            &mut message,
            "required_guarantees",
            self.required.to_object(),
        );
        json::write_object(&message, out);
    }
}

/// TP-53 to TP-56, TP-58.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeReply {
    /// How far the service would go.
    Levels {
        /// `enforced`, `partial` or `none`; a foreign service may say nothing, or anything.
        enforcement: Option<String>,
        /// What would be enforced for this tool.
        supported: GuaranteeSet,
        /// Which service speaks.
        service_version: Option<String>,
    },
    /// `ok` is false.
    Refused(Said),
}

impl HandshakeReply {
    /// Reads a reply of any service. One without `ok` counts as agreed, as the contract's own
    /// host has it.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let mut fields = Fields::of_object(bytes)?;
        if fields.flag("ok")? == Some(false) {
            return Ok(Self::Refused(Said::read(&fields.into_map())));
        }
        Ok(Self::Levels {
            enforcement: fields.text("enforcement")?,
            supported: GuaranteeSet::claimed(
                &fields.object("supported_guarantees")?.unwrap_or_default(),
            ),
            service_version: fields.text("service_version")?,
        })
    }

    /// Appends the reply as one JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut message = Map::new();
        match self {
            Self::Levels {
                enforcement,
                supported,
                service_version,
            } => {
                put(&mut message, "ok", true);
                put_some(&mut message, "enforcement", enforcement.as_deref());
                put(&mut message, "supported_guarantees", supported.to_object());
                put_some(&mut message, "service_version", service_version.as_deref());
            }
            Self::Refused(said) => {
                put(&mut message, "ok", false);
                put(&mut message, "error", Value::Object(said.to_object()));
            }
        }
        json::write_object(&message, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(value: &Value) -> Result<HandshakeRequest, RequestError> {
        HandshakeRequest::parse(value.to_string().as_bytes())
    }

    /// TP-49 to TP-52: all six may be listed, false ones too.
    #[test]
    fn requests() {
        let whole = json!({
            "protocol_version": 1, "tool_name": "t", "runner": "service",
            "required_guarantees": {
                "no_filesystem_read": false, "no_filesystem_write": true, "no_network": true,
                "no_subprocess": false, "no_env_read": false, "no_env_write": false,
                "secrets_allowed": [],
            },
        });
        let read = request(&whole).unwrap();
        let names: Vec<_> = read.required.names().collect();
        assert_eq!(names, ["no_filesystem_write", "no_network"]);
        assert_eq!(read.required.secrets_allowed, Some(Vec::new()));
        let mut out = Vec::new();
        read.write(&mut out);
        assert_eq!(HandshakeRequest::parse(&out), Ok(read));
        assert_eq!(
            request(&json!({"tool_name": "t"})),
            Err(RequestError::Version)
        );
        for bad in [
            json!({"protocol_version": 1}),
            json!({"protocol_version": 1, "tool_name": "t", "required_guarantees": []}),
            json!({"protocol_version": 1, "tool_name": "t", "runner": 1}),
        ] {
            assert!(
                matches!(request(&bad), Err(RequestError::Wrong(_))),
                "{bad}"
            );
        }
        assert!(request(&json!({"protocol_version": 1, "tool_name": "t"})).is_ok());
    }

    /// TP-53 to TP-56, TP-58.
    #[test]
    fn replies() {
        let mut supported = GuaranteeSet::default();
        assert!(supported.require("no_network") && !supported.require("no_such"));
        supported.secrets_allowed = Some(vec!["A".to_owned()]);
        for reply in [
            HandshakeReply::Levels {
                enforcement: Some("partial".into()),
                supported,
                service_version: Some("0.1.0".into()),
            },
            HandshakeReply::Refused(Said::new("ToolNotFoundError", "tool not found: x")),
        ] {
            let mut out = Vec::new();
            reply.write(&mut out);
            assert_eq!(HandshakeReply::parse(&out), Ok(reply));
        }
        let silent = HandshakeReply::parse(b"{}").unwrap();
        let nothing = HandshakeReply::Levels {
            enforcement: None,
            supported: GuaranteeSet::default(),
            service_version: None,
        };
        assert_eq!(silent, nothing);
    }
}
