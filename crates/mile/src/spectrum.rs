//! Eigenvalues of graphs and mixing matrices.
//!
//! Four ways, tried in this order; [`Spectrum::solver`] says which one was used:
//!
//! 1. *Closed form*, when W is the same seen from every agent: `w_ij` depends only on j - i in
//!    Z_a x Z_b (ring, complete, exponential, torus) or on i xor j (hypercube). The eigenvalues are the
//!    Fourier (Walsh) transform of one row. Detected from the matrix itself.
//! 2. *Bisection*, when W is tridiagonal (a path): Sturm counts give each eigenvalue to rounding.
//! 3. A *dense* symmetric solver, up to [`DENSE_MAX`] agents.
//! 4. A *Krylov* method beyond that: the two largest and the smallest only. Where it does not converge (a gap too small for it), the dense
//!    solver after all, whatever it costs, up to [`DENSE_LIMIT`] agents; beyond that, the second eigenvalue is only known to be below one.

mod lanczos;
mod tridiagonal;

use std::f64::consts::TAU;

use faer::{Mat, Side};

use crate::sparse::SparseRows;
use tridiagonal::Tridiagonal;

/// Largest matrix given to the dense solver: a second for 2000 agents, growing with the cube.
pub const DENSE_MAX: usize = 2000;
/// Largest matrix given to the dense solver when nothing else succeeds: many minutes, and 3 GB.
pub const DENSE_LIMIT: usize = 20_000;
/// Largest tridiagonal matrix whose eigenvalues are all computed.
const BISECTION_MAX: usize = 4096;
/// Weights that differ by less than this are considered equal.
const SAME: f64 = 1e-13;

/// The eigenvalues of a mixing matrix that matter: the two largest and the smallest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extremes {
    /// Largest: 1 for an admissible matrix.
    pub lambda_1: f64,
    /// Second largest; minus infinity for one agent, which has none.
    pub lambda_2: f64,
    /// Smallest.
    pub lambda_n: f64,
}

/// How eigenvalues were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Solver {
    /// Fourier transform of one row.
    ClosedForm,
    /// Sturm bisection of a tridiagonal matrix.
    Bisection,
    /// Dense symmetric solver.
    Dense,
    /// Lanczos' method.
    Krylov,
}

impl Solver {
    /// Its name, for display and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClosedForm => "closed form",
            Self::Bisection => "bisection",
            Self::Dense => "dense solver",
            Self::Krylov => "krylov",
        }
    }
}

/// Eigenvalues and where they come from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spectrum {
    /// Eigenvalues in descending order: all of them, or lambda_1, lambda_2 and lambda_n.
    pub lambda: Vec<f64>,
    /// Whether `lambda` holds all of them.
    pub complete: bool,
    /// How they were found.
    pub solver: Solver,
    /// Bound on the error of each.
    pub error: f64,
}

impl Spectrum {
    /// The eigenvalues that matter.
    pub fn extremes(&self) -> Extremes {
        Extremes {
            lambda_1: self.lambda[0],
            lambda_2: self.lambda.get(1).copied().unwrap_or(f64::NEG_INFINITY),
            lambda_n: self.lambda[self.lambda.len() - 1],
        }
    }

    /// At most `most` eigenvalues of disagreement (all but the first), spread evenly over their order;
    /// the second largest and the smallest are always among them.
    pub fn disagreement(&self, most: usize) -> Vec<f64> {
        let rest = &self.lambda[1..];
        if rest.len() <= most {
            return rest.to_vec();
        }
        let last = most.max(2) - 1;
        (0..=last).map(|k| rest[k * (rest.len() - 1) / last]).collect()
    }
}

/// The spectrum of a symmetric matrix with row sums one, by the cheapest way that applies.
pub fn spectrum(rows: &SparseRows) -> Spectrum {
    let n = rows.rows();
    let all = |lambda, solver| Spectrum { lambda, complete: true, solver, error: 1e-14 * n as f64 };
    if let Some(lambda) = closed_form(rows) {
        return all(lambda, Solver::ClosedForm);
    }
    if let Some(tridiagonal) = Tridiagonal::of(rows).filter(|t| t.diagonal.len() > 2) {
        if n <= BISECTION_MAX {
            return all((0..n).map(|k| tridiagonal.eigenvalue(k)).collect(), Solver::Bisection);
        }
        let lambda = [0, 1, n - 1].map(|k| tridiagonal.eigenvalue(k)).to_vec();
        return Spectrum { complete: false, ..all(lambda, Solver::Bisection) };
    }
    if n <= DENSE_MAX {
        return all(symmetric_eigenvalues(&dense(rows)), Solver::Dense);
    }
    lanczos::extremes(rows).unwrap_or_else(|| {
        if n <= DENSE_LIMIT {
            return all(symmetric_eigenvalues(&dense(rows)), Solver::Dense);
        }
        Spectrum {
            lambda: vec![1.0, 1.0 - f64::EPSILON, -1.0],
            complete: false,
            solver: Solver::Krylov,
            error: 2.0,
        }
    })
}

/// All eigenvalues in descending order, whatever it costs.
pub fn eigenvalues(rows: &SparseRows) -> Vec<f64> {
    let found = spectrum(rows);
    if found.complete { found.lambda } else { symmetric_eigenvalues(&dense(rows)) }
}

fn dense(rows: &SparseRows) -> Mat<f64> {
    let mut dense = Mat::zeros(rows.rows(), rows.rows());
    for i in 0..rows.rows() {
        for &(j, w) in rows.row(i) {
            dense[(i, j)] = w;
        }
    }
    dense
}

/// Eigenvalues of the symmetric matrix with this lower triangle, in descending order; NaN if it is not finite.
pub(crate) fn symmetric_eigenvalues(matrix: &Mat<f64>) -> Vec<f64> {
    let found = matrix.is_all_finite().then(|| matrix.self_adjoint_eigenvalues(Side::Lower).ok());
    let mut lambda = found.flatten().unwrap_or_else(|| vec![f64::NAN; matrix.nrows()]);
    lambda.reverse();
    lambda
}

/// Eigenvalues of a matrix that looks the same from every agent, in descending order.
fn closed_form(rows: &SparseRows) -> Option<Vec<f64>> {
    let n = rows.rows();
    let first = rows.row(0);
    let mut lambda = if n.is_power_of_two() && looks_alike(rows, |i, j| i ^ j) {
        walsh(first, n)
    } else {
        let b = (1..=n).rev().filter(|b| n.is_multiple_of(*b)).find(|&b| {
            let shift = |i: usize, j: usize| ((i / b + j / b) * b) % n + (i % b + j % b) % b;
            looks_alike(rows, shift)
        })?;
        fourier(first, n / b, b)
    };
    lambda.sort_unstable_by(|x, y| y.total_cmp(x));
    Some(lambda)
}

/// Whether row i is the first row with every column j moved to `moved(i, j)`.
fn looks_alike(rows: &SparseRows, moved: impl Fn(usize, usize) -> usize) -> bool {
    let first = rows.row(0);
    (1..rows.rows()).all(|i| {
        let row = rows.row(i);
        row.len() == first.len()
            && first.iter().all(|&(j, w)| {
                let at = row.binary_search_by_key(&moved(i, j), |(k, _)| *k);
                at.is_ok_and(|k| (row[k].1 - w).abs() <= SAME)
            })
    })
}

/// `sum_j w_j (-1)^popcount(j and k)` for each k.
fn walsh(first: &[(usize, f64)], n: usize) -> Vec<f64> {
    let sign = |bits: usize| if bits.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..n).map(|k| first.iter().map(|&(j, w)| w * sign(j & k)).sum()).collect()
}

/// `sum_(r,s) w_(r,s) cos 2 pi (r k/a + s l/b)` for each (k, l); the sines cancel by symmetry.
fn fourier(first: &[(usize, f64)], a: usize, b: usize) -> Vec<f64> {
    let n = a * b;
    let cosine: Vec<f64> = (0..n).map(|k| (TAU * k as f64 / n as f64).cos()).collect();
    let one = |k: usize, l: usize| -> f64 {
        let turn = |j: usize| ((j / b) * k * b + (j % b) * l * a) % n;
        first.iter().map(|&(j, w)| w * cosine[turn(j)]).sum()
    };
    (0..n).map(|at| one(at / b, at % b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Topology};
    use crate::mixing::{MixingMatrix, Rule};

    fn matrix(topology: Topology, n: usize, rule: Rule) -> MixingMatrix {
        rule.matrix(&topology.build(n, 2).unwrap()).unwrap()
    }

    fn worst(a: &[f64], b: &[f64]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn closed_forms_and_bisection_agree_with_the_dense_solver() {
        use Solver::{Bisection, ClosedForm, Dense};
        let cases = [
            (Topology::Ring, 10, ClosedForm),
            (Topology::Ring, 3, ClosedForm),
            (Topology::Complete, 12, ClosedForm),
            (Topology::Exponential, 21, ClosedForm),
            (Topology::Torus, 12, ClosedForm),
            (Topology::Torus, 30, ClosedForm),
            (Topology::Hypercube, 32, ClosedForm),
            (Topology::Path, 17, Bisection),
            (Topology::Star, 9, Dense),
            (Topology::Grid, 20, Dense),
            (Topology::ErdosRenyi { p: 0.4 }, 24, Dense),
        ];
        for (topology, n, solver) in cases {
            for rule in [Rule::Metropolis, Rule::LazyMetropolis, Rule::MaxDegree, Rule::BestConstant] {
                let w = matrix(topology, n, rule);
                let found = spectrum(w.rows());
                assert_eq!(found.solver, solver, "{topology:?}");
                let difference = worst(&found.lambda, &symmetric_eigenvalues(&dense(w.rows())));
                assert!(difference < 1e-13 * n as f64, "{topology:?} {rule:?}: {difference:e}");
            }
        }
    }

    #[test]
    fn the_krylov_method_finds_the_ends() {
        for (topology, n) in [
            (Topology::Grid, 400),
            (Topology::RandomRegular { degree: 4 }, 700),
            (Topology::ErdosRenyi { p: 0.02 }, 600),
            (Topology::Star, 300),
        ] {
            let w = matrix(topology, n, Rule::Metropolis);
            let (found, all) =
                (lanczos::extremes(w.rows()).unwrap(), symmetric_eigenvalues(&dense(w.rows())));
            let difference = worst(&found.lambda, &[1.0, all[1], all[n - 1]]);
            assert!(difference <= found.error, "{topology:?} {difference:e} {found:?}");
        }
    }

    #[test]
    fn what_is_not_finite_has_no_eigenvalues() {
        for bad in [f64::NAN, f64::INFINITY] {
            let matrix = Mat::from_fn(3, 3, |i, j| if i + j == 0 { bad } else { 1.0 });
            let found = symmetric_eigenvalues(&matrix);
            assert!(found.len() == 3 && found.iter().all(|lambda| lambda.is_nan()));
        }
    }

    /// A solver that gives up too early sees a gap many times too large here.
    #[test]
    fn a_tiny_gap_is_found_where_no_closed_form_helps() {
        let n = 2_100;
        let edges = (0..n).map(|i| (i, (i + 1) % n)).chain([(0, 17)]);
        let w = Rule::Metropolis.matrix(&Graph::from_edges(n, edges).unwrap()).unwrap();
        let found = spectrum(w.rows());
        assert_eq!(found.solver, Solver::Krylov);
        let gap = 1.0 - found.extremes().lambda_2;
        let all = symmetric_eigenvalues(&dense(w.rows()));
        assert!((gap / (1.0 - all[1]) - 1.0).abs() < 1e-6, "{gap:e}");
    }

    #[test]
    fn the_gap_of_ten_thousand_agents_is_that_of_the_formula() {
        let ring = spectrum(matrix(Topology::Ring, 10_000, Rule::Metropolis).rows());
        let gap = 1.0 - ring.extremes().lambda_2;
        let exact = 4.0 / 3.0 * (std::f64::consts::PI / 10_000.0).sin().powi(2);
        assert!((gap / exact - 1.0).abs() < 1e-6, "{gap:e} {exact:e}");
        let path = spectrum(matrix(Topology::Path, 10_000, Rule::MaxDegree).rows());
        let exact = 2.0 / 3.0 * (1.0 - (std::f64::consts::PI / 10_000.0).cos());
        assert!(((1.0 - path.extremes().lambda_2) / exact - 1.0).abs() < 1e-6);
    }
}
