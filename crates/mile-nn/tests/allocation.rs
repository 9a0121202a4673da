//! After the first call, a gradient allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mile::problems::{Draw, Problem};
use mile_nn::data::glyphs;
use mile_nn::model::{Layer, ModelSpec, Preset};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec};
use mile_nn::{Batch, ImageProblem};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The only test of this file: another thread's allocations would be counted too.
#[test]
fn gradients_allocate_nothing_after_the_first() {
    let data = Arc::new(glyphs::generate(0, 400, 10));
    let layers = vec![
        Layer::Conv { out: 8, kernel: 3, padding: 1, stride: 2 },
        Layer::GroupNorm { groups: 4 },
        Layer::Relu {},
        Layer::MaxPool { size: 3, stride: Some(2) },
        Layer::Conv { out: 8, kernel: 3, padding: 1, stride: 1 },
        Layer::Residual { layers: vec![Layer::Conv { out: 8, kernel: 3, padding: 1, stride: 1 }] },
        Layer::AveragePool { size: 6, stride: None },
        Layer::Dense { out: 10 },
    ];
    for (model, batch) in [
        (ModelSpec::Preset(Preset::MnistCnn), Batch::Size(32)),
        (ModelSpec::Preset(Preset::CifarCnn), Batch::Epoch(33)),
        (ModelSpec::Preset(Preset::Linear), Batch::Full),
        (ModelSpec::Layers(layers), Batch::Size(32)),
    ] {
        let config = ImageSpec {
            model: model.clone(),
            partition: Partition::Iid {},
            agents: 2,
            seed: 0,
            batch,
            evaluation: Evaluation::All,
            test_samples: None,
        };
        let problem = ImageProblem::<f32>::try_new(data.clone(), &config).unwrap();
        let x = problem.initial(0).unwrap().unwrap();
        let mut gradient = vec![0.0; problem.dim()];
        problem.sample_gradient(0, &x, Draw { seed: 0, step: 0 }, &mut gradient).unwrap();
        let before = CALLS.load(Ordering::Relaxed);
        for step in 1..6 {
            problem.sample_gradient(step as usize % 2, &x, Draw { seed: 0, step }, &mut gradient).unwrap();
            problem.gradient(1, &x, &mut gradient).unwrap();
        }
        assert_eq!(CALLS.load(Ordering::Relaxed) - before, 0, "{model:?}");
    }
}
