//! Progress of a run: bars on a terminal, plain lines elsewhere.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use mile_lab::error::LabError;
use mile_lab::observer::{Observer, outcome_line};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::store::Outcome;
use mile_lab::table::number;

/// Time between two progress lines of a job, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of a plan on standard error; the bars are removed when it is dropped.
pub(crate) struct Progress<'a> {
    plan: &'a Plan,
    terminal: bool,
    bars: MultiProgress,
    total: ProgressBar,
    jobs: Mutex<HashMap<Job, JobBar>>,
}

/// The progress of one job.
struct JobBar {
    bar: ProgressBar,
    round: u64,
    printed: Instant,
    loss: String,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let rounds = plan.spec.rounds * plan.jobs().len() as u64;
        let total = bars.add(ProgressBar::new(rounds));
        total.set_style(style("{prefix:20!} {bar:30} {pos}/{len} rounds {per_sec:1} {eta:>8} left"));
        total.set_prefix(plan.spec.name.clone());
        Self { plan, terminal, bars, total, jobs: Mutex::default() }
    }

    /// Prints a line above the bars.
    fn say(&self, line: String) {
        if self.terminal {
            let _ = self.bars.println(line);
        } else {
            eprintln!("{line}");
        }
    }

    fn with<R>(&self, job: Job, work: impl FnOnce(&mut JobBar) -> R) -> Option<R> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&job).map(work)
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        let _ = self.bars.clear();
    }
}

/// The style of a progress bar.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl Observer for Progress<'_> {
    fn began(&self, job: Job) {
        let bar = self.bars.insert_before(&self.total, ProgressBar::new(self.plan.spec.rounds));
        bar.set_style(style("{prefix:20!} {bar:30} {pos}/{len} {msg}"));
        bar.set_prefix(self.plan.job_name(job));
        let shown = JobBar { bar, round: 0, printed: Instant::now(), loss: String::new() };
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).insert(job, shown);
    }

    fn advanced(&self, job: Job, round: u64) {
        let rounds = self.plan.spec.rounds;
        let line = self.with(job, |shown| {
            self.total.inc(round.saturating_sub(shown.round));
            shown.round = round;
            shown.bar.set_position(round);
            let due = !self.terminal && shown.printed.elapsed() > LINE_INTERVAL && round < rounds;
            due.then(|| {
                shown.printed = Instant::now();
                format!("{}: round {round} of {rounds}{}", self.plan.job_name(job), shown.loss)
            })
        });
        if let Some(Some(line)) = line {
            eprintln!("{line}");
        }
    }

    fn recorded(&self, job: Job, record: &Record) {
        self.with(job, |shown| {
            shown.loss = format!(", loss {}", number(record.loss));
            shown.bar.set_message(format!("loss {}", number(record.loss)));
        });
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        self.with(job, |shown| {
            shown.bar.finish_and_clear();
            self.total.inc(self.plan.spec.rounds.saturating_sub(shown.round));
        });
        self.say(outcome_line(&self.plan.job_name(job), outcome));
    }

    fn failed(&self, job: Job, error: &LabError) {
        self.with(job, |shown| shown.bar.finish_and_clear());
        self.say(format!("{}: failed: {error}", self.plan.job_name(job)));
    }
}
