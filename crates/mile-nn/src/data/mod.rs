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

/// A file of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataFile {
    /// Its name; `.gz` is added if it is compressed.
    pub name: &'static str,
    /// SHA-256 of its content, decompressed, in hexadecimal.
    pub sha256: &'static str,
}

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

/// Numbers of all samples, one after the other, as they were given.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Bytes, of which a network sees byte/255.
    Bytes(Vec<u8>),
    /// In single precision, used as they are.
    Singles(Vec<f32>),
    /// In double precision, used as they are.
    Doubles(Vec<f64>),
}

impl Values {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Values::Bytes(values) => values.len(),
            Values::Singles(values) => values.len(),
            Values::Doubles(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a network is to predict, and thereby its loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// A class of each sample; the loss is the cross-entropy.
    Labels(Vec<u8>),
    /// So many numbers of each sample; the loss is half the squared distance from them.
    Numbers {
        /// The numbers of all samples.
        values: Vec<f64>,
        /// How many belong to a sample, at least one.
        each: usize,
    },
}

/// Images with what is to be predicted from them, in the order height, width, channel (HWC). A vector is an image of one
/// pixel, whose channels are its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// All pixels, image after image.
    pub pixels: Values,
    /// What is to be predicted.
    pub targets: Targets,
}

impl Images {
    /// Labelled images of one byte per pixel and channel.
    pub fn new(pixels: Vec<u8>, labels: Vec<u8>) -> Self {
        Self { pixels: Values::Bytes(pixels), targets: Targets::Labels(labels) }
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        match &self.targets {
            Targets::Labels(labels) => labels.len(),
            Targets::Numbers { values, each } => values.len() / each,
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let pixels = match &self.pixels {
            Values::Bytes(bytes) => bytes.len(),
            Values::Singles(values) => size_of_val(&values[..]),
            Values::Doubles(values) => size_of_val(&values[..]),
        };
        pixels
            + match &self.targets {
                Targets::Labels(labels) => labels.len(),
                Targets::Numbers { values, .. } => size_of_val(&values[..]),
            }
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of each image; none if numbers are to be predicted.
    pub fn labels(&self) -> &[u8] {
        match &self.targets {
            Targets::Labels(labels) => labels,
            Targets::Numbers { .. } => &[],
        }
    }

    /// The bytes of image `i`, if pixels are bytes.
    pub fn image(&self, i: usize) -> Option<&[u8]> {
        match &self.pixels {
            Values::Bytes(bytes) => Some(&bytes[self.place(i)]),
            _ => None,
        }
    }

    /// Some of the images, in this order.
    pub(crate) fn some(&self, chosen: &[u32]) -> Self {
        fn pick<V: Copy>(all: &[V], each: usize, chosen: &[u32]) -> Vec<V> {
            chosen.iter().flat_map(|i| &all[*i as usize * each..(*i as usize + 1) * each]).copied().collect()
        }
        let size = self.pixels.len() / self.len().max(1);
        let pixels = match &self.pixels {
            Values::Bytes(all) => Values::Bytes(pick(all, size, chosen)),
            Values::Singles(all) => Values::Singles(pick(all, size, chosen)),
            Values::Doubles(all) => Values::Doubles(pick(all, size, chosen)),
        };
        let targets = match &self.targets {
            Targets::Labels(all) => Targets::Labels(pick(all, 1, chosen)),
            Targets::Numbers { values, each } => {
                Targets::Numbers { values: pick(values, *each, chosen), each: *each }
            }
        };
        Self { pixels, targets }
    }

    /// Where the pixels of image `i` are.
    pub(crate) fn place(&self, i: usize) -> std::ops::Range<usize> {
        let size = self.pixels.len() / self.len();
        i * size..(i + 1) * size
    }
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
    /// Number of classes, or of the numbers that are predicted of each sample.
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
