//! Edges that are skipped by agreement: both ends or neither, even when ends are killed in between.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use mile::agents::Vector;
use mile::block;
use mile::graph::{Graph, Topology};
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Draw, Loss, Problem, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Weight;
use mile::simulator::Simulator;
use mile::varying::TimeVarying;
use mile_net::protocol::MissingPolicy;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::node::{Scene, Script, schedule};
use crate::schedules::{problem, scattered};
use crate::seeds;
use crate::world::{Trouble, World};

pub(crate) const XI: f64 = 0.1;
pub(crate) const TAU: u64 = 3;

/// MILE's rounds written out, over the edges that were used.
pub(crate) fn literal(
    problem: &dyn Problem<f32>,
    network: &Network,
    start: &[f32],
    seed: u64,
    rounds: u64,
    used: &[&BTreeMap<u64, Vec<usize>>],
) -> [Vec<f32>; 2] {
    let (agents, dim) = (problem.agents(), problem.dim());
    let mut x: Vec<Vec<f32>> = start.chunks(dim).map(<[f32]>::to_vec).collect();
    let mut c = vec![vec![0.0; dim]; agents];
    let (mut t, mut round, mut before) = (0, 0, schedule().at(0));
    for (i, x) in x.iter_mut().enumerate() {
        let mut gradient = vec![0.0; dim];
        problem.sample_gradient(i, x, Draw { seed, step: 0 }, &mut gradient).unwrap();
        block::combine(x, 1.0, &[(-before, &gradient)]);
    }
    while round < rounds {
        let alpha = schedule().at(round);
        for i in 0..agents {
            let mut gradient = vec![0.0; dim];
            if alpha != before {
                block::combine(&mut c[i], alpha / before, &[]);
            }
            problem.sample_gradient(i, &x[i], Draw { seed, step: t + 1 }, &mut gradient).unwrap();
            block::combine(&mut x[i], 1.0, &[(-alpha, &gradient), (1.0, &c[i])]);
        }
        before = alpha;
        if t.is_multiple_of(TAU) {
            let sent = x.clone();
            for i in 0..agents {
                let mut pull = vec![0.0; dim];
                for (k, j) in used[i][&round].iter().enumerate() {
                    block::fold((network.mixing().weight(i, *j), &sent[*j]), &sent[i], &mut pull, k == 0);
                }
                block::combine(&mut c[i], 1.0, &[(XI, &pull)]);
                block::combine(&mut x[i], 1.0, &[(XI, &pull)]);
            }
            round += 1;
        }
        t += 1;
    }
    [x.concat(), c.concat()]
}

/// Checks that both ends of every edge used it in the same rounds; returns how often one was skipped.
pub(crate) fn both_or_neither(used: &[&BTreeMap<u64, Vec<usize>>], network: &Network, rounds: u64) -> u64 {
    let mut skipped = 0;
    for (i, j) in network.graph().edges() {
        for round in 0..rounds {
            let (here, there) = (used[i][&round].contains(&j), used[j][&round].contains(&i));
            assert_eq!(here, there, "edge {i}-{j} in round {round}");
            skipped += u64::from(!here);
        }
    }
    skipped
}

#[test]
fn an_edge_is_skipped_by_both_its_ends_or_by_neither() {
    let mut skipped = 0;
    for seed in seeds(600) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let agents = random.random_range(3..6);
        let topology = [Topology::Ring, Topology::Star, Topology::Complete][random.random_range(0..3)];
        let network = Network::new(topology.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
        let parameters = Parameters { local_steps: Some(TAU), xi: Some(XI.into()), ..Parameters::default() };
        let method = catalogue::find("mile").unwrap().build(&parameters, &network, seed).unwrap();
        let dim = [1, 7][random.random_range(0..2)];
        let (problem, start) = (problem(agents, dim, 0.0), scattered(agents, dim));
        let scene = Scene {
            problem: &problem,
            script: Script::lasting(&network, method),
            told: OnceLock::new(),
            start: &start,
            seed,
            rounds: 12,
            keep: 0,
            checkpoint_every: random.random_range(1..4),
            on_missing: MissingPolicy::Skip { after: random.random_range(0..150) },
            piece: random.random_range(1..dim + 2),
            gossip_every: random.random_range(0..3),
        };
        let trouble = Trouble { kills: 6, cuts: 12, scrambles: 4 };
        std::thread::scope(|scope| {
            let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
            world.run();
            let used = world.used();
            skipped += both_or_neither(&used, &network, scene.rounds);
            let expected = literal(&problem, &network, &start, seed, scene.rounds, &used);
            let (vectors, _) = world.results();
            assert!(vectors == expected, "seed {seed}: other bits than with these edges");
        });
    }
    assert!(skipped > 1000, "{skipped} skipped edges are too few to show anything");
}

/// With weights that the edges determine, which both ends must compute alike.
#[test]
fn so_it_is_with_an_adaptive_weight() {
    let mut skipped = 0;
    for seed in seeds(100) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (agents, dim) = (random.random_range(3..6), [1, 7][random.random_range(0..2)]);
        let topology = [Topology::Ring, Topology::Star, Topology::Complete][random.random_range(0..3)];
        let network = Network::new(topology.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
        let xi = Some(Weight::Adaptive(XI));
        let parameters = Parameters { local_steps: Some(TAU), xi, gamma: Some(0.8), ..Parameters::default() };
        let build = || catalogue::find("mile").unwrap().build(&parameters, &network, seed).unwrap();
        let (problem, start) = (problem(agents, dim, 0.0), scattered(agents, dim));
        let scene = Scene {
            problem: &problem,
            script: Script::lasting(&network, build()),
            told: OnceLock::new(),
            start: &start,
            seed,
            rounds: 12,
            keep: 0,
            checkpoint_every: random.random_range(1..4),
            on_missing: MissingPolicy::Skip { after: random.random_range(0..150) },
            piece: random.random_range(1..4 * dim + 20),
            gossip_every: random.random_range(0..3),
        };
        let trouble = Trouble { kills: 6, cuts: 12, scrambles: 4 };
        std::thread::scope(|scope| {
            let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
            world.run();
            let used = world.used();
            skipped += both_or_neither(&used, &network, scene.rounds);
            // The simulator with the graphs of the edges that were used, and the whole graph in a round that does not come.
            let of = |round: u64| {
                let edges = network.graph().edges().filter(|(i, j)| used[*i][&round].contains(j));
                Graph::from_edges(agents, edges).unwrap()
            };
            let turns = (0..scene.rounds).map(of).chain([network.graph().clone()]).collect();
            let network = network.clone().with_time_varying(TimeVarying::InTurn(turns)).unwrap();
            let method = build();
            let mut expected = Simulator::new(&problem, &network, &*method, &start, seed).unwrap();
            let mut run = Run::start(&*method, schedule(), &mut expected).unwrap();
            (0..scene.rounds).for_each(|_| run.round(&mut expected).unwrap());
            let (vectors, _) = world.results();
            for (k, vector) in vectors.iter().enumerate() {
                assert!(vector == expected.vector(Vector(k)), "seed {seed}: vector {k} differs");
            }
        });
    }
    assert!(skipped > 100, "{skipped} skipped edges are too few to show anything");
}

/// Least squares with different data for each agent: one minimiser of the sum, which is no agent's own.
pub(crate) fn least_squares(agents: usize, dim: usize) -> Table<f32> {
    let shard = |agent: usize| {
        let mut random = stream(3, Purpose::Data, agent as u64, 0);
        let features = (0..4 * dim * dim).map(|_| random.sample::<f32, _>(StandardNormal)).collect();
        let targets = (0..4 * dim).map(|_| agent as f32 + random.sample::<f32, _>(StandardNormal)).collect();
        Shard { features, targets, ..Shard::default() }
    };
    Table::new(
        dim,
        (0..agents).map(shard).collect(),
        TableObjective::new(Loss::LeastSquares, 0.1),
        Batch::Full,
    )
    .unwrap()
}

#[test]
fn with_a_neighbour_gone_for_many_rounds_the_run_continues_and_ends_at_the_right_point() {
    let (agents, dim, rounds) = (5, 3, 500);
    let network = Network::new(Topology::Ring.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
    let parameters = Parameters { local_steps: Some(TAU), xi: Some(XI.into()), ..Parameters::default() };
    let method = catalogue::find("mile").unwrap().build(&parameters, &network, 0).unwrap();
    let (problem, start) = (least_squares(agents, dim), scattered(agents, dim));
    let scene = Scene {
        problem: &problem,
        script: Script::lasting(&network, method),
        told: OnceLock::new(),
        start: &start,
        seed: 0,
        rounds,
        keep: 0,
        checkpoint_every: 2,
        on_missing: MissingPolicy::Skip { after: 50 },
        piece: 2,
        gossip_every: 0,
    };
    let trouble = Trouble { kills: 0, cuts: 0, scrambles: 0 };
    std::thread::scope(|scope| {
        let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(1), trouble);
        while world.furthest() < 20 {
            world.event();
        }
        // Both neighbours of the last agent decide about it: they continue without it.
        world.take_down(agents - 1, u64::MAX);
        while world.furthest() < 120 {
            world.event();
        }
        world.outage = None;
        world.run();
        let skipped = both_or_neither(&world.used(), &network, rounds);
        assert!(skipped > 150, "{skipped}");
        let (vectors, _) = world.results();
        let (models, corrections) = (&vectors[0], &vectors[1]);
        let mean = block::mean_row(models, dim);
        let mut gradient = vec![0.0; dim];
        for i in 0..agents {
            let mut own = vec![0.0; dim];
            problem.gradient(i, &mean, &mut own).unwrap();
            gradient.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / agents as f32);
        }
        assert!(block::consensus_error(models, dim) < 1e-8, "{}", block::consensus_error(models, dim));
        assert!(block::norm_sq(&gradient) < 1e-8, "{gradient:?}");
        let sum = block::mean_row(corrections, dim);
        assert!(block::norm_sq(&sum) < 1e-10, "corrections sum to {sum:?}");
    });
}
