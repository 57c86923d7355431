//! WebSocket messages at a server's end: bytes in, messages and answers out. The frames are
//! tungstenite's; its sockets are not used, since a conversation writes in one place.

use std::io::{self, ErrorKind, Read, Write};

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Bytes, Error, Message};

/// Room that the library makes before each of its reads, and clears: with the 128 KiB that it
/// suggests, a short message costs eight times as much.
const READ_BYTES: usize = 1024;

/// What came from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A whole message of text, of one frame or many.
    Message(Vec<u8>),
    /// A ping; these bytes are its pong.
    Ping(Vec<u8>),
    /// A close frame, or bytes that are no WebSocket's; these bytes are the close frame that ends
    /// the conversation.
    Close(Vec<u8>),
}

/// Messages of the bytes of one client.
pub(super) struct Frames {
    context: WebSocketContext,
    exchange: Exchange,
}

impl Frames {
    /// For messages of at most `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_frame_size(Some(bytes_max))
            .max_message_size(Some(bytes_max));
        Self {
            context: WebSocketContext::new(Role::Server, Some(config)),
            exchange: Exchange::default(),
        }
    }

    /// Takes more bytes of the client.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.exchange.received.extend_from_slice(bytes);
    }

    /// Returns what came next; `None` if more bytes are needed. Nothing follows a close.
    pub(super) fn next(&mut self) -> Option<Incoming> {
        loop {
            return Some(match self.context.read(&mut self.exchange) {
                Ok(Message::Text(text)) => Incoming::Message(Bytes::from(text).into()),
                Ok(Message::Ping(_)) => {
                    // The context has the pong ready; writing to memory does not fail.
                    let _ = self.context.flush(&mut self.exchange);
                    Incoming::Ping(std::mem::take(&mut self.exchange.answer))
                }
                Ok(Message::Pong(_) | Message::Frame(_)) => continue,
                Ok(Message::Binary(_)) => closing(CloseCode::Unsupported),
                Ok(Message::Close(_)) => closing(CloseCode::Normal),
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(Error::Capacity(_)) => closing(CloseCode::Size),
                Err(Error::Utf8(_)) => closing(CloseCode::Invalid),
                Err(_) => closing(CloseCode::Protocol),
            });
        }
    }
}

fn closing(code: CloseCode) -> Incoming {
    let mut frame = Vec::new();
    write_close(code, &mut frame);
    Incoming::Close(frame)
}

/// Bytes of the client that the context has not read yet, and those that it wrote.
#[derive(Default)]
struct Exchange {
    received: Vec<u8>,
    read: usize,
    answer: Vec<u8>,
}

impl Read for Exchange {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.received[self.read..].as_ref().read(into)?;
        self.read += read;
        if self.read == self.received.len() {
            self.received.clear();
            self.read = 0;
        }
        // To the context an end of memory is not the end of the connection.
        match read {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(read),
        }
    }
}

impl Write for Exchange {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends a message of text.
pub(super) fn write_text(message: &[u8], out: &mut Vec<u8>) {
    write_frame(OpCode::Data(Data::Text), message, out);
}

/// Appends a ping.
pub(super) fn write_ping(out: &mut Vec<u8>) {
    write_frame(OpCode::Control(Control::Ping), b"", out);
}

/// Appends a close frame.
pub(super) fn write_close(code: CloseCode, out: &mut Vec<u8>) {
    let code = u16::from(code).to_be_bytes();
    write_frame(OpCode::Control(Control::Close), &code, out);
}

fn write_frame(opcode: OpCode, payload: &[u8], out: &mut Vec<u8>) {
    let header = FrameHeader {
        opcode,
        ..FrameHeader::default()
    };
    header
        .format(payload.len() as u64, out)
        .expect("writing to a Vec does not fail");
    out.extend_from_slice(payload);
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod properties;

#[cfg(test)]
mod tests {
    use callgate_testing::{Random, mutant};

    use super::properties::{all, check_cuts};
    use super::*;

    /// A client's frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_text(payload, &mut bytes);
        bytes[0] = first;
        bytes[1] |= 0x80;
        let head = bytes.len() - payload.len();
        let mask = [0x12, 0x34, 0x56, 0x78];
        for (byte, key) in bytes[head..].iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        bytes.splice(head..head, mask);
        bytes
    }

    fn close(code: u16) -> Incoming {
        Incoming::Close([&[0x88, 2][..], &code.to_be_bytes()].concat())
    }

    /// Whole and in parts, with a ping in between, cut anywhere.
    #[test]
    fn messages_however_they_are_cut() {
        let long = vec![b'x'; 70_000];
        let middle = "ä".repeat(100);
        let stream = [
            frame(0x81, b"one"),
            frame(0x01, &middle.as_bytes()[..3]),
            frame(0x89, b"here?"),
            frame(0x80, &middle.as_bytes()[3..]),
            frame(0x8a, b""),
            frame(0x81, &long),
            frame(0x88, &[3, 232]),
        ]
        .concat();
        let wanted = vec![
            Incoming::Message(b"one".to_vec()),
            Incoming::Ping(b"\x8a\x05here?".to_vec()),
            Incoming::Message(middle.into_bytes()),
            Incoming::Message(long),
            close(1000),
        ];
        let cuts = (0..600).chain([stream.len() - 1, stream.len()]);
        for cut in cuts {
            let mut frames = Frames::new(70_000);
            frames.feed(&stream[..cut]);
            let mut came = all(&mut frames);
            if cut < stream.len() {
                frames.feed(&stream[cut..]);
                came.extend(all(&mut frames));
            }
            assert_eq!(came, wanted, "cut at {cut}");
        }
    }

    /// Several pings that came at once have a pong each.
    #[test]
    fn pings_are_answered_one_by_one() {
        let mut frames = Frames::new(10);
        frames.feed(&[frame(0x89, b"a"), frame(0x89, b"b")].concat());
        let pong = |payload: u8| Incoming::Ping(vec![0x8a, 1, payload]);
        assert_eq!(all(&mut frames), [pong(b'a'), pong(b'b')]);
    }

    #[test]
    fn what_is_not_this_protocol() {
        /// More than a control frame may have, whose length is checked after this.
        const BYTES_MAX: usize = 130;
        let unmasked = [0x81, 1, b'x'];
        let inside = [frame(0x01, b"a"), frame(0x81, b"b")].concat();
        let grown = [frame(0x01, &[b'a'; BYTES_MAX - 1]), frame(0x80, b"bc")].concat();
        for (bytes, wanted) in [
            (unmasked.to_vec(), 1002),
            (frame(0xc1, b"x"), 1002),
            (frame(0x83, b"x"), 1002),
            (frame(0x80, b"x"), 1002),
            (frame(0x09, b"x"), 1002),
            (frame(0x89, &[0; 126]), 1002),
            (frame(0x88, &[3]), 1002),
            (inside, 1002),
            (frame(0x82, b"x"), 1003),
            (frame(0x81, &[0xff]), 1007),
            (frame(0x81, &[b'x'; BYTES_MAX + 1]), 1009),
            (grown, 1009),
            // The head alone is enough.
            (
                vec![0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
                1009,
            ),
            (vec![0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 131, 1, 2, 3, 4], 1009),
        ] {
            let mut frames = Frames::new(BYTES_MAX);
            frames.feed(&bytes);
            assert_eq!(all(&mut frames), [close(wanted)], "{bytes:?}");
        }
        let mut frames = Frames::new(BYTES_MAX);
        frames.feed(&frame(0x81, &[b'x'; BYTES_MAX]));
        assert_eq!(all(&mut frames), [Incoming::Message(vec![b'x'; BYTES_MAX])]);
    }

    #[test]
    fn what_we_write() {
        let mut out = Vec::new();
        write_text(b"{}", &mut out);
        write_ping(&mut out);
        write_close(CloseCode::Away, &mut out);
        assert_eq!(out, b"\x81\x02{}\x89\x00\x88\x02\x03\xe9");
        let mut long = Vec::new();
        write_text(&vec![b'x'; 65_536], &mut long);
        assert_eq!(long[..10], [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    /// Seeded mutations, 100,000: the same comes of bytes however they are cut, and no message is
    /// above the bound.
    #[test]
    fn mutated_frames() {
        const CASES: usize = 100_000;
        const BYTES_MAX: usize = 300;
        const WORDS: [&[u8]; 8] = [
            &[0x81, 0x80, 0, 0, 0, 0],
            &[0x01, 0x81, 0, 0, 0, 0, b'x'],
            &[0x80, 0x80, 0, 0, 0, 0],
            &[0x89, 0x80, 0, 0, 0, 0],
            &[0x88, 0x82, 0, 0, 0, 0, 3, 232],
            &[0xfe, 1, 44],
            &[0xff, 0, 0, 0, 0, 0, 0],
            b"\xc3\xa9",
        ];
        let parts = [
            frame(0x01, b"in three "),
            frame(0x89, b"?"),
            frame(0x80, b"parts"),
        ]
        .concat();
        let seeds = [frame(0x81, b"{}"), parts, frame(0x81, &[b'x'; 290])];
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        let mut random = Random::new("web socket frames");
        let mut read = 0;
        for _ in 0..CASES {
            let bytes = mutant(&mut random, &seeds, &WORDS);
            let cut = random.below(bytes.len() + 1);
            read += check_cuts(&bytes, &[&bytes[..cut], &bytes[cut..]], BYTES_MAX);
        }
        assert!(read > 0);
    }
}
