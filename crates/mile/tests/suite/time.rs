//! Modelled time: every method's clocks against an event queue that is told what a real run does, and what is counted on the way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use mile::agents::{
    Agents, AgentsError, BlockFunction, CompressedPull, OptimiserStep, RobustPull, SteadyPull, Vector,
};
use mile::graph::Topology;
use mile::membership::{Change, Event, Membership};
use mile::method::Method;
use mile::methods::catalogue;
use mile::mixing::Rule;
use mile::network::Network;
use mile::outages::{Bursts, Outages};
use mile::problems::Batch;
use mile::real::Precision;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile::time::{Costing, Law, Line, TimeModel, Walk};
use rayon::prelude::*;

use crate::common::*;
use crate::contract_rows::rows;

const SEED: u64 = 3;
const ROUNDS: u64 = 12;

/// What all agents do, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// A local step of all agents, or of those with this own number of them.
    Step(Option<u64>),
    /// An exchange in a round, of messages of this many bytes.
    Exchange(u64, u64),
    EndOfRound,
}

/// The simulator, which notes what its agents do.
struct Noting<'a> {
    agents: Simulator<'a, f64>,
    network: &'a Network,
    only: Option<u64>,
    acts: Vec<Act>,
}

impl Noting<'_> {
    fn exchanged(&mut self, round: u64, bytes: u64) -> u64 {
        let messages = neighbours(self.network, round).values().map(Vec::len).sum::<usize>() as u64;
        assert_eq!(bytes % messages.max(1), 0, "messages are equally long");
        self.acts.push(Act::Exchange(round, bytes / messages.max(1)));
        bytes
    }
}

/// The neighbours of each agent whose edges are up.
fn neighbours(network: &Network, round: u64) -> HashMap<usize, Vec<usize>> {
    let up = |i: usize| {
        let all = network.graph().neighbours(i).iter().copied();
        all.filter(move |j| network.edge_is_up(SEED, i, *j, round)).collect()
    };
    (0..network.agents()).map(|i| (i, up(i))).collect()
}

impl Agents for Noting<'_> {
    fn hosted(&self) -> Range<usize> {
        self.agents.hosted()
    }
    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.acts.push(Act::Step(self.only));
        self.agents.gradient(x, g, draw)
    }
    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.agents.combine(y, keep, terms)
    }
    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.agents.prox(x, step)
    }
    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.agents.optimise(step)
    }
    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.agents.clip(g, most)
    }
    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        let bytes = self.agents.pull(round, pairs)?;
        Ok(self.exchanged(round, bytes))
    }
    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        let bytes = self.agents.pull_steady(round, pull)?;
        Ok(self.exchanged(round, bytes))
    }
    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        let bytes = self.agents.pull_robust(round, pull)?;
        Ok(self.exchanged(round, bytes))
    }
    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        let bytes = self.agents.pull_compressed(round, pull)?;
        Ok(self.exchanged(round, bytes))
    }
    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        self.only = own;
        self.agents.only(own)
    }
    fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        self.agents.apply(function, vectors)
    }
    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        self.agents.forget(scratch)
    }
    fn settle(&mut self) -> Result<(), AgentsError> {
        self.agents.settle()
    }
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// An agent has done a step.
    Done(usize),
    /// The last byte of the message at the front of a line's queue has left.
    Sent(usize, usize),
    /// A message of an exchange has arrived: from, to, exchange.
    Arrived(usize, usize, u64),
}

/// A queue of events.
struct Queue<'a> {
    model: &'a TimeModel,
    network: &'a Network,
    own_steps: &'a [u64],
    acts: &'a [Act],
    events: BinaryHeap<Reverse<(u64, Happening)>>,
    /// For each agent the act it is at, the steps it has done, and the exchanges it has reached.
    at: Vec<(usize, u64, u64)>,
    waits: Vec<bool>,
    /// Messages that wait for a line or are on it: exchange, bytes.
    lines: HashMap<(usize, usize), VecDeque<(u64, u64)>>,
    arrived: HashSet<(usize, usize, u64)>,
    /// When each agent ended each round.
    ends: Vec<Vec<f64>>,
}

impl Queue<'_> {
    fn run(model: &TimeModel, network: &Network, own_steps: &[u64], acts: &[Act]) -> Vec<Vec<f64>> {
        let n = network.agents();
        let (events, lines, arrived) = (BinaryHeap::new(), HashMap::new(), HashSet::new());
        let (at, waits, ends) = (vec![(0, 0, 0); n], vec![false; n], vec![Vec::new(); n]);
        let mut queue = Queue { model, network, own_steps, acts, events, at, waits, lines, arrived, ends };
        (0..n).for_each(|agent| queue.go_on(agent, 0.0));
        while let Some(Reverse((time, what))) = queue.events.pop() {
            queue.happens(f64::from_bits(time), what);
        }
        queue.ends
    }

    /// Times are not negative, so their bits are ordered as they are.
    fn plan(&mut self, time: f64, what: Happening) {
        self.events.push(Reverse((time.to_bits(), what)));
    }

    fn happens(&mut self, now: f64, what: Happening) {
        match what {
            Happening::Done(agent) => self.go_on(agent, now),
            Happening::Sent(from, to) => {
                let line = self.lines.get_mut(&(from, to)).unwrap();
                let (exchange, _) = line.pop_front().unwrap();
                let next = line.front().copied();
                let transit = self.model.transit(SEED, (from, to), exchange);
                self.plan(now + transit.latency, Happening::Arrived(from, to, exchange));
                next.into_iter().for_each(|message| self.send(from, to, message, now));
            }
            Happening::Arrived(from, to, exchange) => {
                self.arrived.insert((from, to, exchange));
                if std::mem::take(&mut self.waits[to]) {
                    self.wait(to, now);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, (exchange, bytes): (u64, u64), now: f64) {
        let transit = self.model.transit(SEED, (from, to), exchange);
        self.plan(now + transit.sending(bytes as f64), Happening::Sent(from, to));
    }

    /// An agent begins what it has to do next.
    fn go_on(&mut self, agent: usize, now: f64) {
        let (act, steps, exchanges) = self.at[agent];
        match self.acts.get(act) {
            None => {}
            Some(Act::EndOfRound) => {
                self.ends[agent].push(now);
                self.at[agent].0 += 1;
                self.go_on(agent, now);
            }
            Some(Act::Step(Some(own))) if self.own_steps[agent] != *own => {
                self.at[agent].0 += 1;
                self.go_on(agent, now);
            }
            Some(Act::Step(_)) => {
                self.at[agent] = (act + 1, steps + 1, exchanges);
                self.plan(now + self.model.step_seconds(SEED, agent, steps), Happening::Done(agent));
            }
            Some(Act::Exchange(round, bytes)) => {
                for to in neighbours(self.network, *round).remove(&agent).unwrap() {
                    let line = self.lines.entry((agent, to)).or_default();
                    line.push_back((exchanges, *bytes));
                    if line.len() == 1 {
                        self.send(agent, to, (exchanges, *bytes), now);
                    }
                }
                self.wait(agent, now);
            }
        }
    }

    /// An agent in an exchange goes on if all messages for it are there.
    fn wait(&mut self, agent: usize, now: f64) {
        let (act, steps, exchanges) = self.at[agent];
        let Act::Exchange(round, _) = self.acts[act] else { panic!("waits in an exchange") };
        let expected = neighbours(self.network, round).remove(&agent).unwrap();
        if expected.iter().all(|from| self.arrived.contains(&(*from, agent, exchanges))) {
            self.at[agent] = (act + 1, steps, exchanges + 1);
            self.go_on(agent, now);
        } else {
            self.waits[agent] = true;
        }
    }
}

/// Agents and edges that differ in everything, with randomness and traces.
fn uneven(agents: usize) -> TimeModel {
    let law = |agent: usize| match agent % 4 {
        0 => Law::Constant(0.5 + agent as f64),
        1 => Law::Uniform { from: 0.1, to: 2.0 },
        2 => Law::Exponential { least: 0.2, mean: 1.0 },
        _ => Law::Trace(vec![0.3, 2.5, 0.1]),
    };
    let line = Line { latency: Law::Uniform { from: 0.0, to: 0.7 }, bandwidth: Law::Constant(100.0) };
    let slow = Line { latency: Law::Constant(0.01), bandwidth: Law::Exponential { least: 3.0, mean: 9.0 } };
    let model = TimeModel::new((0..agents).map(law).collect(), line).unwrap();
    model.with_line(1, 2, slow.clone()).unwrap().with_line(0, agents - 1, slow).unwrap()
}

fn shaky(network: Network) -> Network {
    let bursts = Bursts::new(Outages::new(0.1, 0.4).unwrap(), 0.8).unwrap();
    let network = network.with_drop_rate(0.1).unwrap().with_bursts(bursts);
    network.with_absence(Outages::new(0.05, 0.3).unwrap())
}

/// Clocks and costs after each round, those of a run without vectors.
fn walked(network: &Network, method: &dyn Method, model: &TimeModel) -> Vec<(Vec<f64>, [u64; 4])> {
    let costing = Costing { dim: DIM, precision: Precision::F64, seed: SEED, time: Some(model) };
    let membership = Membership::lasting(network.clone());
    let (epoch, mut walk) = (&membership.epochs()[0], Walk::new(costing));
    walk.begin(epoch, method).unwrap();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        walk.rounds(epoch, method, 1).unwrap();
        let costs = walk.progress().costs;
        let counted = [costs.bytes_sent, costs.gradient_evals, costs.exchanges, costs.vectors_sent];
        rounds.push((walk.clock().ready().to_vec(), counted));
    }
    rounds
}

#[test]
fn every_method_takes_the_time_of_the_events_of_its_real_run() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let model = uneven(AGENTS);
    rows().par_iter().for_each(|row| {
        let entry = catalogue::find(row.name).unwrap();
        let own = row.parameters.clone().with_own_steps(vec![5, 1, 3, 2, 5, 1, 4, 2]);
        let paced = entry.takes_own_steps().then_some(own);
        let all: Vec<_> = [row.parameters.clone()].into_iter().chain(paced).collect();
        let networks = [row.network(), shaky(row.network())];
        for (network, parameters) in networks.iter().flat_map(|network| all.iter().map(move |p| (network, p)))
        {
            // Methods with a server or public copies refuse a network that loses edges.
            let Ok(method) = entry.build(parameters, network, SEED) else {
                assert!(network.varies(), "{}", row.what());
                continue;
            };
            let start = row.start::<f64>(AGENTS, DIM);
            let agents = Simulator::new(&problem, network, &*method, &start, SEED).unwrap();
            let mut noting = Noting { agents, network, only: None, acts: Vec::new() };
            let mut run = Run::start(&*method, Schedule::constant(0.01), &mut noting).unwrap();
            let mut costs = Vec::new();
            for _ in 0..ROUNDS {
                run.round(&mut noting).unwrap();
                noting.acts.push(Act::EndOfRound);
                let of = run.progress().costs;
                costs.push([of.bytes_sent, of.gradient_evals, of.exchanges, of.vectors_sent]);
            }
            let own_steps = method.own_steps().unwrap_or_default();
            let ends = Queue::run(&model, network, own_steps, &noting.acts);
            for (round, (ready, counted)) in walked(network, &*method, &model).into_iter().enumerate() {
                let events: Vec<f64> = ends.iter().map(|ends| ends[round]).collect();
                assert_eq!(ready, events, "{}, {own_steps:?}, round {round}", row.what());
                assert_eq!(counted, costs[round], "{}, {own_steps:?}, round {round}", row.what());
            }
        }
    });
}

/// Slower steps, longer messages and larger latencies never make anybody earlier.
#[test]
fn nothing_slow_makes_anybody_earlier() {
    let network = shaky(network(Topology::SmallWorld { degree: 4, rewire: 0.3 }, AGENTS, Rule::Metropolis));
    let method = build("mile", &xi(4, 0.05), &network);
    let constants = |steps: [f64; AGENTS], latency: f64, bandwidth: f64| {
        let laws = steps.map(Law::Constant).to_vec();
        TimeModel::new(laws, Line::constant(latency, bandwidth)).unwrap()
    };
    let usual = constants([1.0; AGENTS], 0.5, 80.0);
    let before = walked(&network, &*method, &usual);
    let mut one_slow = [1.0; AGENTS];
    one_slow[2] = 1.7;
    let slower = [
        constants(one_slow, 0.5, 80.0),
        constants([1.0; AGENTS], 0.6, 80.0),
        constants([1.0; AGENTS], 0.5, 70.0),
        usual.clone().with_line(3, network.graph().neighbours(3)[0], Line::constant(9.0, 80.0)).unwrap(),
    ];
    for model in slower {
        let after = walked(&network, &*method, &model);
        for ((before, _), (after, _)) in before.iter().zip(&after) {
            assert!(before.iter().zip(after).all(|(before, after)| after >= before));
        }
        assert_ne!(before[11].0, after[11].0, "{model:?}");
    }
}

/// A newcomer waits for its neighbours' models; an agent that leaves is waited for no longer.
#[test]
fn clocks_go_on_when_agents_leave_and_join() {
    let ring = ring(Rule::Metropolis);
    let leaves = Event { round: 4, change: Change::Leave { agent: 3, edges: vec![] }, lost: None };
    let joins =
        Event { round: 8, change: Change::Join { agent: AGENTS, neighbours: vec![0, 5] }, lost: None };
    let membership = Membership::new(ring, Some(Rule::Metropolis), &[leaves, joins]).unwrap();
    let mut steps = [1.0; AGENTS + 1];
    (steps[3], steps[AGENTS]) = (10.0, 0.5);
    let line = Line::constant(0.0, f64::INFINITY);
    let model = TimeModel::new(steps.map(Law::Constant).to_vec(), line).unwrap();
    let costing = Costing { dim: DIM, precision: Precision::F64, seed: SEED, time: Some(&model) };
    let mut walk = Walk::new(costing);
    let mut ends = Vec::new();
    for (k, epoch) in membership.epochs().iter().enumerate() {
        let method = build("local-dsgd", &tau(2), &epoch.network);
        walk.begin(epoch, &*method).unwrap();
        walk.rounds(epoch, &*method, 4).unwrap();
        assert_eq!(walk.progress().round, 4 * (k as u64 + 1));
        ends.push(walk.clock().latest());
    }
    // Rounds of 20 s, of which all know in the fourth; then of 2 s.
    assert_eq!(ends, [80.0, 88.0, 96.0]);
    assert_eq!(walk.clock().ready(), [96.0; AGENTS]);
}
