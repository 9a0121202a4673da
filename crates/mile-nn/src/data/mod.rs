//! Image data sets: catalogue, download and reading.
//!
//! [`load`] reads a data set into memory; [`list`], [`locate`] and [`get`] are used by `mile data`.
//! [`glyphs`](glyphs::generate) is generated and needs neither files nor network.

mod catalog;
mod cifar;
mod error;
mod fetch;
pub mod glyphs;
mod idx;

use std::path::Path;

pub use catalog::{DatasetEntry, Located, list, locate, search_path};
pub use error::DataError;
pub use fetch::{DownloadProgress, get};
pub use mile::problems::device::{Images, Shape, Targets, Values};

/// A file of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataFile {
    /// Its name; `.gz` is added if it is compressed.
    pub name: &'static str,
    /// SHA-256 of its content, decompressed, in hexadecimal.
    pub sha256: &'static str,
}

/// A data set in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Its name in experiment files.
    pub name: String,
    /// The training set.
    pub train: Images,
    /// The test set, on which the accuracy is measured; it may be empty.
    pub test: Images,
    /// Number of classes, or of the numbers predicted for each sample.
    pub classes: usize,
    /// Shape of each image.
    pub shape: Shape,
}

impl Dataset {
    /// A data set of your own; an error if pixels, targets and shape do not match.
    pub fn try_new(
        name: impl Into<String>,
        shape: Shape,
        classes: usize,
        train: Images,
        test: Images,
    ) -> Result<Self, DataError> {
        let name = name.into();
        for (part, images) in [("train", &train), ("test", &test)] {
            let is_missing = images.is_empty() && part == "train";
            if is_missing || images.pixels.len() != images.len() * shape.len() {
                let (pixels, labels) = (images.pixels.len(), images.len());
                return Err(DataError::Shape { name, part, pixels, labels, shape });
            }
            if let Targets::Numbers { each, .. } = images.targets
                && each != classes
            {
                return Err(DataError::Numbers { name, part, each, expected: classes });
            }
            let labels = images.labels();
            if let Some(index) = labels.iter().position(|&l| usize::from(l) >= classes) {
                return Err(DataError::Label { name, part, index, label: labels[index], classes });
            }
        }
        Ok(Self { name, train, test, classes, shape })
    }
}

/// Loads data set `name`: reads it from the directory that [`locate`] finds, or generates it.
pub fn load(name: &str, data_dir: Option<&Path>) -> Result<Dataset, DataError> {
    match locate(name, data_dir)? {
        Located::Generated => Ok(glyphs::generate(0, glyphs::TRAIN, glyphs::TEST)),
        Located::Directory(directory) => catalog::find(name)?.read(&directory),
    }
}
