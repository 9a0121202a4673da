//! The modelled time of a job after any of its rounds.

use mile::method::Method;
use mile::time::{Costing, Walk};

use super::{Job, Plan};
use crate::error::LabError;

/// Goes through the rounds of a job without its vectors.
pub(crate) struct JobClock<'p> {
    plan: &'p Plan,
    job: Job,
    epoch: usize,
    method: Box<dyn Method>,
    walk: Walk<'p>,
}

impl<'p> JobClock<'p> {
    /// At the beginning of a job; none if the experiment models no time.
    pub(crate) fn of(plan: &'p Plan, job: Job) -> Result<Option<Self>, LabError> {
        plan.time.as_ref().map(|_| Self::counting(plan, job)).transpose()
    }

    /// The same, for what is counted where no time is modelled.
    pub(crate) fn counting(plan: &'p Plan, job: Job) -> Result<Self, LabError> {
        let (dim, precision) = (plan.size.dim, plan.spec.precision);
        let walk = Walk::new(Costing { dim, precision, seed: job.seed, time: plan.time.as_ref() });
        let mut clock = Self { plan, job, epoch: 0, method: plan.method(job)?, walk };
        clock.walk.begin(&plan.membership.epochs()[0], &*clock.method)?;
        Ok(clock)
    }

    /// Seconds until all agents have finished a round, which is not before that of the last call. What happens at the beginning of the
    /// next round has not happened yet.
    pub(crate) fn after(&mut self, round: u64) -> Result<f64, LabError> {
        let epochs = self.plan.membership.epochs();
        loop {
            let next = epochs.get(self.epoch + 1).filter(|next| next.round < round);
            let done = self.walk.progress().round;
            let until = next.map_or(round, |next| next.round);
            self.walk.rounds(&epochs[self.epoch], &*self.method, until.saturating_sub(done))?;
            if next.is_none() {
                return Ok(self.walk.clock().latest());
            }
            self.enter(self.epoch + 1)?;
        }
    }

    /// Begins an epoch, whatever rounds have been gone through.
    pub(crate) fn enter(&mut self, epoch: usize) -> Result<(), LabError> {
        (self.epoch, self.method) = (epoch, self.plan.method_in(self.job, epoch)?);
        Ok(self.walk.begin(&self.plan.membership.epochs()[epoch], &*self.method)?)
    }

    /// Goes through rounds of the epoch that was begun last.
    pub(crate) fn rounds(&mut self, count: u64) -> Result<(), LabError> {
        Ok(self.walk.rounds(&self.plan.membership.epochs()[self.epoch], &*self.method, count)?)
    }

    /// Bytes that all agents have sent, and seconds.
    pub(crate) fn spent(&self) -> (u64, f64) {
        (self.walk.progress().costs.bytes_sent, self.walk.clock().latest())
    }
}
