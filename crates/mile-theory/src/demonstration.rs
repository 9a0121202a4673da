//! The cases of `mile reproduce theorems`: quadratic objectives on a ring with lazy weights, from four starting points.

use mile::agents::AgentsError;
use mile::graph::Topology;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem, Quadratic};
use mile::random::{Purpose, stream};
use rand::RngExt;
use rand_distr::StandardNormal;
use serde::Serialize;

use crate::TheoryError;
use crate::theorems::{Noisy, Row, TheoremSetting, exact, stochastic};

const AGENTS: usize = 8;
const DIM: usize = 10;
/// (tau, xi), all inside the paper's range.
const CASES: [(u64, f64); 3] = [(2, 0.35), (5, 0.2), (10, 0.12)];
/// sigma^2 of a stochastic gradient; L = 1.
const VARIANCE: f64 = 1e-4;

/// One inequality on one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Case {
    /// The starting point.
    pub start: &'static str,
    /// Both sides of the inequality.
    #[serde(flatten)]
    pub row: Row,
}

/// Evaluates Theorems 1 to 4 on runs of T = tau (k + 1) iterations, 3 and 4 over `seeds` seeds.
///
/// Eight agents on a ring with lazy Metropolis weights, quadratics of dimension 10 with curvatures from
/// 0.1 to 1, the largest step size the theorems admit.
pub fn demonstration(k: u64, seeds: u64) -> Result<Vec<Case>, TheoryError> {
    let (Ok(graph), Ok(problem)) =
        (Topology::Ring.build(AGENTS, 0), Quadratic::new(AGENTS, DIM, 10.0, 1.0, 5))
    else {
        unreachable!("a ring of eight agents and a quadratic of ten dimensions are valid");
    };
    let Ok(network) = Network::new(graph, Rule::LazyMetropolis) else {
        unreachable!("Metropolis weights are admissible on every connected graph");
    };
    let noisy = Noisy { problem: &problem, variance: VARIANCE };
    let lowest = lowest(&problem).map_err(AgentsError::Evaluation)?;
    let seeds: Vec<u64> = (0..seeds).collect();
    let mut cases = Vec::new();
    for (start, x) in starts() {
        for (local_steps, xi) in CASES {
            let setting = TheoremSetting {
                problem: &noisy,
                network: &network,
                local_steps,
                xi,
                smoothness: 1.0,
                lowest,
                variance: VARIANCE,
                start: &x,
                k,
            };
            let rows = exact(&setting)?.into_iter().chain(stochastic(&setting, &seeds)?);
            cases.extend(rows.map(|row| Case { start, row }));
        }
    }
    cases.sort_by_key(|case| case.row.theorem);
    Ok(cases)
}

/// Starting points: apart along the slowest mode of the ring, apart at random, one random point, zero.
fn starts() -> [(&'static str, Vec<f64>); 4] {
    let wave = |i: usize| (std::f64::consts::TAU * i as f64 / AGENTS as f64).cos();
    let gaussian = |index: u64, len: usize| -> Vec<f64> {
        let mut random = stream(0, Purpose::Start, index, 0);
        (0..len).map(|_| random.sample(StandardNormal)).collect()
    };
    [
        ("apart, slowest mode", (0..AGENTS).flat_map(|i| [wave(i); DIM]).collect()),
        ("apart, random", gaussian(0, AGENTS * DIM)),
        ("common, random", gaussian(1, DIM)),
        ("zero", vec![0.0; DIM]),
    ]
}

/// The lowest value of f, by gradient descent with step 1/L, L = 1.
fn lowest(problem: &Quadratic<f64>) -> Result<f64, Failure> {
    let (mut x, mut g) = (vec![0.0; DIM], vec![0.0; DIM]);
    for _ in 0..2000 {
        let mut sum = vec![0.0; DIM];
        for agent in 0..AGENTS {
            problem.gradient(agent, &x, &mut g)?;
            sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g / AGENTS as f64);
        }
        x.iter_mut().zip(&sum).for_each(|(x, s)| *x -= s);
    }
    problem.objective(&x)
}
