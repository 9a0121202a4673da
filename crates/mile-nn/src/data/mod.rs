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

pub use catalog::{Entry, Located, list, locate, search_path};
pub use error::DataError;
pub use fetch::{Progress, get};

/// Height, width and channels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Colour channels.
    pub channels: usize,
}

impl Shape {
    /// Number of values in one image.
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether an image has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} x {}", self.height, self.width, self.channels)
    }
}

/// Labelled images, one byte per pixel and channel, in the order height, width, channel (HWC).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// All pixels, image after image.
    pub pixels: Vec<u8>,
    /// One label per image.
    pub labels: Vec<u8>,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of image `i`.
    pub fn image(&self, i: usize) -> &[u8] {
        let size = self.pixels.len() / self.labels.len();
        &self.pixels[i * size..(i + 1) * size]
    }
}

/// A data set in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Its name in experiment files.
    pub name: String,
    /// The training set.
    pub train: Images,
    /// The test set.
    pub test: Images,
    /// Number of classes.
    pub classes: usize,
    /// Shape of each image.
    pub shape: Shape,
}

impl Dataset {
    /// A data set of your own; an error if pixels, labels and shape do not match.
    pub fn try_new(
        name: impl Into<String>,
        shape: Shape,
        classes: usize,
        train: Images,
        test: Images,
    ) -> Result<Self, DataError> {
        let name = name.into();
        for (part, images) in [("train", &train), ("test", &test)] {
            if images.is_empty() || images.pixels.len() != images.len() * shape.len() {
                let (pixels, labels) = (images.pixels.len(), images.len());
                return Err(DataError::Shape { name, part, pixels, labels, shape });
            }
            if let Some(index) = images.labels.iter().position(|&l| usize::from(l) >= classes) {
                return Err(DataError::Label { name, part, index, label: images.labels[index], classes });
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
