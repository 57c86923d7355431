//! The bytes of a segment: a header, then frames. A frame is one transaction of one or more
//! records; the last frame of a full segment says that the chain goes on in the next.
//!
//! ```text
//! segment  "CGSEG002" | number u64 | first seq u64 | hash before it 32 | check 8
//! frame    guard u32 (magic xor len) | check 8 | len u32 | payload      check over len, payload
//! payload  first seq u64 | records
//! record   body len u32 | side len u32 | chain hash 32 | body | side
//! roll     as a frame with a magic of its own; payload = last seq u64 | last hash 32
//! ```
//!
//! Numbers are little-endian. A process killed while writing leaves a true prefix of a frame, so
//! a header that is all there and makes no sense was not left by a crash. The check is there for
//! accidents and costs a tenth of a hash; against a forger stand the chain's hashes, which cover
//! body and side, and the signed head (D-9). No I/O here.

/// A chain hash.
pub(crate) type Hash = [u8; 32];

/// The hash before the first record.
pub(crate) const HASH_ZERO: Hash = [0; 32];

/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes before a frame's payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 16;
/// Bytes of the frame that closes a segment.
pub(crate) const ROLL_BYTES: usize = FRAME_HEADER_BYTES + 40;
/// Bytes before a record's body.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
/// Largest payload we ever write or believe.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The format of our segments, which each of them begins with. Headers look alike in all formats,
/// so that another one can be told from damage (D-10).
pub(crate) const FORMAT: &str = "CGSEG002";
/// What the names of all formats begin with.
const FORMATS: &[u8] = b"CGSEG";
const FRAME_MAGIC: u32 = 0x4746_5243;
const ROLL_MAGIC: u32 = 0x4C4F_5243;

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    pub(crate) first_seq: u64,
    pub(crate) hash: Hash,
}

/// Why bytes are not the header of a segment of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// They are not as anyone wrote them.
    Broken,
    /// They are whole, and of another format, with this name.
    OtherFormat(String),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(FORMAT.as_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.hash);
        let check = check_of(&bytes[..56]);
        bytes[56..].copy_from_slice(&check);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes = bytes
            .get(..SEGMENT_HEADER_BYTES)
            .filter(|bytes| bytes.starts_with(FORMATS) && check_of(&bytes[..56]) == bytes[56..])
            .ok_or(BadHeader::Broken)?;
        if &bytes[..8] != FORMAT.as_bytes() {
            let name = String::from_utf8_lossy(&bytes[..8]);
            return Err(BadHeader::OtherFormat(name.into_owned()));
        }
        Ok(Self {
            number: u64_at(bytes, 8),
            first_seq: u64_at(bytes, 16),
            hash: bytes[24..56].try_into().expect("32 bytes"),
        })
    }
}

/// Builds one frame.
pub(crate) struct FrameWriter<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> FrameWriter<'a> {
    /// A frame at the end of `bytes`, whose first record will be `first_seq`.
    pub(crate) fn new(bytes: &'a mut Vec<u8>, first_seq: u64) -> Self {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        bytes.extend_from_slice(&first_seq.to_le_bytes());
        Self { bytes, start }
    }

    /// Adds a record; returns its offset from the start of the frame.
    pub(crate) fn record(&mut self, body: &[u8], hash: &Hash, side: &[u8]) -> u32 {
        let offset = self.bytes.len() - self.start;
        self.bytes
            .extend_from_slice(&length(body.len()).to_le_bytes());
        self.bytes
            .extend_from_slice(&length(side.len()).to_le_bytes());
        self.bytes.extend_from_slice(hash);
        self.bytes.extend_from_slice(body);
        self.bytes.extend_from_slice(side);
        length(offset)
    }

    /// Seals the frame.
    pub(crate) fn finish(self) {
        seal(&mut self.bytes[self.start..], FRAME_MAGIC);
    }
}

/// The frame that closes a segment.
pub(crate) fn roll_frame(last_seq: u64, hash: &Hash) -> [u8; ROLL_BYTES] {
    let mut bytes = [0; ROLL_BYTES];
    bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 8].copy_from_slice(&last_seq.to_le_bytes());
    bytes[FRAME_HEADER_BYTES + 8..].copy_from_slice(hash);
    seal(&mut bytes, ROLL_MAGIC);
    bytes
}

fn seal(frame: &mut [u8], magic: u32) {
    let len = length(frame.len() - FRAME_HEADER_BYTES);
    frame[12..16].copy_from_slice(&len.to_le_bytes());
    let check = check_of(&frame[12..]);
    frame[4..12].copy_from_slice(&check);
    frame[..4].copy_from_slice(&(magic ^ len).to_le_bytes());
}

/// The frame of a payload, whatever it holds.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal_payload(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    frame.extend_from_slice(payload);
    seal(&mut frame, FRAME_MAGIC);
    frame
}

/// What is at the front of some bytes of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front<'a> {
    /// Nothing.
    End,
    /// A true frame, by all the bytes tell.
    Frame(Frame<'a>),
    /// The segment ends here; the chain goes on in the next.
    Roll {
        last_seq: u64,
        hash: Hash,
        len: usize,
    },
    /// The beginning of a frame.
    Torn,
    /// No frame, nor the beginning of one.
    Bad(BadFrame<'a>),
}

/// A frame whose check holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) first_seq: u64,
    /// The whole frame's length.
    pub(crate) len: usize,
    pub(crate) payload: &'a [u8],
}

/// Bytes that are no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadFrame<'a> {
    /// The header makes no sense.
    Header,
    /// The header is whole, the check does not hold.
    Check { payload: &'a [u8] },
}

/// Reads the front of `bytes`.
pub(crate) fn front(bytes: &[u8]) -> Front<'_> {
    if bytes.is_empty() {
        return Front::End;
    }
    if bytes.len() < FRAME_HEADER_BYTES {
        return Front::Torn;
    }
    let guard = u32_at(bytes, 0);
    let len = u32_at(bytes, 12);
    let magic = guard ^ len;
    let len = len as usize;
    if magic != FRAME_MAGIC && magic != ROLL_MAGIC || !(9..=PAYLOAD_BYTES_MAX).contains(&len) {
        return Front::Bad(BadFrame::Header);
    }
    let whole = FRAME_HEADER_BYTES + len;
    if bytes.len() < whole {
        return Front::Torn;
    }
    let payload = &bytes[FRAME_HEADER_BYTES..whole];
    if check_of(&bytes[12..whole]) != bytes[4..12] {
        return Front::Bad(BadFrame::Check { payload });
    }
    match magic {
        ROLL_MAGIC if len == 40 => Front::Roll {
            last_seq: u64_at(payload, 0),
            hash: payload[8..].try_into().expect("40 less 8 bytes"),
            len: whole,
        },
        FRAME_MAGIC => Front::Frame(Frame {
            first_seq: u64_at(payload, 0),
            len: whole,
            payload,
        }),
        _ => Front::Bad(BadFrame::Header),
    }
}

/// True if a true frame begins anywhere in `bytes`.
pub(crate) fn any_frame(bytes: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(FRAME_HEADER_BYTES)).any(|at| {
        let magic = u32_at(bytes, at) ^ u32_at(bytes, at + 12);
        (magic == FRAME_MAGIC || magic == ROLL_MAGIC)
            && matches!(front(&bytes[at..]), Front::Frame(_) | Front::Roll { .. })
    })
}

/// One record of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawRecord<'a> {
    /// From the start of the frame.
    pub(crate) offset: u32,
    pub(crate) hash: Hash,
    pub(crate) body: &'a [u8],
    pub(crate) side: &'a [u8],
}

/// The records of a payload, in order. `None` where the rest is not a record.
pub(crate) fn records(payload: &[u8]) -> impl Iterator<Item = Option<RawRecord<'_>>> {
    let mut at = 8;
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken || at >= payload.len() {
            return None;
        }
        let record = record(payload, at);
        match &record {
            Some(found) => at += RECORD_HEADER_BYTES + found.body.len() + found.side.len(),
            None => broken = true,
        }
        Some(record)
    })
}

fn record(payload: &[u8], at: usize) -> Option<RawRecord<'_>> {
    let header = payload.get(at..at + RECORD_HEADER_BYTES)?;
    let body_at = at + RECORD_HEADER_BYTES;
    let side_at = body_at.checked_add(u32_at(header, 0) as usize)?;
    let end = side_at.checked_add(u32_at(header, 4) as usize)?;
    let side = payload.get(side_at..end)?;
    Some(RawRecord {
        offset: length(FRAME_HEADER_BYTES + at),
        hash: header[8..40].try_into().expect("32 bytes"),
        body: &payload[body_at..side_at],
        side,
    })
}

/// The lengths of body and side, from a record's header.
pub(crate) fn record_lengths(header: &[u8; RECORD_HEADER_BYTES]) -> (usize, usize) {
    (u32_at(header, 0) as usize, u32_at(header, 4) as usize)
}

/// Bytes before the body where a record is hashed: the hash before it, the digest of its side.
pub(crate) const HASHED_BEFORE_BYTES: usize = 64;

/// The hash of a record (D-9). `hashed` is the hash before it, the digest of its side and its
/// body, one after the other: hashing in one go costs half of feeding a hasher.
pub(crate) fn chain_hash(hashed: &[u8]) -> Hash {
    *blake3::hash(hashed).as_bytes()
}

/// What a record's hash covers of its side bytes, so that it can be checked without them. Many
/// records have none, and no bytes cost no hashing.
pub(crate) fn side_digest(side: &[u8]) -> Hash {
    if side.is_empty() {
        HASH_ZERO
    } else {
        *blake3::hash(side).as_bytes()
    }
}

fn check_of(bytes: &[u8]) -> [u8; 8] {
    mix(bytes).to_le_bytes()
}

/// A 64-bit checksum in four lanes. Every step is a bijection of the lane, so that a change
/// within one word always shows, and any other one with odds of 2^64.
fn mix(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |lane: u64, word: u64| (lane ^ word).wrapping_mul(ODD).rotate_left(29);
    let mut lanes = [1, 2, 3, 4].map(|lane| step(lane, bytes.len() as u64));
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (index, lane) in lanes.iter_mut().enumerate() {
            *lane = step(*lane, u64_at(block, index * 8));
        }
    }
    let mut words = blocks.remainder().chunks_exact(8);
    for (lane, word) in lanes.iter_mut().zip(&mut words) {
        *lane = step(*lane, u64_at(word, 0));
    }
    for &byte in words.remainder() {
        lanes[3] = step(lanes[3], u64::from(byte));
    }
    let sum = lanes.into_iter().fold(ODD, step);
    step(sum ^ (sum >> 32), ODD)
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("bounded by PAYLOAD_BYTES_MAX")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        let mut frame = FrameWriter::new(&mut bytes, 7);
        let a = frame.record(b"{}", &[1; 32], b"side");
        let b = frame.record(b"{\"x\":1}", &[2; 32], b"");
        frame.finish();
        let Front::Frame(read) = front(&bytes) else {
            panic!("{:?}", front(&bytes))
        };
        assert_eq!((read.first_seq, read.len), (7, bytes.len()));
        let all: Vec<_> = records(read.payload).map(Option::unwrap).collect();
        assert_eq!(
            (all[0].offset, all[0].body, all[0].side),
            (a, &b"{}"[..], &b"side"[..])
        );
        assert_eq!(
            (all[1].offset, all[1].hash, all[1].side),
            (b, [2; 32], &b""[..])
        );
        for cut in 1..bytes.len() {
            assert_eq!(front(&bytes[..cut]), Front::Torn, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(matches!(front(&bad), Front::Bad(_)), "flipped {at}");
        }
        assert!(any_frame(&[b"noise".as_slice(), &bytes].concat()));
        assert!(!any_frame(&bytes[1..]));
    }

    #[test]
    fn headers_and_rolls() {
        let header = SegmentHeader {
            number: 3,
            first_seq: 9,
            hash: [5; 32],
        };
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        for at in [5, 7, 20] {
            let mut bad = header.encode();
            bad[at] ^= 1;
            assert_eq!(SegmentHeader::decode(&bad), Err(BadHeader::Broken));
        }
        let mut other = header.encode();
        other[..8].copy_from_slice(b"CGSEG001");
        let check = check_of(&other[..56]);
        other[56..].copy_from_slice(&check);
        let name = "CGSEG001".to_owned();
        assert_eq!(
            SegmentHeader::decode(&other),
            Err(BadHeader::OtherFormat(name))
        );
        let roll = roll_frame(4, &[6; 32]);
        assert_eq!(
            front(&roll),
            Front::Roll {
                last_seq: 4,
                hash: [6; 32],
                len: ROLL_BYTES
            }
        );
    }
}
