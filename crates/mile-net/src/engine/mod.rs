//! One agent on a network of iroh endpoints.
//!
//! An [`Engine`] is the [`Host`] of an agent: it moves the frames of a [`Session`] over QUIC streams to neighbours that
//! are known by their public keys, and keeps the agent's state on disk. Exchanges block the computing thread; the
//! network has threads of its own.

mod dial;
mod door;
mod error;
mod link;
mod observe;
mod shared;
mod transport;
mod wait;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iroh::{Endpoint, PublicKey, RelayUrl, SecretKey};
use mile::real::Real;
use tokio::runtime::Runtime;

pub use self::error::{Departure, EngineError};
pub use self::transport::{ALPN, transport};

use self::door::{AllowList, Door, Listed};
use self::shared::Shared;
use crate::agent::{Halt, Host, Moment};
use crate::checkpoint::{Folder, Held};
use crate::hello::Terms;
use crate::outbox::Message;
use crate::session::{Finished, Memory, Missing, Session, Setup};
use crate::status::{Activity, Status};

/// A neighbour as its agent's config lists it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its public key.
    pub key: PublicKey,
    /// Weight of the edge.
    pub weight: f64,
    /// Where to dial it: `host:port`, resolved at each attempt. May be empty if it dials us.
    pub addresses: Vec<String>,
}

/// What an engine needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Id of this agent.
    pub me: usize,
    /// Its key.
    pub key: SecretKey,
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Neighbours by id.
    pub neighbours: BTreeMap<usize, Peer>,
    /// URL of an own relay, for neighbours that cannot reach each other directly; without it nothing but the neighbours'
    /// addresses is ever contacted.
    pub relay: Option<String>,
    /// What to do about a neighbour that is away.
    pub missing: Missing,
    /// After how long without a word an exchange stops waiting for a neighbour, with an error; for ever if `None`.
    pub timeout: Option<Duration>,
    /// After the last round, for how long to stay for a neighbour that has no link.
    pub linger: Duration,
    /// Where the agent's state is kept.
    pub folder: PathBuf,
    /// Rounds from one checkpoint to the next.
    pub checkpoint_every: u64,
    /// Socket on which the status is told.
    pub status: Option<PathBuf>,
    /// Address on which metrics are served as Prometheus text over HTTP.
    pub metrics: Option<SocketAddr>,
}

/// An agent's neighbours and its disk. Dropping it is like pulling the plug: use [`leave`](Self::leave).
pub struct Engine<T: Real> {
    shared: Arc<Shared<T>>,
    endpoint: Endpoint,
    address: SocketAddr,
    folder: Folder,
    _held: Held,
    terms: Terms,
    missing: Missing,
    timeout: Option<Duration>,
    linger: Duration,
    checkpoint_every: u64,
    metrics: Option<(observe::Metrics, SocketAddr)>,
    _status: Option<observe::Socket>,
    runtime: Option<Runtime>,
}

impl<T: Real> Engine<T> {
    /// Binds the address, starts the network's threads, and dials the neighbours. `memory` is what
    /// [`Folder::load`] found. Not to be called from within an asynchronous runtime: it has its own.
    pub fn start(settings: Settings, terms: Terms, memory: Memory<T>) -> Result<Self, EngineError> {
        let (listed, relay) = check(&settings)?;
        let Settings { me, neighbours, missing, .. } = &settings;
        let folder = Folder::open(&settings.folder)?;
        let held = folder.hold()?;
        let incarnation = folder.incarnation()?;
        let mark = memory.mark;
        let weights = neighbours.iter().map(|(id, peer)| (*id, peer.weight)).collect();
        let setup = Setup {
            me: *me,
            incarnation,
            terms: terms.clone(),
            neighbours: weights,
            missing: *missing,
            memory,
        };
        let door = Arc::new(Door::new());
        let names = (*me, terms.run.clone(), incarnation);
        let session = Session::new(setup, 0);
        let shared = Arc::new(Shared::new(names, session, neighbours.keys().copied(), mark, door.clone()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("network")
            .enable_all()
            .build()
            .map_err(EngineError::Threads)?;
        let hooks = AllowList { listed: listed.clone(), door };
        let endpoint = runtime.block_on(transport::bind(
            settings.key.clone(),
            settings.listen,
            relay.as_ref(),
            hooks,
        ))?;
        let address = endpoint.bound_sockets().first().copied().unwrap_or(settings.listen);
        let guard = runtime.enter();
        let status =
            settings.status.as_deref().map(|path| observe::answer(shared.clone(), path)).transpose()?;
        let metrics = settings.metrics.map(|at| observe::metrics(shared.clone(), at)).transpose()?;
        runtime.spawn(door::watch(shared.clone(), endpoint.clone(), listed));
        for (id, peer) in &settings.neighbours {
            let peer = peer.clone();
            runtime.spawn(dial::keep(shared.clone(), endpoint.clone(), *id, peer, relay.clone()));
        }
        drop(guard);
        tracing::info!(agent = me, %address, incarnation, "listening");
        Ok(Self {
            shared,
            endpoint,
            address,
            folder,
            _held: held,
            terms,
            missing: settings.missing,
            timeout: settings.timeout,
            linger: settings.linger,
            checkpoint_every: settings.checkpoint_every.max(1),
            metrics,
            _status: status,
            runtime: Some(runtime),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address metrics are served on, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// Tells those who ask how many rounds are to be done, over all jobs.
    pub fn expect_rounds(&self, rounds: u64) {
        self.shared.lock().view.rounds = Some(rounds);
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Stays until every neighbour has on its disk all that this agent has said, or has been away for the linger time;
    /// then closes all links in good order.
    pub fn leave(mut self) -> Result<Departure, EngineError> {
        let unconfirmed = wait::leave(&self.shared, self.linger, self.timeout);
        if let Some(runtime) = &self.runtime {
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

impl<T: Real> Drop for Engine<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<T: Real> Host<T> for Engine<T> {
    fn buffer(&mut self) -> Vec<T> {
        self.shared.lock().session.message_buffer()
    }

    fn exchange(
        &mut self,
        message: Message<T>,
        up: &[usize],
        sums: Vec<Vec<T>>,
    ) -> Result<Finished<T>, Halt> {
        let mark = message.mark;
        self.shared.with(|core, now| {
            core.view.gossips = !message.gossip.is_empty();
            core.view.mark = mark;
            core.view.begin(Activity::Waiting, now);
            core.session.begin(message, up, sums, now);
        });
        let finished = wait::exchange(&self.shared, &self.folder, self.missing, self.timeout)?;
        self.shared.with(|core, now| {
            core.view.mark.exchange = mark.exchange + 1;
            core.view.begin(Activity::Computing, now);
        });
        Ok(finished)
    }

    fn round_over(&mut self, moment: &Moment<'_, T>) -> Result<(), Halt> {
        let memory = {
            let mut core = self.shared.lock();
            core.view.job = moment.job;
            core.view.mark = moment.mark;
            core.view.estimate = Some(moment.gossip.estimate());
            let due = moment.last || moment.mark.round.is_multiple_of(self.checkpoint_every);
            due.then(|| core.session.memory(moment.mark))
        };
        if let Some(memory) = memory {
            self.folder.save(self.shared.me, &self.terms, moment, &memory)?;
            drop(memory);
            self.shared.with(|core, _| core.session.durable(moment.mark));
        }
        Ok(())
    }
}

/// Neighbours by key, and the relay, if the settings make sense.
fn check(settings: &Settings) -> Result<(Listed, Option<RelayUrl>), EngineError> {
    let own = settings.key.public();
    let mut listed = BTreeMap::new();
    for (id, peer) in &settings.neighbours {
        if *id == settings.me || peer.key == own {
            return Err(EngineError::Settings(format!(
                "neighbour {id} is this agent itself (agent {}): list the others only",
                settings.me
            )));
        }
        if let Some(other) = listed.insert(peer.key, *id) {
            return Err(EngineError::Settings(format!(
                "neighbours {other} and {id} have the same key {}: each agent needs its own",
                peer.key
            )));
        }
    }
    let relay = settings.relay.as_ref().map(|text| {
        text.parse().map_err(|error| EngineError::Settings(format!("the relay {text} is not a URL: {error}")))
    });
    Ok((Arc::new(listed), relay.transpose()?))
}
