//! The agents' folders, each with its configuration file and its key.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use mile::membership::{Edge, Membership};
use mile_lab::gather::agent_folder;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSettings, AgentSpec, NeighbourSpec, Spec, TransportSpec};
use mile_lab::store::write_file;
use mile_net::keys;

/// The name of the file with the statistics of all agents' data.
pub(super) const STATISTICS: &str = "statistics.json";

/// Ports outside the range that systems assign automatically.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Addresses and settings of one agent.
pub(super) struct AgentSetup {
    /// Address it listens on.
    pub(super) listen: SocketAddr,
    /// Address at which neighbours connect to it; `None` if it connects to them.
    pub(super) address: Option<String>,
    /// Its settings.
    pub(super) settings: AgentSettings,
}

/// Creates the folders of agents that all run on this machine.
pub(super) fn create_local(
    plan: &Plan,
    folder: &Path,
    settings: &AgentSettings,
) -> anyhow::Result<Vec<PathBuf>> {
    // Only QUIC uses a relay.
    let usual = if settings.relay.is_some() { TransportSpec::Quic } else { TransportSpec::Tcp };
    let transport = Some(settings.transport.unwrap_or(usual));
    let setup = |(agent, port): (u16, u16)| {
        let listen = SocketAddr::from(([127, 0, 0, 1], port));
        // Agents on one machine cannot share a port.
        let metrics = settings.metrics.map(|at| SocketAddr::new(at.ip(), at.port().saturating_add(agent)));
        let page = settings.page_token.as_ref().map(|_| settings.page.unwrap_or(AgentSettings::PAGE));
        let page = page.map(|at| SocketAddr::new(at.ip(), at.port().saturating_add(agent)));
        let settings = AgentSettings { snapshots: true, metrics, page, transport, ..settings.clone() };
        AgentSetup { listen, address: Some(listen.to_string()), settings }
    };
    let setups: Vec<AgentSetup> = (0..).zip(free_ports(plan.membership.numbers())?).map(setup).collect();
    let mut spec = plan.spec.clone();
    if statistics(&plan.spec).is_some() {
        // Where the run directory has them.
        let path = std::path::absolute(folder.join(STATISTICS)).context("cannot find the run directory")?;
        spec.problem.insert("statistics".to_owned(), path.display().to_string().into());
    }
    create(&plan.membership, folder, &setups, &spec)
}

/// The statistics of all agents' data, for agents that have only their own; none if they are given, not needed, or not known
/// here because data is missing.
pub(super) fn statistics(spec: &Spec) -> Option<String> {
    if spec.problem.contains_key("statistics") || spec.objectives.for_agent(0).is_none() {
        return None;
    }
    let documents = spec.objectives.documents(&spec.seeds).ok()?;
    documents.into_iter().find(|(name, _)| *name == STATISTICS).map(|(_, text)| text)
}

/// Creates the folders of all agents; existing keys are kept.
pub(super) fn create(
    membership: &Membership,
    folder: &Path,
    setups: &[AgentSetup],
    spec: &Spec,
) -> anyhow::Result<Vec<PathBuf>> {
    let folders: Vec<PathBuf> = (0..setups.len()).map(|agent| agent_folder(folder, agent)).collect();
    let mut publics = Vec::new();
    for folder in &folders {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let key = folder.join("key");
        publics.push(if key.exists() { keys::read(&key)?.public() } else { keys::generate(&key)? });
    }
    for (agent, (folder, setup)) in folders.iter().zip(setups).enumerate() {
        let neighbour = |(id, edge): (usize, Edge)| {
            let (key, addresses) = (publics[id].to_string(), setups[id].address.iter().cloned().collect());
            (id, NeighbourSpec { key, edge, addresses })
        };
        let neighbours: BTreeMap<usize, NeighbourSpec> =
            membership.edges_of(agent).into_iter().map(neighbour).collect();
        let config = AgentSpec {
            id: agent,
            key: "key".into(),
            listen: setup.listen,
            folder: ".".into(),
            settings: setup.settings.clone(),
            neighbours,
        };
        write_file(&folder.join("agent.toml"), config.to_table(spec).to_string().as_bytes())?;
    }
    Ok(folders)
}

/// Ports of this machine that are free for both UDP and TCP.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let first = (now ^ std::process::id().wrapping_mul(7919)) as usize % PORTS.len();
    let bind = |port: u16| {
        let at = ("127.0.0.1", port);
        Some((port, UdpSocket::bind(at).ok()?, TcpListener::bind(at).ok()?))
    };
    let ports = PORTS.skip(first).chain(PORTS.take(first));
    // All are held until all are known.
    let taken: Vec<(u16, UdpSocket, TcpListener)> = ports.filter_map(bind).take(count).collect();
    anyhow::ensure!(
        taken.len() == count,
        "fewer than {count} ports are free in {PORTS:?}; use fewer agents, or stop programs that use these ports"
    );
    Ok(taken.into_iter().map(|(port, ..)| port).collect())
}
