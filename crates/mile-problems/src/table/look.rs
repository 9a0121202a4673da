//! A look at a data file: what its columns are, before anybody has said so.

mod seen;

use std::path::Path;

use rayon::prelude::*;

use self::seen::Seen;
use super::bad;
use super::cell::Wanted;
use super::formats::NumberFormat;
use super::record::Block;
use super::source::Source;
use super::written::TextForm;
use crate::error::{DataFileError, FilePlace, LabError};
use crate::reading::{Reading, ReadingProgress};

/// What is seen in a data file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableLook {
    /// Number of rows.
    pub rows: u64,
    /// The columns.
    pub columns: Vec<ColumnLook>,
    /// The character between fields; none if the file is not a text.
    pub delimiter: Option<char>,
    /// The name of its encoding, if that is neither UTF-8 nor marked.
    pub encoding: Option<&'static str>,
    /// The character with which comments begin, if there are any.
    pub comment: Option<char>,
    /// Number of comments.
    pub comments: u64,
}

/// What is seen in a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ColumnLook {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: ColumnType,
    /// Number of rows without a value, among them those with words that are not numbers in a column of numbers.
    pub missing: u64,
    /// The different values and how often each occurs, numbers by value; none if there are more than a thousand.
    pub values: Option<Vec<(String, u64)>>,
    /// Words in a column of numbers that say that a value is missing.
    pub blanks: Vec<String>,
    /// Other words in a column of numbers, with the place of the first and how often each occurs.
    pub odd: Vec<(String, FilePlace, u64)>,
    /// Whether all numbers are whole.
    pub is_whole: bool,
    /// The largest absolute value of a number.
    pub largest: f64,
    /// The mean of the plain numbers; 0 if there are none.
    pub mean: f64,
    /// How many plain numbers are below 0.
    pub negative: u64,
    /// How many plain numbers are 0.
    pub zeros: u64,
}

/// What the values of a column are.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnType {
    /// There are none.
    Empty,
    /// Numbers in this format.
    Numbers(NumberFormat),
    /// Numbers, of which such a text means one thing in each of two formats.
    Unclear([NumberFormat; 2], String),
    /// Words.
    Words,
}

impl TableLook {
    /// Looks at all rows of a file. `target` is a column that the right delimiter gives.
    ///
    /// Lines that begin with # are rows, unless they do not have the fields of rows. A text that is not UTF-8 is taken for Windows-1252, in
    /// which every text can be read.
    pub fn at(path: &Path, target: Option<&str>, progress: &ReadingProgress) -> Result<Self, LabError> {
        let form = |comment: Option<u8>, encoding| TextForm { delimiter: None, comment, encoding };
        let latin = Some(encoding_rs::WINDOWS_1252);
        let others = [form(Some(b'#'), None), form(None, latin), form(Some(b'#'), latin)];
        let found = Self::with(path, form(None, None), target, progress).or_else(|error| {
            let mut found =
                others.into_iter().filter_map(|form| Self::with(path, form, target, progress).ok());
            found.next().ok_or(error)
        });
        Ok(found?)
    }

    fn with(
        path: &Path,
        form: TextForm,
        target: Option<&str>,
        progress: &ReadingProgress,
    ) -> Result<Self, DataFileError> {
        let size = std::fs::metadata(path).map_or(0, |about| about.len());
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let reading = Reading::new(progress, name, size);
        let mut source = Source::open(path, form, target, &reading)?;
        let header = source.header().to_vec();
        let wanted = vec![Wanted::Any; header.len()];
        let look = |block: &Block| -> Result<(u64, u64, Vec<Seen>), DataFileError> {
            let mut seen: Vec<Seen> = header.iter().map(|_| Seen::default()).collect();
            let (mut rows, has_commas) = (0, block.may_have_commas());
            let comments = block.for_each(path, &wanted, &mut |record| {
                rows += 1;
                for (column, seen) in seen.iter_mut().enumerate() {
                    seen.add(record.cell(column), has_commas, || record.place());
                }
                Ok(())
            })?;
            Ok((rows, comments, seen))
        };
        let mut all: Vec<Seen> = header.iter().map(|_| Seen::default()).collect();
        let (mut rows, mut comments) = (0, 0);
        let mut blocks = source.some_blocks()?;
        while !blocks.is_empty() {
            let (looks, next) =
                rayon::join(|| blocks.par_iter().map(look).collect::<Vec<_>>(), || source.some_blocks());
            for found in looks {
                let (more, lines, seen) = found?;
                rows += more;
                comments += lines;
                all.iter_mut().zip(seen).for_each(|(all, seen)| all.merge(seen));
            }
            blocks = next?;
        }
        if rows == 0 {
            return Err(bad(path, None, None, "no rows below the header"));
        }
        let mut columns: Vec<ColumnLook> =
            header.into_iter().zip(all).map(|(name, seen)| seen.finish(name)).collect();
        settle(&mut columns);
        let (delimiter, encoding, before) = match &source {
            Source::Text(text) => {
                let encoding = form.encoding.map(|encoding| encoding.name());
                (Some(char::from(text.dialect.delimiter)), encoding, text.comments)
            }
            Source::Columns(_) => (None, None, 0),
        };
        let comment = form.comment.map(char::from);
        Ok(Self { rows, columns, delimiter, encoding, comment, comments: comments + before })
    }
}

/// Decides between two formats where the other columns of the file leave no doubt.
fn settle(columns: &mut [ColumnLook]) {
    use NumberFormat::{DateDayFirst, DateMonthFirst, DecimalComma, Percent, PercentComma, Thousands};
    let has = |format| columns.iter().any(|column| column.kind == ColumnType::Numbers(format));
    let commas = [has(Thousands) || has(Percent), has(DecimalComma) || has(PercentComma)];
    let days = [has(DateDayFirst), has(DateMonthFirst)];
    for column in columns {
        let ColumnType::Unclear(formats, _) = &column.kind else { continue };
        let known = if formats[0] == DateDayFirst { days } else { commas };
        match known {
            [true, false] => column.kind = ColumnType::Numbers(formats[0]),
            [false, true] => column.kind = ColumnType::Numbers(formats[1]),
            _ => {}
        }
    }
}
