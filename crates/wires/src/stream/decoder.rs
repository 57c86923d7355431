//! Bytes in, pieces out. The length of a frame is judged by its prefix alone, memory grows with
//! the bytes that came, and the data of a chunk is never gathered if its head comes before it.

use std::ops::Range;

use super::control::{ChunkHead, Piece};
use super::fault::StreamFault;
use super::frame::{self, Head, Passed, Whole};
use super::limits::{FRAME_PAYLOAD_MAX, HEAD_BYTES_MAX, KEPT_BYTES_MAX, PREFIX_BYTES};
use super::msgpack::Keys;

/// The payload that a prefix promises.
pub fn payload_len(prefix: [u8; PREFIX_BYTES]) -> Result<usize, StreamFault> {
    let len = u32::from_be_bytes(prefix);
    match usize::try_from(len) {
        Ok(0) => Err(StreamFault::Empty),
        Ok(bytes) if bytes <= FRAME_PAYLOAD_MAX => Ok(bytes),
        _ if is_text(&prefix) => Err(text(&prefix)),
        _ => Err(StreamFault::TooLarge { len }),
    }
}

/// Every letter is more than the first byte of a length may be.
fn is_text(prefix: &[u8]) -> bool {
    let is = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    prefix.iter().all(is)
}

fn text(prefix: &[u8]) -> StreamFault {
    let text = String::from_utf8_lossy(prefix).into_owned();
    StreamFault::Text { text }
}

/// Cuts an executor's stdout into pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// What came of a frame that did not come whole.
    scratch: Vec<u8>,
    keys: Keys,
}

#[derive(Debug)]
enum State {
    /// Between frames, or inside a prefix.
    Prefix {
        got: usize,
        bytes: [u8; PREFIX_BYTES],
    },
    /// At the beginning of a payload: it may be a chunk.
    Head { len: usize },
    /// In a payload that is read when it is whole.
    Gather { len: usize },
    /// In the data of a chunk: `left` more bytes of it and `tail` after it.
    Data {
        len: usize,
        left: usize,
        tail: usize,
        entries: u32,
    },
    /// After the data of a chunk, in the rest of its map.
    Tail {
        len: usize,
        tail: usize,
        entries: u32,
    },
    /// The data of a chunk whose head came after it is in `scratch`.
    Held { data: Range<usize> },
    /// A chunk is whole, and that is to be said.
    ChunkEnd,
    /// Nothing more is read.
    Failed(StreamFault),
}

impl State {
    const START: Self = Self::Prefix {
        got: 0,
        bytes: [0; PREFIX_BYTES],
    };
}

impl Default for State {
    fn default() -> Self {
        Self::START
    }
}

/// What one look at the input gave.
enum Step<'a> {
    /// Look again.
    More,
    /// All input is taken.
    Starved,
    /// A frame is whole: in the input, or in `scratch`.
    Whole(Option<&'a [u8]>),
    /// A chunk begins; its head is in the input, or in `scratch`.
    Chunk(Passed, Option<&'a [u8]>),
    Bytes(&'a [u8]),
    Held(Range<usize>),
    ChunkEnd,
}

impl Decoder {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the front of `input` until a piece is complete. Nothing: all of it was
    /// taken, and more is needed. After a fault there is nothing but that fault.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Piece<'s>>, StreamFault> {
        loop {
            match self.step(input) {
                Ok(Step::More) => {}
                Ok(Step::Starved) => return Ok(None),
                Ok(Step::Bytes(bytes)) => return Ok(Some(Piece::Bytes(bytes))),
                Ok(Step::ChunkEnd) => return Ok(Some(Piece::ChunkEnd)),
                Ok(Step::Whole(Some(payload))) => return self.read_input(payload).map(Some),
                Ok(Step::Whole(None)) => return self.read_scratch().map(Some),
                Ok(Step::Held(data)) => return Ok(Some(Piece::Bytes(&self.scratch[data]))),
                Ok(Step::Chunk(passed, from)) => {
                    let bytes = from.unwrap_or(self.scratch.as_slice());
                    return Ok(Some(Piece::Chunk(begin(&passed, bytes))));
                }
                Err(fault) => {
                    self.state = State::Failed(fault.clone());
                    return Err(fault);
                }
            }
        }
    }

    /// The stream has ended: good between two frames, a fault inside one.
    pub fn end(&self) -> Result<(), StreamFault> {
        let (got, wanted) = match &self.state {
            State::Prefix { got: 0, .. } | State::Held { .. } | State::ChunkEnd => return Ok(()),
            State::Prefix { got, bytes } if is_text(&bytes[..*got]) => {
                return Err(text(&bytes[..*got]));
            }
            State::Prefix { got, .. } => (*got, PREFIX_BYTES),
            State::Head { len } | State::Gather { len } => {
                (PREFIX_BYTES + self.scratch.len(), PREFIX_BYTES + len)
            }
            State::Data {
                len, left, tail, ..
            } => (PREFIX_BYTES + len - left - tail, PREFIX_BYTES + len),
            State::Tail { len, tail, .. } => (
                PREFIX_BYTES + len - (tail - self.scratch.len()),
                PREFIX_BYTES + len,
            ),
            State::Failed(fault) => return Err(fault.clone()),
        };
        Err(StreamFault::Cut { got, wanted })
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, StreamFault> {
        match &mut self.state {
            State::Prefix { got, bytes } => {
                let taken = take(input, PREFIX_BYTES - *got);
                bytes[*got..*got + taken.len()].copy_from_slice(taken);
                *got += taken.len();
                if *got < PREFIX_BYTES {
                    return Ok(Step::Starved);
                }
                let len = payload_len(*bytes)?;
                self.begin_frame(len);
                Ok(Step::More)
            }
            State::Head { len } => {
                let len = *len;
                self.look_for_chunk(len, input)
            }
            State::Gather { len } => {
                let len = *len;
                if self.scratch.is_empty() && input.len() >= len {
                    return Ok(Step::Whole(Some(take(input, len))));
                }
                gather(&mut self.scratch, len, input);
                let whole = self.scratch.len() == len;
                Ok(if whole {
                    Step::Whole(None)
                } else {
                    Step::Starved
                })
            }
            State::Data { left: 0, .. } => self.leave_data(),
            State::Data { left, .. } => {
                let taken = take(input, *left);
                *left -= taken.len();
                let starved = taken.is_empty();
                Ok(if starved {
                    Step::Starved
                } else {
                    Step::Bytes(taken)
                })
            }
            State::Tail { tail, entries, .. } => {
                let (tail, entries) = (*tail, *entries);
                gather(&mut self.scratch, tail, input);
                if self.scratch.len() < tail {
                    return Ok(Step::Starved);
                }
                frame::tail(&self.scratch, entries, &mut self.keys)?;
                self.state = State::ChunkEnd;
                Ok(Step::More)
            }
            State::Held { data } => {
                let data = data.clone();
                self.state = State::ChunkEnd;
                Ok(if data.is_empty() {
                    Step::More
                } else {
                    Step::Held(data)
                })
            }
            State::ChunkEnd => {
                self.state = State::START;
                Ok(Step::ChunkEnd)
            }
            State::Failed(fault) => Err(fault.clone()),
        }
    }

    fn begin_frame(&mut self, len: usize) {
        self.scratch.clear();
        if self.scratch.capacity() > KEPT_BYTES_MAX {
            self.scratch = Vec::new();
        }
        self.state = State::Head { len };
    }

    /// Looks at the first bytes of a payload, however they come.
    fn look_for_chunk<'a>(
        &mut self,
        len: usize,
        input: &mut &'a [u8],
    ) -> Result<Step<'a>, StreamFault> {
        let bound = len.min(HEAD_BYTES_MAX);
        let before = self.scratch.len();
        let all: &'a [u8] = input;
        let ahead = &all[..all.len().min(bound - before)];
        let whole_ahead = (before == 0).then_some(ahead);
        if before > 0 {
            self.scratch.extend_from_slice(ahead);
        }
        let seen = whole_ahead.unwrap_or(&self.scratch);
        let at_bound = seen.len() == bound;
        match frame::head(seen)? {
            Head::Chunk(passed) if passed.at + passed.bytes <= len => {
                take(input, passed.at - before);
                if before > 0 {
                    self.scratch.truncate(passed.at);
                }
                self.state = State::Data {
                    len,
                    left: passed.bytes,
                    tail: len - passed.at - passed.bytes,
                    entries: passed.entries,
                };
                Ok(Step::Chunk(passed, whole_ahead))
            }
            Head::Unknown if !at_bound => {
                if before == 0 {
                    self.scratch.extend_from_slice(ahead);
                }
                take(input, ahead.len());
                Ok(Step::Starved)
            }
            // Also a chunk that reaches beyond its frame, as will be found out.
            Head::Chunk(_) | Head::Other | Head::Unknown => {
                self.scratch.truncate(before);
                self.state = State::Gather { len };
                Ok(Step::More)
            }
        }
    }

    /// All data of a chunk was handed out.
    fn leave_data(&mut self) -> Result<Step<'static>, StreamFault> {
        let State::Data {
            len, tail, entries, ..
        } = self.state
        else {
            return Ok(Step::More);
        };
        self.scratch.clear();
        self.state = match (tail, entries) {
            (0, 0) => State::ChunkEnd,
            (0, _) => return Err(StreamFault::Short),
            (bytes, 0) => return Err(StreamFault::Trailing { bytes }),
            _ => State::Tail { len, tail, entries },
        };
        Ok(Step::More)
    }

    /// Reads a frame that is whole in the input.
    fn read_input<'a>(&mut self, payload: &'a [u8]) -> Result<Piece<'a>, StreamFault> {
        match frame::read(payload, &mut self.keys) {
            Ok(Whole::Piece(piece)) => {
                self.state = State::START;
                Ok(piece)
            }
            Ok(Whole::Chunk(head, data)) => {
                self.scratch.extend_from_slice(&payload[data]);
                let data = 0..self.scratch.len();
                self.state = State::Held { data };
                Ok(Piece::Chunk(head))
            }
            Err(fault) => {
                self.state = State::Failed(fault.clone());
                Err(fault)
            }
        }
    }

    /// Reads a frame that was gathered.
    fn read_scratch(&mut self) -> Result<Piece<'_>, StreamFault> {
        match frame::read(&self.scratch, &mut self.keys) {
            Ok(Whole::Piece(piece)) => {
                self.state = State::START;
                Ok(piece)
            }
            Ok(Whole::Chunk(head, data)) => {
                self.state = State::Held { data };
                Ok(Piece::Chunk(head))
            }
            Err(fault) => {
                self.state = State::Failed(fault.clone());
                Err(fault)
            }
        }
    }
}

/// The head of a chunk, of the bytes it is in.
fn begin<'a>(passed: &Passed, bytes: &'a [u8]) -> ChunkHead<'a> {
    let artifact_id = std::str::from_utf8(&bytes[passed.artifact_id.clone()]);
    ChunkHead {
        artifact_id: artifact_id.expect("found to be text"),
        seq: passed.seq,
        is_last: passed.is_last,
        bytes: passed.bytes,
    }
}

/// Takes at most `count` bytes off the front.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(input.len().min(count));
    *input = rest;
    taken
}

/// Fills `buffer` up to `len` bytes. It grows with what came and never beyond what is needed.
fn gather(buffer: &mut Vec<u8>, len: usize, input: &mut &[u8]) {
    let taken = take(input, len - buffer.len());
    let needed = buffer.len() + taken.len();
    if needed > buffer.capacity() {
        let roomy = needed.max(2 * buffer.capacity()).min(len);
        // bound: twice what came, and the frame
        buffer.reserve_exact(roomy - buffer.len());
    }
    buffer.extend_from_slice(taken);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-3: what a frame promises is not made room for; what came is, and never twice of it.
    #[test]
    fn nothing_on_trust() {
        let mut decoder = Decoder::new();
        let mut input: &[u8] = b"\x00\xff\xff\xfc\x81\xa7payload\xc6\x00\xff\xff\x00some";
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert!(decoder.scratch.capacity() < 1024);
        let (got, wanted) = (22, 16_777_216);
        assert_eq!(decoder.end(), Err(StreamFault::Cut { got, wanted }));
        let part = vec![0; 100_000];
        for _ in 0..167 {
            let mut input = part.as_slice();
            assert_eq!(decoder.next(&mut input), Ok(None));
            assert!(decoder.scratch.capacity() <= FRAME_PAYLOAD_MAX);
            assert!(decoder.scratch.capacity() <= 2 * decoder.scratch.len());
        }
    }

    /// A large frame does not keep its memory, and the data of a chunk never took any.
    #[test]
    fn memory_is_let_go_of() {
        let mut decoder = Decoder::new();
        let large = 4 * KEPT_BYTES_MAX;
        let len = u32::try_from(large).unwrap().to_be_bytes();
        let padding = u32::try_from(large - 28).unwrap().to_be_bytes();
        let head = [
            &len[..],
            b"\x82\xa4type\xaeartifact_chunk\xa1x\xc6",
            &padding,
        ];
        for part in [head.concat(), vec![0; large - 28]] {
            let mut input = part.as_slice();
            let _ = decoder.next(&mut input);
        }
        assert!(decoder.scratch.capacity() >= large);
        assert!(decoder.end().is_err());
        decoder.state = State::START;
        let mut chunk = Vec::new();
        let head = ChunkHead {
            artifact_id: "a",
            seq: 1,
            is_last: true,
            bytes: large,
        };
        super::super::encode::chunk_head(&head, &mut chunk).unwrap();
        chunk.resize(chunk.len() + large, 0);
        for part in chunk.chunks(1000) {
            let mut input = part;
            while decoder.next(&mut input).unwrap().is_some() {}
            assert!(decoder.scratch.capacity() < 4096);
        }
        assert_eq!(decoder.end(), Ok(()));
    }
}
