//! WebSocket frames (RFC 6455) as a server reads and writes them: bytes in, messages out. No
//! extensions. The handshake is HTTP's, and not here.

/// What a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// A whole message, of one frame or many.
    Message(Vec<u8>),
    /// It asks whether we are there; a pong with the same bytes is the answer.
    Ping(Vec<u8>),
    /// It is there.
    Pong,
    /// It says goodbye.
    Close,
}

/// Why a conversation can not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Not this protocol.
    Protocol(&'static str),
    /// A message of bytes, where text is spoken.
    Binary,
    /// Text that is not UTF-8.
    NotText,
    /// Larger than the bound.
    TooLarge,
}

impl Broken {
    /// The status code a close frame tells it by.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Protocol(_) => 1002,
            Self::Binary => 1003,
            Self::NotText => 1007,
            Self::TooLarge => 1009,
        }
    }
}

/// We are about to end.
pub const GOING_AWAY: u16 = 1001;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Largest payload of a control frame.
const CONTROL_BYTES_MAX: u64 = 125;

/// Makes messages of the bytes of one client.
pub struct Decoder {
    bytes: Vec<u8>,
    /// How much of `bytes` was read.
    read: usize,
    /// The frames so far of a message that is not whole.
    message: Option<Vec<u8>>,
    bytes_max: usize,
}

/// A frame's head.
struct Head {
    last: bool,
    opcode: u8,
    /// Where the payload begins.
    begin: usize,
    length: usize,
    mask: [u8; 4],
}

impl Decoder {
    /// For messages of at most `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            read: 0,
            message: None,
            bytes_max,
        }
    }

    /// More bytes. What was handed out already is forgotten.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message that is whole.
    pub fn next_message(&mut self) -> Result<Option<Came>, Broken> {
        while let Some(head) = self.head()? {
            let end = head.begin + head.length;
            if self.bytes.len() < end {
                return Ok(None);
            }
            let mut payload = self.bytes[head.begin..end].to_vec();
            self.read = end;
            for (byte, key) in payload.iter_mut().zip(head.mask.iter().cycle()) {
                *byte ^= key;
            }
            if let Some(came) = self.take(&head, payload)? {
                return Ok(Some(came));
            }
        }
        Ok(None)
    }

    /// The head of the next frame, checked before its payload is waited for.
    fn head(&self) -> Result<Option<Head>, Broken> {
        let bytes = &self.bytes[self.read..];
        let [first, second, rest @ ..] = bytes else {
            return Ok(None);
        };
        let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(Broken::Protocol("no extension was agreed on"));
        }
        if second & 0x80 == 0 {
            return Err(Broken::Protocol("a client's frames are masked"));
        }
        let (length, wide) = match second & 0x7f {
            126 => (rest.first_chunk().map(|b| u16::from_be_bytes(*b).into()), 2),
            127 => (rest.first_chunk().map(|b| u64::from_be_bytes(*b)), 8),
            short => (Some(u64::from(short)), 0),
        };
        let Some(length) = length else {
            return Ok(None);
        };
        self.check(opcode, last, length)?;
        let Some(mask) = rest[wide..].first_chunk() else {
            return Ok(None);
        };
        Ok(Some(Head {
            last,
            opcode,
            begin: self.read + 2 + wide + 4,
            length: usize::try_from(length).map_err(|_| Broken::TooLarge)?,
            mask: *mask,
        }))
    }

    fn check(&self, opcode: u8, last: bool, length: u64) -> Result<(), Broken> {
        match opcode {
            CLOSE | PING | PONG if !last || length > CONTROL_BYTES_MAX => {
                return Err(Broken::Protocol("a control frame is short and whole"));
            }
            CLOSE | PING | PONG => return Ok(()),
            BINARY => return Err(Broken::Binary),
            TEXT if self.message.is_some() => {
                return Err(Broken::Protocol("a message begins inside another"));
            }
            CONTINUATION if self.message.is_none() => {
                return Err(Broken::Protocol("a message goes on that never began"));
            }
            TEXT | CONTINUATION => {}
            _ => return Err(Broken::Protocol("no such kind of frame")),
        }
        let before = self.message.as_ref().map_or(0, Vec::len);
        let room = (self.bytes_max - before) as u64;
        if length > room {
            return Err(Broken::TooLarge);
        }
        Ok(())
    }

    fn take(&mut self, head: &Head, payload: Vec<u8>) -> Result<Option<Came>, Broken> {
        match head.opcode {
            CLOSE => return Ok(Some(Came::Close)),
            PING => return Ok(Some(Came::Ping(payload))),
            PONG => return Ok(Some(Came::Pong)),
            _ => {}
        }
        let whole = match self.message.take() {
            None => payload,
            Some(mut before) => {
                before.extend_from_slice(&payload);
                before
            }
        };
        if !head.last {
            self.message = Some(whole);
            return Ok(None);
        }
        match std::str::from_utf8(&whole) {
            Ok(_) => Ok(Some(Came::Message(whole))),
            Err(_) => Err(Broken::NotText),
        }
    }
}

/// Appends a message.
pub fn write_text(message: &[u8], out: &mut Vec<u8>) {
    write_frame(TEXT, message, out);
}

/// Appends the answer to a ping.
pub fn write_pong(payload: &[u8], out: &mut Vec<u8>) {
    write_frame(PONG, payload, out);
}

/// Appends a question whether the client is there.
pub fn write_ping(out: &mut Vec<u8>) {
    write_frame(PING, b"", out);
}

/// Appends a goodbye.
pub fn write_close(code: u16, out: &mut Vec<u8>) {
    write_frame(CLOSE, &code.to_be_bytes(), out);
}

fn write_frame(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x80 | opcode);
    match payload.len() {
        short @ 0..=125 => out.push(short as u8),
        middle @ 126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(0, payload, &mut bytes);
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

    fn all(decoder: &mut Decoder) -> Result<Vec<Came>, Broken> {
        let mut came = Vec::new();
        while let Some(next) = decoder.next_message()? {
            came.push(next);
        }
        Ok(came)
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
            Came::Message(b"one".to_vec()),
            Came::Ping(b"here?".to_vec()),
            Came::Message(middle.into_bytes()),
            Came::Pong,
            Came::Message(long),
            Came::Close,
        ];
        let cuts = (0..600).chain([stream.len() - 1, stream.len()]);
        for cut in cuts {
            let mut decoder = Decoder::new(70_000);
            decoder.feed(&stream[..cut]);
            let mut came = all(&mut decoder).unwrap();
            decoder.feed(&stream[cut..]);
            came.extend(all(&mut decoder).unwrap());
            assert_eq!(came, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_not_this_protocol() {
        let unmasked = [0x81, 1, b'x'];
        let inside = [frame(0x01, b"a"), frame(0x81, b"b")].concat();
        let grown = [frame(0x01, &[b'a'; 9]), frame(0x80, b"bc")].concat();
        for (bytes, wanted) in [
            (unmasked.to_vec(), 1002),
            (frame(0xc1, b"x"), 1002),
            (frame(0x83, b"x"), 1002),
            (frame(0x80, b"x"), 1002),
            (frame(0x09, b"x"), 1002),
            (frame(0x89, &[0; 126]), 1002),
            (inside, 1002),
            (frame(0x82, b"x"), 1003),
            (frame(0x81, &[0xff]), 1007),
            (frame(0x81, &[b'x'; 11]), 1009),
            (grown, 1009),
            // The length alone is enough.
            (vec![0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0], 1009),
        ] {
            let mut decoder = Decoder::new(10);
            decoder.feed(&bytes);
            assert_eq!(all(&mut decoder).unwrap_err().code(), wanted, "{bytes:?}");
        }
        let mut decoder = Decoder::new(10);
        decoder.feed(&frame(0x81, &[b'x'; 10]));
        assert!(decoder.next_message().is_ok());
    }

    #[test]
    fn what_we_write() {
        let mut out = Vec::new();
        write_text(b"{}", &mut out);
        write_pong(b"p", &mut out);
        write_ping(&mut out);
        write_close(GOING_AWAY, &mut out);
        assert_eq!(out, b"\x81\x02{}\x8a\x01p\x89\x00\x88\x02\x03\xe9");
        let mut long = Vec::new();
        write_text(&vec![b'x'; 65_536], &mut long);
        assert_eq!(long[..10], [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}
