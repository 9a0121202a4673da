//! The smoothness of an experiment's problem, estimated within a budget.
//!
//! The budget is counted in rows that gradients read, not in seconds, so that the estimate is the same on every machine
//! and for any number of threads:
//!
//! * as many rows as all agents read in a given number of steps of the run, or [`ALWAYS`] numbers, if that is more: those
//!   are read within hundredths of a second. Where rows are not known, gradients are counted, of which
//!   [`ALWAYS_GRADIENTS`] for each agent are always allowed;
//! * if the default [`Effort`] fits, it is spent: five points, thirty iterations, all rows;
//! * otherwise L is estimated at the starting point only, first from a few rows of each agent, then from four times as
//!   many, and so on, each time from the direction found before, as long as [`LEAST`] iterations fit.
//!
//! Where the problem has a [quadratic bound](Problem::quadratic_bound), L is that of the bound, which is the same at every point and
//! holds for the whole run: one point is enough.
//!
//! L comes out too large on a sample where no direction dominates: the largest eigenvalue of m random rows in n
//! dimensions is about `(1 + sqrt(n/m))^2` times that of infinitely many.

use mile::problems::Problem;
use mile_theory::sample::Sample;
use mile_theory::smoothness::{self, Ascent, Effort, Smoothness};

use crate::engines::Scalar;
use crate::error::LabError;
use crate::objectives::{Curvature, RowCounts};
use crate::refused::of_theory;
use crate::spec::Spec;
use crate::start;

/// Numbers that an estimate may always read.
const ALWAYS: u64 = 1 << 25;
/// Gradients of each agent that an estimate may always use, where it is not known how many rows they read.
const ALWAYS_GRADIENTS: u64 = 40;
/// Rows of the first sample of an agent.
const FIRST: u64 = 256;
/// How many times larger the next sample is.
const LARGER: u64 = 4;
/// The fewest iterations for which a larger sample is worthwhile.
const LEAST: u64 = 8;

/// Estimates the smoothness at the cost of at most this many steps of the run, or of what is always allowed.
pub(super) fn estimate<T: Scalar>(spec: &Spec, steps: f64) -> Result<Smoothness, LabError> {
    let seed = spec.seeds[0];
    let problem = T::problem(&*spec.objectives, seed)?;
    let bound = problem.quadratic_bound();
    let of_run: &dyn Problem<T> = bound.as_deref().unwrap_or(&*problem);
    let start = match &bound {
        Some(bound) => vec![T::zero(); bound.dim()],
        None => start::points(&spec.start, &*problem, &[0], seed)?,
    };
    let (x, agents) = (&start[..of_run.dim()], problem.agents());
    let whole = |effort: Effort| {
        smoothness::estimate(of_run, x, effort, seed).map_err(|error| of_theory("problem", error))
    };
    if spec.objectives.curvature() == Curvature::Changing {
        return whole(Effort { points: 2, iterations: 8, agents: 4, stochastic: true });
    }
    let points = if bound.is_some() { 1 } else { Effort::default().points };
    let effort = Effort { points, ..Effort::default() };
    let (rows, always) = match spec.objectives.rows(seed)? {
        Some(rows) => (rows, ALWAYS / problem.dim() as u64),
        None => {
            let always = ALWAYS_GRADIENTS * Effort::default().agents_of(agents) as u64;
            (RowCounts { all: 1, run: 1, largest_sample: 0 }, always)
        }
    };
    let allowed = ((steps * rows.run as f64 * agents as f64) as u64).max(always);
    if effort.gradients(agents).saturating_mul(rows.all) <= allowed {
        return whole(effort);
    }
    let mut found = within(spec, of_run, x, rows, allowed)?;
    // A bound is the same at every point.
    let everything = |sample: &Sample| sample.rows.is_none() && sample.agents.0 == sample.agents.1;
    if bound.is_some() {
        found.sample = found.sample.map(|sample| Sample { one_point: false, ..sample });
        found.sample = found.sample.filter(|sample| !everything(sample));
    }
    Ok(found)
}

/// The smoothness at one point, from samples of increasing size that together read at most `allowed` rows. `problem` is that of the
/// run or its quadratic bound, and so is that of a sample.
fn within<T: Scalar>(
    spec: &Spec,
    problem: &dyn Problem<T>,
    x: &[T],
    rows: RowCounts,
    allowed: u64,
) -> Result<Smoothness, LabError> {
    let (seed, effort) = (spec.seeds[0], Effort::default());
    let agents = effort.agents_of(problem.agents());
    let mut ascent = Ascent::new(x, agents, seed);
    let (mut left, mut size) = (allowed, 0);
    while let Some(next) = next_size(size, left / (2 * LEAST * agents as u64), rows) {
        size = next;
        let sample = match spec.objectives.sample(size).filter(|_| size < rows.all) {
            Some(objectives) => Some(T::problem(&*objectives, seed)?),
            None => None,
        };
        let fits = left / (2 * agents as u64 * size);
        let iterations = (effort.iterations as u64).min(fits) as usize;
        let bound = sample.as_deref().and_then(|sample| sample.quadratic_bound());
        let gradients = ascent
            .go_on(bound.as_deref().or(sample.as_deref()).unwrap_or(problem), iterations)
            .map_err(|error| of_theory("problem", error))?;
        left = left.saturating_sub(gradients * size);
    }
    let mut found = ascent.found().map_err(|error| of_theory("problem", error))?;
    let rows = (size < rows.all).then_some((size, rows.all));
    found.sample = Some(Sample { agents: (agents, problem.agents()), rows, one_point: true });
    Ok(found)
}

/// The rows of the next sample after one of `size`, at most `fits` unless it is the first; none if it would not be at
/// least twice as large.
fn next_size(size: u64, fits: u64, rows: RowCounts) -> Option<u64> {
    let wanted = (LARGER * size).max(FIRST).min(fits).max(1);
    let next = match rows.largest_sample {
        0 => rows.all.max(1),
        largest if wanted <= largest => wanted,
        _ if rows.all <= fits => rows.all,
        largest => largest,
    };
    (next >= 2 * size).then_some(next)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use mile::problems::Failure;
    use mile::random::{Purpose, stream};
    use rand::RngExt;
    use rand_distr::StandardNormal;

    use super::*;
    use crate::advice::advise;
    use mile::methods::catalogue::Catalogue;

    use crate::objectives::{FixedProblem, Kinds, Objectives};
    use crate::plan::Plan;

    /// f_i(x) = 1/2 sum_k k x_k^2 + ..., which counts its gradients.
    struct Counting {
        agents: usize,
        gradients: Arc<AtomicU64>,
    }

    impl Problem<f64> for Counting {
        fn agents(&self) -> usize {
            self.agents
        }
        fn dim(&self) -> usize {
            40
        }
        fn loss(&self, _: usize, x: &[f64]) -> Result<f64, Failure> {
            Ok(x.iter().zip(1..).map(|(x, k)| 0.5 * f64::from(k) * x * x).sum())
        }
        fn gradient(&self, _: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
            self.gradients.fetch_add(1, Ordering::Relaxed);
            gradient.iter_mut().zip(x).zip(1..).for_each(|((g, x), k)| *g = f64::from(k) * x);
            Ok(())
        }
    }

    const ALGORITHM: &str = "[[algorithm]]\nname = \"mile\"\nstep_size = 0.01\nlocal_steps = 5\n";

    fn own(agents: usize, rounds: u64, xi: &str) -> (Plan, Arc<AtomicU64>) {
        let gradients = Arc::new(AtomicU64::new(0));
        let problem: Arc<dyn Problem<f64>> = Arc::new(Counting { agents, gradients: gradients.clone() });
        let given: Arc<dyn Objectives> = Arc::new(FixedProblem::new("counting", problem).with_version("1"));
        let kinds = Kinds::none().with("counting", move |_, _| Ok(given.clone()));
        let text = format!("rounds = {rounds}\n[network]\nagents = {agents}\n{ALGORITHM}{xi}");
        let spec =
            Spec::read_with(&text.parse().unwrap(), Path::new(""), &kinds, &Catalogue::default()).unwrap();
        (Plan::new(spec).unwrap(), gradients)
    }

    #[test]
    fn the_advice_costs_at_most_a_twentieth_of_the_gradients_of_the_run() {
        for (agents, rounds) in [(4, 400), (1, 1000), (40, 250), (4, 5000)] {
            let (plan, gradients) = own(agents, rounds, "");
            let found = advise(&plan).unwrap();
            let used = gradients.load(Ordering::Relaxed);
            let run = 5 * rounds * agents as u64;
            assert!(used > 0 && 20 * used <= run, "{used} of {run}");
            assert_eq!(found.estimate.as_ref().unwrap().gradients, used);
            assert_eq!(found.sampled().is_some(), agents == 40 || rounds < 5000, "{found:?}");
        }
    }

    #[test]
    fn a_tiny_run_is_advised_at_a_fixed_small_price() {
        for (agents, rounds) in [(1, 0), (3, 1), (30, 2)] {
            let (plan, gradients) = own(agents, rounds, "");
            let (found, sample) = advise(&plan).unwrap().sampled().unwrap();
            assert!((found / 44.0 - 1.0).abs() < 0.1, "{found}");
            assert!(sample.one_point && sample.rows.is_none());
            let most = ALWAYS_GRADIENTS * sample.agents.0 as u64;
            assert!(gradients.load(Ordering::Relaxed) <= most);
        }
    }

    const DIM: usize = 32;
    /// Enough rows that even the minimum number of iterations over all of them exceeds what is always allowed.
    const ROWS: usize = 40_000;

    /// A folder with a file of Gaussian rows for each of two agents.
    fn random_tables() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for agent in 0..2 {
            let mut random = stream(1, Purpose::Data, agent, 0);
            let mut text: String = (0..DIM).map(|k| format!("x{k},")).collect();
            text += "y\n";
            for _ in 0..ROWS {
                let row: [f64; DIM] = std::array::from_fn(|_| random.sample(StandardNormal));
                row.iter().for_each(|v| write!(text, "{v:.2},").unwrap());
                text += if row[0] + row[1] > 0.3 { "yes\n" } else { "no\n" };
            }
            std::fs::write(folder.path().join(format!("{agent}.csv")), text).unwrap();
        }
        folder
    }

    fn plan(folder: &Path, settings: &str, xi: &str) -> Plan {
        let text = format!(
            "{settings}\n[network]\nagents = 2\n[problem]\nkind = \"table\"\ndata = \"{{agent}}.csv\"\n\
             target = \"y\"\nloss = \"logistic\"\n{ALGORITHM}{xi}"
        );
        Plan::new(Spec::parse(&text, folder, &[]).unwrap()).unwrap()
    }

    #[test]
    fn an_estimate_from_a_sample_of_the_rows_says_so_and_is_close() {
        let folder = random_tables();
        let plan = plan(folder.path(), "rounds = 1", "");
        let exact = estimate::<f64>(&plan.spec, 1e9).unwrap();
        assert_eq!(exact.sample, None);
        let (found, sample) = advise(&plan).unwrap().sampled().unwrap();
        assert_eq!(sample.to_string(), "up to 10,000 of 40,000 rows of each agent");
        assert!((found / (1.1 * exact.estimate) - 1.0).abs() < 0.2, "{found} {exact:?}");
    }

    #[test]
    fn what_auto_chose_on_a_sample_stays_when_rounds_and_seeds_are_added() {
        let folder = random_tables();
        let plans = ["rounds = 1", "rounds = 900\nseeds = [0, 1]"]
            .map(|settings| plan(folder.path(), settings, "xi = \"auto\""));
        let [short, long] = plans.each_ref().map(|plan| {
            (
                plan.methods[0].parameters.xi.map(|xi| xi.last().to_bits()),
                advise(plan).unwrap().estimate.unwrap(),
            )
        });
        assert!(short.1.sample.unwrap().rows.is_some());
        assert_eq!(short, long);
    }

    #[test]
    fn samples_grow_while_they_fit() {
        let rows = RowCounts { all: 50_000, run: 50_000, largest_sample: 12_500 };
        let sizes = |fits: u64| {
            let next = |size: &u64| next_size(*size, fits, rows);
            std::iter::successors(next_size(0, fits, rows), next).collect::<Vec<u64>>()
        };
        assert_eq!(sizes(1_000_000), [256, 1024, 4096, 50_000]);
        assert_eq!(sizes(20_000), [256, 1024, 4096, 12_500]);
        assert_eq!(sizes(3000), [256, 1024, 3000]);
        assert_eq!(sizes(1500), [256, 1024]);
        assert_eq!(sizes(0), [1]);
        let whole = RowCounts { all: 7, run: 7, largest_sample: 0 };
        assert_eq!((next_size(0, 0, whole), next_size(7, 100, whole)), (Some(7), None));
    }
}
