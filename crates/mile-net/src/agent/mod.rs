//! One agent of a run: local steps here, exchanges with neighbours through a [`Host`].
//!
//! [`work`] drives a method for one agent from its start, or from a checkpoint, to its last round.

mod network_agent;

use mile::membership::Membership;
use mile::method::{Layout, Method};
use mile::problems::Problem;
use mile::real::Real;
use mile::run::{Progress, Run};
use mile::schedule::Schedule;

pub use mile::agents::Failure;

use self::network_agent::NetworkAgent;
use crate::gossip::{Gossip, Tolerance};
use crate::handshake::Mark;
use crate::outbox::Message;
use crate::protocol::Finished;

/// What an agent needs from its surroundings: a network and a disk.
///
/// An error from a host ends the agent's work.
pub trait Host<T>: Send {
    /// An empty buffer for the next message.
    fn buffer(&mut self) -> Vec<T>;

    /// One exchange with the neighbours in `up`, each with the weight of its edge: sends the message to them, waits for theirs, and
    /// adds these up in `sums`.
    fn exchange(
        &mut self,
        message: Message<T>,
        up: &[(usize, f64)],
        sums: Vec<Vec<T>>,
    ) -> Result<Finished<T>, Failure>;

    /// Called just before an exchange with the model that it is about to change.
    fn about_to_mix(&mut self, model: &[T]) {
        let _ = model;
    }

    /// Called at the end of every round, and of the start-up as round 0: the place to write checkpoints and records.
    fn round_over(&mut self, end: &RoundEnd<'_, T>) -> Result<(), Failure>;

    /// Called when the method was restarted before a round: exchanges since the end of the last round were part of that.
    fn renewed(&mut self) {}
}

/// One method on one problem from one starting point, as seen by one agent.
#[derive(Clone, Copy)]
pub struct AgentJob<'a, T> {
    /// Which of the run's jobs.
    pub index: usize,
    /// Which agent.
    pub agent: usize,
    /// The problem; only this agent's objective is ever asked for.
    pub problem: &'a dyn Problem<T>,
    /// Who takes part, and their networks.
    pub membership: &'a Membership,
    /// The method, for the first network.
    pub method: &'a dyn Method,
    /// The same method for the networks of later epochs, in their order.
    pub later: &'a [&'a dyn Method],
    /// Its step sizes.
    pub schedule: &'a Schedule,
    /// Seed of the run.
    pub seed: u64,
    /// Rounds to do.
    pub rounds: u64,
    /// Rounds between two evaluations of the agent's own loss for the [gossip](crate::gossip); 0 for never.
    pub gossip_every: u64,
    /// When all agents stop before the last round.
    pub tolerance: Option<Tolerance>,
}

/// The first exchange after the k-th event of a membership. An agent that joins a run cannot know how many there were.
pub fn first_exchange_after(event: usize) -> u64 {
    (event as u64 + 1) << 40
}

/// The first exchange of a job with which agents begin because an earlier one was given up, wherever they were in that.
pub fn first_exchange_of(job: usize) -> u64 {
    (job as u64) << 40
}

/// A state of a job. With the session's [`Memory`](crate::protocol::Memory) it is all that is needed to resume.
#[derive(Clone, Debug, PartialEq)]
pub struct State<T> {
    /// Which of the run's jobs.
    pub job: usize,
    /// Exchanges and rounds of the run that are done.
    pub mark: Mark,
    /// How far the job has come.
    pub progress: Progress,
    /// Its state vectors.
    pub vectors: Vec<Vec<T>>,
    /// The agent's estimates of the whole network.
    pub gossip: Gossip,
}

/// An agent at the end of a round.
#[non_exhaustive]
pub struct RoundEnd<'a, T> {
    /// Which of the run's jobs.
    pub job: usize,
    /// Exchanges and rounds of the run that are done.
    pub mark: Mark,
    /// How far the job has come.
    pub progress: &'a Progress,
    /// The method's layout.
    pub layout: &'a Layout,
    /// Its state vectors.
    pub vectors: &'a [Vec<T>],
    /// The agent's estimates of the whole network.
    pub gossip: &'a Gossip,
    /// Whether the job ends here.
    pub last: bool,
}

impl<T: Clone> RoundEnd<'_, T> {
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

/// Where an agent starts a job.
#[non_exhaustive]
pub enum StartFrom<T> {
    /// From a starting point, after these exchanges and rounds of earlier jobs.
    Point(Vec<T>, Mark),
    /// From a state of the same job, as a checkpoint holds it.
    State(State<T>),
    /// As the agent that is new with the k-th event of the membership.
    Event(usize),
}

/// Does a job to its end, or until the agent leaves. Returns its last state; the next job starts at its mark.
///
/// # Errors
/// If the objective cannot be evaluated, naming the agent, or if the host fails. Checkpoints that were written remain.
pub fn work<T: Real>(
    job: &AgentJob<T>,
    from: StartFrom<T>,
    host: &mut dyn Host<T>,
) -> Result<State<T>, Failure> {
    let (mut agent, progress) = NetworkAgent::new(job, from, host)?;
    let mut run = match progress {
        Some(progress) => Run::resume(agent.method(), job.schedule.clone(), progress),
        None => {
            let run = Run::start(agent.method(), job.schedule.clone(), &mut agent)?;
            agent.evaluate()?;
            agent.end_round(run.progress(), agent.is_last(0))?;
            run
        }
    };
    loop {
        let round = run.progress().round;
        if agent.is_last(round) {
            break;
        }
        if let Some(epoch) = job.membership.beginning_at(round) {
            let newcomer = agent.enter(epoch)?;
            run = Run::resume(agent.method(), job.schedule.clone(), *run.progress());
            run.renew(newcomer, &mut agent)?;
            agent.renewed()?;
        }
        run.round(&mut agent)?;
        agent.count_round();
        if (round + 1).is_multiple_of(job.gossip_every.max(1)) {
            agent.evaluate()?;
        }
        agent.end_round(run.progress(), agent.is_last(round + 1))?;
    }
    Ok(agent.into_state(*run.progress()))
}
