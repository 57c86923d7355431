//! Properties of private parsers, for the fuzz targets. Each function panics if its property is
//! broken.

use crate::frame::{
    FRAME_HEADER_BYTES, Front, RECORD_HEADER_BYTES, SegmentHeader, any_frame, front, records,
    seal_payload,
};
use crate::side::Change;

/// Bytes where a frame may begin: what is there is named, and is within them.
pub fn frame_bytes(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        assert_eq!(header.encode(), bytes[..header.encode().len()]);
    }
    let mut rest = bytes;
    loop {
        rest = match front(rest) {
            Front::Frame(frame) => {
                assert!(any_frame(rest) || rest.len() == FRAME_HEADER_BYTES);
                check_records(frame.payload);
                &rest[frame.len..]
            }
            Front::Roll { len, .. } => &rest[len..],
            Front::End => {
                assert!(rest.is_empty());
                break;
            }
            Front::Torn | Front::Bad(_) => break,
        };
    }
}

/// A payload under a good check is read as it was written; with one bit flipped it is not.
pub fn frame_of(payload: &[u8], flipped: usize) {
    if payload.len() < 9 {
        return;
    }
    let mut frame = seal_payload(payload);
    match front(&frame) {
        Front::Frame(found) => assert_eq!(found.payload, payload),
        other => panic!("{other:?}"),
    }
    check_records(payload);
    for cut in [1, FRAME_HEADER_BYTES, frame.len() - 1] {
        assert_eq!(front(&frame[..cut]), Front::Torn, "cut at {cut}");
    }
    let bit = flipped % (frame.len() * 8);
    frame[bit / 8] ^= 1 << (bit % 8);
    if let Front::Frame(found) = front(&frame) {
        panic!("damage at bit {bit} does not show: {found:?}");
    }
}

fn check_records(payload: &[u8]) {
    let mut bytes = 8;
    for record in records(payload) {
        let Some(record) = record else { return };
        assert_eq!(record.offset as usize, FRAME_HEADER_BYTES + bytes);
        bytes += RECORD_HEADER_BYTES + record.body.len() + record.side.len();
        side(record.side);
    }
    assert!(bytes >= payload.len(), "every byte is in a record");
}

/// Side bytes that make sense are the same change when written again.
pub fn side(bytes: &[u8]) {
    let Some(change) = Change::decode(bytes) else {
        return;
    };
    let mut written = Vec::new();
    change.encode(&mut written);
    assert_eq!(Change::decode(&written).as_ref(), Some(&change));
}
