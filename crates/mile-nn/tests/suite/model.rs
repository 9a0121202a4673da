//! Layer lists: what they are inferred to be, and what is refused.

use mile_nn::data::Shape;
use mile_nn::model::{Layer, Model, ModelError, ModelSpec, Preset};

const MNIST: Shape = Shape { height: 28, width: 28, channels: 1 };
const CIFAR: Shape = Shape { height: 32, width: 32, channels: 3 };

#[derive(Debug, serde::Deserialize)]
struct Problem {
    model: ModelSpec,
}

fn read(text: &str) -> Result<ModelSpec, toml::de::Error> {
    toml::from_str::<Problem>(text).map(|problem| problem.model)
}

fn build(layers: &[Layer]) -> Result<Model, ModelError> {
    Model::try_new(&ModelSpec::Layers(layers.to_vec()), MNIST, 10)
}

#[test]
fn the_papers_networks_have_the_papers_sizes() {
    let mnist = Model::try_new(&ModelSpec::Preset(Preset::MnistCnn), MNIST, 10).unwrap();
    assert_eq!(mnist.dim(), 28_938);
    assert_eq!(mnist.flops(), 16_401_280);
    let cifar = Model::try_new(&ModelSpec::Preset(Preset::CifarCnn), CIFAR, 10).unwrap();
    assert_eq!(cifar.dim(), 896 + 18_496 + 73_856 + 524_544 + 2_570);
    assert_eq!(cifar.flops() / 10_000, 6_332);
    assert!(cifar.has_dropout() && !mnist.has_dropout());
    assert_eq!(Model::try_new(&ModelSpec::Preset(Preset::Linear), MNIST, 10).unwrap().dim(), 7_850);
    assert_eq!(Model::try_new(&ModelSpec::Preset(Preset::Mlp), MNIST, 10).unwrap().dim(), 101_770);
}

#[test]
fn an_experiment_file_names_a_preset_or_lists_layers() {
    assert_eq!(read("model = \"mnist-cnn\"").unwrap(), ModelSpec::Preset(Preset::MnistCnn));
    let list = "[{ kind = \"conv\", out = 16, kernel = 5, padding = 2 }, { kind = \"relu\" }, { kind = \"max-pool\" },
        { kind = \"flatten\" }, { kind = \"dropout\", p = 0.5 }, { kind = \"dense\", out = 10 }]";
    let expected = ModelSpec::Layers(vec![
        Layer::Conv { out: 16, kernel: 5, padding: 2, stride: 1 },
        Layer::Relu {},
        Layer::MaxPool { size: 2, stride: None },
        Layer::Flatten {},
        Layer::Dropout { p: 0.5 },
        Layer::Dense { out: 10 },
    ]);
    assert_eq!(read(&format!("model = {list}")).unwrap(), expected);
    assert_eq!(read(&format!("model = {{ layers = {list} }}")).unwrap(), expected);
    assert!(Model::try_new(&expected, MNIST, 10).is_ok());
}

#[test]
fn strides_and_pools_shrink_images() {
    let text = "[{ kind = \"conv\", out = 8, kernel = 3, padding = 1, stride = 2 }, { kind = \"max-pool\", size = 3, stride = 2 },
        { kind = \"average-pool\" }, { kind = \"average-pool\", size = 3 }, { kind = \"dense\", out = 10 }]";
    let model = Model::try_new(&read(&format!("model = {text}")).unwrap(), MNIST, 10).unwrap();
    // 28 to 14, 6, 3 and 1.
    assert_eq!(model.dim(), 9 * 8 + 8 + 8 * 10 + 10);
    assert_eq!(model.flops(), 2 * 9 * 14 * 14 * 8 * 2 + 2 * 8 * 10 * 3);
}

#[test]
fn a_residual_connection_has_layers_that_keep_the_shape() {
    let text = "model = [{ kind = \"conv\", out = 4, kernel = 3, padding = 1 }, { kind = \"relu\" },
        { kind = \"residual\", layers = [{ kind = \"conv\", out = 4, kernel = 3, padding = 1 }, { kind = \"group-norm\", groups = 1 }] },
        { kind = \"relu\" }, { kind = \"dense\", out = 10 }]";
    let model = Model::try_new(&read(text).unwrap(), MNIST, 10).unwrap();
    assert_eq!(model.dim(), 40 + 148 + 8 + 784 * 4 * 10 + 10);
    let names: Vec<_> = model.state_dict(&model.initial(0)).into_iter().map(|t| t.name).collect();
    let bare = ["conv1", "conv2", "norm1", "fc1"];
    assert_eq!(names, bare.map(|name| [format!("{name}.weight"), format!("{name}.bias")]).concat());

    let conv = |out| Layer::Conv { out, kernel: 3, padding: 1, stride: 1 };
    let refused = |inner: &[Layer]| {
        let layers = [conv(4), Layer::Residual { layers: inner.to_vec() }, Layer::Dense { out: 10 }];
        build(&layers).unwrap_err()
    };
    let shape = |channels| Shape { height: 28, width: 28, channels };
    let widened = ModelError::Residual { layer: 2, input: shape(4), output: shape(5) };
    assert_eq!(refused(&[conv(5)]), widened);
    assert!(matches!(refused(&[]), ModelError::Residual { layer: 2, .. }));
    assert!(matches!(refused(&[Layer::Flatten {}]), ModelError::Residual { layer: 2, .. }));
    // What is first in it cannot be added to the layer before it.
    assert!(matches!(refused(&[Layer::Relu {}, conv(4)]), ModelError::Order { layer: 3, .. }));
    assert!(matches!(
        refused(&[Layer::MaxPool { size: 2, stride: None }]),
        ModelError::Residual { layer: 2, .. }
    ));
    assert!(matches!(refused(&[conv(4), Layer::Dense { out: 4 }]), ModelError::Residual { layer: 2, .. }));
    let ends = [Layer::Residual { layers: vec![conv(1)] }];
    assert!(matches!(build(&ends), Err(ModelError::NoDense { .. })));
}

#[test]
fn what_a_file_gets_wrong_is_named() {
    let text = read("model = \"resnet\"").unwrap_err().to_string();
    assert!(text.contains("mnist-cnn"), "{text}");
    let text = read("model = [{ kind = \"conv\", outs = 3, kernel = 3 }]").unwrap_err().to_string();
    assert!(text.contains("outs"), "{text}");
    assert!(read("model = 3").is_err());
}

#[test]
fn a_stack_that_does_not_fit_is_refused_with_the_layer() {
    let conv = |kernel, padding| Layer::Conv { out: 4, kernel, padding, stride: 1 };
    let strided = |stride| Layer::Conv { out: 4, kernel: 3, padding: 1, stride };
    let max_pool = |size, stride| Layer::MaxPool { size, stride };
    const DENSE: Layer = Layer::Dense { out: 10 };
    assert!(matches!(build(&[conv(31, 1), DENSE]), Err(ModelError::Kernel { layer: 1, kernel: 31, .. })));
    assert!(matches!(build(&[conv(3, 3), DENSE]), Err(ModelError::Kernel { layer: 1, .. })));
    assert!(matches!(build(&[conv(0, 0), DENSE]), Err(ModelError::Kernel { layer: 1, .. })));
    for stride in [0, 31, usize::MAX] {
        assert!(
            matches!(build(&[strided(stride), DENSE]), Err(ModelError::Kernel { layer: 1, .. })),
            "{stride}"
        );
    }
    let small = [conv(28, 0), max_pool(2, None), DENSE];
    assert!(matches!(build(&small), Err(ModelError::Pool { layer: 2, size: 2, .. })));
    let small = [strided(2), Layer::AveragePool { size: 15, stride: Some(1) }, DENSE];
    assert!(matches!(build(&small), Err(ModelError::Pool { layer: 2, size: 15, .. })));
    assert!(matches!(build(&[DENSE, max_pool(1, None)]), Err(ModelError::Order { layer: 2, .. })));
    assert!(matches!(build(&[DENSE, conv(1, 0)]), Err(ModelError::Order { layer: 2, .. })));
    assert!(matches!(build(&[Layer::Relu {}, DENSE]), Err(ModelError::Order { layer: 1, .. })));
    assert!(matches!(build(&[DENSE, Layer::Relu {}]), Err(ModelError::Order { .. })));
    assert!(matches!(build(&[conv(3, 1)]), Err(ModelError::NoDense { classes: 10 })));
    assert!(matches!(build(&[]), Err(ModelError::NoDense { .. })));
    assert!(matches!(build(&[Layer::Dense { out: 9 }]), Err(ModelError::Outputs { out: 9, classes: 10 })));
    for groups in [0, 3] {
        let norm = [conv(3, 1), Layer::GroupNorm { groups }, DENSE];
        assert!(matches!(build(&norm), Err(ModelError::Order { layer: 2, .. })), "{groups}");
    }
    for (size, stride) in [(0, None), (2, Some(0)), (256, None)] {
        let pool = [conv(3, 1), max_pool(size, stride), DENSE];
        assert!(matches!(build(&pool), Err(ModelError::Range { layer: 2, .. })), "{size} {stride:?}");
    }
    for p in [1.0, -0.1, f32::NAN] {
        let dropout = [conv(3, 1), Layer::Dropout { p }, DENSE];
        assert!(matches!(build(&dropout), Err(ModelError::Range { layer: 2, .. })));
    }
    for huge in [
        Layer::Dense { out: usize::MAX },
        Layer::Dense { out: 0 },
        conv(usize::MAX / 2, usize::MAX / 2 - 1),
        conv(1 << 40, (1 << 40) - 1),
        conv(9000, 8999),
    ] {
        assert!(matches!(build(&[huge.clone(), DENSE]), Err(ModelError::Range { layer: 1, .. })), "{huge:?}");
    }
}

#[test]
fn the_start_is_uniform_within_the_fan_in_bound_and_a_function_of_the_seed() {
    let model = Model::try_new(&ModelSpec::Preset(Preset::MnistCnn), MNIST, 10).unwrap();
    let start = model.initial(5);
    assert_eq!(start, model.initial(5));
    assert_ne!(start, model.initial(6));
    let within = |range: std::ops::Range<usize>, bound: f32| {
        let largest = start[range].iter().fold(0.0f32, |m, x| m.max(x.abs()));
        assert!(largest <= bound && largest > 0.9 * bound, "{largest} of {bound}");
    };
    within(0..416, 1.0 / 5.0);
    within(416..13_248, 1.0 / 20.0);
    within(13_248..28_938, 1.0 / (1568f32).sqrt());
}

#[test]
fn the_state_dict_has_pytorchs_names_shapes_and_order() {
    let shape = Shape { height: 2, width: 3, channels: 2 };
    let layers = vec![Layer::Conv { out: 3, kernel: 2, padding: 1, stride: 1 }, Layer::Dense { out: 2 }];
    let model = Model::try_new(&ModelSpec::Layers(layers), shape, 2).unwrap();
    let parameters: Vec<f32> = (0..model.dim()).map(|i| i as f32).collect();
    let tensors = model.state_dict(&parameters);
    let heads: Vec<_> = tensors.iter().map(|t| (t.name.as_str(), t.shape.as_slice())).collect();
    let expected: [(&str, &[usize]); 4] =
        [("conv1.weight", &[3, 2, 2, 2]), ("conv1.bias", &[3]), ("fc1.weight", &[2, 36]), ("fc1.bias", &[2])];
    assert_eq!(heads, expected);
    // conv1.weight[o = 2][i = 1][row 0][column 1] lies at [row 0][column 1][i = 1][o = 2].
    assert_eq!(tensors[0].values[(2 * 2 + 1) * 4 + 1], ((2 + 1) * 3 + 2) as f32);
    // fc1.weight[o = 1][channel 2, row 1, column 3] of a 3 x 4 x 3 image lies at [row, column, channel][o].
    assert_eq!(tensors[2].values[36 + 2 * 12 + 4 + 3], (27 + ((4 + 3) * 3 + 2) * 2 + 1) as f32);
    let total: usize = tensors.iter().map(|t| t.values.len()).sum();
    assert_eq!(total, model.dim());
}

#[test]
fn normalisation_starts_as_nothing_more_and_is_exported_channel_first() {
    let text = "model = [{ kind = \"conv\", out = 4, kernel = 1 }, { kind = \"group-norm\", groups = 2 }, { kind = \"layer-norm\" },
        { kind = \"dense\", out = 3 }, { kind = \"layer-norm\" }, { kind = \"dense\", out = 2 }]";
    let shape = Shape { height: 2, width: 3, channels: 2 };
    let model = Model::try_new(&read(text).unwrap(), shape, 2).unwrap();
    let numbered: Vec<f32> = (0..model.dim()).map(|i| i as f32).collect();
    let (start, tensors) = (model.state_dict(&model.initial(0)), model.state_dict(&numbered));
    let heads: Vec<_> = tensors.iter().map(|t| (t.name.as_str(), t.shape.as_slice())).collect();
    let expected: [(&str, &[usize]); 6] = [
        ("norm1.weight", &[4]),
        ("norm1.bias", &[4]),
        ("norm2.weight", &[4, 2, 3]),
        ("norm2.bias", &[4, 2, 3]),
        ("norm3.weight", &[3]),
        ("norm3.bias", &[3]),
    ];
    let norms: Vec<_> = heads.iter().copied().filter(|(name, _)| name.starts_with("norm")).collect();
    assert_eq!(norms, expected);
    for tensor in start.iter().filter(|t| t.name.starts_with("norm")) {
        let value = if tensor.name.ends_with("weight") { 1.0 } else { 0.0 };
        assert!(tensor.values.iter().all(|x| *x == value), "{}", tensor.name);
    }
    // norm2.weight[channel 3][row 1][column 2] lies at [row][column][channel], after 12 + 8 parameters.
    let second = tensors.iter().find(|t| t.name == "norm2.weight").unwrap();
    assert_eq!(second.values[3 * 6 + 3 + 2], (20 + (3 + 2) * 4 + 3) as f32);
    assert_eq!(tensors.iter().map(|t| t.values.len()).sum::<usize>(), model.dim());
    let parts = model.parts();
    assert!(
        parts.iter().zip(&heads).all(|(part, head)| (part.name.as_str(), part.shape.as_slice()) == *head)
    );
    // Parts follow each other, and the values of each are those of its place in another order.
    let ends = parts.iter().map(|part| part.range.end);
    assert!(parts.iter().map(|part| part.range.start).eq([0].into_iter().chain(ends).take(parts.len())));
    for (part, tensor) in parts.iter().zip(&tensors) {
        let mut values = tensor.values.clone();
        values.sort_unstable_by(f32::total_cmp);
        assert_eq!(values, numbered[part.range.clone()], "{}", part.name);
    }
    let matrices: Vec<_> = parts.iter().filter_map(|part| part.matrix).collect();
    assert_eq!(matrices, [[2, 4], [24, 3], [3, 2]], "inputs times outputs, as they lie");
}
