//! What ranks compute together: numbers, rows and sums over all agents, in increasing agent; and what ranks that exchange rows compute.
//!
//! The order of summation is that of the agents' numbers, so ranks cannot form partial sums and then add those: the bits
//! would differ. Instead every rank gets a range of columns of all agents' rows, adds them in order, and all ranks get the sums of all
//! columns. A rank sends its rows once, and all add at the same time.

use mile::agents::Failure;
use mile::compression::Compression;
use mile::ranks::Together;
use mile::real::Real;
use mile::steady::{Summaries, share, steadiness, summary_len};

use crate::exchange::{Crossing, RankPeer, Source};
use crate::placement::Placement;
use crate::transport::RankTransport;

/// Bytes of other ranks' rows that a rank holds at a time.
const ROOM: usize = 32 << 20;

/// Numbers of all agents in increasing agent, from those of the hosted ones in the order of their rows: equally many for each agent.
pub fn of_all(
    transport: &dyn RankTransport,
    together: Together<'_>,
    placement: &Placement,
    own: &[f64],
) -> Result<Vec<f64>, Failure> {
    let hosted = placement.agents(transport.rank()).len();
    let width = own.len() / hosted.max(1);
    let parts = transport.all_gather(together, bytemuck::cast_slice(own))?;
    let mut all = vec![0.0; width * placement.places(placement.ranks() - 1).end];
    for (rank, part) in parts.iter().enumerate() {
        let numbers: Vec<f64> = bytemuck::pod_collect_to_vec(part);
        for (agent, own) in placement.agents(rank).iter().zip(numbers.chunks_exact(width.max(1))) {
            all[agent * width..(agent + 1) * width].copy_from_slice(own);
        }
    }
    Ok(all)
}

/// The row of an agent, read by its rank, given its number among the rows hosted there.
pub fn row<T: Real>(
    transport: &dyn RankTransport,
    together: Together<'_>,
    placement: &Placement,
    agent: usize,
    read: impl FnOnce(usize) -> Result<Vec<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    let rank = placement.rank_of(agent);
    let mut bytes = Vec::new();
    if rank == transport.rank() {
        let row = read(placement.place_of(agent) - placement.places(rank).start)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&row));
    }
    transport.broadcast(together, rank, &mut bytes)?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// The summaries of the hosted agents and of those whose rows cross to here. They determine the weights of an exchange that depends on how
/// [steady](mile::steady) differences are.
#[derive(Clone, Debug)]
pub struct KnownSummaries {
    own: Summaries,
    /// Those of each peer.
    others: Vec<Summaries>,
}

impl KnownSummaries {
    fn of(&self, source: Source) -> &[f64] {
        match source {
            Source::Here(row) => self.own.agent(row),
            Source::From(peer, row) => self.others[peer].agent(row),
        }
    }

    /// The exchange with the weights `w_ij rho_ij`.
    pub fn shares(&self, crossing: &Crossing) -> Crossing {
        crossing.weighed(|row, w, source| w * share(self.own.agent(row), self.of(source)))
    }

    /// The r of every hosted agent after the exchange.
    pub fn steadiness(&self, crossing: &Crossing, fresh: f64) -> Vec<f64> {
        let terms = |row| crossing.terms(row).iter().map(|(w, source)| (*w, self.of(*source)));
        (0..crossing.rows()).map(|row| steadiness(self.own.agent(row), fresh, terms(row))).collect()
    }
}

/// The summaries of all agents whose rows are needed here, from those of the hosted ones.
pub fn summaries(
    transport: &dyn RankTransport,
    peers: &[RankPeer],
    own: Summaries,
    dim: usize,
) -> Result<KnownSummaries, Failure> {
    let of = |peer: &RankPeer| peer.sends.iter().flat_map(|row| own.agent(*row)).copied().collect();
    let packed: Vec<Vec<f64>> = peers.iter().map(of).collect();
    let room = |peer: &RankPeer| vec![0.0; peer.receives.len() * summary_len(dim)];
    let mut room: Vec<Vec<f64>> = peers.iter().map(room).collect();
    let sends = peers.iter().zip(&packed).map(|(peer, packed)| (peer.rank, bytemuck::cast_slice(packed)));
    let receives =
        peers.iter().zip(&mut room).map(|(peer, room)| (peer.rank, bytemuck::cast_slice_mut(room)));
    let (sends, mut receives): (Vec<_>, Vec<_>) = (sends.collect(), receives.collect());
    transport.exchange(&sends, &mut receives, &mut |_| false)?;
    let others = room.into_iter().map(|numbers| Summaries::from_numbers(numbers, dim)).collect();
    Ok(KnownSummaries { own, others })
}

/// The rows of each peer's agents that are needed here, from messages that encode rows in compressed form.
pub fn compressed<T: Real>(
    transport: &dyn RankTransport,
    peers: &[RankPeer],
    by: Compression,
    rows: &[T],
    dim: usize,
) -> Result<Vec<Vec<T>>, Failure> {
    let bytes = by.message_bytes::<T>(dim);
    let message = |peer: &RankPeer| {
        let mut message = Vec::with_capacity(peer.sends.len() * bytes);
        peer.sends.iter().for_each(|row| by.encode(&rows[row * dim..(row + 1) * dim], &mut message));
        message
    };
    let packed: Vec<Vec<u8>> = peers.iter().map(message).collect();
    let mut room: Vec<Vec<u8>> = peers.iter().map(|peer| vec![0; peer.receives.len() * bytes]).collect();
    let sends = peers.iter().zip(&packed).map(|(peer, message)| (peer.rank, &message[..]));
    let receives = peers.iter().zip(&mut room).map(|(peer, message)| (peer.rank, &mut message[..]));
    let (sends, mut receives): (Vec<_>, Vec<_>) = (sends.collect(), receives.collect());
    transport.exchange(&sends, &mut receives, &mut |_| false)?;
    let decoded = |message: &Vec<u8>| {
        let messages = message.chunks_exact(bytes.max(1));
        let mut vectors = vec![T::zero(); messages.len() * dim];
        for (message, vector) in messages.zip(vectors.chunks_exact_mut(dim.max(1))) {
            by.decode(message, vector)?;
        }
        Ok(vectors)
    };
    room.iter().map(decoded).collect()
}

/// The rows of each peer's agents that are needed here, from those of the hosted agents.
pub fn rows<T: Real>(
    transport: &dyn RankTransport,
    peers: &[RankPeer],
    rows: &[T],
    dim: usize,
) -> Result<Vec<Vec<T>>, Failure> {
    let of = |peer: &RankPeer| {
        peer.sends.iter().flat_map(|row| &rows[row * dim..(row + 1) * dim]).copied().collect()
    };
    let packed: Vec<Vec<T>> = peers.iter().map(of).collect();
    let mut room: Vec<Vec<T>> = peers.iter().map(|peer| vec![T::zero(); peer.receives.len() * dim]).collect();
    let sends = peers.iter().zip(&packed).map(|(peer, rows)| (peer.rank, bytemuck::cast_slice(rows)));
    let receives =
        peers.iter().zip(&mut room).map(|(peer, rows)| (peer.rank, bytemuck::cast_slice_mut(rows)));
    let (sends, mut receives): (Vec<_>, Vec<_>) = (sends.collect(), receives.collect());
    transport.exchange(&sends, &mut receives, &mut |_| false)?;
    Ok(room)
}

/// The sums over all agents of `dim` columns, from the rows of the hosted ones.
pub fn sum<T: Real>(
    transport: &dyn RankTransport,
    together: Together<'_>,
    placement: &Placement,
    rows: &[T],
    dim: usize,
) -> Result<Vec<f64>, Failure> {
    sum_in_blocks(transport, together, placement, rows, dim, ROOM)
}

fn sum_in_blocks<T: Real>(
    transport: &dyn RankTransport,
    together: Together<'_>,
    placement: &Placement,
    rows: &[T],
    dim: usize,
    room: usize,
) -> Result<Vec<f64>, Failure> {
    let ranks = placement.ranks();
    let agents: usize = (0..ranks).map(|rank| placement.agents(rank).len()).sum();
    let each = (room / (agents * size_of::<T>()).max(1)).max(1);
    let mut sums = Vec::with_capacity(dim);
    for first in (0..dim).step_by(each * ranks) {
        let width = (dim - first).min(each * ranks);
        sums.extend(sum_block(transport, together, placement, rows, dim, first, width)?);
    }
    Ok(sums)
}

/// The sums of `width` columns from `first` on; each rank computes an equal part of them.
fn sum_block<T: Real>(
    transport: &dyn RankTransport,
    together: Together<'_>,
    placement: &Placement,
    rows: &[T],
    dim: usize,
    first: usize,
    width: usize,
) -> Result<Vec<f64>, Failure> {
    let (rank, ranks) = (transport.rank(), placement.ranks());
    let columns = |rank: usize| first + rank * width / ranks..first + (rank + 1) * width / ranks;
    let others = || (0..ranks).filter(move |other| *other != rank);
    let mine = columns(rank);
    let packed: Vec<Vec<T>> = others()
        .map(|other| rows.chunks_exact(dim).flat_map(|row| row[columns(other)].iter().copied()).collect())
        .collect();
    let mut received: Vec<Vec<T>> =
        others().map(|other| vec![T::zero(); placement.agents(other).len() * mine.len()]).collect();
    let sends: Vec<(usize, &[u8])> =
        others().zip(&packed).map(|(other, rows)| (other, bytemuck::cast_slice(rows))).collect();
    let mut receives: Vec<(usize, &mut [u8])> =
        others().zip(&mut received).map(|(other, rows)| (other, bytemuck::cast_slice_mut(rows))).collect();
    transport.exchange(&sends, &mut receives, &mut |_| false)?;
    let mut sums = vec![0.0; mine.len()];
    let agents = placement.places(ranks - 1).end;
    for agent in 0..agents {
        let of = placement.rank_of(agent);
        let row = placement.place_of(agent) - placement.places(of).start;
        let row = match of {
            _ if of == rank => &rows[row * dim..(row + 1) * dim][mine.clone()],
            _ => &received[of - usize::from(of > rank)][row * mine.len()..(row + 1) * mine.len()],
        };
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value.wide());
    }
    let all = transport.all_gather(together, bytemuck::cast_slice(&sums))?;
    Ok(all.iter().flat_map(|part| bytemuck::pod_collect_to_vec::<u8, f64>(part)).collect())
}

#[cfg(test)]
mod tests {
    use mile::block;
    use mile::graph::{Graph, Topology};
    use mile::ranks::Ranks;

    use super::*;
    use crate::threads::Threads;

    #[test]
    fn sums_have_the_bits_of_one_process_wherever_agents_are() {
        let grid = Topology::Grid.build(12, 0).unwrap();
        let shuffled = Graph::from_edges(12, grid.edges().map(|(i, j)| (i * 5 % 12, j * 5 % 12))).unwrap();
        for dim in [1, 2, 7, 100] {
            let all: Vec<f32> = (0..12 * dim).map(|k| ((k * 7919 % 2003) as f32).sin() * 1e3).collect();
            let mut expected = vec![0.0; dim];
            block::add_rows(&mut expected, &all);
            for ranks in [1, 2, 5, 12] {
                for room in [1, 500, 1 << 20] {
                    let placement = Placement::of(&shuffled, ranks);
                    let found = Threads::run(ranks, |rank| {
                        let own = placement.agents(rank.rank()).iter();
                        let rows: Vec<f32> = own.flat_map(|k| all[k * dim..(k + 1) * dim].to_vec()).collect();
                        sum_in_blocks(&rank, Together::of(&rank), &placement, &rows, dim, room).unwrap()
                    });
                    assert!(found.iter().all(|found| *found == expected), "{dim} columns, {ranks} ranks");
                }
            }
        }
    }
}
