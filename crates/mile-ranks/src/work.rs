//! What a rank adds up in an exchange while its messages are under way: agents without remote neighbours, in slices, because most MPI
//! libraries progress only when they are called.

use std::ops::Range;

use mile::block::{self, Pulled};
use mile::real::Real;

use crate::exchange::{Crossing, Source};
use crate::transport::Arrived;

/// Elements of rows that are served between two checks of the messages.
const SLICE: usize = 1 << 20;

/// Where the rows of peers are among the messages received.
#[derive(Clone, Copy)]
pub(crate) struct Messages<'w> {
    /// The first message of each peer.
    pub(crate) first: &'w [usize],
    /// Vectors that are exchanged.
    pub(crate) pairs: usize,
    /// Length of a row.
    pub(crate) dim: usize,
    /// Whether each row is a message by itself; otherwise all rows of a peer form one message.
    pub(crate) is_long: bool,
}

impl Messages<'_> {
    /// Message and position of one vector of a peer's row.
    fn place(&self, peer: usize, row: usize, pair: usize) -> (usize, Range<usize>) {
        let k = row * self.pairs + pair;
        match self.is_long {
            true => (self.first[peer] + k, 0..self.dim),
            false => (self.first[peer], k * self.dim..(k + 1) * self.dim),
        }
    }
}

/// What is done while messages are under way.
pub(crate) struct Work<'w, T> {
    crossing: &'w Crossing,
    /// The same with other weights, if what is sent is added up a second time.
    weighed: Option<&'w Crossing>,
    dim: usize,
    messages: Messages<'w>,
    sources: &'w [&'w [T]],
    targets: &'w mut [Vec<T>],
    /// Slices of the inner rows that are done.
    slice: usize,
    /// Number of border rows that are done, from the first on.
    served: usize,
}

impl<'w, T: Real> Work<'w, T> {
    /// All rows of an exchange: for each vector, what is sent here and where the sums go; a single vector has two sums if there are
    /// second weights for it.
    pub(crate) fn new(
        crossing: &'w Crossing,
        weighed: Option<&'w Crossing>,
        messages: Messages<'w>,
        sources: &'w [&'w [T]],
        targets: &'w mut [Vec<T>],
    ) -> Self {
        Self { crossing, weighed, dim: messages.dim, messages, sources, targets, slice: 0, served: 0 }
    }

    /// Whether all rows are done.
    pub(crate) fn is_done(&self) -> bool {
        self.next_slice().is_none() && self.served == self.crossing.border().len()
    }

    /// Does a piece of work, and returns whether it did any.
    pub(crate) fn step(&mut self, arrived: &Arrived<'_>) -> bool {
        if let Some((rows, columns)) = self.next_slice() {
            self.slice += 1;
            let inner = &self.crossing.inner()[rows];
            self.fold(inner, columns, &[]);
            return true;
        }
        // In order, so that what is served is a range: messages arrive at nearly the same time.
        let border = &self.crossing.border()[self.served..];
        let is_here = |(_, source): &(f64, Source)| match source {
            Source::Here(_) => true,
            Source::From(peer, row) => (0..self.sources.len())
                .all(|pair| arrived[self.messages.place(*peer, *row, pair).0].is_some()),
        };
        let most = (SLICE / self.dim.max(1)).max(1);
        let is_ready = |row: &&usize| self.crossing.terms(**row).iter().all(is_here);
        let ready = border.iter().take(most).take_while(is_ready).count();
        if ready == 0 {
            return false;
        }
        let messages: Vec<&[T]> =
            arrived.iter().map(|bytes| bytes.map_or(&[][..], bytemuck::cast_slice)).collect();
        self.fold(&border[..ready], 0..self.dim, &messages);
        self.served += ready;
        true
    }

    /// The next slice of the inner rows: some columns of all of them if rows are long, otherwise some rows.
    fn next_slice(&self) -> Option<(Range<usize>, Range<usize>)> {
        let inner = self.crossing.inner().len();
        if inner * self.dim <= SLICE || self.dim <= block::CHUNK {
            let step = (SLICE / self.dim.max(1)).max(1);
            let first = self.slice * step;
            return (first < inner).then(|| (first..(first + step).min(inner), 0..self.dim));
        }
        let step = (SLICE / inner).next_multiple_of(block::CHUNK) * rayon::current_num_threads();
        let first = self.slice * step;
        (first < self.dim).then(|| (0..inner, first..(first + step).min(self.dim)))
    }

    fn fold(&mut self, rows: &[usize], columns: Range<usize>, messages: &[&[T]]) {
        let (dim, places) = (self.dim, self.messages);
        for (k, target) in self.targets.iter_mut().enumerate() {
            let (pair, crossing) = match self.weighed {
                Some(weighed) => (0, if k == 0 { self.crossing } else { weighed }),
                None => (k, self.crossing),
            };
            let source = self.sources[pair];
            let row_of = |place: &Source| match *place {
                Source::Here(row) => &source[row * dim..(row + 1) * dim],
                Source::From(peer, row) => {
                    let (message, columns) = places.place(peer, row, pair);
                    &messages[message][columns]
                }
            };
            let terms: Vec<(f64, &[T])> = rows
                .iter()
                .flat_map(|row| crossing.terms(*row))
                .map(|(weight, place)| (*weight, row_of(place)))
                .collect();
            let mut rest = &terms[..];
            let pulled: Vec<Pulled<'_, T>> = rows
                .iter()
                .map(|&place| {
                    let (others, after) = rest.split_at(crossing.terms(place).len());
                    rest = after;
                    Pulled { place, own: &source[place * dim..(place + 1) * dim], others }
                })
                .collect();
            block::pull_rows(target, dim, columns.clone(), &pulled);
        }
    }
}
