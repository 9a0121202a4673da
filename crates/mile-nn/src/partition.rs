//! Partitions of labelled samples among agents, IID and heterogeneous (non-IID).
//!
//! Every partition gives each sample to exactly one agent and is a function of the labels, the
//! number of agents and the seed. References: Dirichlet split, Hsu, Qi & Brown 2019
//! (arXiv:1909.06335); shards, McMahan et al. 2017 (arXiv:1602.05629); label quantity, Li et al. 2022
//! (arXiv:2102.02079), here with the classes spread as evenly over the agents as possible.

use mile::random::{Purpose, stream};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Gamma};
use serde::{Deserialize, Serialize};

/// Most attempts at a partition in which every agent has samples.
pub const MAX_DRAWS: u64 = 100;

/// A rule that partitions samples among agents; in an experiment file, `partition = { kind = ... }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Partition {
    /// Shuffled and divided evenly: every agent has the same distribution.
    Iid {},
    /// Each class is split by proportions drawn from Dirichlet(alpha, ..., alpha).
    Dirichlet {
        /// Concentration: the smaller, the more heterogeneous; the paper uses 1.
        alpha: f64,
    },
    /// Sorted by label and cut into equal shards; each agent gets `per_agent` of them at random.
    Shards {
        /// Number of shards per agent.
        per_agent: usize,
    },
    /// Each agent has samples of a fixed number of classes; a class is divided evenly among its agents.
    LabelQuantity {
        /// Number of classes per agent.
        classes: usize,
    },
}

/// Why samples could not be partitioned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// The number of agents is 0.
    #[error("expected at least one agent for a partition, got 0")]
    NoAgents,
    /// Fewer samples than agents.
    #[error("{samples} samples cannot be divided among {agents} agents; use fewer agents")]
    TooFewSamples {
        /// Number of samples.
        samples: usize,
        /// Number of agents.
        agents: usize,
    },
    /// A label is not below the number of classes.
    #[error("expected labels from 0 to {}, got {label} for sample {index} (there are {classes} classes)", .classes.saturating_sub(1))]
    LabelOutOfRange {
        /// Index of the sample.
        index: usize,
        /// Its label.
        label: u8,
        /// Number of classes.
        classes: usize,
    },
    /// The concentration alpha is not positive and finite.
    #[error("alpha: expected a finite number above 0, got {alpha}")]
    InvalidAlpha {
        /// The value given.
        alpha: f64,
    },
    /// The number of shards per agent is 0, or there are more shards than samples.
    #[error(
        "per_agent: expected at least 1, and at most {samples} shards for all {agents} agents together, one per \
         sample, got {per_agent}"
    )]
    InvalidShards {
        /// The value given.
        per_agent: usize,
        /// Number of agents.
        agents: usize,
        /// Number of samples.
        samples: usize,
    },
    /// The number of classes per agent is too small to cover all classes, or too large.
    #[error(
        "classes: expected at least {least}, so that {agents} agents cover all {classes} classes, and at most \
         {classes}, got {given}"
    )]
    InvalidClasses {
        /// The value given.
        given: usize,
        /// The smallest number that covers all classes.
        least: usize,
        /// Number of agents.
        agents: usize,
        /// Number of classes.
        classes: usize,
    },
    /// In every draw some agent has no samples.
    #[error(
        "in each of {draws} draws some agent has no samples (in the last one agent {agent}); use fewer agents, a \
         larger alpha or more classes per agent"
    )]
    EmptyAgent {
        /// The first agent without samples in the last draw.
        agent: usize,
        /// Number of draws.
        draws: u64,
    },
}

impl Partition {
    /// An error if a parameter is out of range for any data.
    pub fn validate(&self) -> Result<(), PartitionError> {
        match *self {
            Partition::Dirichlet { alpha } if !(alpha.is_finite() && alpha > 0.0) => {
                Err(PartitionError::InvalidAlpha { alpha })
            }
            _ => Ok(()),
        }
    }

    /// The sample indices of each agent, in increasing order.
    ///
    /// ```
    /// use mile_nn::partition::Partition;
    /// let labels: Vec<u8> = (0..100).map(|i| i % 10).collect();
    /// let agents = Partition::Dirichlet { alpha: 1.0 }.split(&labels, 10, 4, 0)?;
    /// assert_eq!(agents.iter().map(Vec::len).sum::<usize>(), 100);
    /// # Ok::<(), mile_nn::partition::PartitionError>(())
    /// ```
    pub fn split(
        &self,
        labels: &[u8],
        classes: usize,
        agents: usize,
        seed: u64,
    ) -> Result<Vec<Vec<u32>>, PartitionError> {
        self.validate()?;
        if agents == 0 {
            return Err(PartitionError::NoAgents);
        }
        if labels.len() < agents {
            return Err(PartitionError::TooFewSamples { samples: labels.len(), agents });
        }
        if let Some(index) = labels.iter().position(|&l| usize::from(l) >= classes) {
            return Err(PartitionError::LabelOutOfRange { index, label: labels[index], classes });
        }
        let mut agent = 0;
        for draw in 0..MAX_DRAWS {
            let mut parts = self.draw(labels, classes, agents, seed, draw)?;
            match parts.iter().position(Vec::is_empty) {
                Some(empty) => agent = empty,
                None => {
                    parts.iter_mut().for_each(|part| part.sort_unstable());
                    return Ok(parts);
                }
            }
        }
        Err(PartitionError::EmptyAgent { agent, draws: MAX_DRAWS })
    }

    /// One random partition; it may leave an agent without samples.
    fn draw(
        &self,
        labels: &[u8],
        classes: usize,
        agents: usize,
        seed: u64,
        draw: u64,
    ) -> Result<Vec<Vec<u32>>, PartitionError> {
        let mut rng = stream(seed, Purpose::Partition, 0, draw);
        match *self {
            Partition::Iid {} => {
                let mut all: Vec<u32> = (0..labels.len() as u32).collect();
                all.shuffle(&mut rng);
                Ok((0..agents).map(|i| even_part(&all, agents, i).to_vec()).collect())
            }
            Partition::Dirichlet { alpha } => {
                Ok(dirichlet(&by_class(labels, classes), agents, alpha, &mut rng))
            }
            Partition::Shards { per_agent } => {
                shards(&by_class(labels, classes), agents, per_agent, &mut rng)
            }
            Partition::LabelQuantity { classes: owned } => {
                label_quantity(by_class(labels, classes), agents, owned, &mut rng)
            }
        }
    }
}

/// Removes a random `fraction` of each agent's samples, rounded to whole samples, and returns all that were
/// removed, in increasing order. An agent keeps at least one sample.
///
/// ```
/// let mut parts = vec![vec![0, 1, 2, 3, 4], vec![5, 6, 7, 8, 9]];
/// let taken = mile_nn::partition::hold_out(&mut parts, 0.2, 0);
/// assert_eq!((parts[0].len(), parts[1].len(), taken.len()), (4, 4, 2));
/// ```
pub fn hold_out(parts: &mut [Vec<u32>], fraction: f64, seed: u64) -> Vec<u32> {
    let mut taken = Vec::new();
    for (part, agent) in parts.iter_mut().zip(1..) {
        // Index 0 is the partition itself.
        part.shuffle(&mut stream(seed, Purpose::Partition, agent, 0));
        let kept = part.len() - (fraction * part.len() as f64).round() as usize;
        taken.extend(part.drain(kept.clamp(1.min(part.len()), part.len())..));
        part.sort_unstable();
    }
    taken.sort_unstable();
    taken
}

/// Number of samples of each class at each agent: `counts[agent][class]`.
pub fn label_counts(parts: &[Vec<u32>], labels: &[u8], classes: usize) -> Vec<Vec<usize>> {
    let count = |part: &Vec<u32>| {
        let mut counts = vec![0; classes];
        part.iter().for_each(|&i| counts[usize::from(labels[i as usize])] += 1);
        counts
    };
    parts.iter().map(count).collect()
}

fn by_class(labels: &[u8], classes: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); classes];
    for (i, &label) in labels.iter().enumerate() {
        members[usize::from(label)].push(i as u32);
    }
    members
}

/// The `i`-th of `parts` consecutive pieces whose lengths differ by at most one.
fn even_part<T>(all: &[T], parts: usize, i: usize) -> &[T] {
    &all[i * all.len() / parts..(i + 1) * all.len() / parts]
}

fn dirichlet(members: &[Vec<u32>], agents: usize, alpha: f64, rng: &mut impl Rng) -> Vec<Vec<u32>> {
    let mut parts = vec![Vec::new(); agents];
    for class in members {
        let mut class = class.clone();
        class.shuffle(rng);
        let proportions = dirichlet_proportions(agents, alpha, rng);
        let (mut cumulative, mut start) = (0.0, 0);
        for (i, (part, p)) in parts.iter_mut().zip(&proportions).enumerate() {
            cumulative += p;
            let cut = (cumulative * class.len() as f64).round() as usize;
            let end = if i + 1 == agents { class.len() } else { cut.clamp(start, class.len()) };
            part.extend_from_slice(&class[start..end]);
            start = end;
        }
    }
    parts
}

/// A sample of Dirichlet(alpha, ..., alpha), computed in logarithms: for small alpha the Gamma(alpha) variates would
/// underflow to zero. It uses Gamma(alpha) = Gamma(alpha + 1) U^(1/alpha).
fn dirichlet_proportions(n: usize, alpha: f64, rng: &mut impl Rng) -> Vec<f64> {
    let gamma = Gamma::new(alpha + 1.0, 1.0).expect("alpha was validated to be finite and positive");
    let log: Vec<f64> = (0..n)
        .map(|_| {
            let uniform: f64 = 1.0 - rng.random::<f64>();
            gamma.sample(rng).ln() + uniform.ln() / alpha
        })
        .collect();
    let largest = log.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = log.iter().map(|l| (l - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|w| w / total).collect()
}

fn shards(
    members: &[Vec<u32>],
    agents: usize,
    per_agent: usize,
    rng: &mut impl Rng,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    let sorted = members.concat();
    let count = agents.checked_mul(per_agent).filter(|&count| (1..=sorted.len()).contains(&count));
    let Some(count) = count else {
        return Err(PartitionError::InvalidShards { per_agent, agents, samples: sorted.len() });
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(rng);
    let concat = |own: &[usize]| own.iter().flat_map(|&s| even_part(&sorted, count, s)).copied().collect();
    Ok(order.chunks(per_agent).map(concat).collect())
}

fn label_quantity(
    mut members: Vec<Vec<u32>>,
    agents: usize,
    owned: usize,
    rng: &mut impl Rng,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    let classes = members.len();
    let least = classes.div_ceil(agents).max(1);
    if owned < least || owned > classes {
        return Err(PartitionError::InvalidClasses { given: owned, least, agents, classes });
    }
    let mut owners = vec![Vec::new(); classes];
    for agent in 0..agents {
        // The classes with the fewest owners so far, ties broken at random.
        let mut order: Vec<usize> = (0..classes).collect();
        order.shuffle(rng);
        order.sort_by_key(|&class| owners[class].len());
        order[..owned].iter().for_each(|&class| owners[class].push(agent));
    }
    let mut parts = vec![Vec::new(); agents];
    for (class, owners) in members.iter_mut().zip(&owners) {
        class.shuffle(rng);
        for (i, &agent) in owners.iter().enumerate() {
            parts[agent].extend_from_slice(even_part(class, owners.len(), i));
        }
    }
    Ok(parts)
}
