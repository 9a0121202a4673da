//! Agents with different numbers of local steps: methods in a second, literal form, what stays exact and conserved, and what is counted.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mile::block;
use mile::compression::Compression;
use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::methods::{LocalSteps, Mile, Optimizer, OuterMomentum};
use mile::mixing::Rule;
use mile::network::Network;
use mile::optimiser::Adam;
use mile::problems::{Batch, Draw, Failure, Problem};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rayon::prelude::*;

use crate::common::*;

/// From 1 to 50, two of them twice.
const OWN: [u64; AGENTS] = [50, 1, 7, 20, 3, 50, 1, 12];
/// Shorter rounds, for comparisons.
const SHORT: [u64; AGENTS] = [4, 1, 3, 4, 2, 1, 1, 3];

type Rows = Vec<Vec<f64>>;

fn own(parameters: Parameters, own: [u64; AGENTS]) -> Parameters {
    parameters.with_own_steps(own)
}

/// `a + s b`.
fn plus(a: &[f64], s: f64, b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + s * b).collect()
}

/// A dense matrix and the objectives.
struct Dense {
    w: Rows,
    problem: mile::problems::Table<f64>,
}

impl Dense {
    fn of(network: &Network) -> Self {
        let weight = |i| move |j| network.mixing().weight(i, j);
        let w = (0..AGENTS).map(|i| (0..AGENTS).map(weight(i)).collect()).collect();
        Self { w, problem: nonconvex(AGENTS, DIM, Batch::Full) }
    }

    fn gradient(&self, agent: usize, x: &[f64]) -> Vec<f64> {
        let mut g = vec![0.0; DIM];
        self.problem.gradient(agent, x, &mut g).unwrap();
        g
    }

    fn mix(&self, rows: &Rows) -> Rows {
        let zero = || vec![0.0; DIM];
        let of =
            |weights: &Vec<f64>| weights.iter().zip(rows).fold(zero(), |sum, (w, row)| plus(&sum, *w, row));
        self.w.iter().map(of).collect()
    }
}

/// One agent after the other: what the literal forms are written with.
fn each<R>(work: impl FnMut(usize) -> R) -> Vec<R> {
    (0..AGENTS).map(work).collect()
}

/// The models after each round.
fn literal(method: &str, d: &Dense, start: &Rows, alpha: f64, own: &[u64], rounds: usize) -> Vec<Rows> {
    let zeros = || vec![vec![0.0; DIM]; AGENTS];
    let (mut x, mut c, mut path) = (start.clone(), zeros(), Vec::new());
    let tracks = ["diging", "gta-2"].contains(&method);
    let mut y = if tracks { each(|i| d.gradient(i, &x[i])) } else { zeros() };
    let most = *own.iter().max().unwrap() as f64;
    let rho = 1.0 / (most * (2.0 / 3.0));
    // LT-ADMM's edge variables.
    let mut z = each(|i| {
        each(|j| d.w[i][j] * rho).into_iter().map(|w| plus(&[0.0; DIM], w, &start[i])).collect::<Rows>()
    });
    let mut c_i = zeros();
    if method == "mile" {
        x = each(|i| plus(&x[i], -alpha, &d.gradient(i, &x[i])));
    }
    for r in 0..rounds {
        let before = x.clone();
        for i in 0..AGENTS {
            // The first exchange of some methods is at step 0.
            let steps = match method {
                "mile" if r == 0 => 1,
                "diging" | "gta-2" if r == 0 => 0,
                "diging" | "gta-2" => own[i] - 1,
                _ => own[i],
            };
            for _ in 0..steps {
                let g = d.gradient(i, &x[i]);
                x[i] = match method {
                    "mile" => plus(&plus(&x[i], -alpha, &g), 1.0, &c[i]),
                    "led" => plus(&plus(&x[i], -alpha, &g), -1.0 / most, &y[i]),
                    "local-dsgd" => plus(&x[i], -alpha, &g),
                    "k-gt" => plus(&x[i], -alpha, &plus(&g, 1.0, &c[i])),
                    "scaffold" => plus(&x[i], -alpha, &plus(&plus(&g, -1.0, &c_i[i]), 1.0, &c[i])),
                    "periodical-gt" => {
                        y[i] = plus(&g, 1.0, &c[i]);
                        plus(&x[i], -alpha, &y[i])
                    }
                    "lt-admm" => {
                        let weights: f64 = each(|j| if i == j { 0.0 } else { d.w[i][j] }).iter().sum();
                        let sum = each(|j| j).into_iter().filter(|j| *j != i);
                        let sum = sum.fold(vec![0.0; DIM], |sum, j| plus(&sum, 1.0, &z[i][j]));
                        let penalty = plus(&sum, -rho * weights, &before[i]);
                        plus(&plus(&x[i], -alpha, &g), 1.0, &penalty)
                    }
                    _ => {
                        let new = plus(&x[i], -alpha, &y[i]);
                        y[i] = plus(&plus(&y[i], 1.0, &d.gradient(i, &new)), -1.0, &g);
                        new
                    }
                };
            }
        }
        match method {
            "mile" => {
                let (xi, gamma) = (0.05, 0.8);
                let m = d.mix(&x);
                c = each(|i| plus(&plus(&c[i], -xi, &x[i]), xi, &m[i]));
                x = each(|i| plus(&plus(&[0.0; DIM], 1.0 - gamma, &x[i]), gamma, &m[i]));
            }
            "led" => {
                let mixed = d.mix(&x);
                y = each(|i| plus(&plus(&y[i], 1.0, &x[i]), -1.0, &mixed[i]));
                x = mixed;
            }
            "local-dsgd" => x = d.mix(&x),
            "k-gt" => {
                let z = each(|i| {
                    plus(&[0.0; DIM], 1.0 / (own[i] as f64 * alpha), &plus(&before[i], -1.0, &x[i]))
                });
                let mixed = d.mix(&z);
                c = each(|i| plus(&plus(&c[i], -1.0, &z[i]), 1.0, &mixed[i]));
                x = d.mix(&x);
            }
            "scaffold" => {
                let direction = |i: usize| plus(&before[i], -1.0, &x[i]);
                let new =
                    each(|i| plus(&plus(&c_i[i], -1.0, &c[i]), 1.0 / (own[i] as f64 * alpha), &direction(i)));
                let change = d.mix(&each(|i| plus(&new[i], -1.0, &c_i[i])));
                c = each(|i| plus(&c[i], 1.0, &change[i]));
                (c_i, x) = (new, d.mix(&x));
            }
            "periodical-gt" => {
                let mixed = d.mix(&y);
                c = each(|i| plus(&plus(&c[i], -1.0, &y[i]), 1.0, &mixed[i]));
                x = d.mix(&x);
            }
            "lt-admm" => {
                let sent = |j: usize, i: usize| plus(&z[j][i], -2.0 * rho * d.w[j][i], &x[j]);
                z = each(|i| each(|j| plus(&plus(&[0.0; DIM], 0.5, &z[i][j]), -0.5, &sent(j, i))));
            }
            _ => {
                let g = each(|i| d.gradient(i, &x[i]));
                x = match method {
                    "diging" => {
                        let mixed = d.mix(&x);
                        each(|i| plus(&mixed[i], -alpha, &y[i]))
                    }
                    _ => d.mix(&each(|i| plus(&x[i], -alpha, &y[i]))),
                };
                let mixed = d.mix(&y);
                y = each(|i| plus(&plus(&mixed[i], 1.0, &d.gradient(i, &x[i])), -1.0, &g[i]));
            }
        }
        path.push(x.clone());
    }
    path
}

#[test]
fn methods_with_own_steps_are_their_literal_forms() {
    let methods =
        ["mile", "led", "local-dsgd", "k-gt", "periodical-gt", "diging", "gta-2", "lt-admm", "scaffold"];
    for name in methods {
        let topology = if name == "scaffold" { Topology::Complete } else { Topology::Ring };
        let network = network(topology, AGENTS, Rule::Metropolis);
        let dense = Dense::of(&network);
        let parameters = match name {
            "mile" => Parameters { gamma: Some(0.8), ..xi(4, 0.05) },
            _ => Parameters::default(),
        };
        let method = build(name, &own(parameters, SHORT), &network);
        // LT-ADMM takes all agents to begin at the same point.
        let point = if name == "lt-admm" { scattered(1, DIM).repeat(AGENTS) } else { scattered(AGENTS, DIM) };
        let start: Rows = point.chunks_exact(DIM).map(<[f64]>::to_vec).collect();
        let found = trajectory(&dense.problem, &network, &*method, &point, 0.05, 40);
        let expected = literal(name, &dense, &start, 0.05, &SHORT, 40);
        let expected: Rows = expected.into_iter().map(|rows| rows.concat()).collect();
        assert!(distance(&found, &expected) < 1e-12, "{name}: {:e}", distance(&found, &expected));
        let alike = build(name, &Parameters { gamma: None, ..tau(4) }, &network);
        let alike = trajectory(&dense.problem, &network, &*alike, &point, 0.05, 40);
        assert!(distance(&found, &alike) > 1e-3, "{name}: own steps change nothing");
    }
}

#[test]
fn equal_own_steps_are_those_of_all() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Size(3));
    for entry in catalogue::ALL.iter().filter(|entry| entry.takes_own_steps()) {
        let network = network_of(&entry.name);
        let path = |parameters| {
            let method = build(&entry.name, &parameters, &network);
            assert_eq!(method.own_steps(), None);
            trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.01, 7)
        };
        assert_eq!(path(own(Parameters::default(), [3; AGENTS])), path(tau(3)), "{}", entry.name);
    }
}

fn network_of(name: &str) -> Network {
    match catalogue::find(name).unwrap().has_server() {
        true => network(Topology::Complete, AGENTS, Rule::Metropolis),
        false => ring(Rule::LazyMetropolis),
    }
}

/// Which methods are exact with own steps, with parameters for them, and their step sizes.
fn exact() -> Vec<(&'static str, Parameters, f64)> {
    let mile = |xi_of: f64| Parameters { gamma: Some(0.8), ..xi(50, xi_of) };
    let amsgrad = Adam { betas: [0.9, 0.99], amsgrad: true, ..Adam::default() };
    let local = LocalSteps { optimizer: Some(Optimizer::Adam(amsgrad)), ..LocalSteps::default() };
    let none = Parameters::default;
    let outer = Some(OuterMomentum { momentum: 0.5, step_size: 0.7 });
    vec![
        ("mile", xi(50, 0.03), 0.02),
        ("mile", mile(0.01), 0.02),
        ("mile", with_momentum(mile(0.002), 0.8, true), 0.004),
        ("mile", Parameters { outer, ..mile(0.005) }, 0.02),
        ("mile", adaptive(50, 0.01, 0.8), 0.02),
        ("mile", Parameters { compression: Some(Compression::EightBit), ..mile(0.01) }, 0.02),
        ("mile", Parameters { local, ..mile(0.002) }, 0.002),
        ("led", none(), 0.02),
        ("k-gt", none(), 0.01),
        ("k-gt", with_momentum(none(), 0.5, false), 0.005),
        ("periodical-gt", none(), 0.01),
        ("dec-fedtrack", none(), 0.01),
        ("gta-1", none(), 0.01),
        ("gta-2", none(), 0.01),
        ("gta-3", none(), 0.01),
        ("diging", none(), 0.01),
        ("push-pull", none(), 0.01),
        ("scaffold", none(), 0.01),
        ("lt-admm", none(), 0.02),
        ("dinno", none(), 0.02),
    ]
}

#[test]
fn every_exact_method_that_takes_own_steps_is_tested_with_them() {
    let tested: Vec<_> = exact().iter().map(|(name, ..)| *name).collect();
    for entry in catalogue::ALL.iter().filter(|entry| entry.exact && entry.takes_own_steps()) {
        assert!(tested.contains(&&*entry.name), "{}", entry.name);
    }
}

#[test]
fn exact_methods_stay_exact_with_1_to_50_own_steps_at_once() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let run = |(k, (name, parameters, step_size)): (usize, (&'static str, Parameters, f64))| {
        let network = network_of(name);
        let method = build(name, &own(parameters, OWN), &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(step_size), &mut agents).unwrap();
        let mut error = f64::INFINITY;
        while error >= 1e-9 && run.progress().round < 12_000 {
            (0..200).for_each(|_| run.round(&mut agents).unwrap());
            let gradients = (0..AGENTS).map(|agent| gradient_norm(&problem, agents.model(agent)));
            error = gradients.fold(block::consensus_error(agents.models(), DIM).sqrt(), f64::max);
        }
        let sum = if name == "dinno" { "p" } else { "c" };
        let has_sum = name != "scaffold" && method.layout().state_names().any(|name| name == sum);
        let left = if has_sum { mean_of(agents.vector(vector(&*method, sum))) } else { 0.0 };
        (k, name, error, run.progress().round, left)
    };
    let found: Vec<_> = exact().into_par_iter().enumerate().map(run).collect();
    let exact = |(.., error, _, left): &(_, _, f64, _, f64)| *error < 1e-9 && *left < 1e-12;
    assert!(found.iter().all(exact), "{found:?}");
}

/// The largest element of the mean over the agents.
fn mean_of(rows: &[f64]) -> f64 {
    block::mean_row(rows, DIM).into_iter().map(f64::abs).fold(0.0, f64::max)
}

#[test]
fn local_dsgd_stays_biased_with_own_steps() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let network = network_of("local-dsgd");
    let method = build("local-dsgd", &own(Parameters::default(), OWN), &network);
    let path = trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.02, 1_000);
    assert!(gradient_norm(&problem, &block::mean_row(&path[999], DIM)) > 1e-3);
}

/// Objectives that note which samples are drawn.
struct Noting(mile::problems::Table<f64>, Mutex<BTreeMap<usize, Vec<u64>>>);

impl Problem<f64> for Noting {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        self.0.gradient(agent, x, gradient)
    }

    fn sample_gradient(&self, agent: usize, x: &[f64], draw: Draw, g: &mut [f64]) -> Result<(), Failure> {
        self.1.lock().unwrap().entry(agent).or_default().push(draw.step);
        self.0.sample_gradient(agent, x, draw, g)
    }
}

#[test]
fn agents_draw_their_samples_one_after_the_other_and_gradients_are_counted_where_they_are_spent() {
    for (name, before, rounds) in [("led", 0, 6), ("mile", 2, 5), ("k-gt", 0, 6), ("gta-1", 2, 5)] {
        let problem = Noting(nonconvex(AGENTS, DIM, Batch::Epoch(2)), Mutex::default());
        let network = network_of(name);
        let method = build(name, &own(Parameters::default(), SHORT), &network);
        let start = scattered(AGENTS, DIM);
        let mut agents = Simulator::new(&problem, &network, &*method, &start, 3).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(0.01), &mut agents).unwrap();
        (0..6).for_each(|_| run.round(&mut agents).unwrap());
        let evals = run.progress().costs.gradient_evals;
        drop(agents);
        let drawn = problem.1.into_inner().unwrap();
        for (agent, steps) in SHORT.iter().enumerate() {
            let count = before + steps * rounds;
            let first = if before == 0 { 1 } else { 0 };
            assert_eq!(drawn[&agent], (first..first + count).collect::<Vec<_>>(), "{name}: agent {agent}");
        }
        let total = AGENTS as u64 * before + rounds * SHORT.iter().sum::<u64>();
        assert_eq!(evals, total, "{name}");
    }
}

#[test]
fn own_steps_that_make_no_sense_are_refused_by_name() {
    let network = ring(Rule::Metropolis);
    let refused = |name: &str, own: &[u64]| {
        let parameters = Parameters::default().with_own_steps(own);
        catalogue::find(name).unwrap().build(&parameters, &network, 0).unwrap_err().parameter
    };
    let zero = [4, 1, 3, 0, 2, 1, 1, 3];
    for (name, own) in [
        ("mile", &SHORT[..7]),
        ("led", &zero),
        ("mile", &[]),
        ("proxskip", &SHORT),
        ("mg-skip", &SHORT),
        ("ed", &SHORT),
        ("dsgd", &SHORT),
    ] {
        assert_eq!(refused(name, own), "local_steps", "{name} {own:?}");
    }
    assert_eq!(Mile::new(5, 0.1).unwrap().with_own_steps(Some(&SHORT)).unwrap_err().parameter, "local_steps");
}

/// Objectives without curvature: what is left are disagreement and correction.
struct Flat;

impl Problem<f64> for Flat {
    fn agents(&self) -> usize {
        AGENTS
    }

    fn dim(&self) -> usize {
        1
    }

    fn loss(&self, _: usize, _: &[f64]) -> Result<f64, Failure> {
        Ok(0.0)
    }

    fn gradient(&self, _: usize, _: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        gradient.fill(0.0);
        Ok(())
    }
}

/// `(tau xi + 2 gamma)(1 - l_N) < 4` with the largest tau suffices, and is sharp if all have it (`docs/src/theory.md`).
#[test]
fn what_is_stable_for_the_largest_number_is_stable_for_own_numbers() {
    let network = ring(Rule::Metropolis);
    let width = 1.0 - network.extremes().lambda_n;
    let left = |own: [u64; AGENTS], gamma: f64, share: f64| {
        let tau = own.into_iter().max().unwrap();
        let xi = share * (4.0 / width - 2.0 * gamma) / tau as f64;
        let method = Mile::decoupled(tau, xi, gamma).unwrap().with_own_steps(Some(&own)).unwrap();
        let path = trajectory(&Flat, &network, &method, &scattered(AGENTS, 1), 0.1, 4_000);
        block::consensus_error(&path[3_999], 1)
    };
    for gamma in [0.1, 0.5, 1.0] {
        for own in [OWN, SHORT, [50, 1, 1, 1, 1, 1, 1, 1], [1, 50, 50, 50, 50, 50, 50, 50]] {
            let left = left(own, gamma, 0.98);
            assert!(left < 1e-6, "{own:?} with gamma {gamma}: {left:e}");
        }
        assert!(left([20; AGENTS], gamma, 0.98) < 1e-6);
        let beyond = left([20; AGENTS], gamma, 1.02);
        assert!(beyond > 1e3 || beyond.is_nan(), "gamma {gamma}: {beyond}");
    }
}

/// By how much a round shrinks the distance of the average from the minimiser, in units of the step size and the curvature.
#[test]
fn dual_methods_progress_with_the_harmonic_mean_and_tracking_with_the_arithmetic_one() {
    let problem = mile::problems::Quadratic::<f64>::new(AGENTS, 3, 1.0, 1.0, 0).unwrap();
    let network = ring(Rule::LazyMetropolis);
    let harmonic = AGENTS as f64 / SHORT.iter().map(|steps| 1.0 / *steps as f64).sum::<f64>();
    let arithmetic = SHORT.iter().sum::<u64>() as f64 / AGENTS as f64;
    let (alpha, none) = (1e-3, Parameters::default);
    for (name, parameters, expected) in [
        ("mile", Parameters { gamma: Some(0.8), ..xi(4, 0.2) }, harmonic),
        ("led", none(), harmonic),
        ("lt-admm", none(), harmonic),
        ("k-gt", none(), arithmetic),
        ("diging", none(), arithmetic),
    ] {
        let method = build(name, &own(parameters, SHORT), &network);
        let path = trajectory(&problem, &network, &*method, &scattered(AGENTS, 3), alpha, 900);
        let norm = |rows: &[f64]| gradient_norm(&problem, &block::mean_row(rows, 3));
        let curvature = norm_of_curvature(&problem);
        let rate = (norm(&path[599]) / norm(&path[899])).ln() / (300.0 * alpha * curvature);
        assert!((rate - expected).abs() < 0.03 * expected, "{name}: {rate}, expected {expected}");
    }
}

/// The curvature of objectives that have the same in all directions.
fn norm_of_curvature(problem: &mile::problems::Quadratic<f64>) -> f64 {
    let at = |x: f64| gradient_of_mean(problem, &[x, 0.0, 0.0])[0];
    at(1.0) - at(0.0)
}

fn gradient_of_mean(problem: &dyn Problem<f64>, x: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; x.len()];
    for agent in 0..AGENTS {
        let mut g = vec![0.0; x.len()];
        problem.gradient(agent, x, &mut g).unwrap();
        sum = plus(&sum, 1.0 / AGENTS as f64, &g);
    }
    sum
}
