//! Messages with fewer bytes: what an agent sends its neighbours is rounded to sixteen or eight bits per element, or cut to its largest
//! elements.
//!
//! A method that compresses what it sends keeps a *public copy* y of its model, sends `q = C(v - y)`, and adds q to y: what C leaves out is
//! part of the next difference (error feedback). The copy moves towards the model if
//! `|C(u) - u|^2 <= (1 - delta) |u|^2` with a delta in (0, 1], which all kinds satisfy for every u:
//!
//! | kind | C(u) | delta | bytes of a message of n elements |
//! |---|---|---|---|
//! | [`Bf16`](Compression::Bf16) | floats with the range of single precision and 8 significant bits | at least 1 - 2^-16 | 2 n |
//! | [`Fp16`](Compression::Fp16) | floats with 11 significant bits, times a power of two for every [`BLOCK`] elements | at least 1 - 2^-21 | 2 n + 2 for every block |
//! | [`EightBit`](Compression::EightBit) | multiples, from -127 to 127, of a power of two for every [`BLOCK`] elements | at least 0.98 | n + 2 for every block |
//! | [`TopK`](Compression::TopK) | the k largest elements, k a share of n | k/n | k elements and their places |
//!
//! The places are numbers of four bytes, or a bit for each of the n elements if that takes less. The power of two of a block is the
//! smallest that its largest element allows; it can therefore be recovered from C(u), and [`encode`](Compression::encode) loses nothing:
//! [`decode`](Compression::decode) returns the bits of C(u). An element that is not finite, with a power of two its whole block, becomes NaN,
//! so that the neighbours see a divergence as well. With `Bf16` elements below 2^-126 may become zero.

mod blocks;
mod largest;
#[cfg(test)]
mod tests;

use std::fmt;

use half::bf16;
use rayon::prelude::*;

use crate::block::CHUNK;
use crate::real::Real;

pub use blocks::BLOCK;
use blocks::Multiples;

/// How messages are compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Compression {
    /// Sixteen bits per element, of which eight are the exponent.
    Bf16,
    /// Sixteen bits per element, of which five are the exponent.
    Fp16,
    /// Eight bits per element.
    EightBit,
    /// This share, in (0, 1), of the elements: those with the largest absolute values, the first among equals.
    TopK(f64),
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bf16 => write!(f, "bf16"),
            Self::Fp16 => write!(f, "fp16"),
            Self::EightBit => write!(f, "8-bit"),
            Self::TopK(share) => write!(f, "top-k {share}"),
        }
    }
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a compressed message {0}")]
pub struct InvalidMessage(&'static str);

impl Compression {
    /// The mixing weight to use instead of 1, if a method needs a smaller one to converge with this compression: with
    /// few elements, what an agent knows of its neighbours is out of date.
    pub fn usual_gamma(self) -> Option<f64> {
        match self {
            Self::Bf16 | Self::Fp16 | Self::EightBit => None,
            Self::TopK(share) => Some(share),
        }
    }

    /// Vectors are sent whole every this many rounds, starting with the first: sums of compressed ones accumulate rounding errors. It adds
    /// about a twentieth to the bytes in single precision.
    pub fn whole_every(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 | Self::EightBit => 100,
            Self::TopK(share) => (10.0 / share).ceil().clamp(100.0, 1e6) as u64,
        }
    }

    /// How many elements are encoded by themselves: the message of a vector is that of its stretches, end to end, and so are the
    /// compressed vectors. None if the vector is encoded as a whole.
    pub fn stretch(self) -> Option<usize> {
        match self {
            // Four blocks have a whole number of elements of bytes, in either precision.
            Self::Bf16 | Self::Fp16 | Self::EightBit => Some(4 * BLOCK),
            Self::TopK(_) => None,
        }
    }

    /// How many elements of a vector are sent.
    fn kept(self, dim: usize) -> usize {
        match self {
            Self::Bf16 | Self::Fp16 | Self::EightBit => dim,
            Self::TopK(share) => ((share * dim as f64).ceil() as usize).clamp(dim.min(1), dim),
        }
    }

    /// Bytes of a message with a vector of `dim` elements: a whole number of elements of its precision.
    pub fn message_bytes<T: Real>(self, dim: usize) -> usize {
        let bytes = match self {
            Self::Bf16 => dim * size_of::<bf16>(),
            Self::Fp16 => Multiples::Fp16.message_bytes(dim),
            Self::EightBit => Multiples::Whole.message_bytes(dim),
            Self::TopK(_) => largest::place_bytes(self.kept(dim), dim) + self.kept(dim) * size_of::<T>(),
        };
        bytes.next_multiple_of(size_of::<T>())
    }

    /// `u <- C(u)`.
    pub fn compress<T: Real>(self, u: &mut [T]) {
        match self {
            Self::Bf16 => u.iter_mut().for_each(|u| *u = from_bf16(to_bf16(*u))),
            Self::Fp16 => Multiples::Fp16.round(u),
            Self::EightBit => Multiples::Whole.round(u),
            Self::TopK(_) => largest::keep(u, self.kept(u.len())),
        }
    }

    /// The same for each of several rows, on all threads if they are long.
    pub fn compress_rows<T: Real>(self, rows: &mut [T], dim: usize) {
        if rows.len() <= CHUNK {
            rows.chunks_exact_mut(dim.max(1)).for_each(|row| self.compress(row));
        } else {
            rows.par_chunks_exact_mut(dim).for_each(|row| self.compress(row));
        }
    }

    /// Appends the message that encodes a compressed vector.
    pub fn encode<T: Real>(self, q: &[T], message: &mut Vec<u8>) {
        let end = message.len() + self.message_bytes::<T>(q.len());
        match self {
            Self::Bf16 => message.extend(q.iter().flat_map(|q| to_bf16(*q).to_le_bytes())),
            Self::Fp16 => Multiples::Fp16.encode(q, message),
            Self::EightBit => Multiples::Whole.encode(q, message),
            Self::TopK(_) => largest::encode(q, self.kept(q.len()), message),
        }
        message.resize(end, 0);
    }

    /// Reads a message: `q` gets the compressed vector that it encodes.
    ///
    /// # Errors
    /// If it is not a message of such a vector. The contents of `q` are then unspecified.
    pub fn decode<T: Real>(self, message: &[u8], q: &mut [T]) -> Result<(), InvalidMessage> {
        if message.len() != self.message_bytes::<T>(q.len()) {
            return Err(InvalidMessage("has another length"));
        }
        let read = match self {
            Self::Bf16 => {
                let (sent, _) = message.as_chunks();
                q.iter_mut().zip(sent).for_each(|(q, bytes)| *q = from_bf16(bf16::from_le_bytes(*bytes)));
                Ok(())
            }
            Self::Fp16 => Multiples::Fp16.decode(message, q),
            Self::EightBit => Multiples::Whole.decode(message, q),
            Self::TopK(_) => largest::decode(message, self.kept(q.len()), q),
        };
        read.map_err(InvalidMessage)
    }
}

/// The nearest float of sixteen bits with the range of single precision.
fn to_bf16<T: Real>(u: T) -> bf16 {
    bf16::from_f32(u.wide() as f32)
}

/// What is beyond that range, or not a number, is one NaN on every machine.
fn from_bf16<T: Real>(sent: bf16) -> T {
    if sent.is_finite() { T::of(f64::from(sent)) } else { T::nan() }
}
