//! Times verbs, gradients with an update, and evaluations on GPU 0, and compares gradients with those of the CPU in double precision.
//! Prints one JSON object for each.

use std::sync::Arc;
use std::time::Instant;

use mile::agents::{Agents, Vector};
use mile::engine::Engine;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Draw, HeldOut, Loss, Problem, Quadratic, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::ranks::{Alone, Together};
use mile::real::Real;
use mile::run::Run;
use mile::schedule::Schedule;
use mile_cuda::cuda::Cuda;
use mile_cuda::device::Device;
use mile_cuda::{GpuAgents, Stack};
use mile_nn::data::{Dataset, Images, Shape};
use mile_nn::model::{ModelSpec, Preset};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageProblem, ImageSpec};
use mile_nn::{Batch, KernelScalar};
use rayon::prelude::*;
use serde_json::json;

type Anything<T> = Result<T, mile::problems::Failure>;

const AGENTS: usize = 10;
const SAMPLES: usize = 20_000;

fn open() -> Anything<Arc<dyn Device>> {
    Ok(Arc::new(Cuda::open(0, Some(std::env::temp_dir().join("bench-gpu-kernels")))?))
}

fn ring(agents: usize) -> Anything<Network> {
    Ok(Network::new(Topology::Ring.build(agents, 0)?, Rule::Metropolis)?)
}

fn method(name: &str, network: &Network) -> Anything<Box<dyn Method>> {
    let entry = catalogue::find(name).ok_or("no such method")?;
    Ok(entry.build(&Parameters::default(), network, 0)?)
}

/// The median of several measurements.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Milliseconds of one call of `work`, of which `each` are queued before the device is waited for.
fn milliseconds(device: &dyn Device, each: usize, mut work: impl FnMut() -> Anything<()>) -> Anything<f64> {
    for _ in 0..3 {
        work()?;
    }
    let mut times = Vec::new();
    for _ in 0..15 {
        device.wait()?;
        let begun = Instant::now();
        for _ in 0..each {
            work()?;
        }
        device.wait()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3 / each as f64);
    }
    Ok(median(times))
}

/// Bandwidth of combinations and exchanges.
fn verbs(dim: usize) -> Anything<()> {
    let (device, network) = (open()?, ring(AGENTS)?);
    let method = method("gradient-tracking", &network)?;
    let problem = Quadratic::<f32>::new(AGENTS, dim, 10.0, 1.0, 0)?;
    let start = vec![0.5f32; dim];
    let mut agents = GpuAgents::new(device.clone(), &problem, &network, &*method, &start, 0)?;
    let bytes = (AGENTS * dim * 4) as f64;
    let (x, y, z) = (Vector(0), Vector(1), Vector(2));
    let cases: [(&str, f64); 4] =
        [("copy", 2.0), ("combine, 1 term", 3.0), ("combine, 2 terms", 4.0), ("pull on a ring", 2.0)];
    for (name, passes) in cases {
        let ms = milliseconds(&*device, 10, || {
            match name {
                "copy" => agents.combine(y, 0.0, &[(1.0, x)])?,
                "combine, 1 term" => agents.combine(y, 1.0, &[(0.5, x)])?,
                "combine, 2 terms" => agents.combine(y, 1.0, &[(0.5, x), (0.25, z)])?,
                _ => drop(agents.pull(0, &[(x, y)])?),
            }
            Ok(agents.settle()?)
        })?;
        println!(
            "{}",
            json!({"what": name, "dim": dim, "agents": AGENTS, "ms": ms, "GB/s": passes * bytes / ms / 1e6})
        );
    }
    Ok(())
}

fn images(preset: Preset, batch: usize) -> Anything<(Arc<Dataset>, ImageSpec)> {
    let (side, channels) = if preset == Preset::MnistCnn { (28, 1) } else { (32, 3) };
    let shape = Shape { height: side, width: side, channels };
    let set = |count: usize, index: u64| {
        let mut random = stream(0, Purpose::Data, index, 0);
        let bytes = (0..count * shape.len()).map(|_| random_byte(&mut random)).collect();
        Images::new(bytes, (0..count).map(|k| (k % 10) as u8).collect())
    };
    let data = Dataset::try_new("random", shape, 10, set(SAMPLES, 0), set(10_000, 1))?;
    let config = ImageSpec {
        model: ModelSpec::Preset(preset),
        partition: Partition::Dirichlet { alpha: 1.0 },
        agents: AGENTS,
        seed: 0,
        batch: Batch::Size(batch),
        evaluation: Evaluation::All,
        test_samples: None,
    };
    Ok((Arc::new(data), config))
}

fn random_byte(random: &mut impl rand::Rng) -> u8 {
    (random.next_u32() >> 24) as u8
}

/// The largest relative distance over agents of a gradient from the one of the CPU in double precision.
fn error<T: KernelScalar>(
    found: &[T],
    exact: &ImageProblem<f64>,
    start: &[f32],
    draw: Draw,
) -> Anything<f64> {
    let dim = exact.dim();
    let of = |agent: usize| -> f64 {
        let x: Vec<f64> = start[agent * dim..][..dim].iter().map(|x| f64::from(*x)).collect();
        let mut g = vec![0.0; dim];
        if exact.sample_gradient(agent, &x, draw, &mut g).is_err() {
            return f64::NAN;
        }
        let found = &found[agent * dim..][..dim];
        let norm = |of: &dyn Fn(usize) -> f64| (0..dim).map(|k| of(k).powi(2)).sum::<f64>().sqrt();
        norm(&|k| found[k].wide() - g[k]) / norm(&|k| g[k])
    };
    Ok((0..AGENTS).into_par_iter().map(of).reduce(|| 0.0, f64::max))
}

/// Gradient and update of all agents, the error of the gradient, and an evaluation.
fn gradients(preset: Preset, name: &str, batch: usize) -> Anything<()> {
    let (device, network) = (open()?, ring(AGENTS)?);
    let (data, config) = images(preset, batch)?;
    let problem = ImageProblem::<f32>::try_new(data.clone(), &config)?;
    let exact = ImageProblem::<f64>::try_new(data, &config)?;
    let method = method("dsgd", &network)?;
    let dim = problem.dim();
    let initial = |agent| problem.initial(agent as u64).map(|x| x.unwrap_or_default());
    let start = (0..AGENTS).map(initial).collect::<Result<Vec<_>, _>>()?.concat();
    let begun = Instant::now();
    let mut agents = GpuAgents::new(device.clone(), &problem, &network, &*method, &start, 0)?;
    device.wait()?;
    let opened = begun.elapsed().as_secs_f64();
    let (x, g) = (Vector(0), Vector(1));
    agents.gradient(x, g, 1)?;
    let found = agents.vector(g)?.into_owned();
    let gpu_error = error(&found, &exact, &start, Draw { seed: 0, step: 1 })?;
    let mut cpu = vec![0.0f32; AGENTS * dim];
    cpu.par_chunks_mut(dim)
        .zip(start.par_chunks(dim))
        .enumerate()
        .try_for_each(|(agent, (g, x))| problem.sample_gradient(agent, x, Draw { seed: 0, step: 1 }, g))?;
    let cpu_error = error(&cpu, &exact, &start, Draw { seed: 0, step: 1 })?;
    agents.gradient(x, g, 1)?;
    let again = agents.vector(g)?.into_owned();
    let mut step = 1;
    let ms = milliseconds(&*device, 50, || {
        step += 1;
        agents.gradient(x, g, step)?;
        agents.combine(x, 1.0, &[(-1e-4, g)])?;
        Ok(agents.settle()?)
    })?;
    let flops = problem.model().flops() as f64 * (AGENTS * batch) as f64;
    let (evaluation, differs, same_accuracy) = evaluation(&mut agents, &problem)?;
    println!(
        "{}",
        json!({
            "what": "gradient and update", "network": name, "batch": batch, "agents": AGENTS, "ms": ms, "TFLOP/s": flops / ms / 1e9,
            "floor_ms_at_67": flops / 67e9, "error": gpu_error, "error_of_cpu_f32": cpu_error, "same_bits_again": found == again,
            "open_s": opened, "evaluation_ms": evaluation, "loss_differs": differs, "accuracy_as_on_cpu": same_accuracy,
        })
    );
    Ok(())
}

/// Milliseconds for losses over the training set and accuracies on the test set of the average model and those of all agents; how much the
/// first loss differs from that of the CPU, and whether the accuracy is the same.
fn evaluation(agents: &mut GpuAgents<'_, f32>, problem: &ImageProblem<f32>) -> Anything<(f64, f64, bool)> {
    let all: Vec<usize> = (0..AGENTS).collect();
    let mut times = Vec::new();
    for _ in 0..7 {
        let begun = Instant::now();
        agents.evaluate(Together::of(&Alone), Vector(0), &all)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let found =
        agents.evaluate(Together::of(&Alone), Vector(0), &all)?.ok_or("not evaluated on the device")?;
    let average: Vec<f32> =
        agents.mean(Together::of(&Alone), Vector(0))?.into_iter().map(|x| x as f32).collect();
    let loss = problem.objective(&average)?;
    let accuracy = problem.measure(&average)?;
    Ok((
        median(times),
        (found.losses[0] - loss).abs() / loss,
        found.metrics.is_some_and(|all| all[0] == accuracy),
    ))
}

/// Rounds of MILE of several jobs that compute together, five local steps each, with different step sizes: milliseconds for a round of
/// all, norms of the models included.
fn together<T: Real>(
    name: &str,
    problem: &(dyn Problem<T> + Sync),
    jobs: usize,
    flops: f64,
    rounds: usize,
) -> Anything<f64> {
    let (device, network) = (open()?, ring(problem.agents())?);
    let stack = Stack::<T>::new(device)?;
    let start: Vec<T> = problem.initial(0)?.unwrap_or_else(|| vec![T::zero(); problem.dim()]);
    let parameters = Parameters { local_steps: Some(5), ..Parameters::default() };
    let entry = catalogue::find("mile").ok_or("no such method")?;
    let ready = std::sync::Barrier::new(jobs);
    let one = |job: usize| -> Anything<f64> {
        let method = entry.build(&parameters, &network, 0)?;
        let mut agents = GpuAgents::within(&stack, problem, &network, &*method, &start, job as u64)?;
        ready.wait();
        let mut run = Run::start(&*method, Schedule::constant(1e-3 * (1 + job) as f64), &mut agents)?;
        let mut times = Vec::new();
        for round in 0..rounds {
            let begun = Instant::now();
            run.round(&mut agents)?;
            agents.norm_sq(Together::of(&Alone), Vector(0))?;
            if round >= 3 {
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(median(times))
    };
    let found: Vec<Anything<f64>> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || one(job))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a job panicked".into())))
            .collect()
    });
    let ms = median(found.into_iter().collect::<Anything<Vec<f64>>>()?);
    let all = flops * 5.0 * jobs as f64;
    println!(
        "{}",
        json!({"what": "round of MILE, five local steps", "problem": name, "jobs": jobs, "ms": ms, "TFLOP/s": all / ms / 1e9, "of_67": all / ms / 67e9})
    );
    Ok(ms)
}

/// One job and twelve, on networks, a table and a quadratic.
fn stacked() -> Anything<()> {
    for jobs in [1, 4, 12] {
        for (preset, name) in [(Preset::MnistCnn, "mnist"), (Preset::CifarCnn, "cifar10")] {
            for batch in [32, 128] {
                let (data, config) = images(preset, batch)?;
                let problem = ImageProblem::<f32>::try_new(data, &config)?;
                let flops = problem.model().flops() as f64 * (AGENTS * batch) as f64;
                together(&format!("{name} batch {batch}"), &problem, jobs, flops, 40)?;
            }
        }
        together("logistic, 10 x 1000 x 50", &table(1000, 50)?, jobs, 0.0, 400)?;
        together("quadratic, 10 x 100", &Quadratic::<f64>::new(AGENTS, 100, 10.0, 1.0, 0)?, jobs, 0.0, 400)?;
    }
    Ok(())
}

/// Logistic regression on random rows.
fn table(rows: usize, columns: usize) -> Anything<Table<f64>> {
    let shard = |agent: usize| {
        let mut random = stream(0, Purpose::Data, agent as u64, 1);
        let mut numbers = |count: usize| -> Vec<f64> {
            (0..count).map(|_| f64::from(random_byte(&mut random)) / 128.0 - 1.0).collect()
        };
        Shard {
            features: numbers(rows * columns),
            targets: numbers(rows)
                .into_iter()
                .map(f64::signum)
                .map(|b| if b == 0.0 { 1.0 } else { b })
                .collect(),
            ..Shard::default()
        }
    };
    Ok(Table::new(
        columns,
        (0..AGENTS).map(shard).collect(),
        TableObjective::new(Loss::Logistic, 0.01),
        Batch::Full,
    )?)
}

/// Rounds of MILE on the device and in the simulator from one start: the largest distance of the models after each round.
fn rounds() -> Anything<()> {
    let (device, network) = (open()?, ring(AGENTS)?);
    let (data, config) = images(Preset::MnistCnn, 32)?;
    let problem = ImageProblem::<f32>::try_new(data, &config)?;
    let method = method("mile", &network)?;
    let start = problem.initial(0)?.unwrap_or_default();
    let mut here = mile::simulator::Simulator::new(&problem, &network, &*method, &start, 0)?;
    let mut there = GpuAgents::new(device, &problem, &network, &*method, &start, 0)?;
    let schedule = || Schedule::constant(0.05);
    let (mut run, mut gpu) =
        (Run::start(&*method, schedule(), &mut here)?, Run::start(&*method, schedule(), &mut there)?);
    for round in 1..=5 {
        run.round(&mut here)?;
        gpu.round(&mut there)?;
        let found = there.vector(Vector(0))?.into_owned();
        let norm = |of: &dyn Fn(usize) -> f64| (0..found.len()).map(|k| of(k).powi(2)).sum::<f64>().sqrt();
        let models = here.models();
        let apart = norm(&|k| f64::from(found[k]) - f64::from(models[k])) / norm(&|k| f64::from(models[k]));
        println!(
            "{}",
            json!({"what": "models of mile, GPU against CPU", "round": round, "relative distance": apart})
        );
    }
    Ok(())
}

/// Everything, or with arguments one gradient (mnist or cifar10, and a batch), or `stacked`: several jobs.
fn main() -> Anything<()> {
    println!("{}", json!({"device": open()?.name()}));
    let only: Vec<String> = std::env::args().skip(1).collect();
    if only.is_empty() {
        verbs(10_000_000)?;
    }
    for (preset, name) in [(Preset::MnistCnn, "mnist"), (Preset::CifarCnn, "cifar10")] {
        for batch in [32, 128] {
            if only.is_empty() || only == [name.to_owned(), batch.to_string()] {
                gradients(preset, name, batch)?;
            }
        }
    }
    if only.is_empty() || only == ["stacked"] {
        stacked()?;
    }
    if only.is_empty() { rounds() } else { Ok(()) }
}
