//! How long a plan will take on this machine, from a few gradients and evaluations before the first step.
//!
//! The gradients of all steps and the evaluations of all records are counted, on all threads; exchanges and files are not.

use std::time::{Duration, Instant};

use mile::agents::AgentsError;
use mile::problems::Draw;
use mile::with_precision;
use rayon::prelude::*;

use crate::engines::Scalar;
use crate::error::LabError;
use crate::plan::Plan;

/// Each measurement is repeated for this time, or done once if that takes longer.
const MEASURED_FOR: Duration = Duration::from_millis(200);

/// An estimate of the time of a plan, and what it was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeEstimate {
    /// Seconds for all jobs.
    pub seconds: f64,
    /// Seconds of a gradient of an agent, on one of the threads.
    pub gradient: f64,
    /// Gradients of all agents in all jobs.
    pub gradients: f64,
    /// Seconds of the evaluation of a record, on one of the threads.
    pub evaluation: f64,
    /// Records of all jobs.
    pub evaluations: u64,
    /// Threads that are used.
    pub threads: usize,
}

/// Estimates how long a plan will take.
pub fn estimate_time(plan: &Plan) -> Result<TimeEstimate, LabError> {
    with_precision!(plan.spec.precision, T => measure::<T>(plan))
}

fn measure<T: Scalar>(plan: &Plan) -> Result<TimeEstimate, LabError> {
    let spec = &plan.spec;
    let seed = spec.seeds.first().copied().unwrap_or_default();
    let problem = plan.problem::<T>(seed)?;
    let start = plan.start(&*problem, seed)?;
    let (agents, x) = (problem.agents(), &start[..problem.dim()]);
    // Agents in turn, spread evenly if there are many.
    let agent = |call: usize| call.wrapping_mul(agents.div_ceil(16)) % agents;
    let one = |call: usize, is_exact: bool| {
        let (agent, draw) = (agent(call), Draw { seed, step: call as u64 + 1 });
        let mut gradient = vec![T::zero(); x.len()];
        let done = match is_exact {
            true => problem.gradient(agent, x, &mut gradient),
            false => problem.sample_gradient(agent, x, draw, &mut gradient),
        };
        done.map_err(AgentsError::objective(agent))
    };
    let gradient = seconds(|call| one(call, false))?;
    let loss =
        seconds(|call| problem.loss(agent(call), x).map(drop).map_err(AgentsError::objective(agent(call))))?;
    let test = match problem.held_out() {
        None => 0.0,
        Some(held_out) => seconds(|_| held_out.measure(x).map(drop).map_err(AgentsError::Evaluation))?,
    };
    // The evaluated agents' models and the average, each on all agents' data, and the gradient of f at the average.
    let mut evaluation = (plan.evaluation.agents + 1) as f64 * (agents as f64 * loss + test);
    if plan.size.records_gradient_norm {
        let is_stochastic = spec.objectives.is_stochastic();
        let exact = if is_stochastic { seconds(|call| one(call, true))? } else { gradient };
        evaluation += agents as f64 * exact;
    }
    let jobs = plan.jobs();
    let steps = |k: usize| spec.algorithms[k].steps_per_round() * spec.rounds as f64;
    let threads = rayon::current_num_threads().min(agents.saturating_mul(jobs.len())).max(1);
    let steps: f64 = jobs.iter().map(|job| steps(job.algorithm)).sum();
    let gradients = steps * agents as f64;
    let records = 1 + spec.rounds.div_ceil(spec.eval_every());
    let evaluations = records * jobs.len() as u64;
    let seconds = (gradients * gradient + evaluations as f64 * evaluation) / threads as f64;
    Ok(TimeEstimate { seconds, gradient, gradients, evaluation, evaluations, threads })
}

/// Seconds of a call while all threads are busy with such calls. The first ones, which may read data for the first time,
/// count only if there are no others.
fn seconds(work: impl Fn(usize) -> Result<(), AgentsError> + Sync) -> Result<f64, LabError> {
    let threads = rayon::current_num_threads();
    let begun = Instant::now();
    let (mut calls, mut counted, mut total) = (0, 0, 0.0);
    loop {
        let one = Instant::now();
        (calls..calls + threads).into_par_iter().try_for_each(&work)?;
        let elapsed = one.elapsed().as_secs_f64();
        (counted, total) = if calls == threads { (1, elapsed) } else { (counted + 1, total + elapsed) };
        calls += threads;
        if begun.elapsed() > MEASURED_FOR {
            return Ok(total / f64::from(counted));
        }
    }
}

/// A time in words.
pub(crate) fn in_words(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1.0 => "less than 1 s".into(),
        _ if seconds < 90.0 => format!("about {seconds:.0} s"),
        _ if seconds < 5400.0 => format!("about {:.0} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("about {:.0} h", seconds / 3600.0),
        _ => format!("about {:.0} days", seconds / 86_400.0),
    }
}

/// A short time with its unit.
fn short(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1e-3 => format!("{:.3} ms", seconds * 1e3),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

impl std::fmt::Display for TimeEstimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} on this machine (measured: a gradient takes {}, {:.0} in all; an evaluation {}, {} in all; {} thread{})",
            in_words(self.seconds),
            short(self.gradient),
            self.gradients,
            short(self.evaluation),
            self.evaluations,
            self.threads,
            if self.threads == 1 { "" } else { "s" }
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::spec::Spec;

    #[test]
    fn gradients_and_evaluations_are_those_of_the_plan() {
        let text = "rounds = 21\neval_every = 5\nseeds = [0, 1]\n[network]\nagents = 4\n[problem]\nkind = \"quadratic\"\ndim = 3\n\
                    [[algorithm]]\nname = \"led\"\nstep_size = 0.1\nlocal_steps = 7\n\
                    [[algorithm]]\nname = \"proxskip\"\nstep_size = 0.1\nprobability = 0.5\n\
                    [[algorithm]]\nname = \"extra\"\nstep_size = 0.1\n";
        let plan = Plan::new(Spec::parse(text, Path::new(""), &[]).unwrap()).unwrap();
        let time = estimate_time(&plan).unwrap();
        assert_eq!(time.gradients, 2.0 * 4.0 * 21.0 * (7.0 + 2.0 + 1.0));
        // Rounds 0, 5, 10, 15, 20 and 21.
        assert_eq!(time.evaluations, 6 * 6);
        let work = time.gradients * time.gradient + time.evaluations as f64 * time.evaluation;
        assert!(time.gradient > 0.0 && time.evaluation > 0.0);
        assert_eq!(time.seconds, work / time.threads as f64);
    }

    #[test]
    fn calls_are_timed() {
        let slow = |_| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        };
        let found = seconds(slow).unwrap();
        assert!(found >= 0.02, "{found}");
    }

    #[test]
    fn times_are_shown_in_words() {
        let cases =
            [(0.2, "less than 1 s"), (12.3, "about 12 s"), (170.0, "about 3 min"), (9000.0, "about 2 h")];
        for (seconds, words) in cases {
            assert_eq!(in_words(seconds), words);
        }
        let time = TimeEstimate {
            seconds: 170.0,
            gradient: 1.2e-3,
            gradients: 2.4e5,
            evaluation: 2.0,
            evaluations: 7,
            threads: 2,
        };
        let words = "about 3 min on this machine (measured: a gradient takes 1.2 ms, 240000 in all; an evaluation 2.0 s, 7 in all; 2 threads)";
        assert_eq!(time.to_string(), words);
    }
}
