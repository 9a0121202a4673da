//! What an objective does on the device.

use mile::problems::Draw;

use crate::device::{Argument, DeviceError};
use crate::script::Script;
use crate::work::{Task, Work};

/// Kernels, and memory for intermediate values, for rows of any jobs whose objectives have the same shape. A row is an objective at a
/// point.
pub(crate) trait Program: Send {
    /// Bytes of intermediate values for one row.
    fn bytes_of_row(&self) -> u64;

    /// Makes room for `rows` rows at a time.
    fn reserve(&mut self, rows: usize) -> Result<(), DeviceError>;

    /// How many rows there is room for.
    fn room(&self) -> usize;

    /// Bytes of the descriptor of a row.
    fn descriptor(&self) -> usize;

    /// Launches of a task for `count` rows with descriptors at `rows`, at most as many as there is room for. The largest extent of the
    /// commands is `extent`.
    ///
    /// # Safety
    /// There are `count` descriptors, of buffers that exist until the script has run.
    unsafe fn launch(&self, script: &mut Script, task: Task, rows: Argument, count: usize, extent: usize);
}

/// A vector with a row for each agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: u64,
    /// Bytes from one row to the next; 0 if all agents share one row.
    pub(crate) stride: usize,
}

impl Place {
    pub(crate) fn row(self, row: usize) -> u64 {
        self.at + (row * self.stride) as u64
    }
}

/// A model to be evaluated.
pub(crate) struct Model {
    pub(crate) at: u64,
    /// Whether its metrics are measured here.
    pub(crate) is_measured: bool,
}

/// The objectives of the agents hosted here, on the device.
pub(crate) trait Objective: Send {
    /// Adds `out_i <- grad f_i(x_i)` for these rows, on the samples of a draw, or exactly if no draw is given.
    fn gradients(&self, rows: &[usize], x: Place, out: Place, draw: Option<Draw>, work: &mut Work);

    /// Numbers that [`evaluate`](Self::evaluate) writes for each model.
    fn numbers(&self) -> usize;

    /// Adds the evaluation of models, each of which gets that many numbers at `out`.
    fn evaluate(&self, models: &[Model], out: u64, work: &mut Work);

    /// The losses of the agents, without a penalty, from the numbers of a model.
    fn losses(&self, numbers: &[f64]) -> Vec<f64>;

    /// The metrics from the numbers of a measured model, if they are computed here.
    fn metrics(&self, numbers: &[f64]) -> Option<Vec<f64>> {
        let _ = numbers;
        None
    }
}

/// Bytes that a job needs on the device besides its vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// For this job alone.
    pub(crate) own: u64,
    /// For what one job uses at a time: intermediate values of gradients and evaluations.
    pub(crate) turn: u64,
    /// For data that all jobs share.
    pub(crate) shared: u64,
}
