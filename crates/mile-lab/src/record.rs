//! Records: the metrics of a run after a round, each one line of `metrics.jsonl`.

use std::collections::BTreeMap;

use mile::agents::{AgentsError, Costs, Vector};
use mile::block;
use mile::engine::{self, Engine};
use mile::problems::{Metric, Problem};
use mile::ranks::Together;
use mile::real::Real;
use mile::run::Progress;
use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};

use crate::loss_and_metrics::{self, LossAndMetrics, Whose, evaluate, hosted};
use crate::recorded_metrics::{self, Models, RecordedMetrics};

/// One line of `metrics.jsonl`. Numbers that are not finite are written as `null`; quantities that are not recorded for the
/// problem are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the method.
    pub algorithm: String,
    /// Its label in this experiment.
    pub label: String,
    /// Seed of the run.
    pub seed: u64,
    /// Completed communication rounds.
    pub round: u64,
    /// Completed updates since x(0).
    pub step: u64,
    /// f at the average model, with the penalty if the problem has one; so are all losses.
    #[serde(deserialize_with = "null_is_nan")]
    pub loss: f64,
    /// Mean over the [evaluated agents](crate::eval_agents::EvaluatedAgents) of f at their own models.
    #[serde(deserialize_with = "null_is_nan")]
    pub local_loss: f64,
    /// Largest f over the evaluated agents' own models.
    #[serde(deserialize_with = "null_is_nan")]
    pub worst_loss: f64,
    /// `|grad f(mean x)|^2`; with a penalty g `|x - prox_g(x - grad f(x))|^2` at the mean x, the prox-gradient mapping with a
    /// step of 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub grad_norm_sq: Option<f64>,
    /// `(1/N) sum_i |mean x - x_i|^2`.
    #[serde(deserialize_with = "null_is_nan")]
    pub consensus_error: f64,
    /// The consensus error of the models just before this round's mixing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_or_nan")]
    pub consensus_error_before: Option<f64>,
    /// What was measured on held-out data, each under its own name such as `accuracy`.
    #[serde(flatten)]
    pub held_out: RecordedMetrics,
    /// On request, the numbers of each evaluated agent's own model, in increasing agent: `agent`, `loss`, and each metric by its
    /// name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, Vec<Option<f64>>>,
    /// Further numbers by name: `batch_loss`, the mean loss of the mini-batches since the last record, where the engine keeps it; and the
    /// problem's own metrics, of the average model (`NAME`) and of the agents' own models (`local_NAME`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, Option<f64>>,
    /// n-vectors sent by an agent to each neighbour so far.
    pub vectors_sent: u64,
    /// Bytes sent by all agents so far.
    pub bytes_sent: u64,
    /// Gradients evaluated by all agents so far.
    pub gradient_evals: u64,
    /// Seconds of computation so far, without evaluation.
    pub wall_s: f64,
    /// Seconds of modelled time, if the experiment has a section `[time]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled_s: Option<f64>,
}

fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn some_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    null_is_nan(deserializer).map(Some)
}

/// The run that a record belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunId<'a> {
    pub(crate) algorithm: &'a str,
    pub(crate) label: &'a str,
    pub(crate) seed: u64,
}

/// The agents' models: the first state vector of every method.
pub(crate) const MODELS: Vector = Vector(0);

/// The agents whose own models are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedAgents<'a> {
    /// Their places among the members of the run, in increasing order.
    pub(crate) agents: &'a [usize],
    /// The members.
    pub(crate) members: &'a [usize],
    /// Whether the record has the numbers of each.
    pub(crate) each: bool,
}

/// The progress of a run when a record is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub(crate) progress: &'a Progress,
    /// The consensus error just before the last mixing, if it was measured.
    pub(crate) drift: Option<f64>,
    pub(crate) wall_s: f64,
    /// The modelled time, if there is one.
    pub(crate) modelled_s: Option<f64>,
}

/// Makes a record of the agents' current models.
pub(crate) fn measure<T: Real>(
    together: Together<'_>,
    subject: RunId,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
    evaluated: RecordedAgents,
    moment: Moment,
) -> Result<Record, AgentsError> {
    let Moment { progress, drift, wall_s, modelled_s } = moment;
    let average = average(together, engine)?;
    let (of_average, own) = match engine.evaluate(together, MODELS, evaluated.agents)? {
        Some(found) => measured_by_engine(together, problem, engine, evaluated.agents, &average, found)?,
        None => {
            let own = own_models(together, problem, engine, evaluated.agents)?;
            (evaluate(together, problem, engine, Whose::Average, &average)?, own)
        }
    };
    let metrics = problem.held_out().map_or(&[][..], |held_out| held_out.metrics());
    let names = problem.held_out().map_or(&[][..], |held_out| held_out.own_metrics());
    let own = OwnModels::of(&own, metrics.len() + names.len());
    let mut held_out = RecordedMetrics::default();
    for (k, (metric, own)) in metrics.iter().zip(&own.metrics).enumerate() {
        let average = of_average.metrics.get(k).copied().unwrap_or(f64::NAN);
        let worst = if metric.larger_is_better() { f64::min } else { f64::max };
        held_out.push(*metric, [average, mean(own), extreme(own, worst)]);
    }
    let finite = |value: f64| value.is_finite().then_some(value);
    let mut more = BTreeMap::new();
    if let Some(loss) = engine.batch_loss(together)? {
        more.insert("batch_loss".to_owned(), finite(loss));
    }
    for (k, (name, own)) in names.iter().zip(&own.metrics[metrics.len()..]).enumerate() {
        let average = of_average.metrics.get(metrics.len() + k).copied().unwrap_or(f64::NAN);
        more.insert(name.clone(), finite(average));
        more.insert(format!("local_{name}"), finite(mean(own)));
    }
    let Costs { vectors_sent, bytes_sent, gradient_evals, .. } = total(together, progress.costs)?;
    let norm = problem
        .records_gradient_norm()
        .then(|| gradient_norm_sq(together, problem, engine, &average))
        .transpose()?;
    Ok(Record {
        algorithm: subject.algorithm.to_owned(),
        label: subject.label.to_owned(),
        seed: subject.seed,
        round: progress.round,
        step: progress.step,
        loss: of_average.loss,
        local_loss: mean(&own.losses),
        worst_loss: extreme(&own.losses, f64::max),
        grad_norm_sq: norm,
        consensus_error: engine.consensus_error(together, MODELS)?,
        consensus_error_before: drift,
        held_out,
        agents: if evaluated.each { own.each(&evaluated, metrics) } else { BTreeMap::new() },
        more,
        vectors_sent,
        bytes_sent,
        gradient_evals,
        wall_s,
        modelled_s,
    })
}

/// The average of the models.
pub(crate) fn average<T: Real>(
    together: Together<'_>,
    engine: &mut dyn Engine<T>,
) -> Result<Vec<T>, AgentsError> {
    Ok(engine.mean(together, MODELS)?.into_iter().map(T::of).collect())
}

/// Root mean square of the models; NaN if any entry is.
pub(crate) fn rms<T: Real>(together: Together<'_>, engine: &mut dyn Engine<T>) -> Result<f64, AgentsError> {
    let numbers = engine.agents() as f64 * engine.dim() as f64;
    Ok((engine.norm_sq(together, MODELS)? / numbers.max(1.0)).sqrt())
}

/// The costs of all agents together, from those of the agents hosted by this process.
pub(crate) fn total(together: Together<'_>, costs: Costs) -> Result<Costs, AgentsError> {
    let bytes_sent = together.total(costs.bytes_sent).map_err(AgentsError::Engine)?;
    let gradient_evals = together.total(costs.gradient_evals).map_err(AgentsError::Engine)?;
    Ok(Costs { bytes_sent, gradient_evals, ..costs })
}

/// Losses and metrics of the evaluated agents' own models.
struct OwnModels {
    losses: Vec<f64>,
    /// The values of all evaluated agents, for each metric of the problem.
    metrics: Vec<Vec<f64>>,
}

/// Measures the average model and those of the evaluated agents, given the losses and perhaps the metrics from the engine.
fn measured_by_engine<T: Real>(
    together: Together<'_>,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
    evaluated: &[usize],
    average: &[T],
    found: engine::EvaluatedModels,
) -> Result<(LossAndMetrics, Vec<LossAndMetrics>), AgentsError> {
    let metrics = match found.metrics {
        Some(metrics) => metrics,
        None if problem.held_out().is_none() => vec![Vec::new(); found.losses.len()],
        None if together.count() > 1 => {
            let mut metrics =
                vec![loss_and_metrics::measure(together, problem, engine, Whose::Average, average)?];
            for agent in evaluated {
                let model = engine.row(together, MODELS, *agent)?;
                metrics.push(loss_and_metrics::measure(
                    together,
                    problem,
                    engine,
                    Whose::Agent(*agent),
                    &model,
                )?);
            }
            metrics
        }
        None => {
            let (dim, rows) = (engine.dim(), engine.vector(MODELS)?);
            let row = |agent: &usize| (Whose::Agent(*agent), &rows[agent * dim..(agent + 1) * dim]);
            let (own, held_out) = (evaluated.iter().map(row), problem.held_out());
            let models: Vec<(Whose, &[T])> = [(Whose::Average, average)].into_iter().chain(own).collect();
            let measured =
                models.par_iter().map(|(whose, x)| whose.measure(held_out, x)).collect::<Result<_, _>>();
            measured.map_err(AgentsError::Evaluation)?
        }
    };
    let models = found.losses.into_iter().zip(metrics);
    let mut models = models.map(|(loss, metrics)| LossAndMetrics { loss, metrics });
    Ok((models.next().unwrap_or_default(), models.collect()))
}

/// The same, each evaluated by the problem.
fn own_models<T: Real>(
    together: Together<'_>,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
    evaluated: &[usize],
) -> Result<Vec<LossAndMetrics>, AgentsError> {
    if together.count() == 1 {
        let (dim, rows) = (engine.dim(), engine.vector(MODELS)?);
        let one = |agent: &usize| {
            LossAndMetrics::alone(problem, Whose::Agent(*agent), &rows[agent * dim..(agent + 1) * dim])
        };
        evaluated.par_iter().map(one).collect()
    } else {
        let one = |agent: &usize| {
            let model = engine.row(together, MODELS, *agent)?;
            evaluate(together, problem, engine, Whose::Agent(*agent), &model)
        };
        evaluated.iter().map(one).collect()
    }
}

impl OwnModels {
    fn of(each: &[LossAndMetrics], metrics: usize) -> Self {
        let metric =
            |k: usize| each.iter().map(|one| one.metrics.get(k).copied().unwrap_or(f64::NAN)).collect();
        Self {
            losses: each.iter().map(|one| one.loss).collect(),
            metrics: (0..metrics).map(metric).collect(),
        }
    }

    /// The numbers of each agent, by name.
    fn each(&self, evaluated: &RecordedAgents, metrics: &[Metric]) -> BTreeMap<String, Vec<Option<f64>>> {
        let finite =
            |values: &Vec<f64>| values.iter().map(|value| value.is_finite().then_some(*value)).collect();
        let number = |place: &usize| evaluated.members.get(*place).map(|agent| *agent as f64);
        let agents = evaluated.agents.iter().map(number).collect();
        let mut each =
            BTreeMap::from([("agent".to_owned(), agents), ("loss".to_owned(), finite(&self.losses))]);
        let named = |metric: &Metric| recorded_metrics::name(*metric, Models::Average).to_owned();
        each.extend(
            metrics.iter().zip(&self.metrics).map(|(metric, values)| (named(metric), finite(values))),
        );
        each
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The largest or smallest value; NaN if any value is NaN, which `f64::max` and `f64::min` would ignore.
fn extreme(values: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    let over = |a: f64, b: &f64| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, *b) };
    values.iter().skip(1).fold(values.first().copied().unwrap_or(f64::NAN), over)
}

/// `|grad f(x)|^2` with `f = (1/N) sum f_i`, summed in `f64` in increasing agent; with a penalty that of the prox-gradient
/// mapping.
pub(crate) fn gradient_norm_sq<T: Real>(
    together: Together<'_>,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
    x: &[T],
) -> Result<f64, AgentsError> {
    if let Some(gradient) = engine.mean_gradient(together, MODELS)? {
        return Ok(mapping_norm_sq(problem, x, gradient));
    }
    let agents = hosted(engine);
    let gradient =
        |agent: usize, g: &mut [T]| problem.gradient(agent, x, g).map_err(AgentsError::objective(agent));
    let mut mean = if together.count() == 1 {
        let mut sums = vec![0.0; x.len()];
        let at_once = rayon::current_num_threads().min(agents.len()).max(1);
        let mut gradients = vec![T::zero(); at_once * x.len()];
        for group in agents.chunks(at_once) {
            let rows = &mut gradients[..group.len() * x.len()];
            let one = |(agent, g): (&usize, &mut [T])| gradient(*agent, g);
            group.par_iter().zip(rows.par_chunks_exact_mut(x.len().max(1))).try_for_each(one)?;
            block::add_rows(&mut sums, rows);
        }
        sums
    } else {
        let mut rows = vec![T::zero(); agents.len() * x.len()];
        let one = |(agent, g): (&usize, &mut [T])| gradient(*agent, g);
        agents.par_iter().zip(rows.par_chunks_exact_mut(x.len().max(1))).try_for_each(one)?;
        engine.sum_rows(together, &rows)?
    };
    let count = engine.agents() as f64;
    block::divide(&mut mean, count);
    Ok(mapping_norm_sq(problem, x, mean))
}

/// The squared norm of the gradient of f at x, or with a penalty of the prox-gradient mapping.
fn mapping_norm_sq<T: Real>(problem: &dyn Problem<T>, x: &[T], mut gradient: Vec<f64>) -> f64 {
    problem.penalty().into_iter().for_each(|penalty| penalty.gradient_mapping(x, &mut gradient));
    block::sum_sq(&gradient)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mile::graph::Topology;
    use mile::methods::catalogue::{self, Parameters};
    use mile::mixing::Rule;
    use mile::network::Network;
    use mile::problems::{Failure, HeldOut, Metric};
    use mile::simulator::Simulator;

    use super::*;
    use crate::eval_agents::EvaluatedAgents;
    use crate::recorded_metrics::Models;

    pub(crate) fn record(label: &str, seed: u64, round: u64, loss: f64) -> Record {
        Record {
            algorithm: "mile".into(),
            label: label.into(),
            seed,
            round,
            step: 10 * round,
            loss,
            local_loss: loss * 1.1,
            worst_loss: loss * 1.5,
            grad_norm_sq: None,
            consensus_error: loss * 1e-3,
            consensus_error_before: None,
            held_out: RecordedMetrics::default(),
            agents: BTreeMap::new(),
            more: BTreeMap::new(),
            vectors_sent: round,
            bytes_sent: 100 * round,
            gradient_evals: 100 * round,
            wall_s: 0.5 * round as f64,
            modelled_s: None,
        }
    }

    /// f_i(x) = (x - i)^2/2, with an error, an accuracy and an undefined AUC; counts evaluations.
    struct Counting {
        agents: usize,
        losses: AtomicUsize,
        measured: AtomicUsize,
        own: Vec<String>,
    }

    impl Problem<f64> for Counting {
        fn agents(&self) -> usize {
            self.agents
        }

        fn dim(&self) -> usize {
            1
        }

        fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
            self.losses.fetch_add(1, Ordering::Relaxed);
            Ok((x[0] - agent as f64).powi(2) / 2.0)
        }

        fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
            gradient[0] = x[0] - agent as f64;
            Ok(())
        }

        fn held_out(&self) -> Option<&dyn HeldOut<f64>> {
            Some(self)
        }
    }

    impl HeldOut<f64> for Counting {
        fn metrics(&self) -> &'static [Metric] {
            &[Metric::Accuracy, Metric::Auc, Metric::Rmse]
        }

        fn measure(&self, x: &[f64]) -> Result<Vec<f64>, Failure> {
            self.measured.fetch_add(1, Ordering::Relaxed);
            Ok(vec![1.0 / (1.0 + x[0]), f64::NAN, 2.0 * x[0], x[0].powi(3), f64::INFINITY])
        }

        fn own_metrics(&self) -> &[String] {
            &self.own
        }
    }

    /// A record of agents whose models are 1, 2, 3, ..., and the evaluations of losses and metrics that it took.
    fn measured(agents: usize, evaluated: EvaluatedAgents) -> (Record, usize, usize) {
        let own = ["cube", "endless"].map(String::from).to_vec();
        let problem = Counting { agents, losses: AtomicUsize::new(0), measured: AtomicUsize::new(0), own };
        let network = Network::new(Topology::Ring.build(agents, 0).unwrap(), Rule::Metropolis).unwrap();
        let method = catalogue::find("dsgd").unwrap().build(&Parameters::default(), &network, 0).unwrap();
        let models: Vec<f64> = (1..=agents).map(|k| k as f64).collect();
        let mut engine = Simulator::new(&problem, &network, &*method, &models, 0).unwrap();
        let run = RunId { algorithm: "dsgd", label: "d", seed: 5 };
        let chosen = evaluated.choose(agents, run.seed);
        let record = measure(
            Together::of(&mile::ranks::Alone),
            run,
            &problem,
            &mut engine,
            RecordedAgents { agents: &chosen, members: &(0..agents).collect::<Vec<_>>(), each: true },
            Moment { progress: &Progress::default(), drift: None, wall_s: 0.0, modelled_s: None },
        )
        .unwrap();
        (record, problem.losses.into_inner(), problem.measured.into_inner())
    }

    #[test]
    fn own_models_are_those_of_the_evaluated_agents_and_cost_is_linear_in_agents() {
        for (agents, evaluated) in [
            (5, EvaluatedAgents::default()),
            (40, EvaluatedAgents::default()),
            (400, EvaluatedAgents::default()),
            (40, EvaluatedAgents::All),
            (40, EvaluatedAgents::AtMost(1)),
        ] {
            let (record, losses, measured) = measured(agents, evaluated);
            let chosen = evaluated.choose(agents, 5);
            assert_eq!((losses, measured), ((1 + chosen.len()) * agents, 1 + chosen.len()));
            let models: Vec<f64> = chosen.iter().map(|agent| *agent as f64 + 1.0).collect();
            let f = |x: f64| (0..agents).map(|i| (x - i as f64).powi(2) / 2.0).sum::<f64>() / agents as f64;
            let mean =
                |of: &dyn Fn(f64) -> f64| models.iter().map(|x| of(*x)).sum::<f64>() / models.len() as f64;
            let close =
                |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * b.abs(), "{agents} agents: {a} {b}");
            close(record.local_loss, mean(&f));
            close(record.worst_loss, models.iter().map(|x| f(*x)).fold(0.0, f64::max));
            for ((agent, loss), chosen) in
                record.agents["agent"].iter().zip(&record.agents["loss"]).zip(&chosen)
            {
                assert_eq!(*agent, Some(*chosen as f64));
                close(loss.unwrap(), f(*chosen as f64 + 1.0));
            }
            assert_eq!(record.agents["accuracy"].len(), chosen.len());
            let average = (agents as f64 + 1.0) / 2.0;
            close(record.loss, f(average));
            close(record.consensus_error, (agents as f64 * agents as f64 - 1.0) / 12.0);
            let get = |metric, models| record.held_out.get(metric, models).unwrap();
            close(get(Metric::Accuracy, Models::Average), 1.0 / (1.0 + average));
            close(get(Metric::Accuracy, Models::Own), mean(&|x| 1.0 / (1.0 + x)));
            let largest = models.iter().copied().fold(0.0, f64::max);
            close(get(Metric::Accuracy, Models::Worst), 1.0 / (1.0 + largest));
            close(get(Metric::Rmse, Models::Average), 2.0 * average);
            close(get(Metric::Rmse, Models::Own), 2.0 * mean(&|x| x));
            close(get(Metric::Rmse, Models::Worst), 2.0 * largest);
            assert!(Models::ALL.iter().all(|models| get(Metric::Auc, *models).is_nan()));
            assert_eq!(record.held_out.get(Metric::R2, Models::Own), None);
            close(record.more["cube"].unwrap(), average.powi(3));
            close(record.more["local_cube"].unwrap(), mean(&|x| x.powi(3)));
            assert_eq!((record.more["endless"], record.more["local_endless"]), (None, None));
            let written = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&written).unwrap().more, record.more);
        }
    }

    #[test]
    fn metrics_have_their_own_names_and_records_without_them_are_read() {
        let text = r#"{"algorithm":"mile","label":"m","seed":1,"round":2,"step":3,"loss":1.0,"local_loss":1.5,
            "worst_loss":2.0,"consensus_error":0.1,"accuracy":0.75,"local_accuracy":0.5,"worst_accuracy":null,
            "vectors_sent":4,"bytes_sent":5,"gradient_evals":6,"wall_s":0.5,"of_another_version":[1]}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        let get = |models| record.held_out.get(Metric::Accuracy, models);
        assert_eq!((get(Models::Average), get(Models::Own)), (Some(0.75), Some(0.5)));
        assert!(get(Models::Worst).unwrap().is_nan());
        assert_eq!(record.held_out.get(Metric::Auc, Models::Average), None);
        let written = serde_json::to_string(&measured(3, EvaluatedAgents::All).0).unwrap();
        for part in [
            r#""accuracy":0.3333333333333333,"local_accuracy":0.3611111111111111,"worst_accuracy":0.25,"#,
            r#""auc":null,"local_auc":null,"worst_auc":null,"rmse":4.0,"local_rmse":4.0,"worst_rmse":6.0,"agents":{"#,
        ] {
            assert!(written.contains(part), "{written}");
        }
        assert!(!written.contains("r2") && !written.contains("test_loss"));
        let again: Record = serde_json::from_str(&written).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), written);
    }

    #[test]
    fn what_is_not_finite_is_null_and_what_is_not_there_is_left_out() {
        let mut record: Record = serde_json::from_str(
            r#"{"algorithm":"mile","label":"m","seed":1,"round":2,"step":3,"loss":null,"local_loss":1.5,
               "worst_loss":2.0,"consensus_error":0.1,"grad_norm_sq":null,"vectors_sent":4,"bytes_sent":5,
               "gradient_evals":6,"wall_s":0.5}"#,
        )
        .unwrap();
        assert!(record.loss.is_nan() && record.grad_norm_sq.unwrap().is_nan());
        assert_eq!(record.held_out, RecordedMetrics::default());
        record.worst_loss = f64::INFINITY;
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains(r#""loss":null"#) && text.contains(r#""worst_loss":null"#));
        assert!(text.contains(r#""grad_norm_sq":null"#) && !text.contains("accuracy"));
    }
}
