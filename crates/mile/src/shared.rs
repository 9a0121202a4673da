//! A block of which several tasks take disjoint parts.

use std::ops::Range;

/// A pointer to a block of which tasks take disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);
// SAFETY: whoever shares one gives each task a part of its own, so no two tasks touch one element
// unless both only read it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Safety
    /// The range must lie within the block, and no other reference to it may be alive.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }

    /// # Safety
    /// The range must lie within the block, and nobody may write to it meanwhile.
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &[T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.0.add(range.start), range.len()) }
    }
}
