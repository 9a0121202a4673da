//! The engine of one agent: its vectors here, its neighbours behind a [`Host`].

use std::borrow::Cow;
use std::ops::Range;

use mile::agents::{
    Agents, AgentsError, BlockFunction, BlocksMut, CompressedPull, OptimiserStep, RobustPull, SteadyPull,
    Vector,
};
use mile::engine::Engine;
use mile::engine::parts::{check_method, matrices, movers, replace};
use mile::membership::Epoch;
use mile::method::{Layout, Method};
use mile::optimiser::MatrixPart;
use mile::ranks::Together;
use mile::real::Real;
use mile::run::Progress;
use mile::steady::{message_bytes, remember, steadiness, summary};
use mile::verbs::{LocalWork, Rows, Verbs};

use super::{AgentJob, Failure, Host, RoundEnd, StartFrom, State, first_exchange_after};
use crate::gossip::Gossip;
use crate::handshake::Mark;
use crate::outbox::{Message, MessageForm};
use crate::protocol::Finished;

/// Hosts one agent of a network.
pub(super) struct NetworkAgent<'a, T> {
    job: &'a AgentJob<'a, T>,
    epoch: &'a Epoch,
    method: &'a dyn Method,
    /// The layout of the method, the same in every epoch.
    layout: Layout,
    /// The agent's place among the members.
    place: usize,
    vectors: Vec<Vec<T>>,
    matrices: Vec<MatrixPart>,
    verbs: Verbs,
    mark: Mark,
    gossip: Gossip,
    host: &'a mut dyn Host<T>,
}

impl<'a, T: Real> NetworkAgent<'a, T> {
    /// An agent at its starting point, or in a state, in which case its progress comes with it.
    pub(super) fn new(
        job: &'a AgentJob<'a, T>,
        from: StartFrom<T>,
        host: &'a mut dyn Host<T>,
    ) -> Result<(Self, Option<Progress>), AgentsError> {
        let epoch = match &from {
            StartFrom::Point(..) => 0,
            StartFrom::State(state) => job.membership.at(state.progress.round),
            StartFrom::Event(k) => k + 1,
        };
        let (epoch, method, place) = part(job, epoch)?;
        let (layout, dim) = (method.layout(), job.problem.dim());
        check_method(method, job.problem.penalty().is_some())
            .map_err(|error| AgentsError::Engine(Box::new(error)))?;
        let (expected, mut vectors, mark, gossip, progress) = match from {
            StartFrom::Point(point, mark) => (1, vec![point], mark, Gossip::new(dim), None),
            StartFrom::State(State { mark, progress, vectors, gossip, .. }) => {
                (layout.state.len(), vectors, mark, gossip.fitted(dim), Some(progress))
            }
            StartFrom::Event(k) => {
                let round = epoch.round;
                let mark = Mark { exchange: first_exchange_after(k), round };
                let progress = Progress { round, step_size: job.schedule.at(round), ..Progress::default() };
                (0, Vec::new(), mark, Gossip::new(dim), Some(progress))
            }
        };
        let lengths: Vec<usize> = vectors.iter().map(Vec::len).collect();
        if lengths != vec![dim; expected] {
            let problem = format!(
                "agent {}: expected to start from {expected} vectors of length {dim}, got lengths {lengths:?}; start from a \
                 point or a checkpoint of this problem and method",
                job.agent
            );
            return Err(AgentsError::Engine(problem.into()));
        }
        vectors.resize_with(layout.vectors(), || vec![T::zero(); dim]);
        let verbs = Verbs::new(vectors.len());
        let matrices = matrices(job.problem, method).map_err(|error| AgentsError::Engine(Box::new(error)))?;
        Ok((
            Self { job, epoch, method, layout, place, vectors, matrices, verbs, mark, gossip, host },
            progress,
        ))
    }

    /// The method of the epoch.
    pub(super) fn method(&self) -> &'a dyn Method {
        self.method
    }

    /// Whether the job ends for this agent with this round.
    pub(super) fn is_last(&self, round: u64) -> bool {
        let leaves = self.job.membership.leaves(self.job.agent).unwrap_or(u64::MAX);
        round >= self.job.rounds.min(leaves).min(self.gossip.stop().unwrap_or(u64::MAX))
    }

    /// Enters an epoch: exchanges are counted from a number that a newcomer knows, and estimates of the whole network are reset.
    /// Returns the newcomer, for [`Run::renew`](mile::run::Run::renew).
    pub(super) fn enter(&mut self, epoch: usize) -> Result<Option<(usize, f64)>, AgentsError> {
        (self.epoch, self.method, self.place) = part(self.job, epoch)?;
        self.vectors.resize_with(self.layout.vectors(), || vec![T::zero(); self.job.problem.dim()]);
        self.verbs = Verbs::new(self.vectors.len());
        self.mark.exchange = first_exchange_after(epoch.saturating_sub(1));
        self.gossip = Gossip::new(self.job.problem.dim());
        let (membership, round) = (self.job.membership, self.mark.round);
        Ok(self.epoch.newcomer_with(|id| !membership.is_absent(id, round)))
    }

    /// The method has been restarted.
    pub(super) fn renewed(&mut self) -> Result<(), AgentsError> {
        self.host.renewed();
        self.evaluate()
    }

    /// A round is done.
    pub(super) fn count_round(&mut self) {
        self.mark.round += 1;
    }

    /// Evaluates the agent's own loss and, where affordable, gradient for the gossip, in memory that is free between
    /// steps. With a penalty the mean gradient is meaningless: it is not zero at a minimiser.
    pub(super) fn evaluate(&mut self) -> Result<(), AgentsError> {
        if self.job.gossip_every == 0 {
            return Ok(());
        }
        let AgentJob { problem, agent, .. } = *self.job;
        let (state, scratch) = self.vectors.split_at_mut(self.layout.state.len());
        let model = &state[0];
        let penalty = problem.penalty();
        let smooth = problem.loss(agent, model).map_err(AgentsError::objective(agent))?;
        let loss = penalty.map_or(smooth, |penalty| smooth + penalty.value(model));
        let free = scratch.first_mut().filter(|_| problem.records_gradient_norm() && penalty.is_none());
        let mut gradient = None;
        if let Some(free) = free {
            problem.gradient(agent, model, free).map_err(AgentsError::objective(agent))?;
            gradient = Some(&free[..]);
        }
        self.gossip.refresh(loss, model, gradient);
        Ok(())
    }

    /// Tells the host that a round is over.
    pub(super) fn end_round(&mut self, progress: &Progress, last: bool) -> Result<(), Failure> {
        self.host.round_over(&RoundEnd {
            job: self.job.index,
            mark: self.mark,
            progress,
            layout: &self.layout,
            vectors: &self.vectors[..self.layout.state.len()],
            gossip: &self.gossip,
            last,
        })
    }

    /// The agent's state after its last round.
    pub(super) fn into_state(self, progress: Progress) -> State<T> {
        let Self { job, layout, mut vectors, mark, gossip, .. } = self;
        vectors.truncate(layout.state.len());
        State { job: job.index, mark, progress, vectors, gossip }
    }

    /// An exchange of what `write` appends to a message, in this form; the sums are put where they belong. It changes the model.
    fn exchange(
        &mut self,
        round: u64,
        model: Vector,
        form: MessageForm,
        write: impl FnOnce(&[Vec<T>], &mut Vec<T>),
        to: &[Vector],
    ) -> Result<Finished<T>, AgentsError> {
        let AgentJob { agent, membership, seed, gossip_every, .. } = *self.job;
        let (epoch, place) = (self.epoch, self.place);
        let absent = |id: usize| membership.is_absent(id, round);
        let weight = |(id, _): (usize, f64)| {
            let weight = epoch.network.weight_in_round(seed, (place, epoch.place(id)?), round)?;
            (!absent(agent) && !absent(id)).then_some((id, weight))
        };
        let up: Vec<(usize, f64)> = epoch.neighbours(agent).filter_map(weight).collect();
        self.host.about_to_mix(&self.vectors[model.0]);
        let mut vectors = self.host.buffer();
        write(&self.vectors, &mut vectors);
        let sums = to.iter().map(|to| std::mem::take(&mut self.vectors[to.0])).collect();
        let gossip = if gossip_every > 0 { self.gossip.numbers() } else { Vec::new() };
        let message = Message { mark: self.mark, vectors, form, gossip };
        let mut finished = self.host.exchange(message, &up, sums).map_err(AgentsError::Engine)?;
        for (to, sum) in to.iter().zip(std::mem::take(&mut finished.sums)) {
            self.vectors[to.0] = sum;
        }
        if gossip_every > 0 {
            self.gossip.receive(round, &finished.gossip, self.job.tolerance.as_ref());
        }
        self.mark.exchange += 1;
        Ok(finished)
    }

    /// Carries out the verb that was just noted. Waiting gains nothing: there is one agent.
    fn carry_out(&mut self) -> Result<(), AgentsError> {
        let AgentJob { problem, agent, seed, .. } = *self.job;
        let verbs = self.verbs.stage(0);
        let work = LocalWork { problem, seed, matrices: &self.matrices, own_steps: &[] };
        let done = Rows::alone(agent, &mut self.vectors, |rows| {
            verbs.iter().try_for_each(|verb| rows.carry_out(verb, &work))
        });
        self.verbs.clear();
        done
    }
}

impl<T: Real> Agents for NetworkAgent<'_, T> {
    fn hosted(&self) -> Range<usize> {
        self.place..self.place + 1
    }

    fn gradient(&mut self, x: Vector, g: Vector, draw: u64) -> Result<(), AgentsError> {
        self.verbs.gradient(x, g, draw)?;
        self.carry_out()
    }

    fn combine(&mut self, y: Vector, keep: f64, terms: &[(f64, Vector)]) -> Result<(), AgentsError> {
        self.verbs.combine(y, keep, terms)?;
        self.carry_out()
    }

    fn prox(&mut self, x: Vector, step: f64) -> Result<(), AgentsError> {
        self.verbs.prox(x, step)?;
        self.carry_out()
    }

    fn optimise(&mut self, step: &OptimiserStep) -> Result<(), AgentsError> {
        self.verbs.optimise(step)?;
        self.carry_out()
    }

    fn clip(&mut self, g: Vector, most: f64) -> Result<(), AgentsError> {
        self.verbs.clip(g, most)?;
        self.carry_out()
    }

    fn pull(&mut self, round: u64, pairs: &[(Vector, Vector)]) -> Result<u64, AgentsError> {
        self.verbs.check_pull(pairs)?;
        let (from, to): (Vec<Vector>, Vec<Vector>) = pairs.iter().copied().unzip();
        let write = |vectors: &[Vec<T>], message: &mut Vec<T>| {
            message.reserve_exact(from.iter().map(|from| vectors[from.0].len()).sum());
            from.iter().for_each(|from| message.extend_from_slice(&vectors[from.0]));
        };
        let finished = self.exchange(round, pairs[0].0, MessageForm::Whole, write, &to)?;
        Ok((finished.used.len() * pairs.len() * self.dim() * size_of::<T>()) as u64)
    }

    fn pull_steady(&mut self, round: u64, pull: &SteadyPull) -> Result<u64, AgentsError> {
        self.verbs.check_steady(pull)?;
        let own = summary(&self.vectors[pull.from.0], &self.vectors[pull.memory.0]);
        let summary: &[T] = bytemuck::cast_slice(&own);
        let write = |vectors: &[Vec<T>], message: &mut Vec<T>| {
            message.reserve_exact(summary.len() + vectors[pull.from.0].len());
            message.extend_from_slice(summary);
            message.extend_from_slice(&vectors[pull.from.0]);
        };
        let finished = self.exchange(
            round,
            pull.from,
            MessageForm::Summary(summary.len()),
            write,
            &[pull.to, pull.steady],
        )?;
        let others = finished.summaries.iter().map(|(weight, numbers)| (*weight, &numbers[..]));
        let r = steadiness(&own, pull.fresh, others);
        let mut memory = std::mem::take(&mut self.vectors[pull.memory.0]);
        remember(&mut memory, &self.vectors[pull.from.0], r);
        self.vectors[pull.memory.0] = memory;
        Ok((finished.used.len() * message_bytes::<T>(self.dim())) as u64)
    }

    fn pull_compressed(&mut self, round: u64, pull: &CompressedPull) -> Result<u64, AgentsError> {
        self.verbs.compress(pull)?;
        self.carry_out()?;
        let write = |vectors: &[Vec<T>], message: &mut Vec<T>| {
            let q = &vectors[pull.from.0];
            message.reserve_exact(pull.by.message_bytes::<T>(q.len()) / size_of::<T>());
            let mut bytes = Vec::new();
            for stretch in q.chunks(pull.by.stretch().unwrap_or(q.len()).max(1)) {
                bytes.clear();
                pull.by.encode(stretch, &mut bytes);
                message.extend(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>));
            }
        };
        let finished =
            self.exchange(round, pull.model, MessageForm::Compressed(pull.by), write, &[pull.to])?;
        Ok((finished.used.len() * pull.by.message_bytes::<T>(self.dim())) as u64)
    }

    fn pull_robust(&mut self, round: u64, pull: &RobustPull) -> Result<u64, AgentsError> {
        self.verbs.check_pull(&[(pull.from, pull.to)])?;
        let write =
            |vectors: &[Vec<T>], message: &mut Vec<T>| message.extend_from_slice(&vectors[pull.from.0]);
        let finished = self.exchange(round, pull.from, MessageForm::Robust(pull.by), write, &[pull.to])?;
        Ok((finished.used.len() * self.dim() * size_of::<T>()) as u64)
    }

    /// Verbs are not called for nobody, so that there is nothing to note.
    fn only(&mut self, own: Option<u64>) -> Result<u64, AgentsError> {
        Ok(movers(self.hosted(), self.method.own_steps().unwrap_or_default(), own))
    }

    fn apply(&mut self, function: &dyn BlockFunction, vectors: &[Vector]) -> Result<(), AgentsError> {
        self.verbs.check_apply(vectors)?;
        let mut taken: Vec<Vec<T>> = vectors.iter().map(|v| std::mem::take(&mut self.vectors[v.0])).collect();
        let done = function.apply(1, BlocksMut::of(&mut taken));
        for (v, vector) in vectors.iter().zip(taken) {
            self.vectors[v.0] = vector;
        }
        done.map_err(AgentsError::Engine)
    }

    fn forget(&mut self, scratch: Vector) -> Result<(), AgentsError> {
        if cfg!(debug_assertions) {
            self.verbs.forget(scratch)?;
            self.carry_out()?;
        }
        Ok(())
    }
}

impl<T: Real> Engine<T> for NetworkAgent<'_, T> {
    fn agents(&self) -> usize {
        self.epoch.members.len()
    }

    fn dim(&self) -> usize {
        self.job.problem.dim()
    }

    fn vector(&mut self, v: Vector) -> Result<Cow<'_, [T]>, AgentsError> {
        self.vectors.get(v.0).map(|vector| Cow::Borrowed(&vector[..])).ok_or_else(|| unknown(v))
    }

    fn set_vector(&mut self, v: Vector, rows: &[T]) -> Result<(), AgentsError> {
        let vector = self.vectors.get_mut(v.0).ok_or_else(|| unknown(v))?;
        replace(vector, rows)
    }

    fn of_all(&mut self, _: Together<'_>, _: Vec<f64>) -> Result<Vec<f64>, AgentsError> {
        Err(no_sums())
    }

    fn sum(&mut self, _: Together<'_>, _: Vector) -> Result<Vec<f64>, AgentsError> {
        Err(no_sums())
    }
}

/// An epoch of a job, its method, and the agent's place in it.
fn part<'a, T>(
    job: &AgentJob<'a, T>,
    epoch: usize,
) -> Result<(&'a Epoch, &'a dyn Method, usize), AgentsError> {
    let methods = std::iter::once(job.method).chain(job.later.iter().copied());
    let found = job.membership.epochs().iter().zip(methods).nth(epoch);
    let place = found.and_then(|(epoch, _)| epoch.place(job.agent));
    let (Some((epoch, method)), Some(place)) = (found, place) else {
        let problem = format!("agent {} does not take part in epoch {epoch} of the run", job.agent);
        return Err(AgentsError::Engine(problem.into()));
    };
    Ok((epoch, method, place))
}

fn no_sums() -> AgentsError {
    let problem = "one agent on a network cannot sum over all agents; use the estimates of its gossip";
    AgentsError::Engine(problem.into())
}

fn unknown(v: Vector) -> AgentsError {
    AgentsError::Method(format!("vector {} is not in its layout", v.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mile::graph::Topology;
    use mile::membership::Membership;
    use mile::methods::Mile;
    use mile::mixing::Rule;
    use mile::network::Network;
    use mile::problems::Quadratic;
    use mile::schedule::Schedule;

    /// A host without neighbours.
    struct Alone;

    impl Host<f64> for Alone {
        fn buffer(&mut self) -> Vec<f64> {
            Vec::new()
        }

        fn exchange(
            &mut self,
            _: Message<f64>,
            _: &[(usize, f64)],
            sums: Vec<Vec<f64>>,
        ) -> Result<Finished<f64>, Failure> {
            Ok(Finished { sums, used: Vec::new(), summaries: Vec::new(), gossip: Vec::new() })
        }

        fn round_over(&mut self, _: &RoundEnd<'_, f64>) -> Result<(), Failure> {
            Ok(())
        }
    }

    fn with_job(test: impl FnOnce(&AgentJob<f64>)) {
        let problem = Quadratic::<f64>::new(3, 4, 10.0, 1.0, 0).unwrap();
        let network = Network::new(Topology::Path.build(3, 0).unwrap(), Rule::Metropolis).unwrap();
        let (method, schedule) = (Mile::new(2, 0.2).unwrap(), Schedule::constant(0.1));
        test(&AgentJob {
            index: 0,
            agent: 2,
            problem: &problem,
            membership: &Membership::lasting(network),
            method: &method,
            later: &[],
            schedule: &schedule,
            seed: 0,
            rounds: 3,
            gossip_every: 0,
            tolerance: None,
        });
    }

    #[test]
    fn one_agent_shows_its_own_vectors_and_refuses_sums_over_all() {
        with_job(|job| {
            let mut host = Alone;
            let from = StartFrom::Point(vec![1.0; 4], Mark::default());
            let (mut agent, progress) = NetworkAgent::new(job, from, &mut host).unwrap();
            assert!(progress.is_none());
            assert_eq!((agent.hosted(), agent.agents(), agent.dim()), (2..3, 3, 4));
            agent.set_vector(Vector(1), &[2.0; 4]).unwrap();
            agent.combine(Vector(0), 1.0, &[(3.0, Vector(1))]).unwrap();
            assert_eq!(*agent.vector(Vector(0)).unwrap(), [7.0; 4]);
            assert!(agent.set_vector(Vector(1), &[2.0; 5]).is_err());
            assert!(agent.vector(Vector(9)).is_err());
            agent.watch();
            assert_eq!(agent.drift(), None);
            let refused = agent.consensus_error(Together::of(&mile::ranks::Alone), Vector(0)).unwrap_err();
            assert!(matches!(refused, AgentsError::Engine(_)), "{refused}");
        });
    }

    #[test]
    fn a_function_is_applied_to_the_one_row_that_an_agent_has() {
        struct Swap;
        impl BlockFunction for Swap {
            fn apply(&self, rows: usize, vectors: BlocksMut<'_>) -> Result<(), mile::agents::Failure> {
                let BlocksMut::F64(mut vectors) = vectors else { return Err("in double precision".into()) };
                assert_eq!((rows, vectors.len()), (1, 2));
                let [x, y] = &mut vectors[..] else { return Err("two vectors".into()) };
                x.iter_mut().zip(y.iter_mut()).for_each(|(x, y)| (*x, *y) = (*y, 2.0 * *x));
                Ok(())
            }
        }
        struct Refuses;
        impl BlockFunction for Refuses {
            fn apply(&self, _: usize, _: BlocksMut<'_>) -> Result<(), mile::agents::Failure> {
                Err("no".into())
            }
        }
        with_job(|job| {
            let mut host = Alone;
            let from = StartFrom::Point(vec![1.0; 4], Mark::default());
            let (mut agent, _) = NetworkAgent::new(job, from, &mut host).unwrap();
            agent.set_vector(Vector(1), &[3.0; 4]).unwrap();
            agent.apply(&Swap, &[Vector(0), Vector(1)]).unwrap();
            assert_eq!(*agent.vector(Vector(0)).unwrap(), [3.0; 4]);
            assert_eq!(*agent.vector(Vector(1)).unwrap(), [2.0; 4]);
            for wrong in [&[Vector(0), Vector(0)][..], &[Vector(99)]] {
                assert!(matches!(agent.apply(&Swap, wrong), Err(AgentsError::Method(_))));
            }
            assert!(matches!(agent.apply(&Refuses, &[Vector(0)]), Err(AgentsError::Engine(_))));
            assert_eq!(agent.vector(Vector(0)).unwrap().len(), 4);
        });
    }

    #[test]
    fn a_start_or_a_state_of_another_shape_is_refused() {
        with_job(|job| {
            let mut host = Alone;
            let refused = |from, host: &mut Alone| {
                let refused = NetworkAgent::new(job, from, host).err().expect("another shape");
                let text = refused.to_string();
                assert!(text.contains("agent 2"), "{text}");
            };
            refused(StartFrom::Point(vec![1.0; 5], Mark::default()), &mut host);
            let state = |vectors| State {
                job: 0,
                mark: Mark::default(),
                progress: Progress::default(),
                vectors,
                gossip: Gossip::new(4),
            };
            refused(StartFrom::State(state(vec![vec![0.0; 4]])), &mut host);
            refused(StartFrom::State(state(vec![vec![0.0; 4], vec![0.0; 3]])), &mut host);
            refused(StartFrom::State(state(Vec::new())), &mut host);
        });
    }
}
