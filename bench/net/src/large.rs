//! What an agent with a long vector takes: memory, CPU time, and the share of a round in which it waits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mile::compression::Compression;
use mile::graph::Topology;
use mile::membership::{Edge, Membership};
use mile::method::Method;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Failure, Problem};
use mile::schedule::Schedule;
use mile_net::agent::{AgentJob, Host, RoundEnd, StartFrom, work};
use mile_net::checkpoint::Folder;
use mile_net::engine::{NetworkEngine, Pace, Peer, Settings, Transport};
use mile_net::handshake::{Mark, Terms};
use mile_net::keys::SecretKey;
use mile_net::outbox::Message;
use mile_net::protocol::{Finished, Limits, Memory, MissingPolicy};

use crate::{cpu, median, peak};

/// `f_i(x) = |x - i|^2 / 4`: a problem that needs no memory.
struct Bowl {
    agents: usize,
    dim: usize,
}

impl Problem<f32> for Bowl {
    fn agents(&self) -> usize {
        self.agents
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn loss(&self, agent: usize, x: &[f32]) -> Result<f64, Failure> {
        Ok(x.iter().map(|x| f64::from(x - agent as f32).powi(2) / 4.0).sum())
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = 0.5 * (x - agent as f32));
        Ok(())
    }
}

/// What is measured: `large AGENTS DIM ROUNDS STEPS tcp|quic whole|fp16|8-bit [HOST,...] [NAMESPACE,...]`.
pub(crate) struct Large<'a> {
    agents: usize,
    dim: usize,
    rounds: u64,
    steps: u64,
    transport: Transport,
    message: &'a str,
    hosts: Vec<&'a str>,
    namespaces: Vec<&'a str>,
}

impl<'a> Large<'a> {
    fn read(words: &'a [String]) -> Self {
        let number = |k: usize| words[k].parse().expect("a number");
        let list = |k: usize| words.get(k).map_or(Vec::new(), |text| text.split(',').collect());
        Self {
            agents: number(0) as usize,
            dim: number(1) as usize,
            rounds: number(2),
            steps: number(3),
            transport: if words[4] == "tcp" { Transport::Tcp } else { Transport::Quic },
            message: &words[5],
            hosts: list(6),
            namespaces: list(7),
        }
    }

    fn address(&self, agent: usize) -> SocketAddr {
        let host = self.hosts.get(agent).unwrap_or(&"127.0.0.1");
        SocketAddr::new(host.parse().expect("an address"), 28_310 + agent as u16)
    }

    fn method(&self) -> Mile {
        let by = match self.message {
            "fp16" => Some(Compression::Fp16),
            "8-bit" => Some(Compression::EightBit),
            _ => None,
        };
        match by {
            None => Mile::new(self.steps, 0.3).expect("a method"),
            by => {
                Mile::decoupled(self.steps, 0.01, 0.3).and_then(|m| m.with_compression(by)).expect("a method")
            }
        }
    }

    fn message_bytes(&self) -> usize {
        match self.message {
            "fp16" => Compression::Fp16.message_bytes::<f32>(self.dim),
            "8-bit" => Compression::EightBit.message_bytes::<f32>(self.dim),
            _ => 4 * self.dim,
        }
    }
}

/// Starts the agents and prints what they found.
pub(crate) fn run(words: &[String]) {
    let large = Large::read(words);
    let program = std::env::current_exe().expect("this program");
    let start = |agent: usize| -> Child {
        let mut command = match large.namespaces.get(agent) {
            Some(namespace) => {
                let mut inside = Command::new("ip");
                inside.args(["netns", "exec", namespace]).arg(&program);
                inside
            }
            None => Command::new(&program),
        };
        command.args(["large-agent", &agent.to_string()]).args(words);
        command.stdout(Stdio::piped()).spawn().expect("a process")
    };
    let children: Vec<Child> = (0..large.agents).map(start).collect();
    for child in children {
        let output = child.wait_with_output().expect("its output");
        assert!(output.status.success(), "an agent failed");
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// An engine, and the seconds of its rounds.
struct Timed {
    engine: NetworkEngine<f32>,
    rounds: Vec<f64>,
    exchanges: Vec<f64>,
    since: Instant,
    /// CPU time when the first round was over.
    before: f64,
}

impl Host<f32> for Timed {
    fn buffer(&mut self) -> Vec<f32> {
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        let begun = Instant::now();
        let finished = self.engine.exchange(message, up, sums);
        self.exchanges.push(begun.elapsed().as_secs_f64());
        finished
    }

    fn round_over(&mut self, end: &RoundEnd<'_, f32>) -> Result<(), Failure> {
        let saved = self.engine.round_over(end);
        self.rounds.push(self.since.elapsed().as_secs_f64());
        self.since = Instant::now();
        if end.mark.round == 1 {
            self.before = cpu();
        }
        saved
    }
}

/// One agent.
pub(crate) fn agent(words: &[String]) {
    let (me, large) = (words[0].parse::<usize>().expect("a number"), Large::read(&words[1..]));
    let home = tempfile::tempdir().expect("a folder");
    let folder = Folder::open(home.path(), Duration::ZERO).expect("nobody else uses it");
    let topology = if large.agents > 2 { Topology::Ring } else { Topology::Path };
    let graph = topology.build(large.agents, 1).expect("a graph");
    let network = Network::new(graph, Rule::Metropolis).expect("a network");
    let key = |agent: usize| SecretKey::from_bytes(&[agent as u8 + 1; 32]);
    let peer = |j: &usize| {
        let edge = Edge::lasting(network.mixing().weight(me, *j));
        (*j, Peer { key: key(*j).public(), edge, addresses: vec![large.address(*j).to_string()] })
    };
    let neighbours = network.graph().neighbours(me).iter().map(peer).collect();
    let settings = Settings {
        me,
        key: key(me),
        listen: large.address(me),
        transport: large.transport,
        neighbours,
        relay: None,
        on_missing: MissingPolicy::Wait,
        timeout: Some(Duration::from_secs(300)),
        linger: Duration::from_secs(10),
        limits: Limits::of(30),
        pace: Pace::Time,
        status: None,
        metrics: None,
        notices: None,
    };
    let terms =
        Terms { run: "bench".into(), dim: large.dim, precision: "f32".into(), facts: BTreeMap::new() };
    let engine = NetworkEngine::start(settings, folder, terms, Memory::default()).expect("an engine");
    let mut host =
        Timed { engine, rounds: Vec::new(), exchanges: Vec::new(), since: Instant::now(), before: 0.0 };
    let method = large.method();
    let job = AgentJob {
        index: 0,
        agent: me,
        problem: &Bowl { agents: large.agents, dim: large.dim },
        membership: &Membership::lasting(network),
        method: &method,
        later: &[],
        schedule: &Schedule::constant(0.1),
        seed: 1,
        rounds: large.rounds,
        gossip_every: 0,
        tolerance: None,
    };
    let fixed = peak();
    work(&job, StartFrom::Point(vec![1.0; large.dim], Mark::default()), &mut host).expect("a run");
    let (used, used_cpu) = (peak(), cpu() - host.before);
    let (layout, vector) = (method.layout(), 4.0 * large.dim as f64);
    let message = large.message_bytes() as f64;
    let (state, all) = (layout.state.len() as f64 * vector, layout.vectors() as f64 * vector);
    // The first round makes the links, and round 0 is the start.
    let later = |times: &[f64], skip: usize| median(times.iter().copied().skip(skip).collect());
    let (round, exchange) = (later(&host.rounds, 2), later(&host.exchanges, 1));
    println!(
        "agent {me}: peak {:.1} MB (before the start {:.1}): {:.2} of state and message, {:.2} of all vectors and message; \
         a round {round:.3} s, its exchange {exchange:.3} s ({:.0}%), CPU {:.3} s",
        used / 1e6,
        fixed / 1e6,
        used / (state + message),
        used / (all + message),
        100.0 * exchange / round,
        used_cpu / (large.rounds - 1) as f64,
    );
    host.engine.leave().expect("in good order");
}
