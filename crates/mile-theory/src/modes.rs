//! A method's exact matrix on one mode, extracted by running its own code.
//!
//! When all agents have the same Hessian, the eigenvectors of W and of the Hessian split a method into
//! scalar systems: on the mode with graph eigenvalue `lambda` and curvature `h`, a gradient multiplies by
//! h and an exchange, `(W - I) v`, by lambda - 1. Running one period of the method's own code in this way on the basis
//! vectors gives its matrix column by column.
//!
//! Only the product `a = alpha h` matters: rescaling gradients by s and the step size by 1/s changes
//! only the units of trackers. So alpha = 1 and h = a throughout, which keeps the entries of similar size.

use std::ops::Range;

use faer::Mat;
use mile::agents::{Agents, AgentsError, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector};
use mile::method::Method;
use mile::run::{Progress, Run};
use mile::schedule::Schedule;

use crate::TheoryError;

/// A method that has not communicated after this many steps is taken to never communicate.
const MAX_LOCAL_STEPS: u64 = 100_000;
/// Exchanges examined to see whether they are periodic.
const ROUNDS_EXAMINED: usize = 24;
/// Exchanges over which the growth of a method that communicates at random steps is averaged.
const RANDOM_ROUNDS: usize = 600;
/// A vector whose norm falls below this share in orthogonalisation is linearly dependent.
const INDEPENDENT: f64 = 1e-9;

/// Agents that simulate one mode: row r of every vector is one copy of the scalar system.
struct ModeAgents {
    curvature: f64,
    lambda: f64,
    /// Added to the gradient of each row.
    forcing: Vec<f64>,
    vectors: Vec<Vec<f64>>,
}

impl ModeAgents {
    fn new(method: &dyn Method, curvature: f64, lambda: f64, forcing: Vec<f64>) -> Self {
        let vectors = vec![vec![0.0; forcing.len()]; method.layout().vectors()];
        Self { curvature, lambda, forcing, vectors }
    }

    /// The state of one row.
    fn state(&self, row: usize, vectors: usize) -> Vec<f64> {
        self.vectors[..vectors].iter().map(|v| v[row]).collect()
    }
}

impl Agents for ModeAgents {
    fn hosted(&self) -> Range<usize> {
        0..self.forcing.len()
    }

    fn gradient(&mut self, x: Vector, g: Vector, _draw: u64) -> Result<(), AgentsError> {
        for row in 0..self.forcing.len() {
            self.vectors[g.0][row] = self.curvature * self.vectors[x.0][row] + self.forcing[row];
        }
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        for row in 0..self.forcing.len() {
            let old = if keep == 0.0 { 0.0 } else { keep * self.vectors[y.0][row] };
            self.vectors[y.0][row] = terms.iter().fold(old, |sum, (a, v)| sum + a * self.vectors[v.0][row]);
        }
        Ok(())
    }

    /// Modes are those of the smooth part of the objective.
    fn prox(&mut self, _x: Vector, _step: f64) -> Result<(), AgentsError> {
        Ok(())
    }

    /// A plain step, since an optimiser that divides by the size of gradients is not linear: what is left are the limits of small steps, which depend on
    /// the exchange alone.
    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        let inner = step.inner.map(|c| (-step.by.step_size * step.by.inner, c));
        let shift = step.shift.map(|c| (step.by.shift, c));
        let terms: Vec<(f64, Vector)> =
            [Some((-step.by.step_size, step.g)), inner, shift].into_iter().flatten().collect();
        self.combine(step.x, 1.0, &terms)?;
        step.states().try_for_each(|v| self.combine(v, 0.0, &[]))
    }

    /// Gradients of any length count in full.
    fn clip(&mut self, _g: Vector, _most: f64) -> Result<(), AgentsError> {
        Ok(())
    }

    fn pull(&mut self, _round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        for &(from, to) in pairs {
            for row in 0..self.forcing.len() {
                self.vectors[to.0][row] = (self.lambda - 1.0) * self.vectors[from.0][row];
            }
        }
        Ok(0)
    }

    /// All differences count in full: the largest weights there can be.
    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.vectors[pull.memory.0] = self.vectors[pull.from.0].clone();
        self.pull(round, &[(pull.from, pull.to), (pull.from, pull.steady)])
    }

    /// Compression is not linear: the method is examined as if nothing were left out.
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.pull(round, &[(pull.from, pull.to)])
    }

    /// A rule that clips or leaves out is not linear: the method is examined as if all differences counted in full.
    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.pull(round, &[(pull.from, pull.to)])
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.vectors[scratch.0].fill(f64::NAN);
        Ok(())
    }
}

/// The steps in which a method communicates.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Timing {
    /// Every `period` steps.
    Periodic {
        /// Steps up to and including the first exchange.
        first: u64,
        /// Steps from one exchange to the next.
        period: u64,
    },
    /// At random steps, with the method's own seed.
    Coin {
        /// For each step, whether it communicates.
        exchanges: Vec<bool>,
    },
}

/// A method decomposed into modes.
#[derive(Debug)]
pub struct Modes<'m> {
    method: &'m dyn Method,
    timing: Timing,
}

impl<'m> Modes<'m> {
    /// Runs the method to find the steps in which it communicates.
    pub fn of(method: &'m dyn Method) -> Result<Self, TheoryError> {
        let mut agents = ModeAgents::new(method, 0.0, 0.0, vec![0.0]);
        let mut run = Run::start(method, Schedule::constant(1.0), &mut agents)?;
        let (mut exchanges, mut times) = (Vec::new(), Vec::new());
        let mut regular = true;
        while times.len() < if regular { ROUNDS_EXAMINED } else { RANDOM_ROUNDS } {
            let mixed = run.step(&mut agents)?;
            exchanges.push(mixed);
            if mixed {
                times.push(run.progress().step);
                regular &=
                    times.len() < 3 || times[1] - times[0] == times[times.len() - 1] - times[times.len() - 2];
            } else if run.progress().step - times.last().unwrap_or(&0) > MAX_LOCAL_STEPS {
                return Err(TheoryError::NeverExchanges { steps: run.progress().step });
            }
        }
        let timing = if regular {
            Timing::Periodic { first: times[0], period: times[1] - times[0] }
        } else {
            Timing::Coin { exchanges }
        };
        Ok(Self { method, timing })
    }

    /// The steps in which it communicates.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Whether the growth is that of an exact period matrix, and not an average over random communication.
    pub fn is_exact(&self) -> bool {
        matches!(self.timing, Timing::Periodic { .. })
    }

    /// The matrix that takes the state right after one exchange to the state right after the next, on
    /// the mode with `a = alpha h` and graph eigenvalue `lambda`; none for a method that communicates at random steps.
    pub fn period_matrix(&self, a: f64, lambda: f64) -> Result<Option<Mat<f64>>, TheoryError> {
        match self.timing {
            Timing::Periodic { first, period } => Ok(Some(self.matrix(a, lambda, first, period)?)),
            Timing::Coin { .. } => Ok(None),
        }
    }

    /// The eigenvalues of the period matrix on the subspace that a run can reach, as (real, imaginary); empty for a
    /// method that communicates at random steps.
    pub fn eigenvalues(&self, a: f64, lambda: f64) -> Result<Vec<(f64, f64)>, TheoryError> {
        let Some(matrix) = self.period_matrix(a, lambda)? else { return Ok(Vec::new()) };
        Ok(eigenvalues(&restrict(&matrix, &self.reachable_directions(a, lambda)?)))
    }

    /// Growth per round of this mode: the spectral radius of the period matrix on the subspace that a run can reach.
    ///
    /// That leaves out conserved quantities that start at zero, such as the mean of a correction. For a method that
    /// communicates at random steps it is the mean growth over 600 exchanges with its own seed.
    pub fn growth(&self, a: f64, lambda: f64) -> Result<f64, TheoryError> {
        match &self.timing {
            Timing::Periodic { .. } => {
                let moduli = self.eigenvalues(a, lambda)?.into_iter().map(|(re, im)| re.hypot(im));
                Ok(moduli.fold(0.0, |worst: f64, m| if m.is_nan() { f64::INFINITY } else { worst.max(m) }))
            }
            Timing::Coin { exchanges } => self.coin_growth(a, lambda, exchanges),
        }
    }

    /// The matrix of `steps` steps from step `from` on, column by column.
    fn matrix(&self, a: f64, lambda: f64, from: u64, steps: u64) -> Result<Mat<f64>, TheoryError> {
        let n = self.method.layout().state.len();
        let mut agents = ModeAgents::new(self.method, a, lambda, vec![0.0; n]);
        for k in 0..n {
            agents.vectors[k][k] = 1.0;
        }
        let progress = Progress { step: from, round: 1, step_size: 1.0, ..Progress::default() };
        let mut run = Run::resume(self.method, Schedule::constant(1.0), progress);
        for _ in 0..steps {
            run.step(&mut agents)?;
        }
        Ok(Mat::from_fn(n, n, |i, j| agents.vectors[i][j]))
    }

    /// Vectors that span, with their images, the subspace a run can reach: the state after one round from x = 1
    /// without forcing, and the change in the second round due to a constant gradient.
    fn reachable_directions(&self, a: f64, lambda: f64) -> Result<[Vec<f64>; 2], TheoryError> {
        let n = self.method.layout().state.len();
        let mut agents = ModeAgents::new(self.method, a, lambda, vec![0.0, 1.0]);
        agents.vectors[0][0] = 1.0;
        let mut run = Run::start(self.method, Schedule::constant(1.0), &mut agents)?;
        run.round(&mut agents)?;
        let (model, forced) = (agents.state(0, n), agents.state(1, n));
        run.round(&mut agents)?;
        let change = agents.state(1, n).iter().zip(&forced).map(|(new, old)| new - old).collect();
        Ok([model, change])
    }

    fn coin_growth(&self, a: f64, lambda: f64, exchanges: &[bool]) -> Result<f64, TheoryError> {
        let at = |kind: bool| exchanges.iter().position(|e| *e == kind);
        let matrix = |kind: bool| at(kind).map(|t| self.matrix(a, lambda, t as u64, 1)).transpose();
        let (local, exchange) = (matrix(false)?, matrix(true)?);
        let rounds = exchanges.iter().filter(|e| **e).count() as f64;
        let mut worst = 0.0f64;
        for start in self.reachable_directions(a, lambda)? {
            let length = start.iter().map(|v| v * v).sum::<f64>().sqrt();
            let mut state: Vec<f64> = start.iter().map(|v| v / length.max(f64::MIN_POSITIVE)).collect();
            let mut log = 0.0;
            for &mixed in exchanges {
                let Some(m) = (if mixed { &exchange } else { &local }) else { continue };
                let next = mat_vec(m, &state);
                let norm = next.iter().map(|v| v * v).sum::<f64>().sqrt();
                if !norm.is_finite() || norm == 0.0 {
                    log = if norm == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
                    break;
                }
                log += norm.ln();
                state = next.iter().map(|v| v / norm).collect();
            }
            worst = worst.max((log / rounds).exp());
        }
        Ok(worst)
    }
}

fn mat_vec(m: &Mat<f64>, v: &[f64]) -> Vec<f64> {
    (0..m.nrows()).map(|i| m.row(i).iter().zip(v).map(|(m, v)| m * v).sum()).collect()
}

/// The matrix restricted to the smallest invariant subspace that contains the given directions.
fn restrict(m: &Mat<f64>, directions: &[Vec<f64>]) -> Mat<f64> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for direction in directions {
        let mut v = direction.clone();
        while basis.len() < m.nrows() && orthonormalise(&mut v, &basis) {
            basis.push(v.clone());
            v = mat_vec(m, &v);
        }
    }
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let images: Vec<Vec<f64>> = basis.iter().map(|q| mat_vec(m, q)).collect();
    Mat::from_fn(basis.len(), basis.len(), |i, j| dot(&basis[i], &images[j]))
}

/// Makes v a unit vector orthogonal to the basis (Gram-Schmidt); false if it lies in the span of the basis.
fn orthonormalise(v: &mut [f64], basis: &[Vec<f64>]) -> bool {
    let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    let before = norm(v);
    if before == 0.0 || !before.is_finite() {
        return false;
    }
    for q in basis.iter().chain(basis) {
        let along: f64 = v.iter().zip(q).map(|(v, q)| v * q).sum();
        v.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
    }
    let after = norm(v);
    v.iter_mut().for_each(|v| *v /= after.max(f64::MIN_POSITIVE));
    after > INDEPENDENT * before
}

/// Eigenvalues as (real, imaginary); NaN if the matrix is not finite.
fn eigenvalues(m: &Mat<f64>) -> Vec<(f64, f64)> {
    match m.nrows() {
        0 => Vec::new(),
        1 => vec![(m[(0, 0)], 0.0)],
        2 => {
            let half = 0.5 * (m[(0, 0)] + m[(1, 1)]);
            let spread = 0.5 * (m[(0, 0)] - m[(1, 1)]);
            let under = spread * spread + m[(0, 1)] * m[(1, 0)];
            let root = under.abs().sqrt();
            if under >= 0.0 {
                vec![(half + root, 0.0), (half - root, 0.0)]
            } else {
                vec![(half, root), (half, -root)]
            }
        }
        n => match m.is_all_finite().then(|| m.eigenvalues()) {
            Some(Ok(found)) => found.into_iter().map(|z| (z.re, z.im)).collect(),
            _ => vec![(f64::NAN, f64::NAN); n],
        },
    }
}
