//! Fastest distributed linear averaging (Xiao and Boyd 2004): the symmetric W on a graph with the
//! smallest `max(l_2, -l_N)`.
//!
//! The semidefinite program
//!
//! ```text
//! minimise s   subject to   -s I <= W - J <= s I,   W = I - sum_l w_l a_l a_l',   a_(i,j) = e_i - e_j
//! ```
//!
//! is solved by Newton's method on its logarithmic barrier. With `U = (sI - W + J)^-1` and
//! `V = (sI + W - J)^-1` the Hessian is `(a_l' U a_k)^2 + (a_l' V a_k)^2`, which costs a few
//! additions per entry. It is implemented here because general conic solvers in Rust need LAPACK for semidefinite
//! cones, which a Rust toolchain alone does not install.

use faer::linalg::solvers::{DenseSolveCore, Llt, Solve};
use faer::{Col, Mat, Side};

use crate::graph::Graph;
use crate::spectrum::symmetric_eigenvalues;

/// Most agents for which the program is solved.
pub(crate) const MAX_AGENTS: usize = 1000;
/// Most edges for which the program is solved.
pub(crate) const MAX_EDGES: usize = 2000;

/// The barrier's weight grows until the duality gap, 2N over it, is below this.
const GAP: f64 = 1e-9;
const GROWTH: f64 = 12.0;
const NEWTON_STEPS: usize = 60;

struct Program<'g> {
    agents: usize,
    edges: &'g [(usize, usize)],
}

/// A strictly feasible point (w, s), with U, V and the log-determinant of the barrier.
struct Point {
    w: Vec<f64>,
    s: f64,
    u: Mat<f64>,
    v: Mat<f64>,
    log_det: f64,
}

impl Point {
    fn new(w: Vec<f64>, s: f64, factors: &[Llt<f64>; 2]) -> Self {
        let (u, v) = rayon::join(|| factors[0].inverse(), || factors[1].inverse());
        Self { w, s, u, v, log_det: log_det(factors) }
    }
}

/// The sum of the logarithms of both determinants.
fn log_det(factors: &[Llt<f64>; 2]) -> f64 {
    let diagonals = factors.iter().flat_map(|factor| factor.L().diagonal().column_vector().iter());
    diagonals.map(|pivot| 2.0 * pivot.ln()).sum()
}

/// The optimal weights, in the order of [`Graph::edges`]; none for a graph that is too large. The search starts
/// from one weight for all edges, `best_constant`, and the result is never worse.
pub(crate) fn weights(graph: &Graph, best_constant: f64) -> Option<Vec<f64>> {
    let edges: Vec<_> = graph.edges().collect();
    let agents = graph.agents();
    if agents > MAX_AGENTS || edges.len() > MAX_EDGES {
        return None;
    }
    let program = Program { agents, edges: &edges };
    let constant = vec![best_constant; edges.len()];
    if edges.is_empty() {
        return Some(constant);
    }
    let best = program.minimise(&constant);
    Some(if program.convergence_factor(&best) <= program.convergence_factor(&constant) {
        best
    } else {
        constant
    })
}

impl Program<'_> {
    /// W - J for these weights.
    fn deviation(&self, w: &[f64]) -> Mat<f64> {
        let n = self.agents;
        let mut m = Mat::from_fn(n, n, |i, j| f64::from(u8::from(i == j)) - 1.0 / n as f64);
        for (&(i, j), &w) in self.edges.iter().zip(w) {
            m[(i, j)] += w;
            m[(j, i)] += w;
            m[(i, i)] -= w;
            m[(j, j)] -= w;
        }
        m
    }

    /// The convergence factor `max(l_2, -l_N)`.
    fn convergence_factor(&self, w: &[f64]) -> f64 {
        let lambda = symmetric_eigenvalues(&self.deviation(w));
        lambda[0].max(-lambda[lambda.len() - 1])
    }

    /// The Cholesky factors of `sI - W + J` and `sI + W - J`; none if (w, s) is not strictly feasible.
    fn factors(&self, w: &[f64], s: f64) -> Option<[Llt<f64>; 2]> {
        let (n, deviation) = (self.agents, self.deviation(w));
        let factor = |sign: f64| {
            let shifted = |i, j| sign * deviation[(i, j)] + if i == j { s } else { 0.0 };
            Mat::from_fn(n, n, shifted).llt(Side::Lower).ok()
        };
        let (upper, lower) = rayon::join(|| factor(-1.0), || factor(1.0));
        Some([upper?, lower?])
    }

    fn minimise(&self, start: &[f64]) -> Vec<f64> {
        let s = self.convergence_factor(start) + 0.1;
        let Some(factors) = self.factors(start, s) else { return start.to_vec() };
        let mut point = Point::new(start.to_vec(), s, &factors);
        let mut weight = 10.0;
        loop {
            for _ in 0..NEWTON_STEPS {
                match self.newton_step(&point, weight) {
                    Some(next) => point = next,
                    None => break,
                }
            }
            if 2.0 * self.agents as f64 / weight < GAP {
                return point.w;
            }
            weight *= GROWTH;
        }
    }

    /// One damped Newton step on `weight*s - log det`; none when it has converged.
    fn newton_step(&self, at: &Point, weight: f64) -> Option<Point> {
        let (gradient, hessian) = self.derivatives(at, weight);
        let m = self.edges.len();
        let direction = hessian.llt(Side::Lower).ok()?.solve(&gradient);
        let decrement: f64 = gradient.iter().zip(direction.iter()).map(|(g, d)| g * d).sum();
        if !decrement.is_finite() || decrement < 1e-10 {
            return None;
        }
        let value = weight * at.s - at.log_det;
        let mut length = 1.0;
        while length > 1e-8 {
            let w: Vec<f64> = at.w.iter().zip(direction.iter()).map(|(w, d)| w - length * d).collect();
            let s = at.s - length * direction[m];
            if let Some(factors) = self.factors(&w, s)
                && weight * s - log_det(&factors) < value - 0.1 * length * decrement
            {
                return Some(Point::new(w, s, &factors));
            }
            length *= 0.5;
        }
        None
    }

    /// The gradient, and the lower triangle of the Hessian.
    fn derivatives(&self, at: &Point, weight: f64) -> (Col<f64>, Mat<f64>) {
        let m = self.edges.len();
        let form = |x: &Mat<f64>, l: usize, k: usize| {
            let ((i, j), (p, q)) = (self.edges[l], self.edges[k]);
            x[(i, p)] - x[(i, q)] - x[(j, p)] + x[(j, q)]
        };
        // |X a_l|^2 and |X|^2, for the derivatives by s.
        let length_sq = |x: &Mat<f64>, l: usize| {
            let (i, j) = self.edges[l];
            (x.col(i) - x.col(j)).squared_norm_l2()
        };
        let mut gradient = Col::zeros(m + 1);
        let mut hessian = Mat::zeros(m + 1, m + 1);
        for k in 0..m {
            gradient[k] = form(&at.v, k, k) - form(&at.u, k, k);
            hessian[(m, k)] = length_sq(&at.u, k) - length_sq(&at.v, k);
            for l in k..m {
                hessian[(l, k)] = form(&at.u, l, k).powi(2) + form(&at.v, l, k).powi(2);
            }
        }
        let trace = |x: &Mat<f64>| (0..self.agents).map(|i| x[(i, i)]).sum::<f64>();
        gradient[m] = weight - trace(&at.u) - trace(&at.v);
        hessian[(m, m)] = at.u.squared_norm_l2() + at.v.squared_norm_l2();
        (gradient, hessian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;
    use crate::mixing::{MixingError, Rule};
    use crate::spectrum::spectrum;

    fn factor(rule: Rule, graph: &Graph) -> f64 {
        let extremes = spectrum(rule.matrix(graph).unwrap().rows()).extremes();
        extremes.lambda_2.max(-extremes.lambda_n)
    }

    #[test]
    fn the_hypercube_reaches_its_closed_form() {
        // Edge-transitive, so the best constant is optimal: (d - 1)/(d + 1).
        for d in 1..=5 {
            let graph = Topology::Hypercube.build(1 << d, 0).unwrap();
            let expected = (d as f64 - 1.0) / (d as f64 + 1.0);
            assert!((factor(Rule::Fdla, &graph) - expected).abs() < 1e-7, "d = {d}");
        }
    }

    #[test]
    fn a_path_reaches_its_closed_form() {
        // Weight 1/2 on every edge: cos(pi/n) (Boyd, Diaconis, Sun, Xiao 2006).
        for n in [2usize, 3, 7, 20, 60] {
            let graph = Topology::Path.build(n, 0).unwrap();
            let expected = (std::f64::consts::PI / n as f64).cos();
            let found = factor(Rule::Fdla, &graph);
            assert!((found - expected).abs() < 1e-6, "n = {n}: {found} against {expected}");
        }
    }

    #[test]
    fn it_is_never_worse_than_the_best_constant_and_often_better() {
        let mut better = 0;
        for seed in 0..6 {
            let graph =
                (seed * 100..).find_map(|s| Topology::ErdosRenyi { p: 0.3 }.build(14, s).ok()).unwrap();
            let (fdla, constant) = (factor(Rule::Fdla, &graph), factor(Rule::BestConstant, &graph));
            assert!(fdla <= constant + 1e-12);
            better += usize::from(fdla < constant - 1e-3);
        }
        assert!(better >= 5);
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let graph = Topology::Grid.build(30, 0).unwrap();
        let with_threads = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| weights(&graph, 0.2))
        };
        assert_eq!(with_threads(1), with_threads(3));
    }

    #[test]
    fn a_graph_too_large_is_refused_with_the_limit() {
        let graph = Topology::Complete.build(80, 0).unwrap();
        assert_eq!(weights(&graph, 0.1), None);
        let refused = Rule::Fdla.matrix(&graph).unwrap_err();
        assert!(matches!(refused, MixingError::TooLarge { agents: 80, .. }), "{refused}");
    }
}
