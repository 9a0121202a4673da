//! Processes that share the agents of one run, such as the ranks of an MPI job: what they communicate besides the
//! agents' exchanges.
//!
//! Every rank runs the same program and calls the same functions in the same order. Some calls return only when all ranks have made
//! them; these require a [`Together`].

use std::ops::Deref;

use crate::agents::Failure;

/// The processes of a run, seen from one of them.
pub trait Ranks: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn count(&self) -> usize;

    /// The name of this process in messages, such as `rank 3 on node17`.
    fn name(&self) -> String;

    /// The bytes that all ranks give, in the order of ranks.
    fn all_gather(&self, together: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure>;

    /// The same at rank 0 only.
    fn gather(&self, together: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure>;

    /// Replaces the bytes by those that the rank `from` gives.
    fn broadcast(&self, together: Together<'_>, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure>;
}

/// All ranks follow the same path here, so they can make the calls that all must make together.
///
/// A call that requires this token returns when all ranks have made it; a rank that does not make it leaves the others waiting. So a
/// function that makes such calls has the token in its signature, and one without it cannot make them. Code that makes a token
/// [of ranks](Self::of) guarantees that every rank reaches this place: at the entry of what a program calls on all ranks alike, such as
/// the planning or the execution of an experiment, or in a verb that a method calls on all of them. From there on, whether a call is made
/// must be decided identically everywhere: with [`any`](Self::any), or from numbers that are the same on all ranks.
#[derive(Clone, Copy)]
pub struct Together<'r>(&'r dyn Ranks);

impl<'r> Together<'r> {
    /// All of these ranks reach this place.
    pub const fn of(ranks: &'r dyn Ranks) -> Self {
        Self(ranks)
    }

    /// The bytes that all ranks give, in the order of ranks.
    pub fn all_gather(self, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        self.0.all_gather(self, own)
    }

    /// The same at rank 0 only.
    pub fn gather(self, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        self.0.gather(self, own)
    }

    /// Replaces the bytes by those that the rank `from` gives.
    pub fn broadcast(self, from: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        self.0.broadcast(self, from, bytes)
    }

    /// The wishes of all ranks, one bit each: those that any of them has.
    pub fn any(self, wishes: u8) -> Result<u8, Failure> {
        Ok(self.all_gather(&[wishes])?.iter().flatten().fold(0, |all, one| all | one))
    }

    /// The sum of a number over all ranks.
    pub fn total(self, own: u64) -> Result<u64, Failure> {
        let all = self.all_gather(&own.to_le_bytes())?;
        let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
        Ok(all.iter().map(number).sum())
    }
}

impl<'r> Deref for Together<'r> {
    type Target = dyn Ranks + 'r;

    fn deref(&self) -> &Self::Target {
        self.0
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

    fn all_gather(&self, _: Together<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(vec![own.to_vec()])
    }

    fn gather(&self, _: Together<'_>, own: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        Ok(Some(vec![own.to_vec()]))
    }

    fn broadcast(&self, _: Together<'_>, _: usize, _: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }
}
