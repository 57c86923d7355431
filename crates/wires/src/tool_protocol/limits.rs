//! The contract's numbers, and ours where it has none.

/// TP-1.
pub const PROTOCOL_VERSION: u64 = 1;

/// Where a service of ours takes calls, whatever else is configured. TP-36.
pub const SERVICE_PATH: &str = "/tools";

/// Where every service takes handshakes. TP-48.
pub const HANDSHAKE_PATH: &str = "/capabilities/handshake";

/// Largest request, on stdin and over HTTP.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A longer `timeout_ms` counts as this one: a day.
pub const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Longest `trace_id`. It stands in records, which are kept.
pub const TRACE_ID_BYTES_MAX: usize = 256;

/// Most names in `secrets_allowed`.
pub const SECRETS_MAX: usize = 256;

/// Most `filesystem_read_roots`.
pub const READ_ROOTS_MAX: usize = 256;
