//! The toolhost contract: requests and replies of `--list`, `--run`, `--serve` and
//! `tool_exec`, the slots (`ds_state`), the toolpack manifest, and what a run is: its header,
//! its selector's answers, its state patches. See `docs/contracts/toolhost.md`.

mod limits;
mod manifest;
mod patch;
mod reply;
mod request;
mod run_header;
mod selection;
mod state;

pub use limits::{
    CLIENT_TIMEOUT_MS_DEFAULT, DEPTH_MAX, IDEMP_DEFAULT_TTL_MS, IDEMP_MAX_ENTRIES,
    LEASE_TTL_MS_DEFAULT, LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN, MAX_STDIN_BYTES, REPLY_BYTES_MAX,
    TIMEOUT_MARGIN_MS, TIMEOUT_SECONDS_DEFAULT,
};
pub use manifest::{
    Manifest, ManifestError, ManifestTool, TrustTier, is_aid, is_manifest_aid, tier_of_side_effects,
};
pub use patch::{PROFILE_SLOTS, PatchOp, apply_patch, artifact_value, patch_value, read_patch};
pub use reply::{
    LeaseIssued, ListedTool, Reply, ReplyState, Status, TookCall, write_list, write_refusal,
};
pub use request::{Entry, LeaseCommand, Request, RequestError, RequestInput};
pub use run_header::{
    ATTEMPTS_MAX_DEFAULT, BASE_DELAY_MS_DEFAULT, ControlMode, DELAY_MS_MAX, JITTER_MS_MAX,
    PROFILE_ID, RunHeader, RunRequest, RunRequestError, SPEC_VERSION, TAG_META, is_run_id,
};
pub use selection::{
    PROTECTED, SELECTION_BYTES_MAX, Selection, SelectionKind, merge as merge_patch, sid,
};
pub use state::{Artifact, Delta, StateError, StateMessage, write_delta, write_snapshot};
