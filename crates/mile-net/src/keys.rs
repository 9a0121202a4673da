//! An agent's keys: it is known by its public key; the secret key is in a file that only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use iroh::{PublicKey, SecretKey, Signature};

/// Bytes of the longest key file, with room for white space.
const LONGEST: u64 = 1024;

/// The mode of a secret that is mounted for the group of a process, as in Kubernetes.
const MOUNTED: u32 = 0o440;

/// A key file that cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file already exists.
    #[error(
        "{0}: already exists, and a key is never overwritten; choose another name, or remove it if no run needs it"
    )]
    Exists(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} the key file {path}: {source}")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Other users can read the file.
    #[error("the key file {path} can be read by other users (mode {mode:03o}); run chmod 600 {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not a key file.
    #[error("{0}: expected a secret key of 64 hexadecimal digits; create one with mile keygen")]
    Malformed(PathBuf),
}

/// Writes a new secret key to a file that only its owner can read. Returns the public key.
pub fn generate(path: &Path) -> Result<PublicKey, KeyError> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => KeyError::Disk { action: "write", path: path.to_owned(), source },
    };
    let key = SecretKey::generate();
    let digits: String = key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{digits}").and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(key.public())
}

/// Reads a secret key; refuses a file that other users can read, or that is not a key: a regular file of 64 hexadecimal digits.
pub fn read(path: &Path) -> Result<SecretKey, KeyError> {
    let failed = |source| KeyError::Disk { action: "read", path: path.to_owned(), source };
    let malformed = || KeyError::Malformed(path.to_owned());
    let about = fs::metadata(path).map_err(failed)?;
    if !about.is_file() || about.len() > LONGEST {
        return Err(malformed());
    }
    let bytes = fs::read(path).map_err(failed)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
    let key = text.trim().parse().map_err(|_| malformed())?;
    // Only of a key does it matter who can read it. Read-only for a group is how secrets are mounted in containers.
    match about.mode() & 0o777 {
        MOUNTED => Ok(key),
        mode if mode & 0o077 != 0 => Err(KeyError::Exposed { path: path.to_owned(), mode }),
        _ => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_read_back_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.key");
        let public = generate(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap().public(), public);
        assert!(matches!(generate(&path), Err(KeyError::Exists(_))));
        assert_eq!(read(&path).unwrap().public(), public);
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.key");
        generate(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        read(&path).expect("a mounted secret");
        for mode in [0o640, 0o604, 0o660, 0o620, 0o444, 0o460] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, KeyError::Exposed { mode: found, .. } if found == mode), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"\xff not a key").unwrap();
        assert!(matches!(read(&path), Err(KeyError::Malformed(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read(&path), Err(KeyError::Malformed(_))), "whoever can read it");
        assert!(matches!(read(folder.path()), Err(KeyError::Malformed(_))), "a folder");
        assert!(matches!(read(Path::new("/dev/zero")), Err(KeyError::Malformed(_))), "it never ends");
        assert!(matches!(read(&folder.path().join("none")), Err(KeyError::Disk { .. })));
    }
}
