//! Eigenvalues of graphs and mixing matrices.

use faer::{Mat, Side};

use crate::graph::Graph;
use crate::mixing::MixingMatrix;

/// The eigenvalues of a mixing matrix that decide: the two largest and the smallest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extremes {
    /// Largest: 1 for an admissible matrix.
    pub lambda_1: f64,
    /// Second largest; minus infinity for one agent, which has none.
    pub lambda_2: f64,
    /// Smallest.
    pub lambda_n: f64,
}

/// All eigenvalues, in descending order, by a dense symmetric solver.
pub fn eigenvalues(matrix: &MixingMatrix) -> Vec<f64> {
    let n = matrix.agents();
    let mut dense = Mat::<f64>::zeros(n, n);
    for i in 0..n {
        for &(j, w) in matrix.rows().row(i) {
            dense[(i, j)] = w;
        }
    }
    symmetric_eigenvalues(&dense)
}

/// The eigenvalues that decide about an admissible matrix.
pub fn extremes(matrix: &MixingMatrix) -> Extremes {
    let lambda = eigenvalues(matrix);
    Extremes {
        lambda_1: lambda[0],
        lambda_2: lambda.get(1).copied().unwrap_or(f64::NEG_INFINITY),
        lambda_n: lambda[lambda.len() - 1],
    }
}

/// Eigenvalues of a symmetric matrix in descending order; NaN if it is not finite.
pub(crate) fn symmetric_eigenvalues(dense: &Mat<f64>) -> Vec<f64> {
    let finite = (0..dense.ncols()).all(|j| dense.col(j).iter().all(|v| v.is_finite()));
    match finite.then(|| dense.self_adjoint_eigenvalues(Side::Lower)) {
        Some(Ok(mut lambda)) => {
            lambda.reverse();
            lambda
        }
        _ => vec![f64::NAN; dense.nrows()],
    }
}

/// The weight `2/(l_1 + l_{n-1})` that makes `I - weight L` mix fastest, L the graph's Laplacian.
pub fn best_constant(graph: &Graph) -> f64 {
    let n = graph.agents();
    if n == 1 {
        return 1.0;
    }
    let mut laplacian = Mat::<f64>::zeros(n, n);
    for (i, j) in graph.edges() {
        laplacian[(i, j)] = -1.0;
        laplacian[(j, i)] = -1.0;
        laplacian[(i, i)] += 1.0;
        laplacian[(j, j)] += 1.0;
    }
    let lambda = symmetric_eigenvalues(&laplacian);
    2.0 / (lambda[0] + lambda[n - 2])
}
