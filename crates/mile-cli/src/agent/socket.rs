//! The path of an agent's status socket: in its folder or, if that path is too long for a socket, in the system's
//! temporary folder, with a file in the agent's folder that holds the path.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use mile_lab::error::LabError;
use mile_lab::store::write_file;

/// The limit is 104 to 108 bytes, depending on the system, the final zero included.
const MAX_PATH: usize = 100;
const POINTER_FILE: &str = "status.path";

/// The path at which the agent in a folder opens its socket.
pub(crate) fn choose_path(folder: &Path) -> Result<PathBuf, LabError> {
    let near = folder.join("status.sock");
    if near.as_os_str().len() <= MAX_PATH {
        let _ = std::fs::remove_file(folder.join(POINTER_FILE));
        return Ok(near);
    }
    let mut hash = DefaultHasher::new();
    folder.hash(&mut hash);
    let far = std::env::temp_dir().join(format!("mile-{:016x}.sock", hash.finish()));
    write_file(&folder.join(POINTER_FILE), far.display().to_string().as_bytes())?;
    Ok(far)
}

/// The path of the socket of the agent in a folder, for its clients.
pub(crate) fn find_path(folder: &Path) -> PathBuf {
    match std::fs::read_to_string(folder.join(POINTER_FILE)) {
        Ok(path) => path.trim().into(),
        Err(_) => folder.join("status.sock"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_replaced_and_noted() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let far = choose_path(&deep).unwrap();
        assert!(far.as_os_str().len() <= MAX_PATH && find_path(&deep) == far);
        assert_eq!(find_path(folder.path()), choose_path(folder.path()).unwrap());
        assert!(find_path(folder.path()).ends_with("status.sock"));
    }
}
