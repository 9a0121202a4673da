//! A few agents on loopback, one thread each, and the simulator to compare them with.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use mile::agents::Vector;
use mile::graph::Topology;
use mile::membership::{Edge, Membership};
use mile::method::Method;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Problem, Quadratic};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile_net::agent::{AgentJob, Failure, Host, RoundEnd, StartFrom, State, work};
use mile_net::checkpoint::{CheckpointError, Folder};
use mile_net::engine::{Departure, NetworkEngine, NetworkEngineError, Pace, Peer, Settings, Transport};
use mile_net::handshake::{Mark, Terms};
use mile_net::keys::SecretKey;
use mile_net::outbox::Message;
use mile_net::protocol::{Finished, Limits, MissingPolicy};

/// A guard against waiting forever: nothing that is waited for takes this long.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// What an engine said, among the causes of an error.
pub(crate) fn cause<'e, R>(
    error: &'e (dyn Error + 'static),
    look: impl FnOnce(&'e NetworkEngineError) -> Option<R>,
) -> Option<R> {
    let mut error = Some(error);
    while let Some(one) = error {
        if let Some(found) = one.downcast_ref() {
            return look(found);
        }
        error = one.source();
    }
    None
}

pub(crate) const SEED: u64 = 3;
pub(crate) const BOTH: [Transport; 2] = [Transport::Quic, Transport::Tcp];

pub(crate) struct Lab {
    pub(crate) network: Network,
    membership: Membership,
    pub(crate) problem: Box<dyn Problem<f32>>,
    pub(crate) schedule: Schedule,
    pub(crate) keys: Vec<SecretKey>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) transport: Transport,
    pub(crate) terms: Terms,
    pub(crate) gossip_every: u64,
    pub(crate) checkpoint_every: u64,
    pub(crate) pace: Pace,
    folder: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new(topology: Topology, agents: usize, dim: usize) -> Self {
        let network = Network::new(topology.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
        Self {
            membership: Membership::lasting(network.clone()),
            network,
            problem: Box::new(Quadratic::new(agents, dim, 10.0, 1.0, 7).unwrap()),
            schedule: Schedule::constant(0.1),
            keys: (0..agents).map(|_| SecretKey::generate()).collect(),
            addresses: addresses(agents),
            transport: Transport::Quic,
            terms: Terms {
                run: "lab".into(),
                dim,
                precision: "f32".into(),
                facts: BTreeMap::from([("step_size".into(), "0.1".into())]),
            },
            gossip_every: 1,
            checkpoint_every: 1,
            pace: Pace::Rounds,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The same, with another transport.
    pub(crate) fn over(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    pub(crate) fn folder(&self, agent: usize) -> PathBuf {
        self.folder.path().join(agent.to_string())
    }

    pub(crate) fn open(&self, agent: usize) -> Result<Folder, CheckpointError> {
        Folder::open(&self.folder(agent), Duration::ZERO)
    }

    pub(crate) fn settings(&self, agent: usize) -> Settings {
        let row = self.network.mixing().rows().row(agent).iter();
        let peer = |j: usize, weight: f64| Peer {
            key: self.keys[j].public(),
            edge: Edge::lasting(weight),
            addresses: vec![self.addresses[j].to_string()],
        };
        Settings {
            me: agent,
            key: self.keys[agent].clone(),
            listen: self.addresses[agent],
            transport: self.transport,
            neighbours: row.filter(|(j, _)| *j != agent).map(|(j, w)| (*j, peer(*j, *w))).collect(),
            relay: None,
            on_missing: MissingPolicy::Wait,
            timeout: Some(Duration::from_secs(120)),
            linger: Duration::from_secs(30),
            limits: Limits::of(self.checkpoint_every),
            pace: self.pace,
            status: None,
            metrics: None,
            notices: None,
        }
    }

    /// Starts an agent's engine from whatever is in its folder.
    pub(crate) fn start(&self, agent: usize, settings: Settings) -> (NetworkEngine<f32>, StartFrom<f32>) {
        let folder = self.open(agent).unwrap();
        let restored = folder.load(agent, &self.terms).unwrap();
        let from = restored
            .state
            .map_or_else(|| StartFrom::Point(vec![0.5; self.terms.dim], Mark::default()), StartFrom::State);
        (NetworkEngine::start(settings, folder, self.terms.clone(), restored.memory).unwrap(), from)
    }

    pub(crate) fn job<'a>(&'a self, agent: usize, method: &'a dyn Method, rounds: u64) -> AgentJob<'a, f32> {
        AgentJob {
            index: 0,
            agent,
            problem: &*self.problem,
            membership: &self.membership,
            method,
            later: &[],
            schedule: &self.schedule,
            seed: SEED,
            rounds,
            gossip_every: self.gossip_every,
            tolerance: None,
        }
    }

    /// One agent from its start, or from its checkpoint, to the end.
    pub(crate) fn agent(&self, agent: usize, method: &dyn Method, rounds: u64) -> (State<f32>, Departure) {
        let (mut engine, from) = self.start(agent, self.settings(agent));
        let state = work(&self.job(agent, method, rounds), from, &mut engine).unwrap();
        (state, engine.leave().unwrap())
    }

    /// An agent that is killed, in an exchange or before a checkpoint, whichever number comes up first.
    pub(crate) fn victim(&self, agent: usize, method: &dyn Method, rounds: u64, dies: Dies) {
        let (engine, from) = self.start(agent, self.settings(agent));
        let mut host = Mortal { engine, dies };
        let error = work(&self.job(agent, method, rounds), from, &mut host).unwrap_err();
        let cause = error.source().unwrap_or(&*error).to_string();
        assert!(cause.contains("plug"), "{cause}");
    }

    /// All agents to the end.
    pub(crate) fn all(&self, method: &dyn Method, rounds: u64) -> Vec<State<f32>> {
        self.all_but(method, rounds, &[])
    }

    /// The same, with agents that die on the way and are started again; an agent that dies several times does so one death after the other.
    pub(crate) fn all_but(
        &self,
        method: &dyn Method,
        rounds: u64,
        victims: &[(usize, Dies)],
    ) -> Vec<State<f32>> {
        std::thread::scope(|scope| {
            let one = |agent: usize| {
                scope.spawn(move || {
                    for (_, dies) in victims.iter().filter(|(victim, _)| *victim == agent) {
                        self.victim(agent, method, rounds, *dies);
                    }
                    let (state, departure) = self.agent(agent, method, rounds);
                    assert!(!victims.is_empty() || departure == Departure::default(), "{departure:?}");
                    state
                })
            };
            let threads: Vec<_> = (0..self.network.agents()).map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Compares with the simulator, to the bit.
    pub(crate) fn check(&self, method: &dyn Method, rounds: u64, states: &[State<f32>]) {
        let dim = self.terms.dim;
        let mut simulator =
            Simulator::new(&*self.problem, &self.network, method, &vec![0.5; dim], SEED).unwrap();
        let mut run = Run::start(method, self.schedule.clone(), &mut simulator).unwrap();
        (0..rounds).for_each(|_| run.round(&mut simulator).unwrap());
        for (agent, state) in states.iter().enumerate() {
            assert_eq!(state.progress.round, rounds);
            for (k, vector) in state.vectors.iter().enumerate() {
                let truth = &simulator.vector(Vector(k))[agent * dim..][..dim];
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(vector), bits(truth), "vector {k} of agent {agent}");
            }
        }
    }
}

/// Addresses that are free for both transports. Their ports are not those that systems assign to outgoing connections, of which
/// tests make many; each is given out once.
fn addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * 100;
    let next = || SocketAddr::from((Ipv4Addr::LOCALHOST, first + NEXT.fetch_add(1, Relaxed) % 2_000));
    let free = |at: &SocketAddr| UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok();
    std::iter::repeat_with(next).filter(free).take(count).collect()
}

/// When an agent is killed.
#[derive(Clone, Copy)]
pub(crate) enum Dies {
    /// After this exchange, before its result is used.
    Exchange(u64),
    /// When this round is over, before it is on disk.
    Round(u64),
}

struct Mortal {
    engine: NetworkEngine<f32>,
    dies: Dies,
}

impl Host<f32> for Mortal {
    fn buffer(&mut self) -> Vec<f32> {
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        let exchange = message.mark.exchange;
        let finished = self.engine.exchange(message, up, sums)?;
        match self.dies {
            Dies::Exchange(last) if exchange >= last => Err("the plug is pulled".into()),
            _ => Ok(finished),
        }
    }

    fn round_over(&mut self, end: &RoundEnd<'_, f32>) -> Result<(), Failure> {
        match self.dies {
            Dies::Round(last) if end.mark.round >= last => Err("the plug is pulled".into()),
            _ => self.engine.round_over(end),
        }
    }
}
