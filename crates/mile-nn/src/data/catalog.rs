//! The data sets by name, their files and mirrors, and the directories in which they are searched.
//!
//! Search order: the directory given, `MILE_DATA`, the user's cache (`MILE_HOME`, otherwise the XDG cache), then
//! system-wide directories. In each, the data set's own folder and torchvision's layouts are tried.

use std::env;
use std::path::{Path, PathBuf};

use super::cifar::Labelled;
use super::{DataError, DataFile, Dataset, Images, Shape, cifar, idx};

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
pub struct DatasetEntry {
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
    /// Its files in the order they are read: those of the training set first.
    pub(crate) files: &'static [DataFile],
    /// Where it can be downloaded: the URLs that precede the names of its files, or of its archive.
    pub(crate) mirrors: &'static [&'static str],
    /// The archive in which mirrors have its files; without one they have each file compressed with gzip.
    pub(crate) archive: Option<&'static str>,
}

const GREY: Shape = Shape { height: 28, width: 28, channels: 1 };

const CATALOG: [DatasetEntry; 4] = [
    DatasetEntry {
        name: "glyphs",
        summary: "generated digits drawn with distorted strokes; needs no files",
        train: super::glyphs::TRAIN,
        test: super::glyphs::TEST,
        classes: 10,
        shape: GREY,
        layout: Layout::Generated,
        folders: &[],
        files: &[],
        mirrors: &[],
        archive: None,
    },
    DatasetEntry {
        name: "mnist",
        summary: "handwritten digits (LeCun, Cortes, Burges)",
        train: 60_000,
        test: 10_000,
        classes: 10,
        shape: GREY,
        layout: Layout::Idx,
        folders: &["mnist", "MNIST/raw"],
        files: &MNIST,
        mirrors: &[
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ],
        archive: None,
    },
    DatasetEntry {
        name: "fashion-mnist",
        summary: "articles of clothing (Xiao, Rasul, Vollgraf 2017)",
        train: 60_000,
        test: 10_000,
        classes: 10,
        shape: GREY,
        layout: Layout::Idx,
        folders: &["fashion-mnist", "FashionMNIST/raw"],
        files: &FASHION_MNIST,
        mirrors: &[
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ],
        archive: None,
    },
    DatasetEntry {
        name: "cifar10",
        summary: "small colour photographs (Krizhevsky 2009)",
        train: 50_000,
        test: 10_000,
        classes: 10,
        shape: Shape { height: 32, width: 32, channels: 3 },
        layout: Layout::Cifar,
        folders: &["cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"],
        files: &CIFAR10,
        mirrors: &[
            "https://www.cs.toronto.edu/~kriz/",
            "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/",
        ],
        archive: Some("cifar-10-binary.tar.gz"),
    },
];

const MNIST: [DataFile; 4] = idx_files([
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
]);

const FASHION_MNIST: [DataFile; 4] = idx_files([
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
]);

/// The files of a data set in MNIST's format.
const fn idx_files([train, train_labels, test, test_labels]: [&'static str; 4]) -> [DataFile; 4] {
    [
        DataFile { name: "train-images-idx3-ubyte", sha256: train },
        DataFile { name: "train-labels-idx1-ubyte", sha256: train_labels },
        DataFile { name: "t10k-images-idx3-ubyte", sha256: test },
        DataFile { name: "t10k-labels-idx1-ubyte", sha256: test_labels },
    ]
}

const CIFAR10: [DataFile; 6] = [
    DataFile {
        name: "data_batch_1.bin",
        sha256: "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    },
    DataFile {
        name: "data_batch_2.bin",
        sha256: "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    },
    DataFile {
        name: "data_batch_3.bin",
        sha256: "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    },
    DataFile {
        name: "data_batch_4.bin",
        sha256: "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    },
    DataFile {
        name: "data_batch_5.bin",
        sha256: "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    },
    DataFile {
        name: "test_batch.bin",
        sha256: "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
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
pub fn list() -> &'static [DatasetEntry] {
    &CATALOG
}

/// The entry called `name`.
pub(crate) fn find(name: &str) -> Result<&'static DatasetEntry, DataError> {
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
            files: entry.files.iter().map(|file| file.name).collect::<Vec<_>>().join(", "),
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

impl DatasetEntry {
    /// Whether [`load`](super::load) generates it instead of reading files.
    pub fn is_generated(&self) -> bool {
        matches!(self.layout, Layout::Generated)
    }

    /// The files it consists of, plain or gzipped; none if it is generated.
    pub fn files(&self) -> &'static [DataFile] {
        self.files
    }

    /// The directory in or below `root` that holds all files, if there is one.
    pub(crate) fn within(&self, root: &Path) -> Option<PathBuf> {
        let holds_all =
            |directory: &PathBuf| self.files.iter().all(|file| idx::file_in(directory, file.name).is_some());
        // A directory of data sets must name the set it holds: MNIST and Fashion-MNIST have equal file names.
        let named = self.folders.iter().any(|folder| root.ends_with(folder));
        let own = named.then(|| root.to_owned());
        self.folders.iter().map(|folder| root.join(folder)).chain(own).find(holds_all)
    }

    /// Reads and checks all files in `directory`.
    pub(crate) fn read(&self, directory: &Path) -> Result<Dataset, DataError> {
        let path =
            |file: &DataFile| idx::file_in(directory, file.name).unwrap_or_else(|| directory.join(file.name));
        let (mut train, mut test) = (Labelled::default(), Labelled::default());
        match self.layout {
            Layout::Idx => {
                for (part, files) in [&mut train, &mut test].into_iter().zip(self.files.chunks(2)) {
                    part.pixels = idx::images(&path(&files[0]), self.shape.height, self.shape.width)?;
                    part.labels = idx::labels(&path(&files[1]), self.classes)?;
                }
            }
            Layout::Cifar => {
                let (batches, last) = self.files.split_at(5);
                for batch in batches {
                    cifar::read_batch(&path(batch), self.train / batches.len(), self.classes, &mut train)?;
                }
                cifar::read_batch(&path(&last[0]), self.test, self.classes, &mut test)?;
            }
            Layout::Generated => return Ok(super::glyphs::generate(0, self.train, self.test)),
        }
        let [train, test] = [train, test].map(|part| Images::new(part.pixels, part.labels));
        Dataset::try_new(self.name, self.shape, self.classes, train, test)
    }
}
