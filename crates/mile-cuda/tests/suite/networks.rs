//! Gradients of networks on the device against those of the CPU.

use std::sync::Arc;

use mile::agents::{Agents, Vector};
use mile::engine::Engine;
use mile::graph::Topology;
use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Draw, Problem};
use mile_cuda::GpuAgents;
use mile_nn::data::{Dataset, Images, Shape, Targets, Values};
use mile_nn::model::{Layer, ModelSpec};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageProblem, ImageSpec, Parts};
use mile_nn::{Batch, KernelScalar};

use crate::common::*;

fn conv(out: usize, kernel: usize, padding: usize, stride: usize) -> Layer {
    Layer::Conv { out, kernel, padding, stride }
}

fn dense(out: usize) -> Layer {
    Layer::Dense { out }
}

const RELU: Layer = Layer::Relu {};
const POOL: Layer = Layer::MaxPool { size: 2, stride: None };

/// Layers of every kind, in shapes that no tile divides.
fn models() -> Vec<(&'static str, Shape, Vec<Layer>)> {
    let shape = |height, width, channels| Shape { height, width, channels };
    vec![
        (
            "convolutions",
            shape(9, 8, 1),
            vec![conv(5, 3, 1, 1), RELU, POOL, conv(12, 3, 1, 1), RELU, POOL, dense(3)],
        ),
        ("strides", shape(8, 9, 3), vec![conv(6, 3, 1, 2), RELU, conv(4, 2, 0, 1), dense(7), RELU, dense(3)]),
        ("wide", shape(6, 6, 4), vec![conv(36, 3, 1, 1), RELU, POOL, conv(20, 3, 1, 1), RELU, dense(3)]),
        (
            "dropout",
            shape(4, 4, 2),
            vec![
                conv(8, 3, 1, 1),
                RELU,
                Layer::Dropout { p: 0.3 },
                dense(20),
                RELU,
                Layer::Dropout { p: 0.25 },
                dense(3),
            ],
        ),
        (
            "pooling",
            shape(9, 9, 2),
            vec![
                conv(4, 3, 1, 1),
                Layer::MaxPool { size: 3, stride: Some(2) },
                RELU,
                conv(6, 3, 1, 1),
                Layer::AveragePool { size: 2, stride: None },
                dense(3),
            ],
        ),
        (
            "norms",
            shape(6, 5, 3),
            vec![
                conv(8, 3, 1, 1),
                Layer::GroupNorm { groups: 2 },
                RELU,
                POOL,
                Layer::Residual { layers: vec![conv(8, 3, 1, 1), RELU, conv(8, 3, 1, 1)] },
                RELU,
                dense(10),
                Layer::LayerNorm {},
                RELU,
                dense(3),
            ],
        ),
        ("vectors", shape(1, 1, 11), vec![dense(9), RELU, dense(3)]),
    ]
}

/// Convolutions that are computed from halves in single precision.
fn halves() -> (&'static str, Shape, Vec<Layer>) {
    let dropout = Layer::Dropout { p: 0.2 };
    let first = [conv(16, 3, 1, 1), RELU, POOL, conv(48, 3, 1, 1), RELU, dropout];
    let last = [conv(16, 5, 2, 1), RELU, POOL, dense(3)];
    let shape = Shape { height: 8, width: 10, channels: 1 };
    ("halves", shape, first.into_iter().chain(last).collect())
}

fn dataset(shape: Shape, samples: usize, numbers: bool) -> Dataset {
    let images = |first: u64| {
        let values = random::<f64>(samples * shape.len(), first);
        if numbers {
            let targets = Targets::Numbers { values: random(samples * 3, first + 1), each: 3 };
            Images { pixels: Values::Doubles(values), targets }
        } else {
            let bytes = values.iter().map(|v| (v * 127.0 + 128.0) as u8).collect();
            Images::new(bytes, (0..samples).map(|k| (k * 7 % 3) as u8).collect())
        }
    };
    Dataset::try_new("random", shape, 3, images(70), images(80)).unwrap()
}

/// Agents with different numbers of samples.
fn problem<T: KernelScalar>(
    shape: Shape,
    layers: &[Layer],
    agents: usize,
    batch: Batch,
    numbers: bool,
) -> ImageProblem<T> {
    let config = ImageSpec {
        model: ModelSpec::Layers(layers.to_vec()),
        partition: Partition::Dirichlet { alpha: 1.0 },
        agents,
        seed: 0,
        batch,
        evaluation: Evaluation::All,
        test_samples: None,
    };
    let train = (0..agents).map(|agent| {
        (0..40).filter(|k| (k * (agent + 3)) % 5 <= agent as u32 as usize).map(|k| k as u32).collect()
    });
    let parts = Parts { train: train.collect(), held_out: None };
    let problem = ImageProblem::with_parts(Arc::new(dataset(shape, 40, numbers)), &config, parts).unwrap();
    // A network of three agents has a weight decay.
    problem.with_weight_decay(if agents == 3 { 0.3 } else { 0.0 }).unwrap()
}

/// A small network with dropout.
pub fn with_dropout(agents: usize) -> ImageProblem<f32> {
    let (_, shape, layers) = models().swap_remove(3);
    problem(shape, &layers, agents, Batch::Size(3), false)
}

/// The same with a weight decay.
pub fn decayed<T: KernelScalar>(agents: usize, batch: Batch) -> ImageProblem<T> {
    let (_, shape, layers) = models().swap_remove(3);
    problem(shape, &layers, agents, batch, false).with_weight_decay(0.3).unwrap()
}

/// The largest distance, over agents, of stochastic gradients from the CPU's, at a different point for each agent.
fn apart<T: KernelScalar>(problem: &ImageProblem<T>, backwards: bool) -> f64 {
    let (agents, dim) = (problem.agents(), problem.dim());
    let network = Network::new(Topology::Complete.build(agents, 1).unwrap(), Rule::Metropolis).unwrap();
    let method = build("dsgd", &Parameters::default(), &network);
    let initial = |agent: usize| problem.initial(agent as u64).unwrap().unwrap();
    let start: Vec<T> = (0..agents).flat_map(initial).collect();
    // On a GPU if there is one.
    let device = if backwards { any_device() } else { gpu_or_cpu() };
    let mut engine = GpuAgents::new(device, problem, &network, &*method, &start, SEED).unwrap();
    assert!(engine.computes_gradients());
    let mut worst = 0.0f64;
    for step in 1..4 {
        engine.gradient(Vector(0), Vector(1), step).unwrap();
        let found = engine.vector(Vector(1)).unwrap().into_owned();
        let mut expected = vec![T::zero(); dim];
        for agent in 0..agents {
            let x = &start[agent * dim..][..dim];
            problem.sample_gradient(agent, x, Draw { seed: SEED, step }, &mut expected).unwrap();
            worst = worst.max(distance(&found[agent * dim..][..dim], &expected));
        }
    }
    worst
}

#[test]
fn every_kind_of_layer_in_double_precision() {
    for (k, (name, shape, layers)) in models().into_iter().enumerate() {
        for batch in [Batch::Size(5), Batch::Full] {
            let problem = problem::<f64>(shape, &layers, 3, batch, k % 2 == 1);
            let apart = apart(&problem, k % 2 == 0);
            assert!(apart < 1e-12, "{name} {batch:?}: {apart:e}");
        }
    }
}

#[test]
fn every_kind_of_layer_in_single_precision() {
    for (k, (name, shape, layers)) in models().into_iter().chain([halves()]).enumerate() {
        let problem = problem::<f32>(shape, &layers, 3, Batch::Epoch(7), k % 2 == 0);
        let apart = apart(&problem, k % 2 == 1);
        assert!(apart < 1e-5, "{name}: {apart:e}");
    }
}

/// Halves have few exponents: numbers far outside their range are scaled. Every layer's part of the gradient is compared by itself, because
/// they differ in size. Biases are zero, so that small products are decisive in relu and pooling.
#[test]
fn numbers_of_any_size_from_halves() {
    let (_, shape, layers) = halves();
    for size in [1e-7f32, 1e3] {
        let problem = problem::<f32>(shape, &layers, 1, Batch::Size(3), true);
        let device = gpu_or_cpu();
        let network = Network::new(Topology::Complete.build(1, 1).unwrap(), Rule::Metropolis).unwrap();
        let method = build("dsgd", &Parameters::default(), &network);
        let mut start: Vec<f32> =
            problem.initial(0).unwrap().unwrap().into_iter().map(|x| x * size).collect();
        let blocks: Vec<_> = problem.model().blocks().iter().filter(|b| b.parameters() > 0).collect();
        for block in &blocks {
            start[block.offset + block.weights()..block.offset + block.parameters()].fill(0.0);
        }
        let mut engine = GpuAgents::new(device, &problem, &network, &*method, &start, SEED).unwrap();
        engine.gradient(Vector(0), Vector(1), 1).unwrap();
        let found = engine.vector(Vector(1)).unwrap().into_owned();
        let mut expected = vec![0.0; problem.dim()];
        problem.sample_gradient(0, &start, Draw { seed: SEED, step: 1 }, &mut expected).unwrap();
        for block in blocks {
            let part = block.offset..block.offset + block.parameters();
            let apart = distance(&found[part.clone()], &expected[part]);
            assert!(apart < 1e-5, "{size:e}, parameters from {}: {apart:e}", block.offset);
        }
    }
}

#[test]
fn one_agent_and_one_sample() {
    let (_, shape, layers) = models().swap_remove(0);
    for agents in [1, 2] {
        let problem = problem::<f32>(shape, &layers, agents, Batch::Size(1), false);
        let apart = apart(&problem, false);
        assert!(apart < 1e-5, "{agents}: {apart:e}");
    }
}

#[test]
fn batches_of_any_size_and_many_agents() {
    let (_, shape, layers) = models().swap_remove(0);
    for (agents, batch) in [(3, 2), (3, 3), (2, 17), (2, 33), (40, 1)] {
        let problem = problem::<f32>(shape, &layers, agents, Batch::Size(batch), false);
        let apart = apart(&problem, batch % 2 == 0);
        assert!(apart < 1e-5, "{agents} agents, batch {batch}: {apart:e}");
    }
    // This many would take the emulation minutes.
    if gpu().is_some() {
        let problem = problem::<f32>(shape, &layers, 1000, Batch::Size(9), false);
        let apart = apart(&problem, false);
        assert!(apart < 1e-5, "1000 agents: {apart:e}");
    }
}

#[test]
fn losses_metrics_and_the_gradient_of_f_are_those_of_the_cpu() {
    let (_, shape, layers) = models().swap_remove(3);
    for (agents, numbers) in [(3, false), (4, true)] {
        let problem = problem::<f64>(shape, &layers, agents, Batch::Size(4), numbers);
        let device = any_device();
        evaluation(device, &problem, 1e-12);
    }
}
