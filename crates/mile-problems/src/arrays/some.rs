//! Some samples of an array, without the others in memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use safetensors::tensor::TensorInfo;
use zip::ZipArchive;

use super::file::{Format, absent, bad, element, name_of_member};
use super::npy::{Array, Header, of_some};
use crate::error::DataFileError;
use crate::reading;

/// Bytes that are read at once.
const BUFFER: usize = 1 << 18;
/// Most bytes of the head of a `.safetensors` file, as the format says.
const MOST_OF_HEAD: u64 = 100_000_000;

/// The numbers of an array, in order.
enum Input<'a> {
    File(BufReader<File>),
    /// Compressed: what is skipped is unpacked and discarded.
    Packed(&'a mut dyn Read),
}

impl Input<'_> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match self {
            Input::File(file) => {
                file.seek_relative(i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?)
            }
            Input::Packed(input) => io::copy(&mut input.take(bytes), &mut io::sink()).map(drop),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Input::File(file) => file.read_exact(bytes),
            Input::Packed(input) => input.read_exact(bytes),
        }
    }
}

/// What a file says about one of its arrays; a `.npy` file has one, without a name.
pub(super) fn header(path: &Path, name: Option<&str>) -> Result<Header, DataFileError> {
    open(path, name, |header, found, _| header.sample_bytes(found).map(|_| header))
}

/// The samples with these numbers, which increase, of an array.
pub(super) fn some(path: &Path, name: Option<&str>, chosen: &[u32]) -> Result<Array, DataFileError> {
    open(path, name, |header, found, input| {
        let unreadable = |error: io::Error| format!("cannot read it: {error}");
        let each = header.sample_bytes(found)?;
        if header.is_column_major && header.shape.len() > 1 {
            // Every number of a sample is somewhere else.
            let mut bytes = vec![0; found as usize];
            input.read(&mut bytes).map_err(unreadable)?;
            return Ok(header.array(&bytes)?.some(chosen));
        }
        let mut bytes = vec![0; each * chosen.len()];
        let mut next = 0;
        for (sample, out) in chosen.iter().map(|k| *k as usize).zip(bytes.chunks_exact_mut(each.max(1))) {
            input.skip(((sample - next) * each) as u64).map_err(unreadable)?;
            input.read(out).map_err(unreadable)?;
            next = sample + 1;
        }
        Array::new(of_some(&header.shape, chosen), header.element, header.big_end, &bytes)
    })
}

/// Opens an array, and calls `work` with what the file says about it, its bytes, and a reader of them.
fn open<V>(
    path: &Path,
    name: Option<&str>,
    work: impl FnOnce(Header, u64, &mut Input<'_>) -> Result<V, String>,
) -> Result<V, DataFileError> {
    let unreadable = |error: &dyn std::fmt::Display| bad(path, None, format!("cannot read it: {error}"));
    let file = reading::open(path).map_err(|error| unreadable(&error))?;
    let length = file.metadata().map_err(|error| unreadable(&error))?.len();
    let of_array = |problem: String| bad(path, name, problem);
    match (Format::of(path), name) {
        (Some(Format::Safetensors), Some(name)) => {
            let mut file = BufReader::with_capacity(BUFFER, file);
            let mut tensors = tensors(&mut file, length).map_err(|problem| unreadable(&problem))?;
            let Some(tensor) = tensors.remove(name) else {
                return Err(absent(path, name, tensors.into_keys().collect()));
            };
            let header = Header {
                element: element(tensor.dtype).map_err(of_array)?,
                shape: tensor.shape,
                big_end: false,
                is_column_major: false,
            };
            let (first, end) = tensor.data_offsets;
            let mut input = Input::File(file);
            input.skip(first as u64).map_err(|error| unreadable(&error))?;
            work(header, end.saturating_sub(first) as u64, &mut input).map_err(of_array)
        }
        (Some(Format::Npz), Some(name)) => {
            let mut archive = ZipArchive::new(file).map_err(|error| unreadable(&error))?;
            let member = name_of_member(path, &archive, name)?;
            let mut member = archive.by_name(&member).map_err(|error| of_array(error.to_string()))?;
            let mut left = member.size();
            let header =
                Header::read(&mut Counted { input: &mut member, left: &mut left }).map_err(of_array)?;
            work(header, left, &mut Input::Packed(&mut member)).map_err(of_array)
        }
        _ => {
            let mut file = BufReader::with_capacity(BUFFER, file);
            let header = Header::read(&mut file).map_err(of_array)?;
            let begun = file.stream_position().map_err(|error| unreadable(&error))?;
            work(header, length.saturating_sub(begun), &mut Input::File(file)).map_err(of_array)
        }
    }
}

/// A reader that counts what is left.
struct Counted<'a> {
    input: &'a mut dyn Read,
    left: &'a mut u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        *self.left = self.left.saturating_sub(bytes as u64);
        Ok(bytes)
    }
}

/// The tensors of a `.safetensors` file of this length, after whose head their numbers begin.
pub(super) fn tensors(
    file: &mut BufReader<File>,
    length: u64,
) -> Result<HashMap<String, TensorInfo>, String> {
    let damaged = || "its header is damaged or incomplete".to_owned();
    let mut size = [0; 8];
    file.read_exact(&mut size).map_err(|_| damaged())?;
    let size = u64::from_le_bytes(size);
    if size > MOST_OF_HEAD || size + 8 > length {
        return Err(damaged());
    }
    let mut head = vec![0; size as usize];
    file.read_exact(&mut head).map_err(|_| damaged())?;
    let all: HashMap<String, serde_json::Value> = serde_json::from_slice(&head).map_err(|_| damaged())?;
    let tensors = all.into_iter().filter(|(name, _)| name != "__metadata__");
    let tensor = |(name, value)| {
        let tensor: TensorInfo = serde_json::from_value(value).map_err(|_| damaged())?;
        let (first, end) = tensor.data_offsets;
        if first > end || end as u64 > length - size - 8 {
            return Err(damaged());
        }
        Ok((name, tensor))
    };
    tensors.map(tensor).collect()
}
