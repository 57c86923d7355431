//! Properties of private parsers, for the fuzz targets. Each function panics if its property is
//! broken.

use std::sync::Arc;

use callgate_call::{ManualClock, Timestamp};

use crate::mcp::Seal;

/// Bytes of a WebSocket's client, which come to the same however they are cut.
pub fn web_socket(whole: &[u8], parts: &[&[u8]], bytes_max: usize) {
    crate::rpc::check_cuts(whole, parts, bytes_max);
}

/// Something sealed that a client gives back.
pub fn sealed(whom: &str, body: &[u8]) {
    let clock = ManualClock::at(Timestamp(1_000_000));
    Seal::new([7; 32], Arc::new(clock)).check_opening(whom, body);
}
