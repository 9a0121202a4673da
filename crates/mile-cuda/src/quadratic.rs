//! Quadratic objectives on the device.

use mile::problems::{Draw, Quadratic};
use mile::real::Real;

use crate::device::{Argument, Buffer, DeviceError, Grid};
use crate::kernels;
use crate::objective::Objective;
use crate::parameters::Parameters;
use crate::queue::{Kernels, Queue};

/// Threads of a block, as the kernels have it.
const THREADS: u32 = 256;
/// Most blocks for one agent's columns: each of them sums what all have found.
const MOST_BLOCKS: u32 = 64;

pub(crate) struct DeviceQuadratic {
    kernels: Kernels,
    curvature: Buffer,
    normals: Buffer,
    minimisers: Buffer,
    /// Parts of the two inner products.
    parts: [Buffer; 2],
    agents: usize,
    dim: usize,
    stride: usize,
}

impl DeviceQuadratic {
    pub(crate) fn new<T: Real>(
        queue: &Queue,
        problem: &Quadratic<T>,
        stride: usize,
    ) -> Result<Self, DeviceError> {
        let names = ["quadratic_first", "quadratic_second", "quadratic_third"];
        let (device, agents, dim) = (&queue.device, problem.normals().len(), problem.curvature().len());
        let parts = || Buffer::new::<f64>(device, agents * MOST_BLOCKS as usize);
        Ok(Self {
            kernels: queue.kernels(&kernels::objectives::<T>(), &names)?,
            curvature: Buffer::of(device, problem.curvature())?,
            normals: Buffer::of(device, &problem.normals().concat())?,
            minimisers: Buffer::of(device, &problem.minimisers().concat())?,
            parts: [parts()?, parts()?],
            agents,
            dim,
            stride,
        })
    }
}

impl Objective for DeviceQuadratic {
    fn draw(&self, _: Draw, _: &mut Parameters) -> usize {
        0
    }

    fn gradient(&self, x: &Buffer, g: &Buffer, _: Argument) -> Result<(), DeviceError> {
        let Grid { blocks: [blocks, ..], .. } = Grid::over(self.dim, THREADS, MOST_BLOCKS);
        let grid = Grid::new([blocks, self.agents as u32, 1], THREADS);
        let shape = [Argument::Long(self.dim as u64), Argument::Long(self.stride as u64)];
        let (u, b, d) = (self.normals.at(), self.minimisers.at(), self.curvature.at());
        let [first, second] = &self.parts;
        let with_shape = |arguments: &[Argument]| [arguments, &shape[..]].concat();
        // SAFETY: the types are those of the kernels; x and g have `agents` rows at a distance of `stride`, of which `dim` numbers are
        // used, and the parts have room for all blocks.
        unsafe {
            self.kernels.launch("quadratic_first", grid, &with_shape(&[x.at(), u, b, first.at()]))?;
            let arguments = with_shape(&[x.at(), g.at(), u, b, d, first.at(), second.at()]);
            self.kernels.launch("quadratic_second", grid, &arguments)?;
            self.kernels.launch("quadratic_third", grid, &with_shape(&[g.at(), u, second.at()]))
        }
    }
}
