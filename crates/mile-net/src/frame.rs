//! The frames that neighbours send each other: a head of fixed size, checked before memory is allocated, and a payload.
//!
//! All numbers are little-endian. A head is 24 bytes: kind (1), zero (3), length of the payload (4), and two
//! numbers (8 each) whose meaning depends on the kind.

use mile::real::Real;

#[cfg(target_endian = "big")]
compile_error!("vectors are sent as they are in memory, which must be little-endian");

/// Bytes of a head.
pub const HEAD: usize = 24;

/// Most bytes of a vector in one frame.
pub const CHUNK: usize = 256 << 10;

/// Most bytes of a HELLO or a REFUSE.
pub const TEXT: usize = 64 << 10;

/// Most bytes of a gossip frame.
pub const GOSSIP: usize = 8 << 10;

/// Most bytes of a frame of notices.
pub const NOTICES: usize = 8 << 10;

/// Most bytes of the reason in a VERDICT.
pub const REASON: usize = 1 << 10;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The [handshake](crate::handshake): the first frame of every link, in both directions.
    Hello = 1,
    /// Why the sender refuses the other end; the last frame of a link.
    Refuse = 2,
    /// A piece of the message of exchange `a`, from element `b` on.
    Data = 3,
    /// Numbers of the [gossip](crate::gossip) that belong to the message of exchange `a`, sent before it.
    Gossip = 4,
    /// The sender has a checkpoint of exchange `a` and round `b`: it will not ask for earlier messages again.
    Have = 5,
    /// The edge between the two ends is used (payload 1) or skipped (payload 0) in rounds `a` up to and including `b`.
    Decide = 6,
    /// The sender accepts (payload 1) the other end's message of exchange `a`, or refuses it (payload 0, and the reason).
    Verdict = 7,
    /// [Notices](crate::notice) of form `a`, on a connection of their own.
    Notices = 8,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let kinds =
            [Self::Hello, Self::Refuse, Self::Data, Self::Gossip, Self::Have, Self::Decide, Self::Verdict];
        kinds.into_iter().chain([Self::Notices]).find(|kind| *kind as u8 == byte)
    }

    /// Which lengths a payload of this kind can have.
    fn admits(self, length: usize, number: usize) -> bool {
        match self {
            Self::Hello | Self::Refuse => length <= TEXT,
            Self::Data => length > 0 && length <= CHUNK && length.is_multiple_of(number),
            Self::Gossip => length > 0 && length <= GOSSIP && length.is_multiple_of(8),
            Self::Have => length == 0,
            Self::Decide => length == 1,
            Self::Verdict => (1..=1 + REASON).contains(&length),
            Self::Notices => length > 0 && length <= NOTICES,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What follows.
    pub kind: Kind,
    /// Bytes of the payload.
    pub length: usize,
    /// First number.
    pub a: u64,
    /// Second number.
    pub b: u64,
}

/// Bytes that are not a frame of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Of no known kind.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// Bytes that must be zero are not.
    #[error("a frame with nonzero bytes where zeros are required")]
    Reserved,
    /// Of a length that its kind does not allow.
    #[error("a {kind:?} frame with a payload of {length} bytes")]
    Length {
        /// Its kind.
        kind: Kind,
        /// Its announced length.
        length: usize,
    },
}

impl Head {
    /// The head in bytes.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.a.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.b.to_le_bytes());
        bytes
    }

    /// Reads a head and refuses one whose length is out of bounds. `T` is the type of a vector's elements.
    pub fn decode<T: Real>(bytes: &[u8; HEAD]) -> Result<Self, Malformed> {
        let word = |from: usize| -> [u8; 8] { std::array::from_fn(|k| bytes[from + k]) };
        let kind = Kind::of(bytes[0]).ok_or(Malformed::Kind(bytes[0]))?;
        if bytes[1..4] != [0; 3] {
            return Err(Malformed::Reserved);
        }
        let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        if !kind.admits(length, size_of::<T>()) {
            return Err(Malformed::Length { kind, length });
        }
        Ok(Self { kind, length, a: u64::from_le_bytes(word(8)), b: u64::from_le_bytes(word(16)) })
    }
}

/// A whole control frame: any but a piece of a message. A payload that is too long is truncated.
pub fn control(kind: Kind, a: u64, b: u64, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(TEXT)];
    let mut bytes = Head { kind, length: payload.len(), a, b }.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![
            Kind::Hello,
            Kind::Refuse,
            Kind::Data,
            Kind::Gossip,
            Kind::Have,
            Kind::Decide,
            Kind::Verdict,
            Kind::Notices,
        ])
    }

    proptest! {
        #[test]
        fn a_head_is_read_as_it_was_written(kind in kind(), length in 0usize..300_000, a: u64, b: u64) {
            let head = Head { kind, length, a, b };
            let read = Head::decode::<f64>(&head.encode());
            if kind.admits(length, 8) {
                prop_assert_eq!(read, Ok(head));
            } else {
                prop_assert_eq!(read, Err(Malformed::Length { kind, length }));
            }
        }

        #[test]
        fn whatever_comes_is_a_frame_within_bounds_or_refused(bytes: [u8; HEAD]) {
            if let Ok(head) = Head::decode::<f32>(&bytes) {
                prop_assert!(head.length <= CHUNK);
                prop_assert_eq!(head.encode(), bytes);
            }
        }
    }
}
