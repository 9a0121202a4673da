//! The network engine of an agent, wrapped so that snapshots and final states are written for `mile swarm` to collect.
//!
//! Files are written before the engine's checkpoint of the same round: an agent that is killed in between repeats the
//! round and writes them again.

use mile::block;
use mile_lab::agent_files::AgentFiles;
use mile_lab::engines::Scalar;
use mile_lab::plan::Plan;
use mile_lab::table::number;
use mile_net::agent::{Failure, Host, RoundEnd};
use mile_net::engine::NetworkEngine;
use mile_net::outbox::Message;
use mile_net::protocol::Finished;

/// The root mean square of a model.
pub(super) fn rms<T: Scalar>(model: &[T]) -> f64 {
    (block::norm_sq(model) / model.len().max(1) as f64).sqrt()
}

/// A network engine that also writes the agent's files.
pub(super) struct RecordingHost<'a, T: Scalar> {
    pub(super) engine: NetworkEngine<T>,
    plan: &'a Plan,
    files: AgentFiles,
    /// Whether the model is written at the recorded rounds.
    snapshots: bool,
    /// Whether the run may stop at any round.
    may_stop: bool,
    /// Whether the model before the next exchange is copied to `sent`.
    keep_sent: bool,
    sent: Vec<T>,
    /// The number of rounds when the next one is done.
    next: u64,
    /// The root mean square beyond which the model has diverged.
    limit: f64,
    diverged: bool,
}

impl<'a, T: Scalar> RecordingHost<'a, T> {
    pub(super) fn new(
        engine: NetworkEngine<T>,
        plan: &'a Plan,
        files: AgentFiles,
        snapshots: bool,
        may_stop: bool,
    ) -> Self {
        let (sent, next, limit) = (Vec::new(), 0, f64::INFINITY);
        let (keep_sent, diverged) = (false, false);
        Self { engine, plan, files, snapshots, may_stop, keep_sent, sent, next, limit, diverged }
    }

    /// Prepares for a job that starts, or resumes after a round. A model whose root mean square is beyond `limit` has diverged.
    pub(super) fn begin(&mut self, round: Option<u64>, limit: f64) {
        (self.limit, self.diverged) = (limit, false);
        self.next = round.map_or(0, |round| round + 1);
        self.keep_sent = round.is_some_and(|round| self.keeps_sent(round + 1));
    }

    fn is_due(&self, round: u64) -> bool {
        let experiment = &self.plan.spec;
        round.is_multiple_of(experiment.eval_every()) || round == experiment.rounds
    }

    fn keeps_sent(&self, round: u64) -> bool {
        self.snapshots && (self.may_stop || self.is_due(round))
    }

    fn write_files(&self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let round = end.progress.round;
        // An agent that leaves makes no records that the others do not make.
        if self.snapshots && (self.is_due(round) || end.last && self.may_stop) {
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

    /// Warns, once per job, that the model has diverged, whether or not this round is recorded.
    fn look_for_divergence(&mut self, end: &RoundEnd<'_, T>) {
        let size = rms(&end.vectors[0]);
        if self.diverged || (size.is_finite() && size <= self.limit) {
            return;
        }
        self.diverged = true;
        self.engine.diverged(end.mark.round);
        tracing::warn!(
            "the model diverged in round {} (its root mean square is {size:e}); a smaller step size may help",
            end.progress.round
        );
    }

    fn log_estimate(&self, end: &RoundEnd<'_, T>) {
        let Some(estimate) = end.gossip.seen() else { return };
        let gradient = estimate.grad_norm_sq.map(|g| format!(", |mean gradient|^2 {}", number(g)));
        tracing::info!(
            "round {} of {}; latest gossip estimate: mean loss {}, consensus error {}{}",
            end.progress.round,
            self.plan.spec.rounds,
            number(estimate.loss),
            number(estimate.consensus_error),
            gradient.unwrap_or_default(),
        );
    }
}

impl<T: Scalar> Host<T> for RecordingHost<'_, T> {
    fn buffer(&mut self) -> Vec<T> {
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<T>,
        up: &[(usize, f64)],
        sums: Vec<Vec<T>>,
    ) -> Result<Finished<T>, Failure> {
        self.engine.exchange(message, up, sums)
    }

    fn about_to_mix(&mut self, model: &[T]) {
        if std::mem::take(&mut self.keep_sent) {
            self.sent.clear();
            self.sent.extend_from_slice(model);
        }
    }

    fn round_over(&mut self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let round = end.progress.round;
        self.look_for_divergence(end);
        self.write_files(end)?;
        self.engine.round_over(end)?;
        self.keep_sent = self.keeps_sent(round + 1);
        if end.last || self.is_due(round) {
            self.log_estimate(end);
        }
        self.next = round + 1;
        Ok(())
    }

    fn renewed(&mut self) {
        self.keep_sent = self.keeps_sent(self.next);
    }
}
