//! Where an agent tells its status: a socket in its folder or, if that path is too long for one, in the folder for
//! temporary files, with a note in the agent's folder.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use mile_lab::error::LabError;
use mile_lab::store::write_file;

/// Systems take 104 to 108 bytes, the closing zero included.
const LONGEST: usize = 100;
const NOTE: &str = "status.path";

/// The socket of the agent in a folder, to be opened by the agent.
pub(crate) fn place(folder: &Path) -> Result<PathBuf, LabError> {
    let near = folder.join("status.sock");
    if near.as_os_str().len() <= LONGEST {
        let _ = std::fs::remove_file(folder.join(NOTE));
        return Ok(near);
    }
    let mut hash = DefaultHasher::new();
    folder.hash(&mut hash);
    let far = std::env::temp_dir().join(format!("mile-{:016x}.sock", hash.finish()));
    write_file(&folder.join(NOTE), far.display().to_string().as_bytes())?;
    Ok(far)
}

/// The socket of the agent in a folder, to be asked.
pub(crate) fn find(folder: &Path) -> PathBuf {
    match std::fs::read_to_string(folder.join(NOTE)) {
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
        let far = place(&deep).unwrap();
        assert!(far.as_os_str().len() <= LONGEST && find(&deep) == far);
        assert_eq!(find(folder.path()), place(folder.path()).unwrap());
        assert!(find(folder.path()).ends_with("status.sock"));
    }
}
