//! How the workspace fits together: modules without cycles, crates that can be published, dependencies in one direction.

mod enums;
mod modules;
mod structs;
mod tokens;
mod unsafe_code;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use modules::Modules;
use toml::{Table, Value};

/// What each crate may use of the others.
const DIRECTIONS: [(&str, &[&str]); 11] = [
    ("mile", &[]),
    ("mile-theory", &["mile"]),
    ("mile-store", &["mile"]),
    ("mile-nn", &["mile", "mile-store", "mile-theory"]),
    ("mile-cuda", &["mile", "mile-lab", "mile-ranks", "mile-nn", "mile-store"]),
    ("mile-problems", &["mile", "mile-nn", "mile-store", "mile-theory"]),
    ("mile-lab", &["mile", "mile-nn", "mile-problems", "mile-store", "mile-theory"]),
    ("mile-net", &["mile", "mile-store"]),
    ("mile-ranks", &["mile", "mile-lab", "mile-nn", "mile-store"]),
    ("mile-reproduce", &["mile", "mile-lab", "mile-nn", "mile-store", "mile-theory"]),
    (
        "mile-cli",
        &[
            "mile",
            "mile-cuda",
            "mile-lab",
            "mile-ranks",
            "mile-net",
            "mile-nn",
            "mile-reproduce",
            "mile-store",
            "mile-theory",
        ],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder in the workspace")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut list: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    list.sort();
    list
}

/// The folders of the crates.
fn crates() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = entries(&root().join("crates"))
        .into_iter()
        .filter(|folder| folder.join("Cargo.toml").exists())
        .collect();
    assert!(found.len() >= 5, "the crates are looked for in the wrong place: {found:?}");
    found
}

/// Every Rust file below a folder, except for what cargo builds, with its text.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in entries(folder) {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            found.push((path, text));
        }
    }
    found
}

fn manifest(folder: &Path) -> Table {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn modules_depend_on_each_other_without_cycles() {
    let mut cycles = Vec::new();
    for folder in crates() {
        let src = folder.join("src");
        let sources: Vec<(PathBuf, String)> = sources(&src)
            .into_iter()
            .map(|(path, text)| (path.strip_prefix(&src).expect("below it").to_path_buf(), text))
            .collect();
        let found = Modules::of(&sources).cycles();
        cycles.extend(found.into_iter().map(|cycle| format!("crate {}, {cycle}", name(&folder))));
    }
    assert!(cycles.is_empty(), "{} cycles between modules:\n\n{}", cycles.len(), cycles.join("\n"));
}

/// The path with `..` taken away, as text.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
        plain
    })
}

/// The files a source includes.
fn included(text: &str) -> Vec<String> {
    let tokens = tokens::tokens(text);
    let includes = |word: &str| matches!(word, "include" | "include_str" | "include_bytes");
    let calls = tokens.windows(4).filter(|t| includes(&t[0]) && t[1] == "!");
    calls.map(|t| t[3].strip_prefix('"').expect("the file's name, as a literal").into()).collect()
}

#[test]
fn nothing_is_included_from_beyond_a_crates_folder() {
    for folder in crates() {
        for (path, text) in sources(&folder) {
            for file in included(&text) {
                let target = plain(&path.with_file_name("").join(&file));
                assert!(target.starts_with(&folder), "{}: {file} is not in its crate", path.display());
            }
        }
    }
}

#[test]
fn every_crate_says_what_it_is_and_under_which_license() {
    let workspace = manifest(root());
    for (dependency, value) in workspace["workspace"]["dependencies"].as_table().expect("a table") {
        let versioned = value.get("path").is_none() || value.get("version").is_some();
        assert!(versioned, "{dependency} has a path and no version, so nobody could publish what uses it");
    }
    for folder in crates() {
        let manifest = manifest(&folder);
        for key in ["description", "license"] {
            let own = &manifest["package"].get(key);
            let inherited = own.is_some_and(|own| own.get("workspace") == Some(&Value::Boolean(true)));
            let value = if inherited { workspace["workspace"]["package"].get(key) } else { *own };
            let said = value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            assert!(said, "{} has no {key}", name(&folder));
        }
    }
}

/// Dependencies of every kind, tests' too.
fn dependencies(manifest: &Table) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in manifest {
        match (key.as_str(), value.as_table()) {
            ("dependencies" | "dev-dependencies" | "build-dependencies", Some(table)) => {
                found.extend(table.keys().cloned());
            }
            ("target", Some(targets)) => {
                found.extend(targets.values().filter_map(Value::as_table).flat_map(dependencies));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    let known: Vec<String> = crates().iter().map(|folder| name(folder)).collect();
    for folder in crates() {
        let name = name(&folder);
        let allowed = DIRECTIONS.iter().find(|(known, _)| *known == name).map(|(_, allowed)| *allowed);
        let allowed = allowed.unwrap_or_else(|| panic!("say in DIRECTIONS which crates {name} may use"));
        for used in dependencies(&manifest(&folder)).iter().filter(|used| known.contains(used)) {
            assert!(allowed.contains(&used.as_str()), "{name} may not use {used}");
        }
    }
}

#[test]
fn no_two_public_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in crates().iter().flat_map(|folder| sources(&folder.join("src"))) {
        for words in tokens::tokens(&text).windows(3) {
            let [visible, kind, name] = words else { continue };
            if visible == "pub" && ["struct", "enum", "trait", "type", "union"].contains(&kind.as_str()) {
                let file = path.strip_prefix(root()).expect("below it").display().to_string();
                places.entry(name.clone()).or_default().push(file);
            }
        }
    }
    assert!(places.contains_key("Simulator"), "the types are looked for in the wrong place");
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "one name for several public types: {places:#?}");
}
