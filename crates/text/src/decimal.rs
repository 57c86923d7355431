//! Decimal numbers.

/// Appends `number` in decimal.
pub fn write_decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_the_standard_library_s() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        let numbers = powers.flat_map(|power| [power - 1, power, power + 1]);
        for number in numbers.chain([u64::MAX - 1, u64::MAX]) {
            let mut out = b"before".to_vec();
            write_decimal(number, &mut out);
            assert_eq!(out, format!("before{number}").into_bytes());
        }
    }
}
