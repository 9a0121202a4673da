//! Devices, networks and problems.

use std::sync::Arc;

use mile::agents::Vector;
use mile::engine::Engine;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Draw, Failure, Penalty, Problem};
use mile::random::{Purpose, stream};
use mile::ranks::{Alone, Together};
use mile::real::Real;
use mile_cuda::GpuAgents;
use mile_cuda::cuda::Cuda;
use mile_cuda::device::Device;
use mile_cuda::emulated::{Emulated, Order};
use rand::RngExt;

pub const ALONE: Together = Together::of(&Alone);
pub const SEED: u64 = 3;

/// The devices that tests run on: the CPU in both orders of threads, and a GPU if there is one.
///
/// # Panics
/// If there is neither a C++ compiler nor a GPU.
pub fn devices() -> Vec<Arc<dyn Device>> {
    let orders = [Order::Forwards, Order::Backwards];
    let found: Vec<_> = orders.into_iter().filter_map(emulated).chain(gpu()).collect();
    assert!(!found.is_empty(), "no GPU, and CXX=none leaves out the CPU: nothing is left to test");
    found
}

/// One of the devices.
pub fn any_device() -> Arc<dyn Device> {
    devices().pop().expect("at least one")
}

/// The GPU if there is one, otherwise the CPU.
pub fn gpu_or_cpu() -> Arc<dyn Device> {
    gpu().unwrap_or_else(|| devices().swap_remove(0))
}

/// The CPU as a device; none with `CXX=none`.
///
/// # Panics
/// If there is no C++ compiler.
pub fn emulated(order: Order) -> Option<Arc<dyn Device>> {
    let found = Emulated::new(order).map(|device| Arc::new(device) as Arc<dyn Device>);
    let is_unwanted = std::env::var("CXX").is_ok_and(|name| name == "none");
    assert!(
        found.is_some() || is_unwanted,
        "no C++ compiler to run the kernels on the CPU: install one as c++, name it in CXX, or, to test a GPU only, set CXX=none"
    );
    found
}

/// The first GPU, if there is one.
pub fn gpu() -> Option<Arc<dyn Device>> {
    let cache = std::env::temp_dir().join("mile-cuda-tests");
    Cuda::open(0, Some(cache)).ok().map(|gpu| Arc::new(gpu) as Arc<dyn Device>)
}

/// A problem that the engine does not know: its gradients are computed on the CPU.
pub struct Unknown<'p, T>(pub &'p dyn Problem<T>);

impl<T: Real> Problem<T> for Unknown<'_, T> {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        self.0.gradient(agent, x, gradient)
    }

    fn sample_gradient(&self, agent: usize, x: &[T], draw: Draw, gradient: &mut [T]) -> Result<(), Failure> {
        self.0.sample_gradient(agent, x, draw, gradient)
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.0.penalty()
    }
}

pub fn ring(agents: usize) -> Network {
    Network::new(Topology::Ring.build(agents, 1).unwrap(), Rule::LazyMetropolis).unwrap()
}

/// A network on which a method can run.
pub fn network_for(name: &str, agents: usize) -> Network {
    if catalogue::WITH_SERVER.contains(&name) {
        return Network::new(Topology::Complete.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
    }
    ring(agents)
}

pub fn build(name: &str, parameters: &Parameters, network: &Network) -> Box<dyn Method> {
    catalogue::find(name).unwrap().build(parameters, network, SEED).unwrap()
}

/// Numbers between -1 and 1.
pub fn random<T: Real>(count: usize, index: u64) -> Vec<T> {
    let mut random = stream(7, Purpose::Data, index, 0);
    (0..count).map(|_| T::of(random.random_range(-1.0..1.0))).collect()
}

/// `|a - b|/|b|`.
pub fn distance<T: Real>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum = |of: &dyn Fn(usize) -> f64| (0..a.len()).map(|k| of(k).powi(2)).sum::<f64>().sqrt();
    sum(&|k| a[k].wide() - b[k].wide()) / sum(&|k| b[k].wide()).max(f64::MIN_POSITIVE)
}

/// Compares losses, metrics and the gradient of f on the device with those of the CPU, for different models of each agent.
pub fn evaluation<T: Real>(device: Arc<dyn Device>, problem: &dyn Problem<T>, tolerance: f64) {
    let (agents, dim) = (problem.agents(), problem.dim());
    let network = Network::new(Topology::Complete.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
    let method = build("dsgd", &Parameters::default(), &network);
    let start = random::<T>(agents * dim, 61);
    let mut engine = GpuAgents::new(device, problem, &network, &*method, &start, SEED).unwrap();
    let chosen: Vec<usize> = (0..agents).rev().step_by(2).collect();
    let average: Vec<T> = engine.mean(ALONE, Vector(0)).unwrap().into_iter().map(T::of).collect();
    let found = engine.evaluate(ALONE, Vector(0), &chosen).unwrap().unwrap();
    let near = |a: f64, b: f64| assert!((a - b).abs() <= tolerance * b.abs().max(1e-300), "{a} {b}");
    let models = [&average[..]].into_iter().chain(chosen.iter().map(|agent| &start[agent * dim..][..dim]));
    assert_eq!(found.losses.len(), 1 + chosen.len());
    for (k, x) in models.enumerate() {
        near(found.losses[k], problem.objective(x).unwrap());
        if let Some(metrics) = &found.metrics {
            let expected = problem.held_out().unwrap().measure(x).unwrap();
            assert_eq!(metrics[k].len(), expected.len());
            metrics[k].iter().zip(expected).for_each(|(a, b)| near(*a, b));
        }
    }
    let gradient = engine.mean_gradient(ALONE, Vector(0)).unwrap().unwrap();
    let (mut expected, mut own) = (vec![0.0; dim], vec![T::zero(); dim]);
    for agent in 0..agents {
        problem.gradient(agent, &average, &mut own).unwrap();
        expected.iter_mut().zip(&own).for_each(|(sum, g)| *sum += g.wide() / agents as f64);
    }
    let apart = distance(&gradient, &expected);
    assert!(apart <= tolerance, "{apart:e}");
}
