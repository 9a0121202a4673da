//! A look at files of arrays: what their headers say.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use zip::ZipArchive;

use super::checked::MAX_CLASSES;
use super::file::{Format, bad, read};
use super::npy::{Element, Numbers};
use super::some::{header, tensors};
use crate::error::{DataFileError, LabError};
use crate::reading;

/// What the header of an array says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayLook {
    /// Its name; none in a `.npy` file, which has one array.
    pub name: Option<String>,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub numbers: ArrayNumbers,
}

/// The numbers of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArrayNumbers {
    /// Bytes, which as inputs are divided by 255.
    Bytes,
    /// Other whole numbers.
    Whole,
    /// Single or double precision.
    Floating,
}

impl ArrayNumbers {
    fn of(element: Element) -> Self {
        match element {
            Element::U8 => Self::Bytes,
            Element::F32 | Element::F64 => Self::Floating,
            _ => Self::Whole,
        }
    }
}

impl ArrayLook {
    /// The arrays of a file, by their names. Those that are not numbers are left out.
    pub fn all(path: &Path) -> Result<Vec<Self>, LabError> {
        let names = names(path)?;
        let look = |name: Option<String>| {
            let header = header(path, name.as_deref()).ok()?;
            Some(Self { name, shape: header.shape, numbers: ArrayNumbers::of(header.element) })
        };
        // A file with one array is that array, so what is wrong with it is told.
        if let [None] = names[..] {
            header(path, None)?;
        }
        Ok(names.into_iter().filter_map(look).collect())
    }

    /// The number of classes if the array of a file, which is read, has labels: each of 0, 1, ... occurs.
    pub fn classes(&self, path: &Path) -> Result<Option<usize>, LabError> {
        let labels = match read(path, &[self.name.as_deref()])?.swap_remove(0).numbers {
            Numbers::Bytes(all) => all.into_iter().map(i64::from).collect(),
            Numbers::Whole(all) => all,
            Numbers::Singles(_) | Numbers::Doubles(_) => return Ok(None),
        };
        let mut found = [false; MAX_CLASSES as usize];
        for label in labels {
            match usize::try_from(label).ok().and_then(|label| found.get_mut(label)) {
                Some(found) => *found = true,
                None => return Ok(None),
            }
        }
        let count = found.iter().filter(|found| **found).count();
        Ok((count > 1 && found[..count].iter().all(|found| *found)).then_some(count))
    }
}

/// The names of the arrays of a file.
fn names(path: &Path) -> Result<Vec<Option<String>>, DataFileError> {
    let unreadable = |error: &dyn std::fmt::Display| bad(path, None, format!("cannot read it: {error}"));
    let file = reading::open(path).map_err(|error| unreadable(&error))?;
    let mut names: Vec<String> = match Format::of(path) {
        Some(Format::Npz) => {
            let archive = ZipArchive::new(file).map_err(|error| unreadable(&error))?;
            let files = archive.file_names().flatten();
            files.filter_map(|file| file.strip_suffix(".npy").map(str::to_owned)).collect()
        }
        Some(Format::Safetensors) => {
            let length = file.metadata().map_err(|error| unreadable(&error))?.len();
            let all = tensors(&mut BufReader::<File>::new(file), length);
            all.map_err(|problem| unreadable(&problem))?.into_keys().collect()
        }
        _ => return Ok(vec![None]),
    };
    names.sort_unstable();
    Ok(names.into_iter().map(Some).collect())
}
