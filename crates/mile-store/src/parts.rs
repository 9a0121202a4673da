//! A state that several processes write together, each its own rows, into one file on a disk that they share.
//!
//! One process creates the file under another name ([`SharedState::create`]), all write their rows ([`SharedState::write`]), and when
//! all have confirmed it, the first gives it its name ([`SharedState::complete`]). The bytes are those that
//! [`write`](crate::state::write) would write in one process.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use mile::real::Real;
use serde::Serialize;

use crate::state::{Vector, head};

/// The checksum of each row.
pub fn row_checksums<T: Real>(rows: &[T], dim: usize) -> Vec<u32> {
    rows.chunks_exact(dim.max(1)).map(|row| crc32c::crc32c(bytemuck::cast_slice(row))).collect()
}

/// The checksum of a vector from those of its rows, which have this many bytes each.
pub fn of_rows(checksums: &[u32], row_bytes: usize) -> String {
    let mut rows = checksums.iter().copied();
    let first = rows.next().unwrap_or_else(|| crc32c::crc32c(&[]));
    format!("{:08x}", rows.fold(first, |all, row| crc32c::crc32c_combine(all, row, row_bytes)))
}

/// A state of vectors with a row for each agent, that is being written by several processes.
#[derive(Debug)]
pub struct SharedState {
    path: PathBuf,
    head: Vec<u8>,
    names: Vec<String>,
    row_bytes: u64,
    rows: u64,
}

impl SharedState {
    /// A state of vectors of this shape, rows and columns, given by name and checksum. All processes must give the same.
    ///
    /// # Errors
    /// If the header cannot be written as JSON, or the state is too large.
    pub fn new<T: Real, H: Serialize>(
        path: &Path,
        header: &H,
        vectors: &[(&str, String)],
        shape: [usize; 2],
    ) -> std::io::Result<Self> {
        let mut sorted = vectors.to_vec();
        sorted.sort_by_key(|(name, _)| *name);
        let describe = |(name, checksum): &(&str, String)| Vector {
            name: (*name).to_owned(),
            shape: shape.to_vec(),
            precision: T::PRECISION,
            checksum: checksum.clone(),
        };
        Ok(Self {
            path: path.to_owned(),
            head: head(&serde_json::to_string(header)?, sorted.iter().map(describe).collect())?,
            names: sorted.iter().map(|(name, _)| (*name).to_owned()).collect(),
            row_bytes: (shape[1] * size_of::<T>()) as u64,
            rows: shape[0] as u64,
        })
    }

    /// The name of the file while it is being written.
    pub fn unfinished(&self) -> PathBuf {
        self.path.with_extension("part")
    }

    /// Creates the file with room for all vectors; by one process, before any other writes.
    pub fn create(&self) -> std::io::Result<()> {
        let mut file = File::create(self.unfinished())?;
        file.write_all(&self.head)?;
        file.set_len(self.head.len() as u64 + self.names.len() as u64 * self.rows * self.row_bytes)
    }

    /// Writes rows of a vector: the rows `places` of the file, in the order in which they are given. They are on the disk when it
    /// returns.
    #[cfg(unix)]
    pub fn write<T: Real>(&self, name: &str, places: &[usize], rows: &[T]) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let unknown = || std::io::Error::other(format!("{name} is not in the state"));
        let vector = self.names.iter().position(|known| known == name).ok_or_else(unknown)? as u64;
        let file = File::options().write(true).open(self.unfinished())?;
        let bytes: &[u8] = bytemuck::cast_slice(rows);
        let row = self.row_bytes as usize;
        let mut first = 0;
        // Rows that follow each other are written at once.
        for run in places.chunk_by(|a, b| a + 1 == *b) {
            let place = self.head.len() as u64 + (vector * self.rows + run[0] as u64) * self.row_bytes;
            file.write_all_at(&bytes[first * row..(first + run.len()) * row], place)?;
            first += run.len();
        }
        file.sync_data()
    }

    /// Writes rows of a vector; not available on this system.
    #[cfg(not(unix))]
    pub fn write<T: Real>(&self, _: &str, _: &[usize], _: &[T]) -> std::io::Result<()> {
        Err(std::io::Error::other("states of several processes need a Unix system"))
    }

    /// Gives the file its name, after all processes have written their rows; by one process.
    pub fn complete(&self) -> std::io::Result<()> {
        File::open(self.unfinished())?.sync_all()?;
        std::fs::rename(self.unfinished(), &self.path)?;
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::state::{Array, StateError, StateFile, write};

    #[test]
    fn parts_are_the_same_file_as_the_whole() {
        let home = tempfile::tempdir().unwrap();
        let (whole, parts) = (home.path().join("whole.safetensors"), home.path().join("parts.safetensors"));
        let (rows, dim) = (5, 3);
        let x: Vec<f32> = (0..rows * dim).map(|k| (k as f32).sin()).collect();
        let c: Vec<f32> = x.iter().map(|v| v * 2.0).collect();
        let shape = [rows, dim];
        let array = |name, values| Array::new::<f32>(name, &shape, values);
        write(&whole, &7u64, &[array("x", &x[..]), array("c", &c[..])]).unwrap();
        let checksum = |v: &[f32]| of_rows(&row_checksums(v, dim), 4 * dim);
        let vectors = [("x", checksum(&x)), ("c", checksum(&c))];
        let shared = || SharedState::new::<f32, u64>(&parts, &7, &vectors, shape).unwrap();
        shared().create().unwrap();
        for places in [&[1usize, 3, 4][..], &[0, 2], &[]] {
            for (name, v) in [("x", &x), ("c", &c)] {
                let rows: Vec<f32> = places.iter().flat_map(|k| v[k * dim..(k + 1) * dim].to_vec()).collect();
                shared().write(name, places, &rows).unwrap();
            }
        }
        assert!(!parts.exists());
        shared().complete().unwrap();
        assert_eq!(std::fs::read(&parts).unwrap(), std::fs::read(&whole).unwrap());

        let mut state = StateFile::<u64>::open(&parts).unwrap().unwrap();
        let some: Vec<f32> = state.rows("x", &[4, 0], dim).unwrap();
        assert_eq!(some, [&x[12..], &x[..3]].concat());
        assert_eq!(state.checksum("x"), Some(&checksum(&x)[..]));
        assert!(matches!(state.rows::<f32>("x", &[5], dim), Err(StateError::Damaged { .. })));
        assert!(state.rows::<f64>("x", &[0], dim).is_err());
        assert!(shared().write("y", &[0], &x[..3]).is_err());
    }
}
