//! Which public enums may grow: all, except those that DESIGN.md lists with a reason.

use std::collections::BTreeSet;
use std::fs;

use super::{crates, name, root, sources, tokens};

/// The heading of the list in DESIGN.md.
const HEADING: &str = "### Which enums are closed?";

/// The names in backticks in the first cell of each row of the table in a section of DESIGN.md.
pub(crate) fn listed(heading: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md");
    let section = text.split(heading).nth(1).expect("the section");
    let section = section.split("\n#").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    cells
        .flat_map(|cell| cell.split('`').step_by(2))
        .map(str::trim)
        .filter(|name| *name != ",")
        .map(str::to_owned)
        .collect()
}

/// Whether the attributes that end here have this one.
pub(crate) fn has_attribute(mut before: &[String], attribute: &str) -> bool {
    while before.last().is_some_and(|token| token == "]") {
        let Some(begin) = before.iter().rposition(|token| token == "#") else { return false };
        if before[begin..].iter().any(|token| token == attribute) {
            return true;
        }
        before = &before[..begin];
    }
    false
}

/// The public enums of the libraries without `#[non_exhaustive]`.
fn closed() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in crates().into_iter().filter(|folder| name(folder) != "mile-cli") {
        for (_, text) in sources(&folder.join("src")) {
            let tokens = tokens::tokens(&text);
            for (at, words) in tokens.windows(3).enumerate() {
                let is_enum = words[0] == "pub" && words[1] == "enum";
                if is_enum && !has_attribute(&tokens[..at], "non_exhaustive") {
                    found.insert(words[2].clone());
                }
            }
        }
    }
    found
}

#[test]
fn public_enums_can_grow_unless_there_is_a_reason_against_it() {
    assert_eq!(
        closed(),
        listed(HEADING),
        "the enums without #[non_exhaustive], and those that DESIGN.md lists"
    );
}
