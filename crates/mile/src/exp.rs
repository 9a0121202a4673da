//! `exp` and `log(1 + exp)` in plain arithmetic: the compiler turns a loop over many numbers into vector
//! instructions, which it cannot do with the system's functions, and the bits are equal on every CPU and system.

/// Numbers that have an `exp` in plain arithmetic.
pub trait Exp: Sized {
    /// `e^x` with an error of at most two units in the last place. Beyond 700 (`f64`) or 87 (`f32`) in modulus the
    /// argument is clamped, so that the result is neither infinity nor zero; NaN stays NaN.
    fn exp_in_plain_arithmetic(self) -> Self;

    /// The largest argument that is not clamped.
    const LARGEST: Self;
}

/// `x = k ln 2 + r` with |r| <= ln(2)/2: the Taylor series of `e^r`, times `2^k`. Adding a large number rounds
/// `x/ln 2` to the integer k and leaves k, with the bias of exponents, in the last bits.
macro_rules! exp {
    ($t:ty, largest $largest:literal, round $round:expr, exponent $shift:literal, ln2 $high:literal + $low:literal,
     series $first:literal $($coefficient:literal)*) => {
        impl Exp for $t {
            const LARGEST: Self = $largest;

            #[inline(always)]
            fn exp_in_plain_arithmetic(self) -> Self {
                // Comparisons that are false for NaN, not `min` and `max`, which would drop it.
                let x = if self > $largest { $largest } else { self };
                let x = if x < -$largest { -$largest } else { x };
                let rounded = x * (1.0 / std::f64::consts::LN_2) as $t + $round;
                let k = rounded - $round;
                let r = (x - k * $high) - k * $low;
                let mut sum: $t = 1.0 / $first;
                $(sum = sum * r + 1.0 / $coefficient;)*
                sum * <$t>::from_bits(rounded.to_bits() << $shift)
            }
        }
    };
}

// 1.5 * 2^52 + 1023, and ln 2 in two parts, the first of which times any exponent is exact.
exp!(f64, largest 700.0, round 6_755_399_441_056_767.0, exponent 52, ln2 0.693_147_180_369_123_8 + 1.908_214_929_270_587_7e-10,
     series 6_227_020_800.0 479_001_600.0 39_916_800.0 3_628_800.0 362_880.0 40_320.0 5_040.0 720.0 120.0 24.0 6.0 2.0 1.0 1.0);
// 1.5 * 2^23 + 127.
exp!(f32, largest 87.0, round 12_583_039.0, exponent 23, ln2 0.693_359_4 + -0.000_212_194_44,
     series 5_040.0 720.0 120.0 24.0 6.0 2.0 1.0 1.0);

/// `1/(1 + e^z)`, the logistic function of -z.
#[inline(always)]
pub(crate) fn one_over_one_plus_exp<T: Exp + num_traits::Float>(z: T) -> T {
    T::one() / (T::one() + z.exp_in_plain_arithmetic())
}

/// `log(1 + e^z)` without overflow: `max(z, 0) + log(1 + e^-|z|)`, the logarithm by
/// `log(1 + u) = 2 artanh(u/(2 + u))`, whose series converges for u in [0, 1] like powers of 1/9.
#[inline(always)]
pub(crate) fn log_one_plus_exp(z: f64) -> f64 {
    let u = (-z.abs()).exp_in_plain_arithmetic();
    let s = u / (2.0 + u);
    let square = s * s;
    let mut sum = 0.0;
    for k in (0..17).rev() {
        sum = sum * square + 1.0 / (2 * k + 1) as f64;
    }
    let positive = if z < 0.0 { 0.0 } else { z };
    positive + 2.0 * s * sum
}

/// `e^z`, infinity where [`Exp`] would clamp.
#[inline(always)]
pub(crate) fn exp_or_infinity<T: Exp + num_traits::Float>(z: T) -> T {
    if z > T::LARGEST { T::infinity() } else { z.exp_in_plain_arithmetic() }
}

/// `1 - e^-u` for u >= 0, with all digits even near 0, where it is a series.
#[inline(always)]
pub(crate) fn one_minus_exp_minus(u: f64) -> f64 {
    let mut sum = 0.0;
    for k in (1..17).rev() {
        sum = (1.0 - sum) * u / k as f64;
    }
    if u < 0.5 { sum } else { 1.0 - (-u).exp_in_plain_arithmetic() }
}

/// `log(1 + u)` for u >= 0, with all digits even near 0: `1 + u = 2^k (1 + v)` with 1 + v roughly between 1/sqrt(2) and
/// sqrt(2), and `log(1 + v) = 2 artanh(v/(2 + v))`, whose series converges like powers of 1/34.
#[inline(always)]
pub(crate) fn log_one_plus(u: f64) -> f64 {
    const EXPONENT_OF_ONE: u64 = 1023;
    // Numbers from sqrt(2) on get the next exponent.
    let exponent = ((1.0 + u) * std::f64::consts::FRAC_1_SQRT_2).to_bits() >> 52;
    let k = (exponent + 1).wrapping_sub(EXPONENT_OF_ONE);
    let power = f64::from_bits(EXPONENT_OF_ONE.wrapping_sub(k) << 52);
    // Exact for k = 0.
    let v = u * power - (1.0 - power);
    let s = v / (2.0 + v);
    let square = s * s;
    let mut sum = 0.0;
    for j in (0..12).rev() {
        sum = sum * square + 1.0 / (2 * j + 1) as f64;
    }
    k as f64 * std::f64::consts::LN_2 + 2.0 * s * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that errors over many arguments are below `most` units of the result's last place.
    fn is_accurate<T: crate::real::Real>(
        limit: f64,
        most: f64,
        exact: impl Fn(f64) -> f64,
        found: impl Fn(T) -> T,
    ) {
        for k in -40_000..=40_000 {
            let x = T::of(limit * k as f64 / 40_000.0);
            let exact = exact(x.wide());
            let error = (found(x).wide() - exact).abs() / (exact * T::epsilon().wide());
            assert!(error < most, "{error} units at {x}");
        }
    }

    #[test]
    fn errors_are_a_few_units_in_the_last_place() {
        for limit in [0.3, 1.0, 30.0, 700.0] {
            is_accurate(limit, 2.0, f64::exp, f64::exp_in_plain_arithmetic);
        }
        for limit in [0.3, 1.0, 30.0, 87.0] {
            is_accurate(limit, 2.0, f64::exp, f32::exp_in_plain_arithmetic);
        }
        let exact = |z: f64| z.max(0.0) + (-z.abs()).exp().ln_1p();
        for limit in [0.3, 1.0, 30.0, 600.0] {
            is_accurate(limit, 4.0, exact, log_one_plus_exp);
        }
    }

    #[test]
    fn differences_from_one_keep_their_digits() {
        for k in 0..=60_000 {
            // From 1e-15 to 1e5.
            let u = 10f64.powf(k as f64 / 3_000.0 - 15.0);
            for (found, exact) in [(one_minus_exp_minus(u), -(-u).exp_m1()), (log_one_plus(u), u.ln_1p())] {
                assert!((found - exact).abs() < 4.0 * f64::EPSILON * exact, "{found} {exact} at {u}");
            }
        }
        assert!(one_minus_exp_minus(0.0) == 0.0 && log_one_plus(0.0) == 0.0);
        assert_eq!(one_minus_exp_minus(f64::INFINITY), 1.0);
        assert!(one_minus_exp_minus(f64::NAN).is_nan() && log_one_plus(f64::NAN).is_nan());
    }

    #[test]
    fn what_is_too_large_is_infinite() {
        assert_eq!(exp_or_infinity(701.0), f64::INFINITY);
        assert_eq!(exp_or_infinity(88f32), f32::INFINITY);
        assert_eq!(exp_or_infinity(3.5), 3.5f64.exp_in_plain_arithmetic());
        assert!(exp_or_infinity(f64::NAN).is_nan());
    }

    #[test]
    fn far_out_arguments_do_not_overflow_and_nan_stays() {
        assert_eq!(log_one_plus_exp(1e4), 1e4);
        assert!(log_one_plus_exp(-1e4) < 1e-300);
        assert_eq!(log_one_plus_exp(f64::INFINITY), f64::INFINITY);
        assert!(
            one_over_one_plus_exp(f64::INFINITY) < 1e-300 && one_over_one_plus_exp(f64::NEG_INFINITY) == 1.0
        );
        assert!(
            one_over_one_plus_exp(f32::INFINITY) < 1e-37 && one_over_one_plus_exp(f32::NEG_INFINITY) == 1.0
        );
        assert!(
            log_one_plus_exp(f64::NAN).is_nan()
                && one_over_one_plus_exp(f64::NAN).is_nan()
                && one_over_one_plus_exp(f32::NAN).is_nan()
        );
        assert_eq!(0f64.exp_in_plain_arithmetic(), 1.0);
        assert_eq!(0f32.exp_in_plain_arithmetic(), 1.0);
    }
}
