//! Integers that fit neither `u64` nor `i64`. The parser reads them as doubles without a word, so
//! they are looked for in the text. G-1.

/// Digits that any integer which does not fit has at least: 2^63 has as many.
const DIGITS_MIN: usize = 19;

/// Returns the first integer of valid JSON that fits neither `u64` nor `i64`, with its sign.
pub(super) fn wide_integer(json: &[u8]) -> Option<&[u8]> {
    if has_long_digits(json) {
        return first_wide(json);
    }
    None
}

/// Returns whether there are `DIGITS_MIN` digits in a row anywhere. Looks at every nineteenth byte
/// first, as one of those is in any such row: most texts are passed at a fraction of their length.
fn has_long_digits(json: &[u8]) -> bool {
    let mut at = DIGITS_MIN - 1;
    while let Some(byte) = json.get(at) {
        if byte.is_ascii_digit() {
            let digits = |bytes: &mut dyn Iterator<Item = &u8>| {
                bytes.take_while(|byte| byte.is_ascii_digit()).count()
            };
            let before = digits(&mut json[..at].iter().rev());
            let after = digits(&mut json[at..].iter());
            if before + after >= DIGITS_MIN {
                return true;
            }
            at += after;
        }
        at += DIGITS_MIN;
    }
    false
}

fn first_wide(json: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        let rest = &json[at..];
        let length = match byte {
            b'"' => text_bytes(rest),
            b'-' | b'0'..=b'9' => {
                let number = &rest[..number_bytes(rest)];
                if is_wide(number) {
                    return Some(number);
                }
                number.len()
            }
            _ => 1,
        };
        at += length;
    }
    None
}

/// The length of the string that begins here, with its quotes.
fn text_bytes(json: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match json.get(at) {
            None => return json.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

fn number_bytes(json: &[u8]) -> usize {
    let in_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    json.iter().take_while(in_number).count()
}

fn is_wide(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    if digits.len() < DIGITS_MIN || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let text = std::str::from_utf8(number).unwrap_or_default();
    match digits.len() == number.len() {
        true => text.parse::<u64>().is_err(),
        false => text.parse::<i64>().is_err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(json: &str) -> Option<&str> {
        wide_integer(json.as_bytes()).map(|digits| std::str::from_utf8(digits).unwrap())
    }

    /// G-1: at the edge, just below and just past it, wherever it stands.
    #[test]
    fn edges() {
        for fits in [
            "18446744073709551615",
            "-9223372036854775808",
            "0",
            "-0",
            "18446744073709551616.0",
            "18446744073709551616e0",
            "0.18446744073709551616",
            "1e18446744073709551616",
            "\"18446744073709551616\"",
            "\"\\\"18446744073709551616\"",
        ] {
            for before in 0..40 {
                let json = format!("{}[{fits},7]", " ".repeat(before));
                assert_eq!(wide(&json), None, "{json}");
            }
        }
        for more in [
            "18446744073709551616",
            "-9223372036854775809",
            "-18446744073709551615",
            "100000000000000000000",
        ] {
            for before in 0..40 {
                let space = " ".repeat(before);
                for json in [
                    format!("{space}{more}"),
                    format!("{space}{{\"a\\\\\":[1.5,{more}]}}"),
                    format!("{space}[{{\"18446744073709551616\":{more}}}, \"1\"]"),
                ] {
                    assert_eq!(wide(&json), Some(more), "{json}");
                }
            }
        }
    }
}
