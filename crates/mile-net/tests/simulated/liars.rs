//! Agents whose messages are not what they computed: what is refused, by whom, and where the others end.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use mile::block;
use mile::graph::Topology;
use mile::membership::Edge;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Problem;
use mile_net::handshake::Terms;
use mile_net::protocol::{Arrival, Limits, Memory, MissingPolicy, Protocol, Setup};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::limits;
use crate::node::{Scene, Script};
use crate::schedules::{play, problem, scattered};
use crate::seeds;
use crate::skips::{TAU, XI, both_or_neither, least_squares, literal};
use crate::world::{Liar, Says, Trouble, World};

const QUIET: Trouble = Trouble { kills: 0, cuts: 0, scrambles: 0 };
const DIM: usize = 3;
const AGENTS: usize = 30;

/// Where a run of thirty agents ends of which one lies.
struct Ended {
    /// The honest agents' mean model and consensus error.
    mean: Vec<f32>,
    consensus: f64,
    /// How many messages of the liar were refused.
    refused: u64,
}

fn run(liar: usize, says: Says) -> Ended {
    let network = Network::new(Topology::Torus.build(AGENTS, 1).unwrap(), Rule::Metropolis).unwrap();
    let parameters = Parameters { local_steps: Some(TAU), xi: Some(XI.into()), ..Parameters::default() };
    let method = catalogue::find("mile").unwrap().build(&parameters, &network, 0).unwrap();
    let (problem, start) = (least_squares(AGENTS, DIM), scattered(AGENTS, DIM));
    let scene = Scene {
        problem: &problem,
        script: Script::lasting(&network, method),
        told: OnceLock::new(),
        start: &start,
        seed: 0,
        rounds: 400,
        keep: 0,
        checkpoint_every: 4,
        on_missing: MissingPolicy::Skip { after: u64::MAX },
        piece: 2 * DIM,
        gossip_every: 0,
    };
    std::thread::scope(|scope| {
        let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(1), QUIET);
        world.liar = Some(Liar { agent: liar, exchanges: 0..u64::MAX, says, frames: u32::MAX });
        world.run();
        let skipped = both_or_neither(&world.used(), &network, scene.rounds);
        let edges = network.graph().neighbours(liar).len() as u64;
        let refused = world.refused_messages(liar);
        assert_eq!(skipped, refused, "every refused message is a skipped edge");
        assert!([0, edges * scene.rounds].contains(&refused), "{refused}");
        let (vectors, _) = world.results();
        let honest: Vec<f32> = (0..AGENTS)
            .filter(|agent| *agent != liar)
            .flat_map(|agent| vectors[0][agent * DIM..(agent + 1) * DIM].to_vec())
            .collect();
        let mean = block::mean_row(&honest, DIM).into_iter().collect();
        Ended { mean, consensus: block::consensus_error(&honest, DIM), refused }
    })
}

/// The squared norm of the gradient of the honest agents' f.
fn gradient_norm_sq(liar: usize, at: &[f32]) -> f64 {
    let problem = least_squares(AGENTS, DIM);
    let mut sum = vec![0.0; DIM];
    for agent in (0..AGENTS).filter(|agent| *agent != liar) {
        let mut own = vec![0.0; DIM];
        problem.gradient(agent, at, &mut own).unwrap();
        sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / (AGENTS - 1) as f32);
    }
    block::norm_sq(&sum)
}

#[test]
fn thirty_agents_leave_out_one_that_sends_what_no_agent_could_and_end_at_the_minimiser_of_the_others() {
    for (liar, says) in [(29, Says::One(f32::NAN)), (0, Says::All(1e30)), (14, Says::One(f32::NEG_INFINITY))]
    {
        let Ended { mean, consensus, refused } = run(liar, says);
        assert!(refused > 0, "{says:?}");
        let gradient = gradient_norm_sq(liar, &mean);
        assert!(gradient < 1e-8 && consensus < 1e-8, "{says:?} by {liar}: {gradient:e} {consensus:e}");
    }
}

#[test]
fn messages_within_the_range_are_believed_and_move_everybody() {
    for says in [Says::All(0.0), Says::Old, Says::Noise(0.5)] {
        let Ended { mean, refused, .. } = run(29, says);
        assert_eq!(refused, 0, "{says:?}");
        let gradient = gradient_norm_sq(29, &mean);
        assert!(gradient > 1e-4, "{says:?}: {gradient:e} from the minimiser of the others");
    }
}

/// Lies in some messages of a run with kills and cuts: every edge is used by both ends or by neither, and the bits are those of a run
/// with these edges.
#[test]
fn lies_are_skipped_by_both_ends_or_by_neither_and_leave_no_trace() {
    let mut refused = 0;
    for seed in seeds(300) {
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
        let liar = Liar {
            agent: random.random_range(0..agents),
            exchanges: 2..8,
            says: [Says::One(f32::NAN), Says::All(1e30)][random.random_range(0..2)],
            frames: random.random_range(1..40),
        };
        std::thread::scope(|scope| {
            let trouble = Trouble { kills: 6, cuts: 12, scrambles: 4 };
            let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
            let agent = liar.agent;
            world.liar = Some(liar);
            world.run();
            refused += world.refused_messages(agent);
            let used = world.used();
            both_or_neither(&used, &network, scene.rounds);
            let expected = literal(&problem, &network, &start, seed, scene.rounds, &used);
            let (vectors, _) = world.results();
            assert!(vectors == expected, "seed {seed}: other bits than with these edges");
        });
    }
    assert!(refused > 200, "{refused} refused messages are too few to show anything");
}

/// Where agents wait, a message that is not believed is asked for again, and a good one gives the bits of the simulator.
#[test]
fn agents_that_wait_use_nothing_but_the_message_that_was_meant() {
    let mut refused = 0;
    for seed in seeds(200) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (agents, dim) = (random.random_range(2..5), [1, 7][random.random_range(0..2)]);
        let network = Network::new(Topology::Complete.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
        // One vector in a message, or two.
        let entry = catalogue::find(["mile", "gradient-tracking"][random.random_range(0..2)]).unwrap();
        let local_steps = entry.has_local_steps().then_some(TAU);
        let parameters = Parameters { local_steps, ..Parameters::default() };
        let method = entry.build(&parameters, &network, seed).unwrap();
        let (problem, start) = (problem(agents, dim, 0.0), scattered(agents, dim));
        let scene = Scene {
            problem: &problem,
            script: Script::lasting(&network, method),
            told: OnceLock::new(),
            start: &start,
            seed,
            rounds: 8,
            keep: 0,
            checkpoint_every: random.random_range(1..4),
            on_missing: MissingPolicy::Wait,
            piece: random.random_range(1..2 * dim + 2),
            gossip_every: 0,
        };
        let expected = play(&scene.script, &problem, &start, seed, scene.rounds).0;
        std::thread::scope(|scope| {
            let trouble = Trouble { kills: 3, cuts: 3, scrambles: 0 };
            let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
            let frames = random.random_range(1..6);
            let liar = Liar { agent: agents - 1, exchanges: 1..6, says: Says::One(f32::NAN), frames };
            world.liar = Some(liar);
            world.run();
            refused += world.refused_messages(agents - 1);
            assert!(world.results().0 == expected, "seed {seed}: other bits than the simulator");
        });
    }
    assert!(refused > 100, "{refused} refused messages are too few to show anything");
}

/// A session of one of two neighbours that skip edges.
fn skipping(me: usize, incarnation: u64) -> Protocol<f32> {
    let terms =
        Terms { run: "lies".into(), dim: limits::DIM, precision: "f32".into(), facts: BTreeMap::new() };
    let setup = Setup {
        me,
        incarnation,
        terms,
        neighbours: BTreeMap::from([(1 - me, Edge::lasting(0.25))]),
        on_missing: MissingPolicy::Skip { after: u64::MAX },
        limits: Limits::of(1),
        memory: Memory::default(),
    };
    Protocol::new(setup, 0)
}

#[test]
fn a_refusal_is_not_lost_when_the_end_that_decides_dies_before_its_decision_is_on_disk() {
    let (mut before, mut other) = (skipping(0, 1), skipping(1, 1));
    limits::begin(&mut before, 0, &[1]);
    limits::begin(&mut other, 0, &[0]);
    before.opened(0, 1, true);
    other.opened(0, 0, false);
    let hello = limits::arrival(before.next_frame(0).unwrap());
    other.received(0, hello, 0).unwrap();
    let hello = limits::arrival(other.next_frame(0).unwrap());
    before.received(0, hello, 0).unwrap();
    let Arrival::Data { exchange, offset, mut piece } = limits::arrival(before.next_frame(0).unwrap()) else {
        panic!("the message is next")
    };
    piece[3] = f32::INFINITY;
    other.received(0, Arrival::Data { exchange, offset, piece }, 0).unwrap();
    assert_eq!(other.neighbour_statuses()[0].refused_messages, 1);
    // It dies, and is told again before it begins the exchange again.
    other.closed(0, 0);
    let mut after = skipping(0, 2);
    after.opened(1, 1, true);
    other.opened(1, 0, false);
    limits::deliver(1, &mut after, &mut other);
    limits::begin(&mut after, 0, &[1]);
    assert!(after.finish().is_none() && after.unsaved_decisions().is_some());
    after.decisions_saved();
    limits::deliver(1, &mut after, &mut other);
    assert_eq!(
        [after, other].map(|mut end| end.finish().map(|over| over.used)),
        [Some(vec![]), Some(vec![])]
    );
}
