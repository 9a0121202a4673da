//! The second largest and the smallest eigenvalue of a large sparse mixing matrix, by faer's Krylov-Schur solver.

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::matrix_free::LinOp;
use faer::matrix_free::eigen::{
    PartialEigenParams, partial_self_adjoint_eigen, partial_self_adjoint_eigen_scratch,
};
use faer::{Col, Mat, MatMut, MatRef, Par};
use rand::RngExt;

use super::{Solver, Spectrum};
use crate::random::{Purpose, stream};
use crate::sparse::SparseRows;

/// Length of the residual of an eigenvector at which it is taken as found. The error of its eigenvalue is of the
/// order of its square.
const TOLERANCE: f64 = 1e-10;
/// Dimensions of the space that is searched, and how often it is begun anew: a second, larger attempt where the first
/// does not converge.
const ATTEMPTS: [(usize, usize); 2] = [(64, 60), (128, 2000)];

/// The eigenvalues 1, lambda_2 and lambda_n of a symmetric matrix with row sums one and more than 128 rows; none if one
/// of them was not found.
pub(super) fn extremes(rows: &SparseRows) -> Option<Spectrum> {
    let found = |sign: f64, deflated: bool| {
        ATTEMPTS.iter().find_map(|&attempt| largest(&Shifted { rows, sign, deflated }, attempt))
    };
    let lambda_2 = found(1.0, true)? - 1.0;
    let lambda_n = 1.0 - found(-1.0, false)?;
    let (lambda, error) = (vec![1.0, lambda_2, lambda_n], 1e-14 * rows.rows() as f64);
    Some(Spectrum { lambda, complete: false, solver: Solver::Krylov, error })
}

/// The largest eigenvalue of a matrix without negative ones, if it is found.
fn largest(matrix: &Shifted, (dimensions, restarts): (usize, usize)) -> Option<f64> {
    let n = matrix.nrows();
    let params = PartialEigenParams {
        min_dim: dimensions / 2,
        max_dim: dimensions,
        max_restarts: restarts,
        ..Default::default()
    };
    let mut random = stream(0, Purpose::Probe, n as u64, 0);
    let mut start = Col::from_fn(n, |_| random.random::<f64>() - 0.5);
    if matrix.deflated {
        let mean = start.iter().sum::<f64>() / n as f64;
        start.iter_mut().for_each(|v| *v -= mean);
    }
    let (mut vector, mut value) = (Mat::zeros(n, 1), [f64::NAN]);
    let mut memory = MemBuffer::new(partial_self_adjoint_eigen_scratch(matrix, 1, Par::Seq, params));
    let stack = MemStack::new(&mut memory);
    let start = start.as_ref();
    let info = partial_self_adjoint_eigen(
        vector.as_mut(),
        &mut value,
        matrix,
        start,
        TOLERANCE,
        Par::Seq,
        stack,
        params,
    );
    (info.n_converged_eigen > 0 && value[0].is_finite()).then_some(value[0])
}

/// `I + W` or `I - W`, which have no negative eigenvalues: the solver finds those of largest modulus. Deflated: on
/// the complement of the vector of ones, whose eigenvalue is known.
#[derive(Debug)]
struct Shifted<'a> {
    rows: &'a SparseRows,
    sign: f64,
    deflated: bool,
}

impl LinOp<f64> for Shifted<'_> {
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }

    fn nrows(&self) -> usize {
        self.rows.rows()
    }

    fn ncols(&self) -> usize {
        self.rows.rows()
    }

    fn apply(&self, mut out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, _: Par, _: &mut MemStack) {
        for k in 0..rhs.ncols() {
            let x: Vec<f64> = rhs.col(k).iter().copied().collect();
            let product = |i: usize| -> f64 { self.rows.row(i).iter().map(|&(j, w)| w * x[j]).sum() };
            let column = out.as_mut().col_mut(k);
            column.iter_mut().enumerate().for_each(|(i, y)| *y = x[i] + self.sign * product(i));
            if self.deflated {
                let mean = out.as_ref().col(k).iter().sum::<f64>() / x.len() as f64;
                out.as_mut().col_mut(k).iter_mut().for_each(|y| *y -= mean);
            }
        }
    }

    fn conj_apply(&self, out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}
