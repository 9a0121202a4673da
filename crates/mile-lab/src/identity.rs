//! The identity of a run: everything that its result depends on, as facts (key and value). Facts are stored with every
//! state, and two agents compare theirs when they connect.
//!
//! A state can be loaded only if all its facts are the same. Facts are about contents: the digest of a file, not its name;
//! the mixing matrix, not the rule that made it. An optional key that is not given has no fact, so that a later version can
//! add keys and still load the states of an earlier one.

use mile::membership::Membership;
use mile::methods::catalogue::Entry;
use mile::network::Network;
use mile::varying::TimeVarying;
use mile_problems::digest;
use toml::{Table, Value};

use crate::config::{Experiment, Start};
use crate::error::LabError;
use crate::objectives::Facts;

/// Keys that may differ between machines, beside the paths of the problem: paths, and the name of the run.
const LOCAL_KEYS: [&str; 3] = ["name", "network.edges", "network.matrix"];

fn remove_local_keys(facts: &mut Facts, experiment: &Experiment) {
    LOCAL_KEYS.iter().for_each(|key| drop(facts.remove(*key)));
    for key in experiment.objectives.path_keys() {
        facts.remove(&format!("problem.{key}"));
    }
}

/// The contents of the file that agents start from, in the place of its name.
fn add_start(facts: &mut Facts, experiment: &Experiment) -> Result<(), LabError> {
    if let Start::File(path) = &experiment.start {
        facts.insert("start.file".into(), digest::of_file(path)?);
    }
    Ok(())
}

/// Length above which a value is replaced by its digest.
const MAX_VALUE: usize = 400;
/// Total length above which all facts are replaced by one digest: they must fit into the first frame of a connection.
const MAX_TOTAL: usize = 48 << 10;

/// What all jobs of an experiment depend on, except for algorithm and seed.
pub(crate) fn of_experiment(
    experiment: &Experiment,
    membership: &Membership,
    dim: usize,
) -> Result<Facts, LabError> {
    let network = &membership.epochs()[0].network;
    let mut facts = leaves(&experiment.resolved);
    facts.retain(|key, _| ["problem.", "start.", "event["].iter().any(|part| key.starts_with(part)));
    remove_local_keys(&mut facts, experiment);
    add_start(&mut facts, experiment)?;
    facts.insert("precision".into(), experiment.precision.name().into());
    facts.insert("problem.dimension".into(), dim.to_string());
    add_networks(&mut facts, experiment, membership);
    if network.drop_rate() > 0.0 {
        facts.insert("network.drop_rate".into(), network.drop_rate().to_string());
    }
    if let Some(varying) = network.time_varying() {
        facts.insert("network.time_varying".into(), time_varying(varying));
    }
    facts.extend(experiment.objectives.digests()?);
    Ok(facts)
}

/// What one algorithm's result depends on: its name, step sizes and resolved parameters.
pub(crate) fn of_algorithm(resolved: &Table, parameters: &[(&'static str, String)]) -> Facts {
    let mut facts = Facts::new();
    let step_sizes = |key: &str| {
        key == "name" || key == "step_size" || key.starts_with("schedule") || key.starts_with("change")
    };
    for (key, value) in leaves(resolved).into_iter().filter(|(key, _)| step_sizes(key)) {
        facts.insert(format!("algorithm.{key}"), value);
    }
    facts.extend(parameters.iter().map(|(name, value)| (format!("algorithm.{name}"), value.clone())));
    facts
}

/// The facts of a method of the user's own, in the place of its name.
pub(crate) fn add_own_method(facts: &mut Facts, entry: &Entry) {
    if !entry.facts.is_empty() {
        facts.remove("algorithm.name");
        facts.extend(entry.facts.iter().map(|(key, value)| (format!("algorithm.{key}"), value.clone())));
    }
}

/// What the agents of a swarm must agree on: the whole experiment, and the facts that `agent`'s own data must share with
/// those of its neighbours.
pub(crate) fn for_agents(
    experiment: &Experiment,
    membership: &Membership,
    agent: usize,
) -> Result<Facts, LabError> {
    let mut facts = leaves(&experiment.resolved);
    remove_local_keys(&mut facts, experiment);
    add_networks(&mut facts, experiment, membership);
    add_start(&mut facts, experiment)?;
    facts.extend(experiment.objectives.shared_facts(agent)?);
    facts.values_mut().filter(|value| value.len() > MAX_VALUE).for_each(|value| {
        *value = digest::of_bytes(value.as_bytes());
    });
    if facts.iter().map(|(key, value)| key.len() + value.len() + 8).sum::<usize>() > MAX_TOTAL {
        let all = digest::of_bytes(format!("{facts:?}").as_bytes());
        facts = Facts::from([("the experiment".into(), all)]);
    }
    Ok(facts)
}

/// The weights of all networks, and the number of agents among which data are divided that might join later.
fn add_networks(facts: &mut Facts, experiment: &Experiment, membership: &Membership) {
    let epochs = membership.epochs();
    facts.insert("network.weights".into(), weights(&epochs[0].network));
    for (k, pair) in epochs.windows(2).enumerate().filter(|(_, pair)| pair[0].members != pair[1].members) {
        facts.insert(format!("event[{k}].weights"), weights(&pair[1].network));
    }
    if membership.numbers() > experiment.network.agents && experiment.objectives.are_divided() {
        facts.insert("problem.agents".into(), membership.numbers().to_string());
    }
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
        _ => varying.to_string(),
    }
}

/// How a run is evaluated does not change its states.
const EVALUATION_KEYS: [&str; 2] = ["problem.eval_samples", "problem.test_samples"];

/// The facts without changes of a schedule and events that a state of `round` rounds has not come to.
pub(crate) fn until(facts: &Facts, round: u64) -> Facts {
    let ahead = |(key, value): (&String, &String)| {
        let change = key
            .strip_suffix(".round")
            .filter(|change| change.contains("change[") || change.starts_with("event["))?;
        (value.parse::<u64>().ok()? >= round).then(|| format!("{change}."))
    };
    let ahead: Vec<String> = facts.iter().filter_map(ahead).collect();
    // The data of agents that have not joined.
    let joins = ahead.iter().filter_map(|event| facts.get(&format!("{event}join")));
    let strangers: Vec<String> = joins.map(|agent| format!("[{agent}]")).collect();
    let of_stranger =
        |key: &String| key.starts_with("problem.") && strangers.iter().any(|agent| key.ends_with(agent));
    let settled = |key: &String| !ahead.iter().any(|change| key.starts_with(change)) && !of_stranger(key);
    facts.iter().filter(|(key, _)| settled(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The first fact that differs between what an agent's state belongs to and what it is given now, except for what may be changed
/// between two starts: how often it is evaluated, more rounds, and changes of schedules that it has not come to.
pub(crate) fn changed_for_agent(
    old: &Facts,
    new: &Facts,
    round: u64,
    rounds: u64,
    is_only_job: bool,
) -> Option<(String, String, String)> {
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

/// The first fact that differs: its key, the old and the new value.
pub(crate) fn difference(old: &Facts, new: &Facts) -> Option<(String, String, String)> {
    let differs = |key: &&String| !EVALUATION_KEYS.contains(&key.as_str()) && old.get(*key) != new.get(*key);
    let key = old.keys().chain(new.keys()).find(differs)?;
    let value = |facts: &Facts| facts.get(key).cloned().unwrap_or("absent".into());
    Some((key.clone(), value(old), value(new)))
}

/// The first fact that differs, where the old facts are those of one agent, which has only its own data.
pub(crate) fn difference_for_agent(old: &Facts, new: &Facts) -> Option<(String, String, String)> {
    let is_of_others = |key: &str| key.starts_with("problem.") && key.ends_with(']');
    let known = |key: &String| old.contains_key(key) || !is_of_others(key);
    let new = new.iter().filter(|(key, _)| known(key)).map(|(key, value)| (key.clone(), value.clone()));
    difference(old, &new.collect())
}

/// The first key in which a swarm's experiment differs from the one it was started with, except for what its agents may be given
/// anew: each of them checks that for itself.
pub(crate) fn changed_for_swarm(old: &Table, new: &Table) -> Option<(String, String, String)> {
    let rounds = |table: &Table| table.get("rounds").and_then(Value::as_integer);
    let more = rounds(old) <= rounds(new);
    let prepare = |table: &Table| {
        let mut facts = leaves(table);
        let may_change = |key: &str| {
            key == "eval_every"
                || key.contains(".change[")
                || key.starts_with("event[")
                || (more && key == "rounds")
        };
        facts.retain(|key, _| !may_change(key));
        facts
    };
    difference(&prepare(old), &prepare(new))
}

/// The first key of a section in which two resolved experiments differ: its path, the old and the new value.
pub(crate) fn changed_key_of(section: &str, old: &Table, new: &Table) -> Option<(String, String, String)> {
    let only = |table: &Table| {
        let mut facts = leaves(table);
        facts.retain(|key, _| key.starts_with(&format!("{section}.")));
        facts
    };
    difference(&only(old), &only(new))
}

/// All values of a table by their paths, such as `algorithm[0].step_size`.
fn leaves(table: &Table) -> Facts {
    fn walk(path: &str, value: &Value, leaves: &mut Facts) {
        match value {
            Value::Table(table) => {
                let dot = if path.is_empty() { "" } else { "." };
                table.iter().for_each(|(key, value)| walk(&format!("{path}{dot}{key}"), value, leaves));
            }
            Value::Array(list) if list.iter().any(Value::is_table) => {
                let each = list.iter().enumerate();
                each.for_each(|(k, value)| walk(&format!("{path}[{k}]"), value, leaves));
            }
            Value::String(text) => drop(leaves.insert(path.to_owned(), text.clone())),
            other => drop(leaves.insert(path.to_owned(), other.to_string())),
        }
    }
    let mut found = Facts::new();
    walk("", &Value::Table(table.clone()), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_have_the_names_a_user_gave_them() {
        let table: Table =
            "rounds = 3\nseeds = [0, 1]\n[network]\ntopology = 'ring'\n[[algorithm]]\nstep_size = 0.5"
                .parse()
                .unwrap();
        let found = leaves(&table);
        assert_eq!(found["seeds"], "[0, 1]");
        assert_eq!(found["network.topology"], "ring");
        assert_eq!(found["algorithm[0].step_size"], "0.5");
        let mut other = table.clone();
        assert_eq!(changed_for_swarm(&table, &other), None);
        other.insert("rounds".into(), Value::Integer(4));
        assert_eq!(changed_for_swarm(&table, &other), None, "more rounds");
        other.insert("rounds".into(), Value::Integer(2));
        assert_eq!(changed_for_swarm(&table, &other), Some(("rounds".into(), "3".into(), "2".into())));
    }

    #[test]
    fn what_lies_ahead_of_a_state_is_no_fact_about_it_and_what_lies_behind_is() {
        let facts = |entries: &[(&str, &str)]| -> Facts {
            entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        let whole = facts(&[
            ("algorithm.change[0].round", "5"),
            ("algorithm.change[0].step_size", "0.1"),
            ("algorithm.change[1].round", "9"),
            ("algorithm.change[1].step_size", "0.2"),
            ("event[0].round", "7"),
            ("event[0].replace", "1"),
            ("seed", "0"),
        ]);
        let keys = |round: u64| until(&whole, round).keys().filter(|key| key.ends_with("round")).count();
        assert_eq!([5, 6, 7, 8, 9, 10].map(keys), [0, 1, 1, 2, 2, 3]);
        assert_eq!(until(&whole, 0), facts(&[("seed", "0")]));
        let joins = facts(&[("event[0].round", "7"), ("event[0].join", "3"), ("problem.data[3]", "d")]);
        assert_eq!((until(&joins, 7), until(&joins, 8)), (Facts::new(), joins));
        let before = facts(&[("rounds", "10"), ("eval_every", "2"), ("seed", "0")]);
        let mut now = whole.clone();
        now.extend(facts(&[("rounds", "20"), ("eval_every", "4")]));
        assert_eq!(changed_for_agent(&before, &now, 5, 20, true), None);
        assert_eq!(changed_for_agent(&before, &now, 6, 20, true).unwrap().0, "algorithm.change[0].round");
        assert_eq!(
            changed_for_agent(&before, &now, 30, 20, true).unwrap().0,
            "rounds",
            "fewer than are done"
        );
        assert!(changed_for_agent(&before, &now, 5, 20, false).is_some(), "several jobs");
    }

    #[test]
    fn a_parameter_that_is_not_given_has_no_fact() {
        use mile::methods::catalogue::Parameters;
        let table: Table = "name = 'mile'\nlabel = 'm'\nstep_size = 0.5\nxi = 'paper'".parse().unwrap();
        let parameters = Parameters { local_steps: Some(5), xi: Some(0.1.into()), ..Parameters::default() };
        let facts = of_algorithm(&table, &parameters.given());
        let keys: Vec<&str> = facts.keys().map(String::as_str).collect();
        assert_eq!(keys, ["algorithm.local_steps", "algorithm.name", "algorithm.step_size", "algorithm.xi"]);
        let more = Parameters { gamma: Some(0.9), ..parameters };
        let found = difference(&facts, &of_algorithm(&table, &more.given()));
        assert_eq!(found, Some(("algorithm.gamma".into(), "absent".into(), "0.9".into())));
    }

    #[test]
    fn one_agent_does_not_answer_for_the_data_of_others() {
        let facts = |entries: &[(&str, &str)]| -> Facts {
            entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        let own = facts(&[("precision", "f64"), ("problem.data[1]", "b")]);
        let all = facts(&[
            ("precision", "f64"),
            ("problem.data[0]", "a"),
            ("problem.data[1]", "b"),
            ("problem.test[0]", "c"),
            ("problem.inputs[0]", "d"),
        ]);
        assert_eq!(difference_for_agent(&own, &all), None);
        let changed = facts(&[("precision", "f64"), ("problem.data[0]", "a"), ("problem.data[1]", "x")]);
        assert_eq!(difference_for_agent(&own, &changed).unwrap().0, "problem.data[1]");
        assert_eq!(difference_for_agent(&own, &facts(&[("problem.data[1]", "b")])).unwrap().0, "precision");
    }
}
