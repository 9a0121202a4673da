//! Gradients of quadratics and tables on the device against those of the CPU.

use mile::agents::{Agents, Vector};
use mile::engine::Engine;
use mile::methods::catalogue::Parameters;
use mile::problems::{Batch, Draw, Loss, Problem, Quadratic, Table};
use mile::real::Real;
use mile_cuda::GpuAgents;

use crate::common::*;
use crate::methods::table;

/// The largest distance, over three draws, of the agents' stochastic gradients from the CPU's.
fn apart<T: Real>(problem: &dyn Problem<T>) -> f64 {
    let (agents, dim) = (problem.agents(), problem.dim());
    let network = ring(agents);
    let method = build("dsgd", &Parameters::default(), &network);
    let start = random::<T>(agents * dim, 60);
    let device = any_device();
    let mut engine = GpuAgents::new(device, problem, &network, &*method, &start, SEED).unwrap();
    assert!(engine.computes_gradients());
    // The same verbs three times: run, recorded, and run from the recording.
    let mut worst = 0.0f64;
    for step in 1..4 {
        engine.gradient(Vector(0), Vector(1), step).unwrap();
        let found = engine.vector(Vector(1)).unwrap().into_owned();
        let mut expected = vec![T::zero(); agents * dim];
        for (agent, g) in expected.chunks_exact_mut(dim).enumerate() {
            let x = &start[agent * dim..][..dim];
            problem.sample_gradient(agent, x, Draw { seed: SEED, step }, g).unwrap();
        }
        worst = worst.max(distance(&found, &expected));
    }
    worst
}

#[test]
fn quadratics_of_any_dimension() {
    for dim in [1, 2, 3, 255, 256, 257, 1000] {
        let double = Quadratic::<f64>::new(4, dim, 100.0, 1.0, 2).unwrap();
        let single = Quadratic::<f32>::new(4, dim, 100.0, 1.0, 2).unwrap();
        let (double, single) = (apart(&double), apart(&single));
        assert!(double < 1e-13 && single < 1e-5, "{dim}: {double:e} {single:e}");
    }
}

const LOSSES: [Loss; 7] = [
    Loss::LeastSquares,
    Loss::Logistic,
    Loss::NonconvexLogistic,
    Loss::Softmax { classes: 3 },
    Loss::Poisson,
    Loss::Huber { delta: 0.4 },
    Loss::Welsch { c: 0.7 },
];

/// A table in which the rows of some agents have weights and, where they have an effect, offsets.
fn weighted<T: Real>(columns: usize, loss: Loss, batch: Batch) -> Table<T> {
    let plain = table::<T>(5, columns, loss, 0.0, batch);
    let mut shards = plain.shards().to_vec();
    for (agent, shard) in shards.iter_mut().enumerate().step_by(2) {
        let rows = shard.targets.len();
        shard.weights = random::<T>(rows, 200 + agent as u64).into_iter().map(T::abs).collect();
        if !matches!(loss, Loss::Softmax { .. }) {
            shard.offsets = random(rows, 300 + agent as u64);
        }
    }
    Table::new(columns, shards, plain.terms().clone(), batch).unwrap()
}

#[test]
fn weights_and_offsets_of_rows_are_those_of_the_cpu() {
    for (columns, loss) in [1, 5, 33].into_iter().cycle().zip(LOSSES) {
        for batch in [Batch::Full, Batch::Size(3)] {
            let double = apart(&weighted::<f64>(columns, loss, batch));
            let single = apart(&weighted::<f32>(columns, loss, batch));
            assert!(double < 1e-13 && single < 1e-5, "{loss:?} {batch:?}: {double:e} {single:e}");
        }
        for device in devices() {
            evaluation(device.clone(), &weighted::<f64>(columns, loss, Batch::Full), 1e-12);
            evaluation(device, &weighted::<f32>(columns, loss, Batch::Size(2)), 1e-5);
        }
    }
}

#[test]
fn losses_and_gradients_of_f_are_those_of_the_cpu() {
    for (k, device) in devices().into_iter().enumerate() {
        evaluation(device.clone(), &Quadratic::<f64>::new(4, 300 + k, 100.0, 1.0, 2).unwrap(), 1e-12);
        for (columns, loss) in [1, 5, 33].into_iter().cycle().zip(LOSSES) {
            evaluation(device.clone(), &table::<f64>(5, columns, loss, 0.3, Batch::Size(3)), 1e-12);
            evaluation(device.clone(), &table::<f32>(5, columns, loss, 0.0, Batch::Full), 1e-5);
        }
    }
}

#[test]
fn tables_with_every_loss() {
    for (k, loss) in LOSSES.into_iter().enumerate() {
        let columns = [1, 5, 33][k % 3];
        for batch in [Batch::Full, Batch::Size(3), Batch::Epoch(4)] {
            let double = apart(&table::<f64>(5, columns, loss, 0.0, batch));
            let single = apart(&table::<f32>(5, columns, loss, 0.0, batch));
            assert!(double < 1e-13 && single < 1e-5, "{loss:?} {batch:?}: {double:e} {single:e}");
        }
    }
}
