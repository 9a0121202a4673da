//! Downloading data sets from their mirrors.
//!
//! The public mirrors are asked over HTTPS. `MILE_DATA_MIRRORS` names private ones instead: base URLs separated by spaces,
//! over HTTP or HTTPS, with the same files in a folder for each data set (`URL/mnist/train-images-idx3-ubyte.gz`,
//! `URL/cifar10/cifar-10-binary.tar.gz`).
//!
//! The checksum of a file is verified before the file gets its name, so a partial or wrong file is never used. A lock makes
//! a second process wait until the first is done.

mod http;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use mile_store::{FolderLock, LockError};
use sha2::{Digest as _, Sha256};

use super::catalog::{self, DatasetEntry, Located};
use super::{DataError, DataFile, idx};

/// How often a file is requested from one mirror, if the connection breaks.
const TRIES: usize = 4;

/// Progress of [`get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownloadProgress<'a> {
    /// Another process is downloading the same data set; waiting for it.
    Waiting,
    /// A mirror is being tried.
    Source(&'a str),
    /// Bytes of a file have arrived.
    Bytes {
        /// Name of the file.
        file: &'a str,
        /// Bytes so far, including those of an earlier, interrupted download.
        done: u64,
        /// Size of the file, if the server reports it.
        total: Option<u64>,
    },
    /// A file is complete, checked and stored.
    Stored(&'a str),
    /// A mirror has failed, or an existing file is wrong; the next mirror is tried.
    Failed(&'a str),
}

/// Called with the progress.
pub(crate) type Report<'a> = &'a mut dyn FnMut(DownloadProgress<'_>);

/// Why a file could not be obtained from one place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("{0}")]
    Http(#[from] Box<ureq::Error>),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the download was interrupted after {done} of {total} bytes; run it again to resume")]
    Truncated { done: u64, total: u64 },
    #[error("{file} is not in the archive")]
    Missing { file: &'static str },
    #[error("{file}: expected content with sha256 {expected}, got {found}")]
    Checksum { file: &'static str, found: String, expected: &'static str },
    #[error("{0}")]
    Data(#[from] Box<DataError>),
}

/// Downloads data set `name` into `data_dir`, otherwise `MILE_DATA`, otherwise the user's cache, and checks it. Without
/// `data_dir`, nothing is downloaded if a correct copy is found anywhere in the search order. Files that are already in
/// place are checked and used. [`DataError::Unavailable`] names the files that are missing and where to put them.
pub fn get(
    name: &str,
    data_dir: Option<&Path>,
    progress: &mut dyn FnMut(DownloadProgress<'_>),
) -> Result<Located, DataError> {
    let entry = catalog::find(name)?;
    if entry.is_generated() {
        return Ok(Located::Generated);
    }
    if let (None, Ok(Located::Directory(found))) = (data_dir, catalog::locate(name, None))
        && entry.files.iter().all(|file| matches!(is_stored(file, &found), Ok(true)))
    {
        return Ok(Located::Directory(found));
    }
    let mirrors = mirrors(entry, std::env::var("MILE_DATA_MIRRORS").ok().as_deref());
    fetch(entry, &mirrors, &catalog::store(data_dir)?, progress).map(Located::Directory)
}

/// The URLs that precede the names of the files: at the private mirrors if there are any, otherwise at the public ones.
fn mirrors(entry: &DatasetEntry, private: Option<&str>) -> Vec<String> {
    let private = private.unwrap_or_default().split_whitespace();
    let private: Vec<_> =
        private.map(|url| format!("{}/{}/", url.trim_end_matches('/'), entry.folders[0])).collect();
    match private.is_empty() {
        true => entry.mirrors.iter().map(|url| (*url).to_owned()).collect(),
        false => private,
    }
}

/// Downloads what is missing in the data set's folder below `root`, from the first mirror that has it.
fn fetch(
    entry: &DatasetEntry,
    mirrors: &[String],
    root: &Path,
    report: Report<'_>,
) -> Result<PathBuf, DataError> {
    let directory = root.join(entry.folders[0]);
    fs::create_dir_all(&directory).map_err(DataError::io("cannot create", &directory))?;
    let _lock = lock(&directory, report)?;
    let mut folder = Folder { directory: &directory, missing: Vec::new(), attempts: Vec::new(), report };
    folder.check(entry.files);
    if let Some(archive) = entry.archive.map(|name| directory.join(name)).filter(|path| path.is_file()) {
        let unpacked = folder.unpack(&archive);
        folder.note(archive.display(), unpacked);
    }
    for mirror in mirrors {
        if folder.missing.is_empty() {
            break;
        }
        (folder.report)(DownloadProgress::Source(mirror));
        let filled = folder.fill_from(mirror, entry.archive);
        folder.note(mirror, filled);
    }
    let Folder { missing, attempts, .. } = folder;
    match missing.is_empty() {
        true => Ok(directory),
        false => Err(DataError::Unavailable { name: entry.name, attempts, missing, directory }),
    }
}

/// Keeps other processes from downloading into the folder, once those that do have finished.
fn lock(directory: &Path, report: Report<'_>) -> Result<FolderLock, DataError> {
    let locked = FolderLock::take(directory, Duration::ZERO).or_else(|error| match error {
        LockError::InUse(_) => {
            report(DownloadProgress::Waiting);
            FolderLock::take(directory, Duration::MAX)
        }
        error => Err(error),
    });
    locked.map_err(|error| DataError::io("cannot lock", directory)(std::io::Error::other(error)))
}

/// Whether a file is in the directory; an error if it is there with the wrong content.
fn is_stored(file: &DataFile, directory: &Path) -> Result<bool, SourceError> {
    match idx::file_in(directory, file.name) {
        None => Ok(false),
        Some(path) => verify(file, &idx::content(&path).map_err(Box::new)?).map(|()| true),
    }
}

fn verify(file: &DataFile, content: &[u8]) -> Result<(), SourceError> {
    let found: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    match found == file.sha256 {
        true => Ok(()),
        false => Err(SourceError::Checksum { file: file.name, found, expected: file.sha256 }),
    }
}

/// The folder of a data set that is being filled.
struct Folder<'a, 'b> {
    directory: &'a Path,
    missing: Vec<DataFile>,
    /// What has failed, in words.
    attempts: Vec<String>,
    report: &'a mut (dyn FnMut(DownloadProgress<'_>) + 'b),
}

impl Folder<'_, '_> {
    /// Finds out which files are missing. A wrong file counts as missing.
    fn check(&mut self, files: &[DataFile]) {
        for file in files {
            let stored = is_stored(file, self.directory);
            if !matches!(stored, Ok(true)) {
                self.missing.push(*file);
            }
            self.note(self.directory.display(), stored.map(|_| ()));
        }
    }

    /// Reports and keeps a failure.
    fn note(&mut self, place: impl Display, outcome: Result<(), SourceError>) {
        if let Err(error) = outcome {
            let attempt = format!("{place}: {error}");
            (self.report)(DownloadProgress::Failed(&attempt));
            self.attempts.push(attempt);
        }
    }

    /// Downloads the missing files, each compressed, or the archive that holds them.
    fn fill_from(&mut self, mirror: &str, archive: Option<&str>) -> Result<(), SourceError> {
        if let Some(archive) = archive {
            return self.download(mirror, archive, &|folder, part| folder.unpack(part));
        }
        for file in self.missing.clone() {
            self.download(mirror, &format!("{}.gz", file.name), &|folder, part| {
                let content = idx::content_as(part, true).map_err(Box::new)?;
                folder.store(&file, &content)
            })?;
        }
        Ok(())
    }

    /// Downloads a file and hands it to `accept`. An interrupted download is resumed, now or by the next call.
    fn download(
        &mut self,
        mirror: &str,
        name: &str,
        accept: &dyn Fn(&mut Self, &Path) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let (url, part) = (format!("{mirror}{name}"), self.directory.join(format!("{name}.part")));
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let resumes = part.exists();
            let outcome = http::download(&url, &part, name, self.report).and_then(|()| {
                let accepted = accept(self, &part);
                // In any case: a download with wrong content must not be resumed.
                fs::remove_file(&part)?;
                accepted
            });
            // The beginning of a wrong file may have come from another mirror, which compressed it in another way.
            let is_mixed = resumes && !part.exists();
            match outcome {
                Err(SourceError::Truncated { .. }) if tries > 0 => {}
                Err(_) if is_mixed && tries > 0 => {}
                outcome => return outcome,
            }
        }
    }

    /// Stores the missing files of a gzipped tar archive. Of the paths in it only the names of files are used, so nothing
    /// is written elsewhere.
    fn unpack(&mut self, archive: &Path) -> Result<(), SourceError> {
        let tar = GzDecoder::new(BufReader::new(File::open(archive)?));
        for member in tar::Archive::new(tar).entries()? {
            let member = member?;
            let path = member.path()?.into_owned();
            let named = |file: &&DataFile| path.file_name().is_some_and(|name| name == file.name);
            if let Some(file) = self.missing.iter().find(named).copied() {
                let mut content = Vec::new();
                member.take(idx::MAX_BYTES).read_to_end(&mut content)?;
                self.store(&file, &content)?;
            }
        }
        match self.missing.first() {
            None => Ok(()),
            Some(file) => Err(SourceError::Missing { file: file.name }),
        }
    }

    /// Checks a file and stores it, completely or not at all.
    fn store(&mut self, file: &DataFile, content: &[u8]) -> Result<(), SourceError> {
        verify(file, content)?;
        mile_store::write_file(&self.directory.join(file.name), content)?;
        self.missing.retain(|missing| missing != file);
        (self.report)(DownloadProgress::Stored(file.name));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
