//! The loss of a model on the data of all agents, and its metrics on held-out data, wherever the data are.
//!
//! Over several ranks, each evaluates the losses of the agents it hosts; they are summed in increasing agent, as one process does.
//! Held-out data of agents give predictions, which the first rank gathers; on held-out data that all ranks have, an agent's model is
//! measured by the rank that hosts it, and the average model by the first.

use mile::agents::{AgentsError, Failure};
use mile::engine::Engine;
use mile::problems::{HeldOut, HeldOutByAgent, Problem};
use mile::ranks::Together;
use mile::real::Real;
use rayon::prelude::*;

/// Whose model is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The average of all.
    Average,
    /// That of this agent.
    Agent(usize),
}

impl Whose {
    /// Measures the model on held-out data, if there are some.
    pub(crate) fn measure<T: Real>(
        self,
        held_out: Option<&dyn HeldOut<T>>,
        x: &[T],
    ) -> Result<Vec<f64>, Failure> {
        match (held_out, self) {
            (None, _) => Ok(Vec::new()),
            (Some(held_out), Self::Average) => held_out.measure(x),
            (Some(held_out), Self::Agent(agent)) => held_out.measure_of(agent, x),
        }
    }
}

/// Loss and metrics of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LossAndMetrics {
    pub(crate) loss: f64,
    /// In the order of the problem's metrics.
    pub(crate) metrics: Vec<f64>,
}

impl LossAndMetrics {
    /// Of a model, with the data of all agents in this process.
    pub(crate) fn alone<T: Real>(
        problem: &dyn Problem<T>,
        whose: Whose,
        x: &[T],
    ) -> Result<Self, AgentsError> {
        let evaluated =
            || Ok(Self { loss: problem.objective(x)?, metrics: whose.measure(problem.held_out(), x)? });
        evaluated().map_err(AgentsError::Evaluation)
    }
}

/// The agents that an engine hosts here, in the order of their rows.
pub(crate) fn hosted<T: Real>(engine: &dyn Engine<T>) -> Vec<usize> {
    engine.hosted().map(|place| engine.agent_at(place)).collect()
}

/// Loss and metrics of a model that all ranks have.
pub(crate) fn evaluate<T: Real>(
    together: Together<'_>,
    problem: &dyn Problem<T>,
    engine: &mut dyn Engine<T>,
    whose: Whose,
    x: &[T],
) -> Result<LossAndMetrics, AgentsError> {
    if together.count() == 1 {
        return LossAndMetrics::alone(problem, whose, x);
    }
    let agents = hosted(engine);
    let loss = |agent: &usize| problem.loss(*agent, x).map_err(AgentsError::objective(*agent));
    let own: Vec<f64> = agents.par_iter().map(loss).collect::<Result<_, _>>()?;
    let all = engine.of_all(together, own)?;
    let mean = all.iter().fold(0.0, |sum, loss| sum + loss) / engine.agents() as f64;
    let loss = problem.penalty().map_or(mean, |penalty| mean + penalty.value(x));
    Ok(LossAndMetrics { loss, metrics: measure(together, problem, engine, whose, x)? })
}

/// The metrics of a model that all ranks have.
pub(crate) fn measure<T: Real>(
    together: Together<'_>,
    problem: &dyn Problem<T>,
    engine: &dyn Engine<T>,
    whose: Whose,
    x: &[T],
) -> Result<Vec<f64>, AgentsError> {
    let Some(held_out) = problem.held_out() else { return Ok(Vec::new()) };
    let agents = hosted(engine);
    let metrics = match held_out.by_agent() {
        Some(by_agent) => measure_by_agent(together, by_agent, engine, &agents, x),
        None => measure_once(together, held_out, &agents, whose, x),
    };
    metrics.map_err(AgentsError::Evaluation)
}

/// The first rank forms the metrics from the predictions of all agents.
fn measure_by_agent<T: Real>(
    together: Together<'_>,
    held_out: &dyn HeldOutByAgent<T>,
    engine: &dyn Engine<T>,
    agents: &[usize],
    x: &[T],
) -> Result<Vec<f64>, Failure> {
    let one = |agent: &usize| held_out.numbers(*agent, x).map(|found| (*agent, found));
    let own: Vec<(usize, Vec<f64>)> = agents.par_iter().map(one).collect::<Result<_, _>>()?;
    let mut message = Vec::new();
    for (agent, found) in &own {
        message.extend_from_slice(&(*agent as u64).to_le_bytes());
        message.extend_from_slice(&(found.len() as u64).to_le_bytes());
        message.extend_from_slice(bytemuck::cast_slice(found));
    }
    let mut metrics = Vec::new();
    if let Some(all) = together.gather(&message)? {
        let mut of_agents = vec![Vec::new(); engine.agents()];
        for message in all {
            let mut rest = &message[..];
            while let Some((head, tail)) = rest.split_at_checked(16) {
                let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes) as usize;
                let (agent, bytes) = (number(&head[..8]), 8 * number(&head[8..]));
                let cut = || Failure::from("predictions from another rank are truncated");
                let (numbers, after) = tail.split_at_checked(bytes).ok_or_else(cut)?;
                *of_agents.get_mut(agent).ok_or_else(cut)? = bytemuck::pod_collect_to_vec(numbers);
                rest = after;
            }
        }
        metrics = held_out.combine(&of_agents);
    }
    let mut bytes = bytemuck::cast_slice(&metrics).to_vec();
    together.broadcast(0, &mut bytes)?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// All ranks have the held-out data: one of them measures and tells the others.
fn measure_once<T: Real>(
    together: Together<'_>,
    held_out: &dyn HeldOut<T>,
    hosted: &[usize],
    whose: Whose,
    x: &[T],
) -> Result<Vec<f64>, Failure> {
    let is_here = match whose {
        Whose::Average => together.rank() == 0,
        Whose::Agent(agent) => hosted.contains(&agent),
    };
    let metrics = if is_here { whose.measure(Some(held_out), x)? } else { Vec::new() };
    let all = together.all_gather(bytemuck::cast_slice(&metrics))?;
    Ok(all.iter().flat_map(|part| bytemuck::pod_collect_to_vec::<u8, f64>(part)).collect())
}
