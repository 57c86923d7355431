//! What clients send to doors and is not JSON: WebSocket frames, and what was sealed for them.

use callgate_doors::fuzzing;

use crate::cuts::cut;

/// The longest message here: small, so that inputs reach the bound.
const MESSAGE_BYTES_MAX: usize = 300;

/// The same messages come of bytes however they are cut, none above the bound.
pub fn web_socket(input: &[u8]) {
    if let Some((whole, parts)) = cut::<2>(input) {
        fuzzing::web_socket(whole, &parts, MESSAGE_BYTES_MAX);
    }
}

/// Only what was sealed opens. An input is the body of something sealed.
pub fn sealed(input: &[u8]) {
    fuzzing::sealed("client", input);
}
