//! Numbers as they are displayed: four significant digits.

/// A number with four significant digits; `-` if it is not finite.
///
/// ```
/// use mile::digits::number;
/// assert_eq!([0.1, 1e-5, 12345.6, 20.0].map(number), ["0.1000", "1.000e-5", "12346", "20"]);
/// ```
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "-".into(),
        0.0 => "0".into(),
        _ if value.fract() == 0.0 && size < 1e9 => format!("{value:.0}"),
        1e-3..1e5 => {
            let digits = (3 - size.log10().floor() as i32).max(0) as usize;
            format!("{value:.digits$}")
        }
        _ => format!("{value:.3e}"),
    }
}

/// The largest number with four significant digits that does not exceed a positive one: an upper limit that is safe to use as
/// displayed.
///
/// ```
/// use mile::digits::round_down;
/// assert_eq!([0.123_48, 1.999_99e-5, 7.0].map(round_down), [0.1234, 1.999e-5, 7.0]);
/// ```
pub fn round_down(limit: f64) -> f64 {
    if !(limit.is_finite() && limit > 0.0) {
        return limit;
    }
    // By decimal digits, since multiplying by a power of ten is not exact.
    let nearest: f64 = format!("{limit:.3e}").parse().unwrap_or(limit);
    if nearest <= limit {
        return nearest;
    }
    let unit = 10f64.powi(limit.log10().floor() as i32 - 3);
    format!("{:.3e}", nearest - unit).parse().unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_shown_larger_than_it_is() {
        for k in 1..5000 {
            let limit = 1e-7 * 1.0137f64.powi(k % 2000) * f64::from(k);
            let shown: f64 = number(round_down(limit)).parse().unwrap();
            assert!(shown <= limit && shown > 0.998 * limit, "{limit} {shown}");
        }
        assert_eq!((round_down(0.0), round_down(f64::INFINITY)), (0.0, f64::INFINITY));
    }
}
