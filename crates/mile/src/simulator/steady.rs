//! An exchange that weighs differences by how steady they are, for all agents together.

use super::Simulator;
use crate::agents::SteadyPull;
use crate::block;
use crate::real::Real;
use crate::steady::{Summaries, remember};

impl<T: Real> Simulator<'_, T> {
    /// Carries out the exchange with the weights of the round.
    pub(super) fn carry_out_steady(&mut self, pull: &SteadyPull) {
        let mut taken = [pull.memory, pull.to, pull.steady].map(|v| std::mem::take(&mut self.blocks[v.0]));
        let [memory, to, steady] = &mut taken;
        let (v, dim) = (&self.blocks[pull.from.0][..], self.dim);
        let summaries = Summaries::of(v, memory, dim);
        block::pull(&self.weights, v, to, dim);
        block::pull(&summaries.shares(&self.weights), v, steady, dim);
        let r = summaries.steadiness(&self.weights, pull.fresh);
        let rows = memory.chunks_exact_mut(dim.max(1)).zip(v.chunks_exact(dim.max(1)));
        rows.zip(r).for_each(|((memory, v), r)| remember(memory, v, r));
        for (v, block) in [pull.memory, pull.to, pull.steady].into_iter().zip(taken) {
            self.blocks[v.0] = block;
        }
    }
}
