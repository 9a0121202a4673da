//! One agent at work: a block of one row, whose exchanges go to neighbours somewhere else.

use mile::agents::{Agents, AgentsError, Vector};
use mile::block;
use mile::method::{Layout, Method};
use mile::network::Network;
use mile::problems::{Draw, Problem};
use mile::real::Real;
use mile::run::{Progress, Run};
use mile::schedule::Schedule;

use crate::gossip::{Gossip, Tolerance};
use crate::hello::Mark;
use crate::outbox::Message;
use crate::session::Finished;

/// Why an agent stopped before its time.
pub type Halt = Box<dyn std::error::Error + Send + Sync>;

/// What surrounds an agent: its neighbours and its disk.
pub trait Host<T> {
    /// An empty buffer for the next message.
    fn buffer(&mut self) -> Vec<T>;

    /// One exchange with the neighbours in `up`; comes back when it is over. The message's first vector is the model.
    fn exchange(&mut self, message: Message<T>, up: &[usize], sums: Vec<Vec<T>>)
    -> Result<Finished<T>, Halt>;

    /// A round is over (or, at round 0, the start-up): time to look, and to save.
    fn round_over(&mut self, moment: &Moment<'_, T>) -> Result<(), Halt>;
}

/// One method on one problem from one starting point, as seen by one agent.
#[derive(Clone, Copy)]
pub struct Job<'a, T> {
    /// Which of the run's jobs.
    pub index: usize,
    /// Which agent.
    pub agent: usize,
    /// The problem; only this agent's objective is ever asked for.
    pub problem: &'a dyn Problem<T>,
    /// The whole network.
    pub network: &'a Network,
    /// The method.
    pub method: &'a dyn Method,
    /// Its step sizes.
    pub schedule: &'a Schedule,
    /// Seed of the run.
    pub seed: u64,
    /// Rounds to be done.
    pub rounds: u64,
    /// Rounds between two looks of the agent at itself; 0 for never.
    pub gossip_every: u64,
    /// When to stop before the last round.
    pub tolerance: Option<Tolerance>,
}

/// A state of a job: all that is needed to go on from it, but for the session's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct State<T> {
    /// Which of the run's jobs.
    pub job: usize,
    /// Exchanges and rounds before it.
    pub mark: Mark,
    /// How far the job has come.
    pub progress: Progress,
    /// Its state vectors.
    pub vectors: Vec<Vec<T>>,
    /// What the agent knows of the network.
    pub gossip: Gossip,
}

/// An agent between two rounds.
pub struct Moment<'a, T> {
    /// Which of the run's jobs.
    pub job: usize,
    /// Exchanges and rounds before it.
    pub mark: Mark,
    /// How far the job has come.
    pub progress: &'a Progress,
    /// The method's layout.
    pub layout: Layout,
    /// Its state vectors.
    pub vectors: &'a [Vec<T>],
    /// What the agent knows of the network.
    pub gossip: &'a Gossip,
    /// Whether the job ends here.
    pub last: bool,
}

impl<T: Clone> Moment<'_, T> {
    /// A copy of the state.
    pub fn state(&self) -> State<T> {
        State {
            job: self.job,
            mark: self.mark,
            progress: *self.progress,
            vectors: self.vectors.to_vec(),
            gossip: self.gossip.clone(),
        }
    }
}

/// Where a job begins.
pub enum From<T> {
    /// At a starting point, after so many exchanges and rounds of earlier jobs.
    Start(Vec<T>, Mark),
    /// Where it was.
    State(State<T>),
}

/// Does a job to its end. Returns its last state; the next job starts at its mark.
pub fn work<T: Real>(job: &Job<T>, from: From<T>, host: &mut dyn Host<T>) -> Result<State<T>, Halt> {
    let layout = job.method.layout();
    let dim = job.problem.dim();
    let (mut vectors, mark, gossip, progress) = match from {
        From::Start(start, mark) => (vec![start], mark, Gossip::default(), None),
        From::State(state) => (state.vectors, state.mark, state.gossip, Some(state.progress)),
    };
    vectors.resize_with(layout.vectors(), || vec![T::zero(); dim]);
    let mut solo = Solo { job, vectors, mark, gossip, host };
    let mut run = match progress {
        Some(progress) => Run::resume(job.method, job.schedule.clone(), progress),
        None => {
            let run = Run::start(job.method, job.schedule.clone(), &mut solo)?;
            solo.look();
            solo.tell(run.progress(), job.rounds == 0)?;
            run
        }
    };
    loop {
        let round = run.progress().round;
        if solo.is_last(round) {
            break;
        }
        run.round(&mut solo)?;
        solo.mark.round += 1;
        if (round + 1).is_multiple_of(job.gossip_every.max(1)) {
            solo.look();
        }
        solo.tell(run.progress(), solo.is_last(round + 1))?;
    }
    let Solo { mut vectors, mark, gossip, .. } = solo;
    vectors.truncate(layout.state.len());
    Ok(State { job: job.index, mark, progress: *run.progress(), vectors, gossip })
}

struct Solo<'a, T> {
    job: &'a Job<'a, T>,
    vectors: Vec<Vec<T>>,
    mark: Mark,
    gossip: Gossip,
    host: &'a mut dyn Host<T>,
}

impl<T: Real> Solo<'_, T> {
    fn is_last(&self, round: u64) -> bool {
        round >= self.job.rounds.min(self.gossip.stop().unwrap_or(u64::MAX))
    }

    /// The agent looks at itself: loss, model and, where affordable, gradient, in memory that is free between steps.
    fn look(&mut self) {
        if self.job.gossip_every == 0 {
            return;
        }
        let (problem, agent) = (self.job.problem, self.job.agent);
        let loss = problem.loss(agent, &self.vectors[0]);
        let scratch = self.job.method.layout().state.len();
        let (state, free) = self.vectors.split_at_mut(scratch);
        let gradient = free.first_mut().filter(|_| problem.records_gradient_norm()).map(|gradient| {
            problem.gradient(agent, &state[0], gradient);
            &gradient[..]
        });
        self.gossip.refresh(loss, &state[0], gradient);
    }

    fn tell(&mut self, progress: &Progress, last: bool) -> Result<(), Halt> {
        let layout = self.job.method.layout();
        self.host.round_over(&Moment {
            job: self.job.index,
            mark: self.mark,
            progress,
            layout,
            vectors: &self.vectors[..layout.state.len()],
            gossip: &self.gossip,
            last,
        })
    }
}

impl<T: Real> Agents for Solo<'_, T> {
    fn hosted(&self) -> usize {
        1
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        let mut gradient = std::mem::take(&mut self.vectors[g.0]);
        let draw = Draw { seed: self.job.seed, step: draw };
        self.job.problem.sample_gradient(self.job.agent, &self.vectors[x.0], draw, &mut gradient);
        self.vectors[g.0] = gradient;
        Ok(())
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) {
        let mut out = std::mem::take(&mut self.vectors[y.0]);
        let terms: Vec<(f64, &[T])> = terms.iter().map(|(a, v)| (*a, &self.vectors[v.0][..])).collect();
        block::combine(&mut out, keep, &terms);
        self.vectors[y.0] = out;
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        let Job { agent, network, seed, problem, .. } = *self.job;
        let edges = network.mixing().rows().row(agent).iter().map(|(j, _)| *j).filter(|j| *j != agent);
        let up: Vec<usize> = edges.filter(|j| network.edge_is_up(seed, agent, *j, round)).collect();
        let mut flat = self.host.buffer();
        pairs.iter().for_each(|(from, _)| flat.extend_from_slice(&self.vectors[from.0]));
        let sums = pairs.iter().map(|(_, to)| std::mem::take(&mut self.vectors[to.0])).collect();
        let gossip = if self.job.gossip_every > 0 { self.gossip.words() } else { Vec::new() };
        let message = Message { mark: self.mark, vectors: flat, gossip };
        let finished = self.host.exchange(message, &up, sums).map_err(AgentsError::Engine)?;
        for ((_, to), sum) in pairs.iter().zip(finished.sums) {
            self.vectors[to.0] = sum;
        }
        if self.job.gossip_every > 0 {
            self.gossip.heard(round, &finished.gossip, self.job.tolerance.as_ref());
        }
        self.mark.exchange += 1;
        Ok((finished.used.len() * pairs.len() * problem.dim() * size_of::<T>()) as u64)
    }

    fn forget(&mut self, scratch: Vector) {
        if cfg!(debug_assertions) {
            self.vectors[scratch.0].fill(T::nan());
        }
    }
}
