//! msgpack, as far as a frame is walked: values one after the other, nothing built of them.
//!
//! A walk to the end of a value finds what is no msgpack, what is nested too deep and a key that
//! comes twice in a map, so that whoever reads it later meets none of that.

use super::fault::{StreamFault, start_of};
use super::json;
use super::limits::KEYS_MAX;

/// Up to as many keys are compared each with each; more are sorted.
const FEW: usize = 16;

/// What is wrong with a value; becomes a [`StreamFault`] where the bytes are at hand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flaw {
    Short,
    Reserved,
    Deep,
    Key,
    ManyKeys,
    Twice(Key),
}

impl Flaw {
    /// In words; `bytes` is what was walked.
    #[cold]
    pub fn of(self, bytes: &[u8]) -> StreamFault {
        match self {
            Self::Short => StreamFault::Short,
            Self::Reserved => StreamFault::Reserved,
            Self::Deep => StreamFault::TooDeep,
            Self::Key => StreamFault::OddKey,
            Self::ManyKeys => StreamFault::TooManyKeys,
            Self::Twice(key) => {
                let mut text = Vec::new();
                key.text(bytes, &mut text);
                let key = start_of(&text);
                StreamFault::DuplicateKey { key }
            }
        }
    }
}

/// One value, or the beginning of one that has others in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'a> {
    Nil,
    Bool(bool),
    Uint(u64),
    /// Below zero.
    Int(i64),
    Float(f64),
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Array(u32),
    Map(u32),
    Ext(i8, &'a [u8]),
}

impl<'a> Token<'a> {
    /// Text, or bytes that are text.
    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Bytes, also such as came as text.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Str(bytes) | Self::Bin(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Where in some bytes we are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Flaw> {
        let byte = *self.bytes.get(self.at).ok_or(Flaw::Short)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let rest = self.bytes.get(self.at..).ok_or(Flaw::Short)?;
        let taken = rest.get(..count).ok_or(Flaw::Short)?;
        self.at += count;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let rest = self.bytes.get(self.at..).ok_or(Flaw::Short)?;
        let taken = rest.first_chunk::<N>().ok_or(Flaw::Short)?;
        self.at += N;
        Ok(*taken)
    }

    /// A text of fewer than 32 bytes, which nearly every key is.
    #[inline]
    fn short_text(&mut self) -> Option<&'a [u8]> {
        let (marker, rest) = self.bytes.get(self.at..)?.split_first()?;
        if marker & 0xe0 != 0xa0 {
            return None;
        }
        let text = rest.get(..usize::from(marker & 0x1f))?;
        self.at += 1 + text.len();
        Some(text)
    }

    /// A length of one, two or four bytes.
    #[inline]
    fn length(&mut self, bytes: u8) -> Result<usize, Flaw> {
        Ok(match bytes {
            1 => usize::from(self.byte()?),
            2 => usize::from(u16::from_be_bytes(self.array()?)),
            _ => u32::from_be_bytes(self.array()?) as usize,
        })
    }

    /// The head of a text or of bytes whose content may not be there yet: its length.
    pub fn bytes_head(&mut self) -> Result<Option<usize>, Flaw> {
        let marker = self.byte()?;
        Ok(Some(match marker {
            0xa0..=0xbf => usize::from(marker & 0x1f),
            0xc4 | 0xd9 => self.length(1)?,
            0xc5 | 0xda => self.length(2)?,
            0xc6 | 0xdb => self.length(4)?,
            _ => return Ok(None),
        }))
    }

    /// The next value; of a map or a list its head alone.
    #[inline]
    pub fn token(&mut self) -> Result<Token<'a>, Flaw> {
        let marker = self.byte()?;
        Ok(match marker {
            0x00..=0x7f => Token::Uint(u64::from(marker)),
            0x80..=0x8f => Token::Map(u32::from(marker & 0x0f)),
            0x90..=0x9f => Token::Array(u32::from(marker & 0x0f)),
            0xa0..=0xbf => Token::Str(self.take(usize::from(marker & 0x1f))?),
            0xe0..=0xff => Token::Int(i64::from(marker.cast_signed())),
            _ => return self.wide_token(marker),
        })
    }

    fn wide_token(&mut self, marker: u8) -> Result<Token<'a>, Flaw> {
        Ok(match marker {
            0xc0 => Token::Nil,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(1 << (marker - 0xc4))?;
                Token::Bin(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (marker - 0xc7))?;
                self.ext(length)?
            }
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.array()?)),
            0xcc => Token::Uint(u64::from(self.byte()?)),
            0xcd => Token::Uint(u64::from(u16::from_be_bytes(self.array()?))),
            0xce => Token::Uint(u64::from(u32::from_be_bytes(self.array()?))),
            0xcf => Token::Uint(u64::from_be_bytes(self.array()?)),
            0xd0 => signed(i64::from(self.byte()?.cast_signed())),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => signed(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(1 << (marker - 0xd9))?;
                Token::Str(self.take(length)?)
            }
            0xdc => Token::Array(u32::from(u16::from_be_bytes(self.array()?))),
            0xdd => Token::Array(u32::from_be_bytes(self.array()?)),
            0xde => Token::Map(u32::from(u16::from_be_bytes(self.array()?))),
            0xdf => Token::Map(u32::from_be_bytes(self.array()?)),
            _ => return Err(Flaw::Reserved),
        })
    }

    fn ext(&mut self, length: usize) -> Result<Token<'a>, Flaw> {
        let kind = self.byte()?.cast_signed();
        Ok(Token::Ext(kind, self.take(length)?))
    }

    /// Passes over a value that was walked before.
    pub fn pass(&mut self) -> Result<(), Flaw> {
        let mut values: u64 = 1;
        while values > 0 {
            values -= 1;
            match self.token()? {
                Token::Array(count) => values += u64::from(count),
                Token::Map(count) => values += 2 * u64::from(count),
                _ => {}
            }
        }
        Ok(())
    }
}

fn signed(value: i64) -> Token<'static> {
    match u64::try_from(value) {
        Ok(value) => Token::Uint(value),
        Err(_) => Token::Int(value),
    }
}

/// A key of a map that is being walked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    at: u32,
    /// Of plain text; anything else is told by `ODD`, and `at` is where it begins.
    len: u32,
}

const ODD: u32 = u32::MAX;

/// In one loop without a way out of it: keys are short.
#[inline]
fn is_ascii(text: &[u8]) -> bool {
    text.iter().fold(0, |all, byte| all | byte) < 0x80
}

impl Key {
    /// The key that was just read, which began at `from`.
    #[inline]
    pub fn read(reader: &Reader<'_>, from: usize, token: Token<'_>) -> Self {
        // A frame is far shorter than 4 GiB.
        match token {
            Token::Str(text) if is_ascii(text) || std::str::from_utf8(text).is_ok() => Self {
                at: (reader.at - text.len()) as u32,
                len: text.len() as u32,
            },
            _ => Self {
                at: from as u32,
                len: ODD,
            },
        }
    }

    /// One bit out of 64. Keys that share none are not the same; anything odd may be any other.
    #[inline]
    fn bit(self, token: Token<'_>) -> u64 {
        match token {
            Token::Str([]) => 1,
            Token::Str(text) if self.len != ODD => {
                let last = text[text.len() - 1];
                1 << ((u32::from(text[0]) + 2 * u32::from(last) + self.len) % 64)
            }
            _ => u64::MAX,
        }
    }

    fn plain(self, bytes: &[u8]) -> &[u8] {
        let at = self.at as usize;
        bytes.get(at..at + self.len as usize).unwrap_or_default()
    }

    /// The text that JSON has for it.
    fn text(self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.len == ODD {
            json::write_key_text(&mut Reader::new(bytes, self.at as usize), out);
        } else {
            out.extend_from_slice(self.plain(bytes));
        }
    }
}

/// The keys of the maps we are inside of, innermost last. Kept from frame to frame, so that a
/// walk allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many there are: where the keys of the next map begin.
    pub fn mark(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub fn push(&mut self, key: Key) -> Result<(), Flaw> {
        if self.0.len() == KEYS_MAX {
            return Err(Flaw::ManyKeys);
        }
        self.0.push(key);
        Ok(())
    }

    /// A map ends, whose keys are those from `mark` on: none may be there twice, if that is not
    /// sure already.
    #[inline]
    pub fn close(&mut self, mark: usize, unsure: bool, bytes: &[u8]) -> Result<(), Flaw> {
        if unsure {
            apart(&mut self.0[mark..], bytes)?;
        }
        self.0.truncate(mark);
        Ok(())
    }
}

fn apart(keys: &mut [Key], bytes: &[u8]) -> Result<(), Flaw> {
    if keys.iter().any(|key| key.len == ODD) {
        return apart_as_texts(keys, bytes);
    }
    if keys.len() <= FEW {
        for (at, key) in keys.iter().enumerate() {
            for other in &keys[..at] {
                if other.len == key.len && other.plain(bytes) == key.plain(bytes) {
                    return Err(Flaw::Twice(*other));
                }
            }
        }
        return Ok(());
    }
    keys.sort_unstable_by(|a, b| a.plain(bytes).cmp(b.plain(bytes)));
    let same = |pair: &&[Key]| pair[0].plain(bytes) == pair[1].plain(bytes);
    match keys.windows(2).find(same) {
        Some(pair) => Err(Flaw::Twice(pair[0])),
        None => Ok(()),
    }
}

/// Keys that are not all text: `1` and `"1"` are one key in JSON.
#[cold]
fn apart_as_texts(keys: &[Key], bytes: &[u8]) -> Result<(), Flaw> {
    let mut texts = Vec::new();
    let mut places: Vec<(usize, usize, Key)> = Vec::new();
    for key in keys {
        let from = texts.len();
        key.text(bytes, &mut texts);
        places.push((from, texts.len(), *key));
    }
    let text = |place: &(usize, usize, Key)| &texts[place.0..place.1];
    places.sort_unstable_by(|a, b| text(a).cmp(text(b)));
    match places.windows(2).find(|two| text(&two[0]) == text(&two[1])) {
        Some(two) => Err(Flaw::Twice(two[0].2)),
        None => Ok(()),
    }
}

/// How many bytes follow the first one of a value that is as long as that byte says.
const FOLLOWING: [u8; 256] = following();
/// For all other values.
const NOT_FIXED: u8 = u8::MAX;

const fn following() -> [u8; 256] {
    let mut table = [0; 256];
    let mut marker = 0;
    while marker < 256 {
        table[marker] = match marker {
            0x80..=0x9f | 0xc1 | 0xc4..=0xc9 | 0xd4..=0xdf => NOT_FIXED,
            // What is in the marker's last five bits, which fits.
            0xa0..=0xbf => (marker & 0x1f) as u8,
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xca | 0xce | 0xd2 => 4,
            0xcb | 0xcf | 0xd3 => 8,
            _ => 0,
        };
        marker += 1;
    }
    table
}

/// Walks one value to its end. `depth` more levels may be inside it.
#[inline(always)]
pub(super) fn walk(reader: &mut Reader<'_>, keys: &mut Keys, depth: usize) -> Result<(), Flaw> {
    let marker = *reader.bytes.get(reader.at).ok_or(Flaw::Short)?;
    let following = FOLLOWING[usize::from(marker)];
    if following == NOT_FIXED {
        return walk_wide(reader, keys, depth);
    }
    reader.at += 1 + usize::from(following);
    if reader.at > reader.bytes.len() {
        return Err(Flaw::Short);
    }
    Ok(())
}

/// Apart from the above, so that most values need no call.
#[inline(never)]
fn walk_wide(reader: &mut Reader<'_>, keys: &mut Keys, depth: usize) -> Result<(), Flaw> {
    match reader.token()? {
        Token::Array(count) => {
            let depth = depth.checked_sub(1).ok_or(Flaw::Deep)?;
            (0..count).try_for_each(|_| walk(reader, keys, depth))
        }
        Token::Map(count) => walk_map(reader, count, keys, depth),
        // JSON has an object for it.
        Token::Ext(..) if depth == 0 => Err(Flaw::Deep),
        _ => Ok(()),
    }
}

fn walk_map(
    reader: &mut Reader<'_>,
    count: u32,
    keys: &mut Keys,
    depth: usize,
) -> Result<(), Flaw> {
    let depth = depth.checked_sub(1).ok_or(Flaw::Deep)?;
    let mark = keys.mark();
    let (mut seen, mut unsure) = (0, false);
    for _ in 0..count {
        let from = reader.at;
        let token = read_key(reader)?;
        let key = Key::read(reader, from, token);
        let bit = key.bit(token);
        unsure |= seen & bit != 0;
        seen |= bit;
        keys.push(key)?;
        walk(reader, keys, depth)?;
    }
    keys.close(mark, unsure, reader.bytes)
}

/// Reads a key. Lists and maps are none: their text in JSON, a text in a text for each level,
/// would grow without bound.
#[inline]
pub(super) fn read_key<'a>(reader: &mut Reader<'a>) -> Result<Token<'a>, Flaw> {
    if let Some(text) = reader.short_text() {
        return Ok(Token::Str(text));
    }
    match reader.token()? {
        Token::Array(_) | Token::Map(_) => Err(Flaw::Key),
        token => Ok(token),
    }
}
