//! An exchange of compressed messages: what crosses ranks is what agents on a network would send.

use mile::agents::{AgentsError, CompressedPull};
use mile::real::Real;

use super::RankEngine;
use crate::together;
use crate::transport::RankTransport;
use crate::work::{Messages, Work};

impl<T: Real, C: RankTransport> RankEngine<'_, T, C> {
    /// Sends and receives messages, and adds up the vectors they encode.
    pub(super) fn exchange_compressed(&mut self, pull: &CompressedPull) -> Result<(), AgentsError> {
        let (dim, crossing) = (self.dim, &self.crossing);
        let source = &self.blocks[pull.from.0][..];
        let rows = together::compressed(&*self.transport, &crossing.peers, pull.by, source, dim)
            .map_err(AgentsError::Engine)?;
        let first: Vec<usize> = (0..rows.len()).collect();
        let arrived: Vec<Option<&[u8]>> = rows.iter().map(|rows| Some(bytemuck::cast_slice(rows))).collect();
        let mut targets = [std::mem::take(&mut self.blocks[pull.to.0])];
        let sources = [&self.blocks[pull.from.0][..]];
        let messages = Messages { first: &first, pairs: 1, dim, is_long: false };
        let mut work = Work::new(crossing, None, messages, &sources, &mut targets);
        while work.step(&arrived) {}
        let [target] = targets;
        self.blocks[pull.to.0] = target;
        Ok(())
    }
}
