//! Which samples of its shard an agent sees at a step.

use std::fmt;

use mile::problems::Draw;
use mile::random::{Purpose, stream};
use rand::RngExt;
use rand::seq::SliceRandom;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// How many samples a stochastic gradient takes, and in which order; in an experiment file, `batch = 32`,
/// `batch = { epoch = 32 }` or `batch = "full"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many, drawn uniformly with replacement: independent, unbiased gradients, as theory has them.
    Size(usize),
    /// So many, in passes over the shard in a new random order each, as practice has them. A batch that
    /// reaches the end of a pass goes on with the next.
    Epoch(usize),
    /// The whole shard: exact gradients (of the network with the step's masks, where there is dropout).
    Full,
}

impl Batch {
    /// Writes into `samples` those that `agent`, who owns `shard`, sees at `draw`. `order` is memory for a
    /// permutation of the shard.
    pub(crate) fn choose(
        self,
        shard: &[u32],
        agent: usize,
        draw: Draw,
        samples: &mut Vec<u32>,
        order: &mut Vec<u32>,
    ) {
        samples.clear();
        match self {
            Batch::Full => samples.extend_from_slice(shard),
            Batch::Size(size) => {
                let mut rng = stream(draw.seed, Purpose::Batch, agent as u64, draw.step);
                samples.extend((0..size).map(|_| shard[rng.random_range(0..shard.len())]));
            }
            Batch::Epoch(size) => {
                let (mut at, length) = (draw.step as u128 * size as u128, shard.len() as u128);
                while samples.len() < size {
                    let mut rng = stream(
                        draw.seed,
                        Purpose::Batch,
                        agent as u64,
                        (at / length) as u64,
                    );
                    order.clear();
                    order.extend_from_slice(shard);
                    order.shuffle(&mut rng);
                    let rest = &order[(at % length) as usize..];
                    let taken = &rest[..rest.len().min(size - samples.len())];
                    samples.extend_from_slice(taken);
                    at += taken.len() as u128;
                }
            }
        }
    }

    /// Whether it takes at least one sample.
    pub(crate) fn is_valid(self) -> bool {
        !matches!(self, Batch::Size(0) | Batch::Epoch(0))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EpochTable {
    epoch: usize,
}

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Batch::Size(size) => size.serialize(serializer),
            Batch::Epoch(epoch) => EpochTable { epoch }.serialize(serializer),
            Batch::Full => "full".serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BatchVisitor)
    }
}

struct BatchVisitor;

impl<'de> Visitor<'de> for BatchVisitor {
    type Value = Batch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a number of samples, at least 1, or {{ epoch = number }}, or \"full\""
        )
    }

    fn visit_u64<E: de::Error>(self, size: u64) -> Result<Batch, E> {
        let batch = usize::try_from(size)
            .map(Batch::Size)
            .ok()
            .filter(|batch| batch.is_valid());
        batch.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(size), &self))
    }

    fn visit_i64<E: de::Error>(self, size: i64) -> Result<Batch, E> {
        let positive = u64::try_from(size)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(size), &self))?;
        self.visit_u64(positive)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Batch, E> {
        if word == "full" {
            Ok(Batch::Full)
        } else {
            Err(E::invalid_value(de::Unexpected::Str(word), &self))
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Batch, A::Error> {
        let EpochTable { epoch } = EpochTable::deserialize(MapAccessDeserializer::new(map))?;
        if epoch == 0 {
            return Err(de::Error::invalid_value(de::Unexpected::Unsigned(0), &self));
        }
        Ok(Batch::Epoch(epoch))
    }
}
