//! All jobs of an experiment, one after the other, as one agent does them in one session with its neighbours.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mile::graph::Graph;
use mile_lab::config::{AgentConfig, NeighbourConfig, OnMissing};
use mile_lab::error::LabError;
use mile_lab::plan::{Job, Plan};
use mile_lab::rows::Rows;
use mile_net::agent::{self, From, State};
use mile_net::checkpoint::Folder;
use mile_net::engine::{Engine, Peer, Settings};
use mile_net::gossip::Tolerance;
use mile_net::hello::{Mark, Terms};
use mile_net::keys;
use mile_net::session::Missing;
use mile_nn::Scalar;

use super::keeper::Keeper;
use super::socket;
use crate::progress::name;

/// Does all jobs, from the agent's checkpoint if there is one, and stays until its neighbours have all they need.
pub(super) fn work<T: Scalar>(plan: &Plan, config: &AgentConfig) -> anyhow::Result<()> {
    let terms = terms(plan, config)?;
    let settings = settings(config)?;
    let restored = Folder::open(&config.folder)?.load::<T>(config.id, &terms)?;
    let rows = Rows::of(&config.folder);
    rows.create()?;
    let engine = Engine::start(settings, terms, restored.memory)?;
    let jobs = plan.jobs().len();
    engine.expect_rounds(plan.experiment.rounds * jobs as u64);
    let may_stop = config.conduct.stop.is_some();
    let mut keeper = Keeper::new(engine, plan, rows, config.conduct.snapshots, may_stop);
    let first = restored.state.as_ref().map_or(0, |state| state.job);
    let (mut state, mut mark) = (restored.state, Mark::default());
    for index in first..jobs {
        mark = work_on(plan, config, index, state.take(), mark, &mut keeper)?;
    }
    let departure = keeper.engine.leave()?;
    if !departure.unconfirmed.is_empty() {
        tracing::warn!(
            "leaving, though agents {:?} have not said that they have everything: if one of them waits for this agent, \
             start it once more",
            departure.unconfirmed
        );
    }
    tracing::info!("all done");
    Ok(())
}

/// Does one job, from its start after `mark` or from a state of it. Returns the mark of its end.
fn work_on<T: Scalar>(
    plan: &Plan,
    config: &AgentConfig,
    index: usize,
    state: Option<State<T>>,
    mark: Mark,
    keeper: &mut Keeper<T>,
) -> anyhow::Result<Mark> {
    let Job { algorithm, seed } = plan.jobs()[index];
    let problem = plan.problem::<T>(seed)?;
    let method = plan.method(Job { algorithm, seed })?;
    let round = state.as_ref().map(|state| state.progress.round);
    let whence = round.map_or("from its start".into(), |round| format!("from round {round}"));
    let title = name(plan, Job { algorithm, seed });
    tracing::info!("job {} of {}: {title}, {whence}", index + 1, plan.jobs().len());
    let from = match state {
        Some(state) => From::State(state),
        None => From::Start(start(plan, problem.as_dyn(), seed, config.id), mark),
    };
    let tolerance = config.conduct.stop.map(|stop| Tolerance {
        grad_norm_sq: stop.grad_norm_sq,
        consensus_error: stop.consensus_error,
        diameter: diameter(plan.network.graph()),
    });
    let job = agent::Job {
        index,
        agent: config.id,
        problem: problem.as_dyn(),
        network: &plan.network,
        method: &*method,
        schedule: &plan.experiment.algorithms[algorithm].schedule,
        seed,
        rounds: plan.experiment.rounds,
        gossip_every: plan.experiment.eval_every,
        tolerance,
    };
    keeper.begin(round);
    let end = agent::work(&job, from, keeper).map_err(anyhow::Error::from_boxed)?;
    Ok(end.mark)
}

/// This agent's starting point.
fn start<T: Scalar>(
    plan: &Plan,
    problem: &dyn mile::problems::Problem<T>,
    seed: u64,
    agent: usize,
) -> Vec<T> {
    let mut rows = plan.start(problem, seed);
    let dim = problem.dim();
    if rows.len() > dim {
        rows.drain(..agent * dim);
        rows.truncate(dim);
    }
    rows
}

fn terms(plan: &Plan, config: &AgentConfig) -> Result<Terms, LabError> {
    let mut facts = plan.facts(config.id)?;
    for (key, limit) in config.conduct.stop.into_iter().flat_map(|stop| stop.facts()) {
        facts.insert(format!("agent.stop.{key}"), limit.to_string());
    }
    Ok(Terms {
        run: plan.experiment.name.clone(),
        dim: plan.dim,
        precision: plan.precision().to_owned(),
        facts,
    })
}

fn settings(config: &AgentConfig) -> anyhow::Result<Settings> {
    let conduct = &config.conduct;
    let peer = |(k, (id, neighbour)): (usize, (&usize, &NeighbourConfig))| {
        let key = neighbour.key.parse().map_err(|error| {
            let problem = format!("got \"{}\" ({error}), takes what mile keygen printed", neighbour.key);
            LabError::config(format!("agent.neighbour[{k}].key"), problem)
        })?;
        Ok((*id, Peer { key, weight: neighbour.weight, addresses: neighbour.addresses.clone() }))
    };
    let neighbours: Result<BTreeMap<usize, Peer>, LabError> =
        config.neighbours.iter().enumerate().map(peer).collect();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Settings {
        me: config.id,
        key: keys::read(&config.key)?,
        listen: config.listen,
        neighbours: neighbours?,
        relay: conduct.relay.clone(),
        missing: match conduct.on_missing {
            OnMissing::Wait => Missing::Wait,
            OnMissing::SkipEdge { deadline } => Missing::Skip { after: millis(deadline) },
        },
        timeout: conduct.timeout,
        linger: conduct.linger,
        folder: config.folder.clone(),
        checkpoint_every: conduct.checkpoint_every,
        status: Some(socket::place(&config.folder)?),
        metrics: conduct.metrics,
    })
}

/// Hops between the two agents farthest apart.
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
