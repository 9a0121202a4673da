//! Records on standard output, one JSON object per line.

use std::sync::{Arc, OnceLock};

use anyhow::bail;
use mile_lab::observer::Observer;
use mile_lab::plan::Job;
use mile_lab::record::Record;

use crate::output;

/// Standard output as a stream of records, and why it failed, if it did.
#[derive(Clone, Default)]
pub(crate) struct RecordStream {
    failure: Arc<OnceLock<String>>,
}

impl RecordStream {
    /// The observer that prints the records of a run or, with its number from 0, of a point of a sweep.
    pub(crate) fn observer(&self, point: Option<usize>) -> PrintRecords {
        PrintRecords { stream: self.clone(), point }
    }

    /// An error if a record could not be printed.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self.failure.get() {
            Some(failure) => bail!("cannot write the records to standard output: {failure}"),
            None => Ok(()),
        }
    }

    fn print(&self, record: &Record, point: Option<usize>) -> anyhow::Result<()> {
        let line = match point {
            None => serde_json::to_string(record)?,
            Some(point) => {
                let mut value = serde_json::to_value(record)?;
                value["point"] = point.into();
                value.to_string()
            }
        };
        output::print(&(line + "\n"))
    }
}

/// Prints every record.
pub(crate) struct PrintRecords {
    stream: RecordStream,
    point: Option<usize>,
}

impl Observer for PrintRecords {
    fn recorded(&self, _: Job, record: &Record) {
        if let Err(error) = self.stream.print(record, self.point) {
            self.stream.failure.get_or_init(|| error.to_string());
        }
    }
}
