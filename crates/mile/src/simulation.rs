//! The simplest way to run a method: a problem, a graph, a method and a step size, checked and run in this process.

use crate::agents::{AgentsError, Costs, Vector};
use crate::block;
use crate::engine::HostError;
use crate::graph::{Graph, Topology};
use crate::method::{InvalidParameter, Method};
use crate::methods::Mile;
use crate::mixing::{MixingMatrix, Rule};
use crate::network::{Network, NetworkError};
use crate::problems::{Failure, Problem};
use crate::real::Real;
use crate::run::{Progress, Run};
use crate::schedule::{InvalidSchedule, Schedule};
use crate::simulator::Simulator;

/// Local steps of MILE, the default method of a simulation.
const LOCAL_STEPS: u64 = 10;

/// Why a simulation could not be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The graph or the mixing matrix is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The method cannot run on this network, or a parameter is out of range.
    #[error(transparent)]
    Method(#[from] InvalidParameter),
    /// A number of the step-size schedule is out of range.
    #[error(transparent)]
    Schedule(#[from] InvalidSchedule),
    /// No step size was given.
    #[error("a simulation needs a step size: give one with step_size(0.1), or a schedule")]
    NoStepSize,
    /// The sizes of problem, network and starting point differ, or do not fit into memory.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The problem failed to compute its starting point.
    #[error("the problem could not compute its starting point: {0}")]
    Start(Failure),
    /// A step failed.
    #[error(transparent)]
    Agents(#[from] AgentsError),
}

/// A run of a method on all agents of a network, in this process.
///
/// ```
/// use mile::{Quadratic, Simulation, Topology};
///
/// let problem = Quadratic::<f64>::new(10, 20, 10.0, 1.0, 0)?;     // 10 agents, dimension 20
/// let mut simulation = Simulation::builder(&problem).topology(Topology::Ring).step_size(0.2).build()?;
/// simulation.run(2500)?;
/// assert!(simulation.consensus_error() < 1e-18);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// To compare several methods and seeds, with records, figures and reports, use the crate `mile-lab`.
pub struct Simulation<'a, T> {
    method: Box<dyn Method + 'a>,
    schedule: Schedule,
    progress: Progress,
    agents: Simulator<'a, T>,
}

/// Builds a [`Simulation`]. Defaults: a ring with Metropolis weights, no dropped edges, MILE with ten local steps, the
/// problem's own starting point or else zero, seed 0. Only the step size has to be given.
pub struct SimulationBuilder<'a, T> {
    problem: &'a dyn Problem<T>,
    graph: GraphChoice,
    mixing: MixingChoice,
    drop_rate: f64,
    method: Option<Box<dyn Method + 'a>>,
    schedule: Option<Schedule>,
    start: Option<Vec<T>>,
    seed: u64,
}

enum GraphChoice {
    Topology(Topology),
    Graph(Graph),
    Network(Network),
}

enum MixingChoice {
    Rule(Rule),
    Matrix(MixingMatrix),
}

impl<'a, T: Real> SimulationBuilder<'a, T> {
    /// The kind of graph.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.graph = GraphChoice::Topology(topology);
        self
    }

    /// A graph of your own.
    pub fn graph(mut self, graph: Graph) -> Self {
        self.graph = GraphChoice::Graph(graph);
        self
    }

    /// The rule that computes the mixing matrix from the graph.
    pub fn mixing(mut self, rule: Rule) -> Self {
        self.mixing = MixingChoice::Rule(rule);
        self
    }

    /// A mixing matrix of your own, made for the graph.
    pub fn matrix(mut self, matrix: MixingMatrix) -> Self {
        self.mixing = MixingChoice::Matrix(matrix);
        self
    }

    /// Graph, mixing matrix and drop rate in one; it replaces [`topology`](Self::topology), [`graph`](Self::graph),
    /// [`mixing`](Self::mixing), [`matrix`](Self::matrix) and [`drop_rate`](Self::drop_rate).
    pub fn network(mut self, network: &Network) -> Self {
        self.graph = GraphChoice::Network(network.clone());
        self
    }

    /// Probability that an edge is down in a communication round.
    pub fn drop_rate(mut self, drop_rate: f64) -> Self {
        self.drop_rate = drop_rate;
        self
    }

    /// The method.
    pub fn method(mut self, method: impl Method + 'a) -> Self {
        self.method = Some(Box::new(method));
        self
    }

    /// A constant step size.
    pub fn step_size(self, step_size: f64) -> Self {
        self.schedule(Schedule::constant(step_size))
    }

    /// Step sizes that change from round to round.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// The starting point: one for all agents, or one per agent, row after row.
    pub fn start(mut self, start: impl Into<Vec<T>>) -> Self {
        self.start = Some(start.into());
        self
    }

    /// Seed of random graphs, mini-batches and dropped edges.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Checks everything and runs the method's start-up, which ends at x(0).
    pub fn build(self) -> Result<Simulation<'a, T>, SimulationError> {
        let Self { problem, graph, mixing, drop_rate, method, schedule, start, seed } = self;
        let network = build_network(graph, mixing, problem.agents(), seed, drop_rate)?;
        let schedule = schedule.ok_or(SimulationError::NoStepSize)?;
        schedule.validate()?;
        let method = match method {
            Some(method) => method,
            None => Box::new(Mile::new(LOCAL_STEPS, Mile::paper_xi(LOCAL_STEPS))?),
        };
        method.check(&network)?;
        let start = match start {
            Some(start) => start,
            None => match problem.initial(seed).map_err(SimulationError::Start)? {
                Some(start) => start,
                None => block::try_zeros(1, problem.dim()).map(|mut one| one.swap_remove(0)).ok_or(
                    HostError::TooLarge { agents: problem.agents(), dim: problem.dim(), vectors: 1 },
                )?,
            },
        };
        let mut agents = Simulator::new(problem, &network, &*method, &start, seed)?;
        let progress = *Run::start(&*method, schedule.clone(), &mut agents)?.progress();
        Ok(Simulation { method, schedule, progress, agents })
    }
}

fn build_network(
    graph: GraphChoice,
    mixing: MixingChoice,
    agents: usize,
    seed: u64,
    drop_rate: f64,
) -> Result<Network, NetworkError> {
    let graph = match graph {
        GraphChoice::Network(network) => return Ok(network),
        GraphChoice::Graph(graph) => graph,
        GraphChoice::Topology(topology) => topology.build(agents, seed)?,
    };
    let network = match mixing {
        MixingChoice::Rule(rule) => Network::new(graph, rule)?,
        MixingChoice::Matrix(matrix) => Network::with_matrix(graph, matrix)?,
    };
    network.with_drop_rate(drop_rate)
}

impl<'a, T: Real> Simulation<'a, T> {
    /// Starts building a simulation of this problem.
    pub fn builder(problem: &'a dyn Problem<T>) -> SimulationBuilder<'a, T> {
        SimulationBuilder {
            problem,
            graph: GraphChoice::Topology(Topology::Ring),
            mixing: MixingChoice::Rule(Rule::Metropolis),
            drop_rate: 0.0,
            method: None,
            schedule: None,
            start: None,
            seed: 0,
        }
    }

    /// Runs this many communication rounds, each ending with an exchange.
    pub fn run(&mut self, rounds: u64) -> Result<(), AgentsError> {
        let mut run = Run::resume(&*self.method, self.schedule.clone(), self.progress);
        for _ in 0..rounds {
            run.round(&mut self.agents)?;
            self.progress = *run.progress();
        }
        Ok(())
    }

    /// One update; true if the agents communicated in it.
    pub fn step(&mut self) -> Result<bool, AgentsError> {
        let mut run = Run::resume(&*self.method, self.schedule.clone(), self.progress);
        let exchanged = run.step(&mut self.agents)?;
        self.progress = *run.progress();
        Ok(exchanged)
    }

    /// Steps and rounds done, and what they cost.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What the run has cost so far.
    pub fn costs(&self) -> &Costs {
        &self.progress.costs
    }

    /// The network.
    pub fn network(&self) -> &Network {
        self.agents.network()
    }

    /// The model of one agent.
    pub fn model(&self, agent: usize) -> &[T] {
        self.agents.model(agent)
    }

    /// The models of all agents, row after row.
    pub fn models(&self) -> &[T] {
        self.agents.models()
    }

    /// The state vector of the method called `name`, one row per agent; none if the method has no such vector.
    pub fn vector(&self, name: &str) -> Option<&[T]> {
        let place = self.method.layout().state.iter().position(|(known, _)| *known == name)?;
        Some(self.agents.vector(Vector(place)))
    }

    /// The average of the agents' models. No single agent has it.
    pub fn average(&self) -> Vec<T> {
        block::mean_row(self.models(), self.models().len() / self.network().agents().max(1))
    }

    /// `(1/N) sum_i |average - x_i|^2`.
    pub fn consensus_error(&self) -> f64 {
        block::consensus_error(self.models(), self.models().len() / self.network().agents().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::{D2, Scaffold};
    use crate::mixing::MixingError;
    use crate::problems::Quadratic;

    fn quadratic(agents: usize) -> Quadratic<f64> {
        Quadratic::new(agents, 3, 10.0, 1.0, 0).unwrap()
    }

    fn refusal(builder: SimulationBuilder<f64>) -> SimulationError {
        builder.build().err().expect("a refusal")
    }

    #[test]
    fn mismatched_parts_are_refused() {
        let problem = quadratic(4);
        let new = || Simulation::builder(&problem).step_size(0.1);
        use NetworkError::Mixing;
        use SimulationError::{Host, Network, NoStepSize, Schedule};
        assert!(matches!(refusal(Simulation::builder(&problem)), NoStepSize));
        assert!(matches!(refusal(new().step_size(-1.0)), Schedule(_)));
        let ring = |agents| Topology::Ring.build(agents, 0).unwrap();
        let matrix = |agents| Rule::Metropolis.matrix(&ring(agents)).unwrap();
        let refused = refusal(new().matrix(matrix(5)));
        assert!(matches!(refused, Network(Mixing(MixingError::Size { got: 5, agents: 4, .. }))), "{refused}");
        let refused = refusal(new().topology(Topology::Path).matrix(matrix(4)));
        assert!(matches!(refused, Network(Mixing(MixingError::OffGraph { .. }))), "{refused}");
        let refused = refusal(new().graph(ring(6)));
        assert!(matches!(refused, Host(HostError::Agents { problem: 4, network: 6 })), "{refused}");
        let refused = refusal(new().start([0.0; 5]));
        assert!(matches!(refused, Host(HostError::Start { got: 5, dim: 3, .. })), "{refused}");
        assert!(matches!(refusal(new().drop_rate(1.0)), Network(NetworkError::DropRate(1.0))));
        let parameter = |builder| match refusal(builder) {
            SimulationError::Method(refused) => refused.parameter,
            other => panic!("{other}"),
        };
        assert_eq!(parameter(new().method(Scaffold::new(5, 1.0).unwrap())), "network");
        assert_eq!(parameter(new().topology(Topology::Hypercube).method(D2)), "mixing");
    }

    /// A problem of any size, without data.
    struct Huge {
        agents: usize,
        dim: usize,
    }

    impl Problem<f64> for Huge {
        fn agents(&self) -> usize {
            self.agents
        }
        fn dim(&self) -> usize {
            self.dim
        }
        fn loss(&self, _: usize, _: &[f64]) -> Result<f64, Failure> {
            Ok(0.0)
        }
        fn gradient(&self, _: usize, _: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
            gradient.fill(0.0);
            Ok(())
        }
    }

    #[test]
    fn sizes_whose_product_overflows_are_a_clean_error() {
        for (agents, dim) in [(2, 1usize << 63), (1 << 10, 1 << 54), (3, usize::MAX / 2), (2, 1 << 60)] {
            let huge = Huge { agents, dim };
            let refused = refusal(Simulation::builder(&huge).step_size(0.1));
            assert!(matches!(refused, SimulationError::Host(HostError::TooLarge { .. })), "{refused}");
            let network = Network::new(Topology::Path.build(agents, 0).unwrap(), Rule::Metropolis).unwrap();
            let method = Mile::new(2, 0.3).unwrap();
            // Two agents with 2^63 numbers each: the product is 0 where it wraps.
            let error = Simulator::new(&huge, &network, &method, &[], 0).err().expect("a refusal");
            assert!(matches!(error, HostError::TooLarge { .. } | HostError::Start { .. }), "{error}");
        }
    }

    #[test]
    fn an_objective_that_fails_ends_the_run_with_its_own_message() {
        struct Fails(std::sync::atomic::AtomicUsize);
        impl Problem<f64> for Fails {
            fn agents(&self) -> usize {
                3
            }
            fn dim(&self) -> usize {
                1
            }
            fn loss(&self, _: usize, _: &[f64]) -> Result<f64, Failure> {
                Ok(0.0)
            }
            fn gradient(&self, agent: usize, _: &[f64], g: &mut [f64]) -> Result<(), Failure> {
                let calls = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if calls > 100 && agent == 1 {
                    return Err("the device is lost".into());
                }
                g.fill(1.0);
                Ok(())
            }
        }
        let problem = Fails(Default::default());
        let mut simulation = Simulation::builder(&problem).step_size(0.1).build().unwrap();
        let error = simulation.run(100).unwrap_err();
        let AgentsError::Objective { agent: 1, source } = error else { panic!("{error}") };
        assert_eq!(source.to_string(), "the device is lost");
        let round = simulation.progress().round;
        assert!(round > 0);
        // The vectors are half updated: going on would converge to a wrong point.
        let again = simulation.run(1).unwrap_err();
        assert!(matches!(again, AgentsError::Unusable), "{again}");
        assert_eq!(simulation.progress().round, round);
    }

    #[test]
    fn a_simulation_is_a_run_on_a_simulator() {
        let problem = quadratic(5);
        let mut simulation = Simulation::builder(&problem).step_size(0.2).seed(3).build().unwrap();
        simulation.run(7).unwrap();
        assert!(!simulation.step().unwrap());
        let network = Network::new(Topology::Ring.build(5, 3).unwrap(), Rule::Metropolis).unwrap();
        let method = Mile::new(10, Mile::paper_xi(10)).unwrap();
        let mut agents = Simulator::new(&problem, &network, &method, &[0.0; 3], 3).unwrap();
        let mut run = Run::start(&method, Schedule::constant(0.2), &mut agents).unwrap();
        (0..7).for_each(|_| run.round(&mut agents).unwrap());
        run.step(&mut agents).unwrap();
        assert_eq!(simulation.models(), agents.models());
        assert_eq!(simulation.vector("c").unwrap(), agents.vector(Vector(1)));
        assert_eq!((simulation.progress(), simulation.vector("u")), (run.progress(), None));
    }
}
