//! The toolpack manifest: a JSON file that lists tools, in the contract's words, with our
//! extra field `runner` (T-23).

use serde::Deserialize;
use serde_json::Value;

use super::limits::DEPTH_MAX;
use crate::json;

/// A toolpack.
#[derive(Debug, Deserialize)]
pub struct Manifest {
    /// `toolpack.` and a lower-case name.
    #[serde(default)]
    pub toolpack_id: String,
    /// The pack's own version.
    #[serde(default)]
    pub toolpack_version: String,
    /// `tier0_builtin`, `tier1_signed` or `tier2_untrusted`; told, not believed.
    #[serde(default)]
    pub trust_tier: String,
    /// The tools; at least one.
    pub tools: Vec<ManifestTool>,
}

/// One tool of a pack. Fields we do not know are ignored, as other hosts have their own.
#[derive(Debug, Deserialize)]
pub struct ManifestTool {
    /// `aid`.
    pub aid: String,
    /// `name`.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// Same input, same output.
    #[serde(default = "yes")]
    pub deterministic: bool,
    /// Free words for menus.
    #[serde(default)]
    pub tags: Vec<String>,
    /// JSON Schema of the input.
    #[serde(default)]
    pub inputs_schema: Option<Value>,
    /// JSON Schema of the output.
    #[serde(default)]
    pub outputs_schema: Option<Value>,
    /// What it touches.
    #[serde(default)]
    pub side_effects: Vec<String>,
    /// What a strict replay needs.
    #[serde(default)]
    pub replay_inputs: Vec<String>,
    /// Ours: the tier, where the side effects do not say it.
    #[serde(default)]
    pub tier: Option<u64>,
    /// Ours: it takes the slots.
    #[serde(default)]
    pub slots: bool,
    /// Ours: a second run does no harm.
    #[serde(default)]
    pub idempotent: bool,
    /// Ours: the longest a call may take.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Ours: other names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Ours: how it is carried out, as in `callgate.toml`. Without it the tool is listed and
    /// not available.
    #[serde(default)]
    pub runner: Option<Value>,
}

fn yes() -> bool {
    true
}

/// Why a manifest does not load.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or not of this shape.
    #[error("{0}")]
    Shape(String),
    /// A pack without tools.
    #[error("the pack has no tools")]
    Empty,
    /// Two tools of one AID.
    #[error("duplicate aid {0}")]
    Duplicate(String),
}

impl Manifest {
    /// Reads a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let value =
            json::parse(bytes, DEPTH_MAX).map_err(|e| ManifestError::Shape(e.to_string()))?;
        let manifest: Self =
            serde_json::from_value(value).map_err(|e| ManifestError::Shape(e.to_string()))?;
        if manifest.tools.is_empty() {
            return Err(ManifestError::Empty);
        }
        let mut aids: Vec<&str> = manifest
            .tools
            .iter()
            .map(|tool| tool.aid.as_str())
            .collect();
        aids.sort_unstable();
        match aids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ManifestError::Duplicate(pair[0].to_owned())),
            None => Ok(manifest),
        }
    }
}

/// The tier that side effects and AID imply: the highest of any. T-14.
#[must_use]
pub fn tier_of_side_effects(aid: &str, side_effects: &[String]) -> u64 {
    let of_effect = |effect: &String| {
        let has = |words: &[&str]| words.iter().any(|word| effect.contains(word));
        if has(&["dynamic_library_load", "genesis"]) {
            3
        } else if effect == "process_introspection" {
            0
        } else if has(&["exec", "spawn", "network", "http", "shell", "process"]) {
            2
        } else if has(&["write", "append", "delete", "create"]) {
            1
        } else {
            0
        }
    };
    let of_aid = if aid.contains("GENESIS") { 3 } else { 0 };
    side_effects
        .iter()
        .map(of_effect)
        .max()
        .unwrap_or(0)
        .max(of_aid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-14: the highest side effect decides, whatever the order.
    #[test]
    fn tiers() {
        let tier = |effects: &[&str]| {
            let effects: Vec<String> = effects.iter().map(|&e| e.to_owned()).collect();
            tier_of_side_effects("AID.X.Y.v1", &effects)
        };
        assert_eq!(tier(&[]), 0);
        assert_eq!(tier(&["none"]), 0);
        assert_eq!(tier(&["filesystem_read"]), 0);
        assert_eq!(tier(&["process_introspection"]), 0);
        assert_eq!(tier(&["gpu_probe"]), 0);
        assert_eq!(tier(&["filesystem_write"]), 1);
        assert_eq!(tier(&["filesystem_delete"]), 1);
        assert_eq!(tier(&["filesystem_write", "process_spawn"]), 2);
        assert_eq!(tier(&["process_spawn", "filesystem_write"]), 2);
        assert_eq!(tier(&["proc_exec"]), 2);
        assert_eq!(tier(&["network_io"]), 2);
        assert_eq!(tier(&["none", "dynamic_library_load"]), 3);
        assert_eq!(tier_of_side_effects("AID.GENESIS.RUN.v1", &[]), 3);
    }

    #[test]
    fn packs_that_do_not_load() {
        let error = |text: &str| Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error("{").contains("EOF"));
        assert!(error(r#"{"tools":[]}"#).contains("no tools"));
        assert!(
            error(r#"{"tools":[{"aid":"A","name":"a"},{"aid":"A","name":"b"}]}"#)
                .contains("duplicate aid A")
        );
        assert!(error(r#"{"tools":[{"aid":"A"}]}"#).contains("name"));
    }

    #[test]
    fn defaults() {
        let pack =
            Manifest::parse(br#"{"tools":[{"aid":"A","name":"a","estimate_model":{}}]}"#).unwrap();
        assert!(pack.tools[0].deterministic && pack.tools[0].side_effects.is_empty());
    }
}
