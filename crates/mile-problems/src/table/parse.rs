//! Reads a CSV file: blocks of it in parallel, and numbers without an allocation for each row.
//!
//! A rank that keeps only some rows of a file reads it twice: first its outline, which counts the rows, collects the words by which they are
//! divided, and checks all values; then the rows that it keeps.

use std::ops::Range;
use std::path::{Path, PathBuf};

use csv::StringRecord;
use rayon::prelude::*;

use super::bad;
use super::fields::{is_missing_word, number};
use super::here::Here;
use super::layout::{Layout, Role};
use super::source::{Block, NOT_UTF8, Source, lines, records};
use super::spec::Missing;
use super::words::Words;
use crate::error::DataFileError;
use crate::reading::Reading;

/// The message about a file that no longer matches its outline.
const CHANGED: &str = "changed while it was being read; start again";
/// The number of a word that is missing.
const NO_WORD: u32 = u32::MAX;

/// The rows of one file.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) parts: Vec<Part>,
    /// The words of each column of words, over all parts.
    pub(super) words: Vec<Words>,
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
    /// For each column of the file, how many values are missing, and the line of the first.
    missing: Vec<(u64, u64)>,
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
        let mut source = Source::open(path, here.spec.files.delimiter, &here.spec.columns.target, reading)?;
        let layout = Layout::new(path, &source.header, here, by)?;
        let parser = Parser { path, layout: &layout, here, delimiter: source.delimiter };
        let mut parts: Vec<Part> = Vec::new();
        let mut blocks = some_blocks(&mut source)?;
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
                || some_blocks(&mut source),
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
        let file = Self { path: path.to_owned(), layout, parts, words };
        if let Keep::Some(outline, _) = keep {
            return if file.fits(outline) { Ok(file) } else { Err(bad(path, None, None, CHANGED)) };
        }
        file.refuse_missing(here.spec.columns.missing)?;
        if file.rows() == 0 {
            return Err(bad(path, None, None, file.why_empty()));
        }
        Ok(file)
    }

    pub(super) fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
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
        let dropped = self.parts.iter().any(|part| part.missing.iter().any(|(count, _)| *count > 0));
        if dropped { "no row is without missing values" } else { "no rows below the header" }
    }

    /// Refuses missing values, unless they are dropped, or are features to be replaced by means.
    fn refuse_missing(&self, missing: Missing) -> Result<(), DataFileError> {
        const SHOWN: usize = 10;
        if missing == Missing::Drop {
            return Ok(());
        }
        let is_filled = |k: usize| {
            let role = self.layout.roles[k];
            let is_feature = self.layout.features.iter().any(|(_, feature)| *feature == role);
            missing == Missing::Mean && matches!(role, Role::Number(_)) && is_feature
        };
        let mut found: Vec<(&str, u64)> = Vec::new();
        let mut first = u64::MAX;
        for (k, name) in self.layout.header.iter().enumerate().filter(|(k, _)| !is_filled(*k)) {
            let counts = self.parts.iter().map(|part| part.missing[k]).filter(|(count, _)| *count > 0);
            let (count, line) = counts.fold((0, u64::MAX), |(n, l), (m, k)| (n + m, l.min(k)));
            if count > 0 {
                found.push((name, count));
                first = first.min(line);
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let shown: Vec<String> =
            found.iter().take(SHOWN).map(|(name, count)| format!("{count} in '{name}'")).collect();
        let more = found.len().saturating_sub(SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and more in {more} other columns") };
        let remedy = match missing {
            Missing::Mean => {
                "only numeric features are replaced by means; fill these in, or set missing = \"drop\" in [problem]"
            }
            _ => "fill them in, or set missing = \"mean\" or missing = \"drop\" in [problem]",
        };
        let shown = shown.join(", ");
        let problem = format!("missing values, the first in line {first}: {shown}{more}; {remedy}");
        Err(bad(&self.path, None, None, problem))
    }
}

/// The next blocks of a file, as many as keep all cores busy.
fn some_blocks(source: &mut Source) -> Result<Vec<Block>, DataFileError> {
    let mut blocks = Vec::new();
    for _ in 0..4 * rayon::current_num_threads() {
        match source.next()? {
            Some(block) => blocks.push(block),
            None => break,
        }
    }
    Ok(blocks)
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
                Chosen::Some(first, &rows[place(first)..place(end)], missing == Missing::Drop)
            }
        }
    }
}

/// Parses the blocks of a file.
struct Parser<'a> {
    path: &'a Path,
    layout: &'a Layout,
    here: &'a Here,
    delimiter: u8,
}

impl Parser<'_> {
    fn parse(&self, block: &Block, chosen: &Chosen) -> Result<Part, DataFileError> {
        let layout = self.layout;
        let mut part = Part {
            rows: 0,
            kept: matches!(chosen, Chosen::Some(..)).then(Vec::new),
            numbers: Vec::new(),
            words: Vec::new(),
            columns: match chosen {
                Chosen::Outline => layout.dividing(&self.here.spec.division.partition),
                _ => 0..layout.words,
            },
            found: vec![Words::default(); layout.words],
            missing: vec![(0, 0); layout.header.len()],
        };
        let mut reader = records(&block.text, self.delimiter);
        let mut record = StringRecord::new();
        loop {
            let begun = reader.position().byte() as usize;
            let line = || line_of(block, begun);
            if !reader.read_record(&mut record).map_err(|_| bad(self.path, Some(line()), None, NOT_UTF8))? {
                part.numbers.shrink_to_fit();
                part.words.shrink_to_fit();
                return Ok(part);
            }
            if record.len() != layout.header.len() {
                if record.len() == 1 && record[0].trim().is_empty() {
                    continue;
                }
                let problem = format!(
                    "expected {} fields, as in the header, got {}",
                    layout.header.len(),
                    record.len()
                );
                return Err(bad(self.path, Some(line()), None, problem));
            }
            match chosen.take(&part) {
                None => part.rows += 1,
                Some(take) => self.add(&record, &line, &mut part, take)?,
            }
        }
    }

    /// Adds what is kept of a row, unless values are missing and such rows are dropped.
    fn add(
        &self,
        record: &StringRecord,
        line: &dyn Fn() -> u64,
        part: &mut Part,
        take: Take,
    ) -> Result<(), DataFileError> {
        let (layout, first) = (self.layout, part.numbers.len());
        part.numbers.resize(first + layout.numbers, f64::NAN);
        let mut complete = true;
        let mut is_missing = |part: &mut Part, column: usize| {
            let (count, first) = &mut part.missing[column];
            *count += 1;
            *first = if *count == 1 { line() } else { *first };
            complete = false;
        };
        for (column, (field, role)) in record.iter().zip(&layout.roles).enumerate() {
            match *role {
                Role::Unused => {}
                Role::Number(k) => match number(field) {
                    Ok(Some(value)) => part.numbers[first + k] = value,
                    Ok(None) => is_missing(part, column),
                    Err(problem) => {
                        let name = &layout.header[column];
                        let problem = self.explain(problem, field, *role, name);
                        return Err(bad(self.path, Some(line()), Some(name), problem));
                    }
                },
                Role::Word(_) => {
                    if is_missing_word(field.trim()) {
                        is_missing(part, column);
                    }
                }
            }
        }
        if !complete && self.here.spec.columns.missing == Missing::Drop {
            part.numbers.truncate(first);
            return Ok(());
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
            for (field, role) in record.iter().zip(&layout.roles) {
                if let Role::Word(k) = *role
                    && !is_missing_word(field.trim())
                {
                    let word = part.found[k].number(field.trim(), line);
                    if columns.contains(&k) {
                        part.words[first + k - columns.start] = word;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds to an error what to do about a column that holds words.
    fn explain(&self, problem: String, field: &str, role: Role, name: &str) -> String {
        let is_word = !field.trim().starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        if role == self.layout.target || !is_word || problem.contains("finite") {
            return problem;
        }
        format!(
            "{problem}; for a column of words, add it to categorical = [\"{name}\"] in [problem], or leave it out with exclude = [\"{name}\"]"
        )
    }
}

/// The line of a record, from the place where the one before it ended.
fn line_of(block: &Block, end: usize) -> u64 {
    let mut place = end;
    // Empty lines and comments before the record belong to no record.
    while let Some(byte) = block.text.get(place) {
        match byte {
            b'\r' | b'\n' => place += 1,
            b'#' => {
                let rest = &block.text[place..];
                place += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            _ => break,
        }
    }
    block.line + lines(&block.text[..place])
}
