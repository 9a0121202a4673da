//! What the jobs of a plan cost: memory and bytes, and how many fit where their engines are.

use mile::ranks::Together;
use mile::with_precision;

use super::{Job, Plan};
use crate::engines::{Jobs, Scalar};
use crate::error::LabError;
use crate::ranks::agree;

impl Plan {
    /// Bytes of memory for the vectors of a job.
    pub fn memory(&self, job: Job) -> u64 {
        let agents = self.membership.epochs().iter().map(|epoch| epoch.members.len()).max();
        let sizes = [self.methods[job.algorithm].vectors, agents.unwrap_or(1), self.size.dim];
        let bytes = self.spec.precision.bytes() as u64;
        sizes.into_iter().fold(bytes, |product, size| product.saturating_mul(size as u64))
    }

    /// Expected number of bytes that all agents together send in a job.
    pub fn bytes_to_send(&self, job: Job) -> u64 {
        let messages = self.network().mean_messages();
        let vectors = self.methods[job.algorithm].first_round.vectors_sent * self.spec.rounds;
        let whole = (self.size.dim * self.spec.precision.bytes()) as f64;
        let bytes = match self.methods[job.algorithm].parameters.compression {
            None => vectors as f64 * whole,
            Some(by) => {
                let times = self.spec.rounds.div_ceil(by.whole_every());
                let others = vectors.saturating_sub(times) as f64;
                times as f64 * whole + others * self.message_bytes(job.algorithm) as f64
            }
        };
        (messages * bytes) as u64
    }

    /// Bytes of a message with one vector of an algorithm.
    pub fn message_bytes(&self, algorithm: usize) -> usize {
        let dim = self.size.dim;
        with_precision!(self.spec.precision, T => {
            let compression = self.methods[algorithm].parameters.compression;
            compression.map_or(dim * size_of::<T>(), |by| by.message_bytes::<T>(dim))
        })
    }

    /// Refuses jobs for which a rank has too little memory where its engines are.
    pub fn check_memory(&self, ranks: Together<'_>) -> Result<(), LabError> {
        match self.spec.seeds.first() {
            Some(seed) if self.engines.has_memory_of_its_own() => {
                agree(ranks, self.fitting_with(*seed, 1).map(drop))
            }
            _ => Ok(()),
        }
    }

    /// How many of a number of jobs like these can run at the same time, if their engines compute together; otherwise none.
    pub(crate) fn fitting(&self, count: usize) -> Result<Option<usize>, LabError> {
        let (Some(seed), true) = (self.spec.seeds.first(), self.engines.computes_together()) else {
            return Ok(None);
        };
        self.fitting_with(*seed, count).map(Some)
    }

    fn fitting_with(&self, seed: u64, count: usize) -> Result<usize, LabError> {
        let vectors = self.methods.iter().map(|method| method.vectors).max().unwrap_or(1);
        with_precision!(self.spec.precision, T => {
            let problem = self.problem::<T>(seed)?;
            Ok(T::engines(&*self.engines).fitting(Jobs::new(&*problem, vectors, count))?)
        })
    }
}
