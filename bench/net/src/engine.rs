//! MILE on a network of two, on the engine; how the time is spent is measured from outside.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mile::graph::Topology;
use mile::membership::{Edge, Membership};
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::schedule::Schedule;
use mile_net::agent::{AgentJob, Host, RoundEnd, StartFrom, work};
use mile_net::checkpoint::Folder;
use mile_net::engine::{NetworkEngine, Pace, Peer, Settings, Transport};
use mile_net::handshake::{Mark, Terms};
use mile_net::outbox::Message;
use mile_net::protocol::{Finished, Limits, Memory, MissingPolicy};

use crate::{Part, Times, cpu, median, peak};

/// A quadratic bowl that needs no memory: what is measured is the agent's.
struct Bowl(usize);

impl Problem<f32> for Bowl {
    fn agents(&self) -> usize {
        2
    }

    fn dim(&self) -> usize {
        self.0
    }

    fn loss(&self, _: usize, x: &[f32]) -> Result<f64, Failure> {
        Ok(x.iter().map(|x| f64::from(x * x) / 2.0).sum())
    }

    fn gradient(&self, _: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = 0.5 * x);
        Ok(())
    }
}

/// An engine, and the times of the calls it received.
struct Timed {
    engine: NetworkEngine<f32>,
    exchange: Times,
    copy: Vec<f64>,
    step: Vec<f64>,
    checkpoint: Vec<f64>,
    since: Instant,
    /// CPU time when the first exchange was over.
    before: Option<f64>,
}

impl Host<f32> for Timed {
    fn buffer(&mut self) -> Vec<f32> {
        self.step.push(self.since.elapsed().as_secs_f64());
        self.since = Instant::now();
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        self.copy.push(self.since.elapsed().as_secs_f64());
        let begun = Times::now();
        let finished = self.engine.exchange(message, up, sums);
        self.exchange.add(begun);
        self.before.get_or_insert_with(cpu);
        self.since = Instant::now();
        finished
    }

    fn round_over(&mut self, end: &RoundEnd<'_, f32>) -> Result<(), Failure> {
        let begun = Instant::now();
        let saved = self.engine.round_over(end);
        self.checkpoint.push(begun.elapsed().as_secs_f64());
        self.since = Instant::now();
        saved
    }
}

pub(crate) fn run(part: &Part, transport: Transport, checkpoint_every: u64) {
    let home = tempfile::tempdir().expect("a folder");
    let folder = Folder::open(home.path(), Duration::ZERO).expect("nobody else uses it");
    let network =
        Network::new(Topology::Path.build(2, 1).expect("a graph"), Rule::Metropolis).expect("a network");
    let terms = Terms { run: "bench".into(), dim: part.dim, precision: "f32".into(), facts: BTreeMap::new() };
    let other = 1 - part.me;
    let peer = Peer {
        key: Part::key(other).public(),
        edge: Edge::lasting(network.mixing().weight(0, 1)),
        addresses: vec![part.address(other).to_string()],
    };
    let settings = Settings {
        me: part.me,
        key: Part::key(part.me),
        listen: part.address(part.me),
        transport,
        neighbours: BTreeMap::from([(other, peer)]),
        relay: None,
        on_missing: MissingPolicy::Wait,
        timeout: Some(Duration::from_secs(60)),
        linger: Duration::from_secs(5),
        limits: Limits::of(checkpoint_every),
        pace: Pace::Rounds,
        status: None,
        metrics: None,
        notices: None,
    };
    let engine = NetworkEngine::start(settings, folder, terms, Memory::default()).expect("an engine");
    let mut host = Timed {
        engine,
        exchange: Times::default(),
        copy: Vec::new(),
        step: Vec::new(),
        checkpoint: Vec::new(),
        since: Instant::now(),
        before: None,
    };
    let method = Mile::new(1, 0.4).expect("a method");
    let job = AgentJob {
        index: 0,
        agent: part.me,
        problem: &Bowl(part.dim),
        membership: &Membership::lasting(network),
        method: &method,
        later: &[],
        schedule: &Schedule::constant(0.1),
        seed: 1,
        rounds: part.reps as u64 + 1,
        gossip_every: 0,
        tolerance: None,
    };
    work(&job, StartFrom::Point(vec![1.0; part.dim], Mark::default()), &mut host).expect("a run");
    let Timed { engine, exchange, copy, step, checkpoint, before, .. } = host;
    let (memory, used) = (peak(), cpu() - before.unwrap_or(0.0));
    engine.leave().expect("a clean end");
    let settled = |times: Vec<f64>| median(times.into_iter().skip(1).collect());
    exchange.print();
    println!("{} {} {} {memory} {used}", settled(copy), settled(step), settled(checkpoint));
}
