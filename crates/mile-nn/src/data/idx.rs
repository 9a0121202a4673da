//! The idx format of MNIST and Fashion-MNIST, plain or gzipped.
//!
//! ```text
//! images: 00 00 08 03 | count | rows | columns | count x rows x columns bytes
//! labels: 00 00 08 01 | count | count bytes             (numbers: 4 bytes, big endian)
//! ```

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::DataError;

/// Most bytes read from a file, after decompression; all data sets here are far smaller.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// `stem` in `directory`, plain or with `.gz`, if it exists.
pub(crate) fn file_in(directory: &Path, stem: &str) -> Option<PathBuf> {
    [stem.to_owned(), format!("{stem}.gz")]
        .map(|name| directory.join(name))
        .into_iter()
        .find(|path| path.is_file())
}

/// The content of a file, decompressed if its name ends in `.gz`.
pub(crate) fn content(path: &Path) -> Result<Vec<u8>, DataError> {
    content_as(path, path.extension().is_some_and(|e| e == "gz"))
}

/// The content of a file, decompressed if it is gzipped.
pub(crate) fn content_as(path: &Path, gzipped: bool) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(DataError::io("cannot open", path))?;
    let mut bytes = Vec::new();
    if gzipped {
        MultiGzDecoder::new(file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(|source| {
            DataError::Format {
                path: path.to_owned(),
                offset: bytes.len() as u64,
                what: format!("the gzip stream is incomplete or damaged ({source})"),
            }
        })?;
    } else {
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(DataError::io("cannot read", path))?;
    }
    Ok(bytes)
}

/// The pixels of an image file of `rows` x `columns` images.
pub(crate) fn images(path: &Path, rows: usize, columns: usize) -> Result<Vec<u8>, DataError> {
    let bytes = content(path)?;
    let header = header(path, &bytes, 3)?;
    for (dimension, (found, expected)) in header[1..].iter().zip([rows, columns]).enumerate() {
        if *found != expected {
            let what = format!("expected images of {rows} x {columns}, got {} x {}", header[1], header[2]);
            return Err(damaged(path, 8 + 4 * dimension, what));
        }
    }
    body(path, bytes, 16, header[0].saturating_mul(rows * columns))
}

/// The labels of a label file, each below `classes`.
pub(crate) fn labels(path: &Path, classes: usize) -> Result<Vec<u8>, DataError> {
    let bytes = content(path)?;
    let header = header(path, &bytes, 1)?;
    let labels = body(path, bytes, 8, header[0])?;
    match labels.iter().position(|&label| usize::from(label) >= classes) {
        Some(i) => Err(damaged(path, 8 + i, format!("expected a label below {classes}, got {}", labels[i]))),
        None => Ok(labels),
    }
}

fn damaged(path: &Path, offset: usize, what: String) -> DataError {
    DataError::Format { path: path.to_owned(), offset: offset as u64, what }
}

/// The `dimensions` numbers after the magic number.
fn header(path: &Path, bytes: &[u8], dimensions: u8) -> Result<Vec<usize>, DataError> {
    let word = |i: usize| match bytes.get(4 * i..4 * i + 4) {
        Some(&[a, b, c, d]) => Ok(u32::from_be_bytes([a, b, c, d])),
        _ => Err(damaged(
            path,
            bytes.len(),
            format!("the file ends in the middle of its header of {} bytes", 4 + 4 * dimensions),
        )),
    };
    let expected = u32::from_be_bytes([0, 0, 8, dimensions]);
    let magic = word(0)?;
    if magic != expected {
        return Err(damaged(path, 0, format!("expected magic number {expected:08x}, got {magic:08x}")));
    }
    (1..=usize::from(dimensions)).map(|i| word(i).map(|n| n as usize)).collect()
}

/// The bytes after the header; there must be exactly `length` of them.
fn body(path: &Path, mut bytes: Vec<u8>, header: usize, length: usize) -> Result<Vec<u8>, DataError> {
    if bytes.len() - header != length {
        let what = format!("expected {length} bytes after the header, got {}", bytes.len() - header);
        return Err(damaged(path, bytes.len().min(header.saturating_add(length)), what));
    }
    bytes.drain(..header);
    Ok(bytes)
}
