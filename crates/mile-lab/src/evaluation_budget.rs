//! How often a run is evaluated, and on how many samples, where the experiment file does not say so.
//!
//! Evaluations take at most a fifth of the gradient work of a run, counted before the first step and not timed, so that the
//! choice is the same on every machine, for all methods and all seeds:
//!
//! * twenty records after the first one, if they fit, or if those of all jobs read at most a quarter of a billion numbers, which
//!   takes a fraction of a second;
//! * where data can be evaluated on samples, as many samples as fit, but at least a thousand for losses and a thousand for
//!   metrics;
//! * if that is still too much, fewer records;
//! * a rule of `stop` on the gradient norm is checked as often as what is left allows, every round if it can. The consensus error
//!   alone is checked every round: it costs one pass over the models, like the search for divergence.

use crate::error::LabError;
use crate::objectives::{EvaluationRows, RowCounts};
use crate::spec::{AlgorithmSpec, EvaluationSamples, Spec};

/// Evaluations may take this fraction of the gradient work of a run: a fifth of both together.
const SHARE: f64 = 0.25;
/// Numbers that the evaluations of all jobs together may always read, where rows are counted.
const ALWAYS: f64 = (1u64 << 28) as f64;
/// The fewest samples, of all agents together.
const LEAST: u64 = 1000;
/// What a loss and a gradient cost on one row, in numbers that are read: half a gradient is a forward pass, and more than that is needed
/// for each row, for a loss most of it by the logarithm and by rows that are no longer in cache. Measured on tables (`bench/promises`).
const LOSS: [f64; 2] = [0.5, 50.0];
const GRADIENT: [f64; 2] = [1.0, 5.0];

/// What the evaluations of a run take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EvaluationBudget {
    /// Agents whose own models are measured.
    pub agents: usize,
    /// The fraction of a run's work that evaluations take, counted in rows or gradients.
    pub share: f64,
}

/// Costs in rows that gradients read, or in gradients where rows are not known.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// All rounds of a job, on average over the algorithms.
    run: f64,
    /// An evaluation of one model on all rows: losses, and metrics.
    losses: f64,
    metrics: f64,
    /// What an evaluation costs besides models: the gradient of f.
    fixed: f64,
    models: f64,
}

impl Costs {
    fn of(spec: &Spec, norm: bool, agents_measured: usize, dim: usize) -> Result<Self, LabError> {
        let objectives = &spec.objectives;
        let n = spec.network.agents as f64;
        let rows = objectives.rows(spec.seeds[0])?;
        let RowCounts { all, run, .. } = rows.unwrap_or(RowCounts { all: 1, run: 1, largest_sample: 0 });
        let steps: f64 = spec.algorithms.iter().map(AlgorithmSpec::gradients_per_round).sum();
        let steps = steps / spec.algorithms.len().max(1) as f64;
        let EvaluationRows { training, test, .. } = objectives.evaluation_rows()?.unwrap_or(EvaluationRows {
            training: all * n as u64,
            test: 0,
            is_given: true,
        });
        let cost = |[each, more]: [f64; 2]| each * dim as f64 + more;
        let of_a_gradient = cost(LOSS) / cost(GRADIENT);
        Ok(Self {
            run: spec.rounds as f64 * steps * n * run as f64,
            losses: of_a_gradient * training as f64,
            metrics: of_a_gradient * test as f64,
            fixed: if norm { n * all as f64 } else { 0.0 },
            models: 1.0 + agents_measured as f64,
        })
    }

    /// An evaluation on these fractions of the rows for losses and metrics.
    fn evaluation(&self, losses: f64, metrics: f64) -> f64 {
        self.models * (losses * self.losses + metrics * self.metrics) + self.fixed
    }
}

/// Whether an experiment that does not say on how many samples models are evaluated is evaluated on fewer where all would take too
/// long. Agents must agree on the experiment, and one that has only its own data would choose another number than its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Samples {
    Chosen,
    All,
}

/// Completes the experiment where it does not say how it is evaluated. `norm`: whether the gradient norm is recorded; `dim`:
/// numbers in a row.
pub(crate) fn choose(
    spec: &mut Spec,
    norm: bool,
    dim: usize,
    samples: Samples,
) -> Result<EvaluationBudget, LabError> {
    let agents = spec.eval_agents().choose(spec.network.agents, 0).len();
    let costs = Costs::of(spec, norm, agents, dim)?;
    let counted = spec.objectives.rows(spec.seeds[0])?.is_some();
    let jobs = spec.algorithms.len() * spec.seeds.len();
    let always = if counted { ALWAYS / (dim * jobs).max(1) as f64 } else { 0.0 };
    let allowed = (SHARE * costs.run).max(always);
    let (rounds, usual) = (spec.rounds, spec.eval_every());
    let records = |every: u64| (rounds / every + 1) as f64;
    let mut parts = (1.0, 1.0);
    let rows = spec.objectives.evaluation_rows()?;
    if let Some(rows) =
        rows.filter(|rows| !rows.is_given && spec.samples.is_none() && samples == Samples::Chosen)
    {
        let fits = (allowed / records(usual) - costs.fixed) / (costs.models * (costs.losses + costs.metrics));
        if fits < 1.0 {
            let part = |all: u64| fits.max(LEAST as f64 / all.max(1) as f64).min(1.0);
            parts = (part(rows.training), part(rows.test));
            sample(spec, rows, parts);
        }
    }
    let evaluation = costs.evaluation(parts.0, parts.1);
    let fits = (allowed / evaluation).floor().max(2.0) as u64 - 1;
    let every = *spec.eval_every.get_or_insert(usual.max(rounds.div_ceil(fits)).max(1));
    let mut evaluations = records(every) * evaluation;
    if let Some(rule) = spec.stop.as_mut().filter(|rule| rule.loss_change.is_none()) {
        let check = if rule.grad_norm.is_some() { costs.fixed } else { 0.0 };
        let left = (allowed - evaluations).max(0.0);
        let often = if check > 0.0 { rounds as f64 * check / left } else { 1.0 };
        rule.every.get_or_insert((often.ceil() as u64).clamp(1, every));
        // At records the gradient is measured anyway.
        evaluations += rule.checks_between_records(rounds, every) as f64 * check;
    }
    Ok(EvaluationBudget { agents, share: evaluations / (evaluations + costs.run).max(f64::MIN_POSITIVE) })
}

/// Evaluates on fractions of the samples.
fn sample(spec: &mut Spec, rows: EvaluationRows, parts: (f64, f64)) {
    let per_agent = (parts.0 * rows.training as f64 / spec.network.agents as f64).ceil().max(1.0) as usize;
    let test = (rows.test > 0).then(|| (parts.1 * rows.test as f64).ceil() as usize);
    spec.evaluate_on(EvaluationSamples { per_agent, test });
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use mile::methods::catalogue::Catalogue;
    use mile::problems::Quadratic;
    use mile::real::Precision;
    use toml::Value;

    use super::*;
    use crate::objectives::{AnyProblem, Kinds, Objectives};
    use crate::plan::Plan;

    /// Objectives with samples, none of which is ever read.
    #[derive(Clone, Copy)]
    struct Sampled {
        /// Samples of all agents and of the test set, and of a batch; none if rows are not known.
        rows: Option<(u64, u64, u64)>,
    }

    impl Objectives for Sampled {
        fn title(&self) -> String {
            "samples".into()
        }
        fn problem(&self, seed: u64, _: Precision) -> Result<AnyProblem, LabError> {
            Ok(AnyProblem::F64(Arc::new(Quadratic::new(10, 200_000, 10.0, 1.0, seed).unwrap())))
        }
        fn rows(&self, _: u64) -> Result<Option<RowCounts>, LabError> {
            let count = |(_, _, run)| RowCounts { all: 1, run, largest_sample: 0 };
            Ok(self.rows.map(count))
        }
        fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
            Ok(self.rows.map(|(training, test, _)| EvaluationRows { training, test, is_given: false }))
        }
        fn evaluating(&self, _: usize, _: usize) -> Option<Arc<dyn Objectives>> {
            Some(Arc::new(*self))
        }
        fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
            // The others are taken to have as many.
            let rows = self.rows.map(|(training, test, batch)| (training / (1 + agent as u64), test, batch));
            Some(Arc::new(Self { rows }))
        }
    }

    fn spec(rows: Option<(u64, u64, u64)>, settings: &str, algorithms: &str) -> Spec {
        let kinds =
            Kinds::none().with("samples", move |_, _| Ok(Arc::new(Sampled { rows }) as Arc<dyn Objectives>));
        let text = format!("{settings}\n[network]\nagents = 10\n{algorithms}");
        Spec::read_with(&text.parse().unwrap(), Path::new(""), &kinds, &Catalogue::default()).unwrap()
    }

    fn plan(rows: Option<(u64, u64, u64)>, settings: &str, algorithms: &str) -> Plan {
        Plan::new(spec(rows, settings, algorithms)).unwrap()
    }

    const DSGD: &str = "[[algorithm]]\nname = 'dsgd'\nstep_size = 0.1\n";
    const MILE: &str = "[[algorithm]]\nname = 'mile'\nstep_size = 0.1\nlocal_steps = 10\n";

    /// Rounds between records, and training and test samples if they were chosen.
    fn chosen(plan: &Plan) -> (u64, Option<i64>, Option<i64>) {
        let written = plan.spec.to_table();
        let number = |key: &str| written["problem"].get(key).and_then(Value::as_integer);
        (plan.spec.eval_every(), number("eval_samples"), number("test_samples"))
    }

    #[test]
    fn evaluations_take_at_most_a_fifth_of_the_work_however_long_the_run() {
        for rounds in [1, 2, 10, 60, 150, 1000, 20_000] {
            for algorithms in [DSGD, MILE, &format!("{DSGD}{MILE}")] {
                let plan = plan(None, &format!("rounds = {rounds}"), algorithms);
                let share = plan.evaluation.share;
                // The first and the last record are always made.
                assert!(share <= 0.2 || plan.spec.eval_every() == rounds, "{rounds} {share}");
                assert!(plan.spec.eval_every() >= (rounds / 20).max(1));
                // The written settings give the same run.
                assert_eq!(
                    plan.spec.to_table()["eval_every"].as_integer(),
                    Some(plan.spec.eval_every() as i64)
                );
            }
        }
        assert_eq!(plan(None, "rounds = 200", MILE).spec.eval_every(), 10);
        assert_eq!(plan(None, "rounds = 200\neval_every = 1", DSGD).spec.eval_every(), 1);
    }

    /// On rows of few numbers a loss costs more than a gradient, because of its logarithm.
    #[test]
    fn losses_of_narrow_tables_cost_more_than_half_a_gradient() {
        let folder = tempfile::tempdir().unwrap();
        let share = |columns: usize| {
            let header: String = (0..columns).map(|k| format!("c{k},")).collect();
            let row = |k: usize| (0..columns).map(|c| format!("{},", (k * (c + 3)) % 7)).collect::<String>();
            let rows: String = (0..40).map(|k| format!("{}{}\n", row(k), k % 2)).collect();
            std::fs::write(folder.path().join("all.csv"), format!("{header}y\n{rows}")).unwrap();
            let text = format!(
                "rounds = 200\n[network]\nagents = 2\n[problem]\nkind = 'table'\ndata = 'all.csv'\ntarget = 'y'\n\
                 loss = 'logistic'\n{MILE}"
            );
            Plan::new(Spec::parse(&text, folder.path(), &[]).unwrap()).unwrap().evaluation.share
        };
        let (narrow, wide) = (share(3), share(300));
        println!("share of evaluations: {narrow:.3} with 3 columns, {wide:.3} with 300");
        assert!(narrow > 3.0 * wide && wide < 0.05, "{narrow} {wide}");
    }

    #[test]
    fn a_rule_is_checked_every_round_where_that_is_cheap() {
        let stop = |settings: &str, algorithms: &str| {
            let plan = plan(None, settings, algorithms);
            let share = plan.evaluation.share;
            assert!(share <= 0.2 || settings.contains("every"), "{settings}: {share}");
            plan.spec.stop.unwrap().every
        };
        let gradient = "stop = { grad_norm = 1e-6 }";
        // A check costs a gradient of each agent: a tenth of a round of ten local steps, or all of a round of one.
        assert_eq!(stop(&format!("rounds = 1000\n{gradient}"), MILE), Some(1));
        let once = stop(&format!("rounds = 5000\n{gradient}"), DSGD).unwrap();
        assert!((4..10).contains(&once), "{once}");
        assert_eq!(stop(&format!("rounds = 100\n{gradient}"), DSGD), Some(19));
        assert_eq!(stop(&format!("rounds = 100\neval_every = 5\n{gradient}"), DSGD), Some(5), "at records");
        assert_eq!(stop("rounds = 100\nstop = { consensus = 1e-6 }", DSGD), Some(1));
        assert_eq!(stop("rounds = 100\nstop = { loss_change = 1e-6 }", MILE), None);
        let given = "rounds = 100\neval_every = 50\nstop = { grad_norm = 1e-6, every = 7 }";
        assert_eq!(stop(given, DSGD), Some(7));
    }

    #[test]
    fn samples_are_evaluated_where_all_would_take_too_long() {
        let images = Some((60_000_000, 10_000_000, 32));
        // Enough work for all samples of small sets, and for none of large ones.
        assert_eq!(chosen(&plan(Some((500, 300, 32)), "rounds = 200", MILE)), (10, None, None));
        let (every, training, test) = chosen(&plan(images, "rounds = 2000000", MILE));
        let (training, test) = (training.unwrap() as u64, test.unwrap() as u64);
        assert_eq!(every, 100_000);
        assert!(training > 1000 && test > 1000 && training < 6_000_000, "{training} {test}");
        let plan = plan(images, "rounds = 100", MILE);
        let (every, training, test) = chosen(&plan);
        assert!(
            every > 10 && every < 20 && plan.evaluation.share <= 0.2,
            "{every} {}",
            plan.evaluation.share
        );
        assert_eq!((training, test), (Some(100), Some(1000)), "the least");
    }

    #[test]
    fn agents_with_data_of_their_own_choose_the_same() {
        let spec = spec(Some((60_000_000, 10_000_000, 32)), "rounds = 100", MILE);
        assert_eq!(chosen(&Plan::new(spec.clone()).unwrap()).1, Some(100));
        for agent in [0, 9] {
            let plan = Plan::for_agent(spec.clone(), agent).unwrap();
            assert_eq!(chosen(&plan), (spec.eval_every(), None, None));
        }
    }
}
