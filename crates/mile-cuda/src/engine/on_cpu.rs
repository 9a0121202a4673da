//! What has no form on the device, computed on the CPU with copies: gradients of some problems, and steps along matrices.

use mile::agents::{AgentsError, OptimiserStep, Vector};
use mile::problems::Draw;
use mile::real::Real;
use mile::verbs::{LocalWork, Noted, Rows, Verb};
use rayon::prelude::*;

use super::{GpuAgents, engine};
use crate::work::Work;

impl<T: Real> GpuAgents<'_, T> {
    /// One verb at a time, gradients on the CPU.
    pub(super) fn carry_out_with_cpu(&mut self) -> Result<(), AgentsError> {
        self.norm_sq = None;
        for stage in 0..self.noted.stages() {
            for noted in self.noted.stage(stage) {
                if let Verb::Gradient { x, g, draw } = noted.verb {
                    let x = self.read(x).map_err(engine)?;
                    let mut gradients = self.read(g).map_err(engine)?;
                    self.cpu_gradients(&x, draw, noted, &mut gradients)?;
                    let _queue = self.stack.lock();
                    self.vectors.set(g, &gradients).map_err(engine)?;
                } else {
                    let mut work = Work::default();
                    let weights = self.weights_of_round(&mut work);
                    self.lower(noted, weights, &mut work);
                    self.stack.alone(&work).map_err(engine)?;
                }
            }
        }
        Ok(())
    }

    /// A step of an optimiser, with copies of the vectors that it uses.
    pub(super) fn step_on_cpu(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.norm_sq = None;
        let written: Vec<Vector> = step.states().chain([step.x]).collect();
        let used: Vec<Vector> = written.iter().copied().chain(step.reads()).collect();
        let mut copies: Vec<Vec<T>> =
            used.iter().map(|v| self.read(*v)).collect::<Result<_, _>>().map_err(engine)?;
        let place = |v: Vector| Vector(used.iter().position(|other| *other == v).unwrap_or(0));
        let verb = self.noted.noted(Verb::Optimise(OptimiserStep {
            x: place(step.x),
            g: place(step.g),
            inner: step.inner.map(place),
            shift: step.shift.map(place),
            state: place(step.state),
            ..*step
        }));
        let (matrices, own_steps) = (&self.matrices[..], &self.own_steps[..]);
        let work = LocalWork { problem: self.problem, seed: self.seed, matrices, own_steps };
        let dim = self.vectors.dim();
        Rows::each(&self.hosted, &mut copies, dim, true, |rows| rows.carry_out(&verb, &work))?;
        let _queue = self.stack.lock();
        let changed = written.iter().zip(&copies);
        changed.into_iter().try_for_each(|(v, rows)| self.vectors.set(*v, rows)).map_err(engine)
    }

    fn cpu_gradients(
        &self,
        x: &[T],
        draw: u64,
        noted: &Noted,
        gradients: &mut [T],
    ) -> Result<(), AgentsError> {
        let (problem, dim, own_steps) = (self.problem, self.vectors.dim(), &self.own_steps[..]);
        let draw = Draw { seed: self.seed, step: draw };
        let rows = gradients.par_chunks_exact_mut(dim.max(1)).zip(x.par_chunks_exact(dim.max(1)));
        let moving = rows.zip(&self.hosted).filter(|(_, agent)| noted.is_for(**agent, own_steps));
        moving.try_for_each(|((g, x), agent)| {
            problem.sample_gradient(*agent, x, draw, g).map_err(AgentsError::objective(*agent))
        })
    }
}
