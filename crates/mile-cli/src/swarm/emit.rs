//! `mile swarm --emit`: the agents' folders, to be copied to other machines.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use mile::membership::Membership;
use mile_lab::error::LabError;
use mile_lab::plan::Plan;
use mile_lab::spec::{AgentSettings, Spec, TransportSpec, is_host_and_port};
use mile_lab::store::write_file;

use super::folders::{self, AgentSetup};
use crate::experiment_files::ExperimentFiles;
use crate::output;

/// Writes the folders of all agents and prints where each is to be started.
pub(super) fn emit(
    spec: Spec,
    settings: &AgentSettings,
    folder: &Path,
    addresses: &BTreeMap<usize, String>,
) -> anyhow::Result<u8> {
    let membership = spec.membership()?;
    let transport = Some(settings.transport.unwrap_or(TransportSpec::Quic));
    let settings = AgentSettings { transport, ..settings.clone() };
    let setup = |agent: usize| {
        let address = addresses.get(&agent).cloned();
        let port = address.as_ref().and_then(|text| text.rsplit_once(':')?.1.parse().ok()).unwrap_or(0);
        // Listening on all addresses of one kind includes those of the other.
        AgentSetup { listen: SocketAddr::from(([0, 0, 0, 0], port)), address, settings: settings.clone() }
    };
    let setups: Vec<AgentSetup> = (0..membership.numbers()).map(setup).collect();
    let files = ExperimentFiles::of(&spec)?;
    let mut copied = files.relative(&spec);
    let statistics = folders::statistics(&spec);
    if statistics.is_some() {
        copied.problem.insert("statistics".to_owned(), folders::STATISTICS.into());
    }
    let folders = folders::create(&membership, folder, &setups, &copied)?;
    let mut text = String::new();
    for (agent, folder) in folders.iter().enumerate() {
        let place =
            addresses.get(&agent).map_or("connects to its neighbours".into(), |a| format!("reached at {a}"));
        let place = match &settings.relay {
            Some(relay) if !addresses.contains_key(&agent) => format!("reached through {relay}"),
            _ => place,
        };
        text += &format!("{}: agent {agent}, {place}\n", folder.display());
        if let Some(text) = &statistics {
            write_file(&folder.join(folders::STATISTICS), text.as_bytes())?;
        }
        for missing in files.copy(agent, folder)? {
            text += &format!("  {missing} was not found; copy it into this folder\n");
        }
    }
    output::print(&text)?;
    eprintln!(
        "copy each folder to its machine, keep its key secret, and start the agent there with: mile agent agent.toml"
    );
    Ok(0)
}

/// The experiment with all weights resolved to numbers, checked as far as the data on this machine allows. `has_precision`: whether it says
/// its precision, which a function in Python knows only with the data.
pub(super) fn resolved(spec: Spec, has_precision: bool) -> Result<Spec, LabError> {
    let spread = spec.objectives.for_agent(0).is_some();
    let chosen = spec.algorithms.iter().any(|a| a.has_auto() || a.auto_step_size);
    match Plan::new(spec.clone()) {
        Ok(plan) => Ok(plan.spec),
        Err(LabError::Data(error)) if spread && !has_precision && is_python(&spec) => {
            let expected = "\"f32\" or \"f64\" where data are on other machines";
            let got = format!("none ({error}); say \"f32\" for a PyTorch module");
            Err(LabError::expected("precision", expected, got))
        }
        Err(LabError::Data(error)) if spread && !chosen => {
            eprintln!(
                "note: some of the data is not on this machine ({error}); each agent checks its own data when it starts"
            );
            Ok(spec)
        }
        Err(LabError::Data(error)) if chosen => {
            let automatic = spec.algorithms.iter().position(|a| a.has_auto() || a.auto_step_size);
            let key = match automatic {
                Some(k) if spec.algorithms[k].auto_step_size => format!("algorithm[{k}].step_size"),
                Some(k) => format!("algorithm[{k}].xi"),
                None => "algorithm".to_owned(),
            };
            let problem = format!(
                "\"auto\" needs the data of all agents, and some are not on this machine ({error}); run mile swarm --emit \
                 where they are, or give a number"
            );
            Err(LabError::config(key, problem))
        }
        Err(error) => Err(error),
    }
}

fn is_python(spec: &Spec) -> bool {
    spec.problem.get("kind").and_then(toml::Value::as_str) == Some("python")
}

/// The agents' addresses from --host and --hosts: at least one end of every edge must have one, unless there is a relay.
pub(super) fn addresses(
    membership: &Membership,
    host: &[String],
    hosts: Option<&Path>,
    relayed: bool,
) -> anyhow::Result<BTreeMap<usize, String>> {
    let mut lines: Vec<(String, String)> =
        host.iter().map(|text| ("--host".to_owned(), text.clone())).collect();
    if let Some(path) = hosts {
        let text = mile_lab::reading::text(path).map_err(|error| LabError::Directory {
            path: path.to_owned(),
            problem: format!("cannot read the hosts file: {error}"),
        })?;
        let useful = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
        let line =
            |(k, line): (usize, &str)| (format!("{}, line {}", path.display(), k + 1), line.to_owned());
        lines.extend(text.lines().map(str::trim).enumerate().filter(useful).map(line));
    }
    let mut addresses = BTreeMap::new();
    for (source, line) in lines {
        let bad = |what: &str| {
            let expected = "ID=HOST:PORT, such as 0=node0.example.org:7100";
            LabError::expected(&source, expected, format!("\"{line}\" ({what})"))
        };
        let (id, address) = line.split_once('=').ok_or_else(|| bad("it has no ="))?;
        let id: usize = id.trim().parse().map_err(|_| bad("ID is not a number"))?;
        if id >= membership.numbers() {
            return Err(bad(&format!("there are agents 0 to {}", membership.numbers() - 1)).into());
        }
        if !is_host_and_port(address.trim()) {
            return Err(bad("it has no port").into());
        }
        if addresses.insert(id, address.trim().to_owned()).is_some() {
            return Err(bad("the agent already has an address").into());
        }
    }
    let unreachable = |(i, j): &(usize, usize)| !addresses.contains_key(i) && !addresses.contains_key(j);
    let edges = |i: usize| membership.edges_of(i).into_keys().map(move |j| (i, j));
    match (0..membership.numbers()).flat_map(edges).find(unreachable).filter(|_| !relayed) {
        None => Ok(addresses),
        Some((i, j)) => {
            let problem = format!(
                "agents {i} and {j} are neighbours, so at least one of them needs an address; add --host {i}=HOST:PORT, or give all a relay (agent.relay)"
            );
            Err(LabError::config("--host", problem).into())
        }
    }
}
