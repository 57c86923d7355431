//! One frame that is there whole: its map is walked once, to its end, and what its `type` asks
//! for is taken out of it. Keys come in any order, and those we do not know are passed over.
//! S-2, S-3.

use std::ops::Range;

use super::control::{ChunkHead, FileWrite, Piece, RunResult, Status};
use super::event::Envelope;
use super::fault::{StreamFault, start_of};
use super::limits::{CHUNK_BYTES_MAX, DEPTH_MAX, FILE_BYTES_MAX};
use super::msgpack::{Flaw, Key, Keys, Reader, Token, read_key, walk};
use super::proxy::{ProxyProtocol, ProxyUsed};

/// What a frame came to.
pub(super) enum Whole<'a> {
    Piece(Piece<'a>),
    /// A chunk, and where in the frame its bytes are.
    Chunk(ChunkHead<'a>, Range<usize>),
}

/// Reads the payload of a frame.
pub(super) fn read<'a>(payload: &'a [u8], keys: &mut Keys) -> Result<Whole<'a>, StreamFault> {
    let fields = Fields::walk(payload, keys, &FRAME, number_in_frame)?;
    let kind = fields.text("a frame", TYPE)?;
    match kind {
        CHUNK => chunk(&fields),
        RESULT => run_result(&fields, keys).map(|read| Whole::Piece(Piece::RunResult(read))),
        FILE => file_write(&fields).map(|read| Whole::Piece(Piece::FileWrite(read))),
        ACK => Err(StreamFault::AckFromExecutor),
        _ => event(&fields, kind).map(|read| Whole::Piece(Piece::Event(read))),
    }
}

/// Values of `type` that are no event's. ST-4.
pub(super) const CHUNK: &str = "artifact_chunk";
pub(super) const RESULT: &str = "run_result";
pub(super) const FILE: &str = "file_write";
pub(super) const ACK: &str = "file_write_ack";

const EVENT: &str = "event";

/// The fields of a map that are looked for: their keys, by number.
struct Known {
    names: &'static [&'static str],
    /// Levels of nesting that are left inside this map.
    depth: usize,
}

const TYPE: usize = 0;
const CONTRACT_VERSION: usize = 1;
const EVENT_ID: usize = 2;
const RUN_ID: usize = 3;
const SEQ: usize = 4;
const TS: usize = 5;
const PAYLOAD: usize = 6;
const ATTEMPT: usize = 7;
const JOB_ID: usize = 8;
const PARENT_RUN_ID: usize = 9;
const ARTIFACT_ID: usize = 10;
const IS_LAST: usize = 11;
const DATA: usize = 12;
const OUTCOME: usize = 13;
const PROXY_USED: usize = 14;
const WRITE_ID: usize = 15;
const FILENAME: usize = 16;
const CONTENT_TYPE: usize = 17;
const OK: usize = 18;
const ERROR: usize = 19;

/// As many as any map has.
const FIELDS_MAX: usize = 20;

const NAMES: [&str; FIELDS_MAX] = [
    "type",
    "contract_version",
    "event_id",
    "run_id",
    "seq",
    "ts",
    "payload",
    "attempt",
    "job_id",
    "parent_run_id",
    "artifact_id",
    "is_last",
    "data",
    "outcome",
    "proxy_used",
    "write_id",
    "filename",
    "content_type",
    "ok",
    "error",
];

static FRAME: Known = Known {
    names: &NAMES,
    depth: DEPTH_MAX - 1,
};

/// By length first: each key is then compared with one or two others of known length, in a few
/// instructions.
#[inline]
fn number_in_frame(key: &[u8]) -> Option<usize> {
    match key.len() {
        2 => {
            if key == b"ts" {
                Some(TS)
            } else if key == b"ok" {
                Some(OK)
            } else {
                None
            }
        }
        3 => {
            if key == b"seq" {
                Some(SEQ)
            } else {
                None
            }
        }
        4 => {
            if key == b"type" {
                Some(TYPE)
            } else if key == b"data" {
                Some(DATA)
            } else {
                None
            }
        }
        5 => {
            if key == b"error" {
                Some(ERROR)
            } else {
                None
            }
        }
        6 => {
            if key == b"run_id" {
                Some(RUN_ID)
            } else if key == b"job_id" {
                Some(JOB_ID)
            } else {
                None
            }
        }
        7 => {
            if key == b"payload" {
                Some(PAYLOAD)
            } else if key == b"attempt" {
                Some(ATTEMPT)
            } else if key == b"is_last" {
                Some(IS_LAST)
            } else if key == b"outcome" {
                Some(OUTCOME)
            } else {
                None
            }
        }
        8 => {
            if key == b"event_id" {
                Some(EVENT_ID)
            } else if key == b"write_id" {
                Some(WRITE_ID)
            } else if key == b"filename" {
                Some(FILENAME)
            } else {
                None
            }
        }
        10 => {
            if key == b"proxy_used" {
                Some(PROXY_USED)
            } else {
                None
            }
        }
        11 => {
            if key == b"artifact_id" {
                Some(ARTIFACT_ID)
            } else {
                None
            }
        }
        12 => {
            if key == b"content_type" {
                Some(CONTENT_TYPE)
            } else {
                None
            }
        }
        13 => {
            if key == b"parent_run_id" {
                Some(PARENT_RUN_ID)
            } else {
                None
            }
        }
        16 => {
            if key == b"contract_version" {
                Some(CONTRACT_VERSION)
            } else {
                None
            }
        }
        _ => None,
    }
}

const STATUS: usize = 0;
const MESSAGE: usize = 1;
const ERROR_TYPE: usize = 2;
const STACK: usize = 3;

const OUTCOME_NAMES: [&str; 4] = ["status", "message", "error_type", "stack"];

static IN_OUTCOME: Known = Known {
    names: &OUTCOME_NAMES,
    depth: DEPTH_MAX - 2,
};

const PROTOCOL: usize = 0;
const HOST: usize = 1;
const PORT: usize = 2;
const USERNAME: usize = 3;

const PROXY_NAMES: [&str; 4] = ["protocol", "host", "port", "username"];

static IN_PROXY: Known = Known {
    names: &PROXY_NAMES,
    depth: DEPTH_MAX - 2,
};

fn position(names: &[&str], key: &[u8]) -> Option<usize> {
    names.iter().position(|name| name.as_bytes() == key)
}

/// Where the values of a map are.
struct Fields<'a> {
    bytes: &'a [u8],
    known: &'static Known,
    /// Where each value begins; 0, where the map itself begins, for one that is not there.
    starts: [u32; FIELDS_MAX],
    payload_end: usize,
}

impl<'a> Fields<'a> {
    /// Walks a whole map and finds out where its fields are.
    #[inline]
    fn walk(
        bytes: &'a [u8],
        keys: &mut Keys,
        known: &'static Known,
        number_of: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Self, StreamFault> {
        let mut reader = Reader::new(bytes, 0);
        let Token::Map(count) = reader.token().map_err(|flaw| flaw.of(bytes))? else {
            return Err(StreamFault::NotAMap);
        };
        let mut fields = Self {
            bytes,
            known,
            starts: [0; FIELDS_MAX],
            payload_end: 0,
        };
        keys.clear();
        fields
            .entries(&mut reader, count, keys, number_of)
            .map_err(|flaw| flaw.of(bytes))?;
        match reader.left() {
            0 => Ok(fields),
            bytes => Err(StreamFault::Trailing { bytes }),
        }
    }

    fn entries(
        &mut self,
        reader: &mut Reader<'a>,
        count: u32,
        keys: &mut Keys,
        number_of: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<(), Flaw> {
        let mark = keys.mark();
        for _ in 0..count {
            let from = reader.at;
            let token = read_key(reader)?;
            match token.bytes().and_then(&number_of) {
                Some(number) if self.starts[number] != 0 => {
                    return Err(Flaw::Twice(Key::read(reader, from, token)));
                }
                Some(number) => {
                    // A frame is far shorter than 4 GiB.
                    self.starts[number] = reader.at as u32;
                    walk(reader, keys, self.known.depth)?;
                    if number == PAYLOAD {
                        self.payload_end = reader.at;
                    }
                }
                None => {
                    keys.push(Key::read(reader, from, token))?;
                    walk(reader, keys, self.known.depth)?;
                }
            }
        }
        keys.close(mark, true, self.bytes)
    }

    /// The value of a field; nil is as good as none.
    fn token(&self, number: usize) -> Option<Token<'a>> {
        let start = self.starts[number] as usize;
        if start == 0 {
            return None;
        }
        let token = Reader::new(self.bytes, start).token().ok();
        token.filter(|token| !matches!(token, Token::Nil))
    }

    /// What a field must be there as.
    fn required<T>(
        &self,
        frame: &'static str,
        number: usize,
        wanted: &'static str,
        read: impl FnOnce(Token<'a>) -> Option<T>,
    ) -> Result<T, StreamFault> {
        match self.token(number).and_then(read) {
            Some(value) => Ok(value),
            None => Err(self.amiss(frame, number, wanted)),
        }
    }

    #[cold]
    fn amiss(&self, frame: &'static str, number: usize, wanted: &'static str) -> StreamFault {
        let field = self.known.names[number];
        if self.starts[number] == 0 {
            return StreamFault::Missing { frame, field };
        }
        StreamFault::WrongType {
            frame,
            field,
            wanted,
        }
    }

    fn text(&self, frame: &'static str, number: usize) -> Result<&'a str, StreamFault> {
        self.required(frame, number, "text", Token::text)
    }

    /// Text, or nil, or nothing at all.
    fn maybe_text(
        &self,
        frame: &'static str,
        number: usize,
    ) -> Result<Option<&'a str>, StreamFault> {
        match self.token(number) {
            None => Ok(None),
            Some(token) => match token.text() {
                Some(text) => Ok(Some(text)),
                None => Err(self.amiss(frame, number, "text")),
            },
        }
    }

    fn uint(&self, frame: &'static str, number: usize) -> Result<u64, StreamFault> {
        self.required(frame, number, "an integer of 0 or more", uint)
    }

    fn uint32(&self, frame: &'static str, number: usize) -> Result<u32, StreamFault> {
        self.required(frame, number, "an integer of at most 32 bits", |token| {
            u32::try_from(uint(token)?).ok()
        })
    }

    fn bool(&self, frame: &'static str, number: usize) -> Result<bool, StreamFault> {
        self.required(frame, number, "a bool", bool)
    }

    fn data(&self, frame: &'static str, number: usize) -> Result<&'a [u8], StreamFault> {
        self.required(frame, number, "bytes", Token::bytes)
    }

    /// The bytes of a map that is a field; of the payload we know where it ends.
    fn map(&self, frame: &'static str, number: usize) -> Result<&'a [u8], StreamFault> {
        self.required(frame, number, "a map", |token| match token {
            Token::Map(_) => {
                let start = self.starts[number] as usize;
                let mut reader = Reader::new(self.bytes, start);
                if number == PAYLOAD {
                    reader.at = self.payload_end;
                } else {
                    reader.pass().ok()?;
                }
                self.bytes.get(start..reader.at)
            }
            _ => None,
        })
    }
}

fn uint(token: Token<'_>) -> Option<u64> {
    match token {
        Token::Uint(value) => Some(value),
        _ => None,
    }
}

fn bool(token: Token<'_>) -> Option<bool> {
    match token {
        Token::Bool(value) => Some(value),
        _ => None,
    }
}

fn event<'a>(fields: &Fields<'a>, kind: &'a str) -> Result<Envelope<'a>, StreamFault> {
    Ok(Envelope {
        contract_version: fields.text(EVENT, CONTRACT_VERSION)?,
        event_id: fields.text(EVENT, EVENT_ID)?,
        run_id: fields.text(EVENT, RUN_ID)?,
        seq: fields.uint(EVENT, SEQ)?,
        kind,
        ts: fields.text(EVENT, TS)?,
        payload: fields.map(EVENT, PAYLOAD)?,
        attempt: fields.uint32(EVENT, ATTEMPT)?,
        job_id: fields.maybe_text(EVENT, JOB_ID)?,
        parent_run_id: fields.maybe_text(EVENT, PARENT_RUN_ID)?,
    })
}

fn chunk<'a>(fields: &Fields<'a>) -> Result<Whole<'a>, StreamFault> {
    let data = fields.data(CHUNK, DATA)?;
    let bytes = data.len();
    if bytes > CHUNK_BYTES_MAX {
        return Err(StreamFault::ChunkTooLarge { bytes });
    }
    let head = ChunkHead {
        artifact_id: fields.text(CHUNK, ARTIFACT_ID)?,
        seq: fields.uint(CHUNK, SEQ)?,
        is_last: fields.bool(CHUNK, IS_LAST)?,
        bytes,
    };
    let mut reader = Reader::new(fields.bytes, fields.starts[DATA] as usize);
    reader.pass().map_err(|flaw| flaw.of(fields.bytes))?;
    Ok(Whole::Chunk(head, reader.at - bytes..reader.at))
}

fn run_result<'a>(fields: &Fields<'a>, keys: &mut Keys) -> Result<RunResult<'a>, StreamFault> {
    let map = fields.map(RESULT, OUTCOME)?;
    let outcome = Fields::walk(map, keys, &IN_OUTCOME, |key| position(&OUTCOME_NAMES, key))?;
    let status = outcome.text(RESULT, STATUS)?;
    let proxy_used = match fields.token(PROXY_USED) {
        None => None,
        Some(_) => Some(proxy_used(fields.map(RESULT, PROXY_USED)?, keys)?),
    };
    Ok(RunResult {
        status: Status::parse(status).ok_or_else(|| StreamFault::Status {
            status: start_of(status.as_bytes()),
        })?,
        message: outcome.maybe_text(RESULT, MESSAGE)?,
        error_type: outcome.maybe_text(RESULT, ERROR_TYPE)?,
        stack: outcome.maybe_text(RESULT, STACK)?,
        proxy_used,
    })
}

/// A password in it is a key we do not know, and stays behind. ST-24.
fn proxy_used<'a>(map: &'a [u8], keys: &mut Keys) -> Result<ProxyUsed<'a>, StreamFault> {
    const PROXY: &str = "proxy_used";
    let fields = Fields::walk(map, keys, &IN_PROXY, |key| position(&PROXY_NAMES, key))?;
    Ok(ProxyUsed {
        protocol: fields.required(PROXY, PROTOCOL, "http, https or socks5", |token| {
            ProxyProtocol::parse(token.text()?)
        })?,
        host: fields.required(PROXY, HOST, "text", |token| {
            token.text().filter(|host| !host.is_empty())
        })?,
        port: fields.required(PROXY, PORT, "a port", |token| {
            let port = u16::try_from(uint(token)?).ok()?;
            (port > 0).then_some(port)
        })?,
        username: fields.maybe_text(PROXY, USERNAME)?,
    })
}

fn file_write<'a>(fields: &Fields<'a>) -> Result<FileWrite<'a>, StreamFault> {
    let data = fields.data(FILE, DATA)?;
    if data.len() > FILE_BYTES_MAX {
        return Err(StreamFault::FileTooLarge { bytes: data.len() });
    }
    let filename = fields.text(FILE, FILENAME)?;
    if filename.is_empty() || filename.contains(['/', '\\']) || filename.contains("..") {
        return Err(StreamFault::FileName {
            name: start_of(filename.as_bytes()),
        });
    }
    Ok(FileWrite {
        write_id: fields.uint32(FILE, WRITE_ID)?,
        filename,
        content_type: fields.text(FILE, CONTENT_TYPE)?,
        data,
    })
}

/// An acknowledgement: its `write_id`, `ok` and `error`. ST-75.
pub(super) fn ack(payload: &[u8]) -> Result<(u32, bool, Option<&str>), StreamFault> {
    let fields = Fields::walk(payload, &mut Keys::default(), &FRAME, number_in_frame)?;
    if fields.text("a frame", TYPE)? != ACK {
        return Err(fields.amiss("a frame", TYPE, "`file_write_ack`"));
    }
    Ok((
        fields.uint32(ACK, WRITE_ID)?,
        fields.bool(ACK, OK)?,
        fields.maybe_text(ACK, ERROR)?,
    ))
}

/// What the first bytes of a frame say of it.
pub(super) enum Head {
    /// A chunk in the usual order: its bytes can be handed on as they come.
    Chunk(Passed),
    /// Anything else: it is read when it is there whole.
    Other,
    /// More bytes will tell.
    Unknown,
}

/// A chunk up to its bytes.
pub(super) struct Passed {
    pub artifact_id: Range<usize>,
    pub seq: u64,
    pub is_last: bool,
    /// Bytes of data.
    pub bytes: usize,
    /// Where they begin.
    pub at: usize,
    /// Entries of the map that come after them.
    pub entries: u32,
}

/// Looks for the head of a chunk in the first bytes of a frame. What it says of some bytes it
/// says of more of them too, so that nothing depends on how they came.
pub(super) fn head(first: &[u8]) -> Result<Head, StreamFault> {
    let mut reader = Reader::new(first, 0);
    let Ok(Token::Map(count)) = reader.token() else {
        // Of no byte nothing is known; what is no map is found out by whoever reads it.
        return Ok(if first.is_empty() || is_map(first[0]) {
            Head::Unknown
        } else {
            Head::Other
        });
    };
    match chunk_head(&mut reader, count) {
        Ok(Some(passed)) if passed.bytes > CHUNK_BYTES_MAX => Err(StreamFault::ChunkTooLarge {
            bytes: passed.bytes,
        }),
        Ok(Some(passed)) => Ok(Head::Chunk(passed)),
        Ok(None) => Ok(Head::Other),
        Err(Flaw::Short) => Ok(Head::Unknown),
        Err(_) => Ok(Head::Other),
    }
}

fn is_map(marker: u8) -> bool {
    matches!(marker, 0x80..=0x8f | 0xde | 0xdf)
}

fn chunk_head(reader: &mut Reader<'_>, count: u32) -> Result<Option<Passed>, Flaw> {
    let (mut is_chunk, mut artifact_id, mut seq, mut is_last) = (false, None, None, None);
    for nth in 0..count {
        let key = reader.token()?.bytes();
        let fits = match key.and_then(number_in_frame) {
            Some(TYPE) => {
                let again = is_chunk;
                is_chunk = reader.token()?.text() == Some(CHUNK);
                is_chunk && !again
            }
            Some(ARTIFACT_ID) => {
                let text = reader.token()?.text();
                let end = reader.at;
                take_once(&mut artifact_id, text.map(|text| end - text.len()..end))
            }
            Some(SEQ) => take_once(&mut seq, uint(reader.token()?)),
            Some(IS_LAST) => take_once(&mut is_last, bool(reader.token()?)),
            Some(DATA) if is_chunk => {
                let (Some(artifact_id), Some(seq), Some(is_last)) = (artifact_id, seq, is_last)
                else {
                    return Ok(None);
                };
                let Some(bytes) = reader.bytes_head()? else {
                    return Ok(None);
                };
                return Ok(Some(Passed {
                    artifact_id,
                    seq,
                    is_last,
                    bytes,
                    at: reader.at,
                    entries: count - nth - 1,
                }));
            }
            _ => false,
        };
        if !fits {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Fills a field that was open; false if it was not, or there is nothing to fill it with.
fn take_once<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    let fits = field.is_none() && value.is_some();
    *field = value;
    fits
}

/// What follows the data of a chunk that was passed on: `entries` more of its map, none of which
/// may be one that was read before, and nothing after them.
pub(super) fn tail(bytes: &[u8], entries: u32, keys: &mut Keys) -> Result<(), StreamFault> {
    let mut reader = Reader::new(bytes, 0);
    keys.clear();
    for _ in 0..entries {
        tail_entry(&mut reader, keys).map_err(|flaw| flaw.of(bytes))?;
    }
    keys.close(0, true, bytes).map_err(|flaw| flaw.of(bytes))?;
    match reader.left() {
        0 => Ok(()),
        bytes => Err(StreamFault::Trailing { bytes }),
    }
}

fn tail_entry(reader: &mut Reader<'_>, keys: &mut Keys) -> Result<(), Flaw> {
    let from = reader.at;
    let token = read_key(reader)?;
    let key = Key::read(reader, from, token);
    let number = token.bytes().and_then(number_in_frame);
    if let Some(TYPE | ARTIFACT_ID | SEQ | IS_LAST | DATA) = number {
        return Err(Flaw::Twice(key));
    }
    keys.push(key)?;
    walk(reader, keys, FRAME.depth)
}
