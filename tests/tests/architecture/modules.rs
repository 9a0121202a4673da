//! Which module uses which, and the cycles among siblings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::tokens::tokens;

/// The place of a module in its crate; the root has no names.
type Place = Vec<String>;

/// The modules of a crate, one for each file.
pub(crate) struct Modules {
    files: BTreeMap<Place, PathBuf>,
    /// Modules with files of their own that are declared outside tests.
    declared: BTreeSet<Place>,
    /// Names a module has from elsewhere, and from where.
    imports: BTreeMap<(Place, String), Place>,
    /// Paths in code: the file's module, the module the path is in (which may be inside the file), the path.
    paths: Vec<(Place, Place, Place)>,
}

/// Who uses whom among siblings, and by which path in which file.
type Uses = BTreeMap<(String, String), String>;

impl Modules {
    /// Of files with their texts; paths are those below `src`.
    pub(crate) fn of(sources: &[(PathBuf, String)]) -> Self {
        let files = sources.iter().map(|(path, _)| (place(path), path.clone())).collect();
        let declared = BTreeSet::from([Place::new()]);
        let mut modules = Self { files, declared, imports: BTreeMap::new(), paths: Vec::new() };
        for (path, text) in sources {
            modules.read(&place(path), &tokens(text));
        }
        modules
    }

    /// Notes the paths and imports of a file.
    fn read(&mut self, file: &Place, tokens: &[String]) {
        let mut inside = file.clone();
        // At which depth each module within the file began.
        let (mut depth, mut began) = (0, Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            let next = |k: usize| tokens.get(at + k).map_or("", String::as_str);
            let mut leaves = Vec::new();
            match tokens[at].as_str() {
                "mod" if next(2) == "{" => {
                    inside.push(next(1).into());
                    began.push(depth);
                }
                "mod" if next(2) == ";" => {
                    self.declared.insert([&inside[..], &[next(1).into()]].concat());
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if began.last() == Some(&depth) {
                        began.pop();
                        inside.pop();
                    }
                }
                "use" => {
                    at = tree(tokens, at + 1, &[], &mut leaves) - 1;
                    for (path, name) in &leaves {
                        self.imports.insert((inside.clone(), name.clone()), path.clone());
                    }
                }
                "crate" | "super" | "self" if next(1) == "::" => at = tree(tokens, at, &[], &mut leaves) - 1,
                _ => {}
            }
            self.paths.extend(leaves.into_iter().map(|(path, _)| (file.clone(), inside.clone(), path)));
            at += 1;
        }
    }

    /// The module in which what a path names is defined, if it is in this crate.
    fn resolve(&self, inside: &Place, path: &[String], imports_left: usize) -> Option<Place> {
        let mut found = inside.clone();
        for (k, name) in path.iter().enumerate() {
            let below = [&found[..], std::slice::from_ref(name)].concat();
            match name.as_str() {
                "crate" => found.clear(),
                "self" => {}
                "super" => drop(found.pop()),
                _ if self.files.contains_key(&below) => found = below,
                _ => match self.imports.get(&(found.clone(), name.clone())) {
                    Some(import) if imports_left > 0 => {
                        match self.resolve(&found, import, imports_left - 1) {
                            Some(origin) => found = origin,
                            None => return (k > 0).then_some(found),
                        }
                    }
                    _ => return (k > 0).then_some(found),
                },
            }
        }
        Some(found)
    }

    /// For the children of each module: who uses whom.
    fn uses(&self) -> BTreeMap<Place, Uses> {
        let mut uses: BTreeMap<Place, Uses> = BTreeMap::new();
        let code = |file: &Place| (0..=file.len()).all(|k| self.declared.contains(&file[..k]));
        for (file, inside, path) in self.paths.iter().filter(|(file, ..)| code(file)) {
            let Some(target) = self.resolve(inside, path, 8) else { continue };
            let common = file.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (file.get(common), target.get(common)) {
                let example = format!("{} uses {}", self.files[file].display(), path.join("::"));
                let edge = (user.clone(), used.clone());
                uses.entry(file[..common].to_vec()).or_default().entry(edge).or_insert(example);
            }
        }
        uses
    }

    /// The shortest cycle through each use that is in one.
    pub(crate) fn cycles(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (parent, uses) in self.uses() {
            let cycles: BTreeSet<Vec<String>> =
                uses.keys().filter_map(|(user, used)| cycle(&uses, user, used)).collect();
            for cycle in cycles {
                let follow = || cycle.iter().zip(cycle.iter().cycle().skip(1));
                let files = follow().map(|(a, b)| format!("\n    {}", uses[&(a.clone(), b.clone())]));
                let place = [&["crate".to_string()], &parent[..]].concat().join("::");
                said.push(format!(
                    "in {place}: {} -> {}{}",
                    cycle.join(" -> "),
                    cycle[0],
                    files.collect::<String>()
                ));
            }
        }
        said
    }
}

/// The module of a file below `src`.
fn place(path: &Path) -> Place {
    let mut place: Place =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let root = place.len() == 1 && ["lib", "main"].contains(&place[0].as_str());
    if root || place.last().is_some_and(|last| last == "mod") {
        place.pop();
    }
    place
}

/// The paths of a tree such as `crate::{a::B, c::{self, D as E}}`, each with the name it gets; where it ends.
fn tree(tokens: &[String], mut at: usize, before: &[String], leaves: &mut Vec<(Place, String)>) -> usize {
    let mut path = before.to_vec();
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    loop {
        match token(at) {
            "{" => {
                at += 1;
                while !matches!(token(at), "}" | "") {
                    at = tree(tokens, at, &path, leaves).max(at + 1);
                    at += usize::from(token(at) == ",");
                }
                return at + 1;
            }
            "self" if !path.is_empty() => {}
            // Generic arguments: the path goes no further in modules.
            word if !word.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '*') => break,
            word => path.push(word.into()),
        }
        at += 1;
        if token(at) != "::" {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if token(at) == "as" {
        name = token(at + 1).into();
        at += 2;
    }
    leaves.push((path, name));
    at
}

/// The shortest way from `used` back to `user`, from its smallest name on.
fn cycle(uses: &Uses, user: &str, used: &str) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![user, used]]);
    let mut seen = BTreeSet::from([used]);
    while let Some(way) = ways.pop_front() {
        let last = way[way.len() - 1];
        for (_, next) in uses.keys().filter(|(from, _)| from == last) {
            if next == user {
                let first = (0..way.len()).min_by_key(|k| way[*k])?;
                return Some(way[first..].iter().chain(&way[..first]).map(|name| name.to_string()).collect());
            }
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

fn cycles(sources: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<(PathBuf, String)> =
        sources.iter().map(|(path, text)| (path.into(), text.to_string())).collect();
    Modules::of(&sources).cycles()
}

#[test]
fn cycles_are_found_and_named_by_their_files() {
    // Nested braces, an inline path, and a name that the parent has from a child.
    let found = cycles(&[
        ("lib.rs", "mod a; mod b; mod c; pub use c::Third;"),
        ("a/mod.rs", "mod inner; use crate::{b::{self, Second}, std_like};"),
        ("b.rs", "fn f() { let _ = super::Third::new(); }"),
        ("c.rs", "fn g() { if x { crate::a::inner::deep() } }"),
        ("a/inner.rs", "use super::Parent;"),
    ]);
    let expected = "in crate: a -> b -> c -> a\n    a/mod.rs uses crate::b\n    b.rs uses super::Third::new\n    \
                    c.rs uses crate::a::inner::deep";
    assert_eq!(found, [expected]);
    // Two files below one module, and modules inside a file.
    let found = cycles(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; mod c; use b::B; pub(crate) use c::C as D;"),
        ("a/b.rs", "mod x86 { use super::super::D; } struct B;"),
        ("a/c.rs", "use self::inner::Z; fn f(_: super::B) {}"),
    ]);
    assert_eq!(
        found,
        ["in crate::a: b -> c -> b\n    a/b.rs uses super::super::D\n    a/c.rs uses super::B"]
    );
}

#[test]
fn parents_children_tests_and_one_way_uses_are_no_cycles() {
    let found = cycles(&[
        ("lib.rs", "pub mod a; pub mod b; pub use a::A; pub use b::B; pub struct Root;"),
        (
            "a/mod.rs",
            "mod child; mod other; use child::Child; use std::fmt; pub struct A; #[cfg(test)] mod tests;",
        ),
        ("a/child.rs", "use super::{A, fmt}; use crate::Root; pub struct Child;"),
        ("b.rs", "use crate::A; fn f() -> crate::a::A {} #[cfg(test)] mod tests { use crate::b; }"),
        ("a/tests.rs", "use crate::b::B;"),
        ("a/other.rs", "/// [`crate::b`]\nfn f() {} #[cfg(test)] mod tests { use crate::b::B; }"),
    ]);
    assert_eq!(found, [""; 0]);
}
