//! The rows of a block, one after the other.

use std::io::Read;
use std::path::Path;

use csv::StringRecord;
use memchr::{memchr, memchr_iter, memchr2_iter};

use super::bad;
use super::cell::{Cell, Wanted};
use super::columns::{Column, ColumnBlock};
use super::text::{TextBlock, comments, lines, not_utf8, records};
use crate::error::{DataFileError, FilePlace};

/// Some rows of a file.
pub(super) enum Block {
    Text(TextBlock),
    Columns(ColumnBlock),
}

/// One row.
pub(super) struct Record<'a> {
    cells: Cells<'a>,
    at: At<'a>,
}

enum Cells<'a> {
    Fields(&'a [&'a str]),
    Quoted(&'a StringRecord),
    Columns(&'a [Column], usize),
}

/// Where a row is. Lines are counted only when they are asked for.
enum At<'a> {
    Text(&'a TextBlock, usize),
    Row(u64),
}

type Each<'e> = dyn FnMut(&Record) -> Result<(), DataFileError> + 'e;

impl Record<'_> {
    /// The value of a column that is wanted.
    #[inline]
    pub(super) fn cell(&self, column: usize) -> Cell<'_> {
        match self.cells {
            Cells::Fields(fields) => Cell::Text(fields[column]),
            Cells::Quoted(record) => Cell::Text(&record[column]),
            Cells::Columns(columns, row) => columns[column].cell(row),
        }
    }

    /// Its place in the file.
    pub(super) fn place(&self) -> FilePlace {
        match self.at {
            At::Text(block, begun) => FilePlace::Line(line_of(block, begun)),
            At::Row(row) => FilePlace::Row(row),
        }
    }
}

impl Block {
    /// An upper bound on the number of rows, given the number of columns: a row takes at least one byte per column, and empty lines do not count.
    pub(super) fn most_rows(&self, columns: usize) -> usize {
        match self {
            Self::Text(block) => (block.breaks as usize).min(block.text.len() / columns.max(1)) + 1,
            Self::Columns(block) => block.len,
        }
    }

    /// Whether a field may have a comma in it.
    pub(super) fn may_have_commas(&self) -> bool {
        match self {
            Self::Text(block) => block.dialect.delimiter != b',' || memchr(b'"', &block.text).is_some(),
            Self::Columns(_) => true,
        }
    }

    /// Calls `each` with every row; returns the number of comments among them. `wanted` has all columns of the header.
    pub(super) fn for_each(
        &self,
        path: &Path,
        wanted: &[Wanted],
        each: &mut Each,
    ) -> Result<u64, DataFileError> {
        match self {
            Self::Text(block) => {
                let text =
                    std::str::from_utf8(&block.text).map_err(|_| not_utf8(path, &block.text, block.line))?;
                match is_plain(&block.text) {
                    true => plain(block, text, path, wanted.len(), each),
                    false => quoted(block, path, wanted.len(), each),
                }
            }
            Self::Columns(block) => {
                let (rows, columns) = block.read(path, wanted)?;
                for row in 0..rows {
                    let at = At::Row(block.first + row as u64 + 1);
                    each(&Record { cells: Cells::Columns(&columns, row), at })?;
                }
                Ok(0)
            }
        }
    }
}

/// Whether a text has neither quotes nor line breaks other than \n and \r\n: its delimiters and line breaks are then all that counts.
fn is_plain(text: &[u8]) -> bool {
    memchr(b'"', text).is_none() && memchr_iter(b'\r', text).all(|place| text.get(place + 1) == Some(&b'\n'))
}

/// The rows of a text without quotes.
fn plain(
    block: &TextBlock,
    text: &str,
    path: &Path,
    columns: usize,
    each: &mut Each,
) -> Result<u64, DataFileError> {
    let bytes = text.as_bytes();
    let mut fields: Vec<&str> = Vec::with_capacity(columns);
    let (mut begun, mut start, mut comments) = (0, 0, 0);
    for place in memchr2_iter(block.dialect.delimiter, b'\n', bytes).chain([bytes.len()]) {
        let breaks = bytes.get(place).is_none_or(|byte| *byte == b'\n');
        let end = if breaks && place > start && bytes[place - 1] == b'\r' { place - 1 } else { place };
        fields.push(&text[start..end]);
        start = place + 1;
        if !breaks {
            continue;
        }
        if bytes.get(begun).is_some_and(|byte| Some(*byte) == block.dialect.comment) {
            comments += 1;
        } else if fields.len() == columns && (columns > 1 || !fields[0].is_empty()) {
            each(&Record { cells: Cells::Fields(&fields), at: At::Text(block, begun) })?;
        } else if fields.len() > 1 || !fields[0].trim().is_empty() {
            return Err(uneven(path, block, begun, columns, fields.len()));
        }
        fields.clear();
        begun = start;
    }
    Ok(comments)
}

/// The rows of a text with quotes.
fn quoted(block: &TextBlock, path: &Path, columns: usize, each: &mut Each) -> Result<u64, DataFileError> {
    // At the end of a text, the csv crate takes a comment without a line break for an empty record.
    let end: &[u8] = if block.dialect.comment.is_some() { b"\n" } else { b"" };
    let mut reader = records(block.text.as_slice().chain(end), block.dialect);
    let mut record = StringRecord::new();
    loop {
        let begun = reader.position().byte() as usize;
        let read = reader.read_record(&mut record);
        if !read.map_err(|_| not_utf8(path, &block.text, block.line))? {
            return Ok(comments(&block.text, block.dialect));
        }
        if record.len() == columns {
            each(&Record { cells: Cells::Quoted(&record), at: At::Text(block, begun) })?;
        } else if record.len() > 1 || !record[0].trim().is_empty() {
            return Err(uneven(path, block, begun, columns, record.len()));
        }
    }
}

/// The error of a record that has not as many fields as the header.
fn uneven(path: &Path, block: &TextBlock, begun: usize, columns: usize, fields: usize) -> DataFileError {
    let hint = match block.text.get(begin_of(block, begun)) {
        Some(b'#') => "; if lines that begin with # are comments, set comment = \"#\" in [problem]",
        _ => "",
    };
    let s = if columns == 1 { "" } else { "s" };
    let problem = format!("expected {columns} field{s}, as in the header, got {fields}{hint}");
    bad(path, Some(FilePlace::Line(line_of(block, begun))), None, problem)
}

/// The line of a record, from the place where the one before it ended.
fn line_of(block: &TextBlock, end: usize) -> u64 {
    block.line + lines(&block.text[..begin_of(block, end)])
}

/// Where a record begins, from the place where the one before it ended.
fn begin_of(block: &TextBlock, end: usize) -> usize {
    let mut place = end;
    // Empty lines and comments before the record belong to no record.
    while let Some(byte) = block.text.get(place) {
        match byte {
            b'\r' | b'\n' => place += 1,
            byte if Some(*byte) == block.dialect.comment => {
                let rest = &block.text[place..];
                place += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            _ => break,
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text::Dialect;
    use super::*;

    proptest! {
        #[test]
        fn a_text_without_quotes_has_the_rows_that_the_csv_crate_finds(
            text in "[ab, \n#]{0,40}(\r\n[a,\n]{0,6})?",
            has_comments in any::<bool>(),
            columns in 1usize..4,
        ) {
            let dialect = Dialect { delimiter: b',', comment: has_comments.then_some(b'#') };
            let breaks = lines(text.as_bytes());
            let block = TextBlock { text: text.clone().into_bytes(), line: 7, breaks, dialect };
            prop_assert!(is_plain(&block.text));
            let found = |read: &dyn Fn(&mut Each) -> Result<u64, DataFileError>| {
                let mut rows = Vec::new();
                let result = read(&mut |record| {
                    let cells: Vec<String> = (0..columns).map(|k| format!("{:?}", record.cell(k))).collect();
                    rows.push((record.place(), cells));
                    Ok(())
                });
                (rows, result)
            };
            let fast = found(&|each| plain(&block, &text, Path::new("f"), columns, each));
            let slow = found(&|each| quoted(&block, Path::new("f"), columns, each));
            prop_assert!(fast.0.len() <= Block::Text(block).most_rows(columns));
            prop_assert_eq!(fast, slow);
        }
    }
}
