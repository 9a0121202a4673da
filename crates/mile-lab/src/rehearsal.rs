//! What a plan takes on this machine, in time and memory: its jobs are begun as they will be run, for a second or two in all, and
//! figures like its own are drawn. A job that reaches its `stop` in that time is known to end there. Nothing is written.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mile::engine::Engine;
use mile::membership::Present;
use mile::problems::Problem;
use mile::ranks::{Alone, Together};
use mile::run::Run;
use mile::with_precision;
use rayon::prelude::*;

use crate::engines::{EngineSetup, Scalar};
use crate::error::LabError;
use crate::plan::{Job, Plan};
use crate::plot::{self, Runs};
use crate::record::{Moment, Record, RecordedAgents, RunId, measure, rms};
use crate::room;
use crate::sharing::Sharing;
use crate::spec::StopRule;
use crate::stopping::may_hold;

/// What a plan takes on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal {
    /// Seconds of all jobs.
    pub jobs: f64,
    /// Whether that is the most, because jobs may reach their `stop` before their last round.
    pub is_most: bool,
    /// Seconds of drawing the figures.
    pub drawing: f64,
    /// Seconds of a round, on average over the jobs.
    pub round: f64,
    /// Seconds of an evaluation, on average over the jobs.
    pub evaluation: f64,
    /// Seconds of a check of `stop`, on average over the jobs; none without one that is checked between records.
    pub check: Option<f64>,
    /// The fraction of the jobs' time that evaluations and checks take.
    pub share: f64,
    /// Jobs that run at the same time.
    pub jobs_at_once: usize,
    /// Threads of each of them.
    pub threads: usize,
    /// Bytes of memory at the peak of the run, where the system says how many this process has had.
    pub memory: Option<u64>,
    begun: Vec<Begun>,
}

/// Seconds that parts of a job take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct JobTimes {
    /// Building the problem, which all jobs of a seed share.
    problem: f64,
    /// Creating the agents.
    opening: f64,
    round: f64,
    evaluation: f64,
    /// Everything that `stop` asks for.
    check: f64,
}

/// A job that was begun.
#[derive(Clone, Debug, PartialEq)]
struct Begun {
    job: Job,
    times: JobTimes,
    record: Record,
    /// The round after which it reached its `stop`, if it did.
    stopped: Option<u64>,
}

/// A round that will take no longer than this is measured whole, whatever the budget.
const PATIENCE: Duration = Duration::from_secs(5);
/// An evaluation that takes no longer than this is made a second time, whatever the budget: the first may have waited for memory.
const SHORT: Duration = Duration::from_secs(1);
/// Points of a curve, at most, in the figures that are drawn.
const MOST_POINTS: u64 = 1000;

/// Begins the jobs of a plan, in about this time; a step or an evaluation that takes longer is finished.
pub fn rehearse(plan: &Plan, budget: Duration) -> Result<Rehearsal, LabError> {
    let sharing = Sharing::of(plan)?;
    let jobs = plan.jobs_in_turn();
    // All algorithms with the first seed and, if there is another, a job of that: then two seeds' data are in memory.
    let begun = (plan.spec.algorithms.len() + 1).max(sharing.jobs_at_once).min(jobs.len());
    let allowed = budget.mul_f64(sharing.jobs_at_once as f64 / begun.max(1) as f64).min(budget);
    let queue = Mutex::new(VecDeque::from(jobs[..begun].to_vec()));
    let (found, failed) = (Mutex::new(Vec::<Begun>::new()), Mutex::new(None));
    sharing.run(|| {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some(job) = next() {
            let begin = || with_precision!(plan.spec.precision, T => begin::<T>(plan, job, allowed));
            // Unwind safe: nothing that it changes is used again.
            let result = catch_unwind(AssertUnwindSafe(begin));
            match result.unwrap_or_else(|panic| Err(LabError::panicked(&*panic))) {
                Ok(begun) => found.lock().unwrap_or_else(PoisonError::into_inner).push(begun),
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // What is written to disk is copied first.
    let stored = |job: &Job| {
        plan.memory(*job) / plan.methods[job.algorithm].vectors.max(1) as u64
            * plan.methods[job.algorithm].vectors_stored as u64
    };
    let copied = jobs.iter().map(stored).max().unwrap_or(0) * sharing.jobs_at_once as u64;
    let memory = room::peak().map(|peak| peak.saturating_add(copied));
    Ok(Rehearsal { memory, ..extrapolate(plan, sharing, found) })
}

impl Rehearsal {
    /// Also draws figures with as many curves and points as those of the run will have.
    pub fn with_figures(mut self, plan: &Plan) -> Self {
        let clock = Instant::now();
        let (every, points) = (plan.spec.eval_every(), plan.records_of_a_job().min(MOST_POINTS));
        let of_job = |job: Job| {
            let record = self.begun.iter().find(|begun| begun.job.algorithm == job.algorithm);
            record.into_iter().flat_map(move |begun| {
                let at = move |k: u64| {
                    let modelled_s = begun.record.modelled_s.map(|_| k as f64);
                    Record { seed: job.seed, round: k * every, modelled_s, ..begun.record.clone() }
                };
                (0..points).map(at)
            })
        };
        let records: Vec<Record> = plan.jobs().into_iter().flat_map(of_job).collect();
        let figures = plot::figures(&Runs::new(&records, &[]), &plan.spec.name);
        // A figure that cannot be drawn is reported when it is needed.
        figures.par_iter().for_each(|figure| drop(plot::png(&figure.svg())));
        self.drawing = clock.elapsed().as_secs_f64();
        self.memory = self.memory.max(room::peak());
        self
    }

    /// Of several plans that are run one after the other, the mean time of each and the largest memory; the figures are those of the
    /// first.
    pub fn mean(several: &[Self]) -> Option<Self> {
        let count = several.len() as f64;
        let mean = |of: fn(&Self) -> f64| several.iter().map(of).sum::<f64>() / count;
        let jobs = mean(|one| one.jobs);
        Some(Self {
            jobs,
            round: mean(|one| one.round),
            evaluation: mean(|one| one.evaluation),
            is_most: several.iter().any(|one| one.is_most),
            check: several.iter().map(|one| one.check).sum::<Option<f64>>().map(|sum| sum / count),
            share: if jobs > 0.0 { mean(|one| one.share * one.jobs) / jobs } else { 0.0 },
            memory: several.iter().filter_map(|one| one.memory).max(),
            ..several.first()?.clone()
        })
    }
}

/// The time of all jobs from that of some. Jobs are given to the first worker that is free, as they will be.
fn extrapolate(plan: &Plan, sharing: Sharing, found: Vec<Begun>) -> Rehearsal {
    let every = plan.spec.eval_every();
    let rule = plan.spec.stop.filter(|rule| rule.every.is_some_and(|often| often < every));
    let building = found.iter().map(|begun| begun.times.problem).fold(0.0, f64::max);
    let (mut free, mut built) = (vec![0.0_f64; sharing.jobs_at_once], None);
    // Counts and seconds.
    let (mut rounds, mut evaluations, mut checks) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    let mut in_all = 0.0;
    for job in plan.jobs_in_turn() {
        let like_it = || found.iter().find(|begun| begun.job.algorithm == job.algorithm);
        let of = found.iter().find(|begun| begun.job == job).or_else(like_it);
        let times = of.map(|begun| begun.times).unwrap_or_default();
        let last = of.and_then(|begun| begun.stopped).unwrap_or(plan.spec.rounds);
        let problem = if built == Some(job.seed) { 0.0 } else { building };
        built = Some(job.seed);
        let of_job = [
            (&mut rounds, last, times.round),
            (&mut evaluations, 1 + last.div_ceil(every), times.evaluation),
            (&mut checks, rule.map_or(0, |rule| rule.checks_between_records(last, every)), times.check),
        ];
        let mut seconds = problem + times.opening;
        for ([count, sum], some, each) in of_job {
            (*count, *sum) = (*count + some as f64, *sum + some as f64 * each);
            seconds += some as f64 * each;
        }
        in_all += seconds;
        if let Some(first) = free.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            *first += seconds;
        }
    }
    let mean = |[count, sum]: [f64; 2]| sum / count.max(1.0);
    Rehearsal {
        jobs: free.into_iter().fold(0.0, f64::max),
        is_most: plan.spec.stop.is_some() && found.iter().any(|begun| begun.stopped.is_none()),
        drawing: 0.0,
        round: mean(rounds),
        evaluation: mean(evaluations),
        check: rule.map(|_| mean(checks)),
        share: if in_all > 0.0 { (evaluations[1] + checks[1]) / in_all } else { 0.0 },
        jobs_at_once: sharing.jobs_at_once,
        threads: sharing.threads,
        memory: None,
        begun: found,
    }
}

/// Begins a job: its first evaluation, and rounds until the time is over.
fn begin<T: Scalar>(plan: &Plan, job: Job, allowed: Duration) -> Result<Begun, LabError> {
    let clock = Instant::now();
    let problem = plan.problem::<T>(job.seed)?;
    let built = clock.elapsed();
    let epoch = &plan.membership.epochs()[0];
    let present = Present::new(&*problem, plan.members(0));
    let attack = plan.attack()?;
    let all = plan.membership.is_lasting() && attack.is_none();
    let objectives: &dyn Problem<T> = if all { &*problem } else { &present };
    let (method, start) = (plan.method(job)?, plan.start(&*problem, job.seed)?);
    let setup = EngineSetup {
        problem: if attack.is_some() { &*problem } else { objectives },
        network: &epoch.network,
        method: &*method,
        start: &start,
        seed: job.seed,
        attack,
    };
    let mut engine = T::engines(&*plan.engines).open(setup)?;
    let schedule = plan.spec.algorithms[job.algorithm].schedule.clone();
    let mut run = Run::start(&*method, schedule, &mut *engine)?.with_pairings(plan.pairings(job)?);
    let opened = clock.elapsed();
    let (first, mut record) = evaluate(plan, job, objectives, &mut *engine, &run)?;
    let mut trial = Trial {
        plan,
        objectives,
        engine: &mut *engine,
        run: &mut run,
        checking: Duration::ZERO,
        stopped: None,
    };
    let round = trial.rounds(job, allowed.saturating_sub(first))?;
    let (stopped, check) = (trial.stopped, trial.check()?);
    let mut evaluation = first;
    if first < SHORT {
        (evaluation, record) = evaluate(plan, job, objectives, &mut *engine, &run)?;
    }
    let times = JobTimes {
        problem: built.as_secs_f64(),
        opening: (opened - built).as_secs_f64(),
        round,
        evaluation: evaluation.min(first).as_secs_f64(),
        check,
    };
    Ok(Begun { job, times, record, stopped })
}

/// Makes a record, and times it.
fn evaluate<T: Scalar>(
    plan: &Plan,
    job: Job,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
    run: &Run,
) -> Result<(Duration, Record), LabError> {
    let clock = Instant::now();
    let algorithm = &plan.spec.algorithms[job.algorithm];
    let subject = RunId { algorithm: &algorithm.entry.name, label: &algorithm.label, seed: job.seed };
    let chosen = plan.spec.eval_agents().choose(problem.agents(), job.seed);
    let members = &plan.membership.epochs()[0].members;
    let evaluated = RecordedAgents { agents: &chosen, members, each: plan.spec.agent_metrics };
    let moment = Moment {
        progress: run.progress(),
        drift: None,
        wall_s: 0.0,
        modelled_s: (plan.time.is_some() || run.pairings().is_some()).then_some(0.0),
    };
    let record = measure(Together::of(&Alone), subject, problem, engine, evaluated, moment)?;
    Ok((clock.elapsed(), record))
}

/// A job that was begun, while its rounds are tried out.
struct Trial<'a, 'm, T> {
    plan: &'a Plan,
    objectives: &'a dyn Problem<T>,
    engine: &'a mut dyn Engine<T>,
    run: &'a mut Run<'m>,
    /// What checks of `stop` have taken.
    checking: Duration,
    /// The round after which it held, if it did.
    stopped: Option<u64>,
}

impl<T: Scalar> Trial<'_, '_, T> {
    /// Seconds of a round: the mean over as many as there is time for, at least what is left of the first one after its first step, which
    /// waits for memory; single steps if a round takes long.
    fn rounds(&mut self, job: Job, allowed: Duration) -> Result<f64, LabError> {
        let expected = self.plan.spec.algorithms[job.algorithm].steps_per_round();
        if self.plan.spec.rounds == 0 {
            return Ok(0.0);
        }
        if self.run.pairings().is_some() {
            return self.rounds_in_pairs(allowed);
        }
        let first = self.advance(false)?;
        // Engines may do the steps of a round together, in less time than one by one.
        let whole = first.as_secs_f64() * expected < PATIENCE.as_secs_f64();
        let (before, mut taken, mut last) = (self.run.progress().step, Duration::ZERO, Duration::ZERO);
        while self.goes_on() && (last.is_zero() || taken + self.checking + last < allowed) {
            last = self.advance(whole)?;
            taken += last;
        }
        let (taken, steps) = match self.run.progress().step - before {
            0 => (first, before),
            steps => (taken, steps),
        };
        Ok(taken.as_secs_f64() / steps as f64 * expected)
    }

    /// The same where agents exchange in pairs, whose steps are no steps of all: the mean over whole rounds.
    fn rounds_in_pairs(&mut self, allowed: Duration) -> Result<f64, LabError> {
        // The first round waits for memory.
        let mut last = self.advance(true)?;
        let (mut taken, mut count) = (Duration::ZERO, 0);
        while self.goes_on() && taken + self.checking + last < allowed {
            last = self.advance(true)?;
            taken += last;
            count += 1;
        }
        Ok(if count == 0 { last } else { taken / count }.as_secs_f64())
    }

    fn goes_on(&self) -> bool {
        self.stopped.is_none() && self.run.progress().round < self.plan.spec.rounds
    }

    /// The time of a round, or of a step. `stop` is checked where the run will check it.
    fn advance(&mut self, whole: bool) -> Result<Duration, LabError> {
        let next = self.run.progress().round + 1;
        let rule = self.plan.rule_after(next);
        if rule.is_some() {
            self.engine.watch();
        }
        let clock = Instant::now();
        match whole {
            true => self.run.round(self.engine)?,
            false => drop(self.run.step(self.engine)?),
        }
        rms(Together::of(&Alone), self.engine)?;
        let taken = clock.elapsed();
        // Losses are not compared here, and agents do not come and go.
        let is_known = |rule: &StopRule| rule.loss_change.is_none() && self.plan.membership.is_lasting();
        if let Some(rule) = rule.filter(is_known)
            && self.run.progress().round == next
        {
            let clock = Instant::now();
            let holds = may_hold(rule, Together::of(&Alone), self.objectives, self.engine)?;
            self.stopped = holds.then_some(next);
            self.checking += clock.elapsed();
        }
        Ok(taken)
    }

    /// Seconds of a check in which everything that the rule asks for is measured. The first may wait for memory.
    fn check(&mut self) -> Result<f64, LabError> {
        let Some(rule) = self.plan.spec.stop.filter(|rule| rule.every.is_some()) else { return Ok(0.0) };
        let all = StopRule { consensus: rule.consensus.map(|_| f64::INFINITY), ..rule };
        let mut timed = || -> Result<Duration, LabError> {
            let clock = Instant::now();
            may_hold(all, Together::of(&Alone), self.objectives, self.engine)?;
            Ok(clock.elapsed())
        };
        let first = timed()?;
        let second = if first < SHORT { timed()? } else { first };
        Ok(first.min(second).as_secs_f64())
    }
}

/// A time in words.
pub fn in_words(seconds: f64) -> String {
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

impl std::fmt::Display for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        write!(
            f,
            "measured: a round takes {}, an evaluation {}, ",
            short(self.round),
            short(self.evaluation)
        )?;
        let checks = match self.check {
            Some(check) => {
                write!(f, "a check of stop {}, ", short(check))?;
                " and checks"
            }
            None => "",
        };
        write!(
            f,
            "evaluations{checks} {:.0}% of the time; {} job{} at a time with {} thread{}",
            100.0 * self.share,
            self.jobs_at_once,
            s(self.jobs_at_once),
            self.threads,
            s(self.threads),
        )?;
        if self.jobs_at_once > 1 { write!(f, " each") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::execute::execute;
    use crate::observer::Silent;
    use crate::spec::Spec;

    fn plan(stop: &str) -> Plan {
        let text = format!(
            "rounds = 3000\neval_every = 100\nseeds = [0, 1]\n{stop}\n[network]\nagents = 5\n[problem]\nkind = 'quadratic'\n\
             dim = 4\n[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n[[algorithm]]\nname = 'dsgd'\nstep_size = 'auto'\n"
        );
        Plan::new(Spec::parse(&text, Path::new(""), &[]).unwrap()).unwrap()
    }

    /// The rounds after which jobs were found to stop, by algorithm and seed.
    fn stopped(found: &Rehearsal) -> Vec<(usize, u64, Option<u64>)> {
        let of = |begun: &Begun| (begun.job.algorithm, begun.job.seed, begun.stopped);
        let mut all: Vec<_> = found.begun.iter().map(of).collect();
        all.sort();
        all
    }

    #[test]
    fn a_job_that_reaches_its_stop_in_the_rehearsal_is_known_to_end_there() {
        // DSGD has a bias, and so does not reach it.
        let plan = plan("stop = { grad_norm = 1e-6, consensus = 1e-10, every = 3 }");
        let folder = tempfile::tempdir().unwrap();
        let outcomes = execute(&plan, folder.path(), false, &Silent, &AtomicBool::new(false)).unwrap();
        let found = rehearse(&plan, Duration::from_secs(3600)).unwrap();
        let round = |seed: usize| Some(outcomes[seed].round).filter(|round| *round < 3000);
        assert!(round(0).is_some() && round(1).is_some(), "{outcomes:?}");
        assert_eq!(stopped(&found), [(0, 0, round(0)), (0, 1, round(1)), (1, 0, None)]);
        assert!(found.is_most && found.check.is_some());
    }

    #[test]
    fn a_time_is_the_most_only_where_a_job_may_end_earlier() {
        let is_most = |stop: &str| rehearse(&plan(stop), Duration::from_secs(3600)).unwrap().is_most;
        assert!(!is_most(""), "all rounds are run");
        assert!(!is_most("stop = { grad_norm = 1e6 }"), "all jobs stop at once");
        assert!(is_most("stop = { grad_norm = 1e-300 }"));
        assert!(is_most("stop = { loss_change = 1e6 }"), "losses are not compared");
    }
}
