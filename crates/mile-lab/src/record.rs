//! What is measured during a run: one record a moment, one line of `metrics.jsonl` each.

use mile::agents::Costs;
use mile::block;
use mile::problems::Problem;
use mile::real::Real;
use mile::run::Progress;
use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};

/// One line of `metrics.jsonl`. A number that is not finite is written as `null`; a quantity that the
/// problem does not have is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the method.
    pub algorithm: String,
    /// Its label in this experiment.
    pub label: String,
    /// Seed of the run.
    pub seed: u64,
    /// Exchanges done.
    pub round: u64,
    /// Updates done since x(0).
    pub step: u64,
    /// f at the average model.
    #[serde(deserialize_with = "null_is_nan")]
    pub loss: f64,
    /// Mean over agents of f at their own models.
    #[serde(deserialize_with = "null_is_nan")]
    pub local_loss: f64,
    /// The largest of these.
    #[serde(deserialize_with = "null_is_nan")]
    pub worst_loss: f64,
    /// `|grad f(mean x)|^2`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub grad_norm_sq: Option<f64>,
    /// `(1/N) sum_i |mean x - x_i|^2`.
    #[serde(deserialize_with = "null_is_nan")]
    pub consensus_error: f64,
    /// The same for the models as they were sent in this round's exchange.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub consensus_error_before: Option<f64>,
    /// Accuracy of the average model on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub accuracy: Option<f64>,
    /// Mean over agents of the accuracy of their own models.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub local_accuracy: Option<f64>,
    /// The smallest of these.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub worst_accuracy: Option<f64>,
    /// n-vectors sent by an agent to each neighbour.
    pub vectors_sent: u64,
    /// Bytes sent by all agents.
    pub bytes_sent: u64,
    /// Gradients evaluated by all agents.
    pub gradient_evals: u64,
    /// Seconds of computing so far, evaluation not counted.
    pub wall_s: f64,
}

fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn some_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    null_is_nan(deserializer).map(Some)
}

/// Who is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) algorithm: &'a str,
    pub(crate) label: &'a str,
    pub(crate) seed: u64,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a, T> {
    /// The models of all agents, row after row.
    pub(crate) models: &'a [T],
    /// Their consensus error just before the last exchange, if that was watched.
    pub(crate) drift: Option<f64>,
}

/// Measures the agents as they are now.
pub(crate) fn measure<T: Real>(
    subject: Subject,
    problem: &dyn Problem<T>,
    sight: Sight<T>,
    progress: &Progress,
    wall_s: f64,
) -> Record {
    let average = block::mean_row(sight.models, problem.dim());
    let own = Own::of(problem, sight.models);
    let Costs { vectors_sent, bytes_sent, gradient_evals, .. } = progress.costs;
    Record {
        algorithm: subject.algorithm.to_owned(),
        label: subject.label.to_owned(),
        seed: subject.seed,
        round: progress.round,
        step: progress.step,
        loss: problem.objective(&average),
        local_loss: own.loss,
        worst_loss: own.worst_loss,
        grad_norm_sq: problem.records_gradient_norm().then(|| gradient_norm_sq(problem, &average)),
        consensus_error: block::consensus_error(sight.models, problem.dim()),
        consensus_error_before: sight.drift,
        accuracy: problem.accuracy(&average),
        local_accuracy: own.accuracy,
        worst_accuracy: own.worst_accuracy,
        vectors_sent,
        bytes_sent,
        gradient_evals,
        wall_s,
    }
}

/// What the agents' own models are worth.
struct Own {
    loss: f64,
    worst_loss: f64,
    accuracy: Option<f64>,
    worst_accuracy: Option<f64>,
}

impl Own {
    fn of<T: Real>(problem: &dyn Problem<T>, models: &[T]) -> Self {
        let n = problem.agents();
        let each: Vec<(f64, Option<f64>)> = models
            .par_chunks_exact(problem.dim().max(1))
            .map(|model| (problem.objective(model), problem.accuracy(model)))
            .collect();
        let losses: Vec<f64> = each.iter().map(|(loss, _)| *loss).collect();
        let accuracies: Option<Vec<f64>> = each.iter().map(|(_, accuracy)| *accuracy).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n as f64;
        Self {
            loss: mean(&losses),
            worst_loss: extreme(&losses, f64::max),
            accuracy: accuracies.as_deref().map(mean),
            worst_accuracy: accuracies.as_deref().map(|values| extreme(values, f64::min)),
        }
    }
}

/// The largest or smallest; NaN if any is, which `f64::max` and `f64::min` would hide.
fn extreme(values: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    let over = |a: f64, b: &f64| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, *b) };
    values.iter().skip(1).fold(values[0], over)
}

/// `|grad f(x)|^2` with `f = (1/N) sum f_i`, summed in `f64` in increasing agent.
pub(crate) fn gradient_norm_sq<T: Real>(problem: &dyn Problem<T>, x: &[T]) -> f64 {
    let n = problem.agents();
    let mut mean = vec![0.0; x.len()];
    let mut gradients = vec![vec![T::zero(); x.len()]; rayon::current_num_threads().min(n)];
    for first in (0..n).step_by(gradients.len()) {
        let group = &mut gradients[..(n - first).min(rayon::current_num_threads())];
        group.par_iter_mut().enumerate().for_each(|(k, g)| problem.gradient(first + k, x, g));
        for g in group.iter() {
            mean.iter_mut().zip(g).for_each(|(m, g)| *m += g.wide());
        }
    }
    mean.iter().map(|m| (m / n as f64).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_null_and_what_is_not_there_is_left_out() {
        let mut record: Record = serde_json::from_str(
            r#"{"algorithm":"mile","label":"m","seed":1,"round":2,"step":3,"loss":null,"local_loss":1.5,
               "worst_loss":2.0,"consensus_error":0.1,"grad_norm_sq":null,"vectors_sent":4,"bytes_sent":5,
               "gradient_evals":6,"wall_s":0.5}"#,
        )
        .unwrap();
        assert!(record.loss.is_nan() && record.grad_norm_sq.unwrap().is_nan());
        assert_eq!(record.accuracy, None);
        record.worst_loss = f64::INFINITY;
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains(r#""loss":null"#) && text.contains(r#""worst_loss":null"#));
        assert!(text.contains(r#""grad_norm_sq":null"#) && !text.contains("accuracy"));
    }
}
