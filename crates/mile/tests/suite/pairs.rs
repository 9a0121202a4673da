//! Exchanges in pairs: a second, literal form with an event loop of its own, limits, exactness, what is conserved and counted, and resuming.

use mile::agents::{AgentsError, Vector};
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::methods::{LocalSteps, Optimizer, OuterMomentum};
use mile::mixing::Rule;
use mile::network::Network;
use mile::optimiser::Adam;
use mile::pairing::{HEADER, Pairing, Pairings, pairings_in, read_log};
use mile::problems::{Batch, Problem};
use mile::readiness::{Readiness, Speeds};
use mile::run::{Progress, Run};
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use mile::time::{Law, Line, TimeModel};
use mile::varying::WeightedGraph;

use crate::common::*;

/// Seconds of a local step: agents of speed 1, 0.1, 1, 0.5 and others.
const SECONDS: [f64; AGENTS] = [1.0, 10.0, 1.0, 2.0, 1.0, 1.0, 3.0, 1.0];
const OWN: [u64; AGENTS] = [4, 1, 3, 4, 2, 1, 1, 3];

fn model(seconds: &[f64], line: Line) -> TimeModel {
    TimeModel::new(seconds.iter().map(|seconds| Law::Constant(*seconds)).collect(), line).unwrap()
}

fn at_once() -> Line {
    Line::constant(0.0, f64::INFINITY)
}

fn in_pairs(parameters: Parameters) -> Parameters {
    Parameters { pairs: true, ..parameters }
}

/// The pairings of some rounds.
fn pairings(network: &Network, method: &dyn Method, model: TimeModel, rounds: u64) -> Vec<Pairing> {
    let (agents, pairwise) = (network.agents(), method.pairwise().unwrap());
    let local_steps = (0..agents).map(|agent| pairwise.local_steps(agent)).collect();
    let all = Readiness::new(network.graph(), Speeds { model, seed: 3, local_steps, bytes: 8 * DIM });
    all.take(pairings_in(rounds, agents) as usize).collect()
}

/// All state vectors.
fn state(method: &dyn Method, agents: &Simulator<f64>) -> Vec<f64> {
    (0..method.layout().state.len()).flat_map(|v| agents.vector(Vector(v)).to_vec()).collect()
}

/// All state vectors after each round, and the progress at the end.
fn go(
    problem: &dyn Problem<f64>,
    network: &Network,
    method: &dyn Method,
    pairings: &[Pairing],
    step_size: f64,
) -> (Vec<Vec<f64>>, Progress) {
    let start = scattered(network.agents(), problem.dim());
    let mut agents = Simulator::new(problem, network, method, &start, 3).unwrap();
    let run = Run::start(method, Schedule::constant(step_size), &mut agents).unwrap();
    let list = pairings.to_vec();
    let mut run = run.with_pairings(Some(Pairings::new(network.agents(), list.into_iter())));
    let mut path = Vec::new();
    while pairings_in(run.progress().round + 1, network.agents()) <= pairings.len() as u64 {
        run.round(&mut agents).unwrap();
        path.push(state(method, &agents));
    }
    (path, *run.progress())
}

/// `a + s b`.
fn plus(a: &[f64], s: f64, b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + s * b).collect()
}

/// When two agents began to exchange, and which.
type Begun = (f64, usize, usize);

/// The models after each round, and when each exchange began with whom, from a clock for each agent and a list of who waits: dense, and without
/// the library's verbs, event loop and list of turns.
fn literal(
    problem: &dyn Problem<f64>,
    network: &Network,
    (alpha, xi, gamma): (f64, f64, f64),
    rounds: u64,
) -> (Vec<Vec<f64>>, Vec<Begun>) {
    let n = AGENTS;
    let mut x: Vec<Vec<f64>> = scattered::<f64>(n, DIM).chunks(DIM).map(<[f64]>::to_vec).collect();
    let mut c = vec![vec![0.0; DIM]; n];
    let mut met = vec![vec![0; n]; n];
    let mut ready_at: Vec<f64> = (0..n).map(|i| (0..OWN[i]).fold(0.0, |t, _| t + SECONDS[i])).collect();
    let (mut path, mut begun) = (Vec::new(), Vec::new());
    while path.len() < rounds as usize {
        // Two agents are ready when both are; the next pair is the one that is ready first, and of those the one that has not met for longest.
        let mut best: Option<(f64, usize, usize, usize)> = None;
        for i in 0..n {
            for j in (i + 1..n).filter(|j| network.graph().has_edge(i, *j)) {
                let this = (ready_at[i].max(ready_at[j]), met[i][j], i, j);
                if best.is_none_or(|best| this.partial_cmp(&best) == Some(std::cmp::Ordering::Less)) {
                    best = Some(this);
                }
            }
        }
        let (now, _, i, j) = best.unwrap();
        for agent in [i, j] {
            for _ in 0..OWN[agent] {
                let mut g = vec![0.0; DIM];
                problem.gradient(agent, &x[agent], &mut g).unwrap();
                x[agent] = plus(&plus(&x[agent], -alpha, &g), 1.0, &c[agent]);
            }
        }
        let difference = plus(&x[j], -1.0, &x[i]);
        for (agent, sign) in [(i, 0.5), (j, -0.5)] {
            x[agent] = plus(&x[agent], sign * gamma, &difference);
            c[agent] = plus(&c[agent], sign * xi, &difference);
            let line = if (i, j) == (0, 1) { 2.5 + 40.0 / 100.0 } else { 0.3 + 40.0 / 400.0 };
            ready_at[agent] = (0..OWN[agent]).fold(now + line, |t, _| t + SECONDS[agent]);
        }
        begun.push((now, i, j));
        met[i][j] = begun.len();
        if 2 * begun.len() % n < 2 {
            path.push(x.concat());
        }
    }
    (path, begun)
}

#[test]
fn pairs_are_their_literal_form() {
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let network = network(Topology::Torus, AGENTS, Rule::Metropolis);
    let parameters = in_pairs(Parameters { gamma: Some(0.8), ..xi(4, 0.05).with_own_steps(OWN) });
    let method = build("mile", &parameters, &network);
    let line = Line::constant(0.3, 400.0);
    let model = model(&SECONDS, line).with_line(0, 1, Line::constant(2.5, 100.0)).unwrap();
    let model = model.with_line(1, 0, Line::constant(2.5, 100.0)).unwrap();
    let list = pairings(&network, &*method, model, 60);
    let (expected, begun) = literal(&problem, &network, (0.05, 0.05, 0.8), 60);
    assert_eq!(list.iter().map(|p| (p.ready_s, p.agents[0], p.agents[1])).collect::<Vec<_>>(), begun);
    let (found, progress) = go(&problem, &network, &*method, &list, 0.05);
    let models: Vec<Vec<f64>> = found.iter().map(|state| state[..AGENTS * DIM].to_vec()).collect();
    assert!(distance(&models, &expected) < 1e-12, "{:e}", distance(&models, &expected));
    // What it costs is what the list says.
    let steps: u64 = list.iter().flat_map(|pairing| pairing.steps).sum();
    let (costs, bytes) = (progress.costs, (2 * list.len() * DIM * 8) as u64);
    assert_eq!((costs.gradient_evals, costs.bytes_sent), (steps, bytes));
    assert_eq!((costs.vectors_sent, costs.exchanges, progress.round), (60, 60, 60));
    let made = |agent: usize| {
        let of = |p: &Pairing| p.agents.iter().position(|a| *a == agent).map_or(0, |k| p.steps[k]);
        list.iter().map(of).sum::<u64>()
    };
    assert_eq!(progress.step, (0..AGENTS).map(made).max().unwrap());
}

#[test]
fn two_agents_in_pairs_are_the_synchronous_methods() {
    let problem = nonconvex(2, DIM, Batch::Full);
    let stochastic = nonconvex(2, DIM, Batch::Size(3));
    let network = network(Topology::Path, 2, Rule::Metropolis);
    let path = |problem, pair: &Parameters, name, other: &Parameters| {
        let pair = build("mile", &in_pairs(pair.clone()), &network);
        let list = pairings(&network, &*pair, model(&[1.0, 7.0], at_once()), 30);
        let found = go(problem, &network, &*pair, &list, 0.05).0;
        let found: Vec<Vec<f64>> = found.iter().map(|state| state[..2 * DIM].to_vec()).collect();
        let other = build(name, other, &network);
        (found, trajectory(problem, &network, &*other, &scattered(2, DIM), 0.05, 30))
    };
    // The first round of MILE has two local steps.
    let decoupled = Parameters { gamma: Some(0.7), ..xi(2, 0.3) };
    let (found, expected) = path(&problem, &decoupled, "mile", &decoupled);
    assert_eq!(found, expected);
    let three = Parameters { gamma: Some(0.7), ..xi(3, 0.3) };
    let (found, expected) = path(&problem, &three, "mile", &three);
    assert!(distance(&found, &expected) > 1e-3, "with three steps a round MILE begins differently");
    // With the mean of both it is LED, also with own numbers of steps, and with mini-batches.
    for own in [[5, 5], [2, 5]] {
        let pair = Parameters { gamma: Some(1.0), ..xi(5, 0.15) }.with_own_steps(own);
        let led = tau(5).with("beta", 0.15).with_own_steps(own);
        for problem in [&problem, &stochastic] {
            let (found, expected) = path(problem, &pair, "led", &led);
            assert_eq!(found, expected, "{own:?}");
        }
    }
}

#[test]
fn agents_of_one_speed_are_a_synchronous_method_on_matchings() {
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let ring = ring(Rule::Metropolis);
    let parameters = Parameters { gamma: Some(0.9), ..xi(2, 0.1) };
    let pair = build("mile", &in_pairs(parameters.clone()), &ring);
    let list = pairings(&ring, &*pair, model(&[1.0; AGENTS], at_once()), 40);
    let matching = |k: usize| {
        let edges = list[AGENTS / 2 * k..].iter().take(AGENTS / 2).map(|p| (p.agents[0], p.agents[1], 0.5));
        WeightedGraph::new(AGENTS, edges).unwrap()
    };
    let turns: Vec<WeightedGraph> = (0..40).map(matching).collect();
    assert_ne!(turns[0], turns[1]);
    let network = Network::in_turn(turns).unwrap();
    let found = go(&problem, &ring, &*pair, &list, 0.05).0;
    let found: Vec<Vec<f64>> = found.iter().map(|state| state[..AGENTS * DIM].to_vec()).collect();
    let other = build("mile", &parameters, &network);
    assert_eq!(found, trajectory(&problem, &network, &*other, &scattered(AGENTS, DIM), 0.05, 40));
}

/// What is exact in pairs, with the step size.
fn exact() -> Vec<(&'static str, Parameters, f64)> {
    let amsgrad = Adam { betas: [0.9, 0.99], amsgrad: true, ..Adam::default() };
    let local = LocalSteps { optimizer: Some(Optimizer::Adam(amsgrad)), ..LocalSteps::default() };
    let outer = OuterMomentum { momentum: 0.3, step_size: 0.7 };
    vec![
        ("plain", xi(4, 0.05), 0.1),
        ("default weights", tau(4), 0.1),
        ("gamma 1/2", Parameters { gamma: Some(0.5), ..xi(4, 0.02) }, 0.1),
        ("momentum", with_momentum(xi(4, 0.01), 0.6, false), 0.04),
        ("Nesterov", with_momentum(xi(4, 0.01), 0.6, true), 0.04),
        ("AMSGrad", Parameters { local, ..xi(4, 0.02) }, 0.02),
        ("outer momentum", Parameters { outer: Some(outer), ..xi(4, 0.03) }, 0.1),
    ]
}

#[test]
fn every_agent_is_exact_whatever_the_speeds_and_corrections_sum_to_zero() {
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    for (topology, own) in [(Topology::Ring, OWN), (Topology::Star, [4; AGENTS])] {
        let network = network(topology, AGENTS, Rule::Metropolis);
        for (name, parameters, step_size) in exact() {
            let method = build("mile", &in_pairs(parameters.with_own_steps(own)), &network);
            let list = pairings(&network, &*method, model(&SECONDS, at_once()), 3000);
            let (path, _) = go(&problem, &network, &*method, &list, step_size);
            let (x, c) = path.last().unwrap().split_at(AGENTS * DIM);
            for agent in 0..AGENTS {
                let norm = gradient_norm(&problem, &x[agent * DIM..(agent + 1) * DIM]);
                assert!(norm < 1e-10, "{topology:?}, {name}, agent {agent}: {norm:e}");
            }
            for k in 0..DIM {
                let sum: f64 = (0..AGENTS).map(|agent| c[agent * DIM + k]).sum();
                assert!(sum.abs() < 1e-13, "{topology:?}, {name}: {sum:e}");
            }
        }
    }
}

#[test]
fn without_a_correction_pairs_are_not_exact() {
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let network = ring(Rule::Metropolis);
    let method = build("mile", &in_pairs(xi(4, 1e-300)), &network);
    let list = pairings(&network, &*method, model(&SECONDS, at_once()), 4000);
    let (path, _) = go(&problem, &network, &*method, &list, 0.1);
    assert!(gradient_norm(&problem, &path[3999][..DIM]) > 1e-2);
}

#[test]
fn a_log_repeats_a_run_and_pairings_without_a_common_agent_may_change_places() {
    let problem = nonconvex(AGENTS, DIM, Batch::Size(3));
    let network = ring(Rule::Metropolis);
    let method = build("mile", &in_pairs(xi(4, 0.05).with_own_steps(OWN)), &network);
    let law = Law::Uniform { from: 0.5, to: 1.5 };
    let list = pairings(&network, &*method, TimeModel::new(vec![law], at_once()).unwrap(), 50);
    let expected = go(&problem, &network, &*method, &list, 0.05).0;
    let lines: String = list.iter().map(|pairing| format!("{pairing}\n")).collect();
    let read = read_log(&format!("{HEADER}\n{lines}"), |i, j| network.graph().has_edge(i, j)).unwrap();
    assert_eq!(go(&problem, &network, &*method, &read, 0.05).0, expected);
    let (mut other, mut moved) = (list.clone(), 0);
    for round in other.chunks_mut(AGENTS / 2) {
        let is_apart = |k: &usize| round[*k].agents.iter().all(|agent| !round[k + 1].agents.contains(agent));
        if let Some(k) = (0..round.len() - 1).find(is_apart) {
            round.swap(k, k + 1);
            moved += 1;
        }
    }
    assert!(moved > 10);
    assert_eq!(go(&problem, &network, &*method, &other, 0.05).0, expected);
}

/// Steps that each agent makes in a second of modelled time, by the pairings of a long run.
fn pace(network: &Network, model: TimeModel) -> Vec<f64> {
    let method = build("mile", &in_pairs(tau(10)), network);
    let list = pairings(network, &*method, model, 500);
    let seconds = list.last().unwrap().ready_s;
    let made = |agent: usize| {
        let of = |p: &Pairing| p.agents.iter().position(|a| *a == agent).map_or(0, |k| p.steps[k]);
        list.iter().map(of).sum::<u64>() as f64 / seconds
    };
    (0..network.agents()).map(made).collect()
}

#[test]
fn a_straggler_ten_times_slower_costs_the_others_less_than_a_tenth_of_their_steps() {
    let laws: [fn(f64) -> Law; 3] = [
        Law::Constant,
        |mean| Law::Uniform { from: 0.8 * mean, to: 1.2 * mean },
        |mean| Law::Exponential { least: 0.5 * mean, mean },
    ];
    for topology in [Topology::Ring, Topology::Torus, Topology::Exponential] {
        let network = network(topology, 16, Rule::Metropolis);
        for law in laws {
            let model = |slow: f64| {
                let steps = (0..16).map(|agent| law(if agent == 5 { slow } else { 1.0 })).collect();
                TimeModel::new(steps, at_once()).unwrap()
            };
            let (equal, slow) = (pace(&network, model(1.0)), pace(&network, model(10.0)));
            let others =
                |pace: &[f64]| (0..16).filter(|agent| *agent != 5).map(|agent| pace[agent]).sum::<f64>();
            let kept = others(&slow) / others(&equal);
            assert!(kept > 0.9, "{topology:?}, {:?}: {kept}", law(1.0));
            assert!(slow[5] < 0.11, "it is slow indeed: {}", slow[5]);
        }
    }
}

#[test]
fn a_run_resumes_to_the_bit() {
    let problem = nonconvex(AGENTS, DIM, Batch::Size(3));
    let network = ring(Rule::Metropolis);
    let outer = OuterMomentum { momentum: 0.3, step_size: 0.7 };
    let parameters = Parameters { outer: Some(outer), ..with_momentum(xi(4, 0.02), 0.6, false) };
    let method = build("mile", &in_pairs(parameters.with_own_steps(OWN)), &network);
    let list = pairings(&network, &*method, model(&SECONDS, at_once()), 30);
    let (expected, end) = go(&problem, &network, &*method, &list, 0.05);
    let schedule = Schedule::constant(0.05);
    let mut agents = Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
    let mut progress = *Run::start(&*method, schedule.clone(), &mut agents).unwrap().progress();
    for expected in expected {
        // Another simulator, which is given nothing but the state vectors and the progress.
        let rows: Vec<Vec<f64>> =
            (0..method.layout().state.len()).map(|v| agents.vector(Vector(v)).to_vec()).collect();
        agents = Simulator::new(&problem, &network, &*method, &[9.0; DIM], 3).unwrap();
        rows.iter().enumerate().for_each(|(v, rows)| agents.vector_mut(Vector(v)).copy_from_slice(rows));
        let mut all = Pairings::new(AGENTS, list.clone().into_iter());
        (0..progress.round).for_each(|_| drop(all.next_round().unwrap()));
        let mut run = Run::resume(&*method, schedule.clone(), progress).with_pairings(Some(all));
        run.round(&mut agents).unwrap();
        progress = *run.progress();
        assert_eq!(state(&*method, &agents), expected);
    }
    assert_eq!(progress, end);
}

#[test]
fn what_pairs_cannot_be_combined_with_is_refused_by_name() {
    let entry = catalogue::find("mile").unwrap();
    let network = ring(Rule::Metropolis);
    let refused = |parameters: Parameters, network: &Network| {
        entry.build(&in_pairs(parameters), network, 0).unwrap_err().parameter
    };
    let growing = Weight::Geometric { from: 0.01, to: 0.1, rounds: 5 };
    let moments = LocalSteps { share_moments: Some(3), ..LocalSteps::default() };
    for (parameters, key) in [
        (Parameters { xi: Some(growing), ..tau(4) }, "xi"),
        (Parameters { xi: Some(Weight::Adaptive(0.1)), ..tau(4) }, "xi"),
        (xi(4, 1.5), "xi"),
        (Parameters { gamma: Some(0.0), ..tau(4) }, "gamma"),
        (tau(0), "local_steps"),
        (Parameters { compression: Some(mile::compression::Compression::EightBit), ..tau(4) }, "compression"),
        (Parameters { local: moments, ..tau(4) }, "share_moments"),
    ] {
        assert_eq!(refused(parameters, &network), key);
    }
    assert_eq!(refused(tau(4), &network.clone().with_drop_rate(0.1).unwrap()), "exchange");
    assert_eq!(refused(tau(4), &self::network(Topology::Path, 1, Rule::Metropolis)), "exchange");
}

#[test]
fn a_run_without_its_pairings_does_not_begin() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let network = ring(Rule::Metropolis);
    let method = build("mile", &in_pairs(tau(4)), &network);
    let mut agents = Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
    let mut run = Run::start(&*method, Schedule::constant(0.1), &mut agents).unwrap();
    assert!(matches!(run.round(&mut agents), Err(AgentsError::Method(_))));
    let list = pairings(&network, &*method, model(&SECONDS, at_once()), 3);
    let mut all = Pairings::new(AGENTS, list.into_iter());
    all.next_round().unwrap();
    let mut run = run.with_pairings(Some(all));
    assert!(matches!(run.round(&mut agents), Err(AgentsError::Method(_))), "those of another round");
}
