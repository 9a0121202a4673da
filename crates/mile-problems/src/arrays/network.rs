//! A trained neural network on new arrays and pictures.

use std::path::Path;
use std::sync::Arc;

use mile::problems::{Batch, HeldOut, Metric};
use mile_nn::data::{self, Dataset, Images, Shape, Targets, Values};
use mile_nn::model::{Model, ModelSpec};
use mile_nn::network::{CHUNK, NeuralNetwork};
use mile_nn::partition::Partition;
use mile_nn::problem::{Evaluation, ImageSpec, Parts};
use mile_nn::{ImageProblem, KernelScalar};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::new::{NewArrays, is_arrays};
use crate::error::LabError;
use crate::failed;
use crate::pictures;
use crate::predictions::{ModelTensor, NewData, Predictions, of_shape};

/// What the parameters of a neural network mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainedNetwork {
    /// Its layers.
    pub(crate) model: ModelSpec,
    /// Rows, columns and channels of a sample.
    pub(crate) shape: [usize; 3],
    /// Number of classes, or of the numbers that are predicted.
    pub(crate) outputs: usize,
    /// How the arrays of a file are read.
    #[serde(flatten)]
    pub(crate) arrays: NewArrays,
}

impl TrainedNetwork {
    fn shape(&self) -> Shape {
        let [height, width, channels] = self.shape;
        Shape { height, width, channels }
    }

    fn network(&self) -> Result<Model, LabError> {
        Model::try_new(&self.model, self.shape(), self.outputs)
            .map_err(|error| LabError::config("model.json", error))
    }

    /// Number of parameters; 0 if the layers do not fit the shape.
    pub(crate) fn dim(&self) -> usize {
        self.network().map_or(0, |model| model.dim())
    }

    pub(crate) fn inputs(&self) -> String {
        let [height, width, channels] = self.shape;
        match [height, width] {
            [1, 1] => format!("samples of {channels} numbers"),
            _ => {
                let channels =
                    if channels == 1 { "1 channel".to_owned() } else { format!("{channels} channels") };
                format!("images of {height} x {width} pixels with {channels}, bytes divided by 255")
            }
        }
    }

    pub(crate) fn outputs(&self) -> String {
        match self.arrays.predicts_numbers {
            true if self.outputs == 1 => "a number".to_owned(),
            true => format!("{} numbers", self.outputs),
            false => format!("a class from 0 to {}", self.outputs.saturating_sub(1)),
        }
    }

    /// Refuses samples of another shape.
    fn check(&self, data: &Path, found: Shape) -> Result<(), LabError> {
        if found == self.shape() {
            return Ok(());
        }
        let problem = format!("expected samples of {}, as in training, got {found}", self.shape());
        Err(LabError::Directory { path: data.to_owned(), problem })
    }

    /// A prediction for each sample of a file of arrays, for a picture, or for each picture of a folder.
    pub(crate) fn predict(&self, x: &[f64], data: &Path) -> Result<Predictions, LabError> {
        let (shape, pixels, names) = match is_arrays(data) {
            true => {
                let (shape, pixels) = self.arrays.inputs(data)?;
                (shape, pixels, None)
            }
            false => {
                let (names, shape, pixels) = pictures::read(data)?;
                (shape, Values::Bytes(pixels), Some(names))
            }
        };
        self.check(data, shape)?;
        let count = pixels.len() / shape.len().max(1);
        let images = Images { pixels, targets: Targets::Labels(vec![0; count]) };
        let network = NeuralNetwork::<f64>::new(self.network()?);
        let samples: Vec<u32> = (0..count as u32).collect();
        let outputs: Vec<f64> = samples
            .par_chunks(CHUNK)
            .flat_map_iter(|chunk| network.logits(x, &images, chunk, &mut network.workspace()))
            .collect();
        let classes: Vec<String> = (0..self.outputs).map(|class| class.to_string()).collect();
        let mut columns: Vec<String> = names.iter().map(|_| "file".to_owned()).collect();
        match self.arrays.predicts_numbers {
            true if self.outputs == 1 => columns.push("prediction".to_owned()),
            true => columns.extend(classes.iter().map(|number| format!("prediction {number}"))),
            false => {
                columns.push("prediction".to_owned());
                columns.extend(classes.iter().map(|class| format!("probability {class}")));
            }
        }
        let row = |(k, outputs): (usize, &[f64])| {
            let mut cells: Vec<String> = names.iter().map(|names| names[k].clone()).collect();
            match self.arrays.predicts_numbers {
                true => cells.extend(outputs.iter().map(f64::to_string)),
                false => cells.extend(Predictions::of_classes(&classes, outputs)),
            }
            cells
        };
        let rows = outputs.chunks(self.outputs.max(1)).enumerate().map(row).collect();
        Ok(Predictions { columns, rows })
    }

    /// The metrics of a model on the samples of a file, which has targets, or on the test set of an image data set.
    pub(crate) fn evaluate<T: KernelScalar>(
        &self,
        x: &[T],
        new: NewData,
    ) -> Result<Vec<(Metric, f64)>, LabError> {
        let (shape, images) = match new.data.to_str().filter(|_| !new.data.exists()) {
            Some(name) if data::list().iter().any(|entry| entry.name == name) => {
                let set = data::load(name, None)?;
                (set.shape, set.test)
            }
            _ => self.arrays.samples(new, self.outputs)?,
        };
        self.check(new.data, shape)?;
        let invalid = |problem: String| LabError::Directory { path: new.data.to_owned(), problem };
        let all: Vec<u32> = (0..images.len() as u32).collect();
        let none = Images::new(Vec::new(), Vec::new());
        let set = Dataset::try_new("new data", shape, self.outputs, images, none)?;
        let spec = ImageSpec {
            model: self.model.clone(),
            partition: Partition::Iid {},
            agents: 1,
            seed: 0,
            batch: Batch::Full,
            evaluation: Evaluation::All,
            test_samples: None,
        };
        let parts = Parts { train: vec![all.clone()], held_out: Some(all) };
        let problem = ImageProblem::<T>::with_parts(Arc::new(set), &spec, parts)
            .map_err(|error| invalid(error.to_string()))?;
        let values = problem.measure(x).map_err(failed)?;
        Ok(problem.metrics().iter().copied().zip(values).collect())
    }

    pub(crate) fn tensors(&self, x: &[f64]) -> Vec<ModelTensor> {
        let Ok(model) = self.network() else { return Vec::new() };
        let tensor = |(name, shape, values)| ModelTensor { name, shape, values };
        model.in_torch_order(x).into_iter().map(tensor).collect()
    }

    pub(crate) fn parameters(&self, tensors: &[ModelTensor]) -> Result<Vec<f64>, String> {
        let model = self.network().map_err(|error| error.to_string())?;
        let places: Vec<usize> = (0..model.dim()).collect();
        let mut x = vec![0.0; model.dim()];
        for (name, shape, places) in model.in_torch_order(&places) {
            let values = of_shape(tensors, &name, &shape)?;
            places.iter().zip(values).for_each(|(place, value)| x[*place] = *value);
        }
        Ok(x)
    }
}
