//! The vectors of all agents in the device's memory, and the kernels of the verbs.

use std::marker::PhantomData;

use mile::agents::Vector;
use mile::problems::Penalty;
use mile::real::Real;
use mile::sparse::SparseRows;

use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::kernels;
use crate::queue::{Kernels, Queue};

/// Threads of a block.
const THREADS: u32 = 256;
/// Rows begin at multiples of so many bytes, for accesses of sixteen bytes.
const ALIGNMENT: usize = 16;
/// Blocks that sum the squares of one agent: fixed, so that the bits do not depend on the device.
const SQUARES: u32 = 32;

/// The vectors of a method, each a row for every agent.
pub(crate) struct Vectors<T> {
    queue: Queue,
    kernels: Kernels,
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
    mean: Buffer,
    /// Sums of squares of blocks, and their total.
    squares: Buffer,
    total: Buffer,
    marker: PhantomData<T>,
}

fn names() -> Vec<String> {
    let combines = (0..=8).flat_map(|k| [format!("combine_{k}"), format!("replace_{k}")]);
    combines.chain(["pull", "prox", "fill", "mean", "squares", "total"].map(str::to_owned)).collect()
}

impl<T: Real> Vectors<T> {
    /// So many vectors of zeros, agents and numbers in a row.
    pub(crate) fn new(
        queue: &Queue,
        penalty: Option<&Penalty>,
        weights: &SparseRows,
        [count, agents, dim]: [usize; 3],
    ) -> Result<Self, DeviceError> {
        let device = &queue.device;
        let stride = dim.next_multiple_of(ALIGNMENT / size_of::<T>());
        let needed = [count, agents, stride, size_of::<T>()]
            .into_iter()
            .fold(1u64, |all, n| all.saturating_mul(n as u64));
        let available = device.available()?;
        if needed > available {
            let what = format!(" for {count} vectors of {agents} agents with {dim} numbers each");
            return Err(DeviceError::Memory { needed, available, what });
        }
        let whole =
            |values: &mut dyn Iterator<Item = usize>| values.map(|value| value as u32).collect::<Vec<_>>();
        let starts = whole(&mut weights.starts.iter().copied());
        let columns = whole(&mut weights.entries.iter().map(|(j, _)| *j));
        let values: Vec<T> = weights.entries.iter().map(|(_, w)| T::of(*w)).collect();
        let penalised = penalty.map(|penalty| (0..dim).map(|k| u8::from(penalty.has(k))).collect::<Vec<_>>());
        let vectors = Self {
            queue: queue.clone(),
            kernels: queue.kernels(&kernels::verbs::<T>(), &names())?,
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
            squares: Buffer::new::<f64>(device, agents * SQUARES as usize)?,
            total: Buffer::new::<f64>(device, 1)?,
            marker: PhantomData,
        };
        (0..count).try_for_each(|v| vectors.fill(Vector(v), T::zero()))?;
        Ok(vectors)
    }

    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn buffer(&self, v: Vector) -> &Buffer {
        &self.buffers[v.0]
    }

    /// A vector, row after row.
    pub(crate) fn get(&self, v: Vector) -> Result<Vec<T>, DeviceError> {
        let mut rows = vec![T::zero(); self.agents * self.stride];
        self.buffers[v.0].read(0, &mut rows)?;
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

    fn numbers(&self) -> usize {
        self.agents * self.stride
    }

    fn shape(&self) -> [Argument; 2] {
        [Argument::Long(self.dim as u64), Argument::Long(self.stride as u64)]
    }

    /// Threads for all numbers of a vector, sixteen bytes each.
    fn grid(&self) -> Grid {
        Grid::over(self.numbers() * size_of::<T>() / ALIGNMENT, THREADS, self.queue.busy())
    }

    /// `y <- keep y + sum_k a_k v_k` with (keep, a_0, ...) at `coefficients`; if it `replaces` y, keep is 0 and the old y is not read.
    pub(crate) fn combine(
        &self,
        y: Vector,
        replaces: bool,
        terms: &[Vector],
        coefficients: Argument,
    ) -> Result<(), DeviceError> {
        let name = format!("{}_{}", if replaces { "replace" } else { "combine" }, terms.len());
        let mut arguments = vec![self.buffers[y.0].at(), coefficients, Argument::Long(self.numbers() as u64)];
        arguments.extend(terms.iter().map(|v| self.buffers[v.0].at()));
        arguments.resize(3 + 8, Argument::Pointer(0));
        // SAFETY: the types are those of the kernel, all vectors have so many numbers, and there are 1 + terms coefficients.
        unsafe { self.kernels.launch(&name, self.grid(), &arguments) }
    }

    /// `to <- (W - I) from`, with the weights of all edges or with those of a round.
    pub(crate) fn pull(
        &self,
        from: Vector,
        to: Vector,
        weights: Option<Argument>,
    ) -> Result<(), DeviceError> {
        let wide = self.stride * size_of::<T>() / ALIGNMENT;
        let most = (4 * self.queue.busy() / self.agents as u32).clamp(1, 65_535);
        let Grid { blocks: [columns, ..], .. } = Grid::over(wide, THREADS, most);
        let grid = Grid::new([self.agents as u32, columns, 1], THREADS);
        let weights = weights.unwrap_or_else(|| self.weights.at());
        let (from, to) = (self.buffers[from.0].at(), self.buffers[to.0].at());
        let stride = Argument::Long(self.stride as u64);
        let arguments = [from, to, self.starts.at(), self.columns.at(), weights, stride];
        // SAFETY: the types are those of the kernel; columns of the matrix are agents, and the vectors have a row for each.
        unsafe { self.kernels.launch("pull", grid, &arguments) }
    }

    /// The proximal step with the threshold at `threshold`.
    pub(crate) fn prox(&self, x: Vector, threshold: Argument) -> Result<(), DeviceError> {
        let Some(penalised) = &self.penalised else { return Ok(()) };
        let Grid { blocks: [columns, ..], .. } = Grid::over(self.dim, THREADS, 1024);
        let grid = Grid::new([columns, self.agents as u32, 1], THREADS);
        let [dim, stride] = self.shape();
        // SAFETY: the types are those of the kernel; there is a flag for each column.
        unsafe {
            self.kernels.launch(
                "prox",
                grid,
                &[self.buffers[x.0].at(), threshold, penalised.at(), dim, stride],
            )
        }
    }

    /// Sets all numbers of a vector.
    pub(crate) fn fill(&self, v: Vector, value: T) -> Result<(), DeviceError> {
        let arguments =
            [self.buffers[v.0].at(), kernels::number(value), Argument::Long(self.numbers() as u64)];
        let grid = Grid::over(self.numbers(), THREADS, self.queue.busy());
        // SAFETY: the types are those of the kernel, and the vector has so many numbers.
        unsafe { self.kernels.launch("fill", grid, &arguments) }
    }

    fn mean_on_device(&self, v: Vector) -> Result<(), DeviceError> {
        let [dim, stride] = self.shape();
        let arguments =
            [self.buffers[v.0].at(), self.mean.at(), Argument::Whole(self.agents as u32), dim, stride];
        // SAFETY: the types are those of the kernel; the mean has room for a row.
        unsafe { self.kernels.launch("mean", Grid::over(self.dim, THREADS, self.queue.busy()), &arguments) }
    }

    /// The mean over agents.
    pub(crate) fn mean(&self, v: Vector) -> Result<Vec<f64>, DeviceError> {
        self.mean_on_device(v)?;
        let mut mean = vec![0.0; self.dim];
        self.mean.read(0, &mut mean)?;
        Ok(mean)
    }

    /// The squared distances of all rows from `centre`.
    fn squares(&self, v: Vector, centre: Argument) -> Result<f64, DeviceError> {
        let [dim, stride] = self.shape();
        let count = self.agents as u32 * SQUARES;
        // SAFETY: the types are those of the kernels; there is room for a sum of each block.
        unsafe {
            let arguments = [self.buffers[v.0].at(), centre, self.squares.at(), dim, stride];
            self.kernels.launch(
                "squares",
                Grid::new([SQUARES, self.agents as u32, 1], THREADS),
                &arguments,
            )?;
            let arguments = [self.squares.at(), self.total.at(), Argument::Whole(count)];
            self.kernels.launch("total", Grid::new([1, 1, 1], THREADS), &arguments)?;
        }
        let mut total = [0.0];
        self.total.read(0, &mut total)?;
        Ok(total[0])
    }

    /// The sum of squares of all rows.
    pub(crate) fn norm_sq(&self, v: Vector) -> Result<f64, DeviceError> {
        self.squares(v, Argument::Pointer(0))
    }

    /// `(1/N) sum_i |mean - v_i|^2`.
    pub(crate) fn consensus_error(&self, v: Vector) -> Result<f64, DeviceError> {
        self.mean_on_device(v)?;
        Ok(self.squares(v, self.mean.at())? / self.agents as f64)
    }
}
