//! Multiples of a power of two that every [`BLOCK`] elements share.

use half::f16;

use crate::real::{Precision, Real};

/// Elements that share a power of two.
pub const BLOCK: usize = 256;
/// The exponent of a block that is not finite.
const NOT_FINITE: i16 = i16::MAX;

/// Which multiples there are.
#[derive(Clone, Copy)]
pub(super) enum Multiples {
    /// Whole ones, of eight bits.
    Whole,
    /// Floats of sixteen bits. Without the power of two, small elements would be lost and large ones overflow.
    Fp16,
}

impl Multiples {
    /// The largest one.
    fn most(self) -> f64 {
        match self {
            Self::Whole => 127.0,
            Self::Fp16 => 65_504.0,
        }
    }

    /// Its exponent: the largest is just below 2^(exponent + 1).
    fn exponent_of_most(self) -> i16 {
        match self {
            Self::Whole => 6,
            Self::Fp16 => 15,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Whole => size_of::<i8>(),
            Self::Fp16 => size_of::<f16>(),
        }
    }

    /// Bytes of `dim` elements, without padding.
    pub(super) fn message_bytes(self, dim: usize) -> usize {
        dim * self.bytes() + dim.div_ceil(BLOCK) * size_of::<i16>()
    }

    /// The exponents that powers of two may have: they and their reciprocals are normal numbers, and the largest multiple is finite.
    fn exponents<T: Real>(self) -> std::ops::RangeInclusive<i16> {
        match T::PRECISION {
            Precision::F32 => -126..=127 - self.exponent_of_most(),
            Precision::F64 => -1022..=1023 - self.exponent_of_most(),
        }
    }

    /// The smallest exponent e with which all `|u|` are at most the largest multiple of 2^e; none if an element is not finite or about to be.
    pub(super) fn exponent<T: Real>(self, block: &[T]) -> Option<i16> {
        // NaN stays.
        let larger = |most: T, u: &T| if u.abs() > most || u.is_nan() { u.abs() } else { most };
        let largest = block.iter().fold(T::zero(), larger).wide();
        if !largest.is_finite() {
            return None;
        }
        let (most, allowed) = (self.most(), self.exponents::<T>());
        if largest <= most * two_to(*allowed.start()) {
            return Some(*allowed.start());
        }
        // largest = f * 2^e with f in [1, 2), and `most` is nearly 2 * 2^exponent_of_most.
        let exponent = (largest.to_bits() >> 52) as i16 - 1023 - self.exponent_of_most();
        let exponent = if largest <= most * two_to(exponent) { exponent } else { exponent + 1 };
        (exponent <= *allowed.end()).then_some(exponent)
    }

    /// Rounds the elements of each block to the nearest multiples, ties to even.
    pub(super) fn round<T: Real>(self, u: &mut [T]) {
        for block in u.chunks_mut(BLOCK) {
            let Some(exponent) = self.exponent(block) else {
                block.fill(T::nan());
                continue;
            };
            let (up, down) = (power::<T>(-exponent), power::<T>(exponent));
            match self {
                Self::Whole => round_whole(block, up, down),
                Self::Fp16 => block.iter_mut().for_each(|u| *u = T::of(f64::from(to_fp16(*u * up))) * down),
            }
        }
    }

    /// Appends the exponents and the multiples of all blocks.
    pub(super) fn encode<T: Real>(self, q: &[T], message: &mut Vec<u8>) {
        for block in q.chunks(BLOCK) {
            let exponent = self.exponent(block);
            message.extend_from_slice(&exponent.unwrap_or(NOT_FINITE).to_le_bytes());
            let Some(exponent) = exponent else {
                message.resize(message.len() + block.len() * self.bytes(), 0);
                continue;
            };
            let up = power::<T>(-exponent);
            match self {
                Self::Whole => message.extend(block.iter().map(|q| (*q * up).wide() as i8 as u8)),
                Self::Fp16 => message.extend(block.iter().flat_map(|q| to_fp16(*q * up).to_le_bytes())),
            }
        }
    }

    /// Reads exponents and multiples.
    pub(super) fn decode<T: Real>(self, message: &[u8], q: &mut [T]) -> Result<(), &'static str> {
        let blocks = message.chunks(BLOCK * self.bytes() + size_of::<i16>());
        for (block, message) in q.chunks_mut(BLOCK).zip(blocks) {
            let (exponent, multiples) = message.split_at(size_of::<i16>().min(message.len()));
            let exponent = exponent.try_into().map_or(NOT_FINITE, i16::from_le_bytes);
            let down = match exponent {
                NOT_FINITE => T::nan(),
                e if self.exponents::<T>().contains(&e) => power::<T>(e),
                _ => return Err("has an exponent out of range"),
            };
            match self {
                Self::Whole => {
                    let sent = multiples.iter().map(|multiple| f64::from(*multiple as i8));
                    block.iter_mut().zip(sent).for_each(|(q, sent)| *q = T::of(sent) * down);
                }
                Self::Fp16 => {
                    let sent = multiples.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes));
                    block.iter_mut().zip(sent).for_each(|(q, sent)| *q = T::of(f64::from(sent)) * down);
                }
            }
        }
        Ok(())
    }
}

fn round_whole<T: Real>(block: &mut [T], up: T, down: T) {
    // Numbers near it have no fractional digits, so adding it rounds.
    let whole = T::of(match T::PRECISION {
        Precision::F32 => 1.5 * two_to(23),
        Precision::F64 => 1.5 * two_to(52),
    });
    block.iter_mut().for_each(|u| *u = ((*u * up + whole) - whole) * down);
}

/// Through single precision, since CPUs have no instruction for double: the same bits with and without one.
fn to_fp16<T: Real>(u: T) -> f16 {
    f16::from_f32(u.wide() as f32)
}

/// 2^exponent, a normal number.
fn power<T: Real>(exponent: i16) -> T {
    T::of(two_to(exponent))
}

pub(super) fn two_to(exponent: i16) -> f64 {
    f64::from_bits(((i64::from(exponent) + 1023) as u64) << 52)
}
