//! The handshake of a link: two neighbours check that they are in the same run, and say what they need.

use mile_store::facts::{Difference, Facts, difference};
use serde::{Deserialize, Serialize};

/// Version of the protocol; another one is refused.
pub const VERSION: u32 = 4;

/// A position in a run: how many exchanges and rounds are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mark {
    /// Exchanges since the run began, over all its jobs.
    pub exchange: u64,
    /// Rounds since the run began, over all its jobs.
    pub round: u64,
}

/// What all agents of a run must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Name of the run.
    pub run: String,
    /// Dimension of the variable.
    pub dim: usize,
    /// Precision of the vectors.
    pub precision: String,
    /// Everything else that the results depend on, by the name it has for the user: `algorithm.mile.xi`, `seeds`, ...
    pub facts: Facts,
}

impl Terms {
    /// The first difference between two runs: its name, its value here, its value there.
    pub fn differs(&self, other: &Self) -> Option<(String, String, String)> {
        let whole = |terms: &Self| {
            let Self { run, dim, precision, .. } = terms;
            [
                ("the run", run.clone()),
                ("the dimension", dim.to_string()),
                ("the precision", precision.clone()),
            ]
        };
        for ((name, here), (_, there)) in whole(self).into_iter().zip(whole(other)) {
            if here != there {
                return Some((name.into(), here, there));
            }
        }
        let Difference { key, old, new } = difference(&self.facts, &other.facts)?;
        Some((key, old, new))
    }
}

/// The first frame on a link, sent by both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Version of the protocol.
    pub version: u32,
    /// Id of the sender.
    pub from: usize,
    /// Id of the agent it is meant for.
    pub to: usize,
    /// How often the sender has been started.
    pub incarnation: u64,
    /// The run it takes part in.
    pub terms: Terms,
    /// The weight it gives to this edge.
    pub weight: f64,
    /// Whether it may skip this edge by agreement.
    pub skips: bool,
    /// Rounds from one of its checkpoints to the next: it confirms messages as often.
    pub checkpoint_every: u64,
    /// Most rounds of messages that it keeps for an end that has not confirmed them.
    pub outbox: u64,
    /// Its latest checkpoint: it will not ask for earlier messages.
    pub durable: Mark,
    /// The exchange whose message it needs first.
    pub exchange: u64,
    /// From which element of that message on.
    pub offset: u64,
}

/// Why two agents cannot work together; both learn the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

impl Hello {
    /// What is sent.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the HELLO that agent `them` has sent to agent `me`. That of another version of the protocol is refused as such,
    /// whatever else it says.
    pub fn read(me: usize, them: usize, bytes: &[u8]) -> Result<Self, Mismatch> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unreadable = |error| Mismatch(format!("an unreadable HELLO: {error}"));
        let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version != VERSION {
            return Err(Mismatch(format!(
                "the protocol version differs: {VERSION} at agent {me}, {version} at agent {them}; use the same release of mile"
            )));
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }

    /// Compares the HELLO of the other end with that of this end (`self`). A difference is named with both values.
    pub fn check(&self, theirs: &Self) -> Result<(), Mismatch> {
        let (me, them) = (self.from, theirs.from);
        let differ = |what: &str, mine: &dyn std::fmt::Display, yours: &dyn std::fmt::Display| {
            Err(Mismatch(format!("{what} differs: {mine} at agent {me}, {yours} at agent {them}")))
        };
        if self.version != theirs.version {
            return differ("the protocol version", &self.version, &theirs.version);
        }
        if theirs.to != me || self.to != them {
            return Err(Mismatch(format!(
                "a key in the wrong role: agent {me} lists this key as agent {}, but its owner says it is agent {them} and expects agent {}; check the ids and keys of both",
                self.to, theirs.to
            )));
        }
        if let Some((what, here, there)) = self.terms.differs(&theirs.terms) {
            return differ(&what, &here, &there);
        }
        if self.weight.to_bits() != theirs.weight.to_bits() {
            return differ(&format!("the weight of the edge {me}-{them}"), &self.weight, &theirs.weight);
        }
        if self.skips != theirs.skips {
            return differ("on_missing", &on_missing(self.skips), &on_missing(theirs.skips));
        }
        // One end can be a round ahead of the other, and a confirmation is on its way for a while.
        for (keeps, saves) in [(self, theirs), (theirs, self)] {
            if saves.checkpoint_every.saturating_add(2) > keeps.outbox {
                return Err(Mismatch(format!(
                    "agent {} confirms messages every {} rounds (checkpoint_every), but agent {} keeps them for at most {} (outbox); \
                     the outbox must be larger by at least 2",
                    saves.from, saves.checkpoint_every, keeps.from, keeps.outbox
                )));
            }
        }
        Ok(())
    }
}

fn on_missing(skips: bool) -> &'static str {
    if skips { "skip-edge" } else { "wait" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(from: usize, to: usize) -> Hello {
        Hello {
            version: VERSION,
            from,
            to,
            incarnation: 1,
            terms: Terms {
                run: "ring".into(),
                dim: 10,
                precision: "f32".into(),
                facts: Facts::from([("algorithm.mile.step_size".into(), "0.1".into())]),
            },
            weight: 1.0 / 3.0,
            skips: false,
            checkpoint_every: 1,
            outbox: 64,
            durable: Mark::default(),
            exchange: 0,
            offset: 0,
        }
    }

    #[test]
    fn whatever_differs_is_named_with_both_values() {
        let mine = hello(0, 1);
        mine.check(&hello(1, 0)).unwrap();
        let refused = |change: &dyn Fn(&mut Hello)| {
            let mut theirs = hello(1, 0);
            change(&mut theirs);
            mine.check(&theirs).unwrap_err().to_string()
        };
        let names = |text: String, names: &[&str]| {
            assert!(names.iter().all(|name| text.contains(name)), "{text} does not name {names:?}");
        };
        names(refused(&|hello| hello.terms.run = "torus".into()), &["ring", "torus"]);
        let step = |hello: &mut Hello| {
            hello.terms.facts.insert("algorithm.mile.step_size".into(), "0.2".into());
        };
        names(refused(&step), &["algorithm.mile.step_size", "0.1", "0.2"]);
        let more = |hello: &mut Hello| {
            hello.terms.facts.insert("algorithm.led.beta".into(), "0.5".into());
        };
        names(refused(&more), &["algorithm.led.beta", "0.5"]);
        names(refused(&|hello| hello.terms.dim = 11), &["dimension", "11"]);
        names(refused(&|hello| hello.terms.precision = "f64".into()), &["precision", "f64"]);
        names(refused(&|hello| hello.weight = 0.3), &["0-1", "0.3"]);
        names(refused(&|hello| hello.from = 2), &["agent 2"]);
        names(refused(&|hello| hello.to = 2), &["agent 2"]);
        names(refused(&|hello| hello.version += 1), &["version"]);
        names(refused(&|hello| hello.skips = true), &["skip-edge"]);
        names(refused(&|hello| hello.checkpoint_every = 63), &["63", "64"]);
        names(refused(&|hello| hello.outbox = 2), &["2"]);
    }

    #[test]
    fn another_version_is_reported_as_such_whatever_else_it_says() {
        let mut text = serde_json::to_value(hello(1, 0)).unwrap();
        let read = |value: &serde_json::Value| Hello::read(0, 1, value.to_string().as_bytes());
        assert_eq!(read(&text), Ok(hello(1, 0)));
        text["version"] = 1.into();
        text.as_object_mut().unwrap().remove("outbox");
        let refused = read(&text).unwrap_err().to_string();
        assert!(refused.contains("version"), "{refused}");
        text["version"] = VERSION.into();
        assert!(read(&text).unwrap_err().to_string().contains("outbox"));
    }
}
