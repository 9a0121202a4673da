//! An agent whose disk is lost is replaced, or leaves for good, and the run ends at the right point, whatever its number is and
//! whichever of its neighbours had its last message.

use std::sync::OnceLock;

use mile::block;
use mile::graph::Topology;
use mile::membership::{Change, Event, Membership};
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Problem;
use mile_net::protocol::MissingPolicy;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::node::{Scene, Script};
use crate::schedules::scattered;
use crate::seeds;
use crate::skips::least_squares;
use crate::world::{Trouble, World};

const AGENTS: usize = 5;
const DIM: usize = 3;

/// Runs exact methods in which an agent is lost at some moment; all are told what happens then. At the end the models must agree
/// at the minimiser of the members' mean.
fn check(seed: u64, what: impl Fn(&mut ChaCha8Rng, usize, (u64, u64)) -> Vec<Event>) {
    let problem = least_squares(AGENTS + 1, DIM);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let name = ["mile", "led", "k-gt", "gradient-tracking"][seed as usize % 4];
    let entry = catalogue::find(name).unwrap_or_else(|| panic!("{name}"));
    let topology = [Topology::Ring, Topology::Star][random.random_range(0..2)];
    let network = Network::new(topology.build(AGENTS, 1).unwrap(), Rule::LazyMetropolis).unwrap();
    let local_steps = entry.has_local_steps().then_some(2);
    let parameters = Parameters { local_steps, ..Parameters::default() };
    let build = |network: &Network| entry.build(&parameters, network, seed).unwrap();
    let start = scattered(AGENTS, DIM);
    let scene = Scene {
        problem: &problem,
        script: Script::lasting(&network, build(&network)),
        told: OnceLock::new(),
        start: &start,
        seed,
        rounds: 700,
        keep: 0,
        checkpoint_every: random.random_range(1..4),
        on_missing: MissingPolicy::Wait,
        piece: 2,
        gossip_every: random.random_range(0..2),
    };
    let trouble = Trouble { kills: 4, cuts: 6, scrambles: 2 };
    let victim = random.random_range(0..AGENTS);
    std::thread::scope(|scope| {
        let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
        while world.furthest() < 40 {
            world.event();
        }
        let stand = world.lose(victim);
        let events = what(&mut random, victim, stand);
        let membership = Membership::new(network, Some(Rule::LazyMetropolis), &events).unwrap();
        let gone: &[usize] = if membership.leaves(victim).is_some() { &[victim] } else { &[] };
        let members = membership.epochs().last().unwrap().members.clone();
        world.tell(Script::new(membership, |epoch| build(&epoch.network)), gone);
        world.trouble.kills += 4;
        world.run();
        let (vectors, _) = world.results();
        assert_eq!(vectors[0].len(), members.len() * DIM);
        let mean = block::mean_row(&vectors[0], DIM);
        let mut gradient = vec![0.0; DIM];
        for agent in &members {
            let mut own = vec![0.0; DIM];
            problem.gradient(*agent, &mean, &mut own).unwrap();
            gradient.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / members.len() as f32);
        }
        let apart = block::consensus_error(&vectors[0], DIM);
        assert!(apart < 1e-8, "{name}, seed {seed}: consensus error {apart}");
        assert!(block::norm_sq(&gradient) < 1e-8, "{name}, seed {seed}: {gradient:?}");
    });
}

#[test]
fn an_agent_whose_disk_is_lost_is_replaced_and_exact_methods_end_at_the_minimiser() {
    for seed in seeds(12) {
        check(seed, |_, victim, (least, most)| {
            vec![Event { round: most + 3, change: Change::Replace(victim), lost: Some(least) }]
        });
    }
}

/// The event may be in the round of the agent that is furthest ahead: nobody has passed it.
#[test]
fn without_a_lost_agent_the_others_end_at_the_minimiser_of_their_own_mean() {
    for seed in seeds(12) {
        check(seed, |random, victim, (least, most)| {
            let others: Vec<usize> = (0..AGENTS).filter(|id| *id != victim).collect();
            let edges = others.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let round = most + random.random_range(0..3);
            let leaves = Event { round, change: Change::Leave { agent: victim, edges }, lost: Some(least) };
            let neighbours = vec![others[0], others[random.random_range(1..others.len())]];
            let joins = Change::Join { agent: AGENTS, neighbours };
            vec![leaves, Event { round: round + random.random_range(1..9), change: joins, lost: None }]
        });
    }
}
