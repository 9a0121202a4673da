//! Every method on ranks: states, what is measured over all agents, and the bytes that are counted.

use std::sync::Arc;

use mile::agents::AgentsError;
use mile::agents::Vector;
use mile::compression::Compression;
use mile::engine::Engine;
use mile::graph::{Graph, Topology};
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::outages::{Bursts, Outages};
use mile::problems::{Batch, Loss, Problem, Quadratic, Shard, Table, TableObjective};
use mile::ranks::{Alone, Ranks, Together};
use mile::real::Real;
use mile::robust::Robust;
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use mile::varying::TimeVarying;
use mile::varying::finite::base_k;
use mile_ranks::engine::RankEngine;
use mile_ranks::placement::Placement;
use mile_ranks::threads::Threads;

const SEED: u64 = 3;
const X: Vector = Vector(0);
const DIM: usize = 5;

/// Nonconvex logistic regression in mini-batches, with an l1 penalty if asked.
fn problem<T: Real>(agents: usize, l1: f64) -> Table<T> {
    let number = |k: usize| ((k * 7919 + 31) % 2003) as f64 / 1000.0 - 1.0;
    let shard = |agent: usize| Shard {
        features: (0..12 * DIM).map(|k| T::of(number(agent * 12 * DIM + k) + 0.1 * agent as f64)).collect(),
        targets: (0..12).map(|k| T::of(number(17 * (agent * 12 + k)).signum())).collect(),
        ..Shard::default()
    };
    let objective = TableObjective { l1, ..TableObjective::new(Loss::NonconvexLogistic, 0.1) };
    Table::new(DIM, (0..agents).map(shard).collect(), objective, Batch::Size(4)).unwrap()
}

/// A different point for each agent.
fn scattered<T: Real>(agents: usize, dim: usize) -> Vec<T> {
    (0..agents * dim).map(|k| T::of(((k * 31 + 7) % 101) as f64 / 50.0 - 1.0)).collect()
}

/// What is measured over all agents, and the bytes sent from one place.
type Measured = (f64, Vec<f64>, f64, Option<f64>, Vec<f64>);

/// Runs all rounds, with the last one watched.
fn drive<T: Real>(
    together: Together<'_>,
    method: &dyn Method,
    engine: &mut dyn Engine<T>,
    rounds: u64,
) -> (Measured, u64) {
    let schedule = Schedule::constant(0.05).with_warmup(3);
    let mut run = Run::start(method, schedule, engine).unwrap();
    while run.progress().round < rounds {
        if run.progress().round + 1 == rounds {
            engine.watch();
        }
        run.round(engine).unwrap();
    }
    let row = engine.row(together, X, engine.agents() - 1).unwrap().into_iter().map(Real::wide).collect();
    let mean = engine.mean(together, X).unwrap();
    let measured = (
        engine.norm_sq(together, X).unwrap(),
        mean,
        engine.consensus_error(together, X).unwrap(),
        engine.drift(),
        row,
    );
    (measured, run.progress().costs.bytes_sent)
}

/// Compares ranks with the simulator.
fn same<T: Real>(
    problem: &dyn Problem<T>,
    network: &Network,
    method: &dyn Method,
    rounds: u64,
    ranks: usize,
    what: &str,
) {
    let (agents, dim) = (network.agents(), problem.dim());
    let start = scattered::<T>(agents, dim);
    let mut alone = Simulator::new(problem, network, method, &start, SEED).unwrap();
    let (expected, expected_bytes) = drive(Together::of(&Alone), method, &mut alone, rounds);
    let placement = Arc::new(Placement::of(network.graph(), ranks));
    let found = Threads::run(ranks, |rank| {
        let here = placement.agents(rank.rank());
        let start: Vec<T> = here.iter().flat_map(|k| start[k * dim..(k + 1) * dim].to_vec()).collect();
        let rank = Arc::new(rank);
        let mut engine =
            RankEngine::new(rank.clone(), placement.clone(), problem, network, method, &start, SEED).unwrap();
        let (measured, bytes) = drive(Together::of(&*rank), method, &mut engine, rounds);
        let state = 0..method.layout().state.len();
        let vectors: Vec<Vec<T>> = state.map(|k| engine.vector(Vector(k)).unwrap().into_owned()).collect();
        (measured, bytes, vectors)
    });
    for (rank, (measured, _, vectors)) in found.iter().enumerate() {
        assert_eq!(*measured, expected, "{what}, {ranks} ranks");
        for (row, agent) in placement.agents(rank).iter().enumerate() {
            for (k, vector) in vectors.iter().enumerate() {
                let expected = &alone.vector(Vector(k))[agent * dim..(agent + 1) * dim];
                assert!(
                    vector[row * dim..(row + 1) * dim] == *expected,
                    "{what}, {ranks} ranks, agent {agent}"
                );
            }
        }
    }
    assert_eq!(found.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), expected_bytes, "{what}");
}

/// Drop rate, whether there is a penalty, and whether the graph is time-varying.
const CASES: [(f64, bool, bool); 5] =
    [(0.0, false, false), (0.3, false, false), (0.0, true, false), (0.3, true, false), (0.0, false, true)];

/// Every method, with and without dropped edges and a penalty; those with a server on the complete graph.
fn every_method<T: Real>(graph: &Graph, ranks: usize) {
    let plain = catalogue::ALL.iter().map(|entry| (entry, None, None));
    let adaptive = (catalogue::find("mile").unwrap(), Some(Weight::Adaptive(0.1)), None);
    let compressed = [
        ("mile", Compression::EightBit),
        ("mile", Compression::Fp16),
        ("local-dsgd", Compression::TopK(0.3)),
        ("motef", Compression::EightBit),
    ]
    .map(|(name, by)| (catalogue::find(name).unwrap(), None, Some(by)));
    let all: Vec<_> = plain.chain([adaptive]).chain(compressed).collect();
    let paced = all.iter().filter(|(entry, ..)| entry.takes_own_steps()).map(|one| (true, *one));
    for (paced, (entry, xi, compression)) in all.iter().map(|one| (false, *one)).chain(paced) {
        for (drop_rate, penalty, varying) in CASES {
            let complete = entry.has_server();
            let lasting = complete || compression.is_some();
            let takes_penalty = entry.takes_penalty() && compression.is_none();
            if lasting && (drop_rate > 0.0 || varying) || penalty && !takes_penalty {
                continue;
            }
            let graph =
                if complete { Topology::Complete.build(graph.agents(), 0).unwrap() } else { graph.clone() };
            let network = Network::new(graph, Rule::LazyMetropolis).unwrap();
            let network = if complete {
                Network::new(network.graph().clone(), Rule::Metropolis).unwrap()
            } else {
                let network = network.with_drop_rate(drop_rate).unwrap();
                match varying {
                    true => network.with_time_varying(TimeVarying::RandomMatching).unwrap(),
                    false => network,
                }
            };
            let local_steps = entry.has_local_steps().then_some(3);
            let parameters = Parameters { local_steps, penalty, xi, compression, ..Parameters::default() };
            let own = (0..network.agents()).map(|agent| [1, 3, 2][agent % 3]).collect::<Vec<_>>();
            let parameters = if paced { parameters.with_own_steps(own) } else { parameters };
            let method = entry.build(&parameters, &network, SEED).unwrap();
            let problem = problem::<T>(network.agents(), if penalty { 0.1 } else { 0.0 });
            let what =
                format!("{}, drop rate {drop_rate}, time-varying {varying}, penalty {penalty}", entry.name);
            same(&problem, &network, &*method, 6, ranks, &what);
        }
    }
}

#[test]
fn robust_exchanges_have_the_bits_of_one_process() {
    let complete = Topology::Complete.build(9, 0).unwrap();
    let dropping = Network::new(graph(), Rule::LazyMetropolis).unwrap().with_drop_rate(0.3).unwrap();
    let cases = [
        ("mile", Robust::Threshold(0.3), &dropping),
        ("local-dsgd", Robust::Clip { byzantine: 2 }, &Network::new(complete, Rule::LazyMetropolis).unwrap()),
        (
            "dsgd",
            Robust::TrimmedMean { byzantine: 1 },
            &Network::new(Topology::Complete.build(5, 0).unwrap(), Rule::Metropolis).unwrap(),
        ),
    ];
    for (name, by, network) in cases {
        let parameters = Parameters { robust: Some(by), ..Parameters::default() };
        let method = catalogue::find(name).unwrap().build(&parameters, network, SEED).unwrap();
        for ranks in [1, 2, 5] {
            same(&problem::<f32>(network.agents(), 0.0), network, &*method, 6, ranks, name);
            same(&problem::<f64>(network.agents(), 0.0), network, &*method, 6, ranks, name);
        }
    }
}

/// Fourteen agents in a small world, numbered so that neighbours are far apart.
fn graph() -> Graph {
    let small_world = Topology::SmallWorld { degree: 4, rewire: 0.2 }.build(14, 1).unwrap();
    Graph::from_edges(14, small_world.edges().map(|(i, j)| (i * 5 % 14, j * 5 % 14))).unwrap()
}

#[test]
fn agents_are_placed_in_another_order_in_these_tests() {
    assert!(!Placement::of(&graph(), 3).is_in_order());
}

#[test]
fn weights_of_a_round_have_the_bits_of_one_process() {
    let network = Network::in_turn(base_k(14, 2)).unwrap().with_drop_rate(0.1).unwrap();
    let bursts = Bursts::new(Outages::new(0.2, 0.4).unwrap(), 0.8).unwrap();
    let network = network.with_bursts(bursts).with_absence(Outages::new(0.1, 0.5).unwrap());
    let problem = problem::<f64>(14, 0.0);
    for name in ["mile", "k-gt"] {
        let method = catalogue::find(name).unwrap().build(&Parameters::default(), &network, SEED).unwrap();
        for ranks in [2, 5] {
            same(&problem, &network, &*method, 9, ranks, name);
        }
    }
}

#[test]
fn every_method_has_the_bits_of_one_process_in_single_precision() {
    for ranks in [1, 2, 3, 7, 14] {
        every_method::<f32>(&graph(), ranks);
    }
}

#[test]
fn every_method_has_the_bits_of_one_process_in_double_precision() {
    for ranks in [1, 2, 3, 7, 14] {
        every_method::<f64>(&graph(), ranks);
    }
}

/// Rows of several tiles and slices, with some neighbours on other ranks, on several threads.
#[test]
fn long_rows_are_exchanged_in_slices_to_the_same_bits() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for (agents, dim, ranks) in [(6, 400_000, 2), (2, 70_001, 2), (300, 3_000, 3), (40, 17_000, 5)] {
        let graph = Topology::Ring.build(agents, 0).unwrap();
        let network = Network::new(graph, Rule::LazyMetropolis).unwrap();
        let problem = Quadratic::<f32>::new(agents, dim, 10.0, 1.0, 0).unwrap();
        for (name, xi, compression) in [
            ("mile", None, None),
            ("k-gt", None, None),
            ("mile", Some(Weight::Adaptive(0.1)), None),
            ("mile", None, Some(Compression::EightBit)),
        ] {
            let entry = catalogue::find(name).unwrap();
            let parameters = Parameters { local_steps: Some(2), xi, compression, ..Parameters::default() };
            let method = entry.build(&parameters, &network, SEED).unwrap();
            pool.install(|| {
                same(&problem, &network, &*method, 2, ranks, &format!("{name}, {agents} x {dim}"))
            });
        }
    }
}

#[test]
fn a_failed_objective_is_an_error_and_the_engine_does_not_continue() {
    let network = Network::new(Topology::Ring.build(3, 0).unwrap(), Rule::Metropolis).unwrap();
    let method = catalogue::find("dsgd").unwrap().build(&Parameters::default(), &network, 0).unwrap();
    // The objectives of other agents are not here.
    let problem = Quadratic::<f64>::hosting(&|agent| agent == 0, 3, 2, 10.0, 1.0, 0).unwrap();
    let placement = Arc::new(Placement::in_order(3, 1));
    let rank = Threads::world(1).remove(0);
    let mut engine =
        RankEngine::new(Arc::new(rank), placement, &problem, &network, &*method, &[0.0; 2], 0).unwrap();
    let mut run = Run::start(&*method, Schedule::constant(0.1), &mut engine).unwrap();
    let error = run.round(&mut engine).unwrap_err();
    assert!(matches!(error, AgentsError::Objective { agent: 1, .. }), "{error}");
    let again = run.round(&mut engine).unwrap_err();
    assert!(matches!(again, AgentsError::Unusable), "{again}");
}
