//! The pace of a run, and from it the time that is left.
//!
//! A round counts as many times as the method has steps in it. What takes time besides steps, such as evaluations, is in the pace.

use std::collections::HashMap;
use std::time::Instant;

use crate::plan::Job;

/// The rounds of a run so far, and when they began.
pub(super) struct Pace {
    /// Rounds of a job.
    rounds: u64,
    /// Jobs that are not over; those that have begun, with the rounds they began with and have.
    open: HashMap<Job, Option<(u64, u64)>>,
    /// Steps in a round of each algorithm.
    steps: Vec<f64>,
    /// Steps that were taken by jobs that are over.
    taken: f64,
    begun: Option<Instant>,
}

impl Pace {
    /// The pace of jobs that have not begun.
    pub(super) fn new(jobs: Vec<Job>, rounds: u64, steps: Vec<f64>) -> Self {
        let open = jobs.into_iter().map(|job| (job, None)).collect();
        Self { rounds, open, steps, taken: 0.0, begun: None }
    }

    /// A job has this many rounds; the first time, these are those that it resumes with.
    pub(super) fn advanced(&mut self, job: Job, round: u64, now: Instant) {
        self.begun.get_or_insert(now);
        if let Some(span) = self.open.get_mut(&job) {
            *span = Some((span.map_or(round, |(first, _)| first), round));
        }
    }

    /// A job is over, with all its rounds or before.
    pub(super) fn ended(&mut self, job: Job) {
        if let Some(Some((first, last))) = self.open.remove(&job) {
            self.taken += self.work(job, last.saturating_sub(first));
        }
    }

    /// Seconds until all jobs are over, if some step was taken and some are left.
    pub(super) fn seconds_left(&self, now: Instant) -> Option<f64> {
        let (mut taken, mut left) = (self.taken, 0.0);
        for (job, span) in &self.open {
            let (first, last) = span.unwrap_or_default();
            taken += self.work(*job, last.saturating_sub(first));
            left += self.work(*job, self.rounds.saturating_sub(last));
        }
        let elapsed = now.saturating_duration_since(self.begun?).as_secs_f64();
        (taken > 0.0 && left > 0.0).then(|| elapsed * left / taken)
    }

    fn work(&self, job: Job, rounds: u64) -> f64 {
        self.steps.get(job.algorithm).copied().unwrap_or(1.0) * rounds as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_steps_not_yet_taken_at_the_pace_so_far() {
        let [quick, slow] = [0, 1].map(|algorithm| Job { algorithm, seed: 0 });
        let mut pace = Pace::new(vec![quick, slow], 10, vec![1.0, 4.0]);
        let begun = Instant::now();
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        assert_eq!(pace.seconds_left(begun), None, "nothing has begun");
        pace.advanced(quick, 0, begun);
        assert_eq!(pace.seconds_left(after(1)), None, "no step was taken");
        pace.advanced(quick, 5, after(5));
        assert_eq!(pace.seconds_left(after(5)), Some(45.0), "5 steps in 5 s; 5 and 40 are left");
        pace.ended(quick);
        assert_eq!(
            pace.seconds_left(after(5)),
            Some(40.0),
            "what a job that diverged has left is not waited for"
        );
        // The other is resumed: what it had done before says nothing about the pace.
        pace.advanced(slow, 8, after(5));
        assert_eq!(pace.seconds_left(after(5)), Some(8.0));
        pace.advanced(slow, 9, after(9));
        assert_eq!(pace.seconds_left(after(9)), Some(4.0));
        pace.ended(slow);
        assert_eq!(pace.seconds_left(after(13)), None, "nothing is left");
    }
}
