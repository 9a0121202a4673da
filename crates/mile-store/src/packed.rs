//! Bytes as numbers of a state, which has no other arrays: their bits, after the number of bytes.

use mile::real::Real;

/// Packs bytes into numbers. What they would be as numbers means nothing.
pub fn pack<T: Real>(bytes: &[u8]) -> Vec<T> {
    let mut all = Vec::with_capacity(8 + bytes.len() + size_of::<T>());
    all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    all.extend_from_slice(bytes);
    all.resize(all.len().next_multiple_of(size_of::<T>()), 0);
    bytemuck::pod_collect_to_vec(&all)
}

/// The bytes that were packed; none if the numbers are not those of packed bytes.
pub fn unpack<T: Real>(numbers: &[T]) -> Option<Vec<u8>> {
    let all: &[u8] = bytemuck::cast_slice(numbers);
    let (length, rest) = all.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.get(..length).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_packed_and_unpacked_in_both_precisions() {
        for length in 0..20u8 {
            let bytes: Vec<u8> = (0..length).map(|k| 255 - k).collect();
            assert_eq!(unpack(&pack::<f32>(&bytes)).as_deref(), Some(&bytes[..]));
            assert_eq!(unpack(&pack::<f64>(&bytes)).as_deref(), Some(&bytes[..]));
        }
        assert_eq!(unpack::<f32>(&[]), None);
        assert_eq!(unpack(&[1e-3f64]), None, "more bytes than there are");
    }
}
