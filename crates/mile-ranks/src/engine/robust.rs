//! An exchange that limits what malicious neighbours can do: agents compare the whole vectors of all their neighbours.

use mile::agents::{AgentsError, RobustPull};
use mile::real::Real;
use rayon::prelude::*;

use super::RankEngine;
use crate::exchange::Source;
use crate::together;
use crate::transport::RankTransport;

impl<T: Real, C: RankTransport> RankEngine<'_, T, C> {
    /// Sends and receives rows, and gives each agent those of its neighbours.
    pub(super) fn exchange_robust(&mut self, pull: &RobustPull) -> Result<(), AgentsError> {
        let (dim, crossing) = (self.dim, &self.crossing);
        let mut to = std::mem::take(&mut self.blocks[pull.to.0]);
        let here = &self.blocks[pull.from.0][..];
        let there = together::rows(&*self.transport, &crossing.peers, here, dim);
        if let Ok(there) = &there {
            let row = |k: usize| k * dim..(k + 1) * dim;
            let of = |source: Source| match source {
                Source::Here(k) => &here[row(k)],
                Source::From(peer, k) => &there[peer][row(k)],
            };
            to.par_chunks_exact_mut(dim.max(1)).enumerate().for_each(|(k, out)| {
                let others: Vec<(f64, &[T])> =
                    crossing.terms(k).iter().map(|(w, source)| (*w, of(*source))).collect();
                pull.by.pull(&here[row(k)], &others, out);
            });
        }
        self.blocks[pull.to.0] = to;
        there.map(drop).map_err(AgentsError::Engine)
    }
}
