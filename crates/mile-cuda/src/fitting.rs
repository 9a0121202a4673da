//! How many jobs fit into the memory of a device.

use std::fmt;

use mile::problems::Problem;
use mile::real::Real;

use crate::device::{DeviceError, bytes};
use crate::forms::needs;
use crate::objective::Needs;
use crate::stack::Stack;
use crate::vectors::stride;

/// How many of several jobs fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fitting {
    /// How many jobs fit, at least one: whether that one does is found out when it is opened.
    pub jobs: usize,
    /// How many jobs there are.
    pub of: usize,
    /// Bytes that they all need at least.
    pub needed: u64,
    /// Bytes that are free.
    pub available: u64,
}

impl Fitting {
    fn new(of: usize, vectors: u64, needs: Needs, available: u64) -> Self {
        let (fixed, each) =
            (needs.turn.saturating_add(needs.shared), vectors.saturating_add(needs.own).max(1));
        let needed = fixed.saturating_add(each.saturating_mul(of as u64));
        let fit = usize::try_from(available.saturating_sub(fixed) / each).unwrap_or(usize::MAX);
        Self { jobs: fit.min(of).max(1), of, needed, available }
    }
}

impl fmt::Display for Fitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, of, needed, available } = *self;
        write!(
            f,
            "{of} jobs at once need {} of the GPU's memory, and {} are free: {jobs} are run at a time",
            bytes(needed),
            bytes(available)
        )
    }
}

impl<T: Real> Stack<T> {
    /// Refuses a job with this many agents, this problem and methods of at most this many vectors if it does not fit next to the jobs of
    /// other ranks, `sharing` of which have the same device.
    pub fn check(
        &self,
        problem: &dyn Problem<T>,
        vectors: usize,
        agents: usize,
        sharing: usize,
    ) -> Result<(), DeviceError> {
        let numbers = [vectors, agents, stride::<T>(problem.dim()), size_of::<T>()];
        let bytes = numbers.into_iter().fold(1u64, |all, n| all.saturating_mul(n as u64));
        let Needs { own, shared, .. } = needs(problem);
        let needed = bytes.saturating_add(own).saturating_add(shared);
        let available = self.device().available()? / sharing.max(1) as u64;
        if needed <= available {
            return Ok(());
        }
        let what = format!(" for the {agents} agents of a rank, of which {sharing} share a GPU");
        Err(DeviceError::Memory { needed, available, what })
    }

    /// How many of this many jobs fit, with this problem and methods of at most this many vectors.
    pub fn fitting(
        &self,
        problem: &dyn Problem<T>,
        vectors: usize,
        jobs: usize,
    ) -> Result<Fitting, DeviceError> {
        self.lock().give_back_unused()?;
        let numbers = [vectors, problem.agents(), stride::<T>(problem.dim()), size_of::<T>()];
        let vectors = numbers.into_iter().fold(1u64, |all, n| all.saturating_mul(n as u64));
        Ok(Fitting::new(jobs, vectors, needs(problem), self.device().available()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_jobs_fit_as_the_memory_left_by_what_they_share_allows_and_at_least_one() {
        let needs = Needs { own: 10, turn: 200, shared: 100 };
        let jobs = |available| Fitting::new(12, 90, needs, available).jobs;
        assert_eq!((jobs(1_500), jobs(1_499), jobs(400), jobs(0)), (12, 11, 1, 1));
        let text = Fitting::new(12, 90_000_000, needs, 400_000_000).to_string();
        assert_eq!(
            text,
            "12 jobs at once need 1.1 GB of the GPU's memory, and 400 MB are free: 4 are run at a time"
        );
        assert_eq!(Fitting::new(3, u64::MAX, needs, 5).jobs, 1);
    }
}
