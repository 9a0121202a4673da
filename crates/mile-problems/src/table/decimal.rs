//! Decimal numbers in text, most of which are short.

/// The powers of ten that a double has without rounding, as far as they are needed.
const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
/// Whole numbers with at most this many digits are doubles without rounding.
const MOST_DIGITS: usize = 15;

/// The number that a text stands for, to the bit as `str::parse` finds it, but sooner if it has few digits and no exponent.
#[inline]
pub(super) fn parse(text: &str) -> Option<f64> {
    short(text.as_bytes()).or_else(|| text.parse().ok())
}

/// A number of at most fifteen digits: their whole number divided by a power of ten. Both are exact, so the quotient is the double
/// nearest to the number.
#[inline]
fn short(text: &[u8]) -> Option<f64> {
    let is_negative = text.first() == Some(&b'-');
    let rest = &text[usize::from(is_negative)..];
    let (mut whole, mut digits, mut decimals) = (0u64, 0, 0);
    let mut bytes = rest.iter();
    for byte in bytes.by_ref().take(MOST_DIGITS + 1) {
        match byte.wrapping_sub(b'0') {
            digit @ 0..=9 => whole = 10 * whole + u64::from(digit),
            _ if *byte == b'.' => break,
            _ => return None,
        }
        digits += 1;
    }
    if digits < rest.len() {
        for byte in bytes.take(MOST_DIGITS + 1) {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            whole = whole.wrapping_mul(10).wrapping_add(u64::from(digit));
            decimals += 1;
        }
        // The point, which more than fifteen digits have in vain.
        if digits + 1 + decimals != rest.len() {
            return None;
        }
    }
    if digits + decimals == 0 || digits + decimals > MOST_DIGITS {
        return None;
    }
    // The sign is that of the text, also of zero.
    let sign = u64::from(is_negative) << 63;
    Some(f64::from_bits((whole as f64 / POWERS[decimals]).to_bits() | sign))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agrees(text: &str) -> Result<(), TestCaseError> {
        let (fast, slow) = (parse(text), text.parse::<f64>().ok());
        prop_assert_eq!(fast.map(f64::to_bits), slow.map(f64::to_bits), "{}", text);
        if let Some(short) = short(text.as_bytes()) {
            prop_assert_eq!(Some(short.to_bits()), slow.map(f64::to_bits), "{}", text);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn numbers_have_the_bits_that_the_standard_library_finds(
            number in "[-+]?[0-9]{0,18}([.][0-9]{0,18})?(e-?[0-9]{1,3})?",
            text in "[-+.0-9e ]{0,20}",
            value in any::<f64>(),
        ) {
            agrees(&number)?;
            agrees(&text)?;
            agrees(&value.to_string())?;
            agrees(&format!("{:.6}", value % 1e6))?;
        }
    }

    #[test]
    fn short_numbers_are_found_without_the_standard_library_and_others_with_it() {
        let all = ["0", "-0", "1.5", "-0.123456", ".5", "5.", "999999999999999", "0.00000000000001"];
        assert!(all.into_iter().all(|text| short(text.as_bytes()).is_some()));
        let none = ["", "-", ".", "-.", "+1", "1e5", "inf", "NaN", "1 ", "--1", "1.2.3", "1234567890123456"];
        assert!(none.into_iter().all(|text| short(text.as_bytes()).is_none()));
        assert_eq!(short(b"0.0000000000000001"), None, "seventeen digits");
        for text in all.into_iter().chain(none).chain(["1234567890123456.", "0.1234567890123456789"]) {
            agrees(text).unwrap();
        }
    }
}
