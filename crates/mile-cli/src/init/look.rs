//! A look at a CSV file: its delimiter, its columns and their values.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use mile_lab::error::LabError;
use mile_lab::objectives::is_missing_word;

/// The most bytes that are read; of a larger file only the first rows are examined.
const MOST_BYTES: u64 = 64 << 20;
/// The most distinct values of a column that are counted.
const MOST_DISTINCT: usize = 1000;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// What is seen in a CSV file.
pub(super) struct Look {
    pub(super) delimiter: u8,
    pub(super) columns: Vec<Column>,
    pub(super) rows: usize,
    /// Whether all rows were examined.
    pub(super) complete: bool,
}

/// What is seen in a column.
#[derive(Default)]
pub(super) struct Column {
    pub(super) name: String,
    /// Whether all values, except for missing ones, are finite numbers.
    pub(super) is_numeric: bool,
    /// Whether all values, except for missing ones, are whole numbers.
    pub(super) is_whole: bool,
    /// How often each value occurs, for at most [`MOST_DISTINCT`] of them; numbers are compared by value.
    pub(super) values: BTreeMap<String, usize>,
    pub(super) missing: usize,
}

impl Column {
    fn add(&mut self, field: &str) {
        if is_missing_word(field) {
            self.missing += 1;
            return;
        }
        let number = field.parse::<f64>().ok().filter(|number| number.is_finite());
        self.is_numeric &= number.is_some();
        self.is_whole &= number.is_some_and(|number| number.fract() == 0.0);
        let value = number.map_or_else(|| field.to_owned(), |number| number.to_string());
        if self.values.len() < MOST_DISTINCT || self.values.contains_key(&value) {
            *self.values.entry(value).or_default() += 1;
        }
    }
}

impl Look {
    pub(super) fn at(path: &Path) -> Result<Self, LabError> {
        let refuse = |problem: String| LabError::Directory { path: path.to_owned(), problem };
        let file = std::fs::File::open(path).map_err(|error| refuse(format!("cannot read it: {error}")))?;
        let mut bytes = Vec::new();
        let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| refuse(format!("cannot read it: {error}")))?;
        let complete = bytes.len() as u64 <= MOST_BYTES;
        if !complete {
            bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0));
        }
        let delimiter = delimiter(&bytes).ok_or_else(|| {
            refuse("expected a CSV file: a first line that names at least two columns, and rows with as many fields".into())
        })?;
        let mut reader = reader(&bytes, delimiter);
        let header = reader.headers().map_err(|error| refuse(format!("cannot read it: {error}")))?.clone();
        let column =
            |name: &str| Column { name: name.into(), is_numeric: true, is_whole: true, ..Column::default() };
        let mut look = Self { delimiter, columns: header.iter().map(column).collect(), rows: 0, complete };
        for record in reader.records() {
            let record = record.map_err(|error| refuse(format!("cannot read it: {error}")))?;
            if record.len() != header.len() {
                let line = record.position().map_or(0, csv::Position::line);
                let problem = format!(
                    "line {line}: expected {} fields, as in the header, got {}",
                    header.len(),
                    record.len()
                );
                return Err(refuse(problem));
            }
            look.columns.iter_mut().zip(&record).for_each(|(column, field)| column.add(field));
            look.rows += 1;
        }
        if look.rows == 0 {
            return Err(refuse("no rows below the header".into()));
        }
        Ok(look)
    }
}

fn reader(bytes: &[u8], delimiter: u8) -> csv::Reader<&[u8]> {
    let mut builder = csv::ReaderBuilder::new();
    builder.flexible(true).trim(csv::Trim::All).comment(Some(b'#')).delimiter(delimiter);
    builder.from_reader(bytes)
}

/// The delimiter that gives the first rows the most fields, all rows having as many as the header.
fn delimiter(bytes: &[u8]) -> Option<u8> {
    let fields = |delimiter: &u8| {
        let mut reader = reader(bytes, *delimiter);
        let header = reader.headers().ok()?.len();
        let mut rows = reader.records().take(20);
        let even = rows.all(|record| record.is_ok_and(|record| record.len() == header));
        (even && header > 1).then_some(header)
    };
    let found = DELIMITERS.into_iter().filter_map(|delimiter| Some((fields(&delimiter)?, delimiter)));
    // The first among those with equally many fields.
    found.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, delimiter)| delimiter)
}
