//! Text forms that several crates write: JSON strings, decimals, hex digits and timestamps.
//! Functions of bytes alone: no I/O, no clock, nothing of Callgate's other crates.
//!
//! Whole JSON documents are not here: `callgate_wires::json` parses them, and
//! `callgate_call::canonical_json` writes the form that digests are made of.

mod decimal;
mod hex;
mod json;
mod timestamp;

pub use decimal::write_decimal;
pub use hex::{decode_hex, decode_hex_array, decode_lower_hex, encode_hex, write_hex};
pub use json::{
    is_json_plain, json_plain_in_word, json_plain_prefix, json_text_len, write_json_text,
    write_stream_json_text,
};
pub use timestamp::{parse_rfc3339, rfc3339, rfc3339_micros, rfc3339_millis};
