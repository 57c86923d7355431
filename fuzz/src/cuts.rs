//! Inputs that say themselves where they are cut: the first bytes are the places, the rest is fed.

/// Splits an input at its own `N` places and returns the whole and the `N + 1` parts in order.
pub fn cut<const N: usize>(input: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (places, whole) = input.split_first_chunk::<N>()?;
    let mut places = places.map(|place| usize::from(place) % (whole.len() + 1));
    places.sort_unstable();
    let mut parts = Vec::with_capacity(N + 1);
    let mut from = 0;
    for to in places {
        parts.push(&whole[from..to]);
        from = to;
    }
    parts.push(&whole[from..]);
    Some((whole, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        let (whole, parts) = cut::<2>(b"\x03\x01abcd").unwrap();
        assert_eq!(whole, b"abcd");
        assert_eq!(parts, [b"a".as_slice(), b"bc", b"d"]);
        assert_eq!(parts.concat(), whole);
        assert!(cut::<2>(b"\x03").is_none());
    }
}
