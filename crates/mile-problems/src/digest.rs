//! Digests of data: the first 64 bits of SHA-256, in hexadecimal.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::error::LabError;
use crate::reading;

/// Size, modification time and digest of a file.
type CachedDigest = (u64, Option<SystemTime>, String);

/// Digests of files that were read before, valid while size and modification time are unchanged.
static CACHE: LazyLock<Mutex<HashMap<PathBuf, CachedDigest>>> = LazyLock::new(Mutex::default);

/// The digest of some bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

/// The digest of the concatenation of several pieces.
pub fn of_pieces<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> String {
    let mut hash = Sha256::new();
    pieces.into_iter().for_each(|piece| hash.update(piece));
    hex(hash.finalize().as_slice())
}

/// The digest of a file's contents.
pub fn of_file(path: &Path) -> Result<String, LabError> {
    // An experiment names it.
    let absent = |error: std::io::Error| LabError::Directory {
        path: path.to_owned(),
        problem: format!("cannot read it: {error}"),
    };
    let about = std::fs::metadata(path).map_err(absent)?;
    let state = (about.len(), about.modified().ok());
    let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((size, time, digest)) = cache().get(path)
        && (*size, *time) == state
        && time.is_some()
    {
        return Ok(digest.clone());
    }
    let mut file = reading::open(path).map_err(absent)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).map_err(LabError::io(path, "read"))? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    let digest = hex(hash.finalize().as_slice());
    cache().insert(path.to_owned(), (state.0, state.1, digest.clone()));
    Ok(digest)
}

fn hex(hash: &[u8]) -> String {
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_is_known_by_its_contents_and_read_again_when_it_changes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data.csv");
        let put = |text: &str, seconds: u64| {
            std::fs::write(&path, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            of_file(&path).unwrap()
        };
        let first = put("a,b\n1,2\n", 100);
        assert_eq!(first, of_bytes(b"a,b\n1,2\n"));
        assert_eq!(first, of_pieces([&b"a,b\n"[..], b"1,2\n"]));
        assert_eq!(put("a,b\n9,9\n", 100), first, "taken for the same while size and time are");
        assert_ne!(put("a,b\n9,9\n", 101), first);
        let moved = home.path().join("moved.csv");
        std::fs::write(&moved, "a,b\n1,2\n").unwrap();
        assert_eq!(of_file(&moved).unwrap(), first);
        assert!(of_file(&home.path().join("absent")).is_err());
    }
}
