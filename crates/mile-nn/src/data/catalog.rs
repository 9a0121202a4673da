//! The data sets by name, and the directories in which they are searched.
//!
//! Search order: the directory given, `MILE_DATA`, the user's cache (`MILE_HOME`, else the XDG cache), then
//! system-wide directories. In each, the data set's own folder and torchvision's layouts are tried.

use std::env;
use std::path::{Path, PathBuf};

use super::cifar::Labelled;
use super::{DataError, Dataset, Images, Shape, cifar, idx};

/// File format of a data set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// Four idx files of 28 x 28 images.
    Idx,
    /// Six batches of CIFAR-10's binary version.
    Cifar,
    /// Generated, without files.
    Generated,
}

/// A data set of the catalogue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its name in experiment files.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// Number of training samples.
    pub train: usize,
    /// Number of test samples.
    pub test: usize,
    /// Number of classes.
    pub classes: usize,
    /// Shape of each image.
    pub shape: Shape,
    pub(crate) layout: Layout,
    /// Folders it may be in, below a directory of data sets.
    pub(crate) folders: &'static [&'static str],
}

const GREY: Shape = Shape { height: 28, width: 28, channels: 1 };

const CATALOG: [Entry; 4] = [
    Entry {
        name: "glyphs",
        summary: "generated digits drawn with distorted strokes; needs no files",
        train: super::glyphs::TRAIN,
        test: super::glyphs::TEST,
        classes: 10,
        shape: GREY,
        layout: Layout::Generated,
        folders: &[],
    },
    Entry {
        name: "mnist",
        summary: "handwritten digits (LeCun, Cortes, Burges)",
        train: 60_000,
        test: 10_000,
        classes: 10,
        shape: GREY,
        layout: Layout::Idx,
        folders: &["mnist", "MNIST/raw"],
    },
    Entry {
        name: "fashion-mnist",
        summary: "articles of clothing (Xiao, Rasul, Vollgraf 2017)",
        train: 60_000,
        test: 10_000,
        classes: 10,
        shape: GREY,
        layout: Layout::Idx,
        folders: &["fashion-mnist", "FashionMNIST/raw"],
    },
    Entry {
        name: "cifar10",
        summary: "small colour photographs (Krizhevsky 2009)",
        train: 50_000,
        test: 10_000,
        classes: 10,
        shape: Shape { height: 32, width: 32, channels: 3 },
        layout: Layout::Cifar,
        folders: &["cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"],
    },
];

/// Stems of the idx files: training images and labels, test images and labels.
pub(crate) const IDX_FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];
/// CIFAR-10's batches; the last is the test set.
pub(crate) const CIFAR_FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// Where a data set is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// It has no files: it is generated when it is loaded.
    Generated,
    /// Its files are in this directory.
    Directory(PathBuf),
}

/// All data sets of the catalogue.
pub fn list() -> &'static [Entry] {
    &CATALOG
}

/// The entry called `name`.
pub(crate) fn find(name: &str) -> Result<&'static Entry, DataError> {
    CATALOG.iter().find(|entry| entry.name == name).ok_or_else(|| DataError::Unknown {
        name: name.to_owned(),
        known: CATALOG.map(|entry| entry.name).join(", "),
    })
}

/// Finds data set `name` on this machine; [`DataError::NotFound`] lists the directories that were searched.
pub fn locate(name: &str, data_dir: Option<&Path>) -> Result<Located, DataError> {
    let entry = find(name)?;
    if let Layout::Generated = entry.layout {
        return Ok(Located::Generated);
    }
    let roots = search_path(data_dir);
    match roots.iter().find_map(|root| entry.within(root)) {
        Some(directory) => Ok(Located::Directory(directory)),
        None => Err(DataError::NotFound {
            name: entry.name,
            folder: entry.folders[0],
            searched: roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", "),
            files: entry.files().join(", "),
        }),
    }
}

/// The directories in which data sets are searched, in order.
pub fn search_path(data_dir: Option<&Path>) -> Vec<PathBuf> {
    let given = data_dir.map(Path::to_owned);
    let system = ["/usr/share/datasets", "/usr/local/share/datasets"].map(PathBuf::from);
    given.into_iter().chain(variable("MILE_DATA")).chain(cache()).chain(system).collect()
}

/// The directory in which new data sets are stored: the first of the search order that belongs to the user.
pub(crate) fn store(data_dir: Option<&Path>) -> Result<PathBuf, DataError> {
    data_dir.map(Path::to_owned).or_else(|| variable("MILE_DATA")).or_else(cache).ok_or(DataError::NoCache)
}

fn cache() -> Option<PathBuf> {
    variable("MILE_HOME")
        .map(|home| home.join("data"))
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("mile").join("data")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache").join("mile").join("data")))
}

/// The path in an environment variable; none if it is unset or empty.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl Entry {
    /// Whether [`load`](super::load) generates it instead of reading files.
    pub fn is_generated(&self) -> bool {
        matches!(self.layout, Layout::Generated)
    }

    /// The files it consists of; idx files may also end in `.gz`.
    pub fn files(&self) -> &'static [&'static str] {
        match self.layout {
            Layout::Idx => &IDX_FILES,
            Layout::Cifar => &CIFAR_FILES,
            Layout::Generated => &[],
        }
    }

    /// The directory in or below `root` that holds all files, if there is one.
    pub(crate) fn within(&self, root: &Path) -> Option<PathBuf> {
        let holds_all =
            |directory: &PathBuf| self.files().iter().all(|stem| idx::file_in(directory, stem).is_some());
        // A directory of data sets must name the set it holds: MNIST and Fashion-MNIST have equal file names.
        let named = self.folders.iter().any(|folder| root.ends_with(folder));
        let own = named.then(|| root.to_owned());
        self.folders.iter().map(|folder| root.join(folder)).chain(own).find(holds_all)
    }

    /// Reads and checks all files in `directory`.
    pub(crate) fn read(&self, directory: &Path) -> Result<Dataset, DataError> {
        let path = |stem: &str| idx::file_in(directory, stem).unwrap_or_else(|| directory.join(stem));
        let (mut train, mut test) = (Labelled::default(), Labelled::default());
        match self.layout {
            Layout::Idx => {
                for (part, stems) in [&mut train, &mut test].into_iter().zip(IDX_FILES.chunks(2)) {
                    part.pixels = idx::images(&path(stems[0]), self.shape.height, self.shape.width)?;
                    part.labels = idx::labels(&path(stems[1]), self.classes)?;
                }
            }
            Layout::Cifar => {
                let (batches, last) = CIFAR_FILES.split_at(5);
                for batch in batches {
                    cifar::read_batch(&path(batch), self.train / batches.len(), self.classes, &mut train)?;
                }
                cifar::read_batch(&path(last[0]), self.test, self.classes, &mut test)?;
            }
            Layout::Generated => return Ok(super::glyphs::generate(0, self.train, self.test)),
        }
        let [train, test] = [train, test].map(|part| Images::new(part.pixels, part.labels));
        Dataset::try_new(self.name, self.shape, self.classes, train, test)
    }
}
