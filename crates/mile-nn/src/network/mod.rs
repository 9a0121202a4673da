//! Loss, gradient and accuracy of a [`Model`] on given samples, without allocation during a run.
//!
//! A [`NeuralNetwork`] is the model with the kernels chosen for the machine; a [`Workspace`] holds all
//! intermediate values of up to [`CHUNK`] samples. Larger sets are processed chunk by chunk, in order, so
//! results do not depend on the number of threads.

mod backward;
mod forward;
mod phases;
mod transposed;
mod workspace;

use mile::random::{Purpose, stream};
use rand::Rng;

use crate::data::Images;
use crate::kernel::{Isa, KernelScalar, Kernels};
use crate::model::Model;
pub use workspace::Workspace;

/// Most samples that are processed at a time.
pub const CHUNK: usize = 64;

/// Inputs of a dense layer that are summed for all samples before the next ones: a panel of their weights stays in the
/// cache nearest to the core, and all weights are read once.
const DENSE_TAPS: usize = 128;

/// Identifies the dropout masks of one gradient: the same numbers always give the same masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropout {
    /// Seed of the run.
    pub seed: u64,
    /// The agent.
    pub agent: u64,
    /// Number of the draw.
    pub step: u64,
}

/// Loss and number of correct predictions on a set of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Sum of the losses: cross-entropies, or halves of squared distances.
    pub loss: f64,
    /// Number of samples that are classified correctly; 0 where numbers are predicted.
    pub correct: usize,
}

/// A model with the kernels that run it.
#[derive(Clone, Debug)]
pub struct NeuralNetwork<T> {
    model: Model,
    kernels: Kernels<T>,
    /// The value of each byte of a pixel: byte/255.
    pixels: Vec<T>,
}

impl<T: KernelScalar> NeuralNetwork<T> {
    /// The model with the fastest kernels this machine can run.
    pub fn new(model: Model) -> Self {
        Self::with_isa(model, Isa::best())
    }

    /// The model with the kernels of `isa`, or the portable ones if the machine cannot run those.
    pub fn with_isa(model: Model, isa: Isa) -> Self {
        let pixels = (0..256).map(|byte| T::of(f64::from(byte) / 255.0)).collect();
        Self { model, kernels: Kernels::new(isa), pixels }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Memory for gradients and scores of this network.
    pub fn workspace(&self) -> Workspace<T> {
        Workspace::new(&self.model)
    }

    /// Writes the gradient of the mean loss over `samples` of `images` into `gradient` and
    /// returns that mean. With `dropout`, these dropout masks are applied.
    ///
    /// # Panics
    ///
    /// If there are no samples, a sample is not in `images`, or a vector has the wrong length.
    pub fn gradient(
        &self,
        parameters: &[T],
        images: &Images,
        samples: &[u32],
        dropout: Option<Dropout>,
        workspace: &mut Workspace<T>,
        gradient: &mut [T],
    ) -> f64 {
        assert!(!samples.is_empty(), "a gradient needs at least one sample");
        assert_eq!(parameters.len(), self.model.dim(), "the parameter vector has the wrong length");
        assert_eq!(gradient.len(), self.model.dim(), "the gradient vector has the wrong length");
        let mut masks = dropout.map(|d| stream(d.seed, Purpose::Dropout, d.agent, d.step));
        let scale = T::one() / T::of(samples.len() as f64);
        let mut loss = 0.0;
        for (i, chunk) in samples.chunks(CHUNK).enumerate() {
            self.load(images, chunk, workspace);
            self.forward(parameters, chunk.len(), masks.as_mut().map(|rng| rng as &mut dyn Rng), workspace);
            loss += self.output_deltas(images, chunk, scale, workspace);
            self.backward(parameters, chunk.len(), masks.is_some(), workspace, i > 0, gradient);
        }
        loss / samples.len() as f64
    }

    /// Loss and accuracy on `samples`, without dropout.
    pub fn score(
        &self,
        parameters: &[T],
        images: &Images,
        samples: &[u32],
        workspace: &mut Workspace<T>,
    ) -> Score {
        assert_eq!(parameters.len(), self.model.dim(), "the parameter vector has the wrong length");
        let mut total = Score::default();
        for chunk in samples.chunks(CHUNK) {
            self.load(images, chunk, workspace);
            self.forward(parameters, chunk.len(), None, workspace);
            for (row, &sample) in workspace.logits.rows(chunk.len()).zip(chunk) {
                let sample = sample as usize;
                total.loss += forward::loss(row, &images.targets, sample);
                let label = images.labels().get(sample).copied().map(usize::from);
                total.correct += usize::from(label.is_some() && forward::predicted(row) == label);
            }
        }
        total
    }

    /// The outputs, such as the logits of the classes, one row per sample, without dropout.
    pub fn logits(
        &self,
        parameters: &[T],
        images: &Images,
        samples: &[u32],
        workspace: &mut Workspace<T>,
    ) -> Vec<T> {
        assert_eq!(parameters.len(), self.model.dim(), "the parameter vector has the wrong length");
        let mut logits = Vec::with_capacity(samples.len() * self.model.classes());
        for chunk in samples.chunks(CHUNK) {
            self.load(images, chunk, workspace);
            self.forward(parameters, chunk.len(), None, workspace);
            workspace.logits.rows(chunk.len()).for_each(|row| logits.extend_from_slice(row));
        }
        logits
    }
}
