//! Named vectors and a header in one file.
//!
//! The file is in the safetensors format, so that any tool of that format can read the vectors. Its metadata have, under
//! the key `mile`, the header and a checksum of each vector as JSON, with a checksum of their own. Vectors are read one at a time: a
//! state need not fit into memory twice.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use mile::real::{Precision, Real};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::file::write_with;

const KEY: &str = "mile";

/// A named array to be written.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a, T> {
    /// Its name.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a [usize],
    /// Its numbers, row after row.
    pub values: &'a [T],
}

/// A state that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The system cannot read or write it.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not a whole state.
    #[error("{} is not a whole state ({what})", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// What the metadata hold.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// Checksum of the text that follows.
    crc32c: String,
    #[serde(borrow)]
    state: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct Described<H> {
    header: H,
    checksums: BTreeMap<String, String>,
}

fn dtype<T: Real>() -> Dtype {
    match T::PRECISION {
        Precision::F32 => Dtype::F32,
        Precision::F64 => Dtype::F64,
    }
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Writes a state, whole or not at all.
///
/// # Errors
/// If the file cannot be written, if an array has not as many numbers as its shape says, or if the header has
/// no JSON.
pub fn write<T: Real, H: Serialize>(
    path: &Path,
    header: &H,
    arrays: &[Array<'_, T>],
) -> Result<(), StateError> {
    let failed = |source: std::io::Error| StateError::Io { path: path.to_owned(), action: "write", source };
    let mut sorted: Vec<&Array<'_, T>> = arrays.iter().collect();
    sorted.sort_by_key(|array| array.name);
    let described: Vec<(&str, &[usize], String)> = sorted
        .iter()
        .map(|array| (array.name, array.shape, checksum(bytemuck::cast_slice(array.values))))
        .collect();
    let head = head::<T, H>(header, &described).map_err(failed)?;
    for array in &sorted {
        let elements = array.shape.iter().try_fold(1usize, |n, k| n.checked_mul(*k));
        if elements != Some(array.values.len()) {
            let problem =
                format!("{} has {} numbers for shape {:?}", array.name, array.values.len(), array.shape);
            return Err(failed(std::io::Error::other(problem)));
        }
    }
    let body = |file: &mut dyn Write| {
        file.write_all(&head)?;
        sorted.iter().try_for_each(|array| file.write_all(bytemuck::cast_slice(array.values)))
    };
    write_with(path, body).map_err(failed)
}

/// What comes before the vectors of a state, which are given by name, in order, with shape and checksum.
pub(crate) fn head<T: Real, H: Serialize>(
    header: &H,
    vectors: &[(&str, &[usize], String)],
) -> std::io::Result<Vec<u8>> {
    let mut checksums = BTreeMap::new();
    let (mut infos, mut offset) = (Vec::with_capacity(vectors.len()), 0usize);
    for (name, shape, checksum) in vectors {
        checksums.insert((*name).to_owned(), checksum.clone());
        let bytes = shape.iter().try_fold(size_of::<T>(), |n, k| n.checked_mul(*k));
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        let end = end.ok_or_else(|| std::io::Error::other(format!("{name} is too large")))?;
        let info = TensorInfo { dtype: dtype::<T>(), shape: shape.to_vec(), data_offsets: (offset, end) };
        infos.push(((*name).to_owned(), info));
        offset = end;
    }
    let sealed = seal(header, checksums)?;
    // One entry only: two would come in any order, and the same state would not be the same bytes.
    let meta = HashMap::from([(KEY.to_owned(), sealed)]);
    let metadata = Metadata::new(Some(meta), infos).map_err(std::io::Error::other)?;
    let mut text = serde_json::to_vec(&metadata)?;
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}

/// The header and the checksums of the vectors, with a checksum of their own.
fn seal<H: Serialize>(header: &H, checksums: BTreeMap<String, String>) -> serde_json::Result<String> {
    let described = serde_json::to_string(&Described { header, checksums })?;
    let sealed = Sealed { crc32c: checksum(described.as_bytes()), state: serde_json::from_str(&described)? };
    serde_json::to_string(&sealed)
}

/// A state on disk: its header has been read and checked, its vectors are read when asked for.
#[derive(Debug)]
pub struct StateFile<H> {
    /// The header.
    pub header: H,
    path: PathBuf,
    file: File,
    metadata: Metadata,
    checksums: BTreeMap<String, String>,
    /// Where the vectors begin.
    start: u64,
    length: u64,
}

impl<H: DeserializeOwned> StateFile<H> {
    /// Opens a state; none if the file is not there.
    pub fn open(path: &Path) -> Result<Option<Self>, StateError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Io { path: path.to_owned(), action: "read", source }),
        };
        let damaged = |what: String| StateError::Damaged { path: path.to_owned(), what };
        Self::read(path, file).map(Some).map_err(damaged)
    }

    fn read(path: &Path, mut file: File) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let length = file.metadata().map_err(text)?.len();
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(text)?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8) {
            return Err("it is cut short".into());
        }
        // Not `SafeTensors::read_metadata`, which wants the whole file in memory.
        let mut head = vec![0; size as usize];
        file.read_exact(&mut head).map_err(text)?;
        let metadata: Metadata = serde_json::from_slice(&head).map_err(|error| error.to_string())?;
        let meta = metadata.metadata().as_ref().and_then(|meta| meta.get(KEY));
        let sealed: Sealed =
            serde_json::from_str(meta.ok_or("it has no header")?).map_err(|error| error.to_string())?;
        if checksum(sealed.state.get().as_bytes()) != sealed.crc32c {
            return Err("the checksum of its header differs".into());
        }
        let Described { header, checksums } =
            serde_json::from_str(sealed.state.get()).map_err(|error| error.to_string())?;
        Ok(Self { header, path: path.to_owned(), file, metadata, checksums, start: 8 + size, length })
    }

    /// The shape of a vector, if it is in the file.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.metadata.info(name).map(|info| &info.shape[..])
    }

    /// Reads a vector.
    pub fn vector<T: Real>(&mut self, name: &str) -> Result<Vec<T>, StateError> {
        self.read_vector(name).map_err(|what| StateError::Damaged { path: self.path.clone(), what })
    }

    /// Reads some rows of a vector with rows of equal length. Their checksums are not compared: that of the whole vector is
    /// told by [`checksum`](Self::checksum), and [`of_rows`](crate::parts::of_rows) forms it from those of all rows.
    pub fn rows<T: Real>(&mut self, name: &str, rows: &[usize], dim: usize) -> Result<Vec<T>, StateError> {
        let damaged = |what: String| StateError::Damaged { path: self.path.clone(), what };
        let range = self.range_of::<T>(name).map_err(damaged)?;
        let bytes = dim * size_of::<T>();
        if let Some(row) = rows.iter().find(|row| (*row + 1) * bytes > range.len()) {
            return Err(damaged(format!("{name} has no row {row}")));
        }
        let mut values = vec![T::zero(); rows.len() * dim];
        for (row, values) in rows.iter().zip(values.chunks_exact_mut(dim.max(1))) {
            let place = self.start + (range.start + row * bytes) as u64;
            let read = self.file.seek(SeekFrom::Start(place));
            read.and_then(|_| self.file.read_exact(bytemuck::cast_slice_mut(values)))
                .map_err(|error| StateError::Damaged { path: self.path.clone(), what: error.to_string() })?;
        }
        Ok(values)
    }

    /// The checksum of a vector.
    pub fn checksum(&self, name: &str) -> Option<&str> {
        self.checksums.get(name).map(String::as_str)
    }

    fn read_vector<T: Real>(&mut self, name: &str) -> Result<Vec<T>, String> {
        let Range { start: from, end: to } = self.range_of::<T>(name)?;
        let mut values = vec![T::zero(); (to - from) / size_of::<T>()];
        let text = |error: std::io::Error| error.to_string();
        self.file.seek(SeekFrom::Start(self.start + from as u64)).map_err(text)?;
        self.file.read_exact(bytemuck::cast_slice_mut(&mut values)).map_err(text)?;
        if self.checksums.get(name) != Some(&checksum(bytemuck::cast_slice(&values))) {
            return Err(format!("the checksum of {name} differs"));
        }
        Ok(values)
    }

    /// Where a vector lies among the vectors, in bytes.
    fn range_of<T: Real>(&self, name: &str) -> Result<Range<usize>, String> {
        let info = self.metadata.info(name).ok_or_else(|| format!("{name} is not in it"))?;
        if info.dtype != dtype::<T>() {
            return Err(format!("{name} is {:?}", info.dtype));
        }
        let (from, to) = info.data_offsets;
        let elements = info.shape.iter().try_fold(1usize, |n, k| n.checked_mul(*k));
        let bytes = elements.and_then(|n| n.checked_mul(size_of::<T>()));
        if from > to || bytes != Some(to - from) || to as u64 > self.length.saturating_sub(self.start) {
            return Err("it is cut short".into());
        }
        Ok(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Header {
        round: u64,
        step_size: f64,
    }

    const HEADER: Header = Header { round: 7, step_size: 0.1 };
    const X: [f32; 6] = [1.5, -2.0, 0.0, -0.0, f32::MIN_POSITIVE, 3.0];

    fn written(path: &Path) -> Vec<u8> {
        let arrays = [
            Array { name: "x", shape: &[2, 3], values: &X[..] },
            Array { name: "c", shape: &[1], values: &[f32::NAN] },
            Array { name: "none", shape: &[0], values: &[] },
        ];
        write(path, &HEADER, &arrays).unwrap();
        std::fs::read(path).unwrap()
    }

    fn read(path: &Path) -> Result<(Header, Vec<Vec<u32>>), StateError> {
        let mut state = StateFile::<Header>::open(path)?.unwrap();
        let names = ["x", "c", "none"];
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        let vectors =
            names.map(|name| state.vector::<f32>(name).map(bits)).into_iter().collect::<Result<_, _>>()?;
        Ok((state.header, vectors))
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_taken_for_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state.safetensors");
        assert!(StateFile::<Header>::open(&path).unwrap().is_none());
        let whole = written(&path);
        let expected = read(&path).unwrap();
        assert_eq!(expected.0, HEADER);
        assert_eq!(expected.1[0], X.map(f32::to_bits));
        assert_eq!(StateFile::<Header>::open(&path).unwrap().unwrap().shape("x"), Some(&[2, 3][..]));
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{length}: {error}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            std::fs::write(&path, &damaged).unwrap();
            // A flipped bit in what is not used, such as a tensor's shape, does no harm.
            if let Ok(found) = read(&path) {
                assert_eq!(found, expected, "byte {place}");
            }
        }
    }

    #[test]
    fn the_same_state_is_the_same_bytes_and_any_tool_can_read_it() {
        let home = tempfile::tempdir().unwrap();
        let bytes = written(&home.path().join("one"));
        assert_eq!(bytes, written(&home.path().join("two")));
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let x = tensors.tensor("x").unwrap();
        assert_eq!((x.dtype(), x.shape()), (Dtype::F32, &[2, 3][..]));
        assert_eq!(x.data(), bytemuck::cast_slice::<f32, u8>(&X));
    }

    #[test]
    fn another_precision_or_a_missing_vector_is_refused_by_name() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        written(&path);
        let mut state = StateFile::<Header>::open(&path).unwrap().unwrap();
        assert!(state.vector::<f64>("x").unwrap_err().to_string().contains("x is F32"));
        assert!(state.vector::<f32>("y").unwrap_err().to_string().contains("y is not in it"));
        let wrong = write(&path, &HEADER, &[Array { name: "x", shape: &[7], values: &X[..] }]);
        assert!(matches!(wrong, Err(StateError::Io { .. })));
        assert!(read(&path).is_ok(), "the old state is still there");
    }
}
