//! An exchange that weighs differences by how steady they are. Sketches and sums are computed on the device; what follows from the
//! sketches, a few hundred numbers per agent, on the CPU.

use mile::agents::SteadyPull;
use mile::real::Real;
use mile::sparse::SparseRows;
use mile::steady::Summaries;

use super::GpuAgents;
use crate::device::DeviceError;
use crate::work::Work;

impl<T: Real> GpuAgents<'_, T> {
    /// Carries out the exchange with the weights of the round.
    pub(super) fn carry_out_steady(&mut self, pull: &SteadyPull) -> Result<(), DeviceError> {
        self.norm_sq = None;
        let mut work = Work::default();
        self.vectors.summaries(pull.from, pull.memory, &mut work);
        self.stack.alone(&work)?;
        let summaries = {
            let _queue = self.stack.lock();
            Summaries::from_numbers(self.vectors.read_summaries()?, self.vectors.dim())
        };
        let mut work = Work::default();
        let rounded =
            |weights: &SparseRows| weights.entries.iter().map(|(_, w)| T::of(*w)).collect::<Vec<T>>();
        for (to, weights) in
            [(pull.to, rounded(&self.weights)), (pull.steady, rounded(&summaries.shares(&self.weights)))]
        {
            let place = work.data(&weights);
            self.vectors.pull(pull.from, to, Some(place), &mut work);
        }
        let all = 0..self.vectors.agents();
        self.vectors.combine(&[all], pull.memory, 0.0, &[(1.0, pull.from)], &mut work);
        self.stack.alone(&work)?;
        let r: Vec<T> = summaries.steadiness(&self.weights, pull.fresh).into_iter().map(T::of).collect();
        let _queue = self.stack.lock();
        self.vectors.set_first(pull.memory, &r)
    }
}
