//! Processes that share the agents of one run, such as the ranks of an MPI job: what they tell each other beside the
//! agents' exchanges.
//!
//! Every rank runs the same program and calls the same functions in the same order. What is a *call of all ranks together*
//! returns when all have called it; decisions that lead to such calls must therefore be made alike everywhere, with
//! [`any`](trait.Ranks.html#method.any) or from numbers that are the same on all ranks.

use crate::agents::Failure;

/// The processes of a run, seen from one of them.
pub trait Ranks: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn count(&self) -> usize;

    /// The name of this process in messages, such as `rank 3 on node17`.
    fn name(&self) -> String;

    /// The bytes that all ranks give, in the order of ranks. A call of all ranks together.
    fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure>;

    /// The same at rank 0 only. A call of all ranks together.
    fn gather(&self, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure>;

    /// Replaces the bytes by those that the rank `from` gives. A call of all ranks together.
    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure>;
}

impl dyn Ranks + '_ {
    /// The wishes of all ranks, a bit each: those that any of them has. A call of all ranks together.
    pub fn any(&self, wishes: u8) -> Result<u8, Failure> {
        Ok(self.all_gather(&[wishes])?.iter().flatten().fold(0, |all, one| all | one))
    }

    /// The sum of a number over all ranks. A call of all ranks together.
    pub fn total(&self, own: u64) -> Result<u64, Failure> {
        let all = self.all_gather(&own.to_le_bytes())?;
        let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
        Ok(all.iter().map(number).sum())
    }
}

/// A single process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        1
    }

    fn name(&self) -> String {
        "this process".into()
    }

    fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(vec![own.to_vec()])
    }

    fn gather(&self, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        Ok(Some(vec![own.to_vec()]))
    }

    fn broadcast(&self, _: usize, _: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }
}
