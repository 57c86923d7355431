//! The journal and exported chains, as whoever had the disk left them. D-1, D-8 to D-10.

use callgate_store::{Head, fuzzing, verify_file};

/// Bytes where a frame may begin are named as what they are.
pub fn frames(input: &[u8]) {
    fuzzing::frame_bytes(input);
    fuzzing::side(input);
}

/// A payload under a good check is read as written, and damage of one bit shows. The first two
/// bytes of an input are the place of the bit.
pub fn records(input: &[u8]) {
    if let Some((bit, payload)) = input.split_first_chunk::<2>() {
        fuzzing::frame_of(payload, usize::from(u16::from_le_bytes(*bit)));
    }
}

/// A verdict names the first bad line of a file, and what is good has a signed head of the expected
/// key.
pub fn exported_chain(input: &[u8]) {
    let lines = input.split(|&byte| byte == b'\n').count() as u64;
    let verdict = verify_file(&mut &*input, None).expect("reading memory does not fail");
    assert!(verdict.records <= lines);
    match &verdict.bad {
        Some(bad) => assert!(bad.offset <= lines && !bad.reason.is_empty()),
        None => assert!(verdict.head.as_ref().is_some_and(Head::is_signed)),
    }
    let foreign = verify_file(&mut &*input, Some(&[7; 32])).expect("reading memory does not fail");
    assert!(!foreign.is_good(), "no head here is of that key");
    if let Ok(text) = std::str::from_utf8(input)
        && let Some(head) = Head::from_json(text)
    {
        assert_eq!(head.to_json(), text);
    }
}
