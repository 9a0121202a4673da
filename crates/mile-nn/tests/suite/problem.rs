//! The problem: batches, weights of agents, evaluation.

use std::sync::Arc;

use mile::problems::{Draw, HeldOut, Problem};
use mile_nn::data::{Dataset, glyphs};
use mile_nn::model::{ModelSpec, Preset};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec, ProblemError};
use mile_nn::{Batch, ImageProblem};

fn config(model: Preset, batch: Batch) -> ImageSpec {
    ImageSpec {
        model: ModelSpec::Preset(model),
        partition: Partition::Dirichlet { alpha: 0.5 },
        agents: 5,
        seed: 1,
        batch,
        evaluation: Evaluation::All,
        test_samples: None,
    }
}

fn data() -> Arc<Dataset> {
    Arc::new(glyphs::generate(0, 600, 150))
}

fn problem(config: &ImageSpec) -> ImageProblem<f64> {
    ImageProblem::try_new(data(), config).unwrap()
}

fn at(problem: &ImageProblem<f64>, agent: usize, x: &[f64], step: u64) -> Vec<f64> {
    let mut gradient = vec![f64::NAN; problem.dim()];
    problem.sample_gradient(agent, x, Draw { seed: 9, step }, &mut gradient).unwrap();
    gradient
}

#[test]
fn the_objective_is_the_mean_over_agents_not_over_samples() {
    let problem = problem(&config(Preset::Linear, Batch::Full));
    let x = problem.initial(0).unwrap().unwrap();
    let losses: Vec<f64> = (0..5).map(|i| problem.loss(i, &x).unwrap()).collect();
    let mean = losses.iter().sum::<f64>() / 5.0;
    assert!((problem.objective(&x).unwrap() - mean).abs() < 1e-12);
    let sizes: Vec<f64> = problem.parts().iter().map(|part| part.len() as f64).collect();
    let over_samples = losses.iter().zip(&sizes).map(|(l, m)| l * m).sum::<f64>() / 600.0;
    assert!((mean - over_samples).abs() > 1e-6, "the test distinguishes the two");
}

#[test]
fn full_batches_give_the_exact_gradient_of_the_loss() {
    let problem = problem(&config(Preset::Linear, Batch::Full));
    let mut x = problem.initial(0).unwrap().unwrap();
    let gradient = at(&problem, 3, &x, 5);
    let mut exact = vec![0.0; problem.dim()];
    problem.gradient(3, &x, &mut exact).unwrap();
    assert_eq!(gradient, exact);
    for i in [3004, 5000, problem.dim() - 1] {
        let (old, h) = (x[i], 1e-5);
        let mut loss = |value| {
            x[i] = value;
            problem.loss(3, &x).unwrap()
        };
        let difference = (loss(old + h) - loss(old - h)) / (2.0 * h);
        x[i] = old;
        assert!((difference - exact[i]).abs() < 1e-8, "{difference} {}", exact[i]);
    }
}

#[test]
fn a_draw_names_its_samples() {
    for batch in [Batch::Size(7), Batch::Epoch(7)] {
        let problem = problem(&config(Preset::Linear, batch));
        let x = problem.initial(0).unwrap().unwrap();
        let first = at(&problem, 0, &x, 4);
        at(&problem, 1, &x, 9);
        assert_eq!(first, at(&problem, 0, &x, 4), "whatever was drawn in between");
        assert_ne!(first, at(&problem, 0, &x, 5));
        assert_ne!(first, at(&problem, 1, &x, 4));
    }
}

#[test]
fn batches_with_replacement_are_unbiased() {
    let problem = problem(&config(Preset::Linear, Batch::Size(16)));
    let x = problem.initial(0).unwrap().unwrap();
    let mut exact = vec![0.0; problem.dim()];
    problem.gradient(2, &x, &mut exact).unwrap();
    let mut mean = vec![0.0; problem.dim()];
    let draws = 2000;
    for step in 0..draws {
        mean.iter_mut().zip(at(&problem, 2, &x, step)).for_each(|(m, g)| *m += g / draws as f64);
    }
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let error = norm(&mut mean.iter().zip(&exact).map(|(m, e)| m - e)) / norm(&mut exact.iter().copied());
    assert!(error < 0.03, "{error}");
}

#[test]
fn an_epoch_sees_each_sample_once() {
    // Batches of 7 over a shard of m: the gradients of m draws are those of 7 whole passes.
    let problem = problem(&config(Preset::Linear, Batch::Epoch(7)));
    let x = problem.initial(0).unwrap().unwrap();
    let m = problem.parts()[4].len() as u64;
    let mut sum = vec![0.0; problem.dim()];
    for step in 0..m {
        sum.iter_mut().zip(at(&problem, 4, &x, step)).for_each(|(s, g)| *s += g / m as f64);
    }
    let mut exact = vec![0.0; problem.dim()];
    problem.gradient(4, &x, &mut exact).unwrap();
    for (s, e) in sum.iter().zip(&exact) {
        assert!((s - e).abs() < 1e-12, "{s} {e}");
    }
}

#[test]
fn evaluation_does_not_depend_on_the_number_of_threads() {
    let problem = problem(&ImageSpec {
        evaluation: Evaluation::PerAgent(70),
        ..config(Preset::MnistCnn, Batch::Size(1))
    });
    let x = problem.initial(0).unwrap().unwrap();
    let values = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            (problem.objective(&x).unwrap(), problem.loss(2, &x).unwrap(), problem.measure(&x).unwrap())
        })
    };
    assert_eq!(values(1), values(3));
    assert_eq!(values(1).0, problem.objective(&x).unwrap());
}

#[test]
fn accuracy_is_measured_on_a_fixed_sample_of_the_test_set() {
    let accuracy = |seed: u64, test_samples: Option<usize>| {
        let config = ImageSpec { seed, test_samples, ..config(Preset::Linear, Batch::Full) };
        let problem = problem(&config);
        let x = problem.initial(0).unwrap().unwrap();
        let once = problem.measure(&x).unwrap()[0];
        assert_eq!(once, problem.measure(&x).unwrap()[0], "the same at every evaluation");
        once
    };
    assert_eq!(accuracy(0, Some(150)), accuracy(0, None));
    let correct: Vec<f64> = (0..8).map(|seed| 40.0 * accuracy(seed, Some(40))).collect();
    assert!(correct.iter().all(|n| (n - n.round()).abs() < 1e-9), "of 40: {correct:?}");
    assert!(correct.iter().any(|n| *n != correct[0]), "drawn from the seed: {correct:?}");
}

#[test]
fn both_precisions_start_alike_and_agree() {
    let config = config(Preset::MnistCnn, Batch::Size(9));
    let (single, double) = (ImageProblem::<f32>::try_new(data(), &config).unwrap(), problem(&config));
    let (x, y) = (single.initial(3).unwrap().unwrap(), double.initial(3).unwrap().unwrap());
    assert!(x.iter().zip(&y).all(|(&x, &y)| f64::from(x) == y));
    assert!((single.objective(&x).unwrap() - double.objective(&y).unwrap()).abs() < 1e-5);
    assert_eq!(single.measure(&x).unwrap(), double.measure(&y).unwrap());
}

#[test]
fn large_problems_do_not_record_gradient_norms() {
    assert!(problem(&config(Preset::Linear, Batch::Full)).records_gradient_norm());
    assert!(!problem(&config(Preset::MnistCnn, Batch::Full)).records_gradient_norm());
}

#[test]
fn wrong_configurations_are_refused() {
    let refuse = |config: &ImageSpec| ImageProblem::<f32>::try_new(data(), config).unwrap_err();
    let good = config(Preset::Linear, Batch::Full);
    assert_eq!(refuse(&ImageSpec { batch: Batch::Size(0), ..good.clone() }), ProblemError::EmptyBatch);
    assert_eq!(
        refuse(&ImageSpec { evaluation: Evaluation::PerAgent(0), ..good.clone() }),
        ProblemError::EmptyEvaluation
    );
    for got in [0, 151] {
        let error = refuse(&ImageSpec { test_samples: Some(got), ..good.clone() });
        assert_eq!(error, ProblemError::TestSamples { got, most: 150 });
    }
    assert!(matches!(refuse(&ImageSpec { agents: 601, ..good.clone() }), ProblemError::Partition(_)));
    assert!(matches!(
        refuse(&ImageSpec { model: ModelSpec::Layers(vec![]), ..good }),
        ProblemError::Model(_)
    ));
}

#[test]
fn gradient_descent_learns_glyphs() {
    let problem = ImageProblem::<f32>::try_new(
        Arc::new(glyphs::generate(0, 1500, 300)),
        &ImageSpec { partition: Partition::Iid {}, agents: 1, ..config(Preset::MnistCnn, Batch::Size(32)) },
    )
    .unwrap();
    let mut x = problem.initial(0).unwrap().unwrap();
    let mut gradient = vec![0.0; problem.dim()];
    for step in 0..300 {
        problem.sample_gradient(0, &x, Draw { seed: 0, step }, &mut gradient).unwrap();
        x.iter_mut().zip(&gradient).for_each(|(x, g)| *x -= 0.1 * g);
    }
    let accuracy = problem.measure(&x).unwrap()[0];
    assert!(accuracy > 0.6, "{accuracy}");
}

#[test]
fn weight_decay_is_a_part_of_the_loss_and_its_gradient_is_checked() {
    let config = config(Preset::Mlp, Batch::Size(16));
    let (plain, decayed) = (problem(&config), problem(&config).with_weight_decay(0.3).unwrap());
    let mut x = plain.initial(0).unwrap().unwrap();
    let half_square = |x: &[f64]| 0.5 * x.iter().map(|v| v * v).sum::<f64>();
    let added = decayed.loss(2, &x).unwrap() - plain.loss(2, &x).unwrap();
    assert!((added - 0.3 * half_square(&x)).abs() < 1e-9, "{added}");
    let added = decayed.objective(&x).unwrap() - plain.objective(&x).unwrap();
    assert!((added - 0.3 * half_square(&x)).abs() < 1e-9, "{added}");
    // What is measured on the test set has no penalty.
    assert_eq!(decayed.measure(&x).unwrap(), plain.measure(&x).unwrap());
    let mut exact = vec![0.0; decayed.dim()];
    decayed.gradient(2, &x, &mut exact).unwrap();
    for i in [0, 777, decayed.dim() / 2, decayed.dim() - 1] {
        let (old, h) = (x[i], 1e-5);
        let mut loss = |value| {
            x[i] = value;
            decayed.loss(2, &x).unwrap()
        };
        let central = (loss(old + h) - loss(old - h)) / (2.0 * h);
        x[i] = old;
        assert!((central - exact[i]).abs() < 1e-7, "{i}: {central} {}", exact[i]);
    }
    // Also for a mini-batch.
    let (with, without) = (at(&decayed, 1, &x, 4), at(&plain, 1, &x, 4));
    for ((with, without), x) in with.iter().zip(&without).zip(&x) {
        assert_eq!(*with, without + 0.3 * x);
    }
    assert_eq!(at(&problem(&config).with_weight_decay(0.0).unwrap(), 1, &x, 4), without);
    for bad in [-0.1, f64::NAN, f64::INFINITY] {
        let refused = problem(&config).with_weight_decay(bad).unwrap_err();
        assert!(matches!(refused, ProblemError::WeightDecay { .. }), "{refused}");
    }
}
