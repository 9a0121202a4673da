//! Trained networks with images, scores and a gradient, for PyTorch to compare.
//!
//! Each network gets a folder: `manifest.json` names what follows; `tensors.f32` and `gradient.f32` hold
//! the state dict's tensors one after the other, `images.u8` the test images (row, column, channel),
//! `labels.u8` their labels, `logits.f32` the scores.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use mile::problems::{Draw, Problem, Tensor};
use mile_nn::data::{self, Dataset, Images, Shape, glyphs};
use mile_nn::model::ModelSpec;
use mile_nn::network::NeuralNetwork;
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec};
use mile_nn::{Batch, ImageProblem};
use serde_json::json;

use crate::speed::{CIFAR, MNIST, networks, noise};

/// Test images that are compared.
const COMPARED: usize = 2000;

/// Writes the networks below `directory`.
pub fn write(directory: &Path) -> io::Result<()> {
    for (name, model, shape) in networks() {
        let data = Arc::new(data_for(shape));
        let problem = ImageProblem::<f32>::try_new(data, &config(model)).map_err(io::Error::other)?;
        let x = trained(&problem);
        let folder = directory.join(name);
        fs::create_dir_all(&folder)?;
        network(&problem, &x, &folder)?;
    }
    Ok(())
}

/// The data set with images of this shape, if it is on this machine; otherwise generated images of the same shape.
fn data_for(shape: Shape) -> Dataset {
    if shape == MNIST {
        return data::load("mnist", None).unwrap_or_else(|_| glyphs::generate(0, 4000, COMPARED));
    }
    data::load("cifar10", None).unwrap_or_else(|_| {
        let noise = || noise(CIFAR, COMPARED);
        Dataset::try_new("noise", CIFAR, 10, noise(), noise()).expect("noise fits")
    })
}

fn config(model: ModelSpec) -> ImageSpec {
    ImageSpec {
        model,
        partition: Partition::Iid {},
        agents: 1,
        seed: 0,
        batch: Batch::Size(32),
        evaluation: Evaluation::PerAgent(COMPARED),
        test_samples: None,
    }
}

/// Some steps of gradient descent: enough to tell classes apart.
fn trained(problem: &ImageProblem<f32>) -> Vec<f32> {
    let mut x = problem.initial(0).ok().flatten().expect("networks have a start");
    let mut gradient = vec![0.0; problem.dim()];
    for step in 0..300 {
        problem.sample_gradient(0, &x, Draw { seed: 0, step }, &mut gradient).expect("a gradient");
        x.iter_mut().zip(&gradient).for_each(|(x, g)| *x -= 0.05 * g);
    }
    x
}

fn network(problem: &ImageProblem<f32>, x: &[f32], folder: &Path) -> io::Result<()> {
    let (model, data) = (problem.model(), problem.data());
    let test: &Images = &data.test;
    let count = test.len().min(COMPARED);
    let samples: Vec<u32> = (0..count as u32).collect();
    let network = NeuralNetwork::<f32>::new(model.clone());
    let mut workspace = network.workspace();
    let logits = network.logits(x, test, &samples, &mut workspace);
    let score = network.score(x, test, &samples, &mut workspace);
    let mut gradient = vec![0.0; model.dim()];
    let loss = network.gradient(x, test, &samples[..128], None, &mut workspace, &mut gradient);
    let tensors = model.state_dict(x);
    let heads: Vec<_> = tensors.iter().map(|t| json!({ "name": t.name, "shape": t.shape })).collect();
    let shape = [data.shape.height, data.shape.width, data.shape.channels];
    let manifest = json!({
        "data": data.name, "count": count, "shape": shape, "classes": data.classes, "tensors": heads,
        "accuracy": score.correct as f64 / count as f64, "gradient_batch": 128, "gradient_loss": loss,
    });
    let floats = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let all = |tensors: &[Tensor]| tensors.iter().flat_map(|t| floats(&t.values)).collect::<Vec<u8>>();
    fs::write(folder.join("manifest.json"), manifest.to_string())?;
    fs::write(folder.join("tensors.f32"), all(&tensors))?;
    fs::write(folder.join("gradient.f32"), all(&model.state_dict(&gradient)))?;
    let pixels = (0..count).flat_map(|i| test.image(i).unwrap_or_default()).copied();
    fs::write(folder.join("images.u8"), pixels.collect::<Vec<u8>>())?;
    fs::write(folder.join("labels.u8"), &test.labels()[..count])?;
    fs::write(folder.join("logits.f32"), floats(&logits))
}
