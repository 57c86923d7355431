//! The contract's numbers, each beside its clause.

/// Largest request: `MAX_STDIN_BYTES`, for a whole stdin or one line of `--serve`. T-8.
pub const MAX_STDIN_BYTES: usize = 10 * 1024 * 1024;

/// Deepest nesting of a request. G-1.
pub const DEPTH_MAX: usize = 32;

/// Largest reply line, its newline included: clients stop reading there. T-19.
pub const REPLY_BYTES_MAX: usize = 1_048_576;

/// How long a finished key is replayed on this wire: `IDEMP_DEFAULT_TTL_MS`. T-7.
pub const IDEMP_DEFAULT_TTL_MS: u64 = 60_000;

/// How many finished keys are replayed on this wire: `IDEMP_MAX_ENTRIES`. T-7.
pub const IDEMP_MAX_ENTRIES: u64 = 1024;

/// `MACHINA_TOOLHOST_TIMEOUT` when it is not set. T-2.
pub const TIMEOUT_SECONDS_DEFAULT: u64 = 30;

/// How long a client of `--serve` waits that does not say so. T-2.
pub const CLIENT_TIMEOUT_MS_DEFAULT: u64 = 8000;

/// How long before the client gives up a late tool is answered. T-2.
pub const TIMEOUT_MARGIN_MS: u64 = 500;

/// Life of a lease issued in band that names none. T-15.
pub const LEASE_TTL_MS_DEFAULT: u64 = 10_000;
/// Shortest life of a lease issued in band. T-15.
pub const LEASE_TTL_MS_MIN: u64 = 1_000;
/// Longest life of a lease issued in band. T-15.
pub const LEASE_TTL_MS_MAX: u64 = 300_000;

const _: () = assert!(TIMEOUT_MARGIN_MS < CLIENT_TIMEOUT_MS_DEFAULT);
const _: () = assert!(REPLY_BYTES_MAX < MAX_STDIN_BYTES);
const _: () = assert!(LEASE_TTL_MS_MIN < LEASE_TTL_MS_DEFAULT);
const _: () = assert!(LEASE_TTL_MS_DEFAULT < LEASE_TTL_MS_MAX);
