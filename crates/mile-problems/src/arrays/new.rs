//! Arrays of new samples, for a model that is already trained.

use std::path::Path;

use mile_nn::data::{Images, Shape, Values};
use serde::{Deserialize, Serialize};

use super::checked::{samples, targets_of};
use super::file::{Format, bad, read};
use super::spec::{DataSpec, Place, Source, Test};
use crate::error::LabError;
use crate::predictions::NewData;

/// How the arrays of new samples are read: as those of the training were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewArrays {
    /// Whether numbers are predicted, and not classes.
    pub(crate) predicts_numbers: bool,
    /// Whether images are `[channel][row][column]`.
    pub(crate) channels_first: bool,
    /// The names of the arrays in files with several.
    pub(crate) inputs: String,
    pub(crate) targets: String,
}

/// Whether a file has arrays, by its name.
pub(crate) fn is_arrays(path: &Path) -> bool {
    Format::of(path).is_some()
}

impl NewArrays {
    /// How pictures are read that came from a data set of the catalogue.
    pub(crate) fn of_images() -> Self {
        let [inputs, targets] = ["x", "y"].map(str::to_owned);
        Self { predicts_numbers: false, channels_first: false, inputs, targets }
    }

    /// As in training.
    pub(super) fn like(data: &DataSpec) -> Self {
        let name = |place: &Place, usual: &str| place.array.clone().unwrap_or(usual.to_owned());
        Self {
            predicts_numbers: data.predicts_numbers,
            channels_first: data.channels_first,
            inputs: name(&data.train.inputs, "x"),
            targets: name(&data.train.targets, "y"),
        }
    }

    fn config(&self, data: &Path, classes: Option<usize>) -> DataSpec {
        let place = || Place { key: "data", path: data.to_owned(), array: None };
        DataSpec {
            train: Source { inputs: place(), targets: place() },
            test: Test::None,
            channels_first: self.channels_first,
            predicts_numbers: self.predicts_numbers,
            classes: classes.filter(|_| !self.predicts_numbers),
            agents: 1,
            only: None,
        }
    }

    /// The inputs in a file.
    pub(crate) fn inputs(&self, data: &Path) -> Result<(Shape, Values), LabError> {
        let name = (Format::of(data) != Some(Format::Npy)).then_some(self.inputs.as_str());
        let array = read(data, &[name])?.swap_remove(0);
        let config = self.config(data, None);
        Ok(samples(&config, array, None).map_err(|problem| bad(data, name, problem))?)
    }

    /// The inputs and the targets of `outputs` classes, or as many numbers.
    pub(crate) fn samples(&self, new: NewData, outputs: usize) -> Result<(Shape, Images), LabError> {
        let targets_file = match (new.targets, Format::of(new.data)) {
            (Some(path), _) => path,
            (None, Some(Format::Npz | Format::Safetensors)) => new.data,
            (None, _) => {
                let expected = "a .npz or .safetensors file with inputs and targets, or the file of the targets as --targets";
                return Err(LabError::expected("DATA", expected, new.data.display()));
            }
        };
        let (shape, pixels) = self.inputs(new.data)?;
        let name = (Format::of(targets_file) != Some(Format::Npy)).then_some(self.targets.as_str());
        let array = read(targets_file, &[name])?.swap_remove(0);
        let (config, count) = (self.config(new.data, Some(outputs)), pixels.len() / shape.len().max(1));
        let targets = targets_of(&config, array, count, None);
        Ok((shape, Images { pixels, targets: targets.map_err(|problem| bad(targets_file, name, problem))? }))
    }
}
