//! CIFAR-10's binary version: records of a label and three planes of 32 x 32 bytes.

use std::path::Path;

use super::{DataError, idx};

/// Bytes of a colour plane.
const PLANE: usize = 1024;
/// Bytes of a record: the label, then the red, green and blue plane.
const RECORD: usize = 1 + 3 * PLANE;

/// Bytes of images, and their labels.
#[derive(Default)]
pub(crate) struct Labelled {
    pub(crate) pixels: Vec<u8>,
    pub(crate) labels: Vec<u8>,
}

/// Appends the records of a batch file that must hold `count` of them.
pub(crate) fn read_batch(
    path: &Path,
    count: usize,
    classes: usize,
    images: &mut Labelled,
) -> Result<(), DataError> {
    let bytes = idx::content(path)?;
    if bytes.len() != count * RECORD {
        return Err(DataError::Format {
            path: path.to_owned(),
            offset: bytes.len().min(count * RECORD) as u64,
            what: format!(
                "expected {} bytes ({count} records of {RECORD}), got {}",
                count * RECORD,
                bytes.len()
            ),
        });
    }
    for (i, record) in bytes.chunks_exact(RECORD).enumerate() {
        if usize::from(record[0]) >= classes {
            return Err(DataError::Format {
                path: path.to_owned(),
                offset: (i * RECORD) as u64,
                what: format!("expected a label below {classes}, got {}", record[0]),
            });
        }
        images.labels.push(record[0]);
        for p in 0..PLANE {
            images.pixels.extend([record[1 + p], record[1 + PLANE + p], record[1 + 2 * PLANE + p]]);
        }
    }
    Ok(())
}
