//! Speed and size of the core, as ratios of what the machine itself does in the same run.
//!
//! `cargo run --release` in this folder prints every figure. Times are the best of several
//! repetitions, because other work on the machine only ever adds to them.

use std::hint::black_box;
use std::time::Instant;

use mile::agents::{Agents, Vector};
use mile::block;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::Mile;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Problem;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rayon::prelude::*;

/// `f_i(x) = |x - i|^2/2`: no data of its own, so that memory is the method's.
struct Springs {
    agents: usize,
    dim: usize,
}

impl Problem<f32> for Springs {
    fn agents(&self) -> usize {
        self.agents
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn loss(&self, agent: usize, x: &[f32]) -> f64 {
        x.iter().map(|x| 0.5 * f64::from(x - agent as f32).powi(2)).sum()
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) {
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = x - agent as f32);
    }
}

fn best(repetitions: usize, mut work: impl FnMut()) -> f64 {
    let once = || {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64()
    };
    std::iter::repeat_with(once).take(repetitions).fold(f64::INFINITY, f64::min)
}

/// a = b + s c with all cores: 3 arrays moved.
fn triad(n: usize) -> f64 {
    let (mut a, b, c) = (vec![0f32; n], vec![1f32; n], vec![2f32; n]);
    let s = black_box(0.5f32);
    let chunk = n.div_ceil(8 * rayon::current_num_threads());
    let seconds = best(15, || {
        a.par_chunks_mut(chunk).enumerate().for_each(|(k, a)| {
            let at = k * chunk..k * chunk + a.len();
            for ((a, b), c) in a.iter_mut().zip(&b[at.clone()]).zip(&c[at]) {
                *a = *b + s * *c;
            }
        });
        black_box(&a);
    });
    3.0 * 4.0 * n as f64 / seconds
}

/// MILE's local step, x = x - alpha g + c: 3 arrays read, 1 written.
fn combine(n: usize) -> f64 {
    let (mut x, g, c) = (vec![0f32; n], vec![1f32; n], vec![2f32; n]);
    let alpha = black_box(0.01);
    let seconds = best(15, || {
        block::combine_block(&mut x, 1.0, &[(-alpha, &g), (1.0, &c)]);
        black_box(&x);
    });
    4.0 * 4.0 * n as f64 / seconds
}

/// The exchange on a ring: counted as if each row were read once and written once.
fn mix(agents: usize, dim: usize) -> f64 {
    let network = ring(agents);
    let problem = Springs { agents, dim };
    let method = mile(10);
    let mut simulator = Simulator::new(&problem, &network, &method, &vec![1.0; dim], 0);
    let seconds = best(9, || {
        simulator.pull(0, &[(Vector(0), Vector(2))]).expect("the simulator does not fail");
    });
    2.0 * 4.0 * (agents * dim) as f64 / seconds
}

fn ring(agents: usize) -> Network {
    let graph = Topology::Ring.build(agents, 0).expect("a ring");
    Network::new(graph, Rule::Metropolis).expect("its weights")
}

fn mile(tau: u64) -> Mile {
    Mile::new(tau, Mile::paper_xi(tau)).expect("the paper's weight")
}

/// Seconds of a round of MILE with five local steps.
fn round(agents: usize, dim: usize, repetitions: usize) -> f64 {
    let (network, problem, method) = (ring(agents), Springs { agents, dim }, mile(5));
    let mut simulator = Simulator::new(&problem, &network, &method, &vec![0.0; dim], 0);
    let mut run = Run::start(&method, Schedule::constant(0.1), &mut simulator).expect("a start");
    run.round(&mut simulator).expect("a round");
    best(repetitions, || run.round(&mut simulator).expect("a round"))
}

/// The most memory this process ever held, in bytes.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// Run in a process of its own: MILE with these sizes, then its peak memory.
fn memory(agents: usize, dim: usize) {
    let before = peak_memory().unwrap_or(0.0);
    let (network, problem, method) = (ring(agents), Springs { agents, dim }, mile(10));
    let start = vec![0.0; dim];
    let mut simulator = Simulator::new(&problem, &network, &method, &start, 0);
    drop(start);
    let mut run = Run::start(&method, Schedule::constant(0.1), &mut simulator).expect("a start");
    run.round(&mut simulator).expect("a round");
    run.round(&mut simulator).expect("a round");
    black_box(simulator.models());
    let vectors = (method.layout().state.len() + 1) as f64 * (agents * dim * 4) as f64;
    match peak_memory() {
        Some(peak) => println!(
            "peak memory, {agents} agents x {dim}: {:.2} GB = {:.3} x (two vectors + one gradient); {:.0} MB before the run",
            peak / 1e9,
            peak / vectors,
            before / 1e6
        ),
        None => println!("peak memory: not told by this system"),
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--memory") {
        return memory(10, 10_000_000);
    }
    let n = 10_000_000;
    println!("{} threads", rayon::current_num_threads());
    // The yardstick is taken before and after, so that a change of the machine's mood shows.
    let before = triad(n);
    let (combined, small, large) = (combine(n), mix(10, 1_000_000), mix(10, 10_000_000));
    let after = triad(n);
    let yardstick = before.max(after);
    println!("triad, n = 10^7 f32: {:.1} GB/s before, {:.1} GB/s after", before / 1e9, after / 1e9);
    let report = |what: &str, bandwidth: f64| {
        println!("{what}: {:.1} GB/s = {:.0}% of the triad", bandwidth / 1e9, 100.0 * bandwidth / yardstick);
    };
    report("combine x - alpha g + c, n = 10^7 f32", combined);
    report("mix on a ring of 10, n = 10^6 f32 (one read and one write counted)", small);
    report("mix on a ring of 10, n = 10^7 f32 (one read and one write counted)", large);

    let (few, many) = (round(250, 10_000, 7), round(1_000, 10_000, 7));
    println!("a round of MILE, 5 local steps: 250 agents x 10^4 {:.1} ms, 1,000 agents x 10^4 {:.1} ms: {:.2} times", few * 1e3, many * 1e3, many / few);
    println!("a round of MILE, 5 local steps: 10,000 agents x 10^3 {:.1} ms", round(10_000, 1_000, 5) * 1e3);
    let again = std::env::current_exe().and_then(|me| std::process::Command::new(me).arg("--memory").status());
    if let Err(error) = again {
        println!("peak memory: cannot start a process of its own: {error}");
    }
}
