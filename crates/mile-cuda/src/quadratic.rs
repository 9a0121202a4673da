//! Quadratic objectives on the device.

use mile::problems::{Draw, Quadratic};
use mile::real::Real;

use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::kernels;
use crate::objective::{Model, Objective, Place, Program};
use crate::queue::{Kernels, Queue};
use crate::script::Script;
use crate::stack::{Shared, Users};
use crate::work::{Descriptors, Kind, Task, Work};

/// Threads of a block, as in the kernels.
const THREADS: u32 = 256;
/// Most blocks for the columns of one row: each of them adds up the results of all.
const MOST_BLOCKS: u32 = 64;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 5 * 8;

/// Gradients and losses of rows of one dimension.
struct Quadratics {
    queue: Queue,
    kernels: Kernels,
    /// Parts of the two inner products.
    parts: [Buffer; 2],
    room: usize,
    dim: usize,
}

impl Program for Quadratics {
    fn bytes_of_row(&self) -> u64 {
        2 * u64::from(MOST_BLOCKS) * size_of::<f64>() as u64
    }

    fn reserve(&mut self, rows: usize) -> Result<(), DeviceError> {
        let parts = || Buffer::new::<f64>(&self.queue.device, rows * MOST_BLOCKS as usize);
        self.parts = [parts()?, parts()?];
        self.room = rows;
        Ok(())
    }

    fn room(&self) -> usize {
        self.room
    }

    fn descriptor(&self) -> usize {
        DESCRIPTOR
    }

    unsafe fn launch(&self, script: &mut Script, task: Task, rows: Argument, count: usize, _: usize) {
        let Grid { blocks: [blocks, ..], .. } = Grid::over(self.dim, THREADS, MOST_BLOCKS);
        let grid = Grid::new([blocks, count as u32, 1], THREADS);
        let ([first, second], dim) = (&self.parts, Argument::Long(self.dim as u64));
        // SAFETY: the types are those of the kernels; the parts have room for all blocks, and the rest is promised by the caller.
        unsafe {
            self.kernels.launch(script, "quadratic_first", grid, &[rows, first.at(), dim]);
            if task == Task::Losses {
                let arguments = [rows, first.at(), second.at(), dim];
                self.kernels.launch(script, "quadratic_losses", grid, &arguments);
                let arguments = [rows, second.at(), Argument::Whole(blocks), Argument::Whole(count as u32)];
                let grid = Grid::over(count, THREADS, u32::MAX);
                return self.kernels.launch(script, "quadratic_sums", grid, &arguments);
            }
            let arguments = [rows, first.at(), second.at(), dim];
            self.kernels.launch(script, "quadratic_second", grid, &arguments);
            self.kernels.launch(script, "quadratic_third", grid, &[rows, second.at(), dim]);
        }
    }
}

/// The quadratics of the agents hosted here.
pub(crate) struct DeviceQuadratic {
    program: usize,
    curvature: Buffer,
    normals: Buffer,
    minimisers: Buffer,
    agents: usize,
    /// Bytes of a row.
    row: usize,
}

impl DeviceQuadratic {
    pub(crate) fn new<T: Real>(
        shared: &mut Shared,
        queue: &Queue,
        member: usize,
        problem: &Quadratic<T>,
        hosted: &[usize],
    ) -> Result<Self, DeviceError> {
        let (device, agents, dim) = (&queue.device, hosted.len(), problem.curvature().len());
        let of = |all: &[Vec<T>]| {
            let own: Vec<T> = hosted.iter().flat_map(|agent| all[*agent].iter().copied()).collect();
            Buffer::of(device, &own)
        };
        let make = |queue: &Queue| -> Result<Box<dyn Program>, DeviceError> {
            let names = [
                "quadratic_first",
                "quadratic_second",
                "quadratic_third",
                "quadratic_losses",
                "quadratic_sums",
            ];
            let parts = || Buffer::new::<f64>(&queue.device, 1);
            Ok(Box::new(Quadratics {
                kernels: queue.kernels(&kernels::objectives::<T>(), &names)?,
                parts: [parts()?, parts()?],
                room: 0,
                dim,
                queue: queue.clone(),
            }))
        };
        let users = Users { member, rows: agents, together: true };
        Ok(Self {
            program: shared.program(format!("quadratics of dimension {dim}"), users, make)?,
            curvature: Buffer::of(device, problem.curvature())?,
            normals: of(problem.normals())?,
            minimisers: of(problem.minimisers())?,
            agents,
            row: dim * size_of::<T>(),
        })
    }

    fn rows(&self, of: impl Iterator<Item = usize>, x: Place, out: Place, rows: &mut Descriptors) {
        for agent in of {
            rows.address(x.row(agent)).address(out.row(agent));
            let [u, b] = [&self.normals, &self.minimisers].map(|of| of.at().plus(agent * self.row).bits());
            rows.address(u).address(b).address(self.curvature.at().bits()).end();
        }
    }
}

impl Objective for DeviceQuadratic {
    fn gradients(&self, of: &[usize], x: Place, out: Place, _: Option<Draw>, work: &mut Work) {
        let mut rows = Descriptors::default();
        self.rows(of.iter().copied(), x, out, &mut rows);
        // A draw changes nothing: all gradients are exact, and can be computed together.
        work.add(Kind::Rows { program: self.program, task: Task::Gradients }, rows, 0, self.agents);
    }

    /// The losses of the agents.
    fn numbers(&self) -> usize {
        self.agents
    }

    fn evaluate(&self, models: &[Model], out: u64, work: &mut Work) {
        let mut rows = Descriptors::default();
        for (k, model) in models.iter().enumerate() {
            let out = Place { at: out + (k * self.agents * 8) as u64, stride: 8 };
            self.rows(0..self.agents, Place { at: model.at, stride: 0 }, out, &mut rows);
        }
        work.add(Kind::Rows { program: self.program, task: Task::Losses }, rows, 0, self.agents);
    }

    fn losses(&self, losses: &[f64]) -> Vec<f64> {
        losses.to_vec()
    }
}
