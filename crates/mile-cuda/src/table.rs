//! Tables on the device.

use mile::problems::{Batch, Draw, Loss, Shard, Table};
use mile::real::Real;

use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::kernels;
use crate::objective::{Model, Objective, Place, Program};
use crate::queue::{Kernels, Queue};
use crate::script::Script;
use crate::stack::{Shared, Users};
use crate::work::{Descriptors, Kind, Task, Work};

/// Threads of a block; a block that sums has 32 columns and 8 lanes, as in the kernels.
const THREADS: u32 = 256;
const COLUMNS: usize = 32;
const LANES: usize = 8;
/// Rows of a lane from which a sum is split.
const ROWS_OF_A_LANE: usize = 64;
/// Most splits of a sum.
const MOST_SPLITS: usize = 128;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 9 * 8;

/// How many blocks share a sum over `rows` rows.
fn splits(rows: usize) -> usize {
    rows.div_ceil(LANES * ROWS_OF_A_LANE).clamp(1, MOST_SPLITS)
}

/// Gradients and losses of tables with the same columns and the same loss.
struct Tables {
    queue: Queue,
    kernels: Kernels,
    slopes: Buffer,
    sums: Buffer,
    room: usize,
    /// The most rows of a table.
    most: usize,
    columns: usize,
    classes: usize,
    penalised: usize,
    loss: Argument,
    /// The loss's parameter, in the precision of the table and in double precision.
    parameter: [Argument; 2],
    l2: Argument,
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

impl Tables {
    /// Numbers of slopes, or of losses in double precision, and of sums, for one objective.
    fn numbers(&self) -> [usize; 2] {
        [self.classes * self.most, splits(self.most) * self.classes * self.columns]
    }
}

impl Program for Tables {
    fn bytes_of_row(&self) -> u64 {
        self.numbers().into_iter().map(|numbers| numbers as u64 * 8).sum()
    }

    fn reserve(&mut self, rows: usize) -> Result<(), DeviceError> {
        let [slopes, sums] =
            self.numbers().map(|numbers| Buffer::new::<f64>(&self.queue.device, rows * numbers));
        (self.slopes, self.sums, self.room) = (slopes?, sums?, rows);
        Ok(())
    }

    fn room(&self) -> usize {
        self.room
    }

    fn descriptor(&self) -> usize {
        DESCRIPTOR
    }

    /// The extent is the largest number of rows used of a table.
    unsafe fn launch(&self, script: &mut Script, task: Task, rows: Argument, count: usize, extent: usize) {
        let whole = |value: usize| Argument::Whole(value as u32);
        let blocks = |numbers: usize| numbers.div_ceil(THREADS as usize).max(1) as u32;
        let (most, columns, classes) = (whole(self.most), whole(self.columns), whole(self.classes));
        let (slopes, sums, penalised) = (self.slopes.at(), self.sums.at(), whole(self.penalised));
        let by_row = Grid::new([blocks(extent), count as u32, 1], THREADS);
        // SAFETY: the types are those of the kernels; there is room for the slopes and sums of all objectives, and the rest is
        // promised by the caller.
        unsafe {
            if task == Task::Losses {
                let arguments = [rows, slopes, most, columns, classes, self.loss, self.parameter[1]];
                self.kernels.launch(script, "table_values", by_row, &arguments);
                let arguments = [rows, slopes, most, columns, classes, penalised, self.loss, self.l2];
                let grid = Grid::new([count as u32, 1, 1], THREADS);
                return self.kernels.launch(script, "table_losses", grid, &arguments);
            }
            let arguments = [rows, slopes, most, columns, classes, self.loss, self.parameter[0]];
            self.kernels.launch(script, "table_slopes", by_row, &arguments);
            let (tiles, splits) = (self.columns.div_ceil(COLUMNS) as u32, splits(extent));
            let grid = Grid::new([tiles, splits as u32, (count * self.classes) as u32], THREADS);
            let arguments = [rows, slopes, sums, most, columns, classes];
            self.kernels.launch(script, "table_sums", grid, &arguments);
            let grid = Grid::new([blocks(self.columns * self.classes), count as u32, 1], THREADS);
            let arguments = [rows, sums, whole(splits), columns, classes, penalised, self.loss, self.l2];
            self.kernels.launch(script, "table_gradient", grid, &arguments);
        }
    }
}

/// The tables of the agents hosted here.
pub(crate) struct DeviceTable {
    program: usize,
    features: Buffer,
    targets: Buffer,
    weights: Option<Buffer>,
    offsets: Option<Buffer>,
    factors: Vec<f64>,
    batch: Batch,
    /// The agents, and the samples of each.
    hosted: Vec<usize>,
    samples: Vec<usize>,
    /// The first sample of each agent.
    firsts: Vec<usize>,
    /// Bytes of a target, and of the features of a row.
    number: usize,
    row: usize,
}

impl DeviceTable {
    pub(crate) fn new<T: Real>(
        shared: &mut Shared,
        queue: &Queue,
        member: usize,
        table: &Table<T>,
        hosted: &[usize],
    ) -> Result<Self, DeviceError> {
        let (terms, device, all) = (table.terms(), &queue.device, table.rows());
        let samples: Vec<usize> = hosted.iter().map(|agent| all[*agent]).collect();
        let (columns, classes) = (table.columns(), terms.loss.classes());
        // In steps, so that jobs whose tables are divided slightly differently compute together.
        let batch = match table.batch() {
            Batch::Full => 0,
            Batch::Size(size) | Batch::Epoch(size) => size,
        };
        let most = samples.iter().copied().max().unwrap_or(0).max(batch).next_power_of_two();
        let penalised = columns - usize::from(terms.intercept && columns > 0);
        let key = format!("tables {:?} {} {columns} {penalised} {most}", terms.loss, terms.l2.to_bits());
        let make = |queue: &Queue| -> Result<Box<dyn Program>, DeviceError> {
            let names = ["table_slopes", "table_sums", "table_gradient", "table_values", "table_losses"];
            let (number, parameter) = loss_number(terms.loss);
            Ok(Box::new(Tables {
                kernels: queue.kernels(&kernels::objectives::<T>(), &names)?,
                slopes: Buffer::new::<f64>(&queue.device, 1)?,
                sums: Buffer::new::<f64>(&queue.device, 1)?,
                room: 0,
                most,
                columns,
                classes,
                penalised,
                loss: Argument::Whole(number),
                parameter: [kernels::number(T::of(parameter)), Argument::Double(parameter)],
                l2: Argument::Double(terms.l2),
                queue: queue.clone(),
            }))
        };
        let of = |part: fn(&Shard<T>) -> &[T]| {
            let shards = hosted.iter().map(|agent| &table.shards()[*agent]);
            let all: Vec<T> = shards.flat_map(|shard| part(shard).iter().copied()).collect();
            Buffer::of(device, &all)
        };
        // A number for each row if an agent has any; rows of agents without have `usual`.
        let some = |part: fn(&Shard<T>) -> &[T], usual: T| {
            let shards = || hosted.iter().map(|agent| &table.shards()[*agent]);
            if shards().all(|shard| part(shard).is_empty()) {
                return Ok(None);
            }
            let one = |shard: &Shard<T>| match part(shard) {
                [] => vec![usual; shard.targets.len()],
                numbers => numbers.to_vec(),
            };
            Buffer::of(device, &shards().flat_map(one).collect::<Vec<T>>()).map(Some)
        };
        Ok(Self {
            program: shared.program(key, Users { member, rows: samples.len(), together: true }, make)?,
            features: of(|shard| &shard.features)?,
            targets: of(|shard| &shard.targets)?,
            weights: some(|shard| &shard.weights, T::one())?,
            offsets: some(|shard| &shard.offsets, T::zero())?,
            factors: hosted.iter().map(|agent| table.factors()[*agent]).collect(),
            batch: table.batch(),
            hosted: hosted.to_vec(),
            firsts: (0..samples.len()).map(|row| samples[..row].iter().sum()).collect(),
            samples,
            number: size_of::<T>(),
            row: columns * size_of::<T>(),
        })
    }

    /// Rows in a mini-batch of an agent with `all` rows.
    fn used(&self, all: usize) -> usize {
        match self.batch {
            Batch::Full => all,
            Batch::Size(size) | Batch::Epoch(size) => size,
        }
    }

    /// Adds the objective of a row, on the samples at this place of the job's data or on all; returns their number.
    fn row(&self, row: usize, x: Place, out: Place, list: Option<usize>, rows: &mut Descriptors) -> usize {
        let (all, first) = (self.samples[row], self.firsts[row]);
        let used = if list.is_some() { self.used(all) } else { all };
        rows.address(x.row(row)).address(out.row(row));
        rows.address(self.features.at().plus(first * self.row).bits());
        rows.address(self.targets.at().plus(first * self.number).bits());
        for numbers in [&self.weights, &self.offsets] {
            let at = numbers.as_ref().map(|numbers| numbers.at().plus(first * self.number).bits());
            rows.address(at.unwrap_or(0));
        }
        match list {
            Some(list) => rows.place(list),
            None => rows.address(0),
        };
        // What a block sums must not depend on the other jobs.
        rows.numbers(&[self.factors[row]]).two(used, splits(used)).end();
        used
    }
}

impl Objective for DeviceTable {
    fn gradients(&self, of: &[usize], x: Place, out: Place, draw: Option<Draw>, work: &mut Work) {
        let draw = draw.filter(|_| self.batch != Batch::Full);
        let (mut rows, mut most) = (Descriptors::default(), 0);
        for &row in of {
            let list = draw.map(|draw| {
                let drawn = self.batch.samples(self.samples[row], self.hosted[row], draw);
                work.data(&drawn.map(|row| row as u32).collect::<Vec<_>>())
            });
            most = most.max(self.row(row, x, out, list, &mut rows));
        }
        let kind = Kind::Rows { program: self.program, task: Task::Gradients };
        work.add(kind, rows, most, self.samples.len());
    }

    /// The losses of the agents.
    fn numbers(&self) -> usize {
        self.samples.len()
    }

    fn evaluate(&self, models: &[Model], out: u64, work: &mut Work) {
        let (mut rows, mut most) = (Descriptors::default(), 0);
        for (k, model) in models.iter().enumerate() {
            let out = Place { at: out + (k * self.samples.len() * 8) as u64, stride: 8 };
            let x = Place { at: model.at, stride: 0 };
            for row in 0..self.samples.len() {
                most = most.max(self.row(row, x, out, None, &mut rows));
            }
        }
        let kind = Kind::Rows { program: self.program, task: Task::Losses };
        work.add(kind, rows, most, self.samples.len());
    }

    fn losses(&self, losses: &[f64]) -> Vec<f64> {
        losses.to_vec()
    }
}
