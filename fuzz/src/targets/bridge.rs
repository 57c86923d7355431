//! The bridge between a host and a parent: frames and messages. BR-2, BR-7 to BR-17, BR-29.

use callgate_wires::bridge::{
    Answer, CallTool, FrameDecoder, FrameError, read_schemas, write_call, write_schemas,
};
use serde_json::json;

use crate::cuts::cut;

/// Any bytes, cut anywhere, come to the same frames and the same end.
pub fn frames(input: &[u8]) {
    let Some((whole, parts)) = cut::<2>(input) else {
        return;
    };
    let at_once = decode(&[whole]);
    assert_eq!(decode(&parts), at_once);
    let single: Vec<&[u8]> = whole.chunks(1).collect();
    assert_eq!(decode(&single), at_once);
    let (frames, end) = at_once;
    if end.is_ok() {
        let framed: usize = frames.iter().map(|frame| frame.len() + 4).sum();
        assert_eq!(framed, whole.len(), "every byte is in a frame");
    }
}

fn decode(parts: &[&[u8]]) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
    let mut decoder = FrameDecoder::default();
    let mut frames = Vec::new();
    for part in parts {
        decoder.feed(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(payload)) => frames.push(payload.to_vec()),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    let end = decoder.finish();
    (frames, end)
}

/// Calls and lists of tools that are taken are read the same when written again; an answer is
/// a result with content, or an error.
pub fn messages(input: &[u8]) {
    if let Ok(call) = CallTool::parse(input) {
        let meta = call.meta.and_then(Result::ok);
        let meta = meta.map(|meta| json!(meta).as_object().cloned().unwrap());
        let meta = meta.unwrap_or_default();
        let mut frame = Vec::new();
        if write_call(&call.name, &call.arguments, &meta, &mut frame).is_ok() {
            let again = CallTool::parse(&frame[4..]).unwrap();
            assert_eq!((again.name, again.arguments), (call.name, call.arguments));
        }
    }
    if let Ok(tools) = read_schemas(input) {
        assert_eq!(
            read_schemas(write_schemas(&tools).as_bytes()).unwrap(),
            tools
        );
    }
    if let Ok(Answer::Result(result)) = Answer::parse(input) {
        assert!(
            result["content"]
                .as_array()
                .is_some_and(|content| !content.is_empty())
        );
        assert!(result["isError"].is_boolean());
    }
}
