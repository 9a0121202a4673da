//! Facts: what the bits of a result depend on, each under a name that its user knows.
//!
//! A state carries its facts, and two agents compare theirs when they connect. A fact also says since which round it matters and whose
//! data it concerns, so that a state of 100 rounds is not held to what happens in round 200.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Facts by their names, such as `algorithm.xi` or `problem.data[3]`.
pub type Facts = BTreeMap<String, Fact>;

/// One thing that a result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
#[non_exhaustive]
pub struct Fact {
    /// Its value as text; different values have different texts.
    pub value: String,
    /// The rounds of a state on which it has no influence: 0 if it matters from the start.
    pub since: u64,
    /// The agent whose own data it concerns, which other agents do not know.
    pub agent: Option<usize>,
}

/// A plain fact is written as its value.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Plain(String),
    Whole {
        value: String,
        #[serde(default, skip_serializing_if = "is_zero")]
        since: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<usize>,
    },
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<Written> for Fact {
    fn from(written: Written) -> Self {
        match written {
            Written::Plain(value) => value.into(),
            Written::Whole { value, since, agent } => Self { value, since, agent },
        }
    }
}

impl From<Fact> for Written {
    fn from(Fact { value, since, agent }: Fact) -> Self {
        if since == 0 && agent.is_none() { Self::Plain(value) } else { Self::Whole { value, since, agent } }
    }
}

impl<S: Into<String>> From<S> for Fact {
    fn from(value: S) -> Self {
        Self { value: value.into(), since: 0, agent: None }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl Fact {
    /// The same, about one agent's data.
    pub fn of_agent(mut self, agent: usize) -> Self {
        self.agent = Some(agent);
        self
    }

    /// The same, without influence on states of at most this many rounds.
    pub fn since(mut self, round: u64) -> Self {
        self.since = round;
        self
    }

    fn matters_to(&self, round: u64) -> bool {
        self.since == 0 || self.since < round
    }
}

/// A fact that differs: its name, and its values, `absent` where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub key: String,
    /// Its value before.
    pub old: String,
    /// Its value now.
    pub new: String,
}

/// The facts that matter to a state of `round` rounds.
pub fn until(facts: &Facts, round: u64) -> Facts {
    let matter = facts.iter().filter(|(_, fact)| fact.matters_to(round));
    matter.map(|(key, fact)| (key.clone(), fact.clone())).collect()
}

/// The first fact whose value differs.
pub fn difference(old: &Facts, new: &Facts) -> Option<Difference> {
    let text = |facts: &Facts, key: &String| facts.get(key).map(|fact| fact.value.clone());
    let key = old.keys().chain(new.keys()).find(|key| text(old, key) != text(new, key))?;
    let shown = |facts: &Facts| text(facts, key).unwrap_or("absent".into());
    Some(Difference { key: key.clone(), old: shown(old), new: shown(new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_ahead_of_a_state_is_not_a_fact_about_it_but_what_lies_behind_is() {
        let facts = Facts::from([
            ("seed".into(), "0".into()),
            ("event[0].leave".into(), Fact::from("1").since(7)),
            ("problem.data[3]".into(), Fact::from("d").of_agent(3).since(9)),
        ]);
        assert_eq!([0, 7, 8, 9, 10].map(|round| until(&facts, round).len()), [1, 1, 2, 2, 3]);
        let differs = difference(&until(&facts, 8), &until(&facts, 7)).unwrap();
        assert_eq!((&differs.key[..], &differs.old[..], &differs.new[..]), ("event[0].leave", "1", "absent"));
    }

    #[test]
    fn facts_are_read_as_they_were_written_and_plain_ones_are_texts() {
        let facts = Facts::from([
            ("plain".into(), "0.1".into()),
            ("later".into(), Fact::from("x").since(3)),
            ("own".into(), Fact::from("y").of_agent(0)),
        ]);
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), facts);
        assert!(text.contains(r#""plain":"0.1""#), "{text}");
    }
}
