//! The identity of a run: everything that its result depends on, as [facts](mile_store::facts). Facts are stored with every
//! state, and two agents compare theirs when they connect.
//!
//! A state can be loaded only if all its facts are the same. Facts are about contents: the digest of a file, not its name;
//! the mixing matrix, not the rule that made it. An optional key that is not given has no fact, so that a later version can
//! add keys and still load the states of an earlier one.

use mile::membership::{Change, Membership};
use mile::methods::catalogue::Entry;
use mile::network::Network;
use mile::varying::TimeVarying;
use mile_problems::digest;
use mile_store::facts::{self, Difference, until};
use toml::{Table, Value};

use crate::error::LabError;
use crate::objectives::{Fact, Facts, PythonFunction};
use crate::spec::{AlgorithmSpec, Spec, StartSpec, TimeSpec, attack_table, event_table};

/// Length above which a value is replaced by its digest.
const MAX_VALUE: usize = 400;
/// Total length above which all facts are replaced by one digest: they must fit into the first frame of a connection.
const MAX_TOTAL: usize = 48 << 10;

/// What all jobs of an experiment depend on, except for algorithm and seed.
pub(crate) fn of_experiment(spec: &Spec, membership: &Membership, dim: usize) -> Result<Facts, LabError> {
    let network = &membership.epochs()[0].network;
    let mut facts = of_problem(spec);
    facts.extend(of_start(spec)?);
    facts.extend(of_events(spec));
    facts.extend(of_networks(spec, membership));
    facts.insert("precision".into(), spec.precision.name().into());
    facts.insert("problem.dimension".into(), dim.to_string().into());
    if network.drop_rate() > 0.0 {
        facts.insert("network.drop_rate".into(), network.drop_rate().to_string().into());
    }
    let written = spec.network.to_table();
    for key in ["bursts", "absence"] {
        written.get(key).into_iter().for_each(|value| leaves(format!("network.{key}"), value, 0, &mut facts));
    }
    if let Some(attack) = &spec.attack {
        leaves("attack".into(), &attack_table(attack).into(), 0, &mut facts);
    }
    if let Some(varying) = network.time_varying() {
        facts.insert("network.time_varying".into(), time_varying(varying).into());
    }
    for (key, fact) in spec.objectives.digests()? {
        let joins = fact.agent.and_then(|agent| round_of_joining(spec, agent));
        facts.insert(key, fact.since(joins.unwrap_or(0)));
    }
    Ok(facts)
}

/// What one algorithm's result depends on: its name, step sizes and resolved parameters.
pub(crate) fn of_algorithm(algorithm: &AlgorithmSpec, parameters: &[(&'static str, String)]) -> Facts {
    let mut written = algorithm.to_table();
    let mut facts = of_changes("algorithm", algorithm, &mut written);
    for key in ["name", "step_size", "schedule"] {
        written
            .get(key)
            .into_iter()
            .for_each(|value| leaves(format!("algorithm.{key}"), value, 0, &mut facts));
    }
    let parameters =
        parameters.iter().map(|(name, value)| (format!("algorithm.{name}"), value.as_str().into()));
    facts.extend(parameters);
    facts
}

/// The facts of a user-defined method, which replace its name.
pub(crate) fn add_own_method(facts: &mut Facts, entry: &Entry) {
    if !entry.facts.is_empty() {
        facts.remove("algorithm.name");
        facts.extend(
            entry.facts.iter().map(|(key, value)| (format!("algorithm.{key}"), value.as_str().into())),
        );
    }
}

/// What a method in a file depends on: digests of the file and of those it needs, and what it is made with.
pub(crate) fn of_factory(path: &str, algorithm: &AlgorithmSpec) -> Result<Facts, LabError> {
    let Some(factory) = &algorithm.factory else { return Ok(Facts::new()) };
    let mut found = factory.shared_digests(path)?;
    leaves(format!("{path}.arguments"), &factory.arguments.clone().into(), 0, &mut found);
    Ok(found)
}

/// The model of time, where it decides who exchanges with whom.
pub(crate) fn of_time(time: &TimeSpec) -> Facts {
    let mut facts = written("time", &time.to_table());
    for fact in facts.values_mut().filter(|fact| fact.value.len() > MAX_VALUE) {
        fact.value = digest::of_bytes(fact.value.as_bytes());
    }
    facts
}

/// What the agents of a swarm must agree on: the whole experiment, and the facts that `agent`'s own data must share with
/// those of its neighbours. Names and paths may differ between machines.
pub(crate) fn for_agents(spec: &Spec, membership: &Membership, agent: usize) -> Result<Facts, LabError> {
    let mut table = spec.to_table();
    let mut found = Facts::new();
    for key in ["name", "problem", "start", "event", "time"] {
        table.remove(key);
    }
    let varying = membership.epochs()[0].network.time_varying();
    if let Some(network) = table.get_mut("network").and_then(Value::as_table_mut) {
        network.retain(|key, _| key != "edges" && key != "matrix");
        // The graphs of the rounds, which may be in files: by what is in them.
        if let (Some(written), Some(varying)) = (network.get_mut("time_varying"), varying)
            && !written.is_str()
        {
            *written = time_varying(varying).into();
        }
    }
    let written = table.get_mut("algorithm").and_then(Value::as_array_mut).into_iter().flatten();
    let written = written.filter_map(Value::as_table_mut);
    for (k, (algorithm, written)) in spec.algorithms.iter().zip(written).enumerate() {
        let path = format!("algorithm[{k}]");
        found.extend(of_changes(&path, algorithm, written));
        PythonFunction::PATH_KEYS.iter().for_each(|key| drop(written.remove(*key)));
        found.extend(of_factory(&path, algorithm)?);
    }
    leaves(String::new(), &Value::Table(table), 0, &mut found);
    found.extend(of_problem(spec));
    found.extend(of_start(spec)?);
    found.extend(of_events(spec));
    found.extend(of_networks(spec, membership));
    found.extend(spec.objectives.shared_facts(agent)?);
    for fact in found.values_mut().filter(|fact| fact.value.len() > MAX_VALUE) {
        fact.value = digest::of_bytes(fact.value.as_bytes());
    }
    if found.iter().map(|(key, fact)| key.len() + fact.value.len() + 8).sum::<usize>() > MAX_TOTAL {
        let all = digest::of_bytes(format!("{found:?}").as_bytes());
        found = Facts::from([("the experiment".into(), all.into())]);
    }
    Ok(found)
}

/// The section `[problem]` without paths, whose contents have digests.
fn of_problem(spec: &Spec) -> Facts {
    let mut section = spec.to_table().remove("problem").unwrap_or(Value::Table(Table::new()));
    if let Value::Table(section) = &mut section {
        section.retain(|key, _| spec.objectives.path_keys().iter().all(|path| key != *path));
    }
    let mut found = Facts::new();
    leaves("problem".into(), &section, 0, &mut found);
    found
}

/// Where agents start: a word, or the contents of a file.
fn of_start(spec: &Spec) -> Result<Facts, LabError> {
    let mut found = Facts::new();
    match &spec.start {
        StartSpec::File(path) => drop(found.insert("start.file".into(), digest::of_file(path)?.into())),
        word => leaves("start".into(), &word.to_table().into(), 0, &mut found),
    }
    Ok(found)
}

/// What happens to agents, each since its round.
fn of_events(spec: &Spec) -> Facts {
    let mut found = Facts::new();
    for (k, event) in spec.events.iter().enumerate() {
        leaves(format!("event[{k}]"), &event_table(event).into(), event.round, &mut found);
    }
    found
}

/// The later step sizes of an algorithm, each since its round. They are taken out of its table.
fn of_changes(path: &str, algorithm: &AlgorithmSpec, written: &mut Table) -> Facts {
    let mut found = Facts::new();
    if let Some(Value::Array(changes)) = written.remove("change") {
        for (k, (change, value)) in algorithm.schedule.changes.iter().zip(changes).enumerate() {
            leaves(format!("{path}.change[{k}]"), &value, change.round, &mut found);
        }
    }
    found
}

/// The weights of all networks, and the number of agents among which data are divided that might join later.
fn of_networks(spec: &Spec, membership: &Membership) -> Facts {
    let epochs = membership.epochs();
    let mut found = Facts::from([("network.weights".into(), weights(&epochs[0].network).into())]);
    for (k, pair) in epochs.windows(2).enumerate().filter(|(_, pair)| pair[0].members != pair[1].members) {
        let fact = Fact::from(weights(&pair[1].network)).since(pair[1].round);
        found.insert(format!("event[{k}].weights"), fact);
    }
    if membership.numbers() > spec.network.agents && spec.objectives.are_divided() {
        found.insert("problem.agents".into(), membership.numbers().to_string().into());
    }
    found
}

/// The round in which an agent joins, if it was not there from the start.
fn round_of_joining(spec: &Spec, agent: usize) -> Option<u64> {
    let joins = spec.events.iter().find(|event| match event.change {
        Change::Join { agent: joining, .. } => joining == agent,
        _ => false,
    });
    joins.map(|event| event.round)
}

/// A digest of graph and mixing matrix.
fn weights(network: &Network) -> String {
    let rows = network.mixing().rows();
    let row = |i: usize| rows.row(i).iter().map(move |(j, w)| (i, *j, w.to_bits()));
    digest::of_bytes(format!("{:?}", (0..rows.rows()).flat_map(row).collect::<Vec<_>>()).as_bytes())
}

/// The name of a time-varying graph, and a digest of its edges.
fn time_varying(varying: &TimeVarying) -> String {
    match varying {
        TimeVarying::InTurn(graphs) => {
            let edges: Vec<Vec<_>> = graphs.iter().map(|graph| graph.edges().collect()).collect();
            format!("{varying}, {}", digest::of_bytes(format!("{edges:?}").as_bytes()))
        }
        TimeVarying::WeightedInTurn(graphs) => {
            let bits = |(i, j, w): (usize, usize, f64)| (i, j, w.to_bits());
            let edges: Vec<Vec<_>> = graphs.iter().map(|graph| graph.edges().map(bits).collect()).collect();
            format!("{varying}, {}", digest::of_bytes(format!("{edges:?}").as_bytes()))
        }
        _ => varying.to_string(),
    }
}

/// How a run is evaluated does not change its states.
const EVALUATION_KEYS: [&str; 2] = ["problem.eval_samples", "problem.test_samples"];

/// The first fact that differs, except for how a run is evaluated.
pub(crate) fn difference(old: &Facts, new: &Facts) -> Option<Difference> {
    let states = |facts: &Facts| {
        let mut facts = facts.clone();
        EVALUATION_KEYS.iter().for_each(|key| drop(facts.remove(*key)));
        facts
    };
    facts::difference(&states(old), &states(new))
}

/// The first fact that differs between what an agent's state belongs to and what it is given now, except for what may be changed
/// between two starts: how often it is evaluated, more rounds, and changes of schedules in rounds not yet run.
pub(crate) fn changed_for_agent(
    old: &Facts,
    new: &Facts,
    round: u64,
    rounds: u64,
    is_only_job: bool,
) -> Option<Difference> {
    let prepare = |facts: &Facts| {
        let mut facts = if is_only_job { until(facts, round) } else { facts.clone() };
        facts.remove("eval_every");
        if is_only_job && rounds >= round {
            facts.remove("rounds");
        }
        facts
    };
    difference(&prepare(old), &prepare(new))
}

/// The first fact that differs, where the old facts are those of one agent, which has only its own data.
pub(crate) fn difference_for_agent(old: &Facts, new: &Facts) -> Option<Difference> {
    let mut new = new.clone();
    new.retain(|key, fact| old.contains_key(key) || fact.agent.is_none());
    difference(old, &new)
}

/// The first fact in which two agents differ, each of which has only its own data.
pub(crate) fn difference_between_agents(one: &Facts, other: &Facts) -> Option<Difference> {
    let shared = |facts: &Facts| -> Facts {
        let shared = facts.iter().filter(|(_, fact)| fact.agent.is_none());
        shared.map(|(key, fact)| (key.clone(), fact.clone())).collect()
    };
    difference(&shared(one), &shared(other))
}

/// The first key in which a swarm's experiment differs from the one it was started with, except for what its agents may be given
/// later: each of them checks that for itself.
pub(crate) fn changed_for_swarm(old: &Spec, new: &Spec) -> Option<Difference> {
    let mut old = old.clone();
    (old.eval_every, old.events, old.time) = (new.eval_every, new.events.clone(), new.time.clone());
    old.rounds = old.rounds.max(new.rounds);
    for (old, new) in old.algorithms.iter_mut().zip(&new.algorithms) {
        old.schedule.changes.clone_from(&new.schedule.changes);
    }
    difference(&written("", &old.to_table()), &written("", &new.to_table()))
}

/// The first key of `[network]` in which two experiments differ.
pub(crate) fn changed_network(old: &Spec, new: &Spec) -> Option<Difference> {
    difference(&written("network", &old.network.to_table()), &written("network", &new.network.to_table()))
}

/// All values of a table by their paths.
fn written(path: &str, table: &Table) -> Facts {
    let mut found = Facts::new();
    leaves(path.to_owned(), &Value::Table(table.clone()), 0, &mut found);
    found
}

/// Adds all values below a path by their own paths, such as `algorithm[0].step_size`; they matter from a round on.
fn leaves(path: String, value: &Value, since: u64, found: &mut Facts) {
    match value {
        Value::Table(table) => {
            let dot = if path.is_empty() { "" } else { "." };
            table.iter().for_each(|(key, value)| leaves(format!("{path}{dot}{key}"), value, since, found));
        }
        Value::Array(list) if list.iter().any(Value::is_table) => {
            let each = list.iter().enumerate();
            each.for_each(|(k, value)| leaves(format!("{path}[{k}]"), value, since, found));
        }
        Value::String(text) => drop(found.insert(path, Fact::from(text.as_str()).since(since))),
        other => drop(found.insert(path, Fact::from(other.to_string()).since(since))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn spec(text: &str) -> Spec {
        let rest = "[problem]\nkind = 'quadratic'\ndim = 2\n[[algorithm]]\nname = 'mile'\nstep_size = 0.5\n";
        Spec::parse(&format!("{rest}{text}"), Path::new(""), &[]).unwrap()
    }

    fn with_rounds(text: &str, rounds: u64) -> Spec {
        Spec { rounds, ..spec(text) }
    }

    #[test]
    fn values_have_the_names_a_user_gave_them() {
        let found = written("", &spec("").to_table());
        assert_eq!(found["seeds"].value, "[0]");
        assert_eq!(found["network.topology"].value, "ring");
        assert_eq!(found["algorithm[0].step_size"].value, "0.5");
    }

    #[test]
    fn a_swarm_may_be_given_more_rounds_and_later_changes_and_nothing_else() {
        let old = with_rounds("", 30);
        let change = "change = [{ round = 20, step_size = 0.1 }]\n";
        for same in [with_rounds("", 30), with_rounds("", 40), with_rounds(change, 30)] {
            assert_eq!(changed_for_swarm(&old, &same), None);
        }
        let fewer = changed_for_swarm(&old, &with_rounds("", 20)).unwrap();
        assert_eq!((&fewer.key[..], &fewer.old[..], &fewer.new[..]), ("rounds", "30", "20"));
        let other = with_rounds("momentum = 0.5\ngamma = 0.9\n", 30);
        assert_eq!(changed_for_swarm(&old, &other).unwrap().key, "algorithm[0].gamma");
    }

    #[test]
    fn an_agent_is_not_held_to_what_lies_ahead_of_its_state() {
        let facts = |text: &str, rounds: u64| {
            let spec = with_rounds(text, rounds);
            for_agents(&spec, &spec.membership().unwrap(), 0).unwrap()
        };
        let changes = "change = [{ round = 5, step_size = 0.1 }, { round = 9, step_size = 0.2 }]\n\
                       [[event]]\nround = 7\nreplace = 1\n";
        let (before, now) = (facts("", 10), facts(changes, 20));
        assert_eq!(changed_for_agent(&before, &now, 5, 20, true), None);
        let changed = changed_for_agent(&before, &now, 6, 20, true).unwrap();
        assert_eq!(changed.key, "algorithm[0].change[0].round");
        let fewer = changed_for_agent(&before, &now, 30, 20, true).unwrap();
        assert!(["rounds", "algorithm[0].change[0].round"].contains(&&fewer.key[..]), "{fewer:?}");
        assert!(changed_for_agent(&before, &now, 5, 20, false).is_some(), "several jobs");
    }

    #[test]
    fn a_parameter_that_is_not_given_has_no_fact() {
        use mile::methods::catalogue::Parameters;
        let algorithm = &spec("label = 'm'\nxi = 'paper'").algorithms[0];
        let parameters = Parameters { local_steps: Some(5), xi: Some(0.1.into()), ..Parameters::default() };
        let facts = of_algorithm(algorithm, &parameters.given());
        let keys: Vec<&str> = facts.keys().map(String::as_str).collect();
        let schedule = ["algorithm.schedule.kind", "algorithm.schedule.warmup"];
        let own = ["algorithm.local_steps", "algorithm.name"];
        let rest = ["algorithm.step_size", "algorithm.xi"];
        assert_eq!(keys, [&own[..], &schedule[..], &rest[..]].concat());
        let more = Parameters { gamma: Some(0.9), ..parameters };
        let found = difference(&facts, &of_algorithm(algorithm, &more.given())).unwrap();
        assert_eq!((&found.key[..], &found.old[..], &found.new[..]), ("algorithm.gamma", "absent", "0.9"));
    }

    #[test]
    fn one_agent_does_not_answer_for_the_data_of_others() {
        let data = |agent: usize, digest: &str| {
            (format!("problem.data[{agent}]"), Fact::from(digest).of_agent(agent))
        };
        let precision = || ("precision".to_owned(), Fact::from("f64"));
        let own = Facts::from([precision(), data(1, "b")]);
        let all = Facts::from([precision(), data(0, "a"), data(1, "b"), data(2, "c")]);
        assert_eq!(difference_for_agent(&own, &all), None);
        let changed = Facts::from([precision(), data(0, "a"), data(1, "x")]);
        assert_eq!(difference_for_agent(&own, &changed).unwrap().key, "problem.data[1]");
        assert_eq!(difference_for_agent(&own, &Facts::from([data(1, "b")])).unwrap().key, "precision");
    }
}
