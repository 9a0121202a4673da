//! The vectors of all agents of a job in the device's memory, and the commands of the verbs on them.

use std::marker::PhantomData;
use std::ops::Range;

use mile::agents::{OptimiserStep, Vector};
use mile::optimiser::{AdamNumbers, CLIP_LEAST, norm_lanes};
use mile::problems::Penalty;
use mile::real::Real;
use mile::sparse::SparseRows;
use mile::steady::summary_len;
use mile::verbs::MOST_TERMS;

use crate::device::{Argument, Buffer, DeviceError};
use crate::objective::Place;
use crate::queue::Queue;
use crate::work::{Descriptors, Kind, Work};

/// Rows begin at multiples of this many bytes, for accesses of sixteen bytes.
const ALIGNMENT: usize = 16;
/// Threads of a block that sums, as in the kernels.
const SUM_THREADS: usize = 256;
/// Blocks that sum the squares of one agent: they depend on the dimension alone, so that the bits do not depend on the device.
pub(crate) fn squares(dim: usize) -> usize {
    (dim / 2048).clamp(1, 256)
}

/// Numbers from one row to the next.
pub(crate) fn stride<T: Real>(dim: usize) -> usize {
    dim.next_multiple_of(ALIGNMENT / size_of::<T>())
}

/// The vectors of a method, each a row for every agent.
pub(crate) struct Vectors<T> {
    buffers: Vec<Buffer>,
    agents: usize,
    dim: usize,
    /// Numbers from one row to the next.
    stride: usize,
    /// The mixing matrix: where rows begin, columns, weights.
    starts: Buffer,
    columns: Buffer,
    weights: Buffer,
    /// Whether each column is penalised.
    penalised: Option<Buffer>,
    /// The mean over agents, and the same in the precision of the vectors.
    mean: Buffer,
    rounded: Buffer,
    /// Sums of squares of blocks.
    squares: Buffer,
    /// Summaries of all agents.
    summaries: Buffer,
    /// Sums of the squares of gradients that are clipped, and the factor of each agent.
    norms: Buffer,
    factors: Buffer,
    marker: PhantomData<T>,
}

/// The matrix of an exchange with other ranks, at places of the job's data: where rows begin, columns, weights. Columns from the number of
/// agents on refer to rows of other ranks.
#[derive(Clone, Copy)]
pub(crate) struct Crossed {
    starts: usize,
    columns: usize,
    weights: usize,
}

/// The sum of the results of the blocks of all agents, formed as in the kernel: in the lanes of a block, and then by halves.
pub(crate) fn total(parts: &[f64]) -> f64 {
    let mut sums = [0.0; SUM_THREADS];
    parts.iter().enumerate().for_each(|(k, part)| sums[k % SUM_THREADS] += part);
    let mut half = SUM_THREADS / 2;
    while half > 0 {
        (0..half).for_each(|k| sums[k] += sums[k + half]);
        half /= 2;
    }
    sums[0]
}

fn whole(values: impl Iterator<Item = usize>) -> Vec<u32> {
    values.map(|value| value as u32).collect()
}

/// The address of a buffer.
pub(crate) fn address(at: Argument) -> u64 {
    at.bits()
}

impl<T: Real> Vectors<T> {
    /// This many vectors, agents and numbers in a row. Their contents are unspecified.
    pub(crate) fn new(
        queue: &Queue,
        penalty: Option<&Penalty>,
        weights: &SparseRows,
        [count, agents, dim]: [usize; 3],
    ) -> Result<Self, DeviceError> {
        let device = &queue.device;
        let stride = stride::<T>(dim);
        let needed = [count, agents, stride, size_of::<T>()]
            .into_iter()
            .fold(1u64, |all, n| all.saturating_mul(n as u64));
        let available = device.available()?;
        if needed > available {
            let what = format!(" for {count} vectors of {agents} agents with {dim} numbers each");
            return Err(DeviceError::Memory { needed, available, what });
        }
        let starts = whole(weights.starts.iter().copied());
        let columns = whole(weights.entries.iter().map(|(j, _)| *j));
        let values: Vec<T> = weights.entries.iter().map(|(_, w)| T::of(*w)).collect();
        let penalised = penalty.map(|penalty| (0..dim).map(|k| u8::from(penalty.has(k))).collect::<Vec<_>>());
        Ok(Self {
            buffers: (0..count)
                .map(|_| Buffer::new::<T>(device, agents * stride))
                .collect::<Result<_, _>>()?,
            agents,
            dim,
            stride,
            starts: Buffer::of(device, &starts)?,
            columns: Buffer::of(device, &columns)?,
            weights: Buffer::of(device, &values)?,
            penalised: penalised.map(|penalised| Buffer::of(device, &penalised)).transpose()?,
            mean: Buffer::new::<f64>(device, dim)?,
            rounded: Buffer::new::<T>(device, stride)?,
            squares: Buffer::new::<f64>(device, agents * squares(dim))?,
            summaries: Buffer::new::<f64>(device, agents * summary_len(dim))?,
            norms: Buffer::new::<f64>(device, agents * norm_lanes(dim))?,
            factors: Buffer::new::<f64>(device, agents)?,
            marker: PhantomData,
        })
    }

    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// The number of agents, each of which has a row.
    pub(crate) fn agents(&self) -> usize {
        self.agents
    }

    /// Numbers from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    fn at(&self, v: Vector) -> u64 {
        address(self.buffers[v.0].at())
    }

    /// Where the rows of a vector are.
    pub(crate) fn place(&self, v: Vector) -> Place {
        Place { at: self.at(v), stride: self.stride * size_of::<T>() }
    }

    /// Where the mean is, rounded, after [`mean`](Self::mean).
    pub(crate) fn rounded(&self) -> Place {
        Place { at: address(self.rounded.at()), stride: 0 }
    }

    /// Rows for all agents that are not a vector of the method.
    pub(crate) fn spare(&self, queue: &Queue) -> Result<Buffer, DeviceError> {
        Buffer::new::<T>(&queue.device, self.numbers())
    }

    /// One row of a vector.
    pub(crate) fn get_row(&self, v: Vector, row: usize) -> Result<Vec<T>, DeviceError> {
        let mut numbers = vec![T::zero(); self.dim];
        self.buffers[v.0].read(row * self.stride, &mut numbers)?;
        Ok(numbers)
    }

    /// A vector, row after row.
    pub(crate) fn get(&self, v: Vector) -> Result<Vec<T>, DeviceError> {
        self.rows_in(&self.buffers[v.0])
    }

    /// Rows of all agents, of a vector or [spare](Self::spare).
    pub(crate) fn rows_in(&self, buffer: &Buffer) -> Result<Vec<T>, DeviceError> {
        let mut rows = vec![T::zero(); self.agents * self.stride];
        buffer.read(0, &mut rows)?;
        if self.stride > self.dim {
            for agent in 0..self.agents {
                rows.copy_within(agent * self.stride..agent * self.stride + self.dim, agent * self.dim);
            }
            rows.truncate(self.agents * self.dim);
        }
        Ok(rows)
    }

    /// Replaces a vector.
    pub(crate) fn set(&self, v: Vector, rows: &[T]) -> Result<(), DeviceError> {
        if self.stride == self.dim {
            return self.buffers[v.0].write(0, rows);
        }
        let mut padded = vec![T::zero(); self.agents * self.stride];
        for (to, row) in padded.chunks_exact_mut(self.stride).zip(rows.chunks_exact(self.dim)) {
            to[..self.dim].copy_from_slice(row);
        }
        self.buffers[v.0].write(0, &padded)
    }

    /// The summaries of all agents with a vector that is sent and one that is remembered.
    pub(crate) fn summaries(&self, from: Vector, memory: Vector, work: &mut Work) {
        let (len, size) = (summary_len(self.dim), summary_len(self.dim) / 2);
        for (v, place, has_first) in [(from, 1, 0), (memory, 1 + size, 1)] {
            let mut one = Descriptors::default();
            one.address(self.at(v)).address(address(self.summaries.at())).long(self.dim).long(self.stride);
            one.long(len).long(place).two(self.agents, size).two(has_first, 0).end();
            work.add(Kind::Sketch, one, size, self.agents);
        }
    }

    /// The result of [`summaries`](Self::summaries).
    pub(crate) fn read_summaries(&self) -> Result<Vec<f64>, DeviceError> {
        let mut numbers = vec![0.0; self.agents * summary_len(self.dim)];
        self.summaries.read(0, &mut numbers)?;
        Ok(numbers)
    }

    /// Replaces the first number of every row.
    pub(crate) fn set_first(&self, v: Vector, numbers: &[T]) -> Result<(), DeviceError> {
        let mut each = numbers.iter().enumerate();
        each.try_for_each(|(agent, number)| self.buffers[v.0].write(agent * self.stride, &[*number]))
    }

    fn numbers(&self) -> usize {
        self.agents * self.stride
    }

    /// Where the row of an agent is.
    fn at_row(&self, v: Vector, row: usize) -> u64 {
        self.place(v).row(row)
    }

    /// The most rows in one of these ranges.
    fn most(rows: &[Range<usize>]) -> usize {
        rows.iter().map(Range::len).max().unwrap_or(0)
    }

    /// `y <- keep y + sum_k a_k v_k` in these rows; if keep is 0 the old y is not read.
    pub(crate) fn combine(
        &self,
        rows: &[Range<usize>],
        y: Vector,
        keep: f64,
        terms: &[(f64, Vector)],
        work: &mut Work,
    ) {
        let mut numbers = [T::zero(); 2 + MOST_TERMS];
        numbers[0] = T::of(keep);
        let factors = terms.iter().map(|(a, _)| T::of(*a));
        numbers[1..].iter_mut().zip(factors).for_each(|(number, a)| *number = a);
        let mut each = Descriptors::default();
        for rows in rows {
            let mut at = [0; MOST_TERMS];
            at.iter_mut().zip(terms).for_each(|(at, (_, v))| *at = self.at_row(*v, rows.start));
            each.address(self.at_row(y, rows.start)).addresses(&at);
            each.long(rows.len() * self.stride).numbers(&numbers).end();
        }
        let kind = Kind::Combine { replaces: keep == 0.0 && !terms.is_empty(), terms: terms.len() };
        work.add(kind, each, Self::most(rows) * self.wide(), self.agents);
    }

    /// `to <- (W - I) from`, with the weights of all edges or with those of a round, at this place of the job's data.
    pub(crate) fn pull(&self, from: Vector, to: Vector, weights: Option<usize>, work: &mut Work) {
        let mut one = Descriptors::default();
        one.address(self.at(from)).address(self.at(to));
        one.address(address(self.starts.at())).address(address(self.columns.at()));
        match weights {
            Some(place) => one.place(place),
            None => one.address(address(self.weights.at())),
        };
        one.address(0).long(self.stride).two(self.agents, 0).end();
        work.add(Kind::Pull, one, self.wide(), self.agents);
    }

    /// How many units of sixteen bytes a row has.
    fn wide(&self) -> usize {
        self.stride * size_of::<T>() / ALIGNMENT
    }

    /// Adds the matrix of an exchange with other ranks: where rows begin, columns, and weights.
    pub(crate) fn crossed(&self, [starts, columns]: [&[u32]; 2], weights: &[T], work: &mut Work) -> Crossed {
        Crossed { starts: work.data(starts), columns: work.data(columns), weights: work.data(weights) }
    }

    /// [`pull`](Self::pull) with rows of other ranks, which are at `others`.
    pub(crate) fn pull_across(
        &self,
        from: Vector,
        to: Vector,
        matrix: Crossed,
        others: u64,
        work: &mut Work,
    ) {
        let mut one = Descriptors::default();
        one.address(self.at(from)).address(self.at(to));
        one.place(matrix.starts).place(matrix.columns).place(matrix.weights).address(others);
        one.long(self.stride).two(self.agents, 0).end();
        work.add(Kind::Pull, one, self.wide(), self.agents);
    }

    /// Copies rows of a vector to `to`, one after the other.
    pub(crate) fn gather(&self, from: Vector, rows: &[usize], to: u64, work: &mut Work) {
        let list = work.data(&whole(rows.iter().copied()));
        let mut one = Descriptors::default();
        one.address(self.at(from)).address(to).place(list).long(self.stride).two(rows.len(), 0).end();
        work.add(Kind::Gather, one, self.wide(), rows.len());
    }

    /// The proximal step with this threshold in these rows, if some columns are penalised.
    pub(crate) fn prox(&self, rows: &[Range<usize>], x: Vector, threshold: f64, work: &mut Work) {
        let Some(penalised) = &self.penalised else { return };
        let mut each = Descriptors::default();
        for rows in rows {
            let at = self.at_row(x, rows.start);
            each.address(at).address(address(penalised.at())).long(self.dim).long(self.stride);
            each.two(rows.len(), 0).numbers(&[T::of(threshold), T::zero()]).end();
        }
        work.add(Kind::Prox, each, self.dim, Self::most(rows));
    }

    /// A step of AdamW or AMSGrad in these rows.
    pub(crate) fn adam(&self, rows: &[Range<usize>], step: &OptimiserStep, work: &mut Work) {
        let numbers = AdamNumbers::<T>::of(&step.by);
        let AdamNumbers { first, second, root, eps, keep, step: alpha, factors } = numbers;
        let by = [first[0], first[1], second[0], second[1], root, eps, keep, alpha, factors[0], factors[1]];
        let [m, v, largest] = [0, 1, 2].map(|k| step.states().nth(k));
        let mut each = Descriptors::default();
        for rows in rows {
            let at = |v: Vector| self.at_row(v, rows.start);
            let optional = |v: Option<Vector>| v.map_or(0, at);
            each.address(at(step.x)).addresses(&[m, v, largest].map(optional)).address(at(step.g));
            each.addresses(&[step.inner, step.shift].map(optional));
            each.long(rows.len() * self.stride).numbers(&by).end();
        }
        work.add(Kind::Adam, each, Self::most(rows) * self.wide(), self.agents);
    }

    /// Shortens gradients in these rows to the norm `most`.
    pub(crate) fn clip(&self, rows: &[Range<usize>], g: Vector, most: f64, work: &mut Work) {
        let (lanes, mut each) = (norm_lanes(self.dim), Descriptors::default());
        for rows in rows {
            each.address(self.at_row(g, rows.start));
            each.address(self.norms.from::<f64>(rows.start * lanes).bits());
            each.address(self.factors.from::<f64>(rows.start).bits());
            each.long(self.dim).long(self.stride).long(lanes).two(rows.len(), 0);
            each.numbers(&[most, CLIP_LEAST]).end();
        }
        work.add(Kind::Clip, each, self.dim, Self::most(rows));
    }

    /// Sets all numbers of a vector.
    pub(crate) fn fill(&self, v: Vector, value: T, work: &mut Work) {
        let mut one = Descriptors::default();
        one.address(self.at(v)).long(self.numbers()).numbers(&[value, T::zero()]).end();
        work.add(Kind::Fill, one, self.numbers(), self.agents);
    }

    fn rows(&self, v: u64, centre: u64) -> Descriptors {
        let mut one = Descriptors::default();
        one.address(v).long(self.dim).long(self.stride).two(self.agents, squares(self.dim));
        one.address(address(self.mean.at())).address(address(self.rounded.at())).address(centre);
        one.address(address(self.squares.at())).end();
        one
    }

    /// The mean over agents of rows, exact and rounded.
    pub(crate) fn mean(&self, rows: u64, work: &mut Work) {
        work.add(Kind::Mean, self.rows(rows, 0), self.dim, self.agents);
    }

    /// The sum of squares of all rows.
    pub(crate) fn squares(&self, v: Vector, work: &mut Work) {
        work.add(Kind::Squares, self.rows(self.at(v), 0), self.dim, self.agents);
    }

    /// The squared distances of all rows from their mean.
    pub(crate) fn distances(&self, v: Vector, work: &mut Work) {
        self.mean(self.at(v), work);
        self.distances_from_mean(v, work);
    }

    /// The squared distances of all rows from the mean set by [`set_mean`](Self::set_mean).
    pub(crate) fn distances_from_mean(&self, v: Vector, work: &mut Work) {
        let from_mean = self.rows(self.at(v), address(self.mean.at()));
        work.add(Kind::Squares, from_mean, self.dim, self.agents);
    }

    /// The blocks' results of the last sum of squares, equally many for each agent.
    pub(crate) fn read_squares(&self) -> Result<Vec<f64>, DeviceError> {
        let mut parts = vec![0.0; self.agents * squares(self.dim)];
        self.squares.read(0, &mut parts)?;
        Ok(parts)
    }

    /// Sets the mean over the agents of all ranks, exact and rounded.
    pub(crate) fn set_mean(&self, mean: &[f64]) -> Result<(), DeviceError> {
        self.mean.write(0, mean)?;
        self.rounded.write(0, &mean.iter().map(|m| T::of(*m)).collect::<Vec<T>>())
    }

    /// The result of [`mean`](Self::mean).
    pub(crate) fn read_mean(&self) -> Result<Vec<f64>, DeviceError> {
        let mut mean = vec![0.0; self.dim];
        self.mean.read(0, &mut mean)?;
        Ok(mean)
    }
}
