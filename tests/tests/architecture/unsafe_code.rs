//! Where unsafe code is: in the files that UNSAFE.md lists with a reason, and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{crates, root, sources, tokens};

/// Files and folders of the list: the first cell of each row of its table.
fn listed() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("UNSAFE.md")).expect("UNSAFE.md");
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_owned).collect()
}

/// Files with the word, outside comments, texts and tests.
fn found() -> BTreeSet<String> {
    let folders = crates().into_iter().chain([root().join("python")]).map(|folder| folder.join("src"));
    let with_it = folders.flat_map(|folder| sources(&folder)).filter(|(_, text)| {
        let words = tokens::tokens(text);
        words.iter().any(|word| word == "unsafe")
    });
    let name = |path: &Path| path.strip_prefix(root()).expect("below it").display().to_string();
    with_it.map(|(path, _)| name(&path)).collect()
}

#[test]
fn unsafe_code_is_where_it_is_listed_with_its_reason() {
    let (listed, found) = (listed(), found());
    let is_covered = |file: &String| {
        listed.iter().any(|entry| entry == file || entry.ends_with('/') && file.starts_with(entry.as_str()))
    };
    let unlisted: Vec<_> = found.iter().filter(|file| !is_covered(file)).collect();
    assert!(unlisted.is_empty(), "UNSAFE.md has no reason for the unsafe code of {unlisted:#?}");
    let stale: Vec<_> =
        listed.iter().filter(|entry| !found.iter().any(|file| file.starts_with(entry.as_str()))).collect();
    assert!(stale.is_empty(), "UNSAFE.md lists files without unsafe code: {stale:#?}");
}
