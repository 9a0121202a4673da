//! Thousands of schedules, all with the same end.

use std::sync::OnceLock;

use mile::agents::Vector;
use mile::compression::Compression;
use mile::graph::Topology;
use mile::membership::{Change, Epoch, Event, Membership, Present};
use mile::methods::catalogue::{self, Parameters};
use mile::methods::{CorrectionAt, LocalSteps, Optimizer, OuterMomentum};
use mile::mixing::Rule;
use mile::network::Network;
use mile::optimiser::Adam;
use mile::outages::{Bursts, Outages};
use mile::problems::{Batch, Loss, Problem, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::robust::Robust;
use mile::run::{Progress, Run};
use mile::schedule::Weight;
use mile::simulator::Simulator;
use mile::varying::TimeVarying;
use mile::varying::finite::base_k;
use mile_net::protocol::MissingPolicy;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::node::{Scene, Script, schedule};
use crate::seeds;
use crate::world::{Trouble, World};

/// Nonconvex logistic regression, with different data for each agent.
pub(crate) fn problem(agents: usize, dim: usize, l1: f64) -> Table<f32> {
    let shard = |agent: usize| {
        let mut random = stream(11, Purpose::Data, agent as u64, 0);
        let features = (0..6 * dim).map(|_| random.sample::<f32, _>(StandardNormal)).collect();
        let targets = (0..6).map(|k| if (k + agent).is_multiple_of(3) { 1.0 } else { -1.0 }).collect();
        Shard { features, targets, ..Shard::default() }
    };
    Table::new(
        dim,
        (0..agents).map(shard).collect(),
        TableObjective { l1, ..TableObjective::new(Loss::NonconvexLogistic, 0.1) },
        Batch::Size(3),
    )
    .unwrap()
}

pub(crate) fn scattered(agents: usize, dim: usize) -> Vec<f32> {
    let mut random = stream(5, Purpose::Start, 0, 0);
    (0..agents * dim).map(|_| random.sample(StandardNormal)).collect()
}

/// A network whose agents may be replaced, leave and join, as far as the network allows.
fn membership(random: &mut ChaCha8Rng, network: Network, rule: Rule, happens: bool) -> Membership {
    let complete = network.averages_at_once();
    let mut events: Vec<Event> = Vec::new();
    let mut membership = Membership::lasting(network.clone());
    for round in 1..8 {
        if !happens || !random.random_bool(0.4) {
            continue;
        }
        let members = &membership.epochs()[events.len()].members;
        let mut member = || members[random.random_range(0..members.len())];
        let (agent, neighbours) =
            (member(), if complete { members.clone() } else { vec![member(), member()] });
        let edges = if complete { Vec::new() } else { vec![(member(), member())] };
        let change = match random.random_range(0..3) {
            0 => Change::Replace(agent),
            1 => Change::Leave { agent, edges },
            _ => Change::Join { agent: membership.numbers(), neighbours },
        };
        events.push(Event { round, change, lost: None });
        match Membership::new(network.clone(), Some(rule), &events) {
            Ok(longer) => membership = longer,
            Err(_) => drop(events.pop()),
        }
    }
    membership
}

/// The same in the simulator: the state vectors at the end, and the progress.
pub(crate) fn play(
    script: &Script,
    problem: &dyn Problem<f32>,
    start: &[f32],
    seed: u64,
    rounds: u64,
) -> (Vec<Vec<f32>>, Progress) {
    let (mut models, mut progress, mut vectors) = (start.to_vec(), None, Vec::new());
    let epochs = script.membership.epochs();
    for (k, (epoch, method)) in epochs.iter().zip(&script.methods).enumerate() {
        let view = Present::new(problem, &epoch.members);
        let mut agents = Simulator::new(&view, &epoch.network, &**method, &models, seed).unwrap();
        let mut run = match progress {
            None => Run::start(&**method, schedule(), &mut agents).unwrap(),
            Some(progress) => Run::resume(&**method, schedule(), progress),
        };
        if k > 0 {
            run.renew(epoch.newcomer_with(|_| true), &mut agents).unwrap();
        }
        let next = epochs.get(k + 1).filter(|next| next.round < rounds);
        while run.progress().round < next.map_or(rounds, |next| next.round) {
            run.round(&mut agents).unwrap();
        }
        progress = Some(*run.progress());
        vectors = (0..method.layout().state.len()).map(|v| agents.vector(Vector(v)).to_vec()).collect();
        let Some(next) = next else { break };
        models = next.rows_from(epoch, agents.models());
    }
    (vectors, progress.unwrap_or_default())
}

/// A run chosen by the seed, in the simulator and over the simulated network.
fn check(seed: u64, spoil: bool) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let entry = &catalogue::ALL[random.random_range(0..catalogue::ALL.len())];
    let complete = entry.has_server();
    let topologies = [Topology::Ring, Topology::Path, Topology::Star, Topology::Complete];
    let agents = random.random_range(if complete { 2..5 } else { 1..7 });
    let topology = if complete || agents < 3 {
        Topology::Complete
    } else {
        topologies[random.random_range(0..topologies.len())]
    };
    let drop_rate = if !complete && random.random_bool(0.3) { 0.3 } else { 0.0 };
    let rule = if complete { Rule::Metropolis } else { Rule::LazyMetropolis };
    let network = Network::new(topology.build(agents, 1).unwrap(), rule).unwrap();
    // Compressed messages, where the method has them: they need edges that never drop.
    let compression =
        [Compression::EightBit, Compression::TopK(0.3)].into_iter().nth(random.random_range(0..4));
    let compression = compression.filter(|_| entry.takes("compression"));
    let lasting = complete || compression.is_some();
    let network = network.with_drop_rate(if lasting { 0.0 } else { drop_rate }).unwrap();
    let varying = [TimeVarying::RandomMatching, TimeVarying::matchings(network.graph())];
    let network = match lasting || !random.random_bool(0.1) {
        true => network,
        false => Network::in_turn(base_k(agents, 1)).unwrap_or(network).with_drop_rate(drop_rate).unwrap(),
    };
    let is_finite = network.time_varying().is_some();
    let network = match varying.into_iter().nth(random.random_range(0..6)).filter(|_| !lasting && !is_finite)
    {
        Some(varying) => network.with_time_varying(varying).unwrap(),
        None => network,
    };
    // Bursts of loss, and agents that are away.
    let network = match network.drop_rate() > 0.0 && seed.is_multiple_of(2) {
        true => {
            let bursts = Bursts::new(Outages::new(0.2, 0.4).unwrap(), 0.8).unwrap();
            network.with_bursts(bursts).with_absence(Outages::new(0.1, 0.5).unwrap())
        }
        false => network,
    };
    let local_steps = entry.has_local_steps().then_some(3);
    let penalty = seed.is_multiple_of(2) && entry.takes_penalty() && compression.is_none();
    // Momentum, outer momentum, and a weight that grows, where the method has them.
    let heavy = entry.takes("momentum") && !penalty && !seed.is_multiple_of(3);
    let adaptive = (seed / 7).is_multiple_of(2) && compression.is_none();
    let grows =
        if adaptive { Weight::Adaptive(0.1) } else { Weight::Geometric { from: 0.001, to: 0.1, rounds: 4 } };
    let outer = OuterMomentum { momentum: 0.5, step_size: 0.7 };
    // AdamW or AMSGrad in place of momentum.
    let preconditioned = entry.takes("optimizer") && !penalty && (seed / 5).is_multiple_of(3);
    let heavy = heavy && !preconditioned;
    let adam = Adam { amsgrad: seed.is_multiple_of(2), ..Adam::default() };
    let local = LocalSteps {
        optimizer: preconditioned.then_some(Optimizer::Adam(adam)),
        correction: (entry.takes("correction") && seed.is_multiple_of(3)).then_some(CorrectionAt::Step),
        clip: (entry.takes("clip") && seed.is_multiple_of(5)).then_some(0.5),
        share_moments: preconditioned.then_some(2),
    };
    let happens = seed.is_multiple_of(2) && compression.is_none();
    // Exchanges that limit what malicious neighbours can do: with rules for a number of them where all agents have enough neighbours.
    let compares = entry.takes("exchange") && compression.is_none() && !(entry.takes("xi") && adaptive);
    let is_dense =
        topology == Topology::Complete && agents > 3 && !happens && network.time_varying().is_none();
    let rules = match is_dense && !entry.takes("xi") {
        true => [Robust::Clip { byzantine: 1 }, Robust::TrimmedMean { byzantine: 1 }],
        false => [Robust::Threshold(0.3), Robust::Threshold(3.0)],
    };
    let robust = rules[(seed % 2) as usize];
    let parameters = Parameters {
        local_steps,
        penalty,
        robust: (compares && !(seed / 13).is_multiple_of(3)).then_some(robust),
        local,
        momentum: heavy.then_some(0.7),
        nesterov: (heavy && entry.takes("nesterov") && seed.is_multiple_of(5)).then_some(true),
        outer: (entry.takes("outer") && !penalty && (seed / 3).is_multiple_of(2)).then_some(outer),
        xi: (entry.takes("xi") && !seed.is_multiple_of(4)).then_some(grows),
        compression,
        ..Parameters::default()
    };
    let rounds = random.random_range(1..8);
    let membership = membership(&mut random, network, rule, happens);
    // Different numbers of local steps, for all agents that ever take part.
    let parameters = match entry.takes_own_steps() && (seed / 11).is_multiple_of(2) {
        true => {
            let own = (0..membership.numbers() as u64).map(|agent| 1 + (agent + seed) % 3);
            parameters.with_own_steps(own.collect::<Vec<_>>())
        }
        false => parameters,
    };
    let build =
        |epoch: &Epoch| entry.build(&parameters.of_members(&epoch.members), &epoch.network, seed).unwrap();
    let script = Script::new(membership, build);
    // Long enough for several stretches of a compressed message, or short.
    let long = compression == Some(Compression::EightBit) && seed.is_multiple_of(3);
    let dim = if long { 2_100 } else { [1, 5, 17][random.random_range(0..3)] };
    let numbers = script.membership.numbers();
    let (problem, start) = (problem(numbers, dim, if penalty { 0.3 } else { 0.0 }), scattered(agents, dim));
    let (expected, progress) = play(&script, &problem, &start, seed, rounds);

    let scene = Scene {
        problem: &problem,
        script,
        told: OnceLock::new(),
        start: &start,
        seed,
        rounds,
        keep: if seed.is_multiple_of(3) { random.random_range(1..5) } else { 0 },
        checkpoint_every: random.random_range(1..4),
        on_missing: MissingPolicy::Wait,
        piece: if long { random.random_range(50..400) } else { random.random_range(1..2 * dim + 2) },
        gossip_every: random.random_range(0..3),
    };
    let trouble = Trouble { kills: random.random_range(0..6), cuts: random.random_range(0..8), scrambles: 6 };
    std::thread::scope(|scope| {
        let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
        if spoil {
            for _ in 0..random.random_range(1..40) {
                (0..random.random_range(1..200)).for_each(|_| {
                    world.event();
                });
                world.inject(frame(&mut random));
            }
        }
        world.run();
        let (vectors, bytes) = world.results();
        for (k, vector) in vectors.iter().enumerate() {
            assert!(*vector == expected[k], "seed {seed}: {} differs in vector {k}", entry.name);
        }
        assert_eq!(bytes, progress.costs.bytes_sent, "seed {seed}: {}", entry.name);
    });
}

/// A frame that a listed but malicious neighbour might send: well-formed heads with odd numbers, or meaningless bytes.
fn frame(random: &mut ChaCha8Rng) -> Vec<u8> {
    use mile_net::frame::{Head, Kind};
    let kinds = [Kind::Hello, Kind::Refuse, Kind::Gossip, Kind::Have, Kind::Decide];
    let number = |random: &mut ChaCha8Rng| match random.random_range(0..4) {
        0 => u64::MAX - random.random_range(0..2),
        1 => random.next_u64(),
        _ => random.random_range(0..6),
    };
    if random.random_bool(0.2) {
        return (0..random.random_range(0..60)).map(|_| random.random()).collect();
    }
    let kind = kinds[random.random_range(0..kinds.len())];
    // A false HAVE hurts only its sender, but it does hurt it: it is not sent here.
    let kind = if kind == Kind::Have { Kind::Refuse } else { kind };
    let length = match kind {
        Kind::Gossip => 8 * random.random_range(1..5),
        Kind::Decide => 1,
        _ => random.random_range(0..30),
    };
    let mut bytes = Head { kind, length, a: number(random), b: number(random) }.encode().to_vec();
    bytes.extend((0..length).map(|_| random.random::<u8>()));
    bytes
}

#[test]
fn whatever_the_schedule_the_bits_are_those_of_the_simulator() {
    seeds(3000).for_each(|seed| check(seed, false));
}

#[test]
fn frames_that_make_no_sense_change_nothing() {
    seeds(1000).for_each(|seed| check(100_000 + seed, true));
}
