//! Gradients: against a plain network in PyTorch's order, against central differences, and between
//! instruction sets.

use crate::common::plain;
use mile::random::{Purpose, stream};
use mile_nn::data::{Images, Shape, Targets, Values};
use mile_nn::model::{Layer, Model, ModelSpec};
use mile_nn::network::{Dropout, NeuralNetwork};
use mile_nn::{Isa, KernelScalar};
use rand::RngExt;

fn conv(out: usize, kernel: usize, padding: usize) -> Layer {
    strided(out, kernel, padding, 1)
}

fn strided(out: usize, kernel: usize, padding: usize, stride: usize) -> Layer {
    Layer::Conv { out, kernel, padding, stride }
}

fn max_pool(size: usize, stride: usize) -> Layer {
    Layer::MaxPool { size, stride: Some(stride) }
}

fn norm(groups: usize) -> Layer {
    Layer::GroupNorm { groups }
}

const LAYER_NORM: Layer = Layer::LayerNorm {};

fn residual(layers: &[Layer]) -> Layer {
    Layer::Residual { layers: layers.to_vec() }
}

fn average_pool(size: usize, stride: usize) -> Layer {
    Layer::AveragePool { size, stride: Some(stride) }
}

const RELU: Layer = Layer::Relu {};
const POOL: Layer = Layer::MaxPool { size: 2, stride: None };

/// Odd sizes on purpose: partial vectors, uneven tiles, strips that overlap, panels that are not full, squares that do
/// not cover the image.
fn odd_networks() -> Vec<(Shape, usize, Vec<Layer>)> {
    let dense = |out| Layer::Dense { out };
    let shape = |height, width, channels| Shape { height, width, channels };
    vec![
        (shape(5, 7, 1), 3, vec![dense(3)]),
        (shape(4, 3, 2), 4, vec![dense(19), RELU, dense(4)]),
        (shape(9, 7, 3), 5, vec![conv(5, 3, 1), RELU, POOL, dense(5)]),
        (
            shape(8, 11, 1),
            2,
            vec![conv(17, 5, 2), POOL, RELU, conv(33, 3, 0), RELU, dense(7), RELU, dense(2)],
        ),
        (shape(10, 17, 2), 10, vec![conv(32, 2, 1), RELU, conv(40, 3, 2), POOL, conv(3, 1, 0), dense(10)]),
        (
            shape(6, 29, 1),
            4,
            vec![conv(16, 5, 2), RELU, POOL, Layer::Dropout { p: 0.3 }, dense(64), RELU, dense(4)],
        ),
        (
            shape(7, 16, 3),
            4,
            vec![conv(48, 3, 1), RELU, conv(20, 5, 2), RELU, POOL, dense(150), RELU, dense(4)],
        ),
        (shape(2, 14, 1), 3, vec![conv(16, 5, 2), RELU, conv(20, 3, 1), conv(9, 5, 2), dense(3)]),
        (shape(3, 15, 1), 3, vec![conv(8, 3, 1), RELU, conv(70, 3, 1), dense(3)]),
        // Strides: phases of different sizes, kernels that are multiples of the stride, pixels that no output reads.
        (shape(11, 8, 2), 3, vec![strided(9, 3, 1, 2), RELU, strided(34, 3, 1, 2), RELU, dense(3)]),
        (shape(13, 10, 1), 3, vec![conv(6, 3, 1), strided(17, 5, 2, 3), RELU, strided(5, 2, 0, 2), dense(3)]),
        (shape(9, 19, 1), 2, vec![conv(3, 1, 0), RELU, strided(20, 6, 2, 2), strided(4, 1, 0, 3), dense(2)]),
        (shape(16, 30, 3), 3, vec![conv(4, 3, 1), RELU, strided(33, 6, 5, 2), RELU, POOL, dense(3)]),
        // Pooling of other sizes, overlapping, twice, first, and followed by relu and dropout.
        (
            shape(10, 11, 2),
            3,
            vec![conv(18, 3, 1), RELU, max_pool(3, 2), conv(7, 3, 1), average_pool(2, 2), dense(3)],
        ),
        (
            shape(9, 8, 3),
            3,
            vec![max_pool(2, 1), conv(5, 2, 0), POOL, POOL, RELU, Layer::Dropout { p: 0.3 }, dense(3)],
        ),
        (
            shape(12, 7, 1),
            2,
            vec![
                conv(35, 3, 1),
                average_pool(3, 1),
                RELU,
                average_pool(2, 3),
                conv(4, 1, 0),
                max_pool(2, 2),
                dense(2),
            ],
        ),
        // Normalisation, first, of images and of vectors, with what may follow it.
        (
            shape(7, 6, 3),
            3,
            vec![norm(1), conv(18, 3, 1), norm(6), RELU, POOL, conv(5, 3, 1), norm(5), dense(3)],
        ),
        (
            shape(5, 6, 2),
            3,
            vec![
                LAYER_NORM,
                conv(4, 3, 1),
                LAYER_NORM,
                RELU,
                Layer::Dropout { p: 0.3 },
                dense(37),
                LAYER_NORM,
                RELU,
                dense(3),
            ],
        ),
        (shape(1, 1, 20), 2, vec![dense(34), norm(17), RELU, Layer::Dropout { p: 0.3 }, dense(2)]),
        // Residual connections: first, nested, with what may follow, of vectors.
        (
            shape(6, 7, 2),
            3,
            vec![
                residual(&[conv(2, 3, 1), RELU]),
                conv(17, 3, 1),
                residual(&[conv(5, 1, 0), RELU, conv(17, 3, 1), norm(1)]),
                RELU,
                POOL,
                dense(3),
            ],
        ),
        (
            shape(7, 5, 1),
            3,
            vec![
                conv(6, 3, 1),
                RELU,
                residual(&[
                    residual(&[norm(3), RELU, conv(6, 3, 1)]),
                    max_pool(1, 1),
                    residual(&[conv(6, 3, 1)]),
                ]),
                Layer::Dropout { p: 0.3 },
                strided(4, 3, 1, 2),
                dense(3),
            ],
        ),
        (
            shape(1, 1, 9),
            2,
            vec![
                dense(21),
                residual(&[LAYER_NORM, dense(33), RELU, dense(21)]),
                RELU,
                residual(&[dense(21)]),
                dense(2),
            ],
        ),
    ]
}

/// Starting points with noise, so that scales are not 1 and shifts not 0.
fn start(model: &Model, seed: u64) -> Vec<f32> {
    let mut rng = stream(seed, Purpose::Probe, 0, 2);
    model.initial(seed).into_iter().map(|x| x + rng.random_range(-0.1..0.1)).collect()
}

fn random_images(shape: Shape, classes: usize, n: usize) -> Images {
    let mut rng = stream(0, Purpose::Probe, n as u64, 0);
    let pixels = (0..n * shape.len()).map(|_| rng.random()).collect();
    Images::new(pixels, (0..n).map(|_| rng.random_range(0..classes as u8)).collect())
}

fn gradient<T: KernelScalar>(
    model: &Model,
    isa: Isa,
    images: &Images,
    dropout: Option<Dropout>,
) -> (f64, Vec<T>) {
    let network = NeuralNetwork::<T>::with_isa(model.clone(), isa);
    let parameters: Vec<T> = start(model, 1).iter().map(|&x| T::of(f64::from(x))).collect();
    let samples: Vec<u32> = (0..images.len() as u32).collect();
    // Poisoned: any remainder of the old contents would be seen.
    let mut gradient = vec![T::nan(); model.dim()];
    let loss =
        network.gradient(&parameters, images, &samples, dropout, &mut network.workspace(), &mut gradient);
    (loss, gradient)
}

fn relative_difference<T: KernelScalar, U: KernelScalar>(a: &[T], b: &[U]) -> f64 {
    let norm = b.iter().map(|x| x.wide().powi(2)).sum::<f64>().sqrt();
    let difference = a.iter().zip(b).map(|(a, b)| (a.wide() - b.wide()).powi(2)).sum::<f64>().sqrt();
    difference / norm
}

const MASKS: Dropout = Dropout { seed: 3, agent: 1, step: 4 };

#[test]
fn instruction_sets_agree_within_rounding() {
    for (shape, classes, layers) in odd_networks() {
        let model = Model::try_new(&ModelSpec::Layers(layers.clone()), shape, classes).unwrap();
        for batch in [1, 3, 33, 65] {
            let images = random_images(shape, classes, batch);
            let (loss, reference) = gradient::<f64>(&model, Isa::Portable, &images, Some(MASKS));
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let (single_loss, single) = gradient::<f32>(&model, isa, &images, Some(MASKS));
                let (_, double) = gradient::<f64>(&model, isa, &images, Some(MASKS));
                let name = format!("{isa:?}, {layers:?}, batch {batch}");
                let (single, double) =
                    (relative_difference(&single, &reference), relative_difference(&double, &reference));
                assert!(single < 1e-5, "f32 {single:e}: {name}");
                assert!(double < 1e-13, "f64 {double:e}: {name}");
                assert!((single_loss - loss).abs() < 1e-5 * loss.abs(), "{single_loss} {loss}: {name}");
            }
        }
    }
}

#[test]
fn gradients_are_central_differences() {
    for (shape, classes, layers) in odd_networks() {
        let model = Model::try_new(&ModelSpec::Layers(layers.clone()), shape, classes).unwrap();
        let images = random_images(shape, classes, 3);
        let samples: Vec<u32> = (0..3).collect();
        let network = NeuralNetwork::<f64>::with_isa(model.clone(), Isa::Portable);
        let mut workspace = network.workspace();
        let mut parameters: Vec<f64> = start(&model, 1).into_iter().map(f64::from).collect();
        let (mut exact, mut scrap) = (vec![0.0; model.dim()], vec![0.0; model.dim()]);
        network.gradient(&parameters, &images, &samples, Some(MASKS), &mut workspace, &mut exact);
        let mut rng = stream(0, Purpose::Probe, 0, 1);
        let probes: Vec<usize> = (0..60).map(|_| rng.random_range(0..model.dim())).collect();
        for i in probes.into_iter().chain([0, model.dim() - 1]) {
            let (x, h) = (parameters[i], 1e-6);
            let mut loss = |value: f64| {
                parameters[i] = value;
                network.gradient(&parameters, &images, &samples, Some(MASKS), &mut workspace, &mut scrap)
            };
            let difference = (loss(x + h) - loss(x - h)) / (2.0 * h);
            parameters[i] = x;
            assert!(
                (difference - exact[i]).abs() < 1e-7,
                "parameter {i} of {layers:?}: {difference} {}",
                exact[i]
            );
        }
    }
}

#[test]
fn gradients_of_least_squares_are_central_differences() {
    for (shape, outputs, layers) in odd_networks() {
        let model = Model::try_new(&ModelSpec::Layers(layers.clone()), shape, outputs).unwrap();
        let mut rng = stream(0, Purpose::Probe, 7, 0);
        let mut numbers = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let doubles = numbers(3 * shape.len());
        let targets = Targets::Numbers { values: numbers(3 * outputs), each: outputs };
        let network = NeuralNetwork::<f64>::with_isa(model.clone(), Isa::Portable);
        let (mut workspace, mut gradient) = (network.workspace(), vec![0.0; model.dim()]);
        let singles = doubles.iter().map(|&x| x as f32).collect();
        for pixels in [Values::Doubles(doubles), Values::Singles(singles)] {
            let images = Images { pixels, targets: targets.clone() };
            let mut parameters: Vec<f64> = start(&model, 1).into_iter().map(f64::from).collect();
            network.gradient(&parameters, &images, &[0, 2], None, &mut workspace, &mut gradient);
            for i in [0, model.dim() / 2, model.dim() - 1] {
                let (x, h) = (parameters[i], 1e-6);
                let mut loss = |value: f64| {
                    parameters[i] = value;
                    network.score(&parameters, &images, &[0, 2], &mut workspace).loss / 2.0
                };
                let difference = (loss(x + h) - loss(x - h)) / (2.0 * h);
                parameters[i] = x;
                assert!(
                    (difference - gradient[i]).abs() < 1e-7,
                    "parameter {i} of {layers:?}: {difference} {}",
                    gradient[i]
                );
            }
        }
    }
}

#[test]
fn the_exported_parameters_give_the_same_scores_in_a_plain_network() {
    for (shape, classes, layers) in odd_networks() {
        let model = Model::try_new(&ModelSpec::Layers(layers.clone()), shape, classes).unwrap();
        let images = random_images(shape, classes, 5);
        let parameters = start(&model, 2);
        let tensors = model.state_dict(&parameters);
        let network = NeuralNetwork::<f32>::new(model);
        let logits = network.logits(&parameters, &images, &[0, 4, 2], &mut network.workspace());
        for (row, sample) in logits.chunks(classes).zip([0, 4, 2]) {
            let expected = plain::scores(&layers, shape, &tensors, images.image(sample).unwrap());
            for (a, b) in row.iter().zip(&expected) {
                assert!((f64::from(*a) - b).abs() < 1e-5, "{row:?} {expected:?} {layers:?}");
            }
        }
    }
}

#[test]
fn dropout_masks_are_a_function_of_seed_agent_and_step() {
    let has_dropout = |layers: &[Layer]| layers.iter().any(|layer| matches!(layer, Layer::Dropout { .. }));
    let mut networks = odd_networks().into_iter();
    let (shape, classes, layers) = networks.find(|(_, _, layers)| has_dropout(layers)).unwrap();
    let model = Model::try_new(&ModelSpec::Layers(layers), shape, classes).unwrap();
    let images = random_images(shape, classes, 4);
    let at = |dropout| gradient::<f32>(&model, Isa::best(), &images, dropout).1;
    let first = at(Some(MASKS));
    assert_eq!(first, at(Some(MASKS)));
    for other in [Dropout { seed: 4, ..MASKS }, Dropout { agent: 2, ..MASKS }, Dropout { step: 5, ..MASKS }] {
        assert_ne!(first, at(Some(other)));
    }
    assert_ne!(first, at(None));
}

#[test]
fn dropout_keeps_the_mean_of_the_scores_inputs() {
    // One dense layer of ones below dropout: the sum of what passes has the sum without dropout as mean.
    let shape = Shape { height: 1, width: 1, channels: 1 };
    let layers = vec![Layer::Dense { out: 4000 }, Layer::Dropout { p: 0.25 }, Layer::Dense { out: 2 }];
    let model = Model::try_new(&ModelSpec::Layers(layers), shape, 2).unwrap();
    let images = Images::new(vec![255], vec![0]);
    let network = NeuralNetwork::<f64>::new(model.clone());
    // First layer: weight 1, bias 0. Second: zero, so that its gradient is the dropped-out input times +-1/2.
    let mut parameters = vec![0.0; model.dim()];
    parameters[..4000].fill(1.0);
    let mut gradient = vec![0.0; model.dim()];
    network.gradient(&parameters, &images, &[0], Some(MASKS), &mut network.workspace(), &mut gradient);
    let passed: Vec<f64> = gradient[8000..16_000].chunks(2).map(|g| g[1] * 2.0).collect();
    let dropped = passed.iter().filter(|&&x| x == 0.0).count() as f64 / 4000.0;
    assert!((dropped - 0.25).abs() < 0.03, "{dropped} dropped");
    assert!(passed.iter().all(|&x| x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-12));
}

#[test]
fn nan_is_not_swallowed() {
    let (shape, classes, layers) = odd_networks().remove(3);
    let model = Model::try_new(&ModelSpec::Layers(layers), shape, classes).unwrap();
    let images = random_images(shape, classes, 2);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let network = NeuralNetwork::<f32>::with_isa(model.clone(), isa);
        let mut parameters = model.initial(0);
        parameters[7] = f32::NAN;
        let mut workspace = network.workspace();
        let score = network.score(&parameters, &images, &[0, 1], &mut workspace);
        assert!(score.loss.is_nan() && score.correct == 0, "{isa:?}: {score:?}");
        let mut gradient = vec![0.0; model.dim()];
        assert!(network.gradient(&parameters, &images, &[0], None, &mut workspace, &mut gradient).is_nan());
        assert!(gradient.iter().any(|g| g.is_nan()));
    }
}
