//! A vector that stays on disk and is read in parts.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mile::real::{Precision, Real};

use crate::error::StateError;

/// Bytes that have a checksum of their own.
const PART: usize = 256 << 10;

/// A file that several readers share.
pub(crate) type SharedFile = Arc<Mutex<File>>;

/// Reads bytes from a place of a file.
pub(crate) fn read_at(file: &Mutex<File>, place: u64, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(bytes)
}

/// A vector of a state, found intact when it was opened. Every part is compared with its checksum again when it is read. It can be read
/// for as long as this exists, even after another state has taken the place of its file.
#[derive(Debug)]
pub struct StoredVector {
    path: PathBuf,
    name: String,
    file: SharedFile,
    start: u64,
    bytes: usize,
    precision: Precision,
    checksums: Vec<u32>,
}

impl StoredVector {
    /// Reads the vector once for the checksums of its parts.
    pub(crate) fn open(
        path: &Path,
        name: &str,
        file: &SharedFile,
        place: Range<u64>,
        precision: Precision,
    ) -> std::io::Result<Self> {
        let bytes = (place.end - place.start) as usize;
        let (file, mut checksums) = (file.clone(), Vec::with_capacity(bytes.div_ceil(PART)));
        let mut part = vec![0; bytes.min(PART)];
        for from in (0..bytes).step_by(PART) {
            let part = &mut part[..PART.min(bytes - from)];
            read_at(&file, place.start + from as u64, part)?;
            checksums.push(crc32c::crc32c(part));
        }
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok(Self { path, name, file, start: place.start, bytes, precision, checksums })
    }

    /// The file it was found in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The precision of its numbers.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The checksum of the whole vector.
    pub(crate) fn checksum(&self) -> u32 {
        let parts = self.checksums.iter().enumerate();
        parts.fold(crc32c::crc32c(&[]), |all, (k, part)| {
            crc32c::crc32c_combine(all, *part, PART.min(self.bytes - k * PART))
        })
    }

    /// Reads some of its numbers, which must exist.
    ///
    /// # Errors
    /// If the file cannot be read, or if a part of it is not what it was.
    pub fn read<T: Real>(&self, numbers: Range<usize>) -> Result<Vec<T>, StateError> {
        let (from, to) = (numbers.start * size_of::<T>(), numbers.end * size_of::<T>());
        if T::PRECISION != self.precision || from > to || to > self.bytes {
            return Err(self.damaged(format!("{} has no numbers {numbers:?}", self.name)));
        }
        let mut values = vec![T::zero(); numbers.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        for (k, part) in
            (from / PART..to.div_ceil(PART)).map(|k| (k, k * PART..self.bytes.min((k + 1) * PART)))
        {
            let wanted = part.start.max(from)..part.end.min(to);
            let into = &mut bytes[wanted.start - from..wanted.end - from];
            if wanted == part {
                self.read_part(k, into)?;
            } else {
                let mut whole = vec![0; part.len()];
                self.read_part(k, &mut whole)?;
                into.copy_from_slice(&whole[wanted.start - part.start..wanted.end - part.start]);
            }
        }
        Ok(values)
    }

    /// Passes all bytes on, part by part.
    pub(crate) fn for_each_part(
        &self,
        mut pass: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut part = vec![0; self.bytes.min(PART)];
        for k in 0..self.checksums.len() {
            let part = &mut part[..PART.min(self.bytes - k * PART)];
            self.read_part(k, part).map_err(std::io::Error::other)?;
            pass(part)?;
        }
        Ok(())
    }

    fn read_part(&self, k: usize, bytes: &mut [u8]) -> Result<(), StateError> {
        let place = self.start + (k * PART) as u64;
        read_at(&self.file, place, bytes).map_err(|error| self.damaged(error.to_string()))?;
        if crc32c::crc32c(bytes) != self.checksums[k] {
            return Err(self.damaged(format!("a part of {} has changed", self.name)));
        }
        Ok(())
    }

    fn damaged(&self, what: String) -> StateError {
        StateError::Damaged { path: self.path.clone(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Array, StateFile, write};

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|k| (k as f32).sin()).collect()
    }

    #[test]
    fn any_numbers_of_a_stored_vector_can_be_read_after_its_file_was_replaced_and_written_into_another() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let part = PART / size_of::<f32>();
        for count in [0, 1, part - 1, part, 2 * part + 7] {
            let (x, first) = (numbers(count), [1.0f32, 2.0]);
            let write_both =
                |x: Array<'_>| write(&path, &7u64, &[Array::new("first", &[2], &first[..]), x]).unwrap();
            write_both(Array::new("x", &[count], &x[..]));
            let expected = std::fs::read(&path).unwrap();
            let stored = StateFile::<u64>::open(&path).unwrap().unwrap().stored::<f32>("x").unwrap();
            write(&path, &8u64, &[]).unwrap();
            assert_eq!((stored.bytes(), stored.precision()), (4 * count, Precision::F32));
            let places = [0, 1, count / 2, part - 1, part, part + 1, count];
            for (from, to) in places.iter().flat_map(|from| places.map(|to| (*from, to))) {
                let read = stored.read::<f32>(from..to).ok();
                assert_eq!(read.as_deref(), x.get(from..to), "{from}..{to} of {count}");
            }
            assert!(stored.read::<f64>(0..0).is_err());
            write_both(Array::stored("x", &[count], &stored));
            assert_eq!(std::fs::read(&path).unwrap(), expected);
        }
    }

    #[test]
    fn what_changes_on_disk_is_noticed_when_it_is_opened_read_or_copied() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let count = PART / 2;
        let x = numbers(count);
        write(&path, &7u64, &[Array::new("x", &[count], &x[..])]).unwrap();
        let stored = StateFile::<u64>::open(&path).unwrap().unwrap().stored::<f32>("x").unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(stored.read::<f32>(0..10).unwrap(), x[..10], "another part");
        let error = stored.read::<f32>(count - 1..count).unwrap_err();
        assert!(matches!(&error, StateError::Damaged { what, .. } if what.contains('x')), "{error}");
        let copy = write(&home.path().join("copy"), &7u64, &[Array::stored("x", &[count], &stored)]);
        assert!(copy.is_err());
        let mut file = StateFile::<u64>::open(&path).unwrap().unwrap();
        assert!(matches!(file.stored::<f32>("x"), Err(StateError::Damaged { .. })));
        assert!(matches!(file.stored::<f64>("x"), Err(StateError::Damaged { .. })));
    }
}
