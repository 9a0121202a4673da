//! Times gradients of regressions on tables with all threads at work, each with its own agents.
//!
//! `bench-table THREADS WINDOWS` prints one JSON object: the bandwidth of the triad and, for each shape, precision and
//! loss, milliseconds of a gradient in a thread, one number per window. `run.py` calls it, along with numpy.

use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;

use mile::problems::{Batch, Draw, Loss, Problem, Shard, Table, TableObjective};
use mile::real::{Precision, Real};
use serde_json::{Value, json};

/// Rows and columns of an agent's table.
const SHAPES: [(usize, usize); 2] = [(50_000, 30), (5_000, 1_000)];
/// Agents of a thread: together they exceed the caches.
const AGENTS: usize = 2;
/// About how long a window is.
const WINDOW_S: f64 = 0.1;
/// Numbers in each array of the triad, for each thread.
const TRIAD: usize = 8 << 20;

/// Runs `work(thread, repetition)` `repetitions` times on each thread, in `windows` windows that begin together;
/// returns the seconds of each window, from the first start to the last end.
fn windows(
    threads: usize,
    windows: usize,
    repetitions: usize,
    work: impl Fn(usize, usize) + Sync,
) -> Vec<f64> {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        let one = |_| {
            barrier.wait();
            let start = Instant::now();
            (0..repetitions).for_each(|i| work(thread, i));
            (start, Instant::now())
        };
        (0..windows).map(one).collect::<Vec<_>>()
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

/// Bytes per second of `a = b + s c` in all threads together, counting three arrays, best window.
fn triad(threads: usize, count: usize) -> f64 {
    let arrays: Vec<_> = (0..threads)
        .map(|_| Mutex::new((vec![0.0f64; TRIAD], vec![1.0f64; TRIAD], vec![2.0f64; TRIAD])))
        .collect();
    let s = black_box(0.5);
    let pass = |thread: usize, _| {
        let mut arrays = arrays[thread].lock().expect("each thread has its own");
        let (a, b, c) = &mut *arrays;
        for ((a, b), c) in a.iter_mut().zip(&*b).zip(&*c) {
            *a = *b + s * *c;
        }
        black_box(a);
    };
    let best = windows(threads, count, 1, pass).into_iter().fold(f64::INFINITY, f64::min);
    (3 * TRIAD * size_of::<f64>() * threads) as f64 / best
}

fn table<T: Real>(rows: usize, dim: usize, agents: usize, loss: Loss) -> Table<T> {
    let value = |k: usize| (k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 23) as f64 - 1.0;
    let shard = |agent: usize| Shard {
        features: (0..rows * dim).map(|k| T::of(value(k + agent))).collect(),
        targets: (0..rows).map(|k| T::of(value(3 * k + agent).signum())).collect(),
        ..Shard::default()
    };
    let objective = TableObjective::new(loss, 0.01);
    Table::new(dim, (0..agents).map(shard).collect(), objective, Batch::Full).expect("a table")
}

fn measure<T: Real>(threads: usize, count: usize, (rows, dim): (usize, usize), loss: Loss) -> Value {
    let problem = table::<T>(rows, dim, AGENTS * threads, loss);
    let x: Vec<T> = (0..dim).map(|k| T::of((k % 7) as f64 / dim as f64)).collect();
    let gradients: Vec<_> = (0..threads).map(|_| Mutex::new(vec![T::zero(); dim])).collect();
    let work = |thread: usize, i: usize| {
        let mut g = gradients[thread].lock().expect("each thread has its own");
        let draw = Draw { seed: 0, step: i as u64 };
        problem.sample_gradient(AGENTS * thread + i % AGENTS, &x, draw, &mut g).expect("a gradient");
    };
    let one = windows(threads, 3, AGENTS, work).into_iter().fold(f64::INFINITY, f64::min) / AGENTS as f64;
    let repetitions = AGENTS * (WINDOW_S / one / AGENTS as f64).ceil() as usize;
    let times = windows(threads, count, repetitions, work);
    let ms: Vec<f64> = times.iter().map(|t| t * 1e3 / repetitions as f64).collect();
    let loss = if loss == Loss::LeastSquares { "least-squares" } else { "logistic" };
    json!({ "rows": rows, "dim": dim, "precision": T::PRECISION.name(), "loss": loss, "ms": ms })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<usize>> = arguments.iter().map(|text| text.parse().ok()).collect();
    let Some(&[threads, count]) = numbers.as_deref() else {
        eprintln!("usage: bench-table THREADS WINDOWS");
        std::process::exit(2);
    };
    let triad = triad(threads, 4 * count);
    let mut results = Vec::new();
    for shape in SHAPES {
        for precision in [Precision::F64, Precision::F32] {
            for loss in [Loss::Logistic, Loss::LeastSquares] {
                let found = mile::with_precision!(precision, T => measure::<T>(threads, count, shape, loss));
                results.push(found);
            }
        }
    }
    println!("{}", json!({ "threads": threads, "triad": triad, "gradients": results }));
}
