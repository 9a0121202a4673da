//! A second place for agents: ranks, each a thread that hosts some of them, exchanging messages over channels. The
//! methods are the same code, and the bits are the same: of the states, and of what is measured over all agents.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use mile::agents::{Agents, AgentsError, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector};
use mile::block;
use mile::compression::Compression;
use mile::engine::Engine;
use mile::engine::parts::{Drift, measure_drift, movers};
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::methods::{LocalSteps, Optimizer};
use mile::mixing::Rule;
use mile::network::Network;
use mile::optimiser::Adam;
use mile::outages::{Bursts, Outages};
use mile::problems::{Batch, Draw, Failure, Penalty, Problem};
use mile::ranks::{Alone, Together};
use mile::robust::Robust;
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use mile::steady::{message_bytes, remember, share, steadiness, summary};
use mile::varying::TimeVarying;
use mile::verbs::{LocalWork, Rows, Verbs};

use crate::common::*;

const SEED: u64 = 3;
const X: Vector = Vector(0);
/// The ranks here reach the same places, and communicate over separate lines.
const TOGETHER: Together = Together::of(&Alone);

/// Lines between two ends: agents that are neighbours, or ranks that follow each other.
type Lines<M> = (HashMap<usize, Sender<M>>, HashMap<usize, Receiver<M>>);

/// Some agents, with a line to each neighbour of each, and to the ranks before and after this one.
struct Rank<'a> {
    hosted: Range<usize>,
    problem: &'a dyn Problem<f32>,
    network: &'a Network,
    /// For each hosted agent its vectors.
    vectors: Vec<Vec<Vec<f32>>>,
    own_steps: Vec<u64>,
    noted: Verbs,
    lines: HashMap<usize, Lines<Vec<f32>>>,
    ranks: Lines<Vec<f64>>,
    place: (usize, usize),
    drift: Drift,
}

impl Agents for Rank<'_> {
    fn hosted(&self) -> Range<usize> {
        self.hosted.clone()
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.noted.gradient(x, g, draw)
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.noted.combine(y, keep, terms)
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.noted.prox(x, step)
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.noted.optimise(step)
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.noted.clip(g, most)
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.noted.check_pull(pairs)?;
        self.settle()?;
        measure_drift(self, TOGETHER, pairs[0].0)?;
        let row = |agent: usize| row_in_round(self.network, agent, round);
        for (agent, vectors) in self.hosted.clone().zip(&self.vectors) {
            for (j, _) in row(agent).0 {
                pairs
                    .iter()
                    .for_each(|(from, _)| self.lines[&agent].0[&j].send(vectors[from.0].clone()).unwrap());
            }
        }
        let mut sent = 0;
        for (agent, vectors) in self.hosted.clone().zip(&mut self.vectors) {
            let (row, up) = row(agent);
            for &(from, to) in pairs {
                let mut sum = std::mem::take(&mut vectors[to.0]);
                sum.fill(0.0);
                for (k, &(j, weight)) in row.iter().enumerate() {
                    let message = self.lines[&agent].1[&j].recv().unwrap();
                    block::fold((weight, &message[..]), &vectors[from.0], &mut sum, k == 0);
                }
                vectors[to.0] = sum;
            }
            sent += up * (pairs.len() * vectors[0].len() * 4) as u64;
        }
        Ok(sent)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.noted.check_steady(pull)?;
        self.settle()?;
        measure_drift(self, TOGETHER, pull.from)?;
        for (agent, vectors) in self.hosted.clone().zip(&self.vectors) {
            let summary = summary(&vectors[pull.from.0], &vectors[pull.memory.0]);
            let halves = summary.iter().flat_map(|n| [n.to_bits() as u32, (n.to_bits() >> 32) as u32]);
            let mut message = vectors[pull.from.0].clone();
            message.extend(halves.map(f32::from_bits));
            for (j, _) in row_in_round(self.network, agent, round).0 {
                self.lines[&agent].0[&j].send(message.clone()).unwrap();
            }
        }
        let mut sent = 0;
        for (agent, vectors) in self.hosted.clone().zip(&mut self.vectors) {
            let (row, up) = row_in_round(self.network, agent, round);
            let own = summary(&vectors[pull.from.0], &vectors[pull.memory.0]);
            let v = vectors[pull.from.0].clone();
            let mut heard = Vec::new();
            for (j, weight) in row {
                let message = self.lines[&agent].1[&j].recv().unwrap();
                let (other, halves) = message.split_at(v.len());
                let whole =
                    |k: &[f32]| f64::from_bits(u64::from(k[0].to_bits()) | u64::from(k[1].to_bits()) << 32);
                heard.push((weight, other.to_vec(), halves.chunks_exact(2).map(whole).collect::<Vec<f64>>()));
            }
            for (to, shared) in [(pull.to, false), (pull.steady, true)] {
                vectors[to.0].fill(0.0);
                let weighted = heard
                    .iter()
                    .map(|(w, v, summary)| (if shared { w * share(&own, summary) } else { *w }, v));
                for (k, (weight, other)) in weighted.filter(|(w, _)| *w != 0.0).enumerate() {
                    block::fold((weight, &other[..]), &v, &mut vectors[to.0], k == 0);
                }
            }
            let others = heard.iter().map(|(weight, _, summary)| (*weight, &summary[..]));
            remember(&mut vectors[pull.memory.0], &v, steadiness(&own, pull.fresh, others));
            sent += up * message_bytes::<f32>(v.len()) as u64;
        }
        Ok(sent)
    }

    /// Messages are encoded as bytes, one per number.
    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.noted.check_pull(&[(pull.from, pull.to)])?;
        self.settle()?;
        measure_drift(self, TOGETHER, pull.from)?;
        let row = |agent: usize| row_in_round(self.network, agent, round);
        for (agent, vectors) in self.hosted.clone().zip(&self.vectors) {
            let lines = &self.lines[&agent].0;
            row(agent).0.iter().for_each(|(j, _)| lines[j].send(vectors[pull.from.0].clone()).unwrap());
        }
        let mut sent = 0;
        for (agent, vectors) in self.hosted.clone().zip(&mut self.vectors) {
            let (row, up) = row(agent);
            let heard: Vec<(f64, Vec<f32>)> =
                row.iter().map(|(j, w)| (*w, self.lines[&agent].1[j].recv().unwrap())).collect();
            let others: Vec<(f64, &[f32])> = heard.iter().map(|(w, v)| (*w, &v[..])).collect();
            let mut to = std::mem::take(&mut vectors[pull.to.0]);
            pull.by.pull(&vectors[pull.from.0], &others, &mut to);
            vectors[pull.to.0] = to;
            sent += up * (vectors[0].len() * 4) as u64;
        }
        Ok(sent)
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.noted.compress(pull)?;
        self.settle()?;
        measure_drift(self, TOGETHER, pull.model)?;
        for (agent, vectors) in self.hosted.clone().zip(&self.vectors) {
            let mut bytes = Vec::new();
            pull.by.encode(&vectors[pull.from.0], &mut bytes);
            for (j, _) in row_in_round(self.network, agent, round).0 {
                self.lines[&agent].0[&j].send(bytes.iter().map(|byte| f32::from(*byte)).collect()).unwrap();
            }
        }
        let mut sent = 0;
        for (agent, vectors) in self.hosted.clone().zip(&mut self.vectors) {
            let (row, up) = row_in_round(self.network, agent, round);
            let own = vectors[pull.from.0].clone();
            let mut other = vec![f32::NAN; own.len()];
            vectors[pull.to.0].fill(0.0);
            for (k, (j, weight)) in row.into_iter().enumerate() {
                let message: Vec<u8> =
                    self.lines[&agent].1[&j].recv().unwrap().iter().map(|byte| *byte as u8).collect();
                pull.by.decode(&message, &mut other).unwrap();
                block::fold((weight, &other[..]), &own, &mut vectors[pull.to.0], k == 0);
                sent += message.len() as u64;
            }
            assert_eq!(up as usize, self.network.graph().neighbours(agent).len());
        }
        Ok(sent)
    }

    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.noted.only(own);
        Ok(movers(self.hosted.clone(), &self.own_steps, own))
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.noted.forget(scratch)
    }

    fn settle(&mut self) -> Result<(), AgentsError> {
        for (agent, vectors) in self.hosted.clone().zip(&mut self.vectors) {
            let (verbs, problem) = (self.noted.stage(0), self.problem);
            Rows::alone(agent, vectors, |rows| {
                let work = LocalWork { problem, seed: SEED, matrices: &[], own_steps: &self.own_steps };
                verbs.iter().try_for_each(|verb| rows.carry_out(verb, &work))
            })?;
        }
        self.noted.clear();
        Ok(())
    }
}

impl Engine<f32> for Rank<'_> {
    fn agents(&self) -> usize {
        self.network.agents()
    }

    fn dim(&self) -> usize {
        self.problem.dim()
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [f32]>, AgentsError> {
        self.settle()?;
        Ok(Cow::Owned(self.vectors.iter().flat_map(|vectors| vectors[v.0].iter().copied()).collect()))
    }

    fn set_vector(&mut self, v: Vector, rows: &[f32]) -> Result<(), AgentsError> {
        let (dim, each) = (self.dim(), self.vectors.iter_mut());
        each.zip(rows.chunks_exact(dim)).for_each(|(vectors, row)| vectors[v.0].copy_from_slice(row));
        Ok(())
    }

    fn watched(&mut self) -> Option<&mut Drift> {
        Some(&mut self.drift)
    }

    fn of_all(&mut self, _: Together<'_>, own: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        let width = own.len() / self.hosted.len();
        let mut all = vec![0.0; width * self.network.agents()];
        let own_part = self.hosted.start * width..self.hosted.end * width;
        self.pass_on(&mut all, |all| all[own_part].copy_from_slice(&own));
        Ok(all)
    }

    fn sum(&mut self, _: Together<'_>, v: Vector) -> Result<Vec<f64>, AgentsError> {
        let (rows, mut sums) = (self.vector(v)?.into_owned(), vec![0.0; self.dim()]);
        self.pass_on(&mut sums, |sums| block::add_rows(sums, &rows));
        Ok(sums)
    }
}

impl Rank<'_> {
    /// From the first rank to the last, and back to all.
    fn pass_on(&mut self, numbers: &mut [f64], add: impl FnOnce(&mut [f64])) {
        let (rank, ranks) = self.place;
        if rank > 0 {
            numbers.copy_from_slice(&self.ranks.1[&(rank - 1)].recv().unwrap());
        }
        add(numbers);
        if rank + 1 < ranks {
            self.ranks.0[&(rank + 1)].send(numbers.to_vec()).unwrap();
            numbers.copy_from_slice(&self.ranks.1[&(rank + 1)].recv().unwrap());
        }
        if rank > 0 {
            self.ranks.0[&(rank - 1)].send(numbers.to_vec()).unwrap();
        }
    }
}

/// An agent's neighbours whose edge is up in a round, with their weights, and how many there are.
fn row_in_round(network: &Network, agent: usize, round: u64) -> (Vec<(usize, f64)>, u64) {
    let mut row = network.mixing().rows().row(agent).to_vec();
    let up = network.row_in_round(SEED, agent, round, &mut row);
    row.retain(|(j, weight)| *weight != 0.0 && *j != agent);
    (row, up)
}

/// Both ends of a line for each pair.
fn connect<M>(ends: &mut [Lines<M>], pairs: impl Iterator<Item = (usize, usize)>) {
    for (i, j) in pairs.flat_map(|(i, j)| [(i, j), (j, i)]) {
        let (sender, receiver) = channel();
        ends[i].0.insert(j, sender);
        ends[j].1.insert(i, receiver);
    }
}

/// What is measured over all agents: norm, mean, consensus error, and the latter just before an exchange.
type Measured = (f64, Vec<f64>, f64, Option<f64>);

fn measured(engine: &mut dyn Engine<f32>) -> Measured {
    let mean = engine.mean(TOGETHER, X).unwrap();
    (engine.norm_sq(TOGETHER, X).unwrap(), mean, engine.consensus_error(TOGETHER, X).unwrap(), engine.drift())
}

/// Runs all rounds, with the last one watched.
fn drive(method: &dyn Method, engine: &mut dyn Engine<f32>, rounds: u64) -> (Measured, u64) {
    let schedule = Schedule::constant(0.05).with_warmup(3);
    let mut run = Run::start(method, schedule, engine).unwrap();
    while run.progress().round < rounds {
        if run.progress().round + 1 == rounds {
            engine.watch();
        }
        run.round(engine).unwrap();
    }
    (measured(engine), run.progress().costs.bytes_sent)
}

/// Final states of all agents, row after row for each vector, what every rank measured, and the bytes sent.
fn over_channels(
    problem: &dyn Problem<f32>,
    network: &Network,
    method: &dyn Method,
    start: &[f32],
    rounds: u64,
    ranks: usize,
) -> (Vec<Vec<f32>>, Vec<Measured>, u64) {
    let (n, dim, layout) = (network.agents(), problem.dim(), method.layout());
    let mut lines: Vec<Lines<Vec<f32>>> = (0..n).map(|_| Default::default()).collect();
    connect(&mut lines, network.graph().edges());
    let mut between: Vec<Lines<Vec<f64>>> = (0..ranks).map(|_| Default::default()).collect();
    connect(&mut between, (1..ranks).map(|rank| (rank - 1, rank)));
    let mut lines = lines.into_iter().enumerate();
    let rank = |(rank, ranks_lines): (usize, Lines<Vec<f64>>)| {
        let hosted = rank * n / ranks..(rank + 1) * n / ranks;
        let row = |agent: usize| {
            let mut vectors = vec![vec![0.0; dim]; layout.vectors()];
            vectors[0].copy_from_slice(&start[agent * dim..(agent + 1) * dim]);
            vectors
        };
        Rank {
            vectors: hosted.clone().map(row).collect(),
            lines: lines.by_ref().take(hosted.len()).collect(),
            hosted,
            problem,
            network,
            own_steps: method.own_steps().unwrap_or_default().to_vec(),
            noted: Verbs::new(layout.vectors()),
            ranks: ranks_lines,
            place: (rank, ranks),

            drift: Drift::default(),
        }
    };
    let hosts: Vec<Rank> = between.into_iter().enumerate().map(rank).collect();
    let work = |mut rank: Rank| {
        let (measured, bytes) = drive(method, &mut rank, rounds);
        (rank.vectors, measured, bytes)
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = hosts.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let of =
        |k: usize| done.iter().flat_map(|(agents, ..)| agents.iter().flat_map(|v| v[k].clone())).collect();
    let vectors = (0..layout.state.len()).map(of).collect();
    let bytes = done.iter().map(|(_, _, bytes)| bytes).sum();
    (vectors, done.into_iter().map(|(_, measured, _)| measured).collect(), bytes)
}

/// The same objectives, with slow gradients: the simulator finds threads worthwhile, defers
/// exchanges, and processes its agents in a different order each time.
struct Slow(Box<dyn Problem<f32>>);

impl Problem<f32> for Slow {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[f32]) -> Result<f64, Failure> {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        self.0.gradient(agent, x, gradient)
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.0.penalty()
    }

    fn sample_gradient(
        &self,
        agent: usize,
        x: &[f32],
        draw: Draw,
        gradient: &mut [f32],
    ) -> Result<(), Failure> {
        std::thread::sleep(std::time::Duration::from_micros(20));
        self.0.sample_gradient(agent, x, draw, gradient)
    }
}

/// A network whose edges drop at random; if they ever do, also in bursts, and with agents that are away.
fn losing(network: Network, drop_rate: f64) -> Network {
    let network = network.with_drop_rate(drop_rate).unwrap();
    if drop_rate == 0.0 {
        return network;
    }
    let bursts = Bursts::new(Outages::new(0.2, 0.4).unwrap(), 0.8).unwrap();
    network.with_bursts(bursts).with_absence(Outages::new(0.1, 0.5).unwrap())
}

/// Drop rate, whether there is a penalty, and whether the graph is time-varying.
const CASES: [(f64, bool, bool); 6] = [
    (0.0, false, false),
    (0.3, false, false),
    (0.0, true, false),
    (0.3, true, false),
    (0.0, false, true),
    (0.1, true, true),
];

/// Every method on a graph and without some of its edges; SCAFFOLD on the complete graph.
fn simulator_and_channels_agree(
    graph: &Network,
    ranks: usize,
    wrap: impl Fn(Box<dyn Problem<f32>>) -> Box<dyn Problem<f32>>,
) {
    let named = |name: &str| catalogue::find(name).unwrap();
    let plain = catalogue::ALL.iter().map(|entry| (entry, Parameters::default()));
    let adaptive = Parameters { xi: Some(Weight::Adaptive(0.1)), ..Parameters::default() };
    let compressed = [
        ("mile", Compression::EightBit),
        ("mile", Compression::Bf16),
        ("mile", Compression::TopK(0.4)),
        ("local-dsgd", Compression::Fp16),
        ("local-dsgd", Compression::TopK(0.2)),
        ("motef", Compression::TopK(0.4)),
    ]
    .map(|(name, by)| (named(name), Parameters { compression: Some(by), ..Parameters::default() }));
    let local = |amsgrad| LocalSteps {
        optimizer: Some(Optimizer::Adam(Adam { amsgrad, ..Adam::default() })),
        clip: Some(0.5),
        share_moments: Some(2),
        ..LocalSteps::default()
    };
    let optimised = [("mile", false), ("mile", true), ("led", true), ("k-gt", false), ("local-dsgd", true)]
        .map(|(name, amsgrad)| (named(name), Parameters { local: local(amsgrad), ..Parameters::default() }));
    let robust = [
        ("mile", Robust::Threshold(0.5)),
        ("local-dsgd", Robust::Threshold(0.5)),
        ("local-dsgd", Robust::Clip { byzantine: 1 }),
        ("dsgd", Robust::TrimmedMean { byzantine: 1 }),
    ]
    .map(|(name, by)| (named(name), Parameters { robust: Some(by), ..Parameters::default() }));
    let all: Vec<_> =
        plain.chain([(named("mile"), adaptive)]).chain(compressed).chain(optimised).chain(robust).collect();
    let paced = all.iter().filter(|(entry, _)| entry.takes_own_steps()).map(|one| (true, one));
    for (paced, (entry, given)) in all.iter().map(|one| (false, one)).chain(paced) {
        for (drop_rate, penalty, varying) in CASES {
            let complete = entry.has_server() || given.robust.is_some_and(|by| by.byzantine().is_some());
            let lasting = complete || given.compression.is_some();
            let takes_penalty = entry.takes_penalty() && !lasting && !given.is_preconditioned();
            if lasting && (drop_rate > 0.0 || varying) || penalty && !takes_penalty {
                continue;
            }
            let network =
                if complete { network(Topology::Complete, 5, Rule::Metropolis) } else { graph.clone() };
            let network = losing(network, drop_rate);
            let network = if varying {
                network.with_time_varying(TimeVarying::RandomMatching).unwrap()
            } else {
                network
            };
            let local_steps = entry.has_local_steps().then_some(3);
            // More exchanges per round than are deferred together.
            let own = if entry.name == "mg-skip" { vec![("gossip", 37u64.into())] } else { Vec::new() };
            let parameters = Parameters { local_steps, penalty, own, ..given.clone() };
            let own_steps = (0..network.agents()).map(|agent| [3, 1, 2, 1][agent % 4]).collect::<Vec<_>>();
            let parameters = if paced { parameters.with_own_steps(own_steps) } else { parameters };
            let method = entry.build(&parameters, &network, SEED).unwrap();
            let smooth = nonconvex::<f32>(network.agents(), DIM, Batch::Size(4));
            let sparse = |problem| Penalised(problem, Penalty::l1(3.0).unwrap().except([1]));
            let problem = wrap(if penalty { Box::new(sparse(smooth)) } else { Box::new(smooth) });
            let start = scattered::<f32>(network.agents(), DIM);

            let mut agents = Simulator::new(&*problem, &network, &*method, &start, SEED).unwrap();
            let (expected, expected_bytes) = drive(&*method, &mut agents, 9);
            assert_eq!(agents.models().contains(&0.0), penalty, "{}", entry.name);
            let (vectors, measured, bytes) =
                over_channels(&*problem, &network, &*method, &start, 9, ranks.min(network.agents()));
            for (k, vector) in vectors.iter().enumerate() {
                assert!(
                    vector == agents.vector(Vector(k)),
                    "{}, drop rate {drop_rate}, time-varying {varying}",
                    entry.name
                );
            }
            for found in measured {
                assert_eq!(found, expected, "{}, drop rate {drop_rate}, time-varying {varying}", entry.name);
            }
            assert_eq!(bytes, expected_bytes, "{}", entry.name);
        }
    }
}

#[test]
fn threads_that_exchange_messages_reach_the_bits_of_the_simulator() {
    let small_world = network(Topology::SmallWorld { degree: 4, rewire: 0.4 }, 7, Rule::LazyMetropolis);
    for ranks in [1, 3, 7] {
        simulator_and_channels_agree(&small_world, ranks, |problem| problem);
    }
}

#[test]
fn they_also_do_when_exchanges_are_deferred() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    for (topology, ranks) in [(Topology::Ring, 13), (Topology::Path, 5)] {
        let graph = network(topology, 13, Rule::LazyMetropolis);
        pool.install(|| simulator_and_channels_agree(&graph, ranks, |problem| Box::new(Slow(problem))));
    }
}

/// Also in several column ranges, in which sums are formed separately.
#[test]
fn long_vectors_are_measured_to_the_same_bits() {
    let (agents, dim) = (6, 40_000);
    let graph = network(Topology::Ring, agents, Rule::LazyMetropolis);
    let problem = mile::problems::Quadratic::<f32>::new(agents, dim, 10.0, 1.0, 0).unwrap();
    let method = build("mile", &tau(2), &graph);
    let start = scattered::<f32>(agents, dim);
    let mut all = Simulator::new(&problem, &graph, &*method, &start, SEED).unwrap();
    let (expected, _) = drive(&*method, &mut all, 2);
    assert_eq!(expected.2, block::consensus_error(all.models(), dim));
    let (_, measured, _) = over_channels(&problem, &graph, &*method, &start, 2, 4);
    assert!(measured.iter().all(|found| *found == expected));
}
