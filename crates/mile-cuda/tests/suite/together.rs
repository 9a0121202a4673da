//! Jobs that compute together: each has the same bits as alone.

use std::sync::{Arc, Barrier};

use mile::agents::Vector;
use mile::engine::Engine;
use mile::methods::catalogue::Parameters;
use mile::problems::{Batch, Loss, Problem, Quadratic};
use mile::real::Real;
use mile::run::Run;
use mile::schedule::Schedule;
use mile_cuda::device::Device;
use mile_cuda::{GpuAgents, Stack};

use crate::common::*;
use crate::methods::table;

/// A job: a method, its parameters, a step size, a seed.
struct Job<'p, T> {
    problem: &'p dyn Problem<T>,
    name: &'static str,
    step_size: f64,
    seed: u64,
    rounds: usize,
}

/// Models and their norm after all rounds.
fn run<T: Real>(stack: &Arc<Stack<T>>, job: &Job<T>, begin: &Barrier) -> (Vec<T>, f64) {
    let parameters = Parameters { local_steps: (job.name == "mile").then_some(3), ..Parameters::default() };
    let network = network_for(job.name, job.problem.agents());
    let method = build(job.name, &parameters, &network);
    let start = random::<T>(job.problem.dim(), job.seed);
    let agents = GpuAgents::within(stack, job.problem, &network, &*method, &start, job.seed);
    begin.wait();
    let mut agents = agents.unwrap();
    let mut run = Run::start(&*method, Schedule::constant(job.step_size), &mut agents).unwrap();
    for _ in 0..job.rounds {
        run.round(&mut agents).unwrap();
        agents.norm_sq(ALONE, Vector(0)).unwrap();
    }
    assert!(agents.evaluate(ALONE, Vector(0), &[0]).unwrap().is_some());
    (agents.vector(Vector(0)).unwrap().into_owned(), agents.norm_sq(ALONE, Vector(0)).unwrap())
}

fn compare<T: Real>(device: Arc<dyn Device>, jobs: &[Job<T>]) {
    let stack = Stack::new(device.clone()).unwrap();
    let begin = Barrier::new(jobs.len());
    let together: Vec<_> = std::thread::scope(|scope| {
        let (stack, begin) = (&stack, &begin);
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(move || run(stack, job, begin))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (job, (models, norm)) in jobs.iter().zip(together) {
        let alone = run(&Stack::new(device.clone()).unwrap(), job, &Barrier::new(1));
        assert!(models.iter().all(|x| x.is_finite()));
        assert_eq!((models, norm), alone, "{} with seed {}", job.name, job.seed);
    }
}

#[test]
fn jobs_of_different_methods_step_sizes_and_lengths() {
    let first = table::<f64>(5, 6, Loss::Logistic, 0.0, Batch::Size(4));
    let second = table::<f64>(7, 6, Loss::Logistic, 0.0, Batch::Full);
    let third = Quadratic::<f64>::new(4, 9, 10.0, 1.0, 0).unwrap();
    let job = |problem, name, k: u64| Job {
        problem,
        name,
        step_size: 0.01 * k as f64,
        seed: k,
        rounds: 3 + k as usize,
    };
    let jobs = [
        job(&first as &dyn Problem<f64>, "mile", 1),
        job(&first, "mile", 2),
        job(&second, "gradient-tracking", 3),
        job(&third, "led", 1),
        job(&third, "scaffold", 2),
    ];
    for device in devices() {
        compare(device, &jobs);
    }
}

#[test]
fn networks_with_dropout_and_different_seeds() {
    let problem = crate::networks::with_dropout(3);
    let job = |k: u64| Job {
        problem: &problem as &dyn Problem<f32>,
        name: "mile",
        step_size: 0.02 * k as f64,
        seed: k,
        rounds: 2,
    };
    compare(any_device(), &[job(1), job(2), job(3)]);
}
