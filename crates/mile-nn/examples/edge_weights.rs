//! A study of an xi that the edges of a network find for themselves, which is not a method of the library.
//!
//! Each edge keeps rho, a running mean (0.9 old, 0.1 new) of the cosine between v_j - v_i in this exchange and in the last, from a
//! sketch of the difference; its correction has the weight `most * max(0, rho)`. Both ends compute it from the same numbers, so that
//! the corrections sum to zero edge by edge. The recursion is MILE's with gamma, and dense: all agents in one loop.
//!
//! ```text
//! cargo run --release -p mile-nn --example edge_weights                     rounds on quadratics
//! cargo run --release -p mile-nn --example edge_weights mnist 150 0.3 2     data set, rounds, Dirichlet parameter, seeds
//! ```

use std::sync::Arc;

use mile::graph::Topology;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Draw, Failure, Problem, Quadratic};
use mile::random::{Purpose, stream};
use mile::real::Real;
use mile_nn::ImageProblem;
use mile_nn::model::{ModelSpec, Preset};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageConfig};
use rand::RngExt;

/// How the weight of an edge is found.
#[derive(Clone, Copy, Debug)]
enum Weight {
    Fixed(f64),
    /// Largest weight, and numbers of a sketch.
    Found(f64, usize),
}

/// A linear sketch: every element is added, with a random sign, to one of some numbers.
struct Sketch {
    places: Vec<(usize, f64)>,
    size: usize,
}

impl Sketch {
    fn new(dim: usize, size: usize) -> Self {
        let mut random = stream(0, Purpose::Probe, 9, size as u64);
        let place = |_| (random.random_range(0..size), if random.random() { 1.0 } else { -1.0 });
        Self { places: (0..dim).map(place).collect(), size }
    }

    fn of<T: Real>(&self, from: &[T], to: &[T]) -> Vec<f64> {
        let mut sketch = vec![0.0; self.size];
        for ((place, sign), (from, to)) in self.places.iter().zip(from.iter().zip(to)) {
            sketch[*place] += sign * (to.wide() - from.wide());
        }
        sketch
    }
}

struct Edge {
    ends: (usize, usize),
    w: f64,
    last: Vec<f64>,
    rho: f64,
}

impl Edge {
    fn weight(&mut self, most: f64, now: Vec<f64>) -> f64 {
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let norms = (dot(&now, &now) * dot(&self.last, &self.last)).sqrt();
        let cosine = if norms > 0.0 { dot(&now, &self.last) / norms } else { 0.0 };
        self.rho = 0.9 * self.rho + 0.1 * cosine;
        self.last = now;
        most * self.rho.max(0.0)
    }
}

/// What a run is made of.
struct Setting<'a, T> {
    problem: &'a dyn Problem<T>,
    network: &'a Network,
    start: Vec<T>,
    local_steps: u64,
    step_size: f64,
    gamma: f64,
    seed: u64,
}

/// Runs MILE with these weights; `look` is told the round, the models and the mean weight, and says whether to go on.
fn run<T: Real>(
    setting: &Setting<T>,
    weight: Weight,
    mut look: impl FnMut(u64, &[Vec<T>], f64) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let Setting { problem, network, .. } = *setting;
    let (agents, dim) = (problem.agents(), problem.dim());
    let sketch = Sketch::new(dim, if let Weight::Found(_, size) = weight { size } else { 1 });
    let mut edges: Vec<Edge> = network
        .graph()
        .edges()
        .map(|(i, j)| Edge { ends: (i, j), w: network.mixing().weight(i, j), last: Vec::new(), rho: 0.0 })
        .collect();
    let (mut x, mut c) = (vec![setting.start.clone(); agents], vec![vec![0.0; dim]; agents]);
    let mut gradient = vec![T::zero(); dim];
    for round in 0.. {
        for (agent, (x, c)) in x.iter_mut().zip(&c).enumerate() {
            for step in 0..setting.local_steps {
                let draw = Draw { seed: setting.seed, step: round * setting.local_steps + step };
                problem.sample_gradient(agent, x, draw, &mut gradient)?;
                for ((x, c), g) in x.iter_mut().zip(c).zip(&gradient) {
                    *x = T::of(x.wide() - setting.step_size * g.wide() + c);
                }
            }
        }
        let (v, mut sum) = (x.clone(), 0.0);
        for edge in &mut edges {
            let (i, j) = edge.ends;
            let xi = match weight {
                Weight::Fixed(xi) => xi,
                Weight::Found(most, _) => edge.weight(most, sketch.of(&v[i], &v[j])),
            };
            sum += xi;
            for k in 0..dim {
                let d = edge.w * (v[j][k].wide() - v[i][k].wide());
                x[i][k] = T::of(x[i][k].wide() + setting.gamma * d);
                x[j][k] = T::of(x[j][k].wide() - setting.gamma * d);
                c[i][k] += xi * d;
                c[j][k] -= xi * d;
            }
        }
        if !look(round + 1, &x, sum / edges.len() as f64)? {
            break;
        }
    }
    Ok(())
}

/// Rounds until every agent's gradient of f is below 1e-8; none after 4,000.
fn rounds(setting: &Setting<f64>, weight: Weight) -> Result<Option<u64>, Failure> {
    let (problem, agents) = (setting.problem, setting.problem.agents());
    let mut reached = None;
    run(setting, weight, |round, x, _| {
        let mut worst = 0.0f64;
        for x in x {
            let (mut sum, mut g) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            for agent in 0..agents {
                problem.gradient(agent, x, &mut g)?;
                sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / agents as f64);
            }
            worst = worst.max(sum.iter().map(|g| g * g).sum::<f64>().sqrt());
        }
        reached = (worst < 1e-8).then_some(round);
        Ok(reached.is_none() && worst.is_finite() && round < 4_000)
    })?;
    Ok(reached)
}

fn quadratics() -> Result<(), Failure> {
    println!(
        "weights in units of the limit: fixed .5 .9, found (whole differences) .5 .9 2, found .9 (16, 64 numbers)"
    );
    let networks = [
        (Topology::Ring, 10, Rule::Metropolis),
        (Topology::Ring, 8, Rule::LazyMetropolis),
        (Topology::Torus, 16, Rule::Metropolis),
        (Topology::Path, 8, Rule::Metropolis),
    ];
    for (topology, agents, rule) in networks {
        let network = Network::new(topology.build(agents, 0)?, rule)?;
        let problem = Quadratic::<f64>::new(agents, 200, 10.0, 1.0, 0)?;
        for (local_steps, step_size) in [(2, 0.5), (10, 0.5), (10, 0.1)] {
            let (start, gamma) = (vec![0.0; 200], 0.8);
            let setting = Setting {
                problem: &problem,
                network: &network,
                start,
                local_steps,
                step_size,
                gamma,
                seed: 0,
            };
            let end = 4.0 / (1.0 - network.extremes().lambda_n) - 2.0 * gamma;
            let limit = end / local_steps as f64;
            let fixed = [0.5, 0.9].map(|part| Weight::Fixed(part * limit));
            let found = [(0.5, 200), (0.9, 200), (2.0, 200), (0.9, 16), (0.9, 64)];
            let found = found.map(|(part, size)| Weight::Found(part * limit, size));
            let all = fixed.into_iter().chain(found).map(|weight| rounds(&setting, weight));
            let all = all.collect::<Result<Vec<_>, _>>()?;
            println!(
                "{} of {agents}, {rule:?}, tau {local_steps}, alpha L {step_size}: {all:?}",
                topology.name()
            );
        }
    }
    Ok(())
}

fn images(dataset: &str, rounds: u64, alpha: f64, seeds: u64) -> Result<(), Failure> {
    let data = Arc::new(mile_nn::data::load(dataset, None)?);
    let network = Network::new(Topology::Ring.build(10, 0)?, Rule::Metropolis)?;
    for seed in 0..seeds {
        let problem = ImageProblem::<f32>::try_new(
            data.clone(),
            &ImageConfig {
                model: ModelSpec::Preset(Preset::Mlp),
                partition: Partition::Dirichlet { alpha },
                agents: 10,
                seed,
                batch: Batch::Size(32),
                evaluation: Evaluation::PerAgent(500),
                test_samples: None,
            },
        )?;
        let start = problem.initial(seed)?.unwrap_or_default();
        let (local_steps, step_size, gamma) = (10, 0.12, 1.0);
        let setting =
            Setting { problem: &problem, network: &network, start, local_steps, step_size, gamma, seed };
        let fixed = [0.0, 0.003, 0.01, 0.03].map(Weight::Fixed);
        let found = [(0.03, 256), (0.06, 256), (0.06, 4096)].map(|(most, size)| Weight::Found(most, size));
        for weight in fixed.into_iter().chain(found) {
            run(&setting, weight, |round, x, mean| {
                if round == rounds {
                    let own = x.iter().map(|x| problem.objective(x)).sum::<Result<f64, _>>()? / 10.0;
                    let accuracies = x.iter().map(|x| Ok(problem.measure(x)?[0]));
                    let accuracy = accuracies.sum::<Result<f64, Failure>>()? / 10.0;
                    println!(
                        "seed {seed}, {weight:?}: own models {own:.4}, accuracy {accuracy:.4}, mean xi {mean:.5}"
                    );
                }
                Ok(round < rounds)
            })?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => quadratics(),
        [dataset, rounds, alpha, seeds] => images(dataset, rounds.parse()?, alpha.parse()?, seeds.parse()?),
        _ => Err("takes nothing, or: data set, rounds, Dirichlet parameter, seeds".into()),
    }
}
