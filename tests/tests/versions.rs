//! What is said in several places is the same in all of them: versions, profiles, names.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn table(path: &str) -> Table {
    text(path).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The value at a path of keys.
fn at<'t>(table: &'t Table, keys: &[&str]) -> &'t Value {
    let (last, before) = keys.split_last().expect("keys");
    let inner = before.iter().fold(table, |table, key| table[*key].as_table().expect("a table"));
    &inner[*last]
}

fn version() -> String {
    at(&table("Cargo.toml"), &["workspace", "package", "version"]).as_str().expect("a text").to_owned()
}

/// Name, version and source of the packages of a lock file.
fn locked(path: &str) -> BTreeSet<(String, String, bool)> {
    let lock = table(path);
    let word = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
    let packages = lock["package"].as_array().expect("packages").iter();
    packages
        .map(|one| {
            let ours = word(one, "source").is_none();
            (word(one, "name").expect("a name"), word(one, "version").expect("a version"), ours)
        })
        .collect()
}

#[test]
fn crates_package_and_changelog_have_one_version() {
    let version = version();
    let manifest = table("Cargo.toml");
    let dependencies = at(&manifest, &["workspace", "dependencies"]).as_table().expect("a table");
    let ours = dependencies.iter().filter(|(_, value)| value.get("path").is_some());
    let mut count = 0;
    for (name, value) in ours {
        assert_eq!(value["version"].as_str(), Some(version.as_str()), "{name}");
        count += 1;
    }
    assert_eq!(count, 10);
    let python = table("python/Cargo.toml");
    assert_eq!(at(&python, &["package", "version"]).as_str(), Some(version.as_str()));
    for path in ["Cargo.lock", "python/Cargo.lock"] {
        let found = locked(path);
        let ours = found.iter().filter(|(name, _, ours)| *ours && name.starts_with("mile"));
        ours.for_each(|(name, found, _)| assert_eq!(*found, version, "{name} in {path}"));
    }
    let changelog = text("CHANGELOG.md");
    let newest = changelog.lines().find_map(|line| line.strip_prefix("## ")).expect("a version");
    assert_eq!(newest.split([',', ' ']).next(), Some(version.as_str()), "CHANGELOG.md");
}

/// What a reader copies from pages, and compares with what is printed.
#[test]
fn pages_and_manifests_name_this_version() {
    let version = version();
    for (path, words, count) in [
        ("docs/src/install.md", format!("mile-{version}-x86_64-linux-gnu"), 2),
        ("docs/src/install.md", format!("\nmile {version}\n"), 1),
        ("docs/src/install.md", format!("Version {version} "), 1),
        ("docs/src/introduction.md", format!("Version {version} "), 1),
        ("docs/src/python.md", format!("version {version} "), 1),
        ("docs/src/deploy/kubernetes.yml", format!("/mile:{version}\n"), 1),
        ("README.md", format!("Version {version} "), 1),
        ("python/README.md", format!("version {version} "), 1),
        ("CONTRIBUTING.md", format!("`v{version}`"), 1),
    ] {
        assert_eq!(text(path).matches(&words).count(), count, "{path}: {words:?}");
    }
}

/// A wheel and a program of the same release have the same code.
#[test]
fn the_package_is_built_from_the_crates_that_the_program_is_built_from() {
    let (program, package) = (locked("Cargo.lock"), locked("python/Cargo.lock"));
    let names: BTreeSet<&String> = program.iter().map(|(name, ..)| name).collect();
    let shared = package.iter().filter(|(name, _, ours)| !ours && names.contains(name));
    let other: Vec<_> = shared.filter(|one| !program.contains(*one)).collect();
    assert!(other.is_empty(), "cargo update --precise: {other:?}");
    let profile = |path: &str| at(&table(path), &["profile", "release"]).clone();
    let mut of_package = profile("python/Cargo.toml");
    let optimised = of_package["package"].as_table_mut().expect("a table");
    // In the workspace these are members, which "*" does not mean; for the package they are dependencies.
    for (name, ..) in package.iter().filter(|(name, _, ours)| *ours && name != "mile-python") {
        let level = optimised.remove(name).and_then(|one| one.get("opt-level").and_then(Value::as_integer));
        assert_eq!(level, Some(3), "{name} in [profile.release.package] of python/Cargo.toml");
    }
    assert_eq!(profile("Cargo.toml"), of_package);
    for key in ["rust-version", "edition", "license"] {
        let (of_crates, of_package) = (table("Cargo.toml"), table("python/Cargo.toml"));
        assert_eq!(
            at(&of_crates, &["workspace", "package", key]),
            at(&of_package, &["package", key]),
            "{key}"
        );
    }
}

#[test]
fn the_documentation_names_the_distribution_and_the_toolchain() {
    let project = table("python/pyproject.toml");
    let install = format!("pip install {}", at(&project, &["project", "name"]).as_str().expect("a text"));
    let manifest = table("Cargo.toml");
    let rust = at(&manifest, &["workspace", "package", "rust-version"]).as_str().expect("a text").to_owned();
    for page in ["README.md", "docs/src/introduction.md"] {
        let text = text(page);
        assert!(text.contains(&install), "{page}: {install}");
        assert!(text.contains(&format!("({rust} or newer)")), "{page}: Rust {rust}");
    }
    assert!(text("docs/src/python.md").contains(&install) && text("python/README.md").contains(&install));
}
