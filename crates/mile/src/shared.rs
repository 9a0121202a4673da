//! A pointer through which several threads write to disjoint parts of a block.

use std::ops::Range;

/// A pointer to a block whose disjoint parts are accessed by several threads.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);
// SAFETY: users give each thread its own part, so no two threads access one element unless both only
// read it.
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
    /// The range must lie within the block, and it must not be written to while the slice is alive.
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &[T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.0.add(range.start), range.len()) }
    }
}
