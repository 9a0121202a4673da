//! Every method on the device and in the simulator: the same bits when gradients come from the CPU.

use mile::agents::Vector;
use mile::compression::Compression;
use mile::engine::Engine;
use mile::methods::catalogue::{self, Entry, Parameters};
use mile::methods::{CorrectionAt, LocalSteps, Optimizer, OuterMomentum, Variant};
use mile::network::Network;
use mile::optimiser::Adam;
use mile::outages::{Bursts, Outages};
use mile::problems::{Batch, Loss, Problem, Quadratic, Shard, Table, TableObjective};
use mile::real::Real;
use mile::robust::Robust;
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile::simulator::Simulator;
use mile::varying::TimeVarying;
use mile::varying::finite::base_k;
use mile_cuda::GpuAgents;

use crate::common::*;

/// Logistic regression with random rows, a different number at each agent.
pub fn table<T: Real>(agents: usize, columns: usize, loss: Loss, l1: f64, batch: Batch) -> Table<T> {
    let shard = |agent: usize| {
        let rows = 5 + 3 * (agent % 4);
        let targets = match loss {
            Loss::Softmax { classes } => {
                (0..rows).map(|r| T::of(((r * 7 + agent) % classes) as f64)).collect()
            }
            Loss::Poisson => (0..rows).map(|r| T::of(((r + agent) % 4) as f64)).collect(),
            _ => random::<T>(rows, 100 + agent as u64).into_iter().map(T::signum).collect(),
        };
        Shard { features: random(rows * columns, agent as u64), targets, ..Shard::default() }
    };
    let objective = TableObjective { l1, intercept: true, ..TableObjective::new(loss, 0.05) };
    Table::new(columns, (0..agents).map(shard).collect(), objective, batch).unwrap()
}

/// All state vectors after each round, in the simulator and on each device.
fn compare<T: Real>(problem: &dyn Problem<T>, name: &str, parameters: &Parameters, drop_rate: f64) {
    compare_on(
        network_for(name, problem.agents()).with_drop_rate(drop_rate).unwrap(),
        problem,
        name,
        parameters,
    );
}

fn compare_on<T: Real>(network: Network, problem: &dyn Problem<T>, name: &str, parameters: &Parameters) {
    let method = build(name, parameters, &network);
    let start = random::<T>(problem.dim(), 50);
    let schedule = || Schedule::constant(0.05);
    for device in devices() {
        let mut expected = Simulator::new(problem, &network, &*method, &start, SEED).unwrap();
        let mut agents = GpuAgents::new(device, problem, &network, &*method, &start, SEED).unwrap();
        assert!(!agents.computes_gradients());
        let mut expected_run = Run::start(&*method, schedule(), &mut expected).unwrap();
        let mut run = Run::start(&*method, schedule(), &mut agents).unwrap();
        for round in 0..5 {
            if round == 3 {
                expected.watch();
                agents.watch();
            }
            expected_run.round(&mut expected).unwrap();
            run.round(&mut agents).unwrap();
            assert_eq!(run.progress(), expected_run.progress(), "{name}");
            for k in 0..method.layout().state.len() {
                let found = agents.vector(Vector(k)).unwrap().into_owned();
                assert_eq!(found, expected.vector(Vector(k)), "{name}: vector {k} in round {round}");
            }
        }
        assert_eq!(
            agents.mean(ALONE, Vector(0)).unwrap(),
            Engine::mean(&mut expected, ALONE, Vector(0)).unwrap()
        );
        let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * b, "{name}: {a} {b}");
        near(agents.norm_sq(ALONE, Vector(0)).unwrap(), expected.norm_sq(ALONE, Vector(0)).unwrap());
        near(
            agents.consensus_error(ALONE, Vector(0)).unwrap(),
            expected.consensus_error(ALONE, Vector(0)).unwrap(),
        );
        near(agents.drift().unwrap(), expected.drift().unwrap());
    }
}

#[test]
fn every_method_has_the_bits_of_the_simulator() {
    for entry in catalogue::ALL {
        let parameters =
            Parameters { local_steps: entry.has_local_steps().then_some(3), ..Parameters::default() };
        let problem = table::<f64>(6, 5, Loss::NonconvexLogistic, 0.0, Batch::Full);
        compare(&Unknown(&problem), &entry.name, &parameters, 0.0);
        if entry.takes_own_steps() {
            compare(&Unknown(&problem), &entry.name, &parameters.with_own_steps([2, 1, 1, 3, 3, 1]), 0.0);
        }
    }
}

/// Methods with their parameters besides local steps. As every vector has the same bits after every round, what the literal
/// forms and the contract establish for the simulator holds on the device.
#[test]
fn every_parameter_of_the_methods_has_the_bits_of_the_simulator() {
    let tau = || Parameters { local_steps: Some(3), ..Parameters::default() };
    let heavy = |nesterov| Parameters { momentum: Some(0.8), nesterov: Some(nesterov), ..tau() };
    let outer_momentum = OuterMomentum { momentum: 0.5, step_size: 0.7 };
    let outer = |parameters| Parameters { outer: Some(outer_momentum), ..parameters };
    let growing = Weight::Geometric { from: 0.001, to: 0.1, rounds: 3 };
    let rows = [
        ("mile", Parameters { xi: Some(0.2.into()), ..tau() }),
        ("mile", Parameters { gamma: Some(0.8), xi: Some(growing), ..tau() }),
        ("mile", Parameters { gamma: Some(1.0), xi: Some(0.02.into()), ..heavy(true) }),
        ("mile", heavy(false)),
        ("mile", Parameters { xi: Some(Weight::Adaptive(0.1)), ..tau() }),
        ("mile", Parameters { xi: Some(Weight::Adaptive(0.02)), ..heavy(false) }),
        ("mile", Parameters { compression: Some(Compression::EightBit), ..tau() }),
        ("mile", Parameters { compression: Some(Compression::Bf16), ..tau() }),
        ("local-dsgd", Parameters { compression: Some(Compression::TopK(0.3)), ..heavy(false) }),
        ("mile", Parameters { gamma: Some(0.8), xi: Some(0.02.into()), ..outer(heavy(false)) }),
        ("local-dsgd", Parameters { compression: Some(Compression::EightBit), ..outer(tau()) }),
        ("k-gt", outer(tau())),
        ("led", outer(heavy(true))),
        ("led", heavy(true)),
        ("k-gt", tau().with("eta_s", 0.5)),
        ("k-gt", heavy(false)),
        ("gta-1", tau().with("communications", 2)),
        ("gta-2", tau().with("communications", 2)),
        ("gta-3", tau().with("communications", 3)),
        ("mg-skip", tau().with("gossip", 20)),
        ("local-dsgd", heavy(true)),
        ("dsgd", Parameters::default().with("variant", Variant::Cta)),
        ("qg-dsgdm", Parameters { momentum: Some(0.9), nesterov: Some(true), ..Parameters::default() }),
        ("motef", Parameters { compression: Some(Compression::EightBit), ..Parameters::default() }),
        ("mile", Parameters { robust: Some(Robust::Threshold(0.3)), ..tau() }),
        ("local-dsgd", Parameters { robust: Some(Robust::Threshold(0.3)), ..heavy(true) }),
        ("gasloc", Parameters { gamma: Some(0.8), ..outer(heavy(true)) }),
        ("noloco", outer(heavy(false))),
        ("diloco", outer(heavy(true))),
    ];
    for (name, parameters) in rows {
        let problem = table::<f64>(6, 5, Loss::NonconvexLogistic, 0.0, Batch::Full);
        compare(&Unknown(&problem), name, &parameters, 0.0);
    }
}

/// AdamW and AMSGrad inside and outside of the correction, with clipped gradients, for rows that fill a block of the device and rows that do not.
#[test]
fn local_optimisers_have_the_bits_of_the_simulator() {
    let steps = |amsgrad, correction| LocalSteps {
        optimizer: Some(Optimizer::Adam(Adam { decay: 0.1, amsgrad, ..Adam::default() })),
        correction: Some(correction),
        clip: Some(0.4),
        share_moments: Some(2),
    };
    let (inside, outside) = (CorrectionAt::Gradient { scale: 0.5 }, CorrectionAt::Step);
    for dim in [1, 7, 300, 20_001] {
        let problem = Quadratic::<f32>::new(4, dim, 10.0, 1.0, 0).unwrap();
        for (name, amsgrad, at) in [
            ("mile", false, outside),
            ("mile", true, inside),
            ("k-gt", false, outside),
            ("local-dsgd", true, inside),
        ] {
            let local = steps(amsgrad, at);
            let parameters = Parameters { local_steps: Some(2), local, ..Parameters::default() };
            compare(&Unknown(&problem), name, &parameters.clone().with_own_steps([2, 1, 1, 2]), 0.3);
            compare(&Unknown(&problem), name, &parameters, 0.3);
        }
    }
    let problem = table::<f64>(6, 5, Loss::NonconvexLogistic, 0.0, Batch::Full);
    let parameters = Parameters { local: steps(true, outside), ..Parameters::default() };
    compare(&Unknown(&problem), "led", &parameters, 0.0);
}

/// Rows that are longer than a sketch, and rows that just fit one.
#[test]
fn adaptive_weights_have_the_bits_of_the_simulator_whatever_the_length_of_rows() {
    let parameters =
        Parameters { local_steps: Some(2), xi: Some(Weight::Adaptive(0.2)), ..Parameters::default() };
    for dim in [1, 2, 256, 257, 258, 1_001] {
        let problem = Quadratic::<f32>::new(4, dim, 10.0, 1.0, 0).unwrap();
        compare(&Unknown(&problem), "mile", &parameters, 0.3);
    }
}

#[test]
fn on_a_time_varying_graph() {
    let problem = table::<f64>(7, 6, Loss::Logistic, 0.0, Batch::Size(3));
    let network = network_for("mile", 7);
    for varying in [TimeVarying::RandomMatching, TimeVarying::matchings(network.graph())] {
        let network = network.clone().with_time_varying(varying).unwrap();
        compare_on(network, &Unknown(&problem), "mile", &Parameters::default());
    }
    let finite_time = Network::in_turn(base_k(7, 1)).unwrap();
    compare_on(finite_time, &Unknown(&problem), "mile", &Parameters::default());
}

#[test]
fn with_bursts_of_loss_and_agents_that_are_away() {
    let problem = table::<f64>(7, 6, Loss::Logistic, 0.0, Batch::Size(3));
    let bursts = Bursts::new(Outages::new(0.2, 0.4).unwrap(), 0.8).unwrap();
    for name in ["mile", "k-gt"] {
        let network = network_for(name, 7).with_drop_rate(0.1).unwrap().with_bursts(bursts);
        let network = network.with_absence(Outages::new(0.1, 0.5).unwrap());
        compare_on(network, &Unknown(&problem), name, &Parameters::default());
    }
}

#[test]
fn with_dropped_edges_and_mini_batches_in_single_precision_too() {
    for name in ["mile", "gradient-tracking", "mg-skip", "local-dsgd"] {
        let problem = table::<f32>(7, 6, Loss::Logistic, 0.0, Batch::Size(3));
        compare(&Unknown(&problem), name, &Parameters::default(), 0.3);
    }
}

#[test]
fn with_a_penalty() {
    for name in catalogue::WITH_PENALTY {
        let problem = table::<f64>(5, 4, Loss::LeastSquares, 0.2, Batch::Full);
        let parameters = Parameters { penalty: true, ..Parameters::default() };
        compare(&Unknown(&problem), name, &parameters, 0.0);
    }
}

/// The trajectories of methods whose gradients are computed on the device, within rounding of the CPU's.
#[test]
fn every_method_agrees_with_the_simulator_with_gradients_of_the_device() {
    let quadratic = Quadratic::<f64>::new(6, 9, 10.0, 1.0, 0).unwrap();
    let logistic = table::<f64>(6, 5, Loss::NonconvexLogistic, 0.0, Batch::Epoch(4));
    let problems: [&dyn Problem<f64>; 2] = [&quadratic, &logistic];
    let device = any_device();
    let both = |entry: &'static Entry| [false, true].map(|paced| (entry, paced && entry.takes_own_steps()));
    for (problem, (entry, paced)) in
        problems.into_iter().flat_map(|p| catalogue::ALL.iter().flat_map(both).map(move |e| (p, e)))
    {
        let network = network_for(&entry.name, 6);
        let parameters = Parameters::default();
        let parameters = if paced { parameters.with_own_steps([2, 5, 5, 1, 3, 5]) } else { parameters };
        let method = build(&entry.name, &parameters, &network);
        let start = random::<f64>(problem.dim(), 51);
        let mut expected = Simulator::new(problem, &network, &*method, &start, SEED).unwrap();
        let mut agents = GpuAgents::new(device.clone(), problem, &network, &*method, &start, SEED).unwrap();
        assert!(agents.computes_gradients());
        let mut expected_run = Run::start(&*method, Schedule::constant(0.05), &mut expected).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(0.05), &mut agents).unwrap();
        for _ in 0..8 {
            expected_run.round(&mut expected).unwrap();
            run.round(&mut agents).unwrap();
        }
        let found = agents.vector(Vector(0)).unwrap().into_owned();
        let apart = distance(&found, expected.models());
        assert!(apart < 1e-12, "{}: {apart:e}", entry.name);
    }
}

#[test]
fn a_state_moves_between_the_cpu_and_the_device() {
    let problem = table::<f32>(5, 7, Loss::Logistic, 0.0, Batch::Size(2));
    let (problem, network) = (Unknown(&problem), ring(5));
    let method = build("mile", &Parameters::default(), &network);
    let start = random::<f32>(7, 52);
    for device in devices() {
        let mut there = GpuAgents::new(device, &problem, &network, &*method, &start, SEED).unwrap();
        let mut here = Simulator::new(&problem, &network, &*method, &start, SEED).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(0.1), &mut there).unwrap();
        (0..3).for_each(|_| run.round(&mut there).unwrap());
        let states = method.layout().state.len();
        for k in 0..states {
            let state = there.vector(Vector(k)).unwrap().into_owned();
            Engine::set_vector(&mut here, Vector(k), &state).unwrap();
        }
        let mut on_cpu = Run::resume(&*method, Schedule::constant(0.1), *run.progress());
        (0..3).for_each(|_| on_cpu.round(&mut here).unwrap());
        (0..3).for_each(|_| run.round(&mut there).unwrap());
        for k in 0..states {
            assert_eq!(there.vector(Vector(k)).unwrap(), here.vector(Vector(k)));
        }
    }
}
