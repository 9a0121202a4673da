//! The modelled time of a job after any of its rounds.

use mile::method::Method;
use mile::pairing::{Pairings, pairings_in};
use mile::time::{Costing, Walk};

use super::{Job, Plan};
use crate::error::LabError;

/// Goes through the rounds of a job without its vectors.
pub(crate) struct JobClock<'p> {
    plan: &'p Plan,
    job: Job,
    /// The pairings, if its agents exchange in pairs: then they say everything.
    pairings: Option<Pairings>,
    epoch: usize,
    method: Box<dyn Method>,
    walk: Walk<'p>,
}

impl<'p> JobClock<'p> {
    /// At the beginning of a job; none if nothing says how long it takes.
    pub(crate) fn of(plan: &'p Plan, job: Job) -> Result<Option<Self>, LabError> {
        let is_told = plan.time.is_some() || plan.spec.algorithms[job.algorithm].parameters.pairs;
        is_told.then(|| Self::counting(plan, job)).transpose()
    }

    /// The same, for what is counted where no time is modelled.
    pub(crate) fn counting(plan: &'p Plan, job: Job) -> Result<Self, LabError> {
        let (dim, precision) = (plan.size.dim, plan.spec.precision);
        let walk = Walk::new(Costing { dim, precision, seed: job.seed, time: plan.time.as_ref() });
        let (method, pairings) = (plan.method(job)?, plan.pairings(job)?);
        let mut clock = Self { plan, job, pairings, epoch: 0, method, walk };
        if clock.pairings.is_none() {
            clock.walk.begin(&plan.membership.epochs()[0], &*clock.method)?;
        }
        Ok(clock)
    }

    /// Whether there is a model of time, or a log with times.
    pub(crate) fn has_time(&self) -> bool {
        self.plan.time.is_some() || self.pairings.is_some()
    }

    /// Seconds until all agents have finished a round, which is not before that of the last call: in pairs, until its exchanges are done. What
    /// happens at the beginning of the next round has not happened yet.
    pub(crate) fn after(&mut self, round: u64) -> Result<f64, LabError> {
        if let Some(pairings) = &self.pairings {
            let rounds = round.saturating_sub(pairings.rounds());
            self.rounds(rounds)?;
            return Ok(self.spent().1);
        }
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
        match &mut self.pairings {
            Some(pairings) => (0..count).try_for_each(|_| pairings.next_round().map(drop))?,
            None => self.walk.rounds(&self.plan.membership.epochs()[self.epoch], &*self.method, count)?,
        }
        Ok(())
    }

    /// Bytes that all agents have sent, and seconds.
    pub(crate) fn spent(&self) -> (u64, f64) {
        match &self.pairings {
            Some(pairings) => {
                let messages = 2 * pairings_in(pairings.rounds(), self.plan.network().agents());
                (messages * self.plan.message_bytes(self.job.algorithm) as u64, pairings.latest_s())
            }
            None => (self.walk.progress().costs.bytes_sent, self.walk.clock().latest()),
        }
    }
}
