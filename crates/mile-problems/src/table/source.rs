//! The text of a CSV file, in blocks that end where a record ends.
//!
//! Blocks are parsed in parallel, so a line break inside quotes must not end one. Where a block has no quotes, its last
//! line break ends it; otherwise [`Scan`] follows the rules by which the csv crate recognises quoted fields.

use std::fs::File;
use std::io::{Chain, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::bad;
use crate::error::DataFileError;
use crate::reading::Reading;

/// Size of a block, if its records are not longer.
const BLOCK: usize = 1 << 20;
/// Delimiters that are recognized, with their names.
pub(super) const DELIMITERS: [(u8, &str); 4] =
    [(b',', "comma"), (b';', "semicolon"), (b'\t', "tab"), (b'|', "pipe")];
/// Records that are compared to recognize the delimiter, the header included.
const COMPARED: usize = 21;

/// An open CSV file, after its header.
pub(super) struct Source<'a> {
    pub(super) path: PathBuf,
    pub(super) header: Vec<String>,
    pub(super) delimiter: u8,
    input: Box<dyn Read + Send + 'a>,
    /// Text that was read and is in no block yet.
    ahead: Vec<u8>,
    /// The line in which it begins, from 1.
    line: u64,
    ended: bool,
}

/// Some records of a file.
pub(super) struct Block {
    pub(super) text: Vec<u8>,
    /// The line in which it begins, from 1.
    pub(super) line: u64,
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
    /// Opens a file, unpacks it if it is compressed, and reads its header. Without a delimiter it is recognized;
    /// `expected` is a column that the right delimiter gives.
    pub(super) fn open(
        path: &Path,
        delimiter: Option<u8>,
        expected: &str,
        reading: &'a Reading,
    ) -> Result<Self, DataFileError> {
        let unreadable = |error: std::io::Error| bad(path, None, None, format!("cannot read it: {error}"));
        let mut file = Counted { file: File::open(path).map_err(unreadable)?, reading };
        let mut first = Vec::new();
        file.by_ref().take(2).read_to_end(&mut first).map_err(unreadable)?;
        let is_gzip = first == [0x1f, 0x8b];
        let whole: Chain<Cursor<Vec<u8>>, Counted<'a>> = Cursor::new(first).chain(file);
        let mut input: Box<dyn Read + Send + 'a> =
            if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        let mut ahead = Vec::new();
        let read = input.by_ref().take(BLOCK as u64).read_to_end(&mut ahead).map_err(unreadable)?;
        if ahead.starts_with(&[0xff, 0xfe]) || ahead.starts_with(&[0xfe, 0xff]) {
            return Err(bad(path, None, None, "UTF-16 text; save it as UTF-8"));
        }
        if ahead.starts_with(&[0xef, 0xbb, 0xbf]) {
            ahead.drain(..3);
        }
        let ended = read < BLOCK;
        let delimiter = match delimiter {
            Some(delimiter) => delimiter,
            None => recognize(path, complete(&ahead, ended), expected)?,
        };
        let mut source =
            Self { path: path.to_owned(), header: Vec::new(), delimiter, input, ahead, line: 1, ended };
        source.read_header()?;
        Ok(source)
    }

    fn read_header(&mut self) -> Result<(), DataFileError> {
        let mut reader = records(&self.ahead, self.delimiter);
        let mut record = csv::StringRecord::new();
        reader.read_record(&mut record).map_err(|_| bad(&self.path, Some(1), None, NOT_UTF8))?;
        self.header = record.iter().map(|name| name.trim().to_owned()).collect();
        if self.header.iter().all(String::is_empty) {
            let problem = "empty; the first line must name the columns";
            return Err(bad(&self.path, Some(1), None, problem));
        }
        let end = reader.position().byte() as usize;
        if end >= self.ahead.len() && !self.ended {
            return Err(bad(&self.path, Some(1), None, format!("longer than {BLOCK} bytes")));
        }
        self.line += lines(&self.ahead[..end]);
        self.ahead.drain(..end);
        Ok(())
    }

    /// The next block; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Block>, DataFileError> {
        let mut text = std::mem::take(&mut self.ahead);
        let mut scan = Scan::new(self.delimiter);
        let mut end = scan.advance(&text);
        while !self.ended && (end.is_none() || text.len() < BLOCK) {
            let seen = text.len();
            text.reserve(BLOCK);
            let read = self.input.by_ref().take(BLOCK as u64).read_to_end(&mut text);
            let read = read.map_err(|e| bad(&self.path, None, None, format!("cannot read it: {e}")))?;
            self.ended = read < BLOCK;
            end = scan.advance(&text[seen..]).map(|place| seen + place).or(end);
        }
        if !self.ended
            && let Some(end) = end
        {
            self.ahead.extend_from_slice(&text[end..]);
            text.truncate(end);
        }
        let line = self.line;
        self.line += lines(&text);
        Ok((!text.is_empty()).then_some(Block { text, line }))
    }
}

/// What is said about bytes that are not UTF-8.
pub(super) const NOT_UTF8: &str = "characters that are not UTF-8; save the file as UTF-8";

/// The records of a text, the header included.
pub(super) fn records(text: &[u8], delimiter: u8) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .delimiter(delimiter)
        .from_reader(text)
}

/// Number of line breaks.
pub(super) fn lines(text: &[u8]) -> u64 {
    // Short sums of bytes are vectorized.
    let count = |some: &[u8]| some.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    text.chunks(255).map(|some| u64::from(count(some))).sum()
}

/// The text up to its last line break; all of it if it ends with the file.
fn complete(text: &[u8], ended: bool) -> &[u8] {
    let last = text.iter().rposition(|byte| *byte == b'\n');
    last.filter(|_| !ended).map_or(text, |end| &text[..end])
}

/// The delimiter of a file: the only one in its header, or the only one that gives all records as many fields as the
/// header, or the only one that gives a column of the expected name.
fn recognize(path: &Path, text: &[u8], expected: &str) -> Result<u8, DataFileError> {
    let first = |delimiter: u8| -> Vec<csv::StringRecord> {
        records(text, delimiter).into_records().map_while(Result::ok).take(COMPARED).collect()
    };
    let mut left: Vec<(u8, Vec<csv::StringRecord>)> =
        DELIMITERS.iter().map(|(delimiter, _)| (*delimiter, first(*delimiter))).collect();
    left.retain(|(_, records)| records.first().is_some_and(|header| header.len() > 1));
    let even = |records: &[csv::StringRecord]| records.iter().all(|r| r.len() == records[0].len());
    let named = |records: &[csv::StringRecord]| records[0].iter().any(|name| name.trim() == expected);
    if left.len() > 1 && left.iter().any(|(_, records)| even(records)) {
        left.retain(|(_, records)| even(records));
    }
    if left.len() > 1 && left.iter().any(|(_, records)| named(records)) {
        left.retain(|(_, records)| named(records));
    }
    match &left[..] {
        [] => Ok(b','),
        [(delimiter, _)] => Ok(*delimiter),
        several => {
            let name = |delimiter: u8| DELIMITERS.iter().find(|(d, _)| *d == delimiter).map_or("", |d| d.1);
            let names: Vec<&str> = several.iter().map(|(delimiter, _)| name(*delimiter)).collect();
            let problem = format!(
                "the delimiter may be {}; name it in [problem], as in delimiter = \"{}\"",
                names.join(" or "),
                char::from(several[0].0)
            );
            Err(bad(path, Some(1), None, problem))
        }
    }
}

/// Follows a text from the beginning of a record and finds where records end.
struct Scan {
    delimiter: u8,
    state: State,
}

/// Where in a record a byte is, as in csv-core.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Record,
    Field,
    Bare,
    Quoted,
    /// After a quote in a quoted field.
    Quote,
    Comment,
}

impl Scan {
    fn new(delimiter: u8) -> Self {
        Self { delimiter, state: State::Record }
    }

    /// Reads on; returns the place after the last line break that ends a record.
    fn advance(&mut self, text: &[u8]) -> Option<usize> {
        let in_quotes = matches!(self.state, State::Quoted | State::Quote);
        if in_quotes || text.contains(&b'"') {
            let mut end = None;
            for (place, byte) in text.iter().enumerate() {
                self.state = self.after(*byte);
                if *byte == b'\n' && self.state == State::Record {
                    end = Some(place + 1);
                }
            }
            return end;
        }
        let end = text.iter().rposition(|byte| *byte == b'\n').map(|place| place + 1);
        if end.is_some() {
            self.state = State::Record;
        }
        text[end.unwrap_or(0)..].iter().for_each(|byte| self.state = self.after(*byte));
        end
    }

    fn after(&self, byte: u8) -> State {
        match (self.state, byte) {
            (State::Comment, b'\n') => State::Record,
            (State::Comment, _) | (State::Record, b'#') => State::Comment,
            (State::Quoted, b'"') => State::Quote,
            (State::Quoted, _) | (State::Record | State::Field | State::Quote, b'"') => State::Quoted,
            (_, b'\n' | b'\r') => State::Record,
            (_, byte) if byte == self.delimiter => State::Field,
            _ => State::Bare,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8]) -> Vec<csv::ByteRecord> {
        records(text, b',').into_byte_records().map(Result::unwrap).collect()
    }

    proptest! {
        #[test]
        fn records_are_the_same_where_a_text_is_cut(text in "[a,\"\n\r#]{0,40}", first in 0usize..40) {
            let (text, first) = (text.as_bytes(), first.min(text.len()));
            let mut scan = Scan::new(b',');
            let ends = [scan.advance(&text[..first]), scan.advance(&text[first..]).map(|end| first + end)];
            for end in ends.into_iter().flatten() {
                let parts = [all(&text[..end]), all(&text[end..])].concat();
                prop_assert_eq!(parts, all(text), "cut at {}", end);
            }
        }
    }

    #[test]
    fn a_line_break_in_quotes_ends_no_block_and_one_outside_does() {
        let end = |text: &str| Scan::new(b';').advance(text.as_bytes());
        assert_eq!(end("1;2\n3;4"), Some(4));
        assert_eq!(end("1;\"a\nb\nc"), None);
        assert_eq!(end("1;\"a\nb\"\n3"), Some(8));
        assert_eq!(end("1;5\" pipe\n2;3"), Some(10));
        assert_eq!(end("# a \" quote\n\"x\ny"), Some(12));
    }

    #[test]
    fn line_breaks_are_counted() {
        assert_eq!(lines(&vec![b'\n'; 1000]), 1000);
        assert_eq!(lines(b"a\r\nb\n\nc"), 3);
    }
}
