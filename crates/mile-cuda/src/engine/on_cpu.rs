//! Gradients of problems that have no form on the device: computed on the CPU, with copies.

use mile::agents::AgentsError;
use mile::problems::Draw;
use mile::real::Real;
use mile::verbs::Verb;
use rayon::prelude::*;

use super::{GpuAgents, engine};
use crate::work::Work;

impl<T: Real> GpuAgents<'_, T> {
    /// One verb at a time, gradients on the CPU.
    pub(super) fn carry_out_with_cpu(&mut self) -> Result<(), AgentsError> {
        self.norm_sq = None;
        for stage in 0..self.noted.stages() {
            for verb in self.noted.stage(stage) {
                if let Verb::Gradient { x, g, draw } = *verb {
                    let x = self.read(x).map_err(engine)?;
                    let gradients = self.cpu_gradients(&x, draw)?;
                    let _queue = self.stack.lock();
                    self.vectors.set(g, &gradients).map_err(engine)?;
                } else {
                    let mut work = Work::default();
                    let weights = self.weights_of_round(&mut work);
                    self.lower(verb, weights, &mut work);
                    self.stack.alone(&work).map_err(engine)?;
                }
            }
        }
        Ok(())
    }

    fn cpu_gradients(&self, x: &[T], draw: u64) -> Result<Vec<T>, AgentsError> {
        let (problem, dim) = (self.problem, self.vectors.dim());
        let draw = Draw { seed: self.seed, step: draw };
        let mut gradients = vec![T::zero(); x.len()];
        let rows = gradients.par_chunks_exact_mut(dim.max(1)).zip(x.par_chunks_exact(dim.max(1)));
        rows.zip(&self.hosted).try_for_each(|((g, x), agent)| {
            problem.sample_gradient(*agent, x, draw, g).map_err(AgentsError::objective(*agent))
        })?;
        Ok(gradients)
    }
}
