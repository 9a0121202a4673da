//! Folders that one process works in at a time.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder that cannot be locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process works in it.
    #[error("{} is in use by another mile process", .0.display())]
    InUse(PathBuf),
    /// The lock file cannot be written.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A folder that this process works in, until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that was forked meanwhile has the same file open, and closing it here would not free the folder. Where that
        // fails, the folder is free when the last of these processes ends.
        let _ = self.file.unlock();
    }
}

impl FolderLock {
    /// Locks a folder that exists. A process that is about to end is waited for, for this long.
    pub fn take(folder: &Path, patience: Duration) -> Result<Self, LockError> {
        let path = folder.join(".lock");
        let failed = |source| LockError::Io { path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => {
                    return Err(LockError::InUse(folder.to_owned()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_until_the_lock_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(home.path(), Duration::ZERO).unwrap();
        let second = FolderLock::take(home.path(), Duration::from_millis(30)).unwrap_err();
        assert!(matches!(second, LockError::InUse(_)), "{second}");
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(lock);
        });
        FolderLock::take(home.path(), Duration::from_secs(20)).unwrap();
        release.join().unwrap();
        let lock = FolderLock::take(home.path(), Duration::ZERO).unwrap();
        let inherited = lock.file.try_clone().unwrap();
        drop(lock);
        FolderLock::take(home.path(), Duration::ZERO)
            .expect("a copy of the open file does not keep the lock");
        drop(inherited);
        let absent = FolderLock::take(&home.path().join("absent"), Duration::ZERO).unwrap_err();
        assert!(matches!(absent, LockError::Io { .. }), "{absent}");
    }
}
