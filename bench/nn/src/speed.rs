//! Time of an agent-gradient while every thread computes those of its own agent.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

use mile::problems::{Draw, Problem};
use mile_nn::data::{Dataset, Images, Shape};
use mile_nn::model::{Layer, ModelSpec, Preset};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec};
use mile_nn::{Batch, ImageProblem, Isa};
use serde_json::{Value, json};

use crate::peak;

/// The shapes of images.
pub const MNIST: Shape = Shape { height: 28, width: 28, channels: 1 };
pub const CIFAR: Shape = Shape { height: 32, width: 32, channels: 3 };

/// The paper's two networks, and two of the other kinds of layers, with the shape of their images.
pub fn networks() -> [(&'static str, ModelSpec, Shape); 4] {
    [
        ("mnist-cnn", ModelSpec::Preset(Preset::MnistCnn), MNIST),
        ("cifar-cnn", ModelSpec::Preset(Preset::CifarCnn), CIFAR),
        ("strided-cnn", ModelSpec::Layers(strided()), MNIST),
        ("residual-cnn", ModelSpec::Layers(residual()), CIFAR),
    ]
}

fn conv(out: usize, kernel: usize, stride: usize) -> Layer {
    Layer::Conv { out, kernel, padding: kernel / 2, stride }
}

/// Convolutions with stride 2 in place of pooling, and layer normalisation.
fn strided() -> Vec<Layer> {
    let part = |out| [conv(out, 5, 2), Layer::LayerNorm {}, Layer::Relu {}];
    [&part(16)[..], &part(32), &[Layer::Dense { out: 10 }]].concat()
}

/// A small residual network: group normalisation, overlapping max-pooling, a stride, average pooling over the rest.
fn residual() -> Vec<Layer> {
    let norm = || Layer::GroupNorm { groups: 8 };
    let stage = |out, stride| {
        let inner = vec![conv(out, 3, 1), norm(), Layer::Relu {}, conv(out, 3, 1), norm()];
        let begin = [conv(out, 3, stride), norm(), Layer::Relu {}];
        let pool = Layer::MaxPool { size: 3, stride: Some(2) };
        let rest = [Layer::Residual { layers: inner }, Layer::Relu {}];
        let pool = (stride == 1).then_some(pool);
        begin.into_iter().chain(pool).chain(rest)
    };
    let end = [Layer::AveragePool { size: 8, stride: None }, Layer::Dense { out: 10 }];
    stage(32, 1).chain(stage(64, 2)).chain(end).collect()
}

/// About how long a window is.
const WINDOW_S: f64 = 0.1;

/// Meaningless images.
pub fn noise(shape: Shape, count: usize) -> Images {
    let byte = |i: usize| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8;
    Images::new((0..count * shape.len()).map(byte).collect(), (0..count).map(|i| byte(i) % 10).collect())
}

/// Runs `work(thread, repetition)` `repetitions` times on each thread, in `windows` windows that begin
/// together; returns the seconds of each window, from the first start to the last end.
fn windows(threads: usize, windows: usize, repetitions: usize, work: impl Fn(usize, u64) + Sync) -> Vec<f64> {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        let mut times = Vec::with_capacity(windows);
        for window in 0..windows {
            barrier.wait();
            let start = Instant::now();
            (0..repetitions).for_each(|i| work(thread, (window * repetitions + i) as u64));
            times.push((start, Instant::now()));
        }
        times
    };
    let spans: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread of the benchmark")).collect()
    });
    let span = |window: usize| {
        let first = spans.iter().map(|times| times[window].0).min();
        let last = spans.iter().map(|times| times[window].1).max();
        last.zip(first).map_or(f64::NAN, |(last, first)| (last - first).as_secs_f64())
    };
    (0..windows).map(span).collect()
}

/// FMA peak and gradients, as JSON: `ms` are milliseconds of wall time for each agent-gradient of the machine,
/// one number per window. `names` are those of the networks, separated by commas.
pub fn measure(threads: usize, count: usize, names: &str) -> Value {
    let peaks = Mutex::new(Vec::new());
    windows(threads, 2 * count, 1, |_, _| peaks.lock().expect("no thread has panicked").push(peak::gflops()));
    let mut results = Vec::new();
    let chosen = |name: &str| names.split(',').any(|other| other == name);
    for (name, model, shape) in networks().into_iter().filter(|network| chosen(network.0)) {
        for batch in [32, 128] {
            let problem = problem(model.clone(), shape, batch, threads);
            let x = problem.initial(0).ok().flatten().expect("networks have a start");
            let gradients: Vec<_> = (0..threads).map(|_| Mutex::new(vec![0.0f32; problem.dim()])).collect();
            let work = |agent: usize, step: u64| {
                let mut gradient = gradients[agent].lock().expect("each thread has its own");
                problem
                    .sample_gradient(agent, &x, Draw { seed: 0, step }, &mut gradient)
                    .expect("a gradient");
            };
            let one = windows(threads, 3, 1, work).into_iter().fold(f64::INFINITY, f64::min);
            let repetitions = (WINDOW_S / one).ceil() as usize;
            let times = windows(threads, count, repetitions, work);
            let ms: Vec<f64> = times.iter().map(|t| t * 1e3 / (repetitions * threads) as f64).collect();
            let mflop = problem.model().flops() as f64 * batch as f64 / 1e6;
            results.push(json!({ "network": name, "batch": batch, "ms": ms, "mflop": mflop }));
        }
    }
    let peaks = peaks.into_inner().expect("no thread has panicked");
    json!({ "isa": format!("{:?}", Isa::best()), "threads": threads, "peak_gflops": peaks, "gradients": results })
}

fn problem(model: ModelSpec, shape: Shape, batch: usize, agents: usize) -> ImageProblem<f32> {
    let data =
        Dataset::try_new("noise", shape, 10, noise(shape, 2000), noise(shape, 10)).expect("noise fits");
    let config = ImageSpec {
        model,
        partition: Partition::Iid {},
        agents,
        seed: 0,
        batch: Batch::Size(batch),
        evaluation: Evaluation::All,
        test_samples: None,
    };
    ImageProblem::try_new(Arc::new(data), &config).expect("the network fits")
}
