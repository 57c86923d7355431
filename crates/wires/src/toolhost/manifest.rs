//! The toolpack manifest: a JSON file that lists tools, in the contract's words, with our
//! extra fields `runner` (T-23) and `confinement`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::limits::DEPTH_MAX;
use crate::json;

/// A toolpack.
#[derive(Debug, Deserialize)]
pub struct Manifest {
    /// `toolpack.` and a lower-case name.
    pub toolpack_id: String,
    /// The pack's own version.
    pub toolpack_version: String,
    /// Told, not believed: what counts is who named the pack.
    pub trust_tier: TrustTier,
    /// The tools; at least one.
    pub tools: Vec<ManifestTool>,
}

/// What a pack says of its own origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the contract's words")]
pub enum TrustTier {
    #[serde(rename = "tier0_builtin")]
    Builtin,
    #[serde(rename = "tier1_signed")]
    Signed,
    #[serde(rename = "tier2_untrusted")]
    Untrusted,
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
    /// Free words for menus; at least one.
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
    /// Ours: what its child may reach and is held to.
    #[serde(default)]
    pub confinement: Map<String, Value>,
    /// Ours: what else `callgate.toml` says of a tool.
    #[serde(default)]
    pub callgate: Map<String, Value>,
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
    /// A name that is not of the contract's form.
    #[error("toolpack_id {0:?} is not `toolpack.` and a lower-case name")]
    PackId(String),
    /// An AID that is not of the contract's form.
    #[error("aid {0:?} is not of the form AID.SEGMENTS.v1")]
    Aid(String),
    /// A tool without tags.
    #[error("tool {0} has no tags")]
    NoTags(String),
}

impl Manifest {
    /// Reads a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let value =
            json::parse(bytes, DEPTH_MAX).map_err(|e| ManifestError::Shape(e.to_string()))?;
        let manifest: Self =
            serde_json::from_value(value).map_err(|e| ManifestError::Shape(e.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ManifestError> {
        if !is_pack_id(&self.toolpack_id) {
            return Err(ManifestError::PackId(self.toolpack_id.clone()));
        }
        if self.tools.is_empty() {
            return Err(ManifestError::Empty);
        }
        for tool in &self.tools {
            if !is_manifest_aid(&tool.aid) {
                return Err(ManifestError::Aid(tool.aid.clone()));
            }
            if tool.tags.is_empty() {
                return Err(ManifestError::NoTags(tool.aid.clone()));
            }
        }
        let mut aids: Vec<&str> = self.tools.iter().map(|tool| tool.aid.as_str()).collect();
        aids.sort_unstable();
        match aids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ManifestError::Duplicate(pair[0].to_owned())),
            None => Ok(()),
        }
    }
}

fn is_pack_id(id: &str) -> bool {
    let name = id.strip_prefix("toolpack.").unwrap_or_default();
    !name.is_empty() && !name.contains(|c: char| c.is_uppercase() || c.is_whitespace())
}

/// The segments between `AID.` and `.v1`, if the text has both ends and a version of digits.
fn segments_of(aid: &str) -> Option<&str> {
    let (segments, version) = aid.strip_prefix("AID.")?.rsplit_once(".v")?;
    let is_version = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
    is_version.then_some(segments)
}

/// True for an AID of the contract's own form. TH-92.
#[must_use]
pub fn is_aid(aid: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.len() >= 2
            && segment.starts_with(|c: char| c.is_ascii_uppercase())
            && segment
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    segments_of(aid).is_some_and(|segments| segments.split('.').all(is_segment))
}

/// True for an AID of the looser form that manifests may use. TH-93.
#[must_use]
pub fn is_manifest_aid(aid: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b"_-.".contains(&b);
    segments_of(aid)
        .is_some_and(|segments| !segments.is_empty() && segments.bytes().all(is_allowed))
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

    fn pack(tools: &str) -> String {
        format!(
            r#"{{"toolpack_id":"toolpack.a","toolpack_version":"1","trust_tier":"tier1_signed","tools":{tools}}}"#
        )
    }

    /// TH-95, TH-96, TH-97, TH-98, TH-99, TH-100, TH-102: what a pack must have.
    #[test]
    fn packs_that_do_not_load() {
        let error = |text: &str| Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        let tool = r#"{"aid":"AID.AA.v1","name":"a","tags":["t"]}"#;
        let good = pack(&format!("[{tool}]"));
        assert!(Manifest::parse(good.as_bytes()).is_ok());
        for (wrong, reason) in [
            ("{".to_owned(), "EOF"),
            (pack("[]"), "no tools"),
            (pack(&format!("[{tool},{tool}]")), "duplicate aid AID.AA.v1"),
            (good.replace(r#""name":"a","#, ""), "`name`"),
            (good.replace(r#""aid":"AID.AA.v1","#, ""), "`aid`"),
            (good.replace("AID.AA.v1", "AID.aa.v1"), "AID.SEGMENTS.v1"),
            (
                good.replace(r#""name":"a","tags":["t"]"#, r#""name":"a""#),
                "`tags`",
            ),
            (good.replace(r#"["t"]"#, "[]"), "no tags"),
            (
                good.replace(r#""toolpack_id":"toolpack.a","#, ""),
                "`toolpack_id`",
            ),
            (good.replace("toolpack.a", "toolpack.A"), "lower-case"),
            (good.replace("toolpack.a", "toolpack."), "lower-case"),
            (good.replace("toolpack.a", "pack.a"), "lower-case"),
            (
                good.replace(r#""toolpack_version":"1","#, ""),
                "`toolpack_version`",
            ),
            (
                good.replace(r#""trust_tier":"tier1_signed","#, ""),
                "`trust_tier`",
            ),
            (good.replace("tier1_signed", "tier9"), "tier0_builtin"),
        ] {
            assert!(error(&wrong).contains(reason), "{wrong}: {}", error(&wrong));
        }
    }

    /// TH-101, TH-105: what may be left out, and what is accepted without effect.
    #[test]
    fn defaults() {
        let text = pack(r#"[{"aid":"AID.AA.v1","name":"a","tags":["t"],"estimate_model":{}}]"#);
        let pack = Manifest::parse(text.as_bytes()).unwrap();
        assert!(pack.tools[0].deterministic && pack.tools[0].side_effects.is_empty());
    }

    /// TH-92, TH-93: the contract's form, and the looser one of manifests.
    #[test]
    fn forms_of_aids() {
        for (aid, strict, loose) in [
            ("AID.TEST.ECHO.v1", true, true),
            ("AID.AA.v12", true, true),
            ("AID.A1_.B_2.v0", true, true),
            ("AID.A.B.v1", false, true),
            ("AID.1A.v1", false, true),
            ("AID.A-B.v1", false, true),
            ("AID.AA..BB.v1", false, true),
            ("AID.AA.v1\n", false, false),
            ("AID.aa.v1", false, false),
            ("AID.AA.v", false, false),
            ("AID.AA.vx", false, false),
            ("AID.AA", false, false),
            ("AID..v1", false, false),
            ("AID.v1", false, false),
            ("aid.AA.v1", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                (is_aid(aid), is_manifest_aid(aid)),
                (strict, loose),
                "{aid:?}"
            );
        }
    }
}
