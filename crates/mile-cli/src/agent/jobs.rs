//! One agent's part of all jobs of an experiment, one after another, in one session with its neighbours.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mile::graph::Graph;
use mile::membership::{Change, Event};
use mile::method::Method;
use mile_lab::DIVERGED;
use mile_lab::agent_files::AgentFiles;
use mile_lab::engines::Scalar;
use mile_lab::error::LabError;
use mile_lab::objectives::remembering::{Memories, memories, recall};
use mile_lab::plan::{Job, Plan};
use mile_lab::spec::{AgentSpec, NeighbourSpec, OnMissing, Spec, TransportSpec};
use mile_lab::store::write_file;
use mile_net::agent::{self, StartFrom, State};
use mile_net::checkpoint::{Folder, Restored};
use mile_net::engine::{self, NetworkEngine, Pace, Peer, Settings};
use mile_net::gossip::Tolerance;
use mile_net::handshake::{Mark, Terms};
use mile_net::keys;
use mile_net::protocol::{Limits, Memory, MissingPolicy};
use mile_net::status;

use super::recording::{ModelDiverged, RecordingHost, rms};
use super::refused::refused_messages;
use super::socket;
use crate::network_view::{Layout, page};

/// Runs all jobs from one on, from the agent's checkpoint if there is one, and waits until the neighbours have confirmed the last
/// messages.
pub(super) fn run_jobs<T: Scalar>(
    plan: &Plan,
    config: &AgentSpec,
    folder: Folder,
    from: usize,
) -> anyhow::Result<()> {
    let terms = terms(plan, config)?;
    let settings = settings(config, plan.membership.numbers())?;
    let mut restored = restore::<T>(plan, config, &folder, &terms)?;
    if from > 0 && restored.state.as_ref().is_none_or(|state| state.job < from) {
        let mark = Mark { exchange: agent::first_exchange_of(from), round: plan.spec.rounds * from as u64 };
        restored = Restored { state: None, objective: None, memory: Memory { mark, ..Memory::default() } };
    }
    check_events(plan, config)?;
    let (membership, rounds) = (&plan.membership, plan.spec.rounds);
    let new = membership.comes_with(config.id).filter(|_| restored.state.is_none());
    if let Some(k) = new {
        let Event { round, change, .. } = &membership.events()[k];
        let what = if matches!(change, Change::Join { .. }) { "joining as" } else { "replacing" };
        tracing::info!("{what} agent {} in round {round}: waiting for its neighbours", config.id);
        restored.memory.mark = Mark { exchange: agent::first_exchange_after(k), round: *round };
    }
    let leaves = membership.leaves(config.id).filter(|round| *round < rounds);
    let files = AgentFiles::of(&config.folder);
    files.create()?;
    if restored.state.is_none() && from == 0 {
        files.remove_own_losses()?;
    }
    status::forget(&config.folder)?;
    let mut mark = restored.memory.mark;
    let mut engine = NetworkEngine::start(settings, folder, terms, restored.memory)?;
    let (objectives, id) = (plan.spec.objectives.clone(), config.id);
    if objectives.remembering().is_some() {
        engine.remember(Box::new(move || Ok(memories(&*objectives, [id])?.remove(&id).unwrap_or_default())));
    }
    let jobs = plan.jobs().len();
    engine.expect_rounds(leaves.unwrap_or(rounds * jobs as u64));
    let _page = page::serve(&config.settings, Layout::of(&plan.spec)?, engine.reporter())?;
    let may_stop = plan.spec.stop.is_some();
    let mut host = RecordingHost::new(engine, plan, config.id, files, config.settings.snapshots, may_stop);
    let first = restored.state.as_ref().map_or(from, |state| state.job);
    let mut state = restored.state.map(|state| (state, restored.objective.map(|bytes| (config.id, bytes))));
    for index in first..jobs {
        let begin = match (state.take(), new) {
            (Some((state, memory)), _) => Begin::Resumed(Box::new(state), memory.into_iter().collect()),
            (None, Some(k)) => Begin::New(k),
            (None, None) => Begin::Fresh(mark),
        };
        mark = match run_job(plan, config, index, begin, &mut host) {
            Err(error) if error.is::<ModelDiverged>() => {
                status::leave_behind(&config.folder, host.engine.status())?;
                return Err(error);
            }
            ended => ended?,
        };
    }
    let last = host.engine.status();
    let departure = host.engine.leave()?;
    refused_messages(&last).iter().for_each(|line| tracing::warn!("{line}"));
    status::leave_behind(&config.folder, last)?;
    if !departure.unconfirmed.is_empty() {
        tracing::warn!(
            "exiting, although agents {:?} have not confirmed the last messages; if one of them still waits for this \
             agent, start this agent again",
            departure.unconfirmed
        );
    }
    match leaves {
        Some(round) => tracing::info!("agent {} has left the run before round {round}", config.id),
        None => tracing::info!("all jobs are done"),
    }
    Ok(())
}

/// How an agent begins a job.
enum Begin<T> {
    /// At its start, after this many exchanges and rounds of earlier jobs.
    Fresh(Mark),
    /// From a checkpoint, with what the agent's objective remembers.
    Resumed(Box<State<T>>, Memories),
    /// As the agent that is new with the k-th event.
    New(usize),
}

/// Checks that events can happen to these agents.
pub(crate) fn check_event_settings(spec: &Spec, config: &AgentSpec) -> Result<(), LabError> {
    if !spec.events.is_empty() && spec.algorithms.len() * spec.seeds.len() > 1 {
        let problem = "agents support events only with one algorithm and one seed, because further jobs would count their rounds from 0; leave the others out";
        return Err(LabError::config("event", problem));
    }
    if !spec.events.is_empty() && config.settings.on_missing != OnMissing::Wait {
        let problem = "expected \"wait\" with events, got \"skip-edge\": the agent that decided to skip an edge may be lost";
        return Err(LabError::config("agent.on_missing", problem));
    }
    Ok(())
}

/// Checks that events, and edges that are skipped, can happen to these agents.
pub(crate) fn check_events(plan: &Plan, config: &AgentSpec) -> Result<(), LabError> {
    check_event_settings(&plan.spec, config)?;
    let compresses = plan.methods.iter().any(|planned| planned.parameters.compression.is_some());
    if compresses && config.settings.on_missing != OnMissing::Wait {
        let problem = "expected \"wait\" with compression, got \"skip-edge\": each message adds to those before it, so a skipped one would be missing for good";
        return Err(LabError::config("agent.on_missing", problem));
    }
    Ok(())
}

/// Loads the checkpoint, if there is one. Changes to settings that may be changed while agents are stopped are noted with the round.
fn restore<T: Scalar>(
    plan: &Plan,
    config: &AgentSpec,
    folder: &Folder,
    terms: &Terms,
) -> anyhow::Result<Restored<T>> {
    let Some((then, _, round)) = folder.belongs_to()? else { return Ok(folder.load::<T>(config.id, terms)?) };
    let same = Terms { facts: then.facts.clone(), ..terms.clone() };
    if then.facts == terms.facts
        || then != same
        || plan.changed_for_agent(&then.facts, &terms.facts, round).is_some()
    {
        return Ok(folder.load::<T>(config.id, terms)?);
    }
    if plan.spec.stop.is_some() && then.facts.get("eval_every") != terms.facts.get("eval_every") {
        let problem =
            "cannot be changed with stop, because agents would stop at different rounds; undo the change";
        return Err(LabError::config("eval_every", problem).into());
    }
    let restored = folder.load::<T>(config.id, &then)?;
    note_changes(folder, &then, terms, round)?;
    Ok(restored)
}

/// The file in which changes of settings are noted, one per line.
const CHANGES: &str = "changes.jsonl";

fn note_changes(folder: &Folder, then: &Terms, now: &Terms, round: u64) -> anyhow::Result<()> {
    let path = folder.path().join(CHANGES);
    let mut lines = std::fs::read_to_string(&path).unwrap_or_default();
    let keys: BTreeSet<&String> = then.facts.keys().chain(now.facts.keys()).collect();
    for key in keys.into_iter().filter(|key| then.facts.get(*key) != now.facts.get(*key)) {
        let value = |terms: &Terms| terms.facts.get(key).map(|fact| fact.value.clone());
        let (old, new) = (value(then), value(now));
        let line = serde_json::json!({ "round": round, "key": key, "old": old, "new": new }).to_string();
        if !lines.lines().any(|known| known == line) {
            lines += &format!("{line}\n");
        }
        let text = |value: Option<String>| value.unwrap_or("absent".into());
        tracing::info!("from round {round} on, {key} is {} instead of {}", text(new), text(old));
    }
    Ok(write_file(&path, lines.as_bytes())?)
}

/// Runs one job. Returns the mark of its end.
fn run_job<T: Scalar>(
    plan: &Plan,
    config: &AgentSpec,
    index: usize,
    begin: Begin<T>,
    host: &mut RecordingHost<T>,
) -> anyhow::Result<Mark> {
    let Job { algorithm, seed } = plan.jobs()[index];
    let problem = plan.problem::<T>(seed)?;
    let epochs = 0..plan.membership.epochs().len();
    let methods: Vec<Box<dyn Method>> =
        epochs.map(|epoch| plan.method_in(Job { algorithm, seed }, epoch)).collect::<Result<_, _>>()?;
    let later: Vec<&dyn Method> = methods[1..].iter().map(|method| &**method).collect();
    let round = match &begin {
        Begin::Resumed(state, _) => Some(state.progress.round),
        Begin::New(k) => Some(plan.membership.events()[*k].round),
        Begin::Fresh(_) => None,
    };
    let origin = round.map_or("from the start".into(), |round| format!("from round {round}"));
    let title = plan.job_name(Job { algorithm, seed });
    tracing::info!("job {} of {}: {title}, {origin}", index + 1, plan.jobs().len());
    let rounds = plan.spec.rounds.min(plan.membership.leaves(config.id).unwrap_or(u64::MAX));
    if round.is_some_and(|round| round < rounds) && plan.spec.stop.is_none() {
        // It may be from a run with fewer rounds than are asked for now.
        AgentFiles::of(&config.folder).remove_last(plan, Job { algorithm, seed })?;
    }
    AgentFiles::of(&config.folder).remove_divergence(plan, Job { algorithm, seed })?;
    let point = start(plan, &*problem, seed, config.id)?;
    let size: f64 = rms(&point);
    let remembered = if let Begin::Resumed(_, memories) = &begin { Some(memories) } else { None };
    recall(&*plan.spec.objectives, [config.id], remembered)?;
    let from = match begin {
        Begin::Resumed(state, _) => StartFrom::State(*state),
        Begin::New(k) => StartFrom::Event(k),
        Begin::Fresh(mark) => StartFrom::Point(point, mark),
    };
    let rule = plan.spec.stop;
    let tolerance = rule.map(|rule| Tolerance {
        grad_norm_sq: rule.grad_norm.map(|norm| norm * norm),
        consensus_error: rule.consensus,
        loss_change: rule.loss_change,
        diameter: diameter(plan.network().graph()),
    });
    let job = agent::AgentJob {
        index,
        agent: config.id,
        problem: &*problem,
        membership: &plan.membership,
        method: &*methods[0],
        later: &later,
        schedule: &plan.spec.algorithms[algorithm].schedule,
        seed,
        rounds: plan.spec.rounds,
        gossip_every: if config.settings.gossip { host.gossip_every() } else { 0 },
        tolerance,
    };
    host.begin(index, round, DIVERGED * size.max(1.0));
    let end = agent::work(&job, from, host).map_err(|error| {
        let cause: &(dyn std::error::Error + 'static) = &*error;
        let mut causes = std::iter::successors(Some(cause), |cause| cause.source());
        let diverged = causes.find_map(|cause| cause.downcast_ref::<ModelDiverged>()).cloned();
        diverged.map_or_else(|| anyhow::Error::from_boxed(error), anyhow::Error::new)
    })?;
    Ok(end.mark)
}

/// This agent's starting point; for one that joins later, those of all others.
fn start<T: Scalar>(
    plan: &Plan,
    problem: &dyn mile::problems::Problem<T>,
    seed: u64,
    agent: usize,
) -> Result<Vec<T>, LabError> {
    let mut rows = plan.start(problem, seed)?;
    let dim = problem.dim();
    if rows.len() > agent * dim {
        rows.drain(..agent * dim);
        rows.truncate(dim);
    }
    Ok(rows)
}

fn terms(plan: &Plan, config: &AgentSpec) -> Result<Terms, LabError> {
    let mut facts = plan.facts_for_agents(config.id)?;
    if !config.settings.gossip {
        facts.insert("agent.gossip".into(), "false".into());
    }
    Ok(Terms {
        run: plan.spec.name.clone(),
        dim: plan.size.dim,
        precision: plan.spec.precision.name().to_owned(),
        facts,
    })
}

fn settings(config: &AgentSpec, agents: usize) -> anyhow::Result<Settings> {
    let settings = &config.settings;
    let peer = |(k, (id, neighbour)): (usize, (&usize, &NeighbourSpec))| {
        let key = neighbour.key.parse().map_err(|error| {
            let got = format!("\"{}\" ({error})", neighbour.key);
            LabError::expected(
                format!("agent.neighbour[{k}].key"),
                "the public key that mile keygen printed",
                got,
            )
        })?;
        Ok((*id, Peer { key, edge: neighbour.edge.clone(), addresses: neighbour.addresses.clone() }))
    };
    let neighbours: Result<BTreeMap<usize, Peer>, LabError> =
        config.neighbours.iter().enumerate().map(peer).collect();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Settings {
        me: config.id,
        key: keys::read(&config.key)?,
        listen: config.listen,
        transport: match settings.transport {
            Some(TransportSpec::Tcp) => engine::Transport::Tcp,
            Some(TransportSpec::Quic) | None => engine::Transport::Quic,
        },
        neighbours: neighbours?,
        relay: settings.relay.clone(),
        on_missing: match settings.on_missing {
            OnMissing::Wait => MissingPolicy::Wait,
            OnMissing::SkipEdge { deadline } => MissingPolicy::Skip { after: millis(deadline) },
        },
        timeout: settings.timeout,
        linger: settings.linger,
        limits: Limits {
            keep: settings.keep,
            range: settings.message_range,
            outbox: settings.outbox.unwrap_or(Limits::of(settings.most_rounds()).outbox),
            ..Limits::of(settings.most_rounds())
        },
        pace: if settings.checkpoint_every.is_some() { Pace::Rounds } else { Pace::Time },
        status: Some(socket::choose_path(&config.folder)?),
        metrics: settings.metrics,
        notices: settings.gossip.then_some(agents),
    })
}

/// The largest number of hops between two agents.
fn diameter(graph: &Graph) -> u64 {
    let farthest = |from: usize| {
        let mut hops = vec![None; graph.agents()];
        let (mut queue, mut last) = (VecDeque::from([from]), 0);
        hops[from] = Some(0);
        while let Some(agent) = queue.pop_front() {
            last = hops[agent].unwrap_or(last);
            for other in graph.neighbours(agent) {
                if hops[*other].is_none() {
                    hops[*other] = Some(last + 1);
                    queue.push_back(*other);
                }
            }
        }
        last
    };
    (0..graph.agents()).map(farthest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mile::graph::Topology;

    #[test]
    fn the_diameter_is_the_longest_shortest_path() {
        let cases = [
            (Topology::Ring, 9, 4),
            (Topology::Path, 6, 5),
            (Topology::Complete, 5, 1),
            (Topology::Star, 5, 2),
        ];
        for (topology, agents, expected) in cases {
            assert_eq!(diameter(&topology.build(agents, 0).unwrap()), expected);
        }
    }
}
