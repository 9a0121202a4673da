//! What the jobs of a plan cost: memory and bytes, and how many fit where their engines are.

use mile::ranks::Together;
use mile::schedule::Weight;
use mile::steady;
use mile::with_precision;

use super::tally::{Tally, tally};
use super::{Job, Plan};
use crate::engines::{Jobs, Scalar};
use crate::error::LabError;
use crate::ranks::agree;
use crate::room;

/// Memory of a record, with its names and metrics.
const BYTES_OF_A_RECORD: f64 = 600.0;

impl Plan {
    /// Bytes of memory for the vectors of a job.
    pub fn memory(&self, job: Job) -> u64 {
        let agents = self.membership.epochs().iter().map(|epoch| epoch.members.len()).max();
        let sizes = [self.methods[job.algorithm].vectors, agents.unwrap_or(1), self.size.dim];
        let bytes = self.spec.precision.bytes() as u64;
        sizes.into_iter().fold(bytes, |product, size| product.saturating_mul(size as u64))
    }

    /// What a job costs that is not stopped before its last round. It is counted, not estimated, except in rounds beyond the first few
    /// million.
    pub fn tally(&self, job: Job) -> Result<Tally, LabError> {
        tally(self, job)
    }

    /// Bytes of a message with one vector of an algorithm.
    pub fn message_bytes(&self, algorithm: usize) -> usize {
        let (dim, parameters) = (self.size.dim, &self.methods[algorithm].parameters);
        with_precision!(self.spec.precision, T => match (parameters.compression, parameters.xi) {
            (Some(by), _) => by.message_bytes::<T>(dim),
            (None, Some(Weight::Adaptive(_))) => steady::message_bytes::<T>(dim),
            (None, _) => dim * size_of::<T>(),
        })
    }

    /// Records of a job that is not stopped before its last round.
    pub fn records_of_a_job(&self) -> u64 {
        self.spec.rounds.div_ceil(self.spec.eval_every()).saturating_add(1)
    }

    /// Refuses more records than fit into memory, where they are read at the end.
    pub(super) fn check_records(&self) -> Result<(), LabError> {
        let records = self.records_of_a_job() as f64 * self.jobs().len() as f64;
        let what = format!("{records:.0} records");
        room::check("eval_every", "more rounds", self.spec.eval_every(), &what, records * BYTES_OF_A_RECORD)
    }

    /// Refuses jobs for which a rank has too little memory where its engines are.
    pub fn check_memory(&self, ranks: Together<'_>) -> Result<(), LabError> {
        match self.spec.seeds.first() {
            Some(seed) if self.engines.has_memory_of_its_own() => {
                agree(ranks, self.fitting_with(*seed, 1).map(drop))
            }
            _ => agree(ranks, self.check_vectors()),
        }
    }

    /// Refuses jobs whose vectors this machine has too little memory for.
    fn check_vectors(&self) -> Result<(), LabError> {
        let (agents, dim) = (self.hosted.len(), self.size.dim);
        let vectors = self.methods.iter().map(|method| method.vectors).max().unwrap_or(1);
        let bytes = [vectors, agents, dim, self.spec.precision.bytes()].map(|size| size as f64);
        let what = format!("{vectors} vectors of dimension {dim} for each agent");
        room::check("network.agents", "fewer agents", agents, &what, bytes.into_iter().product())
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
