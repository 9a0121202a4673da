//! The committed results of `experiments/` can still be read, and still say what their tables say.

use std::path::{Path, PathBuf};

use mile_lab::report::RunFolder;

/// Every run directory below a folder.
fn runs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.join("config.toml").exists() && path.join("metrics.jsonl").exists() {
            found.push(path);
        } else if path.is_dir() {
            found.extend(runs(&path));
        }
    }
    found
}

#[test]
fn every_committed_run_is_read_with_its_records_and_outcomes() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("experiments");
    let found = runs(&experiments);
    assert!(found.len() >= 5, "{found:?}");
    for path in found {
        let folder = RunFolder::read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(!folder.records.is_empty() && !folder.outcomes.is_empty(), "{}", path.display());
        for outcome in &folder.outcomes {
            let last = folder.records.iter().rfind(|r| r.label == outcome.label && r.seed == outcome.seed);
            let last = last.unwrap_or_else(|| panic!("{}: {}", path.display(), outcome.label));
            assert_eq!(last.round, outcome.last.round, "{}: {}", path.display(), outcome.label);
            assert_eq!(last.loss.to_bits(), outcome.last.loss.to_bits(), "{}", path.display());
        }
    }
}
