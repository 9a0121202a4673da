//! The largest elements of a vector, with their places.

use crate::real::Real;

/// Whether a bit for each element takes fewer bytes than the numbers of those that are sent.
fn has_bits(kept: usize, dim: usize) -> bool {
    dim.div_ceil(8) <= kept * size_of::<u32>() || dim >= u32::MAX as usize
}

/// Bytes that encode which elements are sent.
pub(super) fn place_bytes(kept: usize, dim: usize) -> usize {
    if has_bits(kept, dim) { dim.div_ceil(8) } else { kept * size_of::<u32>() }
}

/// Sets all elements but the largest to zero.
pub(super) fn keep<T: Real>(u: &mut [T], kept: usize) {
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

/// Appends the places and the values of the elements that are not zero, at most this many.
pub(super) fn encode<T: Real>(q: &[T], kept: usize, message: &mut Vec<u8>) {
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

/// Reads places and values.
pub(super) fn decode<T: Real>(message: &[u8], kept: usize, q: &mut [T]) -> Result<(), &'static str> {
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
