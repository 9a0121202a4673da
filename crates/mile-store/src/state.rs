//! Named vectors and a header in one file.
//!
//! The file is in the safetensors format, so that any tool for that format can read the vectors. Its metadata hold, under
//! the key `mile`, the header and a checksum of each vector as JSON, sealed with another checksum. Vectors are read one at a time: a
//! state need not fit into memory twice.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mile::real::{Precision, Real};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use crate::error::StateError;

use crate::file::write_with;
use crate::stored::{SharedFile, StoredVector, read_at};

const KEY: &str = "mile";

/// A named array to be written.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    name: &'a str,
    shape: &'a [usize],
    precision: Precision,
    source: Source<'a>,
}

/// Where the numbers of an array are.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Memory(&'a [u8]),
    Disk(&'a StoredVector),
}

impl<'a> Array<'a> {
    /// An array of this name and shape with these numbers, row after row.
    pub fn new<T: Real>(name: &'a str, shape: &'a [usize], values: &'a [T]) -> Self {
        Self { name, shape, precision: T::PRECISION, source: Source::Memory(bytemuck::cast_slice(values)) }
    }

    /// An array with the numbers of another state, which are copied part by part.
    pub fn stored(name: &'a str, shape: &'a [usize], vector: &'a StoredVector) -> Self {
        Self { name, shape, precision: vector.precision(), source: Source::Disk(vector) }
    }
}

impl Source<'_> {
    fn bytes(self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Disk(vector) => vector.bytes(),
        }
    }

    fn checksum(self) -> String {
        match self {
            Self::Memory(bytes) => checksum(bytes),
            Self::Disk(vector) => format!("{:08x}", vector.checksum()),
        }
    }

    fn write(self, file: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Self::Memory(bytes) => file.write_all(bytes),
            Self::Disk(vector) => vector.for_each_part(|part| file.write_all(part)),
        }
    }
}

/// What the metadata hold.
#[derive(Deserialize)]
struct Sealed<'a> {
    /// Checksum of the text that follows.
    crc32c: String,
    #[serde(borrow)]
    state: &'a RawValue,
}

#[derive(Deserialize)]
struct Described<'a> {
    #[serde(borrow)]
    header: &'a RawValue,
    checksums: BTreeMap<String, String>,
}

fn dtype(precision: Precision) -> Dtype {
    match precision {
        Precision::F32 => Dtype::F32,
        Precision::F64 => Dtype::F64,
    }
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Writes a state, completely or not at all.
///
/// # Errors
/// If the file cannot be written, if the numbers of an array do not match its shape, or if the header cannot be
/// written as JSON.
pub fn write<H: Serialize>(path: &Path, header: &H, arrays: &[Array<'_>]) -> Result<(), StateError> {
    let failed = |source: std::io::Error| StateError::Io { path: path.to_owned(), action: "write", source };
    let header = serde_json::to_string(header).map_err(|error| failed(error.into()))?;
    write_arrays(path, &header, arrays).map_err(failed)
}

fn write_arrays(path: &Path, header: &str, arrays: &[Array<'_>]) -> std::io::Result<()> {
    let mut sorted: Vec<&Array<'_>> = arrays.iter().collect();
    sorted.sort_by_key(|array| array.name);
    for Array { name, shape, precision, source } in &sorted {
        let needed = shape.iter().try_fold(precision.bytes(), |n, k| n.checked_mul(*k));
        if needed != Some(source.bytes()) {
            let numbers = source.bytes() / precision.bytes();
            return Err(std::io::Error::other(format!(
                "{name}: {numbers} numbers do not match shape {shape:?}"
            )));
        }
    }
    let describe = |array: &&Array<'_>| Vector {
        name: array.name.to_owned(),
        shape: array.shape.to_vec(),
        precision: array.precision,
        checksum: array.source.checksum(),
    };
    let head = head(header, sorted.iter().map(describe).collect())?;
    write_with(path, |file| {
        file.write_all(&head)?;
        sorted.iter().try_for_each(|array| array.source.write(file))
    })
}

/// What the header says about a vector.
pub(crate) struct Vector {
    pub name: String,
    pub shape: Vec<usize>,
    pub precision: Precision,
    pub checksum: String,
}

/// What comes before the vectors of a state, which are given in the order of their names. The header is JSON.
pub(crate) fn head(header: &str, vectors: Vec<Vector>) -> std::io::Result<Vec<u8>> {
    let mut checksums = BTreeMap::new();
    let (mut infos, mut offset) = (Vec::with_capacity(vectors.len()), 0usize);
    for Vector { name, shape, precision, checksum } in vectors {
        let bytes = shape.iter().try_fold(precision.bytes(), |n, k| n.checked_mul(*k));
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        let end = end.ok_or_else(|| std::io::Error::other(format!("{name} is too large")))?;
        checksums.insert(name.clone(), checksum);
        infos.push((name, TensorInfo { dtype: dtype(precision), shape, data_offsets: (offset, end) }));
        offset = end;
    }
    let sealed = seal(header, &checksums)?;
    // One entry only: two would come in arbitrary order, and equal states would differ in their bytes.
    let meta = HashMap::from([(KEY.to_owned(), sealed)]);
    let metadata = Metadata::new(Some(meta), infos).map_err(std::io::Error::other)?;
    let mut text = serde_json::to_vec(&metadata)?;
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}

/// The header and the checksums of the vectors ([`Described`]), sealed with another checksum ([`Sealed`]).
fn seal(header: &str, checksums: &BTreeMap<String, String>) -> serde_json::Result<String> {
    let checksums = serde_json::to_string(checksums)?;
    let described = format!("{{\"header\":{header},\"checksums\":{checksums}}}");
    Ok(format!("{{\"crc32c\":\"{}\",\"state\":{described}}}", checksum(described.as_bytes())))
}

/// A state on disk: its header has been read and checked, its vectors are read when asked for.
#[derive(Debug)]
pub struct StateFile<H> {
    /// The header.
    pub header: H,
    vectors: Vectors,
}

impl<H: DeserializeOwned> StateFile<H> {
    /// Opens a state; none if the file does not exist.
    pub fn open(path: &Path) -> Result<Option<Self>, StateError> {
        let Some((header, vectors)) = Vectors::open(path)? else { return Ok(None) };
        let header = serde_json::from_str(&header).map_err(|error| vectors.damaged(error.to_string()))?;
        Ok(Some(Self { header, vectors }))
    }

    /// The names of its vectors, in increasing order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.vectors.checksums.keys().map(String::as_str)
    }

    /// The shape of a vector, if it is in the file.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.vectors.metadata.info(name).map(|info| &info.shape[..])
    }

    /// The checksum of a vector.
    pub fn checksum(&self, name: &str) -> Option<&str> {
        self.vectors.checksums.get(name).map(String::as_str)
    }

    /// Reads a vector.
    pub fn vector<T: Real>(&mut self, name: &str) -> Result<Vec<T>, StateError> {
        let range = self.vectors.range_of(name, T::PRECISION)?;
        let mut values = vec![T::zero(); range.len() / size_of::<T>()];
        self.vectors.read(name, range, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// A vector that stays on disk, to be read in parts. All of it is compared with its checksum first.
    pub fn stored<T: Real>(&mut self, name: &str) -> Result<StoredVector, StateError> {
        let range = self.vectors.range_of(name, T::PRECISION)?;
        let place = |k: usize| self.vectors.start + k as u64;
        let (path, file) = (&self.vectors.path, &self.vectors.file);
        let found = StoredVector::open(path, name, file, place(range.start)..place(range.end), T::PRECISION)
            .map_err(|error| self.vectors.damaged(error.to_string()))?;
        self.vectors.compare(name, format!("{:08x}", found.checksum()))?;
        Ok(found)
    }

    /// Reads some rows of a vector with rows of equal length. Their checksums are not compared: that of the whole vector is
    /// given by [`checksum`](Self::checksum), and [`of_rows`](crate::parts::of_rows) forms it from those of all rows.
    pub fn rows<T: Real>(&mut self, name: &str, rows: &[usize], dim: usize) -> Result<Vec<T>, StateError> {
        let mut values = vec![T::zero(); rows.len() * dim];
        let range = self.vectors.range_of(name, T::PRECISION)?;
        self.vectors.read_rows(name, range, rows, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }
}

/// The vectors of a state on disk.
#[derive(Debug)]
struct Vectors {
    path: PathBuf,
    file: SharedFile,
    metadata: Metadata,
    checksums: BTreeMap<String, String>,
    /// Where the vectors begin.
    start: u64,
    length: u64,
}

impl Vectors {
    /// Opens a state and checks its header, which is returned as text; none if the file does not exist.
    fn open(path: &Path) -> Result<Option<(String, Self)>, StateError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Io { path: path.to_owned(), action: "read", source }),
        };
        let damaged = |what: String| StateError::Damaged { path: path.to_owned(), what };
        Self::read_head(path, file).map(Some).map_err(damaged)
    }

    fn read_head(path: &Path, mut file: File) -> Result<(String, Self), String> {
        let text = |error: std::io::Error| error.to_string();
        let length = file.metadata().map_err(text)?.len();
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(text)?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8) {
            return Err("it is truncated".into());
        }
        // Not `SafeTensors::read_metadata`, which needs the whole file in memory.
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
        let (header, file) = (header.get().to_owned(), Arc::new(Mutex::new(file)));
        if length > 8 + size + metadata.data_len() as u64 {
            return Err("something was appended to it".into());
        }
        Ok((header, Self { path: path.to_owned(), file, metadata, checksums, start: 8 + size, length }))
    }

    fn damaged(&self, what: String) -> StateError {
        StateError::Damaged { path: self.path.clone(), what }
    }

    /// Where a vector lies among the vectors, in bytes.
    fn range_of(&self, name: &str, precision: Precision) -> Result<Range<usize>, StateError> {
        let info = self.metadata.info(name).ok_or_else(|| self.damaged(format!("{name} is not in it")))?;
        if info.dtype != dtype(precision) {
            return Err(self.damaged(format!("{name} is {:?}", info.dtype)));
        }
        let (from, to) = info.data_offsets;
        let bytes = info.shape.iter().try_fold(precision.bytes(), |n, k| n.checked_mul(*k));
        if from > to || bytes != Some(to - from) || to as u64 > self.length.saturating_sub(self.start) {
            return Err(self.damaged("it is truncated".into()));
        }
        Ok(from..to)
    }

    /// Reads the bytes of a vector, which must exist, and compares their checksum.
    fn read(&mut self, name: &str, range: Range<usize>, bytes: &mut [u8]) -> Result<(), StateError> {
        self.read_at(range.start, bytes)?;
        self.compare(name, checksum(bytes))
    }

    fn compare(&self, name: &str, found: String) -> Result<(), StateError> {
        if self.checksums.get(name) != Some(&found) {
            return Err(self.damaged(format!("the checksum of {name} differs")));
        }
        Ok(())
    }

    /// Reads the bytes of some rows of a vector, which must exist.
    fn read_rows(
        &mut self,
        name: &str,
        range: Range<usize>,
        rows: &[usize],
        bytes: &mut [u8],
    ) -> Result<(), StateError> {
        let row_bytes = bytes.len() / rows.len().max(1);
        if let Some(row) = rows.iter().find(|row| (*row + 1) * row_bytes > range.len()) {
            return Err(self.damaged(format!("{name} has no row {row}")));
        }
        let mut parts = rows.iter().zip(bytes.chunks_exact_mut(row_bytes.max(1)));
        parts.try_for_each(|(row, bytes)| self.read_at(range.start + row * row_bytes, bytes))
    }

    fn read_at(&self, place: usize, bytes: &mut [u8]) -> Result<(), StateError> {
        let read = read_at(&self.file, self.start + place as u64, bytes);
        read.map_err(|error| self.damaged(error.to_string()))
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
            Array::new("x", &[2, 3], &X[..]),
            Array::new("c", &[1], &[f32::NAN]),
            Array::new::<f32>("none", &[0], &[]),
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
    fn what_was_written_is_read_and_nothing_else_is_mistaken_for_it() {
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
        assert!(
            matches!(state.vector::<f64>("x"), Err(StateError::Damaged { what, .. }) if what.contains('x'))
        );
        assert!(
            matches!(state.vector::<f32>("y"), Err(StateError::Damaged { what, .. }) if what.contains('y'))
        );
        let wrong = write(&path, &HEADER, &[Array::new("x", &[7], &X[..])]);
        assert!(matches!(wrong, Err(StateError::Io { .. })));
        assert!(read(&path).is_ok(), "the old state is still there");
    }
}
