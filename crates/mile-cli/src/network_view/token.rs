//! The token of a page: a file that only its owner can read.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use mile_lab::error::LabError;
use mile_net::keys::SecretKey;

/// Fewer characters could be guessed.
const SHORTEST: usize = 16;
const LONGEST: u64 = 1024;

/// Writes a new token to a file that only its owner can read.
pub(crate) fn generate(path: &Path) -> Result<(), LabError> {
    let failed = |error: std::io::Error| problem(path, &format!("cannot write the token: {error}"));
    // Half of a key is as hard to guess.
    let key = SecretKey::generate().to_bytes();
    let token: String = key[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(failed)
}

/// Reads a token. A file that other users can read, and one with a short token, are refused.
pub(crate) fn read(path: &Path) -> Result<String, LabError> {
    let failed = |error: std::io::Error| {
        problem(path, &format!("cannot read the token: {error}; mile keygen --token FILE writes one"))
    };
    let about = std::fs::metadata(path).map_err(failed)?;
    let mode = about.mode() & 0o777;
    if mode & 0o077 != 0 && mode != 0o440 {
        let words = format!(
            "the token can be read by other users (mode {mode:03o}); run chmod 600 {}",
            path.display()
        );
        return Err(problem(path, &words));
    }
    if !about.is_file() || about.len() > LONGEST {
        return Err(problem(path, "expected a file with one token"));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let token = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if token.len() < SHORTEST || !token.chars().all(plain) {
        let words = format!(
            "expected a token of at least {SHORTEST} letters, digits, - and _; mile keygen --token FILE writes one"
        );
        return Err(problem(path, &words));
    }
    Ok(token.to_owned())
}

fn problem(path: &Path, problem: &str) -> LabError {
    LabError::Directory { path: path.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_written_once_and_read_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(read(&path).is_err(), "there is none");
        generate(&path).unwrap();
        let token = read(&path).unwrap();
        assert_eq!(token.len(), 32);
        assert!(generate(&path).is_err(), "it is not overwritten");
        assert_eq!(read(&path).unwrap(), token);
        for mode in [0o644, 0o640, 0o604] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(read(&path).is_err(), "{mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for bad in ["short", "", "with a space in the middle", "0123456789abcde/"] {
            std::fs::write(&path, bad).unwrap();
            assert!(read(&path).is_err(), "{bad}");
        }
    }
}
