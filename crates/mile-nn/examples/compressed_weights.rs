//! How large MILE's weights may be when messages have few elements, with exact gradients on quadratics: the table of docs/src/theory.md,
//! section 13.
//!
//! `cargo run --release -p mile-nn --example compressed_weights`

use mile::agents::AgentsError;
use mile::block;
use mile::compression::Compression;
use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Problem, Quadratic};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rayon::prelude::*;

const ROUNDS: usize = 1_500;
const TARGET: f64 = 1e-3;
const SHARES: [f64; 5] = [1.0, 0.5, 0.1, 0.03, 0.01];
const GAMMAS: [f64; 7] = [1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01];
/// xi in units of gamma/tau.
const XIS: [f64; 3] = [1.0, 0.3, 0.1];

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The squared gradient norm at the average, and 25 times the consensus error.
fn distance(problem: &Quadratic<f64>, models: &[f64]) -> Result<f64, Failure> {
    let (agents, dim) = (problem.agents(), problem.dim());
    let mean = block::mean_row(models, dim);
    let (mut one, mut sum) = (vec![0.0; dim], vec![0.0; dim]);
    for agent in 0..agents {
        problem.gradient(agent, &mean, &mut one)?;
        sum.iter_mut().zip(&one).for_each(|(sum, g)| *sum += g / agents as f64);
    }
    Ok(block::norm_sq(&sum) + 25.0 * block::consensus_error(models, dim))
}

/// Rounds to the target; none if the run diverges, and `ROUNDS` if it does not get there.
fn rounds(
    problem: &Quadratic<f64>,
    network: &Network,
    parameters: &Parameters,
) -> Result<Option<usize>, Failure> {
    let entry = catalogue::find("mile").ok_or("mile is built in")?;
    let method = entry.build(parameters, network, 0)?;
    let mut agents = Simulator::new(problem, network, &*method, &vec![0.0; problem.dim()], 0)?;
    let step_size = 0.03 / parameters.local_steps.unwrap_or(1) as f64;
    let mut run = Run::start(&*method, Schedule::constant(step_size), &mut agents)?;
    let first = distance(problem, agents.models())?;
    for round in 1..=ROUNDS {
        run.round(&mut agents).map_err(|error: AgentsError| error.to_string())?;
        let now = distance(problem, agents.models())? / first;
        if now < TARGET * TARGET {
            return Ok(Some(round));
        }
        if now.is_nan() || now > 1e12 {
            return Ok(None);
        }
    }
    Ok(Some(ROUNDS))
}

fn main() -> Result<(), Failure> {
    println!(
        "| network | tau | share | fewest rounds (gamma, xi tau/gamma) | largest gamma without divergence at xi = 0.3 and 0.1 gamma/tau |"
    );
    println!("|---|---|---|---|---|");
    for (topology, agents, name) in [(Topology::Ring, 10, "ring of 10"), (Topology::Torus, 16, "torus of 16")]
    {
        let network = Network::new(topology.build(agents, 0)?, Rule::Metropolis)?;
        let problem = Quadratic::<f64>::new(agents, 100, 10.0, 1.0, 0)?;
        for (tau, share) in [1, 10].into_iter().flat_map(|tau| SHARES.map(|share| (tau, share))) {
            let pairs: Vec<(f64, f64)> =
                GAMMAS.iter().flat_map(|gamma| XIS.map(|ratio| (*gamma, ratio))).collect();
            let found: Vec<Option<usize>> = pairs
                .par_iter()
                .map(|(gamma, ratio)| {
                    let parameters = Parameters {
                        local_steps: Some(tau),
                        gamma: Some(*gamma),
                        xi: Some((ratio * gamma / tau as f64).into()),
                        compression: (share < 1.0).then_some(Compression::TopK(share)),
                        ..Parameters::default()
                    };
                    rounds(&problem, &network, &parameters)
                })
                .collect::<Result<_, _>>()?;
            let all = || pairs.iter().zip(&found);
            let best = all()
                .filter_map(|(pair, rounds)| Some((((*rounds)?), pair)))
                .min_by_key(|(rounds, _)| *rounds);
            let largest = |at: f64| {
                let stays = all().filter(|((_, ratio), rounds)| *ratio == at && rounds.is_some());
                stays.map(|((gamma, _), _)| *gamma).fold(0.0, f64::max)
            };
            let best = best.map_or("none".into(), |(rounds, pair)| format!("{rounds} {pair:?}"));
            println!("| {name} | {tau} | {share} | {best} | {}, {} |", largest(0.3), largest(0.1));
        }
    }
    Ok(())
}
