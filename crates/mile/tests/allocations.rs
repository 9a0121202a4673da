//! After the first round, a step allocates nothing: counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Loss, Problem, Quadratic, Shard, Table, TableObjective};
use mile::run::Run;
use mile::schedule::{Decay, Schedule};
use mile::simulator::Simulator;

struct Counting;

thread_local! {
    /// Allocations of this thread: others, such as the test harness, do not count.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of twenty rounds by all threads of a pool. The work is done inside the pool: tasks
/// handed to it from outside go through a queue that allocates.
fn allocations(threads: usize, problem: &dyn Problem<f32>, network: &Network, name: &str) -> usize {
    let entry = catalogue::find(name).unwrap();
    let local_steps = entry.has_local_steps().then_some(3);
    let penalty = problem.penalty().is_some();
    let parameters = Parameters { local_steps, penalty, ..Parameters::default() };
    let method = entry.build(&parameters, network, 0).unwrap();
    let decay = Decay::Cosine { rounds: 30, floor: 0.1 };
    let schedule = Schedule::constant(1e-3).with_warmup(2).with_decay(decay);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let start = vec![0.5; problem.dim()];
        let mut agents = Simulator::new(problem, network, &*method, &start, 0).unwrap();
        let mut run = Run::start(&*method, schedule, &mut agents).unwrap();
        run.round(&mut agents).unwrap();
        run.round(&mut agents).unwrap();
        let counts = || rayon::broadcast(|_| COUNT.with(Cell::get));
        let before = counts();
        let own = COUNT.with(Cell::get);
        for _ in 0..20 {
            run.round(&mut agents).unwrap();
        }
        let own = COUNT.with(Cell::get) - own;
        // Asking every thread allocates a little on the thread that asks; the others do nothing else.
        let here = rayon::current_thread_index().unwrap();
        let after = counts();
        let others = after.iter().zip(&before).enumerate().filter(|(k, _)| *k != here);
        own + others.map(|(_, (after, before))| after - before).sum::<usize>()
    })
}

fn table(agents: usize, dim: usize, loss: Loss, batch: Batch) -> Table<f32> {
    let shard = Shard { features: vec![0.1; 20 * dim], targets: vec![1.0; 20], ..Shard::default() };
    Table::new(dim, vec![shard; agents], TableObjective::new(loss, 0.1), batch).unwrap()
}

fn sparse(agents: usize, dim: usize) -> Table<f32> {
    let shard = Shard { features: vec![0.1; 2 * dim], targets: vec![1.0; 2], ..Shard::default() };
    let objective = TableObjective { l1: 0.1, intercept: true, ..TableObjective::new(Loss::Logistic, 0.1) };
    Table::new(dim, vec![shard; agents], objective, Batch::Full).unwrap()
}

#[test]
fn no_step_allocates_after_the_first_round() {
    let ring = Network::new(Topology::Ring.build(8, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    let shaky = ring.clone().with_drop_rate(0.2).unwrap();
    let complete = Network::new(Topology::Complete.build(8, 0).unwrap(), Rule::Metropolis).unwrap();
    for entry in catalogue::ALL {
        let network = if entry.has_server() { &complete } else { &shaky };
        for batch in [Batch::Full, Batch::Size(4), Batch::Epoch(4)] {
            assert_eq!(
                allocations(1, &table(8, 40, Loss::Logistic, batch), network, &entry.name),
                0,
                "{} {batch:?}",
                entry.name
            );
        }
    }
    for loss in [Loss::Softmax { classes: 10 }, Loss::Poisson, Loss::Welsch { c: 1.0 }] {
        for batch in [Batch::Full, Batch::Size(4)] {
            assert_eq!(allocations(1, &table(8, 40, loss, batch), &shaky, "mile"), 0, "{loss:?} {batch:?}");
        }
    }
    for name in catalogue::WITH_PENALTY {
        assert_eq!(allocations(1, &sparse(8, 40), &shaky, name), 0, "{name} with a penalty");
    }
    // Large blocks, with all kernels using their threads: with exchanges deferred, and not.
    let ring = Network::new(Topology::Ring.build(16, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    for dim in [5_000, 100_000] {
        let quadratic = Quadratic::<f32>::new(16, dim, 10.0, 1.0, 0).unwrap();
        for name in ["mile", "k-gt", "gta-3"] {
            assert_eq!(allocations(2, &quadratic, &ring, name), 0, "{name} on large blocks, n = {dim}");
        }
    }
}
