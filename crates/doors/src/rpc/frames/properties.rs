//! What holds of any bytes of a WebSocket's client: the same comes of them however they are cut,
//! and no message is above the bound. For the seeded mutations and the fuzz target `web-socket`.

use super::*;

/// Everything that comes next, up to a close.
pub(crate) fn all(frames: &mut Frames) -> Vec<Incoming> {
    let mut came = Vec::new();
    while let Some(next) = frames.next() {
        let is_last = matches!(next, Incoming::Close(_));
        came.push(next);
        if is_last {
            break;
        }
    }
    came
}

/// Panics unless `parts` come to the same as `whole`. Returns the number of messages.
pub(crate) fn check_cuts(whole: &[u8], parts: &[&[u8]], bytes_max: usize) -> usize {
    let at_once = come_of(&[whole], bytes_max);
    assert_eq!(
        come_of(parts, bytes_max),
        at_once,
        "{}",
        whole.escape_ascii()
    );
    let mut messages = 0;
    for came in &at_once {
        if let Incoming::Message(message) = came {
            assert!(message.len() <= bytes_max && std::str::from_utf8(message).is_ok());
            messages += 1;
        }
    }
    messages
}

fn come_of(parts: &[&[u8]], bytes_max: usize) -> Vec<Incoming> {
    let mut frames = Frames::new(bytes_max);
    let mut came = Vec::new();
    for part in parts {
        if matches!(came.last(), Some(Incoming::Close(_))) {
            break;
        }
        frames.feed(part);
        came.extend(all(&mut frames));
    }
    came
}
