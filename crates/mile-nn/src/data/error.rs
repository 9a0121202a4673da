//! What can go wrong with data sets.

use std::path::PathBuf;

use super::Shape;

/// Why a data set could not be found, read or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No such data set.
    #[error("unknown data set \"{name}\"; known: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The data set is nowhere on this machine.
    #[error(
        "data set {name} is not on this machine (looked in {searched}); fetch it with `mile data get {name}`, or put \
         {files} into a folder {folder} in one of these directories or in one given by --data-dir or MILE_DATA"
    )]
    NotFound {
        /// Its name.
        name: &'static str,
        /// Its folder in a directory of data sets.
        folder: &'static str,
        /// Directories that were tried.
        searched: String,
        /// Files that are needed.
        files: String,
    },
    /// There is no directory to put it into.
    #[error("no directory to store data sets in; give --data-dir or set MILE_DATA, MILE_HOME or HOME")]
    NoCache,
    /// No source of the data set could be used.
    #[error(
        "could not fetch {name}: {}; with a connection to any of these sources run `mile data get {name}` again, or put \
         {files} into {}",
        attempts.join("; "),
        directory.display()
    )]
    Unavailable {
        /// Its name.
        name: &'static str,
        /// What was tried, and why it failed.
        attempts: Vec<String>,
        /// Files that are needed.
        files: String,
        /// Where they belong.
        directory: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error(
        "{} is damaged at byte {offset}: {what}; delete it and fetch it again with `mile data get`",
        path.display()
    )]
    Format {
        /// Which file.
        path: PathBuf,
        /// Where in its (decompressed) content.
        offset: u64,
        /// What was found, and what belongs there.
        what: String,
    },
    /// Numbers of pixels and labels contradict the shape.
    #[error(
        "{name} {part}: {pixels} pixels and {labels} labels do not make images of {shape}, one label each"
    )]
    Shape {
        /// Its name.
        name: String,
        /// `train` or `test`.
        part: &'static str,
        /// Bytes of pixels.
        pixels: usize,
        /// Number of labels.
        labels: usize,
        /// Shape of one image.
        shape: Shape,
    },
    /// A label is not a class.
    #[error("{name} {part}: image {index} has label {label}, but there are {classes} classes, from 0")]
    Label {
        /// Its name.
        name: String,
        /// `train` or `test`.
        part: &'static str,
        /// Which image.
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
