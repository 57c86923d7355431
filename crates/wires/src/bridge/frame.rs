//! Frames out of bytes: 4 bytes of length, then that many bytes. The length is judged by its
//! prefix alone, and memory grows with the bytes that came, not with the bytes that were
//! promised.

use super::limits::{MESSAGE_BYTES_MAX, PREFIX_BYTES};

/// A buffer that once held a large frame is let go of above this.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Why bytes are no frames. Nothing after them can be read either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The prefix promises more than is allowed.
    #[error("message of {len} bytes exceeds {MESSAGE_BYTES_MAX} bytes")]
    TooLarge {
        /// What the prefix says.
        len: u32,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame: {got} of {wanted} bytes")]
    Cut {
        /// Bytes of it that came, the prefix included.
        got: usize,
        /// Bytes it has, as far as that is known.
        wanted: usize,
    },
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Where the next frame begins.
    start: usize,
}

impl FrameDecoder {
    /// Takes in some bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The payload of the next whole frame, if it is here.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let waiting = &self.buffer[self.start..];
        let Some((prefix, rest)) = waiting.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let len = promised(*prefix)?;
        if rest.len() < len {
            return Ok(None);
        }
        let from = self.start + PREFIX_BYTES;
        self.start = from + len;
        Ok(Some(&self.buffer[from..self.start]))
    }

    /// True if no byte waits to become a frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }

    /// The stream has ended: good between two frames, an error inside one.
    pub fn finish(&self) -> Result<(), FrameError> {
        let waiting = &self.buffer[self.start..];
        let wanted = match waiting.first_chunk::<PREFIX_BYTES>() {
            None if waiting.is_empty() => return Ok(()),
            None => PREFIX_BYTES,
            Some(prefix) => promised(*prefix)? + PREFIX_BYTES,
        };
        let got = waiting.len();
        Err(FrameError::Cut { got, wanted })
    }
}

/// The payload a prefix promises.
fn promised(prefix: [u8; PREFIX_BYTES]) -> Result<usize, FrameError> {
    let len = u32::from_be_bytes(prefix);
    match usize::try_from(len) {
        Ok(bytes) if bytes <= MESSAGE_BYTES_MAX => Ok(bytes),
        _ => Err(FrameError::TooLarge { len }),
    }
}

/// Leaves room for the prefix of a frame whose payload is appended next; gives its place.
#[must_use]
pub fn open_frame(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    at
}

/// Fills in the prefix of the frame opened at `at`. A payload over the limit is taken back,
/// and its size told. BR-20.
pub fn close_frame(at: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let bytes = out.len().saturating_sub(at + PREFIX_BYTES);
    let len = u32::try_from(bytes).unwrap_or(u32::MAX);
    if bytes > MESSAGE_BYTES_MAX {
        out.truncate(at);
        return Err(FrameError::TooLarge { len });
    }
    out[at..at + PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let at = open_frame(&mut out);
        out.extend_from_slice(payload);
        close_frame(at, &mut out).unwrap();
        out
    }

    type Decoded = (Vec<Vec<u8>>, Result<(), FrameError>);

    fn decode(chunks: &[&[u8]]) -> Decoded {
        let mut decoder = FrameDecoder::default();
        let mut frames = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk);
            loop {
                match decoder.next_frame() {
                    Ok(Some(payload)) => frames.push(payload.to_vec()),
                    Ok(None) => break,
                    Err(error) => return (frames, Err(error)),
                }
            }
        }
        (frames, decoder.finish())
    }

    /// BR-2: the same frames at every two cuts of the bytes.
    #[test]
    fn every_split() {
        assert_eq!(frame(b"{}"), [0, 0, 0, 2, b'{', b'}']);
        let bytes = [frame(b"{}"), frame(b""), frame(b"payload"), frame(b"x")].concat();
        let wanted: Decoded = (
            vec![
                b"{}".to_vec(),
                b"".to_vec(),
                b"payload".to_vec(),
                b"x".to_vec(),
            ],
            Ok(()),
        );
        for a in 0..=bytes.len() {
            for b in a..=bytes.len() {
                let chunks = [&bytes[..a], &bytes[a..b], &bytes[b..]];
                assert_eq!(decode(&chunks), wanted, "cut at {a} and {b}");
            }
        }
    }

    /// B-5: a stream that ends inside a frame is told from one that ends between two.
    #[test]
    fn every_end() {
        let bytes = frame(b"payload");
        for end in 0..=bytes.len() {
            let ended = decode(&[&bytes[..end]]).1;
            let wanted = match end {
                0 | 11 => Ok(()),
                1..=3 => Err(FrameError::Cut {
                    got: end,
                    wanted: 4,
                }),
                _ => Err(FrameError::Cut {
                    got: end,
                    wanted: 11,
                }),
            };
            assert_eq!(ended, wanted, "after {end} bytes");
        }
    }

    /// BR-6, B-6: at and past the edge, judged by the prefix alone.
    #[test]
    fn the_limit() {
        let at = vec![b' '; MESSAGE_BYTES_MAX];
        let bytes = frame(&at);
        assert_eq!(decode(&[&bytes]).0, [at]);
        let mut decoder = FrameDecoder::default();
        decoder.feed(&[0, 0xA0, 0, 1]);
        let len = 10_485_761;
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge { len }));
        decoder = FrameDecoder::default();
        decoder.feed(&[0xFF; 4]);
        assert!(decoder.next_frame().is_err());
        assert!(decoder.buffer.capacity() < 1024, "nothing on trust");
        decoder = FrameDecoder::default();
        decoder.feed(&[0, 0xA0, 0, 0, b'x']);
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(decoder.buffer.capacity() < 1024, "nothing on trust");
    }

    /// BR-20: what is too large to send leaves no byte behind.
    #[test]
    fn a_sender_takes_it_back() {
        let mut out = b"before".to_vec();
        let at = open_frame(&mut out);
        out.resize(at + PREFIX_BYTES + MESSAGE_BYTES_MAX + 1, b' ');
        let len = 10_485_761;
        assert_eq!(close_frame(at, &mut out), Err(FrameError::TooLarge { len }));
        assert_eq!(out, b"before");
    }

    /// A large frame does not keep its memory.
    #[test]
    fn memory_is_let_go_of() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(&frame(&vec![b' '; 2 * KEPT_BYTES_MAX]));
        assert!(decoder.next_frame().unwrap().is_some());
        decoder.feed(&frame(b"{}"));
        assert_eq!(decoder.next_frame().unwrap(), Some(b"{}".as_slice()));
        assert!(decoder.is_empty() && decoder.buffer.capacity() <= KEPT_BYTES_MAX);
    }
}
