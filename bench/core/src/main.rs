//! Speed and size of the core, relative to what the machine itself does in the same run.
//!
//! `cargo run --release` in this folder prints every figure; with `-- --mg-skip` or `-- --memory`, only that
//! one. Times are the best of several repetitions, because other work on the machine only ever adds to them.

use std::hint::black_box;
use std::time::Instant;

use mile::agents::{Agents, Vector};
use mile::block;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::{MgSkip, Mile};
use mile::mixing::Rule;
use mile::network::Network;
use mile::optimiser::{self, Adam, AdamRows, OptimiserRule, Stepping};
use mile::problems::{Failure, Problem, Quadratic};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rayon::prelude::*;

/// `f_i(x) = |x - i|^2/2`: it has no data, so that memory is the method's.
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

    fn loss(&self, agent: usize, x: &[f32]) -> Result<f64, Failure> {
        Ok(x.iter().map(|x| 0.5 * f64::from(x - agent as f32).powi(2)).sum())
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        gradient.iter_mut().zip(x).for_each(|(g, x)| *g = x - agent as f32);
        Ok(())
    }
}

fn seconds(mut work: impl FnMut()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

/// Bandwidths of the passes over 10^7 numbers, in bytes per second.
struct Bandwidths {
    triad: f64,
    /// The same in the kind of memory the simulator uses for its blocks.
    triad_in_blocks: f64,
    combine: f64,
    mix: f64,
    adam: f64,
}

/// The passes take turns, so that all of them meet the same disturbances.
fn bandwidths(n: usize, agents: usize, turns: usize) -> Bandwidths {
    let s = black_box(0.5f32);
    let chunk = n.div_ceil(8 * rayon::current_num_threads());
    // a = b + s c with all cores: 3 arrays moved.
    let triad = |a: &mut [f32], b: &[f32], c: &[f32]| {
        a.par_chunks_mut(chunk).enumerate().for_each(|(k, a)| {
            let at = k * chunk..k * chunk + a.len();
            for ((a, b), c) in a.iter_mut().zip(&b[at.clone()]).zip(&c[at]) {
                *a = *b + s * *c;
            }
        });
        black_box(a);
    };
    let (mut a, b, c) = (vec![0f32; n], vec![1f32; n], vec![2f32; n]);
    let [mut block_a, mut block_b, mut block_c] = [(); 3].map(|()| block::zeros::<f32>(n));
    block_b.fill(1.0);
    block_c.fill(2.0);
    // MILE's local step, x = x - alpha g + c: 3 arrays read, 1 written.
    let mut x = vec![0f32; n];
    let alpha = black_box(0.01);
    let mut combine = || {
        block::combine_block(&mut x, 1.0, &[(-alpha, &b), (1.0, &c)]);
        black_box(&x);
    };
    // The exchange on a ring: its sum has three operands and a result, but a cache may serve two of them.
    let (network, dim) = (ring(agents), n / agents);
    let (problem, method) = (Springs { agents, dim }, mile(10));
    let mut simulator = Simulator::new(&problem, &network, &method, &vec![1.0; dim], 0).expect("agents");
    let mut mix = || {
        simulator.pull(0, &[(Vector(0), Vector(2))]).expect("the simulator does not fail");
    };
    // AdamW with a correction on the step: x, m, v, g and c read, x, m and v written.
    let by = Stepping {
        rule: OptimiserRule::Adam(Adam::default()),
        step_size: black_box(1e-3),
        number: 5,
        inner: 0.0,
        shift: 1.0,
    };
    let [mut moved_x, mut m, mut v] = [(); 3].map(|()| block::zeros::<f32>(n));
    let mut adam = || {
        let (g, shift) = (&block_b[..], Some(&block_c[..]));
        let rows =
            AdamRows { x: &mut moved_x, m: &mut m, v: &mut v, largest: None, g, inner: None, shift };
        optimiser::take_steps(rows, dim, &by, &[]);
        black_box(&moved_x);
    };
    let mut times = [f64::INFINITY; 5];
    for _ in 0..turns {
        times[0] = times[0].min(seconds(|| triad(&mut a, &b, &c)));
        times[1] = times[1].min(seconds(|| triad(&mut block_a, &block_b, &block_c)));
        times[2] = times[2].min(seconds(&mut combine));
        times[3] = times[3].min(seconds(&mut mix));
        times[4] = times[4].min(seconds(&mut adam));
    }
    let moved = |arrays: f64, seconds: f64| arrays * 4.0 * n as f64 / seconds;
    Bandwidths {
        triad: moved(3.0, times[0]),
        triad_in_blocks: moved(3.0, times[1]),
        combine: moved(4.0, times[2]),
        mix: moved(4.0, times[3]),
        adam: moved(8.0, times[4]),
    }
}

fn ring(agents: usize) -> Network {
    let graph = Topology::Ring.build(agents, 0).expect("a ring");
    Network::new(graph, Rule::Metropolis).expect("its weights")
}

fn mile(tau: u64) -> Mile {
    Mile::new(tau, Mile::paper_xi(tau)).expect("the paper's weight")
}

/// Seconds of a round of MILE with five local steps, for each size. Every size is timed over as many
/// rounds as make up the same amount of work, in turns: a busy machine disturbs long samples more.
fn rounds<P: Problem<f32>>(
    sizes: &[(usize, usize)],
    turns: usize,
    problem: impl Fn(usize, usize) -> P,
) -> Vec<f64> {
    let most = sizes.iter().map(|(agents, dim)| agents * dim).max().unwrap_or(1);
    let mut times = vec![f64::INFINITY; sizes.len()];
    let method = mile(5);
    let networks: Vec<Network> = sizes.iter().map(|(agents, _)| ring(*agents)).collect();
    let problems: Vec<P> = sizes.iter().map(|&(agents, dim)| problem(agents, dim)).collect();
    let mut hosts: Vec<_> = problems
        .iter()
        .zip(&networks)
        .map(|(problem, network)| {
            let start = vec![0.0; problem.dim()];
            let mut simulator = Simulator::new(problem, network, &method, &start, 0).expect("agents");
            let run = Run::start(&method, Schedule::constant(0.1), &mut simulator).expect("a start");
            (simulator, run)
        })
        .collect();
    for turn in 0..=turns {
        for (k, (simulator, run)) in hosts.iter_mut().enumerate() {
            let repeat = most / (sizes[k].0 * sizes[k].1);
            let taken = seconds(|| (0..repeat).for_each(|_| run.round(simulator).expect("a round")));
            if turn > 0 {
                times[k] = times[k].min(taken / repeat as f64);
            }
        }
    }
    times
}

/// A round of MG-Skip: one gradient, then as many exchanges, one after the other, as the method chooses for
/// a ring of this size.
struct GossipRound {
    exchanges: u64,
    seconds: f64,
}

/// The sizes take turns, each for about the same time.
fn gossip_rounds(sizes: &[(usize, usize)], turns: usize) -> Vec<GossipRound> {
    const TURN_S: f64 = 0.05;
    let networks: Vec<Network> = sizes.iter().map(|(agents, _)| ring(*agents)).collect();
    let problems: Vec<Springs> = sizes.iter().map(|&(agents, dim)| Springs { agents, dim }).collect();
    let method = |network| MgSkip::new(0, 1.0, None, network).expect("a probability");
    let methods: Vec<MgSkip> = networks.iter().map(method).collect();
    let mut found = Vec::new();
    let mut hosts = Vec::new();
    for ((problem, network), method) in problems.iter().zip(&networks).zip(&methods) {
        let start = vec![0.0; problem.dim];
        let mut simulator = Simulator::new(problem, network, method, &start, 0).expect("agents");
        let mut run = Run::start(method, Schedule::constant(0.1), &mut simulator).expect("a start");
        // After the first round the simulator knows whether threads are worthwhile.
        run.round(&mut simulator).expect("a round");
        let exchanges = run.progress().costs.exchanges;
        let one = seconds(|| run.round(&mut simulator).expect("a round"));
        hosts.push((simulator, run, (TURN_S / one).ceil() as usize));
        found.push(GossipRound { exchanges, seconds: f64::INFINITY });
    }
    for _ in 0..turns {
        for ((simulator, run, repeat), found) in hosts.iter_mut().zip(&mut found) {
            let taken = seconds(|| (0..*repeat).for_each(|_| run.round(simulator).expect("a round")));
            found.seconds = found.seconds.min(taken / *repeat as f64);
        }
    }
    found
}

fn report_gossip() {
    let sizes = [(200, 16), (200, 1_000), (1_000, 16), (1_000, 1_000)];
    for ((agents, dim), round) in sizes.iter().zip(gossip_rounds(&sizes, 20)) {
        println!(
            "a round of MG-Skip on springs, ring of {agents} x {dim}: {:.3} ms, {} exchanges, {:.2} us each",
            round.seconds * 1e3,
            round.exchanges,
            round.seconds * 1e6 / round.exchanges as f64
        );
    }
}

/// The most memory this process ever held, in bytes.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// Run in a separate process: MILE with these sizes, then its peak memory.
fn memory(agents: usize, dim: usize) {
    let before = peak_memory().unwrap_or(0.0);
    let (network, problem, method) = (ring(agents), Springs { agents, dim }, mile(10));
    let start = vec![0.0; dim];
    let mut simulator = Simulator::new(&problem, &network, &method, &start, 0).expect("agents");
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

fn report_rounds(problem: &str, times: &[f64]) {
    let [few, many, most] = [times[0] * 1e3, times[1] * 1e3, times[2] * 1e3];
    println!(
        "a round of MILE, 5 local steps, on {problem}: 250 agents x 10^4 {few:.2} ms, 1,000 agents x 10^4 {many:.2} ms: \
         {:.2} times; 10,000 agents x 10^3 {most:.2} ms",
        many / few
    );
}

fn main() {
    let alone = |figure: &str| std::env::args().any(|argument| argument == figure);
    if alone("--memory") {
        return memory(10, 10_000_000);
    }
    if alone("--mg-skip") {
        return report_gossip();
    }
    println!("{} threads", rayon::current_num_threads());
    let found = bandwidths(10_000_000, 10, 100);
    println!("triad, 10^7 numbers f32: {:.1} GB/s", found.triad / 1e9);
    println!("triad, in memory taken as the simulator takes it: {:.1} GB/s", found.triad_in_blocks / 1e9);
    let report = |what: &str, bandwidth: f64| {
        println!(
            "{what}: {:.1} GB/s = {:.0}% of the triad, {:.0}% of the one in blocks",
            bandwidth / 1e9,
            100.0 * bandwidth / found.triad,
            100.0 * bandwidth / found.triad_in_blocks
        );
    };
    report(
        "mix on a ring, 10 agents x 10^6 f32, each row counted as read once and written once",
        found.mix / 2.0,
    );
    report("the same, three operands and a result counted", found.mix);
    report("combine x - alpha g + c, 10^7 numbers f32", found.combine);
    report("AdamW with a correction on the step, 10^7 numbers f32", found.adam);

    let sizes = [(250, 10_000), (1_000, 10_000), (10_000, 1_000)];
    let quadratic = |agents, dim| Quadratic::new(agents, dim, 10.0, 1.0, 0).expect("a problem");
    report_rounds("quadratics", &rounds(&sizes, 60, quadratic));
    report_rounds(
        "springs (the cheapest gradient there is)",
        &rounds(&sizes, 60, |agents, dim| Springs { agents, dim }),
    );
    report_gossip();
    let again =
        std::env::current_exe().and_then(|me| std::process::Command::new(me).arg("--memory").status());
    if let Err(error) = again {
        println!("peak memory: cannot start a separate process: {error}");
    }
}
