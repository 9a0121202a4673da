//! The text of a CSV file, in blocks that end where a record ends.
//!
//! Blocks are parsed in parallel, so a line break inside quotes must not end one. Where a block has no quotes, its last
//! line break ends it; otherwise [`Scan`] follows the rules by which the csv crate recognises quoted fields.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::read::MultiGzDecoder;

use super::bad;
use super::written::TextForm;
use crate::error::{DataFileError, FilePlace};

/// Size of a block, if its records are not longer.
const BLOCK: usize = 1 << 20;
/// Delimiters that are recognized, with their names.
const DELIMITERS: [(u8, &str); 4] = [(b',', "comma"), (b';', "semicolon"), (b'\t', "tab"), (b'|', "pipe")];
/// Records that are compared to recognize the delimiter, the header included.
const COMPARED: usize = 21;

/// How the records of a text are told apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dialect {
    /// The character between fields.
    pub(super) delimiter: u8,
    /// The character with which lines begin that are not read.
    pub(super) comment: Option<u8>,
}

/// An open CSV file, after its header.
pub(super) struct TextSource<'a> {
    path: PathBuf,
    pub(super) header: Vec<String>,
    pub(super) dialect: Dialect,
    /// Comments before the header.
    pub(super) comments: u64,
    input: Box<dyn Read + Send + 'a>,
    /// Text that was read and is in no block yet.
    ahead: Vec<u8>,
    /// The line in which it begins, from 1.
    line: u64,
    ended: bool,
}

/// Some records of a file.
pub(super) struct TextBlock {
    pub(super) text: Vec<u8>,
    /// The line in which it begins, from 1.
    pub(super) line: u64,
    /// Number of its line breaks.
    pub(super) breaks: u64,
    pub(super) dialect: Dialect,
}

impl<'a> TextSource<'a> {
    /// Reads the header of a file, which is unpacked if it is compressed. Without a delimiter it is recognized; `expected` is a column that the
    /// right delimiter gives. Without one, the delimiter of the most columns is taken.
    pub(super) fn open(
        path: &Path,
        input: Box<dyn Read + Send + 'a>,
        form: TextForm,
        expected: Option<&str>,
    ) -> Result<Self, DataFileError> {
        let unreadable = |error: std::io::Error| bad(path, None, None, format!("cannot read it: {error}"));
        let (first, input) = peek(input, 2).map_err(unreadable)?;
        let input = if first == [0x1f, 0x8b] { Box::new(MultiGzDecoder::new(input)) } else { input };
        let (first, mut input) = peek(input, 3).map_err(unreadable)?;
        let marked = Encoding::for_bom(&first).map(|(encoding, _)| encoding);
        let encoding = form.encoding.or(marked).filter(|encoding| *encoding != UTF_8);
        if let Some(encoding) = encoding {
            input = Box::new(DecodeReaderBytesBuilder::new().encoding(Some(encoding)).build(input));
        }
        let mut ahead = Vec::new();
        let read = input.by_ref().take(BLOCK as u64).read_to_end(&mut ahead).map_err(unreadable)?;
        if ahead.starts_with(&[0xef, 0xbb, 0xbf]) {
            ahead.drain(..3);
        }
        refuse_utf16(path, &ahead)?;
        let ended = read < BLOCK;
        let named = named_delimiter(&ahead);
        ahead.drain(..named.map_or(0, |(_, end)| end));
        let delimiter = match form.delimiter.or(named.map(|(delimiter, _)| delimiter)) {
            Some(delimiter) => delimiter,
            None => recognize(path, complete(&ahead, ended), form.comment, expected)?,
        };
        let dialect = Dialect { delimiter, comment: form.comment };
        let (path, header, line) = (path.to_owned(), Vec::new(), if named.is_some() { 2 } else { 1 });
        let mut source = Self { path, header, dialect, comments: 0, input, ahead, line, ended };
        source.read_header()?;
        Ok(source)
    }

    fn read_header(&mut self) -> Result<(), DataFileError> {
        let first = Some(FilePlace::Line(self.line));
        let mut reader = records(&self.ahead[..], self.dialect);
        let mut record = csv::StringRecord::new();
        reader.read_record(&mut record).map_err(|_| not_utf8(&self.path, &self.ahead, self.line))?;
        self.header = record.iter().map(|name| name.trim().to_owned()).collect();
        if self.header.iter().all(String::is_empty) {
            let problem = "empty; the first line must name the columns";
            return Err(bad(&self.path, first, None, problem));
        }
        let end = reader.position().byte() as usize;
        if end >= self.ahead.len() && !self.ended {
            return Err(bad(&self.path, first, None, format!("longer than {BLOCK} bytes")));
        }
        self.comments = comments(&self.ahead[..end], self.dialect);
        self.line += lines(&self.ahead[..end]);
        self.ahead.drain(..end);
        Ok(())
    }

    /// The next block; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<TextBlock>, DataFileError> {
        let mut text = std::mem::take(&mut self.ahead);
        let mut scan = Scan::new(self.dialect);
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
        let (line, breaks) = (self.line, lines(&text));
        self.line += breaks;
        Ok((!text.is_empty()).then_some(TextBlock { text, line, breaks, dialect: self.dialect }))
    }
}

/// The first bytes of an input, which is then read from its beginning.
fn peek<'a>(
    mut input: Box<dyn Read + Send + 'a>,
    bytes: u64,
) -> std::io::Result<(Vec<u8>, Box<dyn Read + Send + 'a>)> {
    let mut first = Vec::new();
    input.by_ref().take(bytes).read_to_end(&mut first)?;
    Ok((first.clone(), Box::new(Cursor::new(first).chain(input))))
}

/// The delimiter that a first line such as `sep=;` names for Excel, and where the next line begins.
fn named_delimiter(text: &[u8]) -> Option<(u8, usize)> {
    let rest = text.strip_prefix(b"sep=")?;
    let (delimiter, end) = match rest {
        [delimiter, b'\n', ..] => (*delimiter, 6),
        [delimiter, b'\r', b'\n', ..] => (*delimiter, 7),
        _ => return None,
    };
    DELIMITERS.iter().any(|(known, _)| *known == delimiter).then_some((delimiter, end))
}

/// Refuses a text in which every second byte is zero.
fn refuse_utf16(path: &Path, text: &[u8]) -> Result<(), DataFileError> {
    let zeros = |odd: usize| {
        let mut bytes = text.iter().take(64).skip(odd).step_by(2);
        text.len() >= 4 && bytes.all(|byte| *byte == 0)
    };
    let name = match (zeros(1), zeros(0)) {
        (true, false) => "utf-16le",
        (false, true) => "utf-16be",
        _ => return Ok(()),
    };
    let problem = format!(
        "UTF-16 text without a byte order mark; set encoding = \"{name}\" in [problem], or save it as UTF-8"
    );
    Err(bad(path, None, None, problem))
}

/// The error of a text that is not UTF-8; `line` is the number of its first line.
pub(super) fn not_utf8(path: &Path, text: &[u8], line: u64) -> DataFileError {
    let place = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
    let (before, after) = text.split_at(place);
    let ends = |byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric();
    let first = before.iter().rposition(ends).map_or(0, |end| end + 1);
    let last = after.iter().position(ends).map_or(text.len(), |end| place + end).min(first + 40);
    let (word, ..) = WINDOWS_1252.decode(&text[first..last]);
    let problem = format!(
        "bytes that are not UTF-8; if they mean '{word}', the file is Latin-1 (Windows-1252): set encoding = \"latin1\" in [problem], or save it as UTF-8"
    );
    bad(path, Some(FilePlace::Line(line + lines(before))), None, problem)
}

/// The records of a text, the header included.
pub(super) fn records<R: Read>(text: R, dialect: Dialect) -> csv::Reader<R> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(dialect.comment)
        .delimiter(dialect.delimiter)
        .from_reader(text)
}

/// Number of comments in a text that begins with a record.
pub(super) fn comments(text: &[u8], dialect: Dialect) -> u64 {
    if dialect.comment.is_none() {
        return 0;
    }
    let mut scan = Scan::new(dialect);
    let mut count = 0;
    for byte in text {
        let next = scan.after(*byte);
        count += u64::from(next == State::Comment && scan.state != State::Comment);
        scan.state = next;
    }
    count
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
/// header, or the only one that gives a column of the expected name or, if none is expected, the most columns.
fn recognize(
    path: &Path,
    text: &[u8],
    comment: Option<u8>,
    expected: Option<&str>,
) -> Result<u8, DataFileError> {
    let first = |delimiter: u8| -> Vec<csv::StringRecord> {
        let records = records(text, Dialect { delimiter, comment });
        records.into_records().map_while(Result::ok).take(COMPARED).collect()
    };
    let mut left: Vec<(u8, Vec<csv::StringRecord>)> =
        DELIMITERS.iter().map(|(delimiter, _)| (*delimiter, first(*delimiter))).collect();
    left.retain(|(_, records)| records.first().is_some_and(|header| header.len() > 1));
    let even = |records: &[csv::StringRecord]| records.iter().all(|r| r.len() == records[0].len());
    let named = |records: &[csv::StringRecord]| records[0].iter().any(|name| Some(name.trim()) == expected);
    if left.len() > 1 && left.iter().any(|(_, records)| even(records)) {
        left.retain(|(_, records)| even(records));
    }
    if left.len() > 1 && left.iter().any(|(_, records)| named(records)) {
        left.retain(|(_, records)| named(records));
    }
    if expected.is_none() {
        let most = left.iter().map(|(_, records)| records[0].len()).max();
        let first = left.iter().position(|(_, records)| Some(records[0].len()) == most);
        left = first.map(|k| left.swap_remove(k)).into_iter().collect();
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
            Err(bad(path, Some(FilePlace::Line(1)), None, problem))
        }
    }
}

/// Follows a text from the beginning of a record and finds where records end.
struct Scan {
    dialect: Dialect,
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
    fn new(dialect: Dialect) -> Self {
        Self { dialect, state: State::Record }
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
            (State::Comment, _) => State::Comment,
            (State::Record, byte) if Some(byte) == self.dialect.comment => State::Comment,
            (State::Quoted, b'"') => State::Quote,
            (State::Quoted, _) | (State::Record | State::Field | State::Quote, b'"') => State::Quoted,
            (_, b'\n' | b'\r') => State::Record,
            (_, byte) if byte == self.dialect.delimiter => State::Field,
            _ => State::Bare,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMMENTED: Dialect = Dialect { delimiter: b',', comment: Some(b'#') };

    fn all(text: &[u8], dialect: Dialect) -> Vec<csv::ByteRecord> {
        records(text, dialect).into_byte_records().map(Result::unwrap).collect()
    }

    proptest! {
        #[test]
        fn records_are_the_same_where_a_text_is_cut(text in "[a,\"\n\r#]{0,40}", first in 0usize..40) {
            let (text, first) = (text.as_bytes(), first.min(text.len()));
            for dialect in [COMMENTED, Dialect { comment: None, ..COMMENTED }] {
                let mut scan = Scan::new(dialect);
                let ends = [scan.advance(&text[..first]), scan.advance(&text[first..]).map(|end| first + end)];
                for end in ends.into_iter().flatten() {
                    let parts = [all(&text[..end], dialect), all(&text[end..], dialect)].concat();
                    prop_assert_eq!(parts, all(text, dialect), "cut at {}", end);
                }
            }
        }
    }

    #[test]
    fn a_line_break_in_quotes_ends_no_block_and_one_outside_does() {
        let dialect = Dialect { delimiter: b';', comment: Some(b'#') };
        let end = |text: &str| Scan::new(dialect).advance(text.as_bytes());
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

    #[test]
    fn comments_are_counted() {
        let text = b"# one\na,b\n#\n\"x\n# in quotes\",2\n#, \" three\n3,# no\n";
        assert_eq!(comments(text, COMMENTED), 3);
        assert_eq!(comments(text, Dialect { comment: None, ..COMMENTED }), 0);
    }
}
