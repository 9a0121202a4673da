//! Which public structs can be written as literals: those that another crate writes, and those that DESIGN.md lists with a reason.

use std::collections::{BTreeMap, BTreeSet};

use super::enums::{has_attribute, listed};
use super::{crates, entries, name, root, sources, tokens};

/// The heading of the list in DESIGN.md.
const HEADING: &str = "### Which structs can be written as literals?";

/// The structs of these sources that other crates could write: public as all of their fields are, without `#[non_exhaustive]`.
fn open(tokens: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, words) in tokens.windows(3).enumerate() {
        let is_open =
            words[0] == "pub" && words[1] == "struct" && !has_attribute(&tokens[..at], "non_exhaustive");
        let mut body = tokens[at..].iter().skip_while(|token| !matches!(token.as_str(), "{" | ";"));
        if !is_open || body.next().is_none_or(|token| token == ";") {
            continue;
        }
        let body: Vec<&String> = body.take_while(|token| *token != "}").collect();
        // A field is a word before a colon: paths have double colons.
        let mut fields = body.windows(3).filter(|words| words[2] == ":").peekable();
        if fields.peek().is_some() && fields.all(|words| words[0] == "pub") {
            found.insert(words[2].clone());
        }
    }
    found
}

/// The words before an opening brace that may begin a literal: they do not end the head of a function or of an `impl`.
fn written(tokens: &[String]) -> BTreeSet<String> {
    let literals = tokens.windows(4).filter(|words| {
        let is_result = words[0] == "-" && words[1] == ">";
        words[3] == "{" && !is_result && !matches!(words[1].as_str(), "for" | "impl")
    });
    literals.map(|words| words[2].clone()).collect()
}

#[test]
fn public_structs_that_only_their_library_makes_can_grow() {
    let mut open_in = BTreeMap::new();
    let mut written_in = BTreeMap::new();
    let mut folders = vec![root().join("python/src"), root().join("fuzz")];
    folders.extend(entries(&root().join("bench")).into_iter().filter(|folder| folder.is_dir()));
    folders.extend(crates().iter().flat_map(|folder| entries(folder)).filter(|folder| folder.is_dir()));
    for folder in folders {
        let sources = sources(&folder);
        if folder.starts_with(root().join("crates")) && folder.ends_with("src") {
            let found = sources.iter().flat_map(|(_, text)| open(&tokens::tokens(text)));
            open_in.insert(folder.clone(), found.collect::<BTreeSet<_>>());
        }
        let found = sources.iter().flat_map(|(_, text)| written(&tokens::all_tokens(text)));
        written_in.insert(folder, found.collect::<BTreeSet<_>>());
    }
    let is_written_outside =
        |own, name: &String| written_in.iter().any(|(folder, names)| folder != own && names.contains(name));
    let only_inside: BTreeSet<String> = open_in
        .iter()
        .filter(|(folder, _)| folder.parent().is_none_or(|folder| name(folder) != "mile-cli"))
        .flat_map(|(folder, names)| names.iter().filter(move |name| !is_written_outside(folder, name)))
        .cloned()
        .collect();
    assert_eq!(only_inside, listed(HEADING), "open structs that no other crate writes, and DESIGN.md's list");
}
