//! The rows of several files, numbered over all of them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::bad;
use super::here::Here;
use super::layout::{Layout, Role};
use super::parse::{File, Keep};
use super::spec::{HeldOut, is_per_agent};
use crate::error::{DataFileError, FilePlace};
use crate::reading::Reading;

/// The rows of several files with the same features.
pub(super) struct Rows {
    pub(super) files: Vec<File>,
    /// The agent of each file, if it has one.
    pub(super) agents: Vec<Option<usize>>,
    /// The first row of each part, with its file and its place there.
    parts: Vec<(usize, usize, usize)>,
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// The place of its file.
    pub(super) file: usize,
    pub(super) numbers: &'a [f64],
    pub(super) words: &'a [u32],
}

/// The outlines of files from which a process keeps some rows; other files have none.
#[derive(Default)]
pub(super) struct Outlines {
    pub(super) data: Option<Arc<Rows>>,
    pub(super) test: Option<Arc<Rows>>,
}

impl Outlines {
    /// Of the files that all ranks read.
    pub(super) fn read(here: &Here) -> Result<Self, DataFileError> {
        let outline = |path: &Path| match is_per_agent(path) {
            true => Ok(None),
            false => Rows::taken(path, here, |_| Keep::Outline).map(|rows| Some(Arc::new(rows))),
        };
        let data = outline(&here.spec.files.data)?;
        let test = if let HeldOut::File(path) = &here.spec.files.test { outline(path)? } else { None };
        Ok(Self { data, test })
    }
}

impl Rows {
    /// Reads all files of a path, in parallel.
    pub(super) fn read(path: &Path, here: &Here) -> Result<Self, DataFileError> {
        Self::taken(path, here, |_| Keep::All)
    }

    /// Reads some rows, whose numbers increase, of a file with this outline.
    pub(super) fn keep(&self, path: &Path, here: &Here, rows: &[u32]) -> Result<Self, DataFileError> {
        Self::taken(path, here, |file| Keep::Some(&self.files[file], rows))
    }

    fn taken<'k>(
        path: &Path,
        here: &Here,
        keep: impl Fn(usize) -> Keep<'k> + Sync,
    ) -> Result<Self, DataFileError> {
        let paths = here.files(path);
        let by = here.spec.columns.by.as_deref();
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let reading = Reading::new(&here.progress, name, paths.iter().map(|(_, path)| size(path)).sum());
        let one = |(k, (_, path)): (usize, &(_, PathBuf))| File::read(path, here, by, keep(k), &reading);
        let read: Vec<_> = paths.par_iter().enumerate().map(one).collect();
        let files: Vec<File> = read.into_iter().collect::<Result<_, _>>()?;
        files.iter().try_for_each(|file| check_features(file, &files[0]))?;
        let mut parts = Vec::new();
        let mut first = 0;
        for (k, file) in files.iter().enumerate() {
            for (place, part) in file.parts.iter().enumerate().filter(|(_, part)| part.rows > 0) {
                parts.push((first, k, place));
                first += part.rows;
            }
        }
        if u32::try_from(first).is_err() {
            let problem = format!("expected at most {} rows, got {first}", u32::MAX);
            return Err(bad(path, None, None, problem));
        }
        Ok(Self { files, agents: paths.into_iter().map(|(agent, _)| agent).collect(), parts })
    }

    pub(super) fn len(&self) -> usize {
        self.files.iter().map(File::rows).sum()
    }

    /// How many rows are in memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let numbers = self.layout().numbers;
        let parts = self.files.iter().flat_map(|file| &file.parts);
        parts.map(|part| part.len_of_numbers() / numbers).sum()
    }

    /// The use of the columns, which is the same in all files except for their positions.
    pub(super) fn layout(&self) -> &Layout {
        &self.files[0].layout
    }

    /// The rows with these numbers, which increase.
    pub(super) fn some<'a>(&'a self, rows: &'a [u32]) -> impl Iterator<Item = Row<'a>> {
        let mut k = 0;
        rows.iter().map(move |row| {
            let row = *row as usize;
            while self.parts.get(k + 1).is_some_and(|(first, ..)| *first <= row) {
                k += 1;
            }
            let (first, file, part) = self.parts[k];
            let (numbers, words) = self.files[file].parts[part].row(row - first, self.layout());
            Row { file, numbers, words }
        })
    }

    /// For all rows, in order, the code of their word in the column by which they are divided; codes are those of each file and each of
    /// its words.
    pub(super) fn coded(&self, column: usize, codes: &[Vec<u32>]) -> Vec<u32> {
        let files = self.files.iter().zip(codes);
        let of_file = |(file, codes): (&'_ File, &'_ Vec<u32>)| -> Vec<u32> {
            file.parts.iter().flat_map(|part| part.column(column)).map(|word| codes[word as usize]).collect()
        };
        files.flat_map(of_file).collect()
    }

    /// The different words of a column over all files, by their names.
    pub(super) fn names(&self, role: Role, name: fn(&str) -> String) -> BTreeSet<String> {
        let Role::Word(column) = role else { return BTreeSet::new() };
        let words = self.files.iter().flat_map(|file| &file.words[column].found);
        words.map(|(word, _)| name(word)).collect()
    }

    /// For each file and each word of a column, the place of its name in a list; for a word that is not there `other` or, without one, an
    /// error.
    pub(super) fn codes(
        &self,
        role: Role,
        name: fn(&str) -> String,
        list: &[String],
        other: Option<u32>,
        unknown: &dyn Fn(&str) -> String,
    ) -> Result<Vec<Vec<u32>>, DataFileError> {
        let Role::Word(column) = role else { return Ok(Vec::new()) };
        let places: HashMap<&str, u32> = list.iter().map(String::as_str).zip(0..).collect();
        let of_file = |file: &File| {
            let code =
                |(word, place): &(String, FilePlace)| {
                    places.get(name(word).as_str()).copied().or(other).ok_or_else(|| {
                        bad(&file.path, Some(*place), Some(file.layout.name(role)), unknown(word))
                    })
                };
            file.words[column].found.iter().map(code).collect()
        };
        self.files.iter().map(of_file).collect()
    }
}

/// Checks that a file has the same features as another, in the same order.
pub(super) fn check_features(file: &File, first: &File) -> Result<(), DataFileError> {
    let names =
        |file: &File| -> Vec<String> { file.layout.features.iter().map(|(name, _)| name.clone()).collect() };
    let (found, expected) = (names(file), names(first));
    if found == expected {
        return Ok(());
    }
    let problem = format!(
        "expected the columns of {}, {}, got {}",
        first.path.display(),
        expected.join(", "),
        found.join(", ")
    );
    Err(bad(&file.path, file.layout.place, None, problem))
}
