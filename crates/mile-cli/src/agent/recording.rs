//! The network engine of an agent, wrapped so that snapshots and final states are written for `mile swarm` to collect.
//!
//! Files are written before the engine's checkpoint of the same round: an agent that is killed in between repeats the
//! round and writes them again.
//!
//! An agent whose model has diverged sends nothing more and writes no checkpoint over the last good one: its work ends with
//! [`ModelDiverged`].

use mile::block;
use mile_lab::agent_files::{AgentFiles, Divergence, OwnLoss};
use mile_lab::engines::Scalar;
use mile_lab::objectives::remembering::memories;
use mile_lab::plan::Plan;
use mile_lab::table::number;
use mile_net::agent::{Failure, Host, RoundEnd};
use mile_net::engine::NetworkEngine;
use mile_net::outbox::{Message, MessageForm};
use mile_net::protocol::Finished;

/// The root mean square of a model.
pub(super) fn rms<T: Scalar>(model: &[T]) -> f64 {
    (block::norm_sq(model) / model.len().max(1) as f64).sqrt()
}

/// The model of an agent is too large or not finite.
#[derive(Clone, Debug)]
pub(crate) struct ModelDiverged {
    round: u64,
    size: f64,
    checkpoint: Option<u64>,
}

impl std::error::Error for ModelDiverged {}

impl std::fmt::Display for ModelDiverged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { round, size, checkpoint } = self;
        write!(f, "the model diverged in round {round} (its root mean square is {size:e})")?;
        match checkpoint {
            Some(round) => write!(f, "; the checkpoint of round {round}, from before, is kept")?,
            None => write!(f, "; there is no checkpoint")?,
        }
        write!(f, "; a smaller step size may help")
    }
}

/// A network engine that also writes the agent's files.
pub(super) struct RecordingHost<'a, T: Scalar> {
    pub(super) engine: NetworkEngine<T>,
    plan: &'a Plan,
    agent: usize,
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
    /// The root mean square of the model before an exchange.
    size: f64,
    /// Which of the jobs is under way.
    job: usize,
}

impl<'a, T: Scalar> RecordingHost<'a, T> {
    pub(super) fn new(
        engine: NetworkEngine<T>,
        plan: &'a Plan,
        agent: usize,
        files: AgentFiles,
        snapshots: bool,
        may_stop: bool,
    ) -> Self {
        let (sent, keep_sent) = (Vec::new(), false);
        let (next, limit, size, job) = (0, f64::INFINITY, 0.0, 0);
        Self { engine, plan, agent, files, snapshots, may_stop, keep_sent, sent, next, limit, size, job }
    }

    /// Prepares for a job that starts, or resumes after a round. A model whose root mean square is beyond `limit` has diverged.
    pub(super) fn begin(&mut self, job: usize, round: Option<u64>, limit: f64) {
        (self.job, self.limit) = (job, limit);
        self.next = round.map_or(0, |round| round + 1);
        self.keep_sent = round.is_some_and(|round| self.keeps_sent(round + 1));
    }

    fn is_due(&self, round: u64) -> bool {
        let experiment = &self.plan.spec;
        round.is_multiple_of(experiment.eval_every()) || round == experiment.rounds
    }

    /// Rounds between two evaluations of the agent's own loss.
    pub(super) fn gossip_every(&self) -> u64 {
        self.plan.spec.stop.and_then(|rule| rule.every).unwrap_or(self.plan.spec.eval_every())
    }

    fn keeps_sent(&self, round: u64) -> bool {
        self.snapshots && (self.may_stop || self.is_due(round))
    }

    fn write_files(&self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let round = end.progress.round;
        // An agent that leaves makes no records that the others do not make.
        if self.snapshots && (self.is_due(round) || end.last && self.may_stop) {
            let sent = (round > 0).then_some(&self.sent[..]);
            let (model, own) = (&end.vectors[0], memories(&*self.plan.spec.objectives, [self.agent])?);
            self.files.write_snapshot(self.plan, end.job, end.progress, model, sent, &own)?;
        }
        let loss = end.gossip.own_loss().filter(|loss| loss.is_finite());
        if let Some(loss) = loss.filter(|_| round.is_multiple_of(self.gossip_every())) {
            let job = self.plan.jobs()[end.job];
            let label = self.plan.spec.algorithms[job.algorithm].label.clone();
            self.files.append_own_loss(&OwnLoss { label, seed: job.seed, round, loss })?;
        }
        if end.last {
            let (progress, layout) = (end.progress, end.layout);
            let own = memories(&*self.plan.spec.objectives, [self.agent])?;
            self.files.write_final(self.plan, end.job, progress, layout, end.vectors, &own)?;
        }
        Ok(())
    }

    /// Notes that the model has diverged in a round, and ends the links. Nothing more is sent or saved.
    fn give_up(&self, round: u64, size: f64) -> Failure {
        let status = self.engine.status();
        self.engine.diverged(status.round + u64::from(round > 0));
        let job = self.plan.jobs()[self.job];
        let found = Divergence {
            agent: status.agent,
            round,
            size: size.is_finite().then_some(size),
            checkpoint_round: status.saved_round,
        };
        if let Err(error) = self.files.write_divergence(self.plan, job, &found) {
            return error.into();
        }
        self.engine.give_up(&format!("its model diverged in round {round}, and it has ended"));
        ModelDiverged { round, size, checkpoint: status.saved_round }.into()
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
        let elements = match message.form {
            MessageForm::Whole | MessageForm::Robust(_) => &message.vectors[..],
            MessageForm::Summary(head) => &message.vectors[head..],
            MessageForm::Compressed(_) => &[],
        };
        let size = self.size + rms(elements);
        if !size.is_finite() {
            return Err(self.give_up(self.next, size));
        }
        self.engine.exchange(message, up, sums)
    }

    fn about_to_mix(&mut self, model: &[T]) {
        self.size = rms(model);
        if std::mem::take(&mut self.keep_sent) {
            self.sent.clear();
            self.sent.extend_from_slice(model);
        }
    }

    fn round_over(&mut self, end: &RoundEnd<'_, T>) -> Result<(), Failure> {
        let (round, size) = (end.progress.round, rms(&end.vectors[0]));
        // The start is recorded, whatever it is, as in one process.
        if round > 0 && !(size.is_finite() && size <= self.limit) {
            return Err(self.give_up(round, size));
        }
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
