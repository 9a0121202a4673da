//! A second home for agents: each in a thread of its own, with a block of one row, exchanging
//! messages over channels. The methods are the same text, and the bits are the same.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use mile::agents::{Agents, AgentsError, Vector};
use mile::block;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Draw, Problem, Table};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;

use crate::common::*;

const SEED: u64 = 3;

/// One agent with its line to each neighbour.
struct Solo<'a> {
    agent: usize,
    problem: &'a dyn Problem<f32>,
    network: &'a Network,
    vectors: Vec<Vec<f32>>,
    to: HashMap<usize, Sender<Vec<f32>>>,
    from: HashMap<usize, Receiver<Vec<f32>>>,
}

impl Agents for Solo<'_> {
    fn hosted(&self) -> usize {
        1
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        let mut out = std::mem::take(&mut self.vectors[g.0]);
        let draw = Draw { seed: SEED, step: draw };
        self.problem.sample_gradient(self.agent, &self.vectors[x.0], draw, &mut out);
        self.vectors[g.0] = out;
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) {
        let mut out = std::mem::take(&mut self.vectors[y.0]);
        let terms: Vec<(f64, &[f32])> = terms.iter().map(|(a, v)| (*a, &self.vectors[v.0][..])).collect();
        block::combine(&mut out, keep, &terms);
        self.vectors[y.0] = out;
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        let mut row = self.network.mixing().rows().row(self.agent).to_vec();
        let up = self.network.row_in_round(SEED, self.agent, round, &mut row);
        row.retain(|(_, weight)| *weight != 0.0);
        for &(from, _) in pairs {
            for (j, _) in row.iter().filter(|(j, _)| *j != self.agent) {
                self.to[j].send(self.vectors[from.0].clone()).unwrap();
            }
        }
        for &(from, to) in pairs {
            let mut sum = std::mem::take(&mut self.vectors[to.0]);
            sum.fill(0.0);
            for (k, &(j, weight)) in row.iter().filter(|(j, _)| *j != self.agent).enumerate() {
                let message = self.from[&j].recv().unwrap();
                block::fold((weight, &message[..]), &self.vectors[from.0], &mut sum, k == 0);
            }
            self.vectors[to.0] = sum;
        }
        Ok(up * (pairs.len() * self.vectors[0].len() * 4) as u64)
    }

    fn forget(&mut self, scratch: Vector) {
        self.vectors[scratch.0].fill(f32::NAN);
    }
}

/// Final states of all agents, row after row for each vector, and the bytes they sent.
fn over_channels(
    problem: &dyn Problem<f32>,
    network: &Network,
    method: &dyn Method,
    start: &[f32],
    rounds: u64,
) -> (Vec<Vec<f32>>, u64) {
    let (n, dim) = (network.agents(), problem.dim());
    let mut solos: Vec<Solo> = (0..n)
        .map(|agent| {
            let mut vectors = vec![vec![0.0; dim]; method.layout().vectors()];
            vectors[0].copy_from_slice(&start[agent * dim..(agent + 1) * dim]);
            Solo { agent, problem, network, vectors, to: HashMap::new(), from: HashMap::new() }
        })
        .collect();
    for (i, j) in network.graph().edges().flat_map(|(i, j)| [(i, j), (j, i)]) {
        let (sender, receiver) = channel();
        solos[i].to.insert(j, sender);
        solos[j].from.insert(i, receiver);
    }
    let work = |mut solo: Solo| {
        let schedule = Schedule { warmup: 3, ..Schedule::constant(0.05) };
        let mut run = Run::start(method, schedule, &mut solo).unwrap();
        while run.progress().round < rounds {
            run.step(&mut solo).unwrap();
        }
        (solo.vectors, run.progress().costs.bytes_sent)
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = solos.into_iter().map(|solo| scope.spawn(move || work(solo))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let state = 0..method.layout().state.len();
    let vectors = state.map(|k| done.iter().flat_map(|(vectors, _)| vectors[k].clone()).collect()).collect();
    (vectors, done.iter().map(|(_, bytes)| bytes).sum())
}

/// The same objectives, with gradients that take their time: the simulator finds threads worth while, puts
/// exchanges off, and meets its agents in another order each time.
struct Slow<P>(P);

impl<P: Problem<f32>> Problem<f32> for Slow<P> {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[f32]) -> f64 {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) {
        self.0.gradient(agent, x, gradient);
    }

    fn sample_gradient(&self, agent: usize, x: &[f32], draw: Draw, gradient: &mut [f32]) {
        std::thread::sleep(std::time::Duration::from_micros(20));
        self.0.sample_gradient(agent, x, draw, gradient);
    }
}

/// Every method on a graph and without some of its edges; SCAFFOLD where all know all.
fn simulator_and_channels_agree(graph: &Network, wrap: impl Fn(Table<f32>) -> Box<dyn Problem<f32>>) {
    for entry in catalogue::ALL {
        for drop_rate in [0.0, 0.3] {
            let complete = entry.name == "scaffold";
            if complete && drop_rate > 0.0 {
                continue;
            }
            let network =
                if complete { network(Topology::Complete, 5, Rule::Metropolis) } else { graph.clone() };
            let network = network.with_drop_rate(drop_rate).unwrap();
            let local_steps = entry.has_local_steps().then_some(3);
            let parameters = Parameters { local_steps, ..Parameters::default() };
            let method = entry.build(&parameters, &network, SEED).unwrap();
            let problem = wrap(nonconvex::<f32>(network.agents(), DIM, Batch::Size(4)));
            let start = scattered::<f32>(network.agents(), DIM);

            let mut agents = Simulator::new(&*problem, &network, &*method, &start, SEED);
            let schedule = Schedule { warmup: 3, ..Schedule::constant(0.05) };
            let mut run = Run::start(&*method, schedule, &mut agents).unwrap();
            while run.progress().round < 9 {
                run.step(&mut agents).unwrap();
            }
            let (vectors, bytes) = over_channels(&*problem, &network, &*method, &start, 9);
            for (k, vector) in vectors.iter().enumerate() {
                assert!(vector == agents.vector(Vector(k)), "{}, drop rate {drop_rate}", entry.name);
            }
            assert_eq!(bytes, run.progress().costs.bytes_sent, "{}", entry.name);
        }
    }
}

#[test]
fn threads_that_exchange_messages_reach_the_bits_of_the_simulator() {
    let small_world = network(Topology::SmallWorld { degree: 4, rewire: 0.4 }, 7, Rule::LazyMetropolis);
    simulator_and_channels_agree(&small_world, |problem| Box::new(problem));
}

#[test]
fn so_they_do_when_exchanges_are_put_off() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    for topology in [Topology::Ring, Topology::Path] {
        let graph = network(topology, 13, Rule::LazyMetropolis);
        pool.install(|| simulator_and_channels_agree(&graph, |problem| Box::new(Slow(problem))));
    }
}
