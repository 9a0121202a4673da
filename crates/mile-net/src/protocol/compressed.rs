//! Compressed messages in an exchange. Of most kinds a [stretch](Compression::stretch) is added up as soon as it is here; of the others the
//! whole message is needed first.

use mile::block;
use mile::compression::Compression;
use mile::real::Real;

use super::plausible::{Plausible, Unusable, farthest};
use crate::outbox::Message;

/// How the compressed messages of an exchange are read.
pub(super) struct Compressed<T> {
    by: Compression,
    /// Elements of the vector that are decoded at a time.
    stretch: usize,
    /// Elements of the message that encode them.
    coded: usize,
    /// This agent's elements, and a neighbour's.
    decoded: [Vec<T>; 2],
}

impl<T: Real> Compressed<T> {
    /// For messages that encode vectors of `dim` elements.
    pub(super) fn new(by: Compression, dim: usize) -> Self {
        let stretch = by.stretch().unwrap_or(dim).clamp(1, dim.max(1));
        let coded = by.message_bytes::<T>(stretch) / size_of::<T>();
        Self { by, stretch, coded, decoded: [(); 2].map(|()| vec![T::zero(); stretch]) }
    }

    /// The largest modulus of an element that a message of this agent encodes; infinite if one is not finite.
    pub(super) fn size(&mut self, own: &Message<T>, dim: usize) -> f64 {
        let coded = own.vectors.chunks(self.coded.max(1));
        coded.zip((0..dim).step_by(self.stretch)).fold(0.0, |largest: f64, (coded, from)| {
            let into = &mut self.decoded[0][..self.stretch.min(dim - from)];
            // This agent's message was made here.
            let _ = self.by.decode(bytemuck::cast_slice(coded), into);
            largest.max(farthest(into, None))
        })
    }

    /// Takes elements of a neighbour's message from `folded` on. `known` is what has arrived of a stretch that is not complete. Returns how
    /// many elements are folded, and why not all are; those of a stretch that cannot be used are needed again.
    pub(super) fn fold(
        &mut self,
        folded: usize,
        mut message: &[T],
        known: &mut Vec<T>,
        own: &[T],
        mut add: impl FnMut(usize, [&[T]; 2]) -> Result<(), Unusable>,
        dim: usize,
    ) -> (usize, Result<(), Unusable>) {
        let mut folded = folded;
        known.truncate(folded % self.coded.max(1));
        while !message.is_empty() {
            let first = folded - known.len();
            let last = (first + self.coded).min(own.len());
            let (taken, rest) = message.split_at(message.len().min(last - folded));
            known.extend_from_slice(taken);
            (folded, message) = (folded + taken.len(), rest);
            if folded == last {
                let from = first / self.coded * self.stretch;
                let added = self.decode(&own[first..last], known, self.stretch.min(dim - from));
                let added = added.and_then(|both| add(from, both));
                known.clear();
                if added.is_err() {
                    return (first, added);
                }
            }
        }
        (folded, Ok(()))
    }

    /// This agent's elements of a stretch, and a neighbour's.
    fn decode(&mut self, own: &[T], other: &[T], elements: usize) -> Result<[&[T]; 2], Unusable> {
        let [mine, theirs] = self.decoded.each_mut().map(|decoded| &mut decoded[..elements]);
        let _ = self.by.decode(bytemuck::cast_slice(own), mine);
        let read = self.by.decode(bytemuck::cast_slice(other), theirs);
        read.map_err(|_| "an unreadable compressed message")?;
        Ok([mine, theirs])
    }
}

/// Adds a neighbour's elements, from one on, to the sums, if they are believed.
pub(super) fn add<T: Real>(
    plausible: &mut Plausible,
    sums: &mut [Vec<T>],
    (weight, first): (f64, bool),
    from: usize,
    [own, other]: [&[T]; 2],
) -> Result<(), Unusable> {
    plausible.check(0, other, own)?;
    sums.iter_mut()
        .for_each(|sum| block::fold((weight, other), own, &mut sum[from..from + own.len()], first));
    Ok(())
}
