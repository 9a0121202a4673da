//! Reads a CSV file: blocks of it in parallel, and numbers without an allocation for each row.

use std::path::{Path, PathBuf};

use csv::StringRecord;
use rayon::prelude::*;

use super::bad;
use super::config::{Missing, TableConfig};
use super::layout::{Layout, Role};
use super::source::{Block, NOT_UTF8, Source, lines, records};
use super::words::Words;
use crate::error::DataFileError;
use crate::reading::Reading;

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

/// Some rows of a file.
pub(super) struct Part {
    pub(super) rows: usize,
    /// The numbers of each row; NaN where one is missing.
    pub(super) numbers: Vec<f64>,
    /// The words of each row, by their numbers in [`File::words`].
    pub(super) words: Vec<u32>,
    found: Vec<Words>,
    /// For each column of the file, how many values are missing, and the line of the first.
    missing: Vec<(u64, u64)>,
}

impl File {
    /// Reads a file. `by` is the column that assigns rows to agents, if the file has one.
    pub(super) fn read(
        path: &Path,
        config: &TableConfig,
        by: Option<&str>,
        reading: &Reading,
    ) -> Result<Self, DataFileError> {
        let mut source = Source::open(path, config.delimiter, &config.target, reading)?;
        let layout = Layout::new(path, &source.header, config, by)?;
        let parser = Parser { path, layout: &layout, config, delimiter: source.delimiter };
        let mut parts: Vec<Part> = Vec::new();
        let mut blocks = some_blocks(&mut source)?;
        while !blocks.is_empty() {
            // The next blocks are read, and unpacked, while these are parsed.
            let (parsed, next) = rayon::join(
                || blocks.par_iter().map(|block| parser.parse(block)).collect::<Vec<_>>(),
                || some_blocks(&mut source),
            );
            // The first error of the file, so that it is the same every time.
            for part in parsed {
                parts.push(part?);
            }
            blocks = next?;
        }
        let mut words = vec![Words::default(); layout.words];
        for part in &mut parts {
            let renumbered: Vec<Vec<u32>> =
                words.iter_mut().zip(&part.found).map(|(all, found)| all.add(found)).collect();
            for row in part.words.chunks_exact_mut(layout.words.max(1)) {
                row.iter_mut().zip(&renumbered).filter(|(word, _)| **word != NO_WORD).for_each(
                    |(word, renumbered)| {
                        *word = renumbered[*word as usize];
                    },
                );
            }
            part.found = Vec::new();
        }
        let file = Self { path: path.to_owned(), layout, parts, words };
        file.refuse_missing(config.missing)?;
        if file.rows() == 0 {
            return Err(bad(path, None, None, file.why_empty()));
        }
        Ok(file)
    }

    pub(super) fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    fn why_empty(&self) -> &'static str {
        let dropped = self.parts.iter().any(|part| part.missing.iter().any(|(count, _)| *count > 0));
        if dropped { "has no row without missing values" } else { "has no rows below its header" }
    }

    /// Refuses missing values, unless they are dropped, or are features to be replaced by means.
    fn refuse_missing(&self, missing: Missing) -> Result<(), DataFileError> {
        const SHOWN: usize = 10;
        if missing == Missing::Drop {
            return Ok(());
        }
        let is_filled = |k: usize| {
            let role = self.layout.roles[k];
            missing == Missing::Mean && matches!(role, Role::Number(_)) && role != self.layout.target
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
        let more = if more == 0 { String::new() } else { format!(" and some in {more} more columns") };
        let remedy = match missing {
            Missing::Mean => {
                "only numeric features are replaced by means: fill these in, or set missing = \"drop\" in [problem]"
            }
            _ => "fill them in, or set missing = \"mean\" or missing = \"drop\" in [problem]",
        };
        let shown = shown.join(", ");
        let problem = format!("has missing values, the first in line {first}: {shown}{more}; {remedy}");
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

/// Parses the blocks of a file.
struct Parser<'a> {
    path: &'a Path,
    layout: &'a Layout,
    config: &'a TableConfig,
    delimiter: u8,
}

impl Parser<'_> {
    fn parse(&self, block: &Block) -> Result<Part, DataFileError> {
        let layout = self.layout;
        let mut part = Part {
            rows: 0,
            numbers: Vec::new(),
            words: Vec::new(),
            found: vec![Words::default(); layout.words],
            missing: vec![(0, 0); layout.header.len()],
        };
        let mut reader = records(&block.text, self.delimiter);
        let mut record = StringRecord::new();
        loop {
            let begun = reader.position().byte() as usize;
            let line = || line_of(block, begun);
            if !reader.read_record(&mut record).map_err(|_| bad(self.path, Some(line()), None, NOT_UTF8))? {
                return Ok(part);
            }
            if record.len() != layout.header.len() {
                if record.len() == 1 && record[0].trim().is_empty() {
                    continue;
                }
                let problem = format!("has {} fields, the header has {}", record.len(), layout.header.len());
                return Err(bad(self.path, Some(line()), None, problem));
            }
            self.add(&record, &line, &mut part)?;
        }
    }

    /// Adds a row, unless values are missing and such rows are dropped.
    fn add(
        &self,
        record: &StringRecord,
        line: &dyn Fn() -> u64,
        part: &mut Part,
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
        if !complete && self.config.missing == Missing::Drop {
            part.numbers.truncate(first);
            return Ok(());
        }
        let first = part.words.len();
        part.words.resize(first + layout.words, NO_WORD);
        if layout.words > 0 {
            for (field, role) in record.iter().zip(&layout.roles) {
                if let Role::Word(k) = *role
                    && !is_missing_word(field.trim())
                {
                    part.words[first + k] = part.found[k].number(field.trim(), line);
                }
            }
        }
        part.rows += 1;
        Ok(())
    }

    /// Adds to an error what to do about a column that holds words.
    fn explain(&self, problem: String, field: &str, role: Role, name: &str) -> String {
        let is_word = !field.trim().starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        if role == self.layout.target || !is_word || problem.contains("finite") {
            return problem;
        }
        format!(
            "{problem}: for a column of words, add it to categorical = [\"{name}\"] in [problem], or leave it out with exclude = [\"{name}\"]"
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

/// A number; none if it is missing.
fn number(field: &str) -> Result<Option<f64>, String> {
    let parse = |text: &str| text.parse::<f64>();
    match parse(field).or_else(|_| parse(field.trim())) {
        Ok(value) if value.is_finite() => Ok(Some(value)),
        Ok(value) if value.is_nan() => Ok(None),
        Ok(_) => Err(format!("'{field}' is not a finite number")),
        Err(_) if is_missing_word(field.trim()) => Ok(None),
        Err(_) if parse(&field.trim().replace(',', ".")).is_ok() => {
            Err(format!("'{field}' has a comma: write numbers with a decimal point, as in 1.5"))
        }
        Err(_) => Err(format!("'{field}' is not a number")),
    }
}

/// Whether a field of a table says that its value is missing.
pub fn is_missing_word(field: &str) -> bool {
    field.is_empty() || ["?", "NA", "N/A", "NaN", "nan", "null", "NULL"].contains(&field)
}
