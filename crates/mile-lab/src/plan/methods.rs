//! The methods of a plan: their weights as numbers, and what is refused.

use std::cell::Cell;

use mile::agents::{AgentsError, Costs};
use mile::membership::{Epoch, Membership};
use mile::method::Method;
use mile::methods::Optimizer;
use mile::methods::catalogue::{Entry, Parameters};
use mile::network::Network;
use mile::problems::{Failure, NamedTensors, Problem, TensorPart, matrices};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile_theory::weights::WeightChoice;

use super::{PlannedMethod, pairs};
use crate::auto;
use crate::error::LabError;
use crate::identity;
use crate::refused::invalid;
use crate::spec::{AlgorithmSpec, Spec};

/// What a plan has chosen for an algorithm, in place of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choices {
    /// The step size.
    pub step_size: bool,
    /// xi and gamma, from the problem and the network.
    pub weights: bool,
    /// The largest adaptive xi, from the network.
    pub adaptive: bool,
}

impl Choices {
    /// What has to be chosen.
    pub(super) fn of(algorithm: &AlgorithmSpec) -> Self {
        Self {
            step_size: algorithm.auto_step_size,
            weights: algorithm.has_auto(),
            adaptive: algorithm.is_adaptive(),
        }
    }
}

/// The first algorithm with a value `"auto"`, and its key.
pub(crate) fn first_auto(algorithms: &[AlgorithmSpec]) -> Option<(usize, &'static str)> {
    let k = algorithms.iter().position(|algorithm| algorithm.auto_step_size || algorithm.has_auto())?;
    let key = match &algorithms[k] {
        algorithm if algorithm.auto_step_size => "step_size",
        algorithm if algorithm.xi == Some(WeightChoice::Auto) => "xi",
        _ => "gamma",
    };
    Some((k, key))
}

/// The method of an algorithm; weights that are to be chosen become numbers in the experiment, for objectives of this smoothness. A step
/// size that was chosen for other weights is lowered if these need it.
pub(super) fn plan_algorithm(
    index: usize,
    spec: &mut Spec,
    epoch: &Epoch,
    chosen: Choices,
    smoothness: Option<f64>,
) -> Result<PlannedMethod, LabError> {
    let network = &epoch.network;
    let algorithm = &spec.algorithms[index];
    let mut parameters = algorithm.parameters.clone();
    let tau = parameters.local_steps.unwrap_or(1);
    parameters.xi = algorithm.xi.and_then(|weight| weight.weight(tau));
    parameters.gamma = algorithm.gamma.and_then(|weight| weight.number(tau));
    if algorithm.parameters.pairs {
        pairs::choose_weights(index, algorithm, &mut parameters)?;
    } else if algorithm.parameters.is_preconditioned() {
        auto::choose_preconditioned(index, algorithm, network, &mut parameters)?;
    } else if algorithm.has_auto() {
        auto::choose(index, algorithm, spec, network, smoothness, &mut parameters)?;
        auto::allow_for_outer_momentum(index, algorithm, network, &mut parameters)?;
    }
    if algorithm.is_adaptive() {
        auto::choose_adaptive(index, algorithm, spec, network, &mut parameters)?;
    }
    if parameters.compression.is_some() {
        parameters.weights_of_compression(algorithm.entry.takes("xi"));
    }
    let facts = identity::of_factory("algorithm", algorithm)?;
    let method = build_in(index, &algorithm.entry, &parameters, epoch, 0)?;
    let layout = method.layout();
    let depends = chosen.step_size && chosen.weights && !parameters.is_preconditioned();
    if let (true, Some(smoothness)) = (depends, smoothness) {
        let most = auto::step_size(index, spec, &parameters, network, smoothness)?;
        let step_size = &mut spec.algorithms[index].schedule.step_size;
        *step_size = step_size.min(most);
    }
    spec.algorithms[index].settle_weights(&parameters);
    Ok(PlannedMethod {
        parameters,
        chosen,
        vectors_stored: layout.state.len(),
        vectors: layout.vectors(),
        first_round: first_round_costs(&*method, network)?,
        facts,
    })
}

/// Refuses an optimiser that steps along matrices where the problem has none.
pub(super) fn check_matrices(spec: &Spec, tensors: &[TensorPart]) -> Result<(), LabError> {
    for (k, algorithm) in spec.algorithms.iter().enumerate() {
        if let Some(Optimizer::Muon(muon)) = &algorithm.parameters.local.optimizer
            && matrices(tensors, muon).is_empty()
        {
            let expected = "an optimizer that needs no matrices, because the variable of this problem has none (or all are excluded); use \"adamw\"";
            return Err(LabError::expected(format!("algorithm[{k}].optimizer"), expected, "muon"));
        }
    }
    Ok(())
}

/// Checks that the methods can run on the networks that events lead to.
pub(super) fn check_later_networks(
    spec: &Spec,
    methods: &[PlannedMethod],
    membership: &Membership,
) -> Result<(), LabError> {
    let compressed = methods.iter().position(|planned| planned.parameters.compression.is_some());
    if let (Some(index), true) = (compressed, membership.epochs().len() > 1) {
        let problem = "conflicts with events, because compressed messages build on those before them on the same network; leave one of the two out";
        return Err(LabError::config(format!("algorithm[{index}].compression"), problem));
    }
    for (event, epoch) in membership.epochs()[1..].iter().enumerate() {
        for (index, (algorithm, planned)) in spec.algorithms.iter().zip(methods).enumerate() {
            let built = build_in(index, &algorithm.entry, &planned.parameters, epoch, 0);
            built.map_err(|error| {
                LabError::config(format!("event[{event}]"), format!("from round {} on: {error}", epoch.round))
            })?;
        }
    }
    Ok(())
}

/// Refuses a list of local steps that does not have one number for each agent.
pub(super) fn check_own_steps(spec: &Spec, numbers: usize) -> Result<(), LabError> {
    for (k, algorithm) in spec.algorithms.iter().enumerate() {
        if let Some(own) = algorithm.parameters.own_steps.as_ref().filter(|own| own.len() != numbers) {
            let expected = format!("a whole number, or a list of {numbers} of them, one for each agent");
            let got = format!("a list of {}", own.len());
            return Err(LabError::expected(format!("algorithm[{k}].local_steps"), expected, got));
        }
    }
    Ok(())
}

/// The method of an algorithm, for the members of an epoch.
pub(super) fn build_in(
    index: usize,
    entry: &Entry,
    parameters: &Parameters,
    epoch: &Epoch,
    seed: u64,
) -> Result<Box<dyn Method>, LabError> {
    let built = entry.build(&parameters.of_members(&epoch.members), &epoch.network, seed);
    built.map_err(|error| invalid(index, entry, error))
}

/// After how many steps without an exchange a method is refused.
const MOST_STEPS: u64 = 10_000_000;

/// The costs of a method's start-up and first round, measured by running it on an empty problem.
pub fn first_round_costs(method: &dyn Method, network: &Network) -> Result<Costs, LabError> {
    struct Empty(usize);
    impl Problem<f32> for Empty {
        fn agents(&self) -> usize {
            self.0
        }
        fn dim(&self) -> usize {
            1
        }
        fn loss(&self, _: usize, _: &[f32]) -> Result<f64, Failure> {
            Ok(0.0)
        }
        fn gradient(&self, _: usize, _: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
            gradient.fill(0.0);
            Ok(())
        }
        fn tensors(&self) -> Option<&dyn NamedTensors<f32>> {
            Some(self)
        }
    }
    impl NamedTensors<f32> for Empty {
        fn parts(&self) -> Vec<TensorPart> {
            vec![TensorPart { name: "x".into(), shape: vec![1, 1], range: 0..1, matrix: Some([1, 1]) }]
        }
    }
    let problem = Empty(network.agents());
    let mut agents = Simulator::new(&problem, network, method, &[0.0], 0)?.without_functions();
    let run = Run::start(method, Schedule::constant(1.0), &mut agents)?;
    let mut run = run.with_pairings(pairs::at_one_speed(method, network)?);
    let steps = Cell::new(0);
    let are_too_many = || steps.replace(steps.get() + 1) == MOST_STEPS;
    match run.round_unless(&mut agents, &are_too_many) {
        Err(AgentsError::Interrupted) => {
            let expected = format!("a method that exchanges vectors within its first {MOST_STEPS} steps");
            Err(LabError::expected("algorithm", expected, "one that does not"))
        }
        ended => Ok(ended.map(|()| run.progress().costs)?),
    }
}
