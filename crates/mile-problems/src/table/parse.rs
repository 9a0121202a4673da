//! Reads a data file: blocks of it in parallel, and numbers without an allocation for each row.
//!
//! A rank that keeps only some rows of a file reads it twice: first its outline, which counts the rows, collects the words by which they are
//! divided, and checks all values; then the rows that it keeps.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::bad;
use super::cell::Wanted;
use super::here::Here;
use super::layout::{Layout, Role};
use super::record::{Block, Record};
use super::source::Source;
use super::spec::Missing;
use super::words::Words;
use crate::error::{DataFileError, FilePlace};
use crate::reading::Reading;

/// The message about a file that no longer matches its outline.
const CHANGED: &str = "changed while it was being read; start again";
/// The number of a word that is missing.
pub(super) const NO_WORD: u32 = u32::MAX;

/// The rows of one file.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) parts: Vec<Part>,
    /// The words of each column of words, over all parts.
    pub(super) words: Vec<Words>,
    /// Comments before its header.
    comments: u64,
}

/// Which rows of a file are kept in memory.
#[derive(Clone, Copy)]
pub(super) enum Keep<'a> {
    All,
    /// No rows, but for each of them the word by which rows are divided among the agents.
    Outline,
    /// Those with these numbers, which increase, of a file with this outline.
    Some(&'a File, &'a [u32]),
}

/// Some rows of a file.
pub(super) struct Part {
    /// How many there are, including those that are not kept.
    pub(super) rows: usize,
    /// The places of the rows that are kept, if not all.
    kept: Option<Vec<u32>>,
    /// The numbers of each row; NaN where one is missing.
    numbers: Vec<f64>,
    /// The words of each row, by their numbers in [`File::words`], and the columns of words that are kept.
    words: Vec<u32>,
    columns: Range<usize>,
    found: Vec<Words>,
    /// For each column of the file, how many values are missing, and the place of the first.
    missing: Vec<Option<(u64, FilePlace)>>,
    /// Rows with missing values that are left out.
    dropped: u64,
    comments: u64,
}

impl Part {
    /// The numbers and words of a row that is kept.
    pub(super) fn row(&self, row: usize, layout: &Layout) -> (&[f64], &[u32]) {
        let place = self.kept.as_ref().map_or(row, |kept| kept.partition_point(|k| (*k as usize) < row));
        let (numbers, words) = (layout.numbers, layout.words);
        (
            &self.numbers[place * numbers..(place + 1) * numbers],
            &self.words[place * words..(place + 1) * words],
        )
    }

    #[cfg(test)]
    pub(super) fn len_of_numbers(&self) -> usize {
        self.numbers.len()
    }

    /// The words of all rows in a column whose words are kept.
    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = u32> {
        let first = column.saturating_sub(self.columns.start);
        self.words.iter().skip(first).step_by(self.columns.len().max(1)).copied()
    }
}

impl File {
    /// Reads a file. `by` is the column that assigns rows to agents, if the file has one.
    pub(super) fn read(
        path: &Path,
        here: &Here,
        by: Option<&str>,
        keep: Keep,
        reading: &Reading,
    ) -> Result<Self, DataFileError> {
        let text = here.spec.files.written.text;
        // A column that the right delimiter gives.
        let known = match &here.spec.columns {
            columns if here.is_labelled => Some(&columns.target),
            columns => columns.features.as_ref().and_then(|names| names.first()),
        };
        let mut source = Source::open(path, text, known.map(String::as_str), reading)?;
        let (place, comments) = match &source {
            Source::Text(text) => (Some(FilePlace::Line(1)), text.comments),
            Source::Columns(_) => (None, 0),
        };
        let layout = Layout::new(path, source.header(), place, here, by)?;
        let parser = Parser { path, layout: &layout, wanted: layout.wanted(), here };
        let mut parts: Vec<Part> = Vec::new();
        let mut blocks = source.some_blocks()?;
        while !blocks.is_empty() {
            let first = parts.len();
            let chosen = |k: usize| keep.of_block(first + k, here.spec.columns.missing);
            // The next blocks are read, and unpacked, while these are parsed.
            let (parsed, next) = rayon::join(
                || {
                    blocks
                        .par_iter()
                        .enumerate()
                        .map(|(k, b)| parser.parse(b, &chosen(k)))
                        .collect::<Vec<_>>()
                },
                || source.some_blocks(),
            );
            // The first error of the file, so that it is the same every time.
            for part in parsed {
                parts.push(part?);
            }
            blocks = next?;
        }
        let mut words = match keep {
            Keep::Some(outline, _) => outline.words.clone(),
            _ => vec![Words::default(); layout.words],
        };
        for part in &mut parts {
            let renumbered: Vec<Vec<u32>> =
                words.iter_mut().zip(&part.found).map(|(all, found)| all.add(found)).collect();
            let renumbered = &renumbered[part.columns.clone()];
            for row in part.words.chunks_exact_mut(renumbered.len().max(1)) {
                row.iter_mut().zip(renumbered).filter(|(word, _)| **word != NO_WORD).for_each(
                    |(word, renumbered)| {
                        *word = renumbered[*word as usize];
                    },
                );
            }
            part.found = Vec::new();
        }
        let file = Self { path: path.to_owned(), layout, parts, words, comments };
        if let Keep::Some(outline, _) = keep {
            return if file.fits(outline) { Ok(file) } else { Err(bad(path, None, None, CHANGED)) };
        }
        if here.is_labelled {
            file.refuse_missing(here.spec.columns.missing)?;
        }
        if file.rows() == 0 {
            return Err(bad(path, None, None, file.why_empty()));
        }
        Ok(file)
    }

    pub(super) fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Rows with missing values that are left out, and comments.
    pub(super) fn left_out(&self) -> [u64; 2] {
        let sum = |count: fn(&Part) -> u64| self.parts.iter().map(count).sum::<u64>();
        [sum(|part| part.dropped), self.comments + sum(|part| part.comments)]
    }

    /// Whether it has the columns, rows and words of its outline.
    fn fits(&self, outline: &Self) -> bool {
        let parts = |file: &Self| file.parts.iter().map(|part| part.rows).collect::<Vec<_>>();
        let words = |file: &Self| file.words.iter().map(|words| words.found.len()).collect::<Vec<_>>();
        self.layout.header == outline.layout.header
            && parts(self) == parts(outline)
            && words(self) == words(outline)
    }

    fn why_empty(&self) -> &'static str {
        if self.left_out()[0] > 0 { "no row is without missing values" } else { "no rows below the header" }
    }

    /// Refuses missing values, unless they are dropped, or are features to be replaced by means.
    fn refuse_missing(&self, missing: Missing) -> Result<(), DataFileError> {
        const SHOWN: usize = 10;
        if missing == Missing::Drop {
            return Ok(());
        }
        let is_filled = |k: usize| {
            let role = self.layout.roles[k];
            match role {
                Role::Unused => true,
                Role::Word(_) if self.layout.is_feature(role) => missing == Missing::Category,
                Role::Number(_) | Role::Word(_) => missing.fills_numbers(),
            }
        };
        let mut found: Vec<(&str, u64)> = Vec::new();
        let mut first: Option<FilePlace> = None;
        for (k, name) in self.layout.header.iter().enumerate().filter(|(k, _)| !is_filled(*k)) {
            let counts: Vec<(u64, FilePlace)> =
                self.parts.iter().filter_map(|part| part.missing[k]).collect();
            if let Some(place) = counts.iter().map(|(_, place)| *place).min() {
                found.push((name, counts.iter().map(|(count, _)| count).sum()));
                first = Some(first.map_or(place, |first| first.min(place)));
            }
        }
        let Some(first) = first else { return Ok(()) };
        let shown: Vec<String> =
            found.iter().take(SHOWN).map(|(name, count)| format!("{count} in '{name}'")).collect();
        let more = found.len().saturating_sub(SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and more in {more} other columns") };
        let remedy = match missing {
            Missing::Mean => {
                "words have no mean; fill them in, or set missing = \"category\" or missing = \"drop\" in [problem]"
            }
            _ => "fill them in, or set missing = \"mean\", \"category\" or \"drop\" in [problem]",
        };
        let shown = shown.join(", ");
        let problem = format!("missing values, the first in {first}: {shown}{more}; {remedy}");
        Err(bad(&self.path, None, None, problem))
    }
}

/// What is kept of a row that is read.
#[derive(Clone, Copy, PartialEq)]
enum Take {
    Row,
    /// The words of the columns that are kept.
    Words,
    Nothing,
}

/// The rows of a block that are kept.
enum Chosen<'a> {
    All,
    Outline,
    /// The number of its first row, those that are kept, and whether the others are read too.
    Some(usize, &'a [u32], bool),
}

impl Chosen<'_> {
    /// What is kept of the next row; `None` if it is not read.
    fn take(&self, part: &Part) -> Option<Take> {
        match *self {
            Chosen::All => Some(Take::Row),
            Chosen::Outline => Some(Take::Words),
            Chosen::Some(first, rows, reads_all) => {
                let next = rows.get(part.kept.as_ref().map_or(0, Vec::len));
                match next.is_some_and(|row| *row as usize == first + part.rows) {
                    true => Some(Take::Row),
                    false => reads_all.then_some(Take::Nothing),
                }
            }
        }
    }
}

impl<'a> Keep<'a> {
    /// The rows to keep of block `k`.
    fn of_block(&self, k: usize, missing: Missing) -> Chosen<'a> {
        match *self {
            Keep::All => Chosen::All,
            Keep::Outline => Chosen::Outline,
            Keep::Some(outline, rows) => {
                let known = &outline.parts[..k.min(outline.parts.len())];
                let first: usize = known.iter().map(|part| part.rows).sum();
                let end = first + outline.parts.get(k).map_or(0, |part| part.rows);
                let place = |row: usize| rows.partition_point(|k| (*k as usize) < row);
                // Which rows are dropped, and so not counted, is known only when they are read.
                Chosen::Some(first, &rows[place(first)..place(end)], missing != Missing::Refuse)
            }
        }
    }
}

/// Parses the blocks of a file.
struct Parser<'a> {
    path: &'a Path,
    layout: &'a Layout,
    wanted: Vec<Wanted>,
    here: &'a Here,
}

impl Parser<'_> {
    fn parse(&self, block: &Block, chosen: &Chosen) -> Result<Part, DataFileError> {
        let layout = self.layout;
        let room = if matches!(chosen, Chosen::All) { block.most_rows(layout.header.len()) } else { 0 };
        let mut part = Part {
            rows: 0,
            kept: matches!(chosen, Chosen::Some(..)).then(Vec::new),
            numbers: Vec::with_capacity(room * layout.numbers),
            words: Vec::new(),
            columns: match chosen {
                Chosen::Outline => layout.dividing(&self.here.spec.division.partition),
                _ => 0..layout.words,
            },
            found: vec![Words::default(); layout.words],
            missing: vec![None; layout.header.len()],
            dropped: 0,
            comments: 0,
        };
        let comments = block.for_each(self.path, &self.wanted, &mut |record| match chosen.take(&part) {
            None => {
                part.rows += 1;
                Ok(())
            }
            Some(take) => self.add(record, &mut part, take),
        })?;
        part.comments = comments;
        part.numbers.shrink_to_fit();
        part.words.shrink_to_fit();
        Ok(part)
    }

    /// Whether a row without a value of this role is left out. A row without a target, an agent, a weight or an offset is of no use.
    fn drops(&self, role: Role) -> bool {
        match self.here.spec.columns.missing {
            _ if !self.here.is_labelled => false,
            Missing::Refuse => false,
            Missing::Drop => true,
            Missing::Mean | Missing::Category => !self.layout.is_feature(role),
        }
    }

    /// Adds what is kept of a row, unless values are missing and such rows are dropped.
    fn add(&self, record: &Record, part: &mut Part, take: Take) -> Result<(), DataFileError> {
        let (layout, first) = (self.layout, part.numbers.len());
        part.numbers.resize(first + layout.numbers, f64::NAN);
        let mut is_dropped = false;
        for (column, role) in layout.roles.iter().enumerate() {
            let is_missing = match *role {
                Role::Unused => false,
                Role::Number(k) => match layout.number(column, record.cell(column)) {
                    Ok(Some(value)) => {
                        part.numbers[first + k] = value;
                        false
                    }
                    Ok(None) => true,
                    Err(problem) => {
                        let name = &layout.header[column];
                        return Err(bad(self.path, Some(record.place()), Some(name), problem));
                    }
                },
                Role::Word(_) => layout.word(column, record.cell(column)).is_none(),
            };
            if is_missing {
                is_dropped |= self.drops(*role);
                part.missing[column].get_or_insert_with(|| (0, record.place())).0 += 1;
            }
        }
        if is_dropped {
            part.numbers.truncate(first);
            part.dropped += 1;
            return Ok(());
        }
        if let Some((column, problem)) = layout.too_small(&part.numbers[first..]) {
            return Err(bad(self.path, Some(record.place()), Some(&layout.header[column]), problem));
        }
        part.rows += 1;
        if take != Take::Row {
            part.numbers.truncate(first);
        }
        if take == Take::Nothing {
            return Ok(());
        }
        if let Some(kept) = part.kept.as_mut().filter(|_| take == Take::Row) {
            kept.push(part.rows as u32 - 1);
        }
        let (first, columns) = (part.words.len(), part.columns.clone());
        part.words.resize(first + columns.len(), NO_WORD);
        if layout.words > 0 {
            for (column, role) in layout.roles.iter().enumerate() {
                if let Role::Word(k) = *role
                    && let Some(word) = layout.word(column, record.cell(column))
                {
                    let word = part.found[k].number(word, || record.place());
                    if columns.contains(&k) {
                        part.words[first + k - columns.start] = word;
                    }
                }
            }
        }
        Ok(())
    }
}
