//! A method's exact matrix on one mode, extracted by running its own code.
//!
//! When all agents have the same Hessian, the eigenvectors of W and of the Hessian split a method into
//! scalar systems: on the mode with graph eigenvalue `lambda` and curvature `h`, a gradient multiplies by
//! h and an exchange, `(W - I) v`, by lambda - 1. A tiny host does just that to rows of basis vectors, so one period of the
//! method's own straight-line code writes down its matrix column by column.
//!
//! Only the product `a = alpha h` matters: rescaling gradients by s and the step size by 1/s changes
//! nothing but the units of trackers. So alpha = 1 and h = a throughout, which keeps numbers of one size.

use std::ops::Range;

use faer::Mat;

use super::TheoryError;
use crate::agents::{Agents, AgentsError, Vector};
use crate::method::Method;
use crate::run::{Progress, Run};
use crate::schedule::Schedule;

/// A method that has not exchanged anything after this many steps never will.
const PATIENCE: u64 = 100_000;
/// Exchanges looked at to see whether they come at regular times.
const ROUNDS_SEEN: usize = 24;
/// Exchanges over which the growth of a method with a coin is averaged.
const ROUNDS_OF_COIN: usize = 600;
/// A direction that is this much shorter after orthogonalisation is not a new one.
const NEW_DIRECTION: f64 = 1e-9;

/// Hosts scalar systems: row r of every vector is one copy of the mode.
struct Host {
    curvature: f64,
    lambda: f64,
    /// Added to the gradient of each row.
    forcing: Vec<f64>,
    vectors: Vec<Vec<f64>>,
}

impl Host {
    fn new(method: &dyn Method, curvature: f64, lambda: f64, forcing: Vec<f64>) -> Self {
        let vectors = vec![vec![0.0; forcing.len()]; method.layout().vectors()];
        Self { curvature, lambda, forcing, vectors }
    }

    /// The state of one row.
    fn state(&self, row: usize, vectors: usize) -> Vec<f64> {
        self.vectors[..vectors].iter().map(|v| v[row]).collect()
    }
}

impl Agents for Host {
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

    fn pull(&mut self, _round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        for &(from, to) in pairs {
            for row in 0..self.forcing.len() {
                self.vectors[to.0][row] = (self.lambda - 1.0) * self.vectors[from.0][row];
            }
        }
        Ok(0)
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.vectors[scratch.0].fill(f64::NAN);
        Ok(())
    }
}

/// When a method exchanges.
#[derive(Clone, Debug, PartialEq)]
pub enum Timing {
    /// Every so many steps: its period is exact.
    Periodic {
        /// Steps up to and including the first exchange.
        first: u64,
        /// Steps from one exchange to the next.
        period: u64,
    },
    /// When a coin says so: for each step whether it exchanges, with the method's own seed.
    Coin {
        /// One entry a step.
        exchanges: Vec<bool>,
    },
}

/// A method taken apart into modes.
#[derive(Debug)]
pub struct Modes<'m> {
    method: &'m dyn Method,
    timing: Timing,
}

impl<'m> Modes<'m> {
    /// Looks at when the method exchanges.
    pub fn of(method: &'m dyn Method) -> Result<Self, TheoryError> {
        let mut host = Host::new(method, 0.0, 0.0, vec![0.0]);
        let mut run = Run::start(method, Schedule::constant(1.0), &mut host)?;
        let (mut exchanges, mut times) = (Vec::new(), Vec::new());
        let mut regular = true;
        while times.len() < if regular { ROUNDS_SEEN } else { ROUNDS_OF_COIN } {
            let mixed = run.step(&mut host)?;
            exchanges.push(mixed);
            if mixed {
                times.push(run.progress().step);
                regular &=
                    times.len() < 3 || times[1] - times[0] == times[times.len() - 1] - times[times.len() - 2];
            } else if run.progress().step - times.last().unwrap_or(&0) > PATIENCE {
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

    /// When it exchanges.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Whether growth is that of an exact period matrix, and not an average over tosses of a coin.
    pub fn is_exact(&self) -> bool {
        matches!(self.timing, Timing::Periodic { .. })
    }

    /// The matrix that takes the state right after one exchange to the state right after the next, on
    /// the mode with `a = alpha h` and graph eigenvalue `lambda`; none for a method with a coin.
    pub fn period_matrix(&self, a: f64, lambda: f64) -> Result<Option<Mat<f64>>, TheoryError> {
        match self.timing {
            Timing::Periodic { first, period } => Ok(Some(self.matrix(a, lambda, first, period)?)),
            Timing::Coin { .. } => Ok(None),
        }
    }

    /// The eigenvalues of one period that a run can excite, as (real, imaginary); empty for a coin.
    pub fn eigenvalues(&self, a: f64, lambda: f64) -> Result<Vec<(f64, f64)>, TheoryError> {
        let Some(matrix) = self.period_matrix(a, lambda)? else { return Ok(Vec::new()) };
        Ok(eigenvalues(&restrict(&matrix, &self.excited(a, lambda)?)))
    }

    /// Growth per round of this mode: the spectral radius of one period on what a run can excite.
    ///
    /// Quantities that are conserved and start at zero (the mean of a correction) do not count. For a
    /// method with a coin it is the mean growth along 600 exchanges of its own coin.
    pub fn growth(&self, a: f64, lambda: f64) -> Result<f64, TheoryError> {
        match &self.timing {
            Timing::Periodic { .. } => {
                let moduli = self.eigenvalues(a, lambda)?.into_iter().map(|(re, im)| re.hypot(im));
                Ok(moduli.fold(0.0, |worst: f64, m| if m.is_nan() { f64::INFINITY } else { worst.max(m) }))
            }
            Timing::Coin { exchanges } => self.coin_growth(a, lambda, exchanges),
        }
    }

    /// `steps` steps from step `from` on, column by column.
    fn matrix(&self, a: f64, lambda: f64, from: u64, steps: u64) -> Result<Mat<f64>, TheoryError> {
        let n = self.method.layout().state.len();
        let mut host = Host::new(self.method, a, lambda, vec![0.0; n]);
        for k in 0..n {
            host.vectors[k][k] = 1.0;
        }
        let progress = Progress { step: from, round: 1, step_size: 1.0, ..Progress::default() };
        let mut run = Run::resume(self.method, Schedule::constant(1.0), progress);
        for _ in 0..steps {
            run.step(&mut host)?;
        }
        Ok(Mat::from_fn(n, n, |i, j| host.vectors[i][j]))
    }

    /// Directions a run starts with: from a model of one without forcing, and what constant forcing adds
    /// in the second round after the first.
    fn excited(&self, a: f64, lambda: f64) -> Result<[Vec<f64>; 2], TheoryError> {
        let n = self.method.layout().state.len();
        let mut host = Host::new(self.method, a, lambda, vec![0.0, 1.0]);
        host.vectors[0][0] = 1.0;
        let mut run = Run::start(self.method, Schedule::constant(1.0), &mut host)?;
        run.round(&mut host)?;
        let (model, forced) = (host.state(0, n), host.state(1, n));
        run.round(&mut host)?;
        let change = host.state(1, n).iter().zip(&forced).map(|(new, old)| new - old).collect();
        Ok([model, change])
    }

    fn coin_growth(&self, a: f64, lambda: f64, exchanges: &[bool]) -> Result<f64, TheoryError> {
        let at = |kind: bool| exchanges.iter().position(|e| *e == kind);
        let matrix = |kind: bool| at(kind).map(|t| self.matrix(a, lambda, t as u64, 1)).transpose();
        let (local, exchange) = (matrix(false)?, matrix(true)?);
        let rounds = exchanges.iter().filter(|e| **e).count() as f64;
        let mut worst = 0.0f64;
        for start in self.excited(a, lambda)? {
            let length = start.iter().map(|v| v * v).sum::<f64>().sqrt();
            let mut state: Vec<f64> = start.iter().map(|v| v / length.max(f64::MIN_POSITIVE)).collect();
            let mut log = 0.0;
            for &mixed in exchanges {
                let Some(m) = (if mixed { &exchange } else { &local }) else { continue };
                let next = times(m, &state);
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

fn times(m: &Mat<f64>, v: &[f64]) -> Vec<f64> {
    (0..m.nrows()).map(|i| (0..m.ncols()).map(|j| m[(i, j)] * v[j]).sum()).collect()
}

/// The matrix on the smallest invariant subspace that holds the given directions.
fn restrict(m: &Mat<f64>, directions: &[Vec<f64>]) -> Mat<f64> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for direction in directions {
        let mut v = direction.clone();
        while basis.len() < m.nrows() && independent(&mut v, &basis) {
            basis.push(v.clone());
            v = times(m, &v);
        }
    }
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let images: Vec<Vec<f64>> = basis.iter().map(|q| times(m, q)).collect();
    Mat::from_fn(basis.len(), basis.len(), |i, j| dot(&basis[i], &images[j]))
}

/// Makes v a unit vector orthogonal to the basis; false if it lies in its span.
fn independent(v: &mut [f64], basis: &[Vec<f64>]) -> bool {
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
    after > NEW_DIRECTION * before
}

/// Eigenvalues as (real, imaginary).
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
        n => match m.eigenvalues() {
            Ok(found) => found.into_iter().map(|z| (z.re, z.im)).collect(),
            Err(_) => vec![(f64::NAN, f64::NAN); n],
        },
    }
}
