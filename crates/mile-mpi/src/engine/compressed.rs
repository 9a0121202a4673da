//! An exchange of compressed messages: what crosses ranks is what agents on a network would send.

use mile::agents::{AgentsError, CompressedPull};
use mile::real::Real;

use super::RankEngine;
use crate::transport::Transport;
use crate::work::{Messages, Work};

impl<T: Real, C: Transport> RankEngine<'_, T, C> {
    /// Sends and receives messages, and adds up the vectors that they tell.
    pub(super) fn exchange_compressed(&mut self, pull: &CompressedPull) -> Result<(), AgentsError> {
        let (dim, by, crossing) = (self.dim, pull.by, &self.crossing.1);
        let bytes = by.message_bytes::<T>(dim);
        let source = &self.blocks[pull.from.0][..];
        let packed: Vec<Vec<u8>> = crossing
            .peers
            .iter()
            .map(|peer| {
                let mut message = Vec::with_capacity(peer.sends.len() * bytes);
                peer.sends
                    .iter()
                    .for_each(|row| by.encode(&source[row * dim..(row + 1) * dim], &mut message));
                message
            })
            .collect();
        let mut room: Vec<Vec<u8>> =
            crossing.peers.iter().map(|peer| vec![0; peer.receives.len() * bytes]).collect();
        let ranks = || crossing.peers.iter().map(|peer| peer.rank);
        let sends: Vec<(usize, &[u8])> = ranks().zip(packed.iter().map(|message| &message[..])).collect();
        let mut receives: Vec<(usize, &mut [u8])> =
            ranks().zip(room.iter_mut().map(|message| &mut message[..])).collect();
        self.transport.exchange(&sends, &mut receives, &mut |_| false).map_err(AgentsError::Engine)?;

        let mut rows: Vec<Vec<T>> = Vec::with_capacity(room.len());
        for message in &room {
            let mut vectors = vec![T::zero(); message.len() / bytes.max(1) * dim];
            for (message, vector) in
                message.chunks_exact(bytes.max(1)).zip(vectors.chunks_exact_mut(dim.max(1)))
            {
                by.decode(message, vector).map_err(|error| AgentsError::Engine(error.into()))?;
            }
            rows.push(vectors);
        }
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
