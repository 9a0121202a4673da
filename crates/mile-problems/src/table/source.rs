//! A data file as a sequence of blocks of rows: text, or the columns of a Parquet or Arrow file.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use super::bad;
use super::columns::{self, ColumnSource};
use super::foreign;
use super::record::Block;
use super::text::TextSource;
use super::written::TextForm;
use crate::error::DataFileError;
use crate::reading::{self, Reading};

/// An open file, after its header.
pub(super) enum Source<'a> {
    Text(TextSource<'a>),
    Columns(ColumnSource<'a>),
}

/// A reader that counts its bytes.
struct Counted<'a> {
    file: File,
    reading: &'a Reading,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.reading.advance(bytes as u64);
        Ok(bytes)
    }
}

impl<'a> Source<'a> {
    /// Opens a file, whose first bytes say what it is; see [`TextSource::open`] for `expected`.
    pub(super) fn open(
        path: &Path,
        form: TextForm,
        expected: Option<&str>,
        reading: &'a Reading,
    ) -> Result<Self, DataFileError> {
        let unreadable = |error: std::io::Error| bad(path, None, None, format!("cannot read it: {error}"));
        let mut file = reading::open(path).map_err(unreadable)?;
        let mut first = Vec::new();
        file.by_ref().take(columns::MARK).read_to_end(&mut first).map_err(unreadable)?;
        if let Some(kind) = columns::kind(&first) {
            return ColumnSource::open(path, kind, reading).map(Self::Columns);
        }
        if let Some(kind) = foreign::kind(&first) {
            return Err(bad(path, None, None, format!("expected a CSV, Parquet or Arrow file, got {kind}")));
        }
        let whole = Cursor::new(first).chain(Counted { file, reading });
        TextSource::open(path, Box::new(whole), form, expected).map(Self::Text)
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> &[String] {
        match self {
            Self::Text(source) => &source.header,
            Self::Columns(source) => &source.header,
        }
    }

    /// The next blocks, as many as keep all cores busy; none at the end of the file.
    pub(super) fn some_blocks(&mut self) -> Result<Vec<Block>, DataFileError> {
        let mut blocks = Vec::new();
        for _ in 0..4 * rayon::current_num_threads() {
            let next = match self {
                Self::Text(source) => source.next()?.map(Block::Text),
                Self::Columns(source) => source.next()?.map(Block::Columns),
            };
            match next {
                Some(block) => blocks.push(block),
                None => break,
            }
        }
        Ok(blocks)
    }
}
