//! The agent's host: the network engine, and what is left on disk for whoever gathers the run.
//!
//! Files are written before the engine's checkpoint of the same moment: an agent that is killed in between repeats the
//! round and writes them once more.

use mile::real::Real;
use mile_lab::plan::Plan;
use mile_lab::rows::Rows;
use mile_lab::table::number;
use mile_net::agent::{Halt, Host, Moment};
use mile_net::engine::Engine;
use mile_net::outbox::Message;
use mile_net::session::Finished;

pub(super) struct Keeper<'a, T: Real> {
    pub(super) engine: Engine<T>,
    plan: &'a Plan,
    rows: Rows,
    /// Whether models are left at the rounds that are recorded.
    snapshots: bool,
    /// Whether the run may end at any round.
    may_stop: bool,
    /// Whether the model is to be kept as it is sent next.
    watching: bool,
    sent: Vec<T>,
}

impl<'a, T: Real> Keeper<'a, T> {
    pub(super) fn new(
        engine: Engine<T>,
        plan: &'a Plan,
        rows: Rows,
        snapshots: bool,
        may_stop: bool,
    ) -> Self {
        Self { engine, plan, rows, snapshots, may_stop, watching: false, sent: Vec::new() }
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

    fn leave_files(&self, moment: &Moment<'_, T>) -> Result<(), Halt> {
        let round = moment.progress.round;
        if self.snapshots && (moment.last || self.is_due(round)) {
            let sent = (round > 0).then_some(&self.sent[..]);
            let model = &moment.vectors[0];
            self.rows.write_snapshot(self.plan, moment.job, moment.progress, model, sent)?;
        }
        if moment.last {
            let (progress, layout) = (moment.progress, moment.layout);
            self.rows.write_final(self.plan, moment.job, progress, layout, moment.vectors)?;
        }
        Ok(())
    }

    fn say(&self, moment: &Moment<'_, T>) {
        let Some(estimate) = moment.gossip.seen() else { return };
        let gradient = estimate.grad_norm_sq.map(|g| format!(", |mean gradient|^2 {}", number(g)));
        tracing::info!(
            "round {} of {}; at the last look, as gossip has it: mean loss {}, consensus error {}{}",
            moment.progress.round,
            self.plan.experiment.rounds,
            number(estimate.loss),
            number(estimate.consensus_error),
            gradient.unwrap_or_default(),
        );
    }
}

impl<T: Real> Host<T> for Keeper<'_, T> {
    fn buffer(&mut self) -> Vec<T> {
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<T>,
        up: &[usize],
        sums: Vec<Vec<T>>,
    ) -> Result<Finished<T>, Halt> {
        if std::mem::take(&mut self.watching) {
            self.sent.clear();
            self.sent.extend_from_slice(&message.vectors[..self.plan.dim]);
        }
        self.engine.exchange(message, up, sums)
    }

    fn round_over(&mut self, moment: &Moment<'_, T>) -> Result<(), Halt> {
        let round = moment.progress.round;
        self.leave_files(moment)?;
        self.engine.round_over(moment)?;
        self.watching = self.watches(round + 1);
        if moment.last || self.is_due(round) {
            self.say(moment);
        }
        Ok(())
    }
}
