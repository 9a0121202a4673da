//! The path of an agent's status socket: in its folder or, if that path is too long for a socket, in a new folder
//! among the system's temporary ones, with a file in the agent's folder that holds the path.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mile_lab::error::LabError;
use mile_lab::store::write_file;

/// The limit is 104 to 108 bytes, depending on the system, including the final zero.
const MAX_PATH: usize = 100;
const SOCKET: &str = "status.sock";
const POINTER_FILE: &str = "status.path";

/// The path at which the agent in a folder opens its socket.
pub(crate) fn choose_path(folder: &Path) -> Result<PathBuf, LabError> {
    let (near, pointer) = (folder.join(SOCKET), folder.join(POINTER_FILE));
    if near.as_os_str().len() <= MAX_PATH {
        let _ = std::fs::remove_file(pointer);
        return Ok(near);
    }
    if let Some(far) = pointed(folder).filter(|far| far.parent().is_some_and(|home| is_ours(home, folder))) {
        return Ok(far);
    }
    let temporary = std::env::temp_dir();
    // Its name is random and it belongs to this user alone, so no other user can create it first.
    let own = Permissions::from_mode(0o700);
    let home = tempfile::Builder::new().prefix("mile-").permissions(own).tempdir_in(&temporary);
    let home = home.map_err(LabError::io(&temporary, "create a folder for the status socket in"))?.keep();
    let far = home.join(SOCKET);
    write_file(&pointer, far.display().to_string().as_bytes())?;
    Ok(far)
}

/// The path of the socket of the agent in a folder, for its clients.
pub(crate) fn find_path(folder: &Path) -> PathBuf {
    pointed(folder).unwrap_or_else(|| folder.join(SOCKET))
}

fn pointed(folder: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(folder.join(POINTER_FILE)).ok()?;
    Some(text.trim().into())
}

/// Whether a folder, left by an earlier start, belongs only to the owner of the agent's folder.
fn is_ours(home: &Path, folder: &Path) -> bool {
    let (Ok(home), Ok(folder)) = (std::fs::symlink_metadata(home), std::fs::metadata(folder)) else {
        return false;
    };
    home.is_dir() && home.uid() == folder.uid() && home.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_replaced_by_one_that_nobody_else_can_take() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(100));
        let twin = folder.path().join("e".repeat(100));
        for path in [&deep, &twin] {
            std::fs::create_dir_all(path).unwrap();
        }
        let far = choose_path(&deep).unwrap();
        let home = far.parent().unwrap();
        assert!(far.as_os_str().len() <= MAX_PATH && find_path(&deep) == far);
        assert_eq!(std::fs::metadata(home).unwrap().mode() & 0o777, 0o700);
        assert_ne!(home, std::env::temp_dir(), "others may write there");
        assert_eq!(choose_path(&deep).unwrap(), far, "the next start has the same");
        let other = choose_path(&twin).unwrap();
        assert_ne!(other.parent(), far.parent());
        // A folder that others could have changed is not used again.
        std::fs::set_permissions(home, Permissions::from_mode(0o777)).unwrap();
        let next = choose_path(&deep).unwrap();
        assert_ne!(next, far);
        for home in [far, other, next] {
            std::fs::remove_dir_all(home.parent().unwrap()).unwrap();
        }
        assert_eq!(find_path(folder.path()), choose_path(folder.path()).unwrap());
        assert!(find_path(folder.path()).ends_with(SOCKET));
    }
}
