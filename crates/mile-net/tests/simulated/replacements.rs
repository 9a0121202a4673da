//! An agent whose disk is lost is replaced, and the run ends at the right point.

use std::sync::OnceLock;

use mile::block;
use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Problem;
use mile_net::session::MissingPolicy;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::node::Scene;
use crate::schedules::scattered;
use crate::seeds;
use crate::skips::least_squares;
use crate::world::{Trouble, World};

#[test]
fn an_agent_whose_disk_is_lost_is_replaced_and_exact_methods_end_at_the_minimiser() {
    let (agents, dim, rounds) = (5, 3, 700);
    let problem = least_squares(agents, dim);
    for seed in seeds(12) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let name = ["mile", "led", "k-gt", "gradient-tracking"][seed as usize % 4];
        let entry = catalogue::find(name).unwrap_or_else(|| panic!("{name}"));
        let topology = [Topology::Ring, Topology::Star][random.random_range(0..2)];
        let network = Network::new(topology.build(agents, 1).unwrap(), Rule::LazyMetropolis).unwrap();
        let local_steps = entry.has_local_steps().then_some(2);
        let parameters = Parameters { local_steps, ..Parameters::default() };
        let method = entry.build(&parameters, &network, seed).unwrap();
        let start = scattered(agents, dim);
        let scene = Scene {
            problem: &problem,
            network: &network,
            method: &*method,
            start: &start,
            seed,
            rounds,
            keep: 0,
            checkpoint_every: random.random_range(1..4),
            on_missing: MissingPolicy::Wait,
            piece: 2,
            gossip_every: random.random_range(0..2),
            replacement: OnceLock::new(),
        };
        let trouble = Trouble { kills: 4, cuts: 6, scrambles: 2 };
        let victim = random.random_range(0..agents);
        std::thread::scope(|scope| {
            let mut world = World::new(&scene, scope, ChaCha8Rng::seed_from_u64(!seed), trouble);
            while world.furthest() < 40 {
                world.event();
            }
            world.replace(victim);
            world.trouble.kills += 4;
            world.run();
            let (vectors, _) = world.results();
            let mean = block::mean_row(&vectors[0], dim);
            let mut gradient = vec![0.0; dim];
            for i in 0..agents {
                let mut own = vec![0.0; dim];
                problem.gradient(i, &mean, &mut own).unwrap();
                gradient.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / agents as f32);
            }
            let apart = block::consensus_error(&vectors[0], dim);
            assert!(apart < 1e-8, "{name}, seed {seed}: consensus error {apart}");
            assert!(block::norm_sq(&gradient) < 1e-8, "{name}, seed {seed}: {gradient:?}");
        });
    }
}
