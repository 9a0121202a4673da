//! The log of a job's exchanges in pairs: `pairings/LABEL-seedK.csv` in the run directory, a line for each exchange.
//!
//! The exchanges before the state from which a job resumes are known without its vectors, so a resumed job writes its log again from the first line: whatever
//! a killed process has left of it does not matter.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use mile::pairing::{HEADER, Pairing, Pairings};

use crate::error::LabError;

/// A log that is being written.
pub(crate) struct PairingLog {
    path: PathBuf,
    file: BufWriter<File>,
}

impl PairingLog {
    /// A log with the rounds so far, which are taken from the pairings.
    pub(crate) fn begin(path: &Path, pairings: &mut Pairings, rounds: u64) -> Result<Self, LabError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(LabError::io(folder, "create"))?;
        }
        let file = BufWriter::new(File::create(path).map_err(LabError::io(path, "create"))?);
        let mut log = Self { path: path.to_owned(), file };
        writeln!(log.file, "{HEADER}").map_err(LabError::io(path, "write"))?;
        for _ in 0..rounds {
            pairings.next_round()?;
            log.note(pairings.last_round())?;
        }
        log.flush()?;
        Ok(log)
    }

    /// Notes the exchanges of a round.
    pub(crate) fn note(&mut self, round: &[Pairing]) -> Result<(), LabError> {
        round
            .iter()
            .try_for_each(|pairing| writeln!(self.file, "{pairing}"))
            .map_err(LabError::io(&self.path, "write"))
    }

    /// Hands over what was noted to the system.
    pub(crate) fn flush(&mut self) -> Result<(), LabError> {
        self.file.flush().map_err(LabError::io(&self.path, "write"))
    }
}
