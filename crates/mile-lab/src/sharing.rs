//! How the jobs of a plan share the machine.

use crate::error::LabError;
use crate::plan::Plan;

/// Jobs on the CPU run in parallel only as long as their vectors together need at most this many bytes.
const MAX_MEMORY: u64 = 4 << 30;

/// Most jobs at once whose engines compute together: each has a thread.
pub(crate) const MOST_TOGETHER: usize = 64;

/// The agents of a job use several threads if they have at least this many numbers in all; otherwise one thread is enough.
const WORTH_THREADS: usize = 1 << 16;

/// How jobs share the machine. Every job has the same number of threads for itself, so that its computing time can be
/// compared with that of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) jobs_at_once: usize,
    /// Threads of each job.
    pub(crate) threads: usize,
}

impl Sharing {
    /// How the jobs of a plan share the threads that are here.
    pub(crate) fn of(plan: &Plan) -> Result<Self, LabError> {
        let threads = rayon::current_num_threads();
        if plan.engines.ranks().count() > 1 {
            return Ok(Self { jobs_at_once: 1, threads });
        }
        Ok(match plan.fitting(plan.jobs().len().min(MOST_TOGETHER))? {
            Some(jobs) => Self::together(jobs, threads),
            None => Self::alone(plan, threads),
        })
    }

    /// Jobs that do not compute together.
    fn alone(plan: &Plan, threads: usize) -> Self {
        let jobs = plan.jobs();
        let largest = jobs.iter().map(|job| plan.memory(*job)).max().unwrap_or(0).max(1);
        let most = threads.min(usize::try_from(MAX_MEMORY / largest).unwrap_or(usize::MAX)).max(1);
        let large = plan.network().agents().saturating_mul(plan.size.dim) >= WORTH_THREADS;
        Self::new(jobs.len(), threads, most, large)
    }

    /// Whether jobs run one after the other on the pool of threads that this one belongs to.
    pub(crate) fn is_here(self) -> bool {
        let here = Self { jobs_at_once: 1, threads: rayon::current_num_threads() };
        rayon::current_thread_index().is_some() && self == here
    }

    /// This many jobs at once, which compute together on a device.
    fn together(jobs: usize, threads: usize) -> Self {
        let jobs_at_once = jobs.max(1);
        Self { jobs_at_once, threads: (threads / jobs_at_once).max(1) }
    }

    /// At most `most` of the jobs at once. The time of large ones is the number of turns divided by the threads of each, plus
    /// a twentieth for every thread that has to wait for others.
    fn new(jobs: usize, threads: usize, most: usize, large: bool) -> Self {
        let most = most.min(jobs).max(1);
        let time = |at_once: &usize| {
            let threads = (threads / at_once).max(1) as f64;
            jobs.div_ceil(*at_once) as f64 / threads * (1.0 + 0.05 * (threads - 1.0))
        };
        let best = (1..=most).rev().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(1);
        let jobs_at_once = if large { best } else { most };
        Self { jobs_at_once, threads: (threads / jobs_at_once).max(1) }
    }

    /// Workers, each with its own threads.
    pub(crate) fn run(self, work: impl Fn() + Sync + Send) {
        std::thread::scope(|scope| {
            for _ in 0..self.jobs_at_once {
                scope.spawn(|| match rayon::ThreadPoolBuilder::new().num_threads(self.threads).build() {
                    Ok(pool) => pool.install(&work),
                    // No threads of its own: it uses the shared ones.
                    Err(_) => work(),
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_the_same_threads_and_no_thread_waits_longer_than_it_must() {
        let sharing = |jobs, threads, most, large| {
            let Sharing { jobs_at_once, threads } = Sharing::new(jobs, threads, most, large);
            (jobs_at_once, threads)
        };
        assert_eq!(sharing(1, 8, 8, true), (1, 8));
        assert_eq!(sharing(2, 2, 2, true), (2, 1));
        assert_eq!(sharing(3, 2, 2, true), (1, 2));
        assert_eq!(sharing(3, 2, 2, false), (2, 1));
        assert_eq!(sharing(6, 16, 16, true), (3, 5));
        assert_eq!(sharing(6, 12, 12, true), (6, 2));
        assert_eq!(sharing(160, 16, 16, true), (16, 1));
        assert_eq!(sharing(4, 8, 1, true), (1, 8));
        assert_eq!(sharing(0, 2, 2, false), (1, 2));
    }
}
