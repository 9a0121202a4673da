//! Mixing matrices W: the weight w_ij that agent i gives to the vector of its neighbour j.
//!
//! Every matrix is checked against the paper's Assumption 3 before it is used:
//! 1) zero where there is no edge, 2) symmetric, 3) Null(I - W) = span(1), 4) 2I >= W + I > 0.

use crate::fdla;
use crate::graph::parse::parse_matrix;
use crate::graph::{Graph, GraphError};
use crate::sparse::SparseRows;
use crate::spectrum;

/// Tolerance of the checks that rows sum to one and that W is symmetric.
const TOLERANCE: f64 = 1e-9;

/// A rule that computes a mixing matrix from a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// `w_ij = 1/(1 + max(d_i, d_j))`: needs only the neighbours' degrees.
    Metropolis,
    /// `(I + W)/2` with W of Metropolis: all eigenvalues are positive.
    LazyMetropolis,
    /// `w_ij = 1/(1 + d_max)`.
    MaxDegree,
    /// `W = I - 2/(l_1 + l_{n-1}) L`, the fastest W with one weight for all edges; L is the graph's Laplacian.
    BestConstant,
    /// Fastest distributed linear averaging: the symmetric W with the smallest `max(l_2, -l_N)`.
    Fdla,
}

/// A symmetric matrix on a graph that satisfies Assumption 3.
#[derive(Clone, Debug)]
pub struct MixingMatrix {
    rows: SparseRows,
}

/// Which clause of Assumption 3 a matrix violates, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MixingError {
    /// The matrix and the graph have different sizes.
    #[error(
        "the matrix has {got} {what}, the graph has {agents} agents: give a row and a column for each agent"
    )]
    Size {
        /// `rows` or `columns`.
        what: &'static str,
        /// Their number.
        got: usize,
        /// Agents of the graph.
        agents: usize,
    },
    /// Clause 1: a weight between agents that are not neighbours.
    #[error(
        "w[{i}][{j}] = {weight}, but {i} and {j} are not neighbours (Assumption 3, clause 1): set it to 0 or add the edge"
    )]
    OffGraph {
        /// Row.
        i: usize,
        /// Column.
        j: usize,
        /// The weight there.
        weight: f64,
    },
    /// Clause 2: the matrix is not symmetric.
    #[error(
        "w[{i}][{j}] = {ij} but w[{j}][{i}] = {ji} (Assumption 3, clause 2: W is symmetric): make them equal"
    )]
    Asymmetric {
        /// Row.
        i: usize,
        /// Column.
        j: usize,
        /// Weight in row i.
        ij: f64,
        /// Weight in row j.
        ji: f64,
    },
    /// Clause 3: a row does not sum to one.
    #[error(
        "row {i} sums to {sum}, not 1 within 1e-9 (Assumption 3, clause 3: W 1 = 1); correct w[{i}][{i}]"
    )]
    RowSum {
        /// Row.
        i: usize,
        /// Its sum.
        sum: f64,
    },
    /// Clause 3: the eigenvalue 1 is not simple.
    #[error(
        "the second eigenvalue is {lambda_2}, not below 1 (Assumption 3, clause 3: Null(I - W) = span(1)): give positive weights to edges that connect all agents"
    )]
    NullSpace {
        /// Second largest eigenvalue.
        lambda_2: f64,
    },
    /// Clause 4: an eigenvalue outside (-1, 1].
    #[error(
        "the {which} eigenvalue is {lambda}, outside (-1, 1] (Assumption 3, clause 4: 2I >= W + I > 0): try (I + W)/2, or smaller weights"
    )]
    Eigenvalue {
        /// `largest` or `smallest`.
        which: &'static str,
        /// The eigenvalue.
        lambda: f64,
    },
    /// The graph is too large for [`Rule::Fdla`].
    #[error(
        "fdla solves a semidefinite program: expected at most {} agents and {} edges, got {agents} and {edges}; use best-constant",
        fdla::MAX_AGENTS,
        fdla::MAX_EDGES
    )]
    TooLarge {
        /// Number of agents.
        agents: usize,
        /// Number of edges.
        edges: usize,
    },
    /// The text of a matrix could not be read.
    #[error(transparent)]
    Text(#[from] GraphError),
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 5] =
        [Self::Metropolis, Self::LazyMetropolis, Self::MaxDegree, Self::BestConstant, Self::Fdla];

    /// Its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metropolis => "metropolis",
            Self::LazyMetropolis => "lazy-metropolis",
            Self::MaxDegree => "max-degree",
            Self::BestConstant => "best-constant",
            Self::Fdla => "fdla",
        }
    }

    /// The matrix of this rule on a connected graph.
    pub fn matrix(self, graph: &Graph) -> Result<MixingMatrix, MixingError> {
        let larger = |i: usize, j: usize| graph.degree(i).max(graph.degree(j)) as f64;
        match self {
            Self::Metropolis => MixingMatrix::from_edges(graph, |i, j| 1.0 / (1.0 + larger(i, j))),
            Self::LazyMetropolis => MixingMatrix::from_edges(graph, |i, j| 0.5 / (1.0 + larger(i, j))),
            Self::MaxDegree => {
                let weight = 1.0 / (1.0 + graph.max_degree() as f64);
                MixingMatrix::from_edges(graph, |_, _| weight)
            }
            Self::BestConstant => {
                let weight = best_constant(graph);
                MixingMatrix::from_edges(graph, |_, _| weight)
            }
            Self::Fdla => {
                let (agents, edges) = (graph.agents(), graph.edges().count());
                let weights = fdla::weights(graph, best_constant(graph));
                let weights = weights.ok_or(MixingError::TooLarge { agents, edges })?;
                let of: std::collections::HashMap<_, _> = graph.edges().zip(weights).collect();
                MixingMatrix::from_edges(graph, |i, j| of[&(i.min(j), i.max(j))])
            }
        }
    }
}

impl MixingMatrix {
    /// The matrix with these weights on the edges, and a diagonal that makes each row sum to one.
    pub fn from_edges(graph: &Graph, weight: impl Fn(usize, usize) -> f64) -> Result<Self, MixingError> {
        let mut rows = SparseRows { starts: vec![0], entries: Vec::new() };
        for i in 0..graph.agents() {
            let begin = rows.entries.len();
            rows.entries.extend(graph.neighbours(i).iter().map(|&j| (j, weight(i, j))));
            let others: f64 = rows.entries[begin..].iter().map(|(_, w)| w).sum();
            let place = begin + rows.entries[begin..].partition_point(|(j, _)| *j < i);
            rows.entries.insert(place, (i, 1.0 - others));
            rows.starts.push(rows.entries.len());
        }
        Self { rows }.checked(graph)
    }

    /// The largest sum of the weights of an agent's edges, in absolute value; 1 if there are no edges. No eigenvalue of I - W is
    /// larger than twice this.
    pub fn degree(&self) -> f64 {
        let others = |i: usize| self.rows.row(i).iter().filter(move |(j, _)| *j != i);
        let degrees = (0..self.agents()).map(|i| others(i).map(|(_, w)| w.abs()).sum());
        Some(degrees.fold(0.0, f64::max)).filter(|degree| *degree > 0.0).unwrap_or(1.0)
    }

    /// A dense matrix, row by row.
    pub fn from_dense(graph: &Graph, matrix: &[Vec<f64>]) -> Result<Self, MixingError> {
        let agents = graph.agents();
        if matrix.len() != agents {
            return Err(MixingError::Size { what: "rows", got: matrix.len(), agents });
        }
        let mut rows = SparseRows { starts: vec![0], entries: Vec::new() };
        for (i, row) in matrix.iter().enumerate() {
            if row.len() != agents {
                return Err(MixingError::Size { what: "columns", got: row.len(), agents });
            }
            for (j, &weight) in row.iter().enumerate() {
                if i == j || graph.has_edge(i, j) {
                    rows.entries.push((j, weight));
                } else if weight != 0.0 {
                    return Err(MixingError::OffGraph { i, j, weight });
                }
            }
            rows.starts.push(rows.entries.len());
        }
        Self { rows }.checked(graph)
    }

    /// Reads a dense matrix from text, one row per line.
    pub fn parse(graph: &Graph, text: &str) -> Result<Self, MixingError> {
        Self::from_dense(graph, &parse_matrix(text, graph.agents())?)
    }

    /// An error if the matrix does not match the graph: a different size, or a weight where there is no edge.
    pub fn check_graph(&self, graph: &Graph) -> Result<(), MixingError> {
        let (got, agents) = (self.agents(), graph.agents());
        if got != agents {
            return Err(MixingError::Size { what: "rows", got, agents });
        }
        for i in 0..agents {
            for &(j, weight) in self.rows.row(i) {
                if weight != 0.0 && i != j && !graph.has_edge(i, j) {
                    return Err(MixingError::OffGraph { i, j, weight });
                }
            }
        }
        Ok(())
    }

    /// The rows of W: for each agent its (neighbour, weight) pairs, itself included.
    pub fn rows(&self) -> &SparseRows {
        &self.rows
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.rows.rows()
    }

    /// The weight w_ij.
    pub fn weight(&self, i: usize, j: usize) -> f64 {
        let row = self.rows.row(i);
        row.binary_search_by_key(&j, |(j, _)| *j).map_or(0.0, |k| row[k].1)
    }

    fn checked(self, graph: &Graph) -> Result<Self, MixingError> {
        for i in 0..self.agents() {
            for &(j, ij) in self.rows.row(i) {
                let ji = self.weight(j, i);
                if (ij - ji).abs() > TOLERANCE || !ij.is_finite() {
                    return Err(MixingError::Asymmetric { i, j, ij, ji });
                }
            }
            let sum: f64 = self.rows.row(i).iter().map(|(_, w)| w).sum();
            if (sum - 1.0).abs() > TOLERANCE {
                return Err(MixingError::RowSum { i, sum });
            }
        }
        if self.is_primitive(graph) {
            return Ok(self);
        }
        let extremes = spectrum::spectrum(&self.rows).extremes();
        if extremes.lambda_1 > 1.0 + TOLERANCE {
            return Err(MixingError::Eigenvalue { which: "largest", lambda: extremes.lambda_1 });
        }
        if extremes.lambda_n <= -1.0 + TOLERANCE {
            return Err(MixingError::Eigenvalue { which: "smallest", lambda: extremes.lambda_n });
        }
        if extremes.lambda_2 >= 1.0 - 1e-12 {
            return Err(MixingError::NullSpace { lambda_2: extremes.lambda_2 });
        }
        Ok(self)
    }

    /// A sufficient condition for clauses 3 and 4 that needs no eigenvalues: positive weights on the edges of a
    /// connected graph (Perron-Frobenius) and on the diagonal (Gershgorin).
    fn is_primitive(&self, graph: &Graph) -> bool {
        let positive = (0..self.agents()).all(|i| self.rows.row(i).iter().all(|(_, w)| *w > 0.0));
        positive && graph.components().len() == 1
    }
}

/// The weight `2/(l_1 + l_{n-1})` for which `I - weight L` mixes fastest; L is the graph's Laplacian.
pub fn best_constant(graph: &Graph) -> f64 {
    let n = graph.agents();
    if n == 1 {
        return 1.0;
    }
    // I - L/scale has row sums one, and its eigenvalues are 1 - l/scale.
    let scale = 2.0 * graph.max_degree() as f64;
    let mut rows = SparseRows { starts: vec![0], entries: Vec::new() };
    for i in 0..n {
        let mut row: Vec<(usize, f64)> = graph.neighbours(i).iter().map(|&j| (j, 1.0 / scale)).collect();
        row.push((i, 1.0 - graph.degree(i) as f64 / scale));
        row.sort_unstable_by_key(|(j, _)| *j);
        rows.entries.extend(row);
        rows.starts.push(rows.entries.len());
    }
    let found = spectrum::spectrum(&rows).extremes();
    2.0 / (scale * (2.0 - found.lambda_2 - found.lambda_n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Topology;

    fn path(agents: usize) -> Graph {
        Topology::Path.build(agents, 0).unwrap()
    }

    #[test]
    fn each_clause_of_assumption_3_is_refused_by_name() {
        let refusal = |rows: &[&[f64]]| {
            let rows: Vec<Vec<f64>> = rows.iter().map(|row| row.to_vec()).collect();
            MixingMatrix::from_dense(&path(rows.len()), &rows).unwrap_err()
        };
        let off = refusal(&[&[0.5, 0.25, 0.25], &[0.25, 0.5, 0.25], &[0.25, 0.25, 0.5]]);
        assert_eq!(off, MixingError::OffGraph { i: 0, j: 2, weight: 0.25 });
        let asymmetric = refusal(&[&[0.5, 0.5], &[0.4, 0.6]]);
        assert!(matches!(asymmetric, MixingError::Asymmetric { i: 0, j: 1, .. }));
        let sum = refusal(&[&[0.5, 0.4], &[0.4, 0.6]]);
        assert!(matches!(sum, MixingError::RowSum { i: 0, .. }));
        let identity = refusal(&[&[1.0, 0.0], &[0.0, 1.0]]);
        assert!(matches!(identity, MixingError::NullSpace { .. }), "{identity}");
        let swap = refusal(&[&[0.0, 1.0], &[1.0, 0.0]]);
        assert!(matches!(swap, MixingError::Eigenvalue { which: "smallest", .. }), "{swap}");
        let large = refusal(&[&[2.0, -1.0], &[-1.0, 2.0]]);
        assert!(matches!(large, MixingError::Eigenvalue { which: "largest", .. }), "{large}");
    }

    #[test]
    fn a_matrix_of_another_size_or_graph_is_refused() {
        let dense = |rows: &[&[f64]]| {
            let rows: Vec<Vec<f64>> = rows.iter().map(|row| row.to_vec()).collect();
            MixingMatrix::from_dense(&path(3), &rows).unwrap_err()
        };
        let size = |what, got| MixingError::Size { what, got, agents: 3 };
        assert_eq!(dense(&[&[0.5, 0.5], &[0.5, 0.5]]), size("rows", 2));
        assert_eq!(dense(&[&[1.0], &[0.0; 3], &[0.0; 3]]), size("columns", 1));
        let ring = Rule::Metropolis.matrix(&Topology::Ring.build(4, 0).unwrap()).unwrap();
        assert!(matches!(ring.check_graph(&path(3)), Err(MixingError::Size { got: 4, agents: 3, .. })));
        assert!(matches!(ring.check_graph(&path(4)), Err(MixingError::OffGraph { i: 0, j: 3, .. })));
        assert_eq!(ring.check_graph(&Topology::Complete.build(4, 0).unwrap()), Ok(()));
    }

    #[test]
    fn rules_give_their_weights() {
        let star = Topology::Star.build(4, 0).unwrap();
        let weights = |rule: Rule| rule.matrix(&star).unwrap();
        assert_eq!(weights(Rule::Metropolis).weight(0, 1), 0.25);
        assert_eq!(weights(Rule::LazyMetropolis).weight(0, 0), 0.625);
        assert_eq!(weights(Rule::MaxDegree).weight(1, 1), 0.75);
        assert!((weights(Rule::BestConstant).weight(0, 2) - 0.4).abs() < 1e-12);
    }

    #[test]
    fn one_agent_has_the_matrix_one() {
        for rule in Rule::ALL {
            let matrix = rule.matrix(&path(1)).unwrap();
            assert_eq!(matrix.rows().row(0), [(0, 1.0)]);
        }
    }
}
