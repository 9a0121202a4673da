//! The rows of several files, numbered over all of them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use rayon::prelude::*;

use super::bad;
use super::config::TableConfig;
use super::layout::{Layout, Role};
use super::parse::File;
use crate::error::DataFileError;
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

impl Rows {
    /// Reads all files of a path, in parallel.
    pub(super) fn read(path: &Path, config: &TableConfig) -> Result<Self, DataFileError> {
        let paths = config.files(path);
        let by = config.by.as_deref();
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let reading = Reading::new(name, paths.iter().map(|(_, path)| size(path)).sum());
        let read: Vec<_> = paths.par_iter().map(|(_, path)| File::read(path, config, by, &reading)).collect();
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
            let problem = format!("has {first} rows, takes at most {}", u32::MAX);
            return Err(bad(path, None, None, problem));
        }
        Ok(Self { files, agents: paths.into_iter().map(|(agent, _)| agent).collect(), parts })
    }

    pub(super) fn len(&self) -> usize {
        self.files.iter().map(File::rows).sum()
    }

    /// The use of the columns, which is the same in all files but for their places.
    pub(super) fn layout(&self) -> &Layout {
        &self.files[0].layout
    }

    /// The rows with these numbers, which increase.
    pub(super) fn some<'a>(&'a self, rows: &'a [u32]) -> impl Iterator<Item = Row<'a>> {
        let (numbers, words) = (self.layout().numbers, self.layout().words);
        let mut k = 0;
        rows.iter().map(move |row| {
            let row = *row as usize;
            while self.parts.get(k + 1).is_some_and(|(first, ..)| *first <= row) {
                k += 1;
            }
            let (first, file, part) = self.parts[k];
            let (part, row) = (&self.files[file].parts[part], row - first);
            Row {
                file,
                numbers: &part.numbers[row * numbers..(row + 1) * numbers],
                words: &part.words[row * words..(row + 1) * words],
            }
        })
    }

    /// The different words of a column over all files, by their names.
    pub(super) fn names(&self, role: Role, name: fn(&str) -> String) -> BTreeSet<String> {
        let Role::Word(column) = role else { return BTreeSet::new() };
        let words = self.files.iter().flat_map(|file| &file.words[column].found);
        words.map(|(word, _)| name(word)).collect()
    }

    /// For each file and each word of a column, the place of its name in a list; an error for a word that is not there.
    pub(super) fn codes(
        &self,
        role: Role,
        name: fn(&str) -> String,
        list: &[String],
        unknown: &dyn Fn(&str) -> String,
    ) -> Result<Vec<Vec<u32>>, DataFileError> {
        let Role::Word(column) = role else { return Ok(Vec::new()) };
        let places: HashMap<&str, u32> = list.iter().map(String::as_str).zip(0..).collect();
        let of_file = |file: &File| {
            let code = |(word, line): &(String, u64)| {
                places
                    .get(name(word).as_str())
                    .copied()
                    .ok_or_else(|| bad(&file.path, Some(*line), Some(file.layout.name(role)), unknown(word)))
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
        "has other columns than {}: {} instead of {}",
        first.path.display(),
        found.join(", "),
        expected.join(", ")
    );
    Err(bad(&file.path, Some(1), None, problem))
}
