//! Parquet and Arrow files: their columns have types, and are not read as text.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, RecordBatchReader, StringArray};
use arrow_cast::cast;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType, SchemaRef, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};

use super::bad;
use super::cell::{Cell, Wanted};
use crate::error::DataFileError;
use crate::reading::{self, Reading};

/// Bytes at the beginning of a file that say what it is.
pub(super) const MARK: u64 = 24;
/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// What a file without text is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ColumnKind {
    Parquet,
    /// Arrow's file format, which Feather has too.
    Arrow,
    /// Arrow's streaming format.
    Stream,
    /// Feather before Arrow's file format.
    OldFeather,
}

/// What a file is, by its first bytes; `None` for text.
pub(super) fn kind(first: &[u8]) -> Option<ColumnKind> {
    let kinds = [
        (&b"PAR1"[..], ColumnKind::Parquet),
        (b"ARROW1", ColumnKind::Arrow),
        (b"FEA1", ColumnKind::OldFeather),
        (&[0xff; 4], ColumnKind::Stream),
    ];
    kinds.into_iter().find(|(mark, _)| first.starts_with(mark)).map(|(_, kind)| kind)
}

/// An open Parquet or Arrow file.
pub(super) struct ColumnSource<'a> {
    path: PathBuf,
    pub(super) header: Vec<String>,
    file: OpenFile,
    /// The number of the next row group.
    group: usize,
    /// Rows before the next block.
    rows: u64,
    reading: &'a Reading,
}

enum OpenFile {
    Parquet(ArrowReaderMetadata),
    Batches(Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>),
}

/// Some rows of a file.
pub(super) struct ColumnBlock {
    /// Rows before it.
    pub(super) first: u64,
    /// Number of its rows.
    pub(super) len: usize,
    rows: SomeRows,
}

enum SomeRows {
    /// A row group of a Parquet file, which is decoded where its rows are needed: in parallel.
    Group(ArrowReaderMetadata, usize),
    Batch(RecordBatch),
}

/// The values of a column in a block.
pub(super) enum Column {
    Unwanted,
    Numbers(Float64Array),
    Texts(StringArray),
}

impl Column {
    #[inline]
    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Numbers(numbers) if numbers.is_valid(row) && !numbers.value(row).is_nan() => {
                Cell::Number(numbers.value(row))
            }
            Self::Texts(texts) if texts.is_valid(row) => Cell::Text(texts.value(row)),
            _ => Cell::Missing,
        }
    }
}

impl<'a> ColumnSource<'a> {
    pub(super) fn open(path: &Path, kind: ColumnKind, reading: &'a Reading) -> Result<Self, DataFileError> {
        let unreadable =
            |error: &dyn std::fmt::Display| bad(path, None, None, format!("cannot read it: {error}"));
        let file = reading::open(path).map_err(|error| unreadable(&error))?;
        let (schema, file): (SchemaRef, OpenFile) = match kind {
            ColumnKind::Parquet => {
                let metadata = ArrowReaderMetadata::load(&file, Default::default());
                let metadata = metadata.map_err(|error| unreadable(&error))?;
                (metadata.schema().clone(), OpenFile::Parquet(metadata))
            }
            ColumnKind::Arrow => {
                let file =
                    FileReader::try_new(BufReader::new(file), None).map_err(|error| unreadable(&error))?;
                (file.schema(), OpenFile::Batches(Box::new(file)))
            }
            ColumnKind::Stream => {
                let file = StreamReader::try_new(file, None).map_err(|error| unreadable(&error))?;
                (file.schema(), OpenFile::Batches(Box::new(file)))
            }
            ColumnKind::OldFeather => {
                let problem = "expected a Feather file of version 2 (an Arrow file), got one of version 1; write it again with a newer library";
                return Err(bad(path, None, None, problem));
            }
        };
        let header = schema.fields().iter().map(|field| field.name().trim().to_owned()).collect();
        Ok(Self { path: path.to_owned(), header, file, group: 0, rows: 0, reading })
    }

    /// The next block; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<ColumnBlock>, DataFileError> {
        let first = self.rows;
        let rows = match &mut self.file {
            OpenFile::Parquet(metadata) => {
                let groups = metadata.metadata().row_groups();
                let Some(group) = groups.get(self.group) else { return Ok(None) };
                self.rows += group.num_rows() as u64;
                self.reading.advance(group.compressed_size() as u64);
                self.group += 1;
                SomeRows::Group(metadata.clone(), self.group - 1)
            }
            OpenFile::Batches(batches) => {
                let Some(batch) = batches.next() else { return Ok(None) };
                let batch =
                    batch.map_err(|error| bad(&self.path, None, None, format!("cannot read it: {error}")))?;
                self.rows += batch.num_rows() as u64;
                self.reading.advance(batch.get_array_memory_size() as u64);
                SomeRows::Batch(batch)
            }
        };
        Ok(Some(ColumnBlock { first, len: (self.rows - first) as usize, rows }))
    }
}

impl ColumnBlock {
    /// The number of rows, and the wanted columns.
    pub(super) fn read(&self, path: &Path, wanted: &[Wanted]) -> Result<(usize, Vec<Column>), DataFileError> {
        let of_batch = |name: &str, array: &ArrayRef, wanted: Wanted| {
            column(array, wanted).map_err(|problem| bad(path, None, Some(name), problem))
        };
        let chosen: Vec<usize> = (0..wanted.len()).filter(|k| wanted[*k] != Wanted::Nothing).collect();
        let mut columns: Vec<Column> = wanted.iter().map(|_| Column::Unwanted).collect();
        let (batch, places) = match &self.rows {
            SomeRows::Batch(batch) => (batch.clone(), chosen.clone()),
            SomeRows::Group(metadata, group) => {
                let batch = group_of(path, metadata, *group, &chosen)
                    .map_err(|error| bad(path, None, None, format!("cannot read it: {error}")))?;
                (batch, (0..chosen.len()).collect())
            }
        };
        for (k, place) in chosen.into_iter().zip(places) {
            let schema = batch.schema_ref();
            columns[k] = of_batch(schema.field(place).name(), batch.column(place), wanted[k])?;
        }
        Ok((batch.num_rows(), columns))
    }
}

/// The chosen columns of a row group.
fn group_of(
    path: &Path,
    metadata: &ArrowReaderMetadata,
    group: usize,
    chosen: &[usize],
) -> Result<RecordBatch, ArrowError> {
    let file = reading::open(path)?;
    let rows = metadata.metadata().row_group(group).num_rows() as usize;
    let mask = ProjectionMask::roots(metadata.parquet_schema(), chosen.iter().copied());
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
    let reader = builder.with_projection(mask).with_row_groups(vec![group]).with_batch_size(rows.max(1));
    let mut batches = reader.build()?;
    let schema = batches.schema();
    batches.next().unwrap_or_else(|| Ok(RecordBatch::new_empty(schema)))
}

/// The values of a column as they are wanted.
fn column(array: &ArrayRef, wanted: Wanted) -> Result<Column, String> {
    match wanted {
        Wanted::Nothing => Ok(Column::Unwanted),
        Wanted::Any => Ok(values(array, false).unwrap_or(Column::Unwanted)),
        Wanted::Number => values(array, false),
        Wanted::Word => values(array, true),
    }
}

/// The words of a column, or its numbers unless it is a text.
fn values(array: &ArrayRef, are_words: bool) -> Result<Column, String> {
    let refuse = |_: ArrowError| format!("expected numbers or words, got {}", array.data_type());
    let is_text = match array.data_type() {
        DataType::Dictionary(_, values) => is_text(values),
        other => is_text(other),
    };
    if are_words || is_text {
        let texts = cast(array, &DataType::Utf8).map_err(refuse)?;
        return Ok(Column::Texts(texts.as_string::<i32>().clone()));
    }
    let whole = |array: &ArrayRef| cast(array, &DataType::Int64).map_err(refuse);
    // Dates and times are in days, as in a text.
    let in_days = |array: &ArrayRef, per_second: f64| -> Result<Column, String> {
        let days = |count: i64| count as f64 / (per_second * DAY);
        Ok(Column::Numbers(whole(array)?.as_primitive::<Int64Type>().unary(days)))
    };
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1.0,
        TimeUnit::Millisecond => 1e3,
        TimeUnit::Microsecond => 1e6,
        TimeUnit::Nanosecond => 1e9,
    };
    match array.data_type() {
        DataType::Date32 => in_days(&cast(array, &DataType::Int32).map_err(refuse)?, 1.0 / DAY),
        DataType::Date64 => in_days(array, 1e3),
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Timestamp(unit, _) => {
            let narrow = matches!(array.data_type(), DataType::Time32(_));
            let array = if narrow { cast(array, &DataType::Int32).map_err(refuse)? } else { array.clone() };
            in_days(&array, per_second(unit))
        }
        _ => {
            let numbers = cast(array, &DataType::Float64).map_err(refuse)?;
            Ok(Column::Numbers(numbers.as_primitive::<Float64Type>().clone()))
        }
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
