//! Messages with fewer bytes: what an agent sends its neighbours is rounded to eight bits per element, or cut to its largest elements.
//!
//! A method that compresses what it sends keeps a *public copy* y of its model, sends `q = C(v - y)`, and adds q to y: what C leaves out is
//! part of the next difference (error feedback). The copy moves towards the model if
//! `|C(u) - u|^2 <= (1 - delta) |u|^2` with a delta in (0, 1], which both kinds satisfy for every u:
//!
//! | kind | C(u) | delta | bytes of a message of n elements |
//! |---|---|---|---|
//! | [`EightBit`](Compression::EightBit) | multiples, from -127 to 127, of a power of two for every [`BLOCK`] elements | at least 0.98 | n + 2 for every block |
//! | [`TopK`](Compression::TopK) | the k largest elements, k a share of n | k/n | k elements and their places |
//!
//! The places are numbers of four bytes, or a bit for each of the n elements if that takes less. The power of two of a block is the
//! smallest that its largest element allows; it can therefore be recovered from C(u), and [`encode`](Compression::encode) loses nothing:
//! [`decode`](Compression::decode) returns the bits of C(u). A block with an element that is not finite becomes a block of NaN,
//! so that the neighbours see a divergence as well.

use std::fmt;

use rayon::prelude::*;

use crate::block::CHUNK;
use crate::real::{Precision, Real};

/// Elements that share a power of two.
pub const BLOCK: usize = 256;
/// The largest multiple of the power of two.
const MOST: f64 = 127.0;
/// The exponent of a block that is not finite.
const NOT_FINITE: i16 = i16::MAX;

/// How messages are compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compression {
    /// Eight bits per element.
    EightBit,
    /// This share, in (0, 1), of the elements: those with the largest absolute values, the first among equals.
    TopK(f64),
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            Self::EightBit => None,
            Self::TopK(share) => Some(share),
        }
    }

    /// Vectors are sent whole every this many rounds, starting with the first: sums of compressed ones accumulate rounding errors. It adds
    /// about a twentieth to the bytes in single precision.
    pub fn whole_every(self) -> u64 {
        match self {
            Self::EightBit => 100,
            Self::TopK(share) => (10.0 / share).ceil().clamp(100.0, 1e6) as u64,
        }
    }

    /// How many elements of a vector are sent.
    fn kept(self, dim: usize) -> usize {
        match self {
            Self::EightBit => dim,
            Self::TopK(share) => ((share * dim as f64).ceil() as usize).clamp(dim.min(1), dim),
        }
    }

    /// Bytes of a message with a vector of `dim` elements: a whole number of elements of its precision.
    pub fn message_bytes<T: Real>(self, dim: usize) -> usize {
        let bytes = match self {
            Self::EightBit => dim + dim.div_ceil(BLOCK) * size_of::<i16>(),
            Self::TopK(_) => place_bytes(self.kept(dim), dim) + self.kept(dim) * size_of::<T>(),
        };
        bytes.next_multiple_of(size_of::<T>())
    }

    /// `u <- C(u)`.
    pub fn compress<T: Real>(self, u: &mut [T]) {
        match self {
            Self::EightBit => round_blocks(u),
            Self::TopK(_) => keep_largest(u, self.kept(u.len())),
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
            Self::EightBit => encode_blocks(q, message),
            Self::TopK(_) => encode_largest(q, self.kept(q.len()), message),
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
            Self::EightBit => decode_blocks(message, q),
            Self::TopK(_) => decode_largest(message, self.kept(q.len()), q),
        };
        read.map_err(InvalidMessage)
    }
}

/// Whether a bit for each element takes fewer bytes than the numbers of those that are sent.
fn has_bits(kept: usize, dim: usize) -> bool {
    dim.div_ceil(8) <= kept * size_of::<u32>() || dim >= u32::MAX as usize
}

/// Bytes that encode which elements are sent.
fn place_bytes(kept: usize, dim: usize) -> usize {
    if has_bits(kept, dim) { dim.div_ceil(8) } else { kept * size_of::<u32>() }
}

/// The smallest exponent of a block: powers of two and their reciprocals are normal numbers.
fn least<T: Real>() -> i16 {
    match T::PRECISION {
        Precision::F32 => -126,
        Precision::F64 => -1022,
    }
}

/// The largest exponent of a block: 127 times the power of two is finite.
fn most<T: Real>() -> i16 {
    match T::PRECISION {
        Precision::F32 => 121,
        Precision::F64 => 1017,
    }
}

/// 2^exponent, a normal number.
fn power<T: Real>(exponent: i16) -> T {
    T::of(two_to(exponent))
}

fn two_to(exponent: i16) -> f64 {
    f64::from_bits(((i64::from(exponent) + 1023) as u64) << 52)
}

/// The smallest exponent e with all `|u| <= 127 * 2^e`; none if an element is not finite or about to be.
fn exponent<T: Real>(block: &[T]) -> Option<i16> {
    // NaN stays.
    let larger = |most: T, u: &T| if u.abs() > most || u.is_nan() { u.abs() } else { most };
    let largest = block.iter().fold(T::zero(), larger).wide();
    if !largest.is_finite() {
        return None;
    }
    let least = least::<T>();
    if largest <= MOST * two_to(least) {
        return Some(least);
    }
    // largest = f * 2^e with f in [1, 2), and 127 = 1.984375 * 2^6.
    let exponent = (largest.to_bits() >> 52) as i16 - 1023 - 6;
    let exponent = if largest <= MOST * two_to(exponent) { exponent } else { exponent + 1 };
    (exponent <= most::<T>()).then_some(exponent)
}

/// Rounds the elements of each block.
fn round_blocks<T: Real>(u: &mut [T]) {
    u.chunks_mut(BLOCK).for_each(round_block);
}

/// Rounds to the nearest multiples of the block's power of two, ties to even.
fn round_block<T: Real>(block: &mut [T]) {
    let Some(exponent) = exponent(block) else { return block.fill(T::nan()) };
    let (up, down) = (power::<T>(-exponent), power::<T>(exponent));
    // Numbers near it have no fractional digits, so adding it rounds.
    let whole = T::of(match T::PRECISION {
        Precision::F32 => 1.5 * two_to(23),
        Precision::F64 => 1.5 * two_to(52),
    });
    block.iter_mut().for_each(|u| *u = ((*u * up + whole) - whole) * down);
}

/// Sets all elements but the largest to zero.
fn keep_largest<T: Real>(u: &mut [T], kept: usize) {
    if kept >= u.len() {
        return u.iter_mut().for_each(|u| *u += T::zero());
    }
    // Nonnegative numbers are ordered as their bits are, and NaN comes last.
    let size = |u: &T| u.abs().wide().to_bits();
    let mut sizes: Vec<u64> = u.iter().map(size).collect();
    let (_, &mut smallest, larger) = sizes.select_nth_unstable(u.len() - kept);
    let mut of_smallest = kept - larger.iter().filter(|size| **size > smallest).count();
    for u in u {
        let size = size(u);
        let stays = size > smallest || (size == smallest && of_smallest > 0);
        of_smallest -= usize::from(stays && size == smallest);
        // Zeros are positive, as when decoded.
        *u = if stays { *u + T::zero() } else { T::zero() };
    }
}

/// Appends the exponents and the multiples of all blocks.
fn encode_blocks<T: Real>(q: &[T], message: &mut Vec<u8>) {
    for block in q.chunks(BLOCK) {
        let exponent = exponent(block).unwrap_or(NOT_FINITE);
        message.extend_from_slice(&exponent.to_le_bytes());
        let scale = if exponent == NOT_FINITE { T::zero() } else { power::<T>(-exponent) };
        message.extend(block.iter().map(|q| (*q * scale).wide() as i8 as u8));
    }
}

/// Appends the places and the values of the elements that are not zero, at most this many.
fn encode_largest<T: Real>(q: &[T], kept: usize, message: &mut Vec<u8>) {
    let sent = || q.iter().enumerate().filter(|(_, q)| **q != T::zero()).take(kept);
    let places = message.len();
    message.resize(places + place_bytes(kept, q.len()), u8::MAX);
    let bytes = &mut message[places..];
    if has_bits(kept, q.len()) {
        bytes.fill(0);
        sent().for_each(|(place, _)| bytes[place / 8] |= 1 << (place % 8));
    } else {
        for (slot, (place, _)) in bytes.chunks_exact_mut(size_of::<u32>()).zip(sent()) {
            slot.copy_from_slice(&(place as u32).to_le_bytes());
        }
    }
    sent().for_each(|(_, q)| message.extend_from_slice(bytemuck::bytes_of(q)));
}

/// Reads exponents and multiples.
fn decode_blocks<T: Real>(message: &[u8], q: &mut [T]) -> Result<(), &'static str> {
    let blocks = message.chunks(BLOCK + size_of::<i16>());
    for (block, message) in q.chunks_mut(BLOCK).zip(blocks) {
        let (exponent, multiples) = message.split_at(size_of::<i16>().min(message.len()));
        let exponent = exponent.try_into().map_or(NOT_FINITE, i16::from_le_bytes);
        let scale = match exponent {
            NOT_FINITE => T::nan(),
            e if (least::<T>()..=most::<T>()).contains(&e) => power::<T>(e),
            _ => return Err("has an exponent out of range"),
        };
        for (q, multiple) in block.iter_mut().zip(multiples) {
            *q = T::of(f64::from(*multiple as i8)) * scale;
        }
    }
    Ok(())
}

/// Reads places and values.
fn decode_largest<T: Real>(message: &[u8], kept: usize, q: &mut [T]) -> Result<(), &'static str> {
    let has_bits = has_bits(kept, q.len());
    let (places, values) = message.split_at(place_bytes(kept, q.len()));
    let mut values = values.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    q.fill(T::zero());
    let mut put = |place: usize| match (q.get_mut(place), values.next()) {
        (Some(q), Some(value)) => {
            *q = value;
            Ok(())
        }
        _ => Err("names an element that the vector does not have"),
    };
    if has_bits {
        for (k, byte) in places.iter().enumerate() {
            (0..8).filter(|bit| byte >> bit & 1 == 1).try_for_each(|bit| put(8 * k + bit))?;
        }
    } else {
        let places = places.chunks_exact(size_of::<u32>()).map(bytemuck::pod_read_unaligned);
        places.take_while(|place: &u32| *place != u32::MAX).try_for_each(|p| put(p as usize))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    use crate::random::{Purpose, stream};

    const KINDS: [Compression; 5] = [
        Compression::EightBit,
        Compression::TopK(0.001),
        Compression::TopK(0.02),
        Compression::TopK(0.3),
        Compression::TopK(0.999),
    ];

    /// Elements of very different sizes, some of them zero.
    fn vector<T: Real>(dim: usize, index: u64) -> Vec<T> {
        let mut random = stream(1, Purpose::Probe, index, dim as u64);
        let mut element = |_| match random.random_range(0..9) {
            0 => T::of(-0.0),
            k => T::of(random.random_range(-1.0..1.0) * 10f64.powi(k - 5)),
        };
        (0..dim).map(&mut element).collect()
    }

    fn bits<T: Real>(q: &[T]) -> Vec<u64> {
        q.iter().map(|q| q.wide().to_bits()).collect()
    }

    fn error_sq<T: Real>(u: &[T], q: &[T]) -> f64 {
        u.iter().zip(q).map(|(u, q)| (u.wide() - q.wide()).powi(2)).sum()
    }

    fn messages_lose_nothing<T: Real>() {
        for dim in [0, 1, 2, 7, 8, 9, 255, 256, 257, 511, 1_000, 5_003] {
            for kind in KINDS {
                let u = vector::<T>(dim, 3);
                let mut q = u.clone();
                kind.compress(&mut q);
                let norm_sq: f64 = u.iter().map(|u| u.wide().powi(2)).sum();
                let delta = match kind {
                    Compression::EightBit => 0.98,
                    Compression::TopK(_) => kind.kept(dim) as f64 / dim.max(1) as f64,
                };
                assert!(error_sq(&u, &q) <= (1.0 - delta) * norm_sq * (1.0 + 1e-6), "{kind} {dim}");
                let mut again = q.clone();
                kind.compress(&mut again);
                assert_eq!(bits(&again), bits(&q), "{kind} {dim}");
                let mut message = vec![1, 2, 3];
                kind.encode(&q, &mut message);
                assert_eq!(message.len(), 3 + kind.message_bytes::<T>(dim));
                let mut decoded = vec![T::nan(); dim];
                kind.decode(&message[3..], &mut decoded).unwrap();
                assert_eq!(bits(&decoded), bits(&q), "{kind} {dim}");
            }
        }
    }

    #[test]
    fn compressed_vectors_are_close_idempotent_and_encoded_without_loss() {
        messages_lose_nothing::<f32>();
        messages_lose_nothing::<f64>();
    }

    #[test]
    fn messages_have_the_bytes_that_the_table_says() {
        let bytes = |kind: Compression, dim| (kind.message_bytes::<f32>(dim), kind.message_bytes::<f64>(dim));
        assert_eq!(bytes(Compression::EightBit, 1_024), (1_032, 1_032));
        assert_eq!(bytes(Compression::EightBit, 1_025), (1_036, 1_040));
        assert_eq!(bytes(Compression::TopK(0.01), 100_000), (1_000 * 8, 1_000 * 12));
        assert_eq!(bytes(Compression::TopK(0.5), 80_000), (10_000 + 160_000, 10_000 + 320_000));
        assert_eq!((bytes(Compression::TopK(0.5), 0), bytes(Compression::EightBit, 0)), ((0, 0), (0, 0)));
    }

    #[test]
    fn the_largest_elements_stay_and_the_first_among_equals() {
        let mut u = [1.0, -3.0, 2.0, -2.0, 2.0, 0.5];
        Compression::TopK(0.5).compress(&mut u);
        assert_eq!(u, [0.0, -3.0, 2.0, -2.0, 0.0, 0.0]);
    }

    #[test]
    fn eight_bits_are_multiples_of_the_smallest_power_of_two() {
        for (largest, exponent) in
            [(127.0, 0), (127.25, 1), (63.5, -1), (1.0, -6), (2.0, -5), (1e-300, -1_003)]
        {
            let mut u: [f64; 3] = [largest, -0.3 * largest, 0.001 * largest];
            Compression::EightBit.compress(&mut u);
            let step = two_to(exponent);
            assert!((u[0] - largest).abs() <= 0.5 * step && u[1] % step == 0.0, "{largest}: {u:?}");
            assert_eq!(super::exponent(&[largest]), Some(exponent), "{largest}");
        }
        let mut u = [f64::from_bits(5), 1e308, -1e308];
        Compression::EightBit.compress(&mut u);
        assert!(u[0] == 0.0 && u[1] == -u[2] && (u[1] / 1e308 - 1.0).abs() < 0.01, "{u:?}");
        let mut u = [3e38_f32, 1.0];
        Compression::EightBit.compress(&mut u);
        assert!((u[0] / 3e38 - 1.0).abs() < 0.01 && u[1] == 0.0, "{u:?}");
        assert!((exponent(&[f32::MAX]), exponent(&[f64::MAX])) == (None, None));
    }

    #[test]
    fn what_is_not_finite_is_seen_by_the_neighbours() {
        for kind in KINDS {
            for broken in [f64::NAN, f64::INFINITY] {
                let mut u = vector::<f64>(600, 4);
                u[300] = broken;
                kind.compress(&mut u);
                let mut message = Vec::new();
                kind.encode(&u, &mut message);
                let mut decoded = vec![0.0_f64; 600];
                kind.decode(&message, &mut decoded).unwrap();
                assert!(!decoded[300].is_finite() && decoded[..256].iter().all(|q| q.is_finite()), "{kind}");
            }
        }
    }

    #[test]
    fn arbitrary_messages_are_read_or_refused() {
        let mut random = stream(1, Purpose::Probe, 5, 0);
        let mut refused = [0; KINDS.len()];
        for draw in 0..300 {
            for (kind, refused) in KINDS.into_iter().zip(&mut refused) {
                let dim = 1 + draw % 90;
                let length = kind.message_bytes::<f32>(dim) + usize::from(draw % 7 == 0);
                let message: Vec<u8> = (0..length).map(|_| random.random()).collect();
                *refused += usize::from(kind.decode(&message, &mut vec![0f32; dim]).is_err());
            }
        }
        assert!(refused.iter().all(|refused| *refused >= 43), "{refused:?}");
    }
}
