//! JSON strings. Outputs are JSON in JSON, with a quote every few bytes, or long texts without
//! any; names and words are short and plain. Each of the three has its own way through here.

/// Texts of at most this many bytes are checked for escapes as a whole before they are copied.
const PLAIN_BYTES_MAX: usize = 512;

/// Longer texts are checked in pieces, each as a whole if the one before had no escapes.
const PIECE_BYTES: usize = 256;

/// Whether a JSON string has these bytes as they are: there is no quote, backslash or control
/// byte among them.
#[must_use]
#[inline]
pub fn is_json_plain(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let special = words.iter().fold(0, |all, word| all | special_in(*word));
    special == 0 && rest.iter().all(|byte| is_plain_byte(*byte))
}

/// The number of bytes of a word before the first that a JSON string does not have as it is; 8
/// where there is none.
#[must_use]
#[inline]
pub fn json_plain_in_word(word: [u8; 8]) -> usize {
    special_in(word).trailing_zeros() as usize / 8
}

/// The number of bytes before the first that a JSON string does not have as it is.
#[must_use]
pub fn json_plain_prefix(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let plain = json_plain_in_word(*word);
        if plain < 8 {
            return index * 8 + plain;
        }
    }
    words.len() * 8 + rest.iter().take_while(|byte| is_plain_byte(**byte)).count()
}

/// Appends `text` as a JSON string: the form of RFC 8785, which is also `serde_json`'s.
#[inline]
pub fn write_json_text(text: &str, out: &mut Vec<u8>) {
    write_text(text, &ESCAPES, out);
}

/// Appends `text` as a JSON string of an event of a streamed run, in which backspace and form
/// feed are `\u0008` and `\u000c`.
pub fn write_stream_json_text(text: &str, out: &mut Vec<u8>) {
    write_text(text, &STREAM_ESCAPES, out);
}

/// The number of bytes that [`write_json_text`] appends.
#[must_use]
pub fn json_text_len(text: &str) -> usize {
    let escapes = text.bytes().map(|byte| match ESCAPES[usize::from(byte)] {
        0 => 0,
        b'u' => 5,
        _ => 1,
    });
    text.len() + escapes.sum::<usize>() + 2
}

/// The letter that follows the backslash of each byte's escape; 0 of a plain byte.
type Escapes = [u8; 256];

static ESCAPES: Escapes = {
    let mut table = STREAM_ESCAPES;
    table[0x08] = b'b';
    table[0x0C] = b'f';
    table
};

const STREAM_ESCAPES: Escapes = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

#[inline]
fn write_text(text: &str, escapes: &Escapes, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    if bytes.len() <= PLAIN_BYTES_MAX && is_json_plain(bytes) {
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
    } else {
        write_escaped(bytes, escapes, out);
    }
}

fn write_escaped(bytes: &[u8], escapes: &Escapes, out: &mut Vec<u8>) {
    out.reserve(bytes.len() + bytes.len() / 8 + 2);
    out.push(b'"');
    let (pieces, last) = bytes.as_chunks::<PIECE_BYTES>();
    let (mut written, mut is_calm) = (0, false);
    for (index, piece) in pieces.iter().enumerate() {
        if is_calm && is_json_plain(piece) {
            continue;
        }
        let before = written;
        written = write_piece(bytes, (index * PIECE_BYTES, piece), written, escapes, out);
        is_calm = written == before;
    }
    let from = pieces.len() * PIECE_BYTES;
    written = write_piece(bytes, (from, last), written, escapes, out);
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Appends what precedes the last escape of `piece`, which begins at `from` in `bytes`, and that
/// escape. Returns up to where `bytes` is written then: `written`, as before, without an escape.
fn write_piece(
    bytes: &[u8],
    (from, piece): (usize, &[u8]),
    mut written: usize,
    escapes: &Escapes,
    out: &mut Vec<u8>,
) -> usize {
    let (words, rest) = piece.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let special = special_in(*word);
        if special == 0 {
            continue;
        }
        let at = from + index * 8;
        if special.is_power_of_two() {
            let at = at + special.trailing_zeros() as usize / 8;
            out.extend_from_slice(&bytes[written..at]);
            write_escape(bytes[at], escapes, out);
            written = at + 1;
        } else {
            if written < at {
                out.extend_from_slice(&bytes[written..at]);
            }
            write_word(*word, escapes, out);
            written = at + 8;
        }
    }
    let from = from + words.len() * 8;
    for (index, byte) in rest.iter().enumerate() {
        if !is_plain_byte(*byte) {
            out.extend_from_slice(&bytes[written..from + index]);
            write_escape(*byte, escapes, out);
            written = from + index + 1;
        }
    }
    written
}

/// Appends a word with several escapes: copying what is between them one by one costs more.
fn write_word(word: [u8; 8], escapes: &Escapes, out: &mut Vec<u8>) {
    // Eight bytes of six each at most; the mask shows the compiler that all indices are inside.
    const MASK: usize = 63;
    let (mut text, mut len) = ([0; MASK + 1], 0);
    for byte in word {
        let letter = escapes[usize::from(byte)];
        if letter == 0 {
            text[len & MASK] = byte;
            len += 1;
            continue;
        }
        text[len & MASK] = b'\\';
        text[(len + 1) & MASK] = letter;
        len += 2;
        if letter == b'u' {
            for digit in code_point(byte) {
                text[len & MASK] = digit;
                len += 1;
            }
        }
    }
    out.extend_from_slice(&text[..len]);
}

fn write_escape(byte: u8, escapes: &Escapes, out: &mut Vec<u8>) {
    let letter = escapes[usize::from(byte)];
    out.extend_from_slice(&[b'\\', letter]);
    if letter == b'u' {
        out.extend_from_slice(&code_point(byte));
    }
}

/// The four digits of a control byte.
fn code_point(byte: u8) -> [u8; 4] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| HEX[usize::from(nibble & 15)];
    [b'0', b'0', digit(byte >> 4), digit(byte)]
}

const fn is_plain_byte(byte: u8) -> bool {
    (byte >= 0x20) & (byte != b'"') & (byte != b'\\')
}

/// The high bit of each byte that is not plain.
fn special_in(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const LOW: u64 = ONES * 0x7F;
    let word = u64::from_le_bytes(word);
    // No sum exceeds its byte: the high bits are masked out of both operands.
    let control = !(((word & LOW) + ONES * (0x80 - 0x20)) | word);
    let is = |byte: u8| {
        let other = word ^ (ONES * u64::from(byte));
        !(((other & LOW) + LOW) | other)
    };
    (control | is(b'"') | is(b'\\')) & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_text(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        write_json_text(text, &mut out);
        out
    }

    /// G-1: every ASCII byte at every place of a word and around the edges of pieces, as
    /// `serde_json` escapes it.
    #[test]
    fn texts_are_json() {
        for byte in 0..128_u8 {
            for before in (0..80).chain([127, 128, 250, 255, 256, 258, 509, 600]) {
                for after in ["", "\n", "é\n", "\"\\\n\t\u{8}\u{c}\u{1b}"] {
                    let text = format!("{}{}{after}", "é".repeat(before), char::from(byte));
                    assert_eq!(json_text(&text), serde_json::to_vec(&text).unwrap());
                    assert_eq!(json_text_len(&text), json_text(&text).len());
                }
            }
        }
    }

    /// Each byte at each place of a text, alone among plain ones.
    #[test]
    fn every_byte_at_every_place() {
        for byte in 0..0x80_u8 {
            for length in 1..20 {
                for at in 0..length {
                    let mut text = "~\u{7f}".repeat(length).into_bytes();
                    text.truncate(length);
                    text[at] = byte;
                    let text = String::from_utf8(text).unwrap();
                    assert_eq!(json_text(&text), serde_json::to_vec(&text).unwrap());
                    let mut stream = Vec::new();
                    write_stream_json_text(&text, &mut stream);
                    let read: String = serde_json::from_slice(&stream).unwrap();
                    assert_eq!(read, text);
                }
            }
        }
    }

    /// Texts of every density of escapes and many lengths are what `serde_json` writes.
    #[test]
    fn texts_of_every_density() {
        for period in 1..40 {
            for length in (0..600).step_by(7).chain([2048, 5000]) {
                let text: String = (0..length)
                    .map(|at| if at % period == 0 { '"' } else { 'x' })
                    .chain("y".repeat(length).chars())
                    .chain(['\\'])
                    .collect();
                assert_eq!(json_text(&text), serde_json::to_vec(&text).unwrap());
                assert_eq!(json_text_len(&text), json_text(&text).len());
            }
        }
    }

    #[test]
    fn streams_have_two_long_escapes() {
        let text = "\u{8}\u{c}\n\r\t\"\\\u{0}\u{1f}/é";
        let mut out = Vec::new();
        write_stream_json_text(text, &mut out);
        let wanted = br#""\u0008\u000c\n\r\t\"\\\u0000\u001f/"#;
        assert_eq!(out, [&wanted[..], "é\"".as_bytes()].concat());
    }

    #[test]
    fn plain_bytes() {
        for byte in 0..=u8::MAX {
            let plain = byte >= 0x20 && byte != b'"' && byte != b'\\';
            for length in 1..20 {
                for at in 0..length {
                    let mut bytes = vec![b' '; length];
                    bytes[at] = byte;
                    assert_eq!(is_json_plain(&bytes), plain, "{byte} at {at} of {length}");
                    let prefix = if plain { length } else { at };
                    assert_eq!(json_plain_prefix(&bytes), prefix);
                    if let Some(word) = bytes.first_chunk() {
                        assert_eq!(json_plain_in_word(*word), prefix.min(8));
                    }
                }
            }
        }
        assert!(is_json_plain(b"") && is_json_plain("é\u{7f}\u{80}".as_bytes()));
        assert_eq!(json_plain_prefix(b""), 0);
    }

    #[test]
    fn text_len_is_exact() {
        let all: String = (0u8..=0x7F).map(char::from).chain("é€😀".chars()).collect();
        let mut out = Vec::new();
        write_json_text(&all, &mut out);
        assert_eq!(json_text_len(&all), out.len());
        for text in [
            &all,
            "",
            "plain",
            "\"",
            "\\",
            "{\"a\":\"\\n\"}",
            "é\"€",
            "a\nb\"c",
            "\u{7f}",
            &"\"é\\".repeat(100),
            &format!("{}\n", "\"".repeat(100)),
        ] {
            check_written(text);
        }
    }

    /// Every character of one byte at every place of a word, and behind the last whole one.
    #[test]
    fn texts_are_written_as_by_the_library() {
        for length in 0..=17 {
            for (at, byte) in (0..length).flat_map(|at| (0..=0x7F).map(move |byte| (at, byte))) {
                let mut text = vec![b'x'; length];
                text[at] = byte;
                check_written(std::str::from_utf8(&text).unwrap());
                text[0] = b'"';
                check_written(std::str::from_utf8(&text).unwrap());
            }
        }
    }

    fn check_written(text: &str) {
        let mut out = b"before".to_vec();
        write_json_text(text, &mut out);
        assert_eq!(out[6..], serde_json::to_vec(text).unwrap(), "{text:?}");
    }
}
