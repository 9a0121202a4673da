//! The agent's host: the network engine, and what is left on disk for whoever gathers the run.
//!
//! Files are written before the engine's checkpoint of the same end: an agent that is killed in between repeats the
//! round and writes them once more.

use mile::real::Real;
use mile_lab::agent_files::AgentFiles;
use mile_lab::plan::Plan;
use mile_lab::table::number;
use mile_net::agent::{Failure, Host, RoundEnd};
use mile_net::engine::Engine;
use mile_net::outbox::Message;
use mile_net::session::Finished;

pub(super) struct RecordingHost<'a, T: Real> {
    pub(super) engine: Engine<T>,
    plan: &'a Plan,
    files: AgentFiles,
    /// Whether models are left at the rounds that are recorded.
    snapshots: bool,
    /// Whether the run may end at any round.
    may_stop: bool,
    /// Whether the model is to be kept as it is sent next.
    watching: bool,
    sent: Vec<T>,
}

impl<'a, T: Real> RecordingHost<'a, T> {
    pub(super) fn new(
        engine: Engine<T>,
        plan: &'a Plan,
        files: AgentFiles,
        snapshots: bool,
        may_stop: bool,
    ) -> Self {
        Self { engine, plan, files, snapshots, may_stop, watching: false, sent: Vec::new() }
    }

    /// A job begins, or goes on after a round.
    pub(super) fn begin(&mut self, round: Option<u64>) {
        self.watching = round.is_some_and(|round| self.watches(round + 1));
    }

    fn is_due(&self, round: u64) -> bool {
        let experiment = &self.plan.experiment;
        round.is_multiple_of(experiment.eval_every) || round == experiment.rounds
    }

    fn watches(&self, round: u64) -> bool {
        self.snapshots && (self.may_stop || self.is_due(round))
    }

    fn leave_files(&self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let round = end.progress.round;
        if self.snapshots && (end.last || self.is_due(round)) {
            let sent = (round > 0).then_some(&self.sent[..]);
            let model = &end.vectors[0];
            self.files.write_snapshot(self.plan, end.job, end.progress, model, sent)?;
        }
        if end.last {
            let (progress, layout) = (end.progress, end.layout);
            self.files.write_final(self.plan, end.job, progress, layout, end.vectors)?;
        }
        Ok(())
    }

    fn say(&self, end: &RoundEnd<'_, T>) {
        let Some(estimate) = end.gossip.seen() else { return };
        let gradient = estimate.grad_norm_sq.map(|g| format!(", |mean gradient|^2 {}", number(g)));
        tracing::info!(
            "round {} of {}; at the last look, as gossip has it: mean loss {}, consensus error {}{}",
            end.progress.round,
            self.plan.experiment.rounds,
            number(estimate.loss),
            number(estimate.consensus_error),
            gradient.unwrap_or_default(),
        );
    }
}

impl<T: Real> Host<T> for RecordingHost<'_, T> {
    fn buffer(&mut self) -> Vec<T> {
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<T>,
        up: &[usize],
        sums: Vec<Vec<T>>,
    ) -> Result<Finished<T>, Failure> {
        if std::mem::take(&mut self.watching) {
            self.sent.clear();
            self.sent.extend_from_slice(&message.vectors[..self.plan.size.dim]);
        }
        self.engine.exchange(message, up, sums)
    }

    fn round_over(&mut self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let round = end.progress.round;
        self.leave_files(end)?;
        self.engine.round_over(end)?;
        self.watching = self.watches(round + 1);
        if end.last || self.is_due(round) {
            self.say(end);
        }
        Ok(())
    }
}
