//! One agent of a ring whose local steps take as long as they are told: it sleeps. With it modelled times are compared with measured ones
//! (`bench/net/modelled.py`).
//!
//! `paced AGENT METHOD LOCAL_STEPS DIM ROUNDS TRANSPORT SECONDS... ADDRESS...`, with the seconds of a step and the address of every agent;
//! prints when each round was over, in seconds since 1970.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mile::graph::Topology;
use mile::membership::{Edge, Membership};
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem, Quadratic};
use mile::schedule::Schedule;
use mile_net::agent::{AgentJob, Host, RoundEnd, StartFrom, work};
use mile_net::checkpoint::Folder;
use mile_net::engine::{NetworkEngine, Pace, Peer, Settings, Transport};
use mile_net::handshake::{Mark, Terms};
use mile_net::keys::SecretKey;
use mile_net::outbox::Message;
use mile_net::protocol::{Finished, Limits, Memory, MissingPolicy};

/// A problem whose gradients take some time.
struct Paced {
    problem: Quadratic<f32>,
    seconds: Vec<f64>,
}

impl Problem<f32> for Paced {
    fn agents(&self) -> usize {
        self.seconds.len()
    }

    fn dim(&self) -> usize {
        self.problem.dim()
    }

    fn loss(&self, agent: usize, x: &[f32]) -> Result<f64, Failure> {
        self.problem.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        std::thread::sleep(Duration::from_secs_f64(self.seconds[agent]));
        self.problem.gradient(agent, x, gradient)
    }
}

/// An engine that says when rounds are over.
struct Told(NetworkEngine<f32>);

impl Host<f32> for Told {
    fn buffer(&mut self) -> Vec<f32> {
        self.0.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        self.0.exchange(message, up, sums)
    }

    fn round_over(&mut self, end: &RoundEnd<'_, f32>) -> Result<(), Failure> {
        println!("{} {:.4}", end.progress.round, SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64());
        self.0.round_over(end)
    }
}

fn key(agent: usize) -> SecretKey {
    SecretKey::from_bytes(&[agent as u8 + 1; 32])
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [me, name, local_steps, dim, rounds, transport, rest @ ..] = &words[..] else {
        return Err("expected AGENT METHOD LOCAL_STEPS DIM ROUNDS TRANSPORT SECONDS... ADDRESS...".into());
    };
    let (me, dim, agents) = (me.parse::<usize>()?, dim.parse::<usize>()?, rest.len() / 2);
    let (seconds, addresses) = rest.split_at(agents);
    let seconds = seconds.iter().map(|word| word.parse()).collect::<Result<Vec<f64>, _>>()?;
    let network = Network::new(Topology::Ring.build(agents, 0)?, Rule::Metropolis)?;
    let local_steps = Some(local_steps.parse()?).filter(|steps| *steps > 1);
    let parameters = Parameters { local_steps, ..Parameters::default() };
    let method = catalogue::find(name).ok_or("no such method")?.build(&parameters, &network, 0)?;
    let peer = |j: &usize| Peer {
        key: key(*j).public(),
        edge: Edge::lasting(network.mixing().weight(me, *j)),
        addresses: vec![addresses[*j].clone()],
    };
    let home = tempfile::tempdir()?;
    let settings = Settings {
        me,
        key: key(me),
        listen: addresses[me].parse()?,
        transport: if transport == "tcp" { Transport::Tcp } else { Transport::Quic },
        neighbours: network.graph().neighbours(me).iter().map(|j| (*j, peer(j))).collect(),
        relay: None,
        on_missing: MissingPolicy::Wait,
        timeout: Some(Duration::from_secs(60)),
        linger: Duration::from_secs(5),
        limits: Limits::of(10),
        pace: Pace::Rounds,
        status: None,
        metrics: None,
        notices: None,
    };
    let terms = Terms { run: "paced".into(), dim, precision: "f32".into(), facts: BTreeMap::new() };
    let folder = Folder::open(home.path(), Duration::from_secs(5))?;
    let mut host = Told(NetworkEngine::start(settings, folder, terms, Memory::default())?);
    let job = AgentJob {
        index: 0,
        agent: me,
        problem: &Paced { problem: Quadratic::new(agents, dim, 10.0, 1.0, 0)?, seconds },
        membership: &Membership::lasting(network),
        method: &*method,
        later: &[],
        schedule: &Schedule::constant(0.001),
        seed: 0,
        rounds: rounds.parse()?,
        gossip_every: 0,
        tolerance: None,
    };
    work(&job, StartFrom::Point(vec![0.0; dim], Mark::default()), &mut host)?;
    host.0.leave()?;
    Ok(())
}
