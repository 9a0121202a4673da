//! The network engine: connections to neighbours, by QUIC (with iroh) or by TLS over TCP, and checkpoints.
//!
//! A [`NetworkEngine`] is the [`Host`] of an agent: it sends and receives the frames of a [`Protocol`] on connections to neighbours
//! that are known by their public keys, and writes the agent's checkpoints. Exchanges block the computing thread; the
//! network has its own threads.

mod accept;
mod admission;
mod close;
mod dial;
mod error;
mod leave;
mod link;
mod metrics;
mod notice_board;
mod notices;
mod observe;
mod pace;
mod panics;
mod purpose;
mod quic;
mod reach;
mod shared;
mod start;
mod tcp;
mod transport;
mod wait;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iroh::{PublicKey, RelayUrl, SecretKey};
use mile::membership::Edge;
use mile::real::Real;
use tokio::runtime::Runtime;

pub use self::error::{Departure, NetworkEngineError};
pub use self::pace::Pace;
pub use self::panics::exit_on_panic;
pub use self::quic::quic_settings;
pub use self::tcp::tls_client;
pub use self::transport::Transport;

use self::admission::{Admission, Listed};
use self::leave::Leaving;
use self::pace::Checkpoints;
use self::shared::Shared;
use self::start::Start;
use self::transport::Endpoint;
use crate::agent::{Failure, Host, RoundEnd};
use crate::checkpoint::Folder;
use crate::handshake::Terms;
use crate::outbox::Message;
use crate::protocol::{Finished, Limits, Memory, MissingPolicy, Protocol, Setup};
use crate::status::{Activity, Status};

/// Name of the protocol in the handshake of a connection.
pub const ALPN: &[u8] = b"mile/1";

/// A neighbour, as listed in the agent's configuration.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its public key.
    pub key: PublicKey,
    /// The edge to it.
    pub edge: Edge,
    /// Where to connect to: `host:port`, resolved at each attempt. May be empty if it connects to us.
    pub addresses: Vec<String>,
}

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Id of this agent.
    pub me: usize,
    /// Its key.
    pub key: SecretKey,
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// The transport between neighbours.
    pub transport: Transport,
    /// Neighbours by id.
    pub neighbours: BTreeMap<usize, Peer>,
    /// URL of your own relay, for neighbours that cannot reach each other directly. Without it only the neighbours'
    /// addresses are ever contacted. For QUIC only.
    pub relay: Option<String>,
    /// What to do about a neighbour that is away.
    pub on_missing: MissingPolicy,
    /// How long to wait for a neighbour from which nothing arrives before giving up with an error; forever if `None`.
    pub timeout: Option<Duration>,
    /// How long to stay, after the last round, for a neighbour that is not connected.
    pub linger: Duration,
    /// How often checkpoints are written, and how many messages are kept.
    pub limits: Limits,
    /// What decides when a checkpoint is written.
    pub pace: Pace,
    /// Unix socket on which the status is served.
    pub status: Option<PathBuf>,
    /// Address on which metrics are served as Prometheus text over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Whether [notices](crate::board) are exchanged, and among how many agents. The same at all agents.
    pub notices: Option<usize>,
}

/// What the agent's objective remembers now.
pub type Remember = dyn Fn() -> Result<Vec<u8>, Failure> + Send;

/// The connections and the folder of one agent. Dropping it is like killing the agent: use [`leave`](Self::leave).
pub struct NetworkEngine<T: Real> {
    shared: Arc<Shared<T>>,
    endpoint: Arc<Endpoint>,
    folder: Folder,
    terms: Terms,
    on_missing: MissingPolicy,
    timeout: Option<Duration>,
    linger: Duration,
    checkpoints: Checkpoints,
    objective: Option<Box<Remember>>,
    metrics: Option<metrics::Metrics>,
    _status: Option<observe::Socket>,
    runtime: Option<Runtime>,
}

impl<T: Real> NetworkEngine<T> {
    /// Binds the address, starts the network's threads, and connects to the neighbours. `memory` is what
    /// [`Folder::load`] found in the folder. Not to be called from within an asynchronous runtime: it has its own.
    pub fn start(
        settings: Settings,
        folder: Folder,
        terms: Terms,
        memory: Memory<T>,
    ) -> Result<Self, NetworkEngineError> {
        let (listed, relay) = check(&settings)?;
        let Settings { me, neighbours, on_missing, .. } = &settings;
        let incarnation = folder.incarnation()?;
        let mark = memory.mark;
        let edges = neighbours.iter().map(|(id, peer)| (*id, peer.edge.clone())).collect();
        let setup = Setup {
            me: *me,
            incarnation,
            terms: terms.clone(),
            neighbours: edges,
            on_missing: *on_missing,
            limits: settings.limits,
            memory,
        };
        let admission = Arc::new(Admission::new());
        let names = (*me, terms.run.clone(), incarnation);
        let session = Protocol::new(setup, 0);
        let threads = panics::name_threads();
        let runtime = network_threads(&threads)?;
        let ids = neighbours.keys().copied();
        let (room, agents) = (admission.clone(), settings.notices);
        let shared = Arc::new(Shared::new(names, session, ids, mark, room, threads, agents));
        let (key, listen) = (settings.key.clone(), settings.listen);
        let start = Start { key, listen, relay, listed, admission };
        let endpoint = Arc::new(runtime.block_on(Endpoint::bind(settings.transport, start))?);
        let address = endpoint.address();
        let guard = runtime.enter();
        let status =
            settings.status.as_deref().map(|path| observe::serve_status(shared.clone(), path)).transpose()?;
        let metrics = settings.metrics.map(|at| metrics::serve(shared.clone(), at)).transpose()?;
        runtime.spawn(accept::run(shared.clone(), endpoint.clone()));
        for (id, peer) in &settings.neighbours {
            runtime.spawn(dial::keep_connected(shared.clone(), endpoint.clone(), *id, peer.clone()));
            runtime.spawn(notices::keep_connected(shared.clone(), endpoint.clone(), *id, peer.clone()));
        }
        runtime.spawn(notices::post_regularly(shared.clone()));
        drop(guard);
        tracing::info!(agent = me, %address, incarnation, "listening");
        Ok(Self {
            shared,
            endpoint,
            folder,
            terms,
            on_missing: settings.on_missing,
            timeout: settings.timeout,
            linger: settings.linger,
            checkpoints: Checkpoints::after(settings.pace, settings.limits.checkpoint_every, mark.round),
            objective: None,
            metrics,
            _status: status,
            runtime: Some(runtime),
        })
    }

    /// From now on, checkpoints hold what the agent's objective remembers.
    pub fn remember(&mut self, objective: Box<Remember>) {
        self.objective = Some(objective);
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// The address metrics are served on, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.address)
    }

    /// Sets how many rounds are to be done, over all jobs, for status reports.
    pub fn expect_rounds(&self, rounds: u64) {
        self.shared.lock().view.rounds = Some(rounds);
    }

    /// The model has diverged in this round of the run, for status reports.
    pub fn diverged(&self, round: u64) {
        self.shared.lock().view.diverged.get_or_insert(round);
    }

    /// Closes all links before the work is done, for a reason that the neighbours are told, and waits a moment until they know.
    pub fn give_up(&self, why: &str) {
        self.shared.with(|core, _| core.session.give_up(why));
        let begun = Instant::now();
        while !self.shared.lock().tasks.is_empty() && begun.elapsed() < CLOSING {
            std::thread::sleep(wait::TICK);
        }
    }

    /// The status of this agent.
    pub fn status(&self) -> Status {
        self.shared.status_and_notices()
    }

    /// Something that says the status of this agent as long as it is kept, for servers.
    pub fn reporter(&self) -> impl Fn() -> Status + Send + Sync + use<T> {
        let shared = self.shared.clone();
        move || shared.status_and_notices()
    }

    /// Stays until every neighbour has confirmed that the last message is part of a checkpoint, and knows that this agent leaves, or
    /// has been away for the linger time; closes all connections cleanly.
    pub fn leave(mut self) -> Result<Departure, NetworkEngineError> {
        let unconfirmed = Leaving::new(&self.shared, &self.folder).leave(self.linger, self.timeout);
        if let Some(runtime) = &self.runtime {
            runtime.block_on(notices::end(&self.shared));
        }
        // Attempts to reach neighbours that have left are not worth waiting for.
        if let Some(runtime) = self.runtime.as_ref().filter(|_| self.shared.lock().was_linked()) {
            let _ = runtime.block_on(async { tokio::time::timeout(CLOSING, self.endpoint.close()).await });
        }
        self.stop();
        Ok(Departure { unconfirmed })
    }

    fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(CLOSING);
        }
    }
}

/// How long closing the endpoint may take.
const CLOSING: Duration = Duration::from_secs(3);

impl<T: Real> Drop for NetworkEngine<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<T: Real> Host<T> for NetworkEngine<T> {
    fn buffer(&mut self) -> Vec<T> {
        self.shared.lock().session.message_buffer()
    }

    fn exchange(
        &mut self,
        message: Message<T>,
        up: &[(usize, f64)],
        sums: Vec<Vec<T>>,
    ) -> Result<Finished<T>, Failure> {
        let mark = message.mark;
        self.shared.with(|core, now| {
            core.view.gossips = !message.gossip.is_empty();
            core.view.mark = mark;
            core.view.begin(Activity::Waiting, now);
            core.session.begin(message, up, sums, now);
            // There may be an edge in this round that did not exist before.
            for edge in up.iter().filter(|(id, _)| !core.session.linked(*id)) {
                core.edges.get(&edge.0).into_iter().for_each(|edge| edge.changed.notify_one());
            }
        });
        let finished = wait::exchange(&self.shared, &self.folder, self.on_missing, self.timeout)?;
        self.shared.with(|core, now| {
            core.view.mark.exchange = mark.exchange + 1;
            core.view.begin(Activity::Computing, now);
        });
        Ok(finished)
    }

    fn round_over(&mut self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let memory = {
            let mut core = self.shared.lock();
            core.view.job = end.job;
            core.view.mark = end.mark;
            core.view.estimate = Some(end.gossip.estimate());
            core.view.own_loss = end.gossip.own_loss();
            // The start of a run can be computed again, and belongs to a run that no neighbour has agreed to yet.
            let agreed = end.mark.exchange > 0;
            let due =
                agreed && (end.last || self.checkpoints.is_due(end.mark.round, core.session.kept_bytes()));
            due.then(|| core.session.memory(end.mark))
        };
        if let Some(memory) = memory {
            let begun = Instant::now();
            let objective = self.objective.as_ref().map(|remember| remember()).transpose()?;
            self.folder.save(self.shared.me, &self.terms, end, objective.as_deref(), &memory)?;
            let stored = self.folder.stored(&memory)?;
            drop(memory);
            self.checkpoints.written(end.mark.round, begun);
            self.shared.with(|core, _| {
                // It is part of the time between two exchanges.
                let seconds = begun.elapsed().as_secs_f64();
                core.view.spent.writing_s += seconds;
                core.view.spent.computing_s -= seconds;
                core.view.saved = Some(end.mark.round);
                core.session.stored(&stored);
                core.session.durable(end.mark);
            });
        }
        Ok(())
    }
}

fn network_threads(name: &str) -> Result<Runtime, NetworkEngineError> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.worker_threads(2).thread_name(name).enable_all();
    threads.build().map_err(NetworkEngineError::Threads)
}

/// Neighbours by key, and the relay, if the settings are consistent.
fn check(settings: &Settings) -> Result<(Listed, Option<RelayUrl>), NetworkEngineError> {
    let own = settings.key.public();
    let mut listed = BTreeMap::new();
    for (id, peer) in &settings.neighbours {
        if *id == settings.me || peer.key == own {
            return Err(NetworkEngineError::Settings(format!(
                "neighbour {id} is this agent itself (agent {}); list only the others",
                settings.me
            )));
        }
        if let Some(other) = listed.insert(peer.key, *id) {
            return Err(NetworkEngineError::Settings(format!(
                "neighbours {other} and {id} have the same key {}; each agent needs its own",
                peer.key
            )));
        }
    }
    if settings.transport == Transport::Tcp && settings.relay.is_some() {
        return Err(NetworkEngineError::Settings(
            "a relay carries QUIC, but the transport is TCP; leave agent.relay out, or set agent.transport = \"quic\"".into(),
        ));
    }
    let relay = settings.relay.as_ref().map(|text| {
        text.parse().map_err(|error| {
            NetworkEngineError::Settings(format!("expected the URL of a relay, got {text} ({error})"))
        })
    });
    Ok((Arc::new(listed), relay.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Mark;

    #[test]
    fn a_panic_in_the_network_ends_an_exchange_with_an_error() {
        let home = tempfile::tempdir().unwrap();
        let (key, edge) = (SecretKey::generate().public(), Edge::lasting(0.5));
        let peer = Peer { key, edge, addresses: Vec::new() };
        let settings = Settings {
            me: 0,
            key: SecretKey::generate(),
            listen: "127.0.0.1:0".parse().unwrap(),
            transport: Transport::Tcp,
            neighbours: BTreeMap::from([(1, peer)]),
            relay: None,
            on_missing: MissingPolicy::Wait,
            timeout: None,
            linger: Duration::ZERO,
            limits: Limits::of(1),
            pace: Pace::Rounds,
            status: None,
            metrics: None,
            notices: None,
        };
        let folder = Folder::open(home.path(), Duration::ZERO).unwrap();
        let terms = Terms { run: "r".into(), dim: 1, precision: "f64".into(), facts: BTreeMap::new() };
        let mut engine = NetworkEngine::<f64>::start(settings, folder, terms, Memory::default()).unwrap();
        let task = async { panic!("advance out of bounds") };
        engine.runtime.as_ref().unwrap().spawn(task);
        let message = Message {
            mark: Mark::default(),
            vectors: vec![0.0],
            form: crate::outbox::MessageForm::Whole,
            gossip: Vec::new(),
        };
        let error = engine.exchange(message, &[(1, 0.5)], vec![vec![0.0]]).unwrap_err();
        let Some(NetworkEngineError::Panicked(what)) = error.downcast_ref() else { panic!("{error}") };
        assert!(what.contains("advance out of bounds"), "{what}");
    }
}
