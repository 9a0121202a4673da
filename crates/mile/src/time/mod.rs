//! Modelled time: how long a run would take on computers and lines other than those of this machine.
//!
//! A [`TimeModel`] says how long each local step of an agent takes and how long a message takes over an edge, as functions of seed, agent or
//! edge, and number; so modelled times are the same on every machine, with any number of threads, and after a restart. A [`Clock`] turns
//! steps and exchanges into seconds for all agents. A [`Walk`] does so for a whole run of a method, without its vectors, and counts what
//! is sent.
//!
//! Modelled time changes nothing in a run: no bit of a model depends on it.

mod clock;
mod walk;

use std::collections::BTreeMap;
use std::fmt;

use rand::RngExt;

pub use self::clock::Clock;
pub use self::walk::{Costing, Walk};
use crate::random::{Purpose, stream};

/// How a quantity varies from draw to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Constant(f64),
    /// Anything between two values with equal probability.
    Uniform {
        /// The least value.
        from: f64,
        /// The largest value.
        to: f64,
    },
    /// Never less than one value, and with exponentially distributed delays beyond it.
    Exponential {
        /// The least value.
        least: f64,
        /// The mean.
        mean: f64,
    },
    /// What was measured: these values one after the other, then again from the first.
    Trace(Vec<f64>),
}

/// One direction of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Seconds from the last byte sent to the last byte received.
    pub latency: Law,
    /// Bytes per second; infinite if sending takes no time.
    pub bandwidth: Law,
}

/// A message's way over an edge.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transit {
    /// Seconds from the last byte sent to the last byte received.
    pub latency: f64,
    /// Bytes per second.
    pub bandwidth: f64,
}

/// How long computing and communicating take.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeModel {
    steps: Vec<Law>,
    line: Line,
    lines: BTreeMap<(usize, usize), Line>,
}

/// A quantity of a time model that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name}: expected {expected}, got {got}")]
#[non_exhaustive]
pub struct InvalidTime {
    /// The quantity: `step`, `latency` or `bandwidth`.
    pub name: &'static str,
    /// The values allowed.
    pub expected: &'static str,
    /// What was given.
    pub got: String,
}

impl Law {
    /// Draw number `k` of a stream; traces and constants draw nothing.
    fn at(&self, k: u64, random: impl FnOnce() -> f64) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Uniform { from, to } => from + (to - from) * random(),
            Self::Exponential { least, mean } => least - (mean - least) * libm::log1p(-random()),
            Self::Trace(values) => values[(k % values.len() as u64) as usize],
        }
    }

    /// An error unless all draws satisfy a condition that holds between any two values for which it holds.
    fn check(
        &self,
        name: &'static str,
        expected: &'static str,
        holds: fn(f64) -> bool,
    ) -> Result<(), InvalidTime> {
        let valid = match self {
            Self::Constant(value) => holds(*value),
            Self::Uniform { from, to } => holds(*from) && to >= from && to.is_finite(),
            Self::Exponential { least, mean } => holds(*least) && mean >= least && mean.is_finite(),
            Self::Trace(values) => !values.is_empty() && values.iter().all(|value| holds(*value)),
        };
        if valid { Ok(()) } else { Err(InvalidTime { name, expected, got: self.to_string() }) }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "{value}"),
            Self::Uniform { from, to } => write!(f, "from {from} to {to}"),
            Self::Exponential { least, mean } => write!(f, "least {least}, mean {mean}"),
            Self::Trace(values) => {
                let by = |a: &&f64, b: &&f64| a.total_cmp(b);
                match values.iter().min_by(by).zip(values.iter().max_by(by)) {
                    Some((least, largest)) => write!(f, "a trace from {least} to {largest}"),
                    None => write!(f, "an empty trace"),
                }
            }
        }
    }
}

impl Line {
    /// A line with a constant latency in seconds and bandwidth in bytes per second.
    pub fn constant(latency: f64, bandwidth: f64) -> Self {
        Self { latency: Law::Constant(latency), bandwidth: Law::Constant(bandwidth) }
    }

    fn check(&self) -> Result<(), InvalidTime> {
        self.latency.check("latency", "seconds, at least 0", |value| value >= 0.0 && value.is_finite())?;
        self.bandwidth.check("bandwidth", "bytes per second, more than 0", |value| value > 0.0)
    }
}

impl Transit {
    /// Seconds for which a message occupies the line: the next one can be sent after that.
    pub fn sending(&self, bytes: f64) -> f64 {
        bytes / self.bandwidth
    }

    /// Seconds until a message has arrived.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.sending(bytes) + self.latency
    }
}

impl TimeModel {
    /// A model with the seconds of a local step for each agent, or once for all, and with lines that are all alike.
    ///
    /// ```
    /// use mile::time::{Law, Line, TimeModel};
    /// let model = TimeModel::new(vec![Law::Constant(0.05)], Line::constant(0.02, 1e6))?;
    /// assert_eq!(model.step_seconds(0, 3, 7), 0.05);
    /// assert_eq!(model.transit(0, (3, 4), 7).seconds(5e5), 0.52);
    /// # Ok::<(), mile::time::InvalidTime>(())
    /// ```
    pub fn new(steps: Vec<Law>, line: Line) -> Result<Self, InvalidTime> {
        let expected = "seconds, at least 0, once or for each agent";
        if steps.is_empty() {
            return Err(InvalidTime { name: "step", expected, got: "none".into() });
        }
        let check = |law: &Law| law.check("step", expected, |value| value >= 0.0 && value.is_finite());
        steps.iter().try_for_each(check)?;
        line.check()?;
        Ok(Self { steps, line, lines: BTreeMap::new() })
    }

    /// With another line from one agent to another.
    pub fn with_line(mut self, from: usize, to: usize, line: Line) -> Result<Self, InvalidTime> {
        line.check()?;
        self.lines.insert((from, to), line);
        Ok(self)
    }

    /// Seconds of an agent's local step number `k`, counted from 0.
    pub fn step_seconds(&self, seed: u64, agent: usize, k: u64) -> f64 {
        self.steps_of(agent).at(k, || stream(seed, Purpose::StepTime, agent as u64, k).random())
    }

    /// How the message of exchange number `k`, counted from 0, crosses from one agent to another.
    pub fn transit(&self, seed: u64, (from, to): (usize, usize), k: u64) -> Transit {
        let Line { latency, bandwidth } = self.line(from, to);
        let edge = (from as u64) << 32 | to as u64;
        let mut random = None;
        let mut draw = || random.get_or_insert_with(|| stream(seed, Purpose::Transit, edge, k)).random();
        Transit { latency: latency.at(k, &mut draw), bandwidth: bandwidth.at(k, &mut draw) }
    }

    fn steps_of(&self, agent: usize) -> &Law {
        if self.steps.len() == 1 { &self.steps[0] } else { &self.steps[agent] }
    }

    fn line(&self, from: usize, to: usize) -> &Line {
        self.lines.get(&(from, to)).unwrap_or(&self.line)
    }
}

#[cfg(test)]
mod tests;
