//! Files that are written completely or not at all.

use std::io::Write;
use std::path::Path;

use atomic_write_file::AtomicWriteFile;

/// Length of the suffix of a file that is being written.
const SUFFIX: usize = 6;

/// Writes a file so that it is either the old one or the complete new one, even after a power failure.
pub fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    write_with(path, |file| file.write_all(bytes))
}

/// The same for contents written piece by piece.
pub fn write_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut file = AtomicWriteFile::open(path)?;
    write(&mut file)?;
    file.commit()
}

/// Removes from a folder what processes killed while writing one of these files have left there.
/// No other process may be writing them.
pub fn remove_leftovers(folder: &Path, names: &[&str]) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let is_of = |name: &&str| {
            let found = entry.file_name();
            let rest = found
                .to_str()
                .and_then(|found| found.strip_prefix('.')?.strip_prefix(*name)?.strip_prefix('.'));
            rest.is_some_and(|rest| rest.len() == SUFFIX && rest.bytes().all(|c| c.is_ascii_alphanumeric()))
        };
        if names.iter().any(is_of) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        write_file(&path, b"old").unwrap();
        let failed = write_with(&path, |file| {
            file.write_all(b"half of the new")?;
            Err(std::io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
        write_file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(write_file(&home.path().join("absent/state"), b"").is_err());
    }

    #[test]
    fn leftovers_of_known_files_are_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let kept = ["state", ".state", ".state.abc", ".state.abc12_", ".other.abc123", "state.abc123"];
        for name in kept.iter().chain(&[".state.abc123", ".state.ABCDEF"]) {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        remove_leftovers(home.path(), &["state"]).unwrap();
        let mut found: Vec<String> = std::fs::read_dir(home.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let mut expected = kept.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
    }
}
