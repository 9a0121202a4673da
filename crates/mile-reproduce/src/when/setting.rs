//! One cell of the map: problems of one heterogeneity, a number of local steps, and mini-batches of one size.

use std::sync::Arc;

use mile::agents::Vector;
use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Loss, Problem, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use mile_lab::error::LabError;
use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub(super) const AGENTS: usize = 10;
pub(super) const ROWS: usize = 100;
pub(super) const FEATURES: usize = 10;
/// Weight of the quadratic penalty.
const L2: f64 = 0.001;
/// The smallest scale of a feature; the largest is 1. Without it one round of plain gradient steps is nearly enough.
pub(super) const SMALLEST: f64 = 0.3;
/// Rounds in a row in which the target must be met.
const HOLD: u64 = 3;
/// Most rounds, and most local steps, of a run.
pub(super) const MOST_ROUNDS: u64 = 1000;
pub(super) const MOST_STEPS: u64 = 20_000;
/// The largest step size that is tried, times the smoothness constant; each next one is half as large.
pub(super) const LARGEST_STEP: f64 = 64.0;
/// Seeds of the search for step sizes, which are not among those that are reported. The best step size is that whose worst
/// seed needs the fewest rounds, so that no method is given one at the edge of its stability.
const SEARCH_SEEDS: [u64; 5] = [1000, 1001, 1002, 1003, 1004];
/// A run has diverged if its loss above the minimum exceeds this multiple of that at the start.
const DIVERGED: f64 = 100.0;

/// A method as it competes.
pub(super) struct Arm {
    pub(super) label: &'static str,
    name: &'static str,
    /// With gamma = 1 and xi at this share of its limit.
    decoupled: Option<f64>,
    /// Whether that is the largest weight of an adaptive xi.
    adaptive: bool,
    momentum: Option<f64>,
}

const fn arm(label: &'static str, name: &'static str) -> Arm {
    Arm { label, name, decoupled: None, adaptive: false, momentum: None }
}

/// SCAFFOLD comes last: it has a server, which the others do not.
pub(super) const ARMS: [Arm; 11] = [
    arm("local DSGD", "local-dsgd"),
    arm("MILE", "mile"),
    Arm { decoupled: Some(0.3), ..arm("decoupled MILE*", "mile") },
    Arm { decoupled: Some(0.6), adaptive: true, ..arm("adaptive MILE*", "mile") },
    Arm { decoupled: Some(0.3), momentum: Some(0.9), ..arm("MILE*, momentum", "mile") },
    arm("LED", "led"),
    arm("K-GT", "k-gt"),
    arm("DIGing", "diging"),
    arm("GTA-2", "gta-2"),
    arm("ProxSkip", "proxskip"),
    arm("SCAFFOLD (server)", "scaffold"),
];

/// What distinguishes the cells of the map.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Setting {
    /// How far apart the agents' true parameters are, in units of their deviation from zero.
    pub(super) heterogeneity: f64,
    pub(super) local_steps: u64,
    /// Rows of a mini-batch; all of them for exact gradients.
    pub(super) batch: usize,
    /// The loss above its minimum that must be reached, relative to that at the start.
    pub(super) target: f64,
}

/// What a method needed to reach the target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Needed {
    pub(super) rounds: f64,
    /// Bytes sent by an agent.
    pub(super) bytes: f64,
    /// Gradients evaluated by an agent.
    pub(super) gradients: f64,
}

/// The result of a method in a cell: its best step size, if one reached the target, and what each seed needed with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) step_size: Option<f64>,
    pub(super) needed: Vec<Option<Needed>>,
}

/// The data of one seed: the problem, its smallest loss, and the loss at the start.
struct Task {
    seed: u64,
    problem: Arc<dyn Problem<f64>>,
    /// An upper bound of the smoothness constants.
    smoothness: f64,
    minimum: f64,
    start: f64,
}

impl Setting {
    /// Every method with its best step size of `steps`, on data of each of the seeds.
    pub(super) fn measure(&self, steps: usize, seeds: u64) -> Result<Vec<Entry>, LabError> {
        let task = |seed: u64| Task::new(self, seed);
        let search = SEARCH_SEEDS.into_par_iter().map(task).collect::<Result<Vec<_>, _>>()?;
        let shown = (0..seeds).into_par_iter().map(task).collect::<Result<Vec<_>, _>>()?;
        let smoothness = search.iter().map(|task| task.smoothness).fold(0.0, f64::max);
        let entry = |arm: &Arm| {
            let mut best: Option<(f64, f64)> = None;
            for k in 0..steps {
                let step_size = LARGEST_STEP / smoothness / 2f64.powi(k as i32);
                let limit = best.map_or(f64::INFINITY, |(rounds, _)| rounds);
                let mut worst = 0.0f64;
                for task in &search {
                    let needed = self.run(arm, task, step_size, limit)?;
                    worst = worst.max(needed.map_or(f64::INFINITY, |needed| needed.rounds));
                    if worst >= limit {
                        break;
                    }
                }
                if worst < limit {
                    best = Some((worst, step_size));
                }
            }
            let step_size = best.map(|(_, step_size)| step_size);
            let run = |task: &Task| match step_size {
                Some(step_size) => self.run(arm, task, step_size, f64::INFINITY),
                None => Ok(None),
            };
            let needed = shown.iter().map(run).collect::<Result<_, _>>()?;
            Ok(Entry { label: arm.label.to_owned(), step_size, needed })
        };
        ARMS.par_iter().map(entry).collect()
    }

    /// Runs a method until it meets the target; none if it does not within the rounds allowed.
    fn run(&self, arm: &Arm, task: &Task, step_size: f64, limit: f64) -> Result<Option<Needed>, LabError> {
        let network = network(arm.name)?;
        let entry = catalogue::find(arm.name).ok_or_else(|| unusable("not built in"))?;
        let lambda_n = network.extremes().lambda_n;
        let tau = self.local_steps as f64;
        // The limit for small steps: (tau xi + 2 gamma)(1 - lambda_N) < 4, and 1 - mu of it with momentum.
        let xi = |share: f64| {
            let most = (4.0 / (1.0 - lambda_n) - 2.0) / tau;
            let xi = (share * most * (1.0 - arm.momentum.unwrap_or(0.0))).min(1.0);
            if arm.adaptive { Weight::Adaptive(xi) } else { xi.into() }
        };
        let parameters = Parameters {
            local_steps: Some(self.local_steps),
            xi: arm.decoupled.map(xi),
            gamma: arm.decoupled.map(|_| 1.0),
            momentum: arm.momentum,
            ..Parameters::default()
        };
        let method = entry.build(&parameters, &network, task.seed).map_err(unusable)?;
        let start = vec![0.0; FEATURES];
        let mut agents =
            Simulator::new(&*task.problem, &network, &*method, &start, task.seed).map_err(unusable)?;
        let schedule = Schedule::constant(step_size * (1.0 - arm.momentum.unwrap_or(0.0)));
        let mut run = Run::start(&*method, schedule, &mut agents).map_err(unusable)?;
        let most = MOST_ROUNDS.min(MOST_STEPS / self.local_steps);
        let (mut met, mut first) = (0, None);
        for round in 1..=most {
            if met == 0 && round as f64 >= limit {
                return Ok(None);
            }
            run.round(&mut agents).map_err(unusable)?;
            let above = task.above(agents.vector(Vector(0)))?;
            if !above.is_finite() || above >= DIVERGED {
                return Ok(None);
            }
            met = if above <= self.target { met + 1 } else { 0 };
            if met == 1 {
                let costs = run.progress().costs;
                first = Some(Needed {
                    rounds: round as f64,
                    bytes: costs.bytes_sent as f64 / AGENTS as f64,
                    gradients: costs.gradient_evals as f64 / AGENTS as f64,
                });
            }
            if met == HOLD {
                return Ok(first);
            }
        }
        Ok(None)
    }
}

fn unusable(error: impl std::fmt::Display) -> LabError {
    LabError::config("when", error)
}

/// A ring with lazy weights; for a method with a server, a complete graph.
fn network(method: &str) -> Result<Network, LabError> {
    let (topology, rule) = match method {
        "scaffold" => (Topology::Complete, Rule::Metropolis),
        _ => (Topology::Ring, Rule::LazyMetropolis),
    };
    Network::new(topology.build(AGENTS, 0).map_err(unusable)?, rule).map_err(unusable)
}

/// The scale of a feature, from 1 down to [`SMALLEST`]. All have the same influence on labels.
fn scale(feature: usize) -> f64 {
    SMALLEST.powf(feature as f64 / (FEATURES - 1) as f64)
}

/// An upper bound of the smoothness constants: a quarter of the mean squared length of rows, and the penalty.
fn smoothness(table: &Table<f64>) -> f64 {
    let mean_sq = |shard: &Shard<f64>| shard.features.iter().map(|a| a * a).sum::<f64>() / ROWS as f64;
    table.shards().iter().map(mean_sq).fold(0.0, f64::max) / 4.0 + L2
}

impl Task {
    fn new(setting: &Setting, seed: u64) -> Result<Self, LabError> {
        let mut random = stream(seed, Purpose::Data, u64::MAX, 0);
        let common: Vec<f64> = (0..FEATURES).map(|_| random.sample(StandardNormal)).collect();
        let shard = |agent: u64| {
            let mut random = stream(seed, Purpose::Data, agent, 0);
            let mut normal = || random.sample::<f64, _>(StandardNormal);
            let own: Vec<f64> = common.iter().map(|x| x + setting.heterogeneity * normal()).collect();
            let features: Vec<f64> = (0..ROWS * FEATURES).map(|at| scale(at % FEATURES) * normal()).collect();
            let score = |row: &[f64]| {
                row.iter().zip(&own).enumerate().map(|(k, (a, x))| a * x / scale(k)).sum::<f64>()
            };
            let label = |row| if score(row) + normal() > 0.0 { 1.0 } else { -1.0 };
            let targets = features.chunks_exact(FEATURES).map(label).collect();
            Shard { features, targets, ..Shard::default() }
        };
        let shards = (0..AGENTS as u64).map(shard).collect();
        let batch = if setting.batch >= ROWS { Batch::Full } else { Batch::Size(setting.batch) };
        let objective = TableObjective::new(Loss::Logistic, L2);
        let table = Arc::new(Table::new(FEATURES, shards, objective, batch).map_err(unusable)?);
        let smoothness = smoothness(&table);
        let mut task = Self { seed, problem: table, smoothness, minimum: 0.0, start: 1.0 };
        let start = task.loss(&[0.0; FEATURES])?;
        task.minimum = task.least()?;
        task.start = start - task.minimum;
        Ok(task)
    }

    /// f at a point.
    fn loss(&self, x: &[f64]) -> Result<f64, LabError> {
        let sum = (0..AGENTS).map(|agent| self.problem.loss(agent, x)).sum::<Result<f64, _>>();
        Ok(sum.map_err(unusable)? / AGENTS as f64)
    }

    /// The smallest loss, by gradient descent on f with Nesterov's momentum, restarted whenever the loss rises.
    fn least(&self) -> Result<f64, LabError> {
        let step = 1.0 / self.smoothness;
        let (mut x, mut gradient, mut mean) = (vec![0.0; FEATURES], vec![0.0; FEATURES], vec![0.0; FEATURES]);
        let (mut last, mut age, mut least) = (x.clone(), 0.0, f64::INFINITY);
        for _ in 0..5_000 {
            let weight = age / (age + 3.0);
            let ahead: Vec<f64> = x.iter().zip(&last).map(|(x, last)| x + weight * (x - last)).collect();
            mean.fill(0.0);
            for agent in 0..AGENTS {
                self.problem.gradient(agent, &ahead, &mut gradient).map_err(unusable)?;
                mean.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += g / AGENTS as f64);
            }
            last.copy_from_slice(&x);
            x.iter_mut().zip(ahead.iter().zip(&mean)).for_each(|(x, (ahead, g))| *x = ahead - step * g);
            let loss = self.loss(&x)?;
            age = if loss > least { 0.0 } else { age + 1.0 };
            least = least.min(loss);
        }
        Ok(least)
    }

    /// The mean loss of the agents' own models above the minimum, relative to that at the start.
    fn above(&self, models: &[f64]) -> Result<f64, LabError> {
        let losses = models.chunks_exact(FEATURES).map(|x| self.loss(x)).sum::<Result<f64, _>>()?;
        Ok((losses / AGENTS as f64 - self.minimum) / self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_exact_gradients_and_different_data_the_exact_methods_arrive_and_local_dsgd_needs_smaller_steps() {
        let setting = Setting { heterogeneity: 0.3, local_steps: 10, batch: ROWS, target: 0.01 };
        let entries = setting.measure(8, 1).unwrap();
        assert_eq!(entries.len(), ARMS.len());
        let of = |label: &str| entries.iter().find(|entry| entry.label == label).unwrap();
        let needed = |label: &str| of(label).needed[0].unwrap();
        assert!(needed("K-GT").rounds < 200.0);
        assert_eq!(needed("K-GT").gradients, 10.0 * needed("K-GT").rounds);
        let bytes = |label: &str| needed(label).bytes / needed(label).rounds;
        assert_eq!(bytes("K-GT"), 2.0 * bytes("LED"));
        let dsgd = of("local DSGD").step_size;
        assert!(dsgd.is_none() || dsgd < of("LED").step_size);
    }
}
