//! Objectives with a nonsmooth penalty: the recursions written a second time, the minimiser by other means, equal bits.

use mile::block;
use mile::engine::HostError;
use mile::methods::catalogue::{self, Parameters, WITH_PENALTY};
use mile::methods::{Nids, ProxNids, Variant};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, InvalidTable, Loss, Penalty, Problem, Quadratic, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rand::RngExt;
use rand_distr::StandardNormal;

use crate::common::*;
use crate::literal::{Dense, Mat, flat, matrix};

/// Features, the last of which is the constant 1, for a regression in which two of the others matter.
const COLUMNS: usize = 7;
const INTERCEPT: usize = COLUMNS - 1;
const L1: f64 = 0.2;
const L2: f64 = 0.05;
const ROUNDS: usize = 40;
const ALPHA: f64 = 0.1;

fn penalised() -> Parameters {
    Parameters { penalty: true, ..Parameters::default() }
}

/// Every agent has rows around its own centre.
fn shards() -> Vec<Shard<f64>> {
    let shard = |agent: usize| {
        let mut random = stream(21, Purpose::Data, agent as u64, 0);
        let mut gaussian = || -> f64 { random.sample(StandardNormal) };
        let centre: Vec<f64> = (0..INTERCEPT).map(|_| 0.5 * gaussian()).collect();
        let mut shard = Shard::default();
        for _ in 0..10 {
            let a: Vec<f64> = centre.iter().map(|c| c + gaussian()).collect();
            shard.targets.push(2.0 + 1.5 * a[1] - a[4] + 0.3 * agent as f64 * gaussian());
            shard.features.extend(a.into_iter().chain([1.0]));
        }
        shard
    };
    (0..AGENTS).map(shard).collect()
}

fn elastic_net(shards: Vec<Shard<f64>>, l1: f64) -> Table<f64> {
    let objective = TableObjective { l1, intercept: true, ..TableObjective::new(Loss::LeastSquares, L2) };
    Table::new(COLUMNS, shards, objective, Batch::Full).unwrap()
}

/// The minimiser of (1/N) sum_i |A_i x - b_i|^2/(2 m) + l2/2 |x|^2 + l1 |x|_1, the last two without the intercept,
/// coordinate by coordinate.
fn coordinate_descent(shards: &[Shard<f64>]) -> Vec<f64> {
    let rows: Vec<(&[f64], f64)> = shards
        .iter()
        .flat_map(|shard| shard.features.chunks(COLUMNS).zip(shard.targets.iter().copied()))
        .collect();
    let m = rows.len() as f64;
    let mut x = vec![0.0; COLUMNS];
    for _ in 0..5_000 {
        for k in 0..COLUMNS {
            let without = |a: &[f64]| (0..COLUMNS).filter(|j| *j != k).map(|j| a[j] * x[j]).sum::<f64>();
            let slope: f64 = rows.iter().map(|(a, b)| a[k] * (b - without(a))).sum::<f64>() / m;
            let curvature: f64 = rows.iter().map(|(a, _)| a[k] * a[k]).sum::<f64>() / m;
            let (l1, l2) = if k == INTERCEPT { (0.0, 0.0) } else { (L1, L2) };
            x[k] = slope.signum() * (slope.abs() - l1).max(0.0) / (curvature + l2);
        }
    }
    x
}

/// Soft thresholding of all entries but the intercepts.
fn prox(step: f64, x: &Mat) -> Mat {
    Mat::from_fn(x.nrows(), x.ncols(), |i, k| {
        let (x, t) = (x[(i, k)], if k == INTERCEPT { 0.0 } else { step * L1 });
        if x > t {
            x - t
        } else if x < -t {
            x + t
        } else {
            0.0
        }
    })
}

/// (I + W)/2.
fn half(d: &Dense) -> Mat {
    0.5 * (d.identity() + &d.w)
}

fn pg_extra(d: &Dense, x0: &Mat) -> Vec<Vec<f64>> {
    let mut z = &d.w * x0 - d.ag(x0);
    let (mut before, mut x) = (x0.clone(), prox(d.alpha, &z));
    let mut out = vec![flat(&x)];
    while out.len() < ROUNDS {
        z = &d.w * &x + &z - half(d) * &before - (d.ag(&x) - d.ag(&before));
        before = std::mem::replace(&mut x, prox(d.alpha, &z));
        out.push(flat(&x));
    }
    out
}

/// Without y, which the difference of two steps removes: B^2 = (I - W)/2.
fn prox_ed(d: &Dense, x0: &Mat) -> Vec<Vec<f64>> {
    let mut v = x0 - d.ag(x0);
    let (mut before, mut x) = (x0.clone(), prox(d.alpha, &(half(d) * &v)));
    let mut out = vec![flat(&x)];
    while out.len() < ROUNDS {
        v = half(d) * &v + (&x - &before) - (d.ag(&x) - d.ag(&before));
        before = std::mem::replace(&mut x, prox(d.alpha, &(half(d) * &v)));
        out.push(flat(&x));
    }
    out
}

fn nids(d: &Dense, x0: &Mat) -> Vec<Vec<f64>> {
    let mut z = x0 - d.ag(x0);
    let (mut before, mut x) = (x0.clone(), prox(d.alpha, &z));
    let mut out = Vec::new();
    while out.len() < ROUNDS {
        z = &z - &x + half(d) * (2.0 * &x - &before - d.ag(&x) + d.ag(&before));
        before = std::mem::replace(&mut x, prox(d.alpha, &z));
        out.push(flat(&x));
    }
    out
}

fn prox_dgd(d: &Dense, x0: &Mat, tau: usize, cta: bool) -> Vec<Vec<f64>> {
    let mut x = x0.clone();
    let mut round = || {
        (1..tau).for_each(|_| x = prox(d.alpha, &(&x - d.ag(&x))));
        let mixed = if cta { &d.w * &x - d.ag(&x) } else { &d.w * (&x - d.ag(&x)) };
        x = prox(d.alpha, &mixed);
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn agree(name: &str, parameters: Parameters, literal: impl Fn(&Dense, &Mat) -> Vec<Vec<f64>>) {
    let (problem, network, start) =
        (elastic_net(shards(), L1), ring(Rule::Metropolis), scattered(AGENTS, COLUMNS));
    let method = build(name, &parameters, &network);
    let production = trajectory(&problem, &network, &*method, &start, ALPHA, ROUNDS);
    let expected = literal(&Dense::new(&problem, &network, ALPHA), &matrix(&start, COLUMNS));
    let difference = distance(&production, &expected);
    assert!(difference < 1e-11, "{name} {parameters:?}: {difference:e}");
    assert!(production.iter().flatten().any(|x| *x == 0.0), "{name}: nothing is zero");
}

#[test]
fn proximal_methods_are_their_recursions() {
    agree("extra", penalised(), pg_extra);
    agree("ed", penalised(), prox_ed);
    agree("nids", penalised(), nids);
    agree("dsgd", penalised(), |d, x| prox_dgd(d, x, 1, false));
    let cta = penalised().with("variant", Variant::Cta);
    agree("dsgd", cta, |d, x| prox_dgd(d, x, 1, true));
    let local = |steps| Parameters { local_steps: Some(steps), ..penalised() };
    agree("local-dsgd", local(5), |d, x| prox_dgd(d, x, 5, false));
    agree("local-dsgd", local(1), |d, x| prox_dgd(d, x, 1, false));
}

/// Largest distance of an agent's model from `x`.
fn farthest(models: &[f64], x: &[f64]) -> f64 {
    models.chunks(x.len()).flat_map(|m| m.iter().zip(x).map(|(a, b)| (a - b).abs())).fold(0.0, f64::max)
}

#[test]
fn exact_methods_bring_every_agent_to_the_minimiser_and_its_zeros() {
    let problem = elastic_net(shards(), L1);
    let minimiser = coordinate_descent(&shards());
    let zeros: Vec<usize> = (0..COLUMNS).filter(|k| minimiser[*k] == 0.0).collect();
    assert!((2..INTERCEPT).contains(&zeros.len()), "{minimiser:?}");
    for name in ["extra", "ed", "nids"] {
        for rule in [Rule::Metropolis, Rule::LazyMetropolis] {
            let network = ring(rule);
            let method = build(name, &penalised(), &network);
            let start = scattered(AGENTS, COLUMNS);
            let mut agents = Simulator::new(&problem, &network, &*method, &start, 3).unwrap();
            let mut run = Run::start(&*method, Schedule::constant(ALPHA), &mut agents).unwrap();
            (0..6_000).for_each(|_| run.round(&mut agents).unwrap());
            let far = farthest(agents.models(), &minimiser);
            assert!(far < 1e-9, "{name}: {far:e}");
            // Agents of ED threshold the same vector. Those of the others have their own subgradients, and where one
            // is exactly l1, rounding may leave an agent slightly off zero.
            let rounding = if name == "ed" { 0.0 } else { 1e-16 };
            for model in agents.models().chunks(COLUMNS) {
                let found: Vec<usize> = (0..COLUMNS).filter(|k| model[*k].abs() <= rounding).collect();
                assert_eq!(found, zeros, "{name}: {model:?}");
            }
            // A fixed point, even if the step size changes: corrections are in units of x.
            let before = agents.models().to_vec();
            let mut other = Run::resume(&*method, Schedule::constant(0.5 * ALPHA), *run.progress());
            (0..3).for_each(|_| other.round(&mut agents).unwrap());
            assert!(distance(&[before], &[agents.models().to_vec()]) < 1e-12, "{name} moves");
        }
    }
}

#[test]
fn methods_that_are_not_exact_settle_at_a_wrong_point_unless_agents_are_alike() {
    let alike = vec![shards().swap_remove(2); AGENTS];
    for (data, is_met) in [(shards(), false), (alike, true)] {
        let (problem, minimiser) = (elastic_net(data.clone(), L1), coordinate_descent(&data));
        for name in ["dsgd", "local-dsgd"] {
            let network = ring(Rule::LazyMetropolis);
            let method = build(name, &penalised(), &network);
            let start = scattered(AGENTS, COLUMNS);
            let path = trajectory(&problem, &network, &*method, &start, ALPHA, 2_000);
            assert!(distance(&path[1998..1999], &path[1999..]) < 1e-13, "{name} moves");
            let far = farthest(&path[1999], &minimiser);
            assert_eq!(far < 1e-9, is_met, "{name}: {far:e}");
            assert!(is_met || far > 1e-3, "{name}: {far:e}");
        }
    }
}

#[test]
fn the_gradient_mapping_is_zero_at_the_minimiser_and_the_objective_is_least() {
    let problem = elastic_net(shards(), L1);
    let minimiser = coordinate_descent(&shards());
    let mapping = |x: &[f64]| {
        let mut mean = vec![0.0; COLUMNS];
        for agent in 0..AGENTS {
            let mut g = vec![0.0; COLUMNS];
            problem.gradient(agent, x, &mut g).unwrap();
            mean.iter_mut().zip(g).for_each(|(m, g)| *m += g / AGENTS as f64);
        }
        problem.penalty().unwrap().gradient_mapping(x, &mut mean);
        block::norm_sq(&mean).sqrt()
    };
    assert!(mapping(&minimiser) < 1e-13, "{:e}", mapping(&minimiser));
    let least = problem.objective(&minimiser).unwrap();
    for k in 0..COLUMNS {
        for step in [-1e-3, 1e-3] {
            let mut x = minimiser.clone();
            x[k] += step;
            assert!(problem.objective(&x).unwrap() > least, "{k} {step}");
            assert!(mapping(&x) > 1e-5, "{k} {step}");
        }
    }
    let smooth = elastic_net(shards(), 0.0).objective(&minimiser).unwrap();
    let l1: f64 = minimiser[..INTERCEPT].iter().map(|x| L1 * x.abs()).sum();
    assert!((least - smooth - l1).abs() < 1e-14);
}

#[test]
fn every_class_has_an_intercept_that_is_not_penalised() {
    let shard = Shard { features: vec![1.0f64, 2.0, 1.0], targets: vec![2.0], ..Shard::default() };
    let loss = Loss::Softmax { classes: 3 };
    let objective = TableObjective { l1: 0.5, intercept: true, ..TableObjective::new(loss, 0.0) };
    let table = Table::new(3, vec![shard.clone()], objective.clone(), Batch::Full).unwrap();
    let mut x = [4.0; 9];
    table.penalty().unwrap().prox(2.0, &mut x);
    assert_eq!(x, [3.0, 3.0, 4.0, 3.0, 3.0, 4.0, 3.0, 3.0, 4.0]);
    let all = TableObjective { intercept: false, ..objective.clone() };
    let table = Table::new(3, vec![shard.clone()], all, Batch::Full).unwrap();
    assert_eq!(table.penalty(), Some(&Penalty::l1(0.5).unwrap()));
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        let objective = TableObjective { l1: bad, ..objective.clone() };
        let error = Table::new(3, vec![shard.clone()], objective, Batch::Full).unwrap_err();
        assert!(matches!(error, InvalidTable::Parameter { key: "l1", .. }), "{error}");
    }
}

#[test]
fn methods_without_a_proximal_step_refuse_a_penalty() {
    let (lazy, complete) =
        (ring(Rule::LazyMetropolis), network(mile::graph::Topology::Complete, 8, Rule::Metropolis));
    let problem = elastic_net(shards(), L1);
    for entry in catalogue::ALL {
        let network = if entry.has_server() { &complete } else { &lazy };
        let found = entry.build(&penalised(), network, 0);
        assert_eq!(found.is_ok(), entry.takes_penalty(), "{}", entry.name);
        if let Err(error) = found {
            assert_eq!((error.method, error.parameter), (entry.name.to_string(), "penalty"));
        }
        // Its form for smooth objectives would leave the penalty out.
        let smooth = entry.build(&Parameters::default(), network, 0).unwrap();
        let simulator = Simulator::new(&problem, network, &*smooth, &[0.0; COLUMNS], 0);
        let is_refused = matches!(simulator.err(), Some(HostError::Penalty));
        assert_eq!(is_refused, !smooth.takes_penalty(), "{}", entry.name);
        assert_eq!(smooth.takes_penalty(), entry.takes_penalty() && entry.name != "nids");
    }
}

/// Final models, after a few rounds from scattered starts.
fn models(problem: &dyn Problem<f64>, network: &Network, name: &str, penalty: bool) -> Vec<f64> {
    let method = build(name, &Parameters { penalty, ..Parameters::default() }, network);
    let start = scattered(network.agents(), problem.dim());
    trajectory(problem, network, &*method, &start, 0.05, 10).pop().unwrap()
}

#[test]
fn a_penalty_of_weight_zero_changes_no_bit() {
    let network = ring(Rule::Metropolis);
    let (none, zero) = (elastic_net(shards(), 0.0), Penalty::l1(0.0).unwrap());
    assert_eq!(none.penalty(), None);
    for name in WITH_PENALTY {
        let expected = models(&none, &network, name, false);
        assert_eq!(expected, models(&none, &network, name, true), "{name}");
        assert_eq!(expected, models(&Penalised(none.clone(), zero.clone()), &network, name, true), "{name}");
    }
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Size(3));
    let start = scattered(AGENTS, DIM);
    let smooth = trajectory(&problem, &network, &Nids, &start, ALPHA, 50);
    assert_eq!(smooth, trajectory(&problem, &network, &ProxNids, &start, ALPHA, 50));
}

/// Rows so long, and agents so few, that threads share rows verb by verb; and short rows, which one thread handles.
#[test]
fn proximal_steps_have_the_same_bits_on_any_number_of_threads() {
    let network = network(mile::graph::Topology::Path, 3, Rule::Metropolis);
    for dim in [3, 300, 70_000] {
        let problem = Penalised(
            Quadratic::<f64>::new(3, dim, 10.0, 1.0, 0).unwrap(),
            Penalty::l1(5.0).unwrap().except([0, dim / 2]),
        );
        for name in WITH_PENALTY {
            let [one, four] = [1, 4].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| models(&problem, &network, name, true))
            });
            assert!(one == four, "{name} with {dim} columns");
            assert!(one.contains(&0.0) && one.iter().all(|x| x.is_finite()), "{name}");
        }
    }
}
