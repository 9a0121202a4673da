//! Tables on the device.

use mile::problems::{Batch, Draw, Loss, Shard, Table};
use mile::real::Real;

use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::kernels;
use crate::objective::Objective;
use crate::parameters::Parameters;
use crate::queue::{Kernels, Queue};

/// Threads of a block; columns and lanes of a block that sums are 32 and 8, as the kernels have it.
const THREADS: u32 = 256;
const COLUMNS: usize = 32;
const LANES: usize = 8;
/// Rows of a lane from which on a sum is split.
const ROWS_OF_A_LANE: usize = 64;
/// Most splits of a sum.
const MOST_SPLITS: usize = 128;

pub(crate) struct DeviceTable {
    kernels: Kernels,
    features: Buffer,
    targets: Buffer,
    first_row: Buffer,
    rows: Buffer,
    factors: Buffer,
    slopes: Buffer,
    sums: Buffer,
    batch: Batch,
    /// Samples of each agent.
    samples: Vec<usize>,
    /// Most rows of an agent's gradient.
    most: usize,
    splits: usize,
    columns: usize,
    classes: usize,
    penalised: usize,
    stride: usize,
    loss: Argument,
    parameter: Argument,
    l2: f64,
}

/// The number of a loss in the kernels, and its parameter.
fn loss_number(loss: Loss) -> (u32, f64) {
    match loss {
        Loss::LeastSquares => (0, 0.0),
        Loss::Logistic => (1, 0.0),
        Loss::NonconvexLogistic => (2, 0.0),
        Loss::Softmax { .. } => (3, 0.0),
        Loss::Poisson => (4, 0.0),
        Loss::Huber { delta } => (5, delta),
        Loss::Welsch { c } => (6, c),
    }
}

impl DeviceTable {
    pub(crate) fn new<T: Real>(queue: &Queue, table: &Table<T>, stride: usize) -> Result<Self, DeviceError> {
        let (number, parameter) = loss_number(table.terms().loss);
        let (device, shards, batch) = (&queue.device, table.shards(), table.batch());
        let samples = table.rows();
        let used = |all: usize| match batch {
            Batch::Full => all,
            Batch::Size(size) | Batch::Epoch(size) => size,
        };
        let rows: Vec<u32> = samples.iter().map(|all| used(*all) as u32).collect();
        let most = rows.iter().copied().max().unwrap_or(0) as usize;
        let first_row: Vec<u64> = samples
            .iter()
            .scan(0, |next, rows| Some(std::mem::replace(next, *next + *rows as u64)))
            .collect();
        let (columns, classes) = (table.columns(), table.terms().loss.classes());
        let splits = most.div_ceil(LANES * ROWS_OF_A_LANE).clamp(1, MOST_SPLITS);
        let of = |part: fn(&Shard<T>) -> &[T]| {
            let all: Vec<T> = shards.iter().flat_map(|shard| part(shard).iter().copied()).collect();
            Buffer::of(device, &all)
        };
        let intercept = table.terms().intercept && columns > 0;
        Ok(Self {
            kernels: queue
                .kernels(&kernels::objectives::<T>(), &["table_slopes", "table_sums", "table_gradient"])?,
            features: of(|shard| &shard.features)?,
            targets: of(|shard| &shard.targets)?,
            first_row: Buffer::of(device, &first_row)?,
            rows: Buffer::of(device, &rows)?,
            factors: Buffer::of(device, table.factors())?,
            slopes: Buffer::new::<T>(device, shards.len() * classes * most)?,
            sums: Buffer::new::<f64>(device, shards.len() * splits * classes * columns)?,
            batch,
            samples,
            most,
            splits,
            columns,
            classes,
            penalised: columns - usize::from(intercept),
            stride,
            loss: Argument::Whole(number),
            parameter: kernels::number(T::of(parameter)),
            l2: table.terms().l2,
        })
    }
}

impl Objective for DeviceTable {
    fn draw(&self, draw: Draw, parameters: &mut Parameters) -> usize {
        if self.batch == Batch::Full {
            return 0;
        }
        let of = |(agent, all): (usize, &usize)| self.batch.samples(*all, agent, draw).map(|row| row as u32);
        let rows: Vec<u32> = self.samples.iter().enumerate().flat_map(of).collect();
        parameters.add(&rows)
    }

    fn gradient(&self, x: &Buffer, g: &Buffer, draw: Argument) -> Result<(), DeviceError> {
        let whole = |value: usize| Argument::Whole(value as u32);
        let agents = self.samples.len();
        let samples = if self.batch == Batch::Full { Argument::Pointer(0) } else { draw };
        let blocks = |numbers: usize| numbers.div_ceil(THREADS as usize).max(1) as u32;
        let stride = Argument::Long(self.stride as u64);
        let (most, columns, classes) = (whole(self.most), whole(self.columns), whole(self.classes));
        // SAFETY: the types are those of the kernels; rows of x, g and the table are within their buffers, and those of a mini-batch are
        // below the agent's number of samples.
        unsafe {
            let grid = Grid::new([blocks(self.most), agents as u32, 1], THREADS);
            let (features, targets) = (self.features.at(), self.targets.at());
            let (slopes, first_row, rows) = (self.slopes.at(), self.first_row.at(), self.rows.at());
            let arguments = [
                x.at(),
                slopes,
                features,
                targets,
                first_row,
                rows,
                samples,
                most,
                columns,
                classes,
                stride,
                self.loss,
                self.parameter,
            ];
            self.kernels.launch("table_slopes", grid, &arguments)?;
            let tiles = self.columns.div_ceil(COLUMNS) as u32;
            let grid = Grid::new([tiles, self.splits as u32, (agents * self.classes) as u32], THREADS);
            let sums = self.sums.at();
            let arguments = [slopes, sums, features, first_row, rows, samples, most, columns, classes];
            self.kernels.launch("table_sums", grid, &arguments)?;
            let grid = Grid::new([blocks(self.columns * self.classes), agents as u32, 1], THREADS);
            let (factors, splits, penalised) = (self.factors.at(), whole(self.splits), whole(self.penalised));
            let l2 = Argument::Double(self.l2);
            let arguments = [
                x.at(),
                g.at(),
                sums,
                factors,
                rows,
                splits,
                columns,
                classes,
                penalised,
                stride,
                self.loss,
                l2,
            ];
            self.kernels.launch("table_gradient", grid, &arguments)
        }
    }
}
