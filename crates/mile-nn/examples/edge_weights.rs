//! MILE with an xi that the edges determine, compared with fixed weights.
//!
//! ```text
//! cargo run --release -p mile-nn --example edge_weights                     rounds on quadratics
//! cargo run --release -p mile-nn --example edge_weights mnist 150 0.3 2     data set, rounds, Dirichlet parameter, seeds
//! ```

use std::sync::Arc;

use mile::agents::Vector;
use mile::graph::Topology;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Failure, HeldOut, Problem, Quadratic};
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use mile_nn::ImageProblem;
use mile_nn::model::{ModelSpec, Preset};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec};
use mile_theory::auto::{Question, adaptive};
use mile_theory::weights::xi_limit;

/// The place of r in what an agent remembers, see `mile::steady`.
const MEMORY: Vector = Vector(2);

/// Rounds until every agent's gradient of f is below 1e-8; none after 4,000.
fn rounds(
    problem: &Quadratic<f64>,
    network: &Network,
    method: &Mile,
    step_size: f64,
) -> Result<Option<u64>, Failure> {
    let (agents, dim) = (problem.agents(), problem.dim());
    let mut simulator = Simulator::new(problem, network, method, &vec![0.0; dim], 0)?;
    let mut run = Run::start(method, Schedule::constant(step_size), &mut simulator)?;
    for round in 1..=4_000 {
        run.round(&mut simulator)?;
        let mut worst = 0.0f64;
        for x in simulator.models().chunks_exact(dim) {
            let (mut sum, mut g) = (vec![0.0; dim], vec![0.0; dim]);
            for agent in 0..agents {
                problem.gradient(agent, x, &mut g)?;
                sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / agents as f64);
            }
            worst = worst.max(sum.iter().map(|g| g * g).sum::<f64>().sqrt());
        }
        if worst < 1e-8 {
            return Ok(Some(round));
        }
        if !worst.is_finite() {
            break;
        }
    }
    Ok(None)
}

fn quadratics() -> Result<(), Failure> {
    println!(
        "in units of the limit: fixed .5 .9, adaptive with at most .5 .9 1.5; then the default of adaptive"
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
            let gamma = 0.8;
            let limit = xi_limit(local_steps, gamma, network.extremes().lambda_n);
            let fixed = [0.5, 0.9].map(|part| (Weight::Constant(f64::min(part * limit, 1.0)), gamma));
            let found = [0.5, 0.9, 1.5].map(|part| (Weight::Adaptive(f64::min(part * limit, 1.0)), gamma));
            let question = Question {
                network: &network,
                local_steps,
                step_size,
                smoothness: None,
                scatter: None,
                seed: 0,
            };
            let default = adaptive(question, None, None)?;
            let default = [(Weight::Adaptive(default.xi), default.gamma)];
            let all = fixed.into_iter().chain(found).chain(default).map(|(xi, gamma)| {
                rounds(&problem, &network, &Mile::with_weights(local_steps, xi, Some(gamma))?, step_size)
            });
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
    let (local_steps, step_size, gamma) = (10, 0.12, 1.0);
    for seed in 0..seeds {
        let problem = ImageProblem::<f32>::try_new(
            data.clone(),
            &ImageSpec {
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
        let question =
            Question { network: &network, local_steps, step_size, smoothness: None, scatter: None, seed };
        let default = adaptive(question, Some(gamma), None)?.xi;
        let fixed = [1e-9, 0.003, 0.01, 0.03, 0.06, default].map(Weight::Constant);
        let found = [0.03, 0.06, default].map(Weight::Adaptive);
        for xi in fixed.into_iter().chain(found) {
            let method = Mile::with_weights(local_steps, xi, Some(gamma))?;
            let mut simulator = Simulator::new(&problem, &network, &method, &start, seed)?;
            let mut run = Run::start(&method, Schedule::constant(step_size), &mut simulator)?;
            let mut shares = 0.0;
            for _ in 0..rounds {
                run.round(&mut simulator)?;
                if let Weight::Adaptive(_) = xi {
                    let memory = simulator.vector(MEMORY).chunks_exact(problem.dim());
                    shares += memory.map(|memory| f64::from(memory[0].max(0.0))).sum::<f64>() / 10.0;
                }
            }
            let models = || simulator.models().chunks_exact(problem.dim());
            let own = models().map(|x| problem.objective(x)).sum::<Result<f64, _>>()? / 10.0;
            let accuracies = models().map(|x| Ok(problem.measure(x)?[0]));
            let accuracy = accuracies.sum::<Result<f64, Failure>>()? / 10.0;
            let mean = xi.last() * shares / rounds as f64;
            println!("seed {seed}, xi {xi}: loss {own:.4}, accuracy {accuracy:.4}, mean weight {mean:.4}");
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => quadratics(),
        [dataset, rounds, alpha, seeds] => images(dataset, rounds.parse()?, alpha.parse()?, seeds.parse()?),
        _ => Err("expected nothing, or a data set, rounds, a Dirichlet parameter and seeds".into()),
    }
}
