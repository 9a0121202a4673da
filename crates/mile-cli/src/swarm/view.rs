//! Progress of a swarm: a bar on a terminal, plain lines elsewhere, and who waits for whom when no agent advances.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};
use mile::membership::Membership;
use mile_lab::observer::{Observer, outcome_line};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::store::Outcome;
use mile_lab::table::number;
use mile_net::status::{Status, ask};

use crate::agent::socket;
use crate::progress::style;
use crate::status::{reason, waited_for};

/// Time between two status requests to the agents.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two progress lines, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// If no agent has advanced for this long, who waits for whom is shown.
const STALL_TIME: Duration = Duration::from_secs(5);

/// Shows the progress of a swarm on standard error.
pub(super) struct View<'a> {
    plan: &'a Plan,
    rounds: u64,
    terminal: bool,
    bar: ProgressBar,
    seen: Mutex<Snapshot>,
}

/// What is known of the agents.
struct Snapshot {
    /// The latest status of each agent.
    statuses: Vec<Option<Status>>,
    /// The last round that each is known to have completed.
    rounds: Vec<u64>,
    /// When one of the rounds last changed.
    moved: Instant,
    printed: Instant,
    loss: String,
}

impl<'a> View<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let rounds = plan.spec.rounds * plan.jobs().len() as u64;
        let bar = ProgressBar::with_draw_target(Some(rounds), target);
        bar.set_style(style(
            "{prefix:20!} {bar:30} {pos}/{len} rounds {per_sec:1} {eta:>8} left\n{wide_msg}",
        ));
        bar.set_prefix(plan.spec.name.clone());
        let (agents, now) = (plan.membership.numbers(), Instant::now());
        let (statuses, loss) = (vec![None; agents], String::new());
        let seen = Snapshot { statuses, rounds: vec![0; agents], moved: now, printed: now, loss };
        Self { plan, rounds, terminal, bar, seen: Mutex::new(seen) }
    }

    fn seen(&self) -> MutexGuard<'_, Snapshot> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` while another thread polls the agents' status.
    pub(super) fn watch<R>(&self, folders: &[PathBuf], work: impl FnOnce() -> R) -> R {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.poll_agents(folders, &over));
            let result = work();
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    fn poll_agents(&self, folders: &[PathBuf], over: &AtomicBool) {
        let mut asked = Instant::now();
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            if asked.elapsed() < STATUS_INTERVAL {
                continue;
            }
            for (agent, folder) in folders.iter().enumerate() {
                let answer = ask(&socket::find_path(folder)).ok();
                let mut seen = self.seen();
                if let Some(round) = answer.as_ref().map(|status| status.round)
                    && round > seen.rounds[agent]
                {
                    seen.rounds[agent] = round;
                    seen.moved = Instant::now();
                }
                seen.statuses[agent] = answer;
            }
            asked = Instant::now();
        }
    }

    /// The last round that an agent is known to have completed.
    pub(super) fn round(&self, agent: usize) -> u64 {
        self.seen().rounds[agent]
    }

    /// Updates the progress bar, or prints a line if one is due.
    pub(super) fn refresh(&self) {
        let mut seen = self.seen();
        let (least, most) = seen.span(&self.plan.membership);
        self.bar.set_position(least);
        let stalled = seen.moved.elapsed() > STALL_TIME;
        if self.terminal {
            let why = if stalled { seen.waits(&self.plan.membership).join("; ") } else { seen.loss.clone() };
            self.bar.set_message(format!("agents at rounds {least} to {most}; {why}"));
        } else if seen.printed.elapsed() > LINE_INTERVAL {
            seen.printed = Instant::now();
            eprintln!("agents at rounds {least} to {most} of {}; {}", self.rounds, seen.loss);
            seen.waits(&self.plan.membership)
                .iter()
                .filter(|_| stalled)
                .for_each(|line| eprintln!("  {line}"));
        }
    }

    /// Prints a line above the bar.
    pub(super) fn print_line(&self, line: &str) {
        if self.terminal { self.bar.println(line) } else { eprintln!("{line}") }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Snapshot {
    /// The smallest and the largest round completed by an agent that takes part.
    fn span(&self, membership: &Membership) -> (u64, u64) {
        let present = (0..self.rounds.len()).filter(|agent| self.takes_part(*agent, membership));
        let rounds: Vec<u64> = present.map(|agent| self.rounds[agent]).collect();
        (rounds.iter().copied().min().unwrap_or(0), rounds.iter().copied().max().unwrap_or(0))
    }

    /// Whether an agent has joined and not left.
    fn takes_part(&self, agent: usize, membership: &Membership) -> bool {
        let round = self.rounds[agent];
        let joins = membership.epochs().iter().find(|epoch| epoch.place(agent).is_some());
        joins.is_some_and(|epoch| epoch.round == 0 || round > epoch.round)
            && membership.leaves(agent).is_none_or(|leaves| round < leaves)
    }

    /// Who waits for whom.
    fn waits(&self, membership: &Membership) -> Vec<String> {
        let mut lines = Vec::new();
        let present = |(agent, _): &(usize, &Option<Status>)| self.takes_part(*agent, membership);
        for (agent, status) in self.statuses.iter().enumerate().filter(present) {
            let Some(status) = status else {
                lines.push(format!("agent {agent} does not answer"));
                continue;
            };
            for edge in &status.neighbours {
                if let Some(what) = waited_for(edge) {
                    lines.push(format!("agent {agent} waits for agent {}: {what}{}", edge.id, reason(edge)));
                }
            }
        }
        lines
    }
}

impl Observer for View<'_> {
    fn recorded(&self, job: Job, record: &Record) {
        self.seen().loss = format!("{}: loss {}", self.plan.job_name(job), number(record.loss));
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        self.print_line(&outcome_line(&self.plan.job_name(job), outcome));
    }
}
