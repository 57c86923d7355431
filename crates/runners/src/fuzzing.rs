//! Private parsers and their properties, for the fuzz targets.

use crate::egress;
use crate::pool::worker::properties::{check_lines, test_tool};

/// Bytes of a worker, which mean the same in whatever pieces they come. Panics if they do not.
pub fn worker_lines(forks: bool, slots: bool, bytes: &[u8], pieces: &[&[u8]]) {
    check_lines(&test_tool(), forks, slots, bytes, pieces);
}

/// Reads the head of a request to the egress proxy: the host, the port, and the bytes that go to
/// the host unless a tunnel was asked for.
#[must_use]
pub fn proxy_request(bytes: &[u8]) -> Option<(String, u16, Option<Vec<u8>>)> {
    egress::read_request(bytes)
}
