//! Exchanges of a rank's agents on a device. Rows that cross ranks go directly from one device's memory to the other's if the transport
//! accepts device memory, otherwise through the host's; the messages are the same.

use mile::agents::{AgentsError, CompressedPull, SteadyPull, Vector};
use mile::real::Real;
use mile::steady::Summaries;
use mile_ranks::exchange::{Crossing, RankPeer, Source};
use mile_ranks::steady::SteadyRows;
use mile_ranks::together;
use mile_ranks::transport::{RankTransport, Region};

use super::engine;
use super::ranks::GpuRank;
use crate::vectors::Crossed;
use crate::work::Work;

impl<T: Real, C: RankTransport> GpuRank<'_, T, C> {
    /// Bytes of `rows` rows on the device.
    pub(super) fn bytes(&self, rows: usize) -> u64 {
        (rows * self.own.vectors.stride() * size_of::<T>()) as u64
    }

    /// Sends the rows of vectors that other ranks need, and returns where the rows needed here are on the device: for each vector,
    /// the rows of all peers.
    pub(super) fn send(&mut self, from: &[Vector]) -> Result<Vec<u64>, AgentsError> {
        let (stride, stack) = (self.own.vectors.stride(), self.own.stack.clone());
        let peers = &self.crossing.peers;
        let list: Vec<usize> = peers.iter().flat_map(|peer| &peer.sends).copied().collect();
        let received: usize = peers.iter().map(|peer| peer.receives.len()).sum();
        if peers.is_empty() {
            return Ok(vec![0; from.len()]);
        }
        let (out, room) = (from.len() * list.len() * stride, from.len() * received * stride);
        let at = self.sent.reserve(&stack, out).map_err(engine)?;
        let others = self.received.reserve(&stack, room).map_err(engine)?;
        let mut work = Work::default();
        for (k, v) in from.iter().enumerate() {
            self.own.vectors.gather(*v, &list, at + self.bytes(k * list.len()), &mut work);
        }
        stack.alone(&work).map_err(engine)?;
        match self.transport.takes_device_memory() {
            true => self.exchange_there(from.len(), at, others)?,
            false => self.exchange_here(from.len(), out, room)?,
        }
        Ok((0..from.len()).map(|k| others + self.bytes(k * received)).collect())
    }

    /// The messages of an exchange, one after the other: for each vector, one for every peer, as its rank and the length in numbers.
    fn messages(&self, vectors: usize, rows: impl Fn(&RankPeer) -> usize) -> Vec<(usize, usize)> {
        let (stride, peers) = (self.own.vectors.stride(), &self.crossing.peers);
        (0..vectors).flat_map(|_| peers).map(|peer| (peer.rank, rows(peer) * stride)).collect()
    }

    /// Exchanges gathered rows through the host's memory: `out` numbers are sent, and there is room for `room`.
    fn exchange_here(&mut self, vectors: usize, out: usize, room: usize) -> Result<(), AgentsError> {
        let (outgoing, incoming) = (
            self.messages(vectors, |peer| peer.sends.len()),
            self.messages(vectors, |peer| peer.receives.len()),
        );
        let stack = self.own.stack.clone();
        let (mut rest, mut rest_of_room) =
            (self.sent.fetch(&stack, out).map_err(engine)?, self.received.here(room));
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for ((to, length), (from, other_length)) in outgoing.into_iter().zip(incoming) {
            let (own, after) = rest.split_at(length);
            let (other, after_it) = rest_of_room.split_at_mut(other_length);
            sends.push((to, bytemuck::cast_slice::<T, u8>(own)));
            receives.push((from, bytemuck::cast_slice_mut::<T, u8>(other)));
            (rest, rest_of_room) = (after, after_it);
        }
        self.transport.exchange(&sends, &mut receives, &mut |_| false).map_err(AgentsError::Engine)?;
        self.received.put(&stack, room).map_err(engine)
    }

    /// Exchanges gathered rows from one device's memory to the other's, from and to these addresses.
    fn exchange_there(&mut self, vectors: usize, from: u64, to: u64) -> Result<(), AgentsError> {
        let regions = |first: u64, messages: Vec<(usize, usize)>| -> Vec<(usize, Region)> {
            let one = |at: &mut u64, (rank, length): (usize, usize)| {
                let region = Region { at: *at, bytes: length * size_of::<T>() };
                *at += region.bytes as u64;
                Some((rank, region))
            };
            messages.into_iter().scan(first, one).collect()
        };
        let sends = regions(from, self.messages(vectors, |peer| peer.sends.len()));
        let receives = regions(to, self.messages(vectors, |peer| peer.receives.len()));
        let stack = self.own.stack.clone();
        // The transport knows nothing of the queue: what is sent must be complete, and nothing may still read the room of the last exchange.
        let _queue = stack.lock();
        stack.device().wait().map_err(engine)?;
        // SAFETY: the regions follow one another in the two buffers, which have room for them; no work is under way, and none can be
        // added while the queue is locked; waiting has made the device the current one of this thread.
        unsafe { self.transport.exchange_regions(&sends, &receives) }.map_err(AgentsError::Engine)
    }

    /// Adds the weights of an exchange: columns are the rows hosted here, followed by those of peers.
    pub(super) fn crossed(&self, crossing: &Crossing, work: &mut Work) -> Crossed {
        let rows = self.own.vectors.agents();
        let mut first = vec![rows];
        first.extend(crossing.peers.iter().scan(rows, |end, peer| {
            *end += peer.receives.len();
            Some(*end)
        }));
        let column = |source: Source| match source {
            Source::Here(row) => row as u32,
            Source::From(peer, row) => (first[peer] + row) as u32,
        };
        let (mut starts, mut columns, mut weights) = (vec![0], Vec::new(), Vec::new());
        for row in 0..rows {
            for (weight, source) in crossing.terms(row) {
                columns.push(column(*source));
                weights.push(T::of(*weight));
            }
            starts.push(columns.len() as u32);
        }
        self.own.vectors.crossed([&starts, &columns], &weights, work)
    }

    /// Sends rows that are compressed, and adds up what they tell.
    pub(super) fn exchange_compressed(
        &mut self,
        pull: &CompressedPull,
        rows: &[T],
    ) -> Result<(), AgentsError> {
        let (dim, stride, stack) =
            (self.own.vectors.dim(), self.own.vectors.stride(), self.own.stack.clone());
        let peers = &self.crossing.peers;
        let told = together::compressed(&*self.transport, peers, pull.by, rows, dim);
        let told = told.map_err(AgentsError::Engine)?.concat();
        let room = told.len() / dim.max(1) * stride;
        let others = self.received.reserve(&stack, room).map_err(engine)?;
        let places = self.received.here(room).chunks_exact_mut(stride.max(1));
        for (place, row) in places.zip(told.chunks_exact(dim.max(1))) {
            place[..dim].copy_from_slice(row);
        }
        self.received.put(&stack, room).map_err(engine)?;
        let mut work = Work::default();
        let matrix = self.crossed(&self.crossing, &mut work);
        self.own.vectors.pull_across(pull.from, pull.to, matrix, others, &mut work);
        stack.alone(&work).map(drop).map_err(engine)
    }
}

impl<T: Real, C: RankTransport> SteadyRows<T> for GpuRank<'_, T, C> {
    fn transport(&self) -> &dyn RankTransport {
        &*self.transport
    }

    fn crossing(&self) -> &Crossing {
        &self.crossing
    }

    fn summaries(&mut self, pull: &SteadyPull) -> Result<Summaries, AgentsError> {
        let (dim, stack) = (self.own.vectors.dim(), self.own.stack.clone());
        let mut work = Work::default();
        self.own.vectors.summaries(pull.from, pull.memory, &mut work);
        stack.alone(&work).map_err(engine)?;
        let _queue = stack.lock();
        let numbers = self.own.vectors.read_summaries().map_err(engine)?;
        Ok(Summaries::from_numbers(numbers, dim))
    }

    fn send_and_add(&mut self, pull: &SteadyPull, weighed: &Crossing) -> Result<(), AgentsError> {
        let others = self.send(&[pull.from])?[0];
        let mut work = Work::default();
        for (to, crossing) in [(pull.to, &self.crossing), (pull.steady, weighed)] {
            let matrix = self.crossed(crossing, &mut work);
            self.own.vectors.pull_across(pull.from, to, matrix, others, &mut work);
        }
        self.own.stack.alone(&work).map(drop).map_err(engine)
    }

    fn remember(&mut self, pull: &SteadyPull, r: Vec<f64>) -> Result<(), AgentsError> {
        let (all, stack) = (0..self.own.vectors.agents(), self.own.stack.clone());
        let mut work = Work::default();
        self.own.vectors.combine(&[all], pull.memory, 0.0, &[(1.0, pull.from)], &mut work);
        stack.alone(&work).map_err(engine)?;
        let r: Vec<T> = r.into_iter().map(T::of).collect();
        let _queue = stack.lock();
        self.own.vectors.set_first(pull.memory, &r).map_err(engine)
    }
}
