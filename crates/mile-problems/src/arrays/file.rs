//! Files with arrays: `.npy`, `.npz` and `.safetensors`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use zip::ZipArchive;

use super::npy::{Array, Element, refused_type};
use crate::error::DataFileError;
use crate::reading;

/// What a name ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Npz,
    Safetensors,
}

impl Format {
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "npy" => Some(Format::Npy),
            "npz" => Some(Format::Npz),
            "safetensors" => Some(Format::Safetensors),
            _ => None,
        }
    }
}

/// An error of a file, or of one of its arrays.
pub(super) fn bad(file: &Path, array: Option<&str>, problem: impl std::fmt::Display) -> DataFileError {
    let problem = match array {
        Some(array) => format!("array '{array}': {problem}"),
        None => problem.to_string(),
    };
    DataFileError { file: file.to_owned(), place: None, column: None, problem }
}

/// Reads arrays of one file, by name; a `.npy` file has one, without a name.
pub(super) fn read(path: &Path, names: &[Option<&str>]) -> Result<Vec<Array>, DataFileError> {
    let unreadable = |error: &dyn std::fmt::Display| bad(path, None, format!("cannot read it: {error}"));
    let mut file = reading::open(path).map_err(|error| unreadable(&error))?;
    let mut whole = || {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| unreadable(&error)).map(|_| bytes)
    };
    match Format::of(path) {
        Some(Format::Safetensors) => {
            let bytes = whole()?;
            let tensors = SafeTensors::deserialize(&bytes).map_err(|error| unreadable(&error))?;
            let all = || tensors.names().into_iter().map(str::to_owned).collect();
            names.iter().map(|name| tensor(path, &tensors, name.unwrap_or_default(), all)).collect()
        }
        Some(Format::Npz) => {
            let mut archive = ZipArchive::new(file).map_err(|error| unreadable(&error))?;
            names.iter().map(|name| member(path, &mut archive, name.unwrap_or_default())).collect()
        }
        _ => {
            let bytes = whole()?;
            let array = || Array::of_npy(&bytes).map_err(|problem| bad(path, None, problem));
            names.iter().map(|_| array()).collect()
        }
    }
}

/// The name of an array's file in an archive that has it.
pub(super) fn name_of_member(
    path: &Path,
    archive: &ZipArchive<File>,
    name: &str,
) -> Result<String, DataFileError> {
    let file = format!("{name}.npy");
    if archive.index_for_name(&file).is_some() {
        return Ok(file);
    }
    let names = archive.file_names().flatten();
    let names = names.map(|file| file.strip_suffix(".npy").unwrap_or(&file).to_owned());
    Err(absent(path, name, names.collect()))
}

pub(super) fn absent(path: &Path, name: &str, mut known: Vec<String>) -> DataFileError {
    known.sort_unstable();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    bad(
        path,
        Some(name),
        format!("not found; the file has {known}; name two of them with inputs and targets"),
    )
}

fn tensor(
    path: &Path,
    tensors: &SafeTensors<'_>,
    name: &str,
    known: impl Fn() -> Vec<String>,
) -> Result<Array, DataFileError> {
    let tensor = tensors.tensor(name).map_err(|_| absent(path, name, known()))?;
    let element = element(tensor.dtype()).map_err(|problem| bad(path, Some(name), problem))?;
    Array::new(tensor.shape().to_vec(), element, false, tensor.data())
        .map_err(|problem| bad(path, Some(name), problem))
}

/// The type of the elements of a tensor.
pub(super) fn element(dtype: Dtype) -> Result<Element, String> {
    Ok(match dtype {
        Dtype::BOOL => Element::Bool,
        Dtype::U8 => Element::U8,
        Dtype::I8 => Element::I8,
        Dtype::U16 => Element::U16,
        Dtype::I16 => Element::I16,
        Dtype::U32 => Element::U32,
        Dtype::I32 => Element::I32,
        Dtype::U64 => Element::U64,
        Dtype::I64 => Element::I64,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        other => return Err(refused_type(&format!("{other:?}"))),
    })
}

fn member(path: &Path, archive: &mut ZipArchive<File>, name: &str) -> Result<Array, DataFileError> {
    let file = name_of_member(path, archive, name)?;
    let damaged = |error: &dyn std::fmt::Display| bad(path, Some(name), format!("cannot read it: {error}"));
    let mut bytes = Vec::new();
    let mut member = archive.by_name(&file).map_err(|error| damaged(&error))?;
    member.read_to_end(&mut bytes).map_err(|error| damaged(&error))?;
    Array::of_npy(&bytes).map_err(|problem| bad(path, Some(name), problem))
}
