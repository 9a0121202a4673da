//! After the first round, a step allocates nothing: counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use mile::graph::Topology;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Loss, Problem, Quadratic, Shard, Table};
use mile::run::Run;
use mile::schedule::{Decay, Schedule};
use mile::simulator::Simulator;

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
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

fn allocations(problem: &dyn Problem<f32>, network: &Network, name: &str) -> usize {
    let entry = catalogue::find(name).unwrap();
    let local_steps = entry.has_local_steps().then_some(3);
    let method = entry.build(&Parameters { local_steps, ..Parameters::default() }, network, 0).unwrap();
    let start = vec![0.5; problem.dim()];
    let mut agents = Simulator::new(problem, network, &*method, &start, 0);
    let decay = Decay::Cosine { rounds: 30, floor: 0.1 };
    let schedule = Schedule { warmup: 2, decay, ..Schedule::constant(1e-3) };
    let mut run = Run::start(&*method, schedule, &mut agents).unwrap();
    run.round(&mut agents).unwrap();
    run.round(&mut agents).unwrap();
    let before = COUNT.load(Ordering::Relaxed);
    for _ in 0..20 {
        run.round(&mut agents).unwrap();
    }
    COUNT.load(Ordering::Relaxed) - before
}

fn table(agents: usize, dim: usize, batch: Batch) -> Table<f32> {
    let shard = Shard { features: vec![0.1; 20 * dim], targets: vec![1.0; 20] };
    Table::new(dim, vec![shard; agents], Loss::Logistic, 0.1, batch).unwrap()
}

/// One test, so that nothing else in the process allocates meanwhile.
#[test]
fn no_step_allocates_after_the_first_round() {
    let ring = Network::new(Topology::Ring.build(8, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    let shaky = ring.clone().with_drop_rate(0.2).unwrap();
    let complete = Network::new(Topology::Complete.build(8, 0).unwrap(), Rule::Metropolis).unwrap();
    for entry in catalogue::ALL {
        let network = if entry.name == "scaffold" { &complete } else { &shaky };
        for batch in [Batch::Full, Batch::Uniform(4), Batch::Epoch(4)] {
            assert_eq!(allocations(&table(8, 40, batch), network, entry.name), 0, "{} {batch:?}", entry.name);
        }
    }
    // Large blocks go through the thread pool, whose queues grow in blocks of their own: a handful of
    // allocations in twenty rounds of many parallel passes, none of them a vector.
    let quadratic = Quadratic::<f32>::new(8, 20_000, 10.0, 1.0, 0).unwrap();
    let count = allocations(&quadratic, &ring, "mile");
    assert!(count <= 20, "{count} allocations in twenty rounds on large blocks");
}
