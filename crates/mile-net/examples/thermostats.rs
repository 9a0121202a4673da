//! Your own objective on a real network: four thermostats agree on a temperature, each knowing only its own readings.
//!
//! Here each agent is a thread of one program; on four machines the same code runs with its own key, address and number.
//! Run it with `cargo run --release -p mile-net --example thermostats`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use mile::graph::Topology;
use mile::membership::{Edge, Membership};
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::schedule::Schedule;
use mile_net::agent::{self, AgentJob, StartFrom};
use mile_net::checkpoint::Folder;
use mile_net::engine::{NetworkEngine, Pace, Peer, Settings, Transport};
use mile_net::handshake::{Mark, Terms};
use mile_net::keys;
use mile_net::protocol::{Limits, MissingPolicy};
use mile_store::Facts;

/// f_i(x) = |x - r_i|^2 / 2 for the mean reading r_i of a thermostat.
struct Thermostats {
    readings: [f64; 4],
}

impl Problem<f64> for Thermostats {
    fn agents(&self) -> usize {
        self.readings.len()
    }

    fn dim(&self) -> usize {
        1
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        Ok((x[0] - self.readings[agent]).powi(2) / 2.0)
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        gradient[0] = x[0] - self.readings[agent];
        Ok(())
    }
}

/// One agent, from its start or from its last checkpoint to its last round.
fn run(
    me: usize,
    listen: SocketAddr,
    neighbours: BTreeMap<usize, Peer>,
    home: &Path,
) -> Result<f64, Failure> {
    let problem = Thermostats { readings: [19.0, 20.0, 22.0, 23.0] };
    let network = Network::new(Topology::Ring.build(4, 0)?, Rule::Metropolis)?;
    let method = Mile::new(5, Mile::paper_xi(5))?;
    let schedule = Schedule::constant(0.05);

    // What neighbours must agree on before they exchange anything.
    let facts = Facts::from([("step size".to_owned(), "0.05".into())]);
    let terms = Terms { run: "thermostats".into(), dim: 1, precision: "f64".into(), facts };
    let folder = Folder::open(home, Duration::from_secs(5))?;
    let restored = folder.load::<f64>(me, &terms)?;
    let settings = Settings {
        me,
        key: keys::read(&home.join("key"))?,
        listen,
        transport: Transport::Quic,
        neighbours,
        relay: None,
        on_missing: MissingPolicy::Wait,
        timeout: Some(Duration::from_secs(60)),
        linger: Duration::from_secs(10),
        limits: Limits::of(10),
        pace: Pace::Rounds,
        status: None,
        metrics: None,
        notices: None,
    };
    let mut engine = NetworkEngine::start(settings, folder, terms, restored.memory)?;
    let job = AgentJob {
        index: 0,
        agent: me,
        problem: &problem,
        membership: &Membership::lasting(network),
        method: &method,
        later: &[],
        schedule: &schedule,
        seed: 0,
        rounds: 200,
        gossip_every: 0,
        tolerance: None,
    };
    let from = restored.state.map_or(StartFrom::Point(vec![0.0], Mark::default()), StartFrom::State);
    let done = agent::work(&job, from, &mut engine)?;
    engine.leave()?;
    Ok(done.vectors[0][0])
}

fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let homes: Vec<_> = (0..4).map(|i| folder.path().join(i.to_string())).collect();
    let addresses: Vec<SocketAddr> = (0..4).map(|i| SocketAddr::from(([127, 0, 0, 1], 47_100 + i))).collect();
    let mut public = Vec::new();
    for home in &homes {
        std::fs::create_dir(home)?;
        public.push(keys::generate(&home.join("key"))?);
    }
    let edge = Edge::lasting(1.0 / 3.0);
    let peer =
        |j: usize| Peer { key: public[j], edge: edge.clone(), addresses: vec![addresses[j].to_string()] };
    let agents: Vec<_> = (0..4)
        .map(|i| {
            let neighbours = [(i + 1) % 4, (i + 3) % 4].map(|j| (j, peer(j))).into();
            let (listen, home) = (addresses[i], homes[i].clone());
            std::thread::spawn(move || run(i, listen, neighbours, &home))
        })
        .collect();
    for (i, agent) in agents.into_iter().enumerate() {
        let temperature = agent.join().map_err(|_| "an agent panicked")??;
        println!("agent {i}: {temperature:.6} (the mean of all readings is 21)");
    }
    Ok(())
}
