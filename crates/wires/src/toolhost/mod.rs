//! The toolhost contract: requests and replies of `--list`, `--run`, `--serve` and
//! `tool_exec`, the slots (`ds_state`) and the toolpack manifest. See
//! `docs/contracts/toolhost.md`.

mod limits;
mod manifest;
mod reply;
mod request;
mod state;

pub use limits::{
    DEPTH_MAX, IDEMP_DEFAULT_TTL_MS, IDEMP_MAX_ENTRIES, LEASE_TTL_MS_DEFAULT, LEASE_TTL_MS_MAX,
    LEASE_TTL_MS_MIN, MAX_STDIN_BYTES, REPLY_BYTES_MAX, TIMEOUT_MARGIN_MS, TIMEOUT_SECONDS_DEFAULT,
};
pub use manifest::{
    Manifest, ManifestError, ManifestTool, TrustTier, is_aid, is_manifest_aid, tier_of_side_effects,
};
pub use reply::{
    LeaseIssued, ListedTool, Reply, ReplyState, Status, TookCall, write_list, write_refusal,
};
pub use request::{Entry, LeaseCommand, Request, RequestError, RequestInput};
pub use state::{Artifact, Delta, StateError, StateMessage, write_delta, write_snapshot};
