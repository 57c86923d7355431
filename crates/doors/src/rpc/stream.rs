//! `exec/stream`: what a program prints while it runs, told to whoever asked for that. R-10.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::{Audience, Call, Clock, Hearer, Sink, Stream, Topics};
use callgate_gate::Gate;
use callgate_wires::jsonrpc::Id;
use serde_json::{Value, json};

const METHOD: &str = "exec/run";
const NAME: &str = "exec/stream";
/// As `index` counts them.
const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// What one notification has at most; longer chunks are several.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// Publishes chunks as they come, whole characters only.
pub(super) struct Streamed {
    topics: Topics,
    clock: Arc<dyn Clock>,
    hearer: Hearer,
    request: Value,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    seq: u64,
    /// The beginning of a character of each stream.
    open: [Vec<u8>; 2],
}

impl Streamed {
    /// Where the caller asked to hear, and can.
    pub(super) fn of(gate: &Gate, call: &Call, request: Option<&Id>) -> Option<Arc<Self>> {
        if call.tool != METHOD || call.input.value()["stream"] != json!(true) {
            return None;
        }
        Some(Arc::new(Self {
            topics: gate.topics().clone(),
            clock: gate.clock(),
            hearer: call.hearer.clone()?,
            request: serde_json::from_str(request?.as_json()).ok()?,
            said: Mutex::default(),
        }))
    }

    /// The program has ended: a character that was not finished is none.
    pub(super) fn end(&self) {
        let mut said = self.said();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut said.open[index(stream)]);
            if !rest.is_empty() {
                self.publish(&mut said, stream, &String::from_utf8_lossy(&rest));
            }
        }
    }

    fn publish(&self, said: &mut Said, stream: Stream, data: &str) {
        let body = json!({
            "request_id": self.request,
            "stream": STREAMS[index(stream)],
            "seq": said.seq,
            "data": data,
            "timestamp": self.clock.now().rfc3339(),
        });
        said.seq += 1;
        let to = Audience::One(self.hearer.clone());
        self.topics.publish(NAME, body.to_string(), to);
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Streamed {
    fn chunk(&self, stream: Stream, bytes: &[u8]) {
        // Held while publishing, so that numbers are told in their order; the ring of topics, which
        // is locked under it, takes no other lock.
        let mut said = self.said();
        for piece in bytes.chunks(DATA_BYTES_MAX) {
            let mut all = std::mem::take(&mut said.open[index(stream)]);
            all.extend_from_slice(piece);
            let open = all.split_off(whole(&all));
            if !all.is_empty() {
                self.publish(&mut said, stream, &String::from_utf8_lossy(&all));
            }
            said.open[index(stream)] = open;
        }
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// How much of `bytes` can be told: all but the beginning of a character at their end.
fn whole(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    // Only the end can be open; what is wrong before it stays wrong.
    let begins = |at: &usize| {
        let end = std::str::from_utf8(&bytes[*at..]);
        end.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (last..bytes.len()).find(begins).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use callgate_call::{ManualClock, Timestamp, Told};

    use super::*;

    fn streamed() -> (Streamed, callgate_call::Subscription) {
        let topics = Topics::default();
        let hearer = topics.connection();
        let hears = topics.listen(hearer.clone());
        let streamed = Streamed {
            topics,
            clock: Arc::new(ManualClock::at(Timestamp(1000))),
            hearer,
            request: json!("r-1"),
            said: Mutex::default(),
        };
        (streamed, hears)
    }

    fn heard(hears: &mut callgate_call::Subscription) -> Vec<Value> {
        std::iter::from_fn(|| hears.now())
            .map(|told| match told {
                Told::Event(event) => {
                    assert_eq!(event.name, NAME);
                    serde_json::from_str(&event.body).unwrap()
                }
                Told::Gap(_) => panic!("nothing was missed"),
            })
            .collect()
    }

    /// JR-83, R-10: every field; numbers rise over both streams.
    #[test]
    fn the_notification() {
        let (streamed, mut hears) = streamed();
        streamed.chunk(Stream::Stdout, b"out");
        streamed.chunk(Stream::Stderr, b"err");
        let wanted = |seq: u64, stream: &str, data: &str| {
            json!({
                "request_id": "r-1", "stream": stream, "seq": seq, "data": data,
                "timestamp": "1970-01-01T00:00:01.000Z",
            })
        };
        let all = [wanted(0, "stdout", "out"), wanted(1, "stderr", "err")];
        assert_eq!(heard(&mut hears), all);
    }

    /// wherever a text is cut, each piece is whole characters, and all of them.
    #[test]
    fn characters_are_not_cut() {
        let text = "aé€🦀\u{10FFFF}z".as_bytes();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let (streamed, mut hears) = streamed();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    streamed.chunk(Stream::Stdout, piece);
                }
                streamed.end();
                let heard = heard(&mut hears);
                let data: String = heard
                    .iter()
                    .filter_map(|one| one["data"].as_str())
                    .collect();
                assert_eq!(data.as_bytes(), text, "{first} {second}");
            }
        }
        let (streamed, mut hears) = streamed();
        streamed.chunk(Stream::Stdout, &[0xff, b'a', 0xe2, 0x82]);
        streamed.end();
        let heard = heard(&mut hears);
        let data: Vec<_> = heard.iter().map(|one| one["data"].clone()).collect();
        assert_eq!(data, ["\u{FFFD}a", "\u{FFFD}"]);
    }
}
