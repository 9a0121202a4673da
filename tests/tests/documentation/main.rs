//! The documentation: pages, links and anchors exist, experiments in it can be read, and commands in it are those of the program.

mod commands;
mod markdown;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use markdown::{Link, Page};
use mile_lab::spec::Spec;
use toml::Table;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder in the workspace")
}

/// The pages of the book, with the table of contents.
fn book() -> Vec<PathBuf> {
    let folder = root().join("docs/src");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    assert!(pages.len() >= 10, "the pages are looked for in the wrong place: {pages:?}");
    pages
}

/// All documents that are checked.
fn documents() -> Vec<Page> {
    let others = ["README.md", "DESIGN.md", "UNSAFE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    book().iter().chain(&others).map(|path| Page::read(path)).collect()
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts: Vec<Component> = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.iter().collect()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn the_reference_of_keys_is_what_the_readers_say() {
    for (file, written) in [
        ("docs/src/keys.md", mile_lab::keys::markdown()),
        ("docs/src/experiment.schema.json", mile_lab::keys::json_schema()),
    ] {
        let found = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        let format = if file.ends_with("md") { "markdown" } else { "json-schema" };
        assert!(found == written, "{file} is stale: mile keys --format {format} > {file}");
    }
}

#[test]
fn the_script_for_data_sets_has_the_checksums_of_the_catalogue() {
    let script = fs::read_to_string(root().join("experiments/data.sh")).expect("the script");
    for file in mile_nn::data::list().iter().flat_map(|entry| entry.files()) {
        let line = format!("{}  {}", file.sha256, file.name);
        assert!(script.lines().any(|found| found == line), "experiments/data.sh lacks: {line}");
    }
}

#[test]
fn every_page_is_in_the_table_of_contents_and_the_other_way_round() {
    let summary = root().join("docs/src/SUMMARY.md");
    let linked: Vec<PathBuf> =
        Page::read(&summary).links.iter().map(|link| summary.with_file_name(&link.to)).collect();
    let listed: BTreeSet<&PathBuf> = linked.iter().collect();
    assert_eq!(listed.len(), linked.len(), "a page is listed twice");
    let pages = book();
    let pages: BTreeSet<&PathBuf> = pages.iter().filter(|page| **page != summary).collect();
    let missing: Vec<String> = listed.difference(&pages).map(|path| shown(path)).collect();
    assert!(missing.is_empty(), "listed in docs/src/SUMMARY.md, but not there: {missing:?}");
    let forgotten: Vec<String> = pages.difference(&listed).map(|path| shown(path)).collect();
    assert!(forgotten.is_empty(), "not listed in docs/src/SUMMARY.md: {forgotten:?}");
}

/// What is wrong with a link.
fn problem(page: &Page, link: &Link) -> Option<String> {
    if link.to.contains("://") || link.to.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.to.split_once('#').map_or((link.to.as_str(), None), |(f, a)| (f, Some(a)));
    let target = match file {
        "" => page.path.clone(),
        file => normal(&page.path.parent().expect("a folder").join(file)),
    };
    let book = root().join("docs/src");
    if page.path.starts_with(&book) && !target.starts_with(&book) {
        return Some("leaves docs/src, and so the site".into());
    }
    if !target.exists() {
        return Some("does not exist".into());
    }
    let anchor = anchor?;
    let anchors = Page::read(&target).anchors;
    let problem = || format!("has no such heading in its target; it has {}", anchors.join(", "));
    (!anchors.iter().any(|known| known == anchor)).then(problem)
}

#[test]
fn every_relative_link_anchor_and_image_exists() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in documents() {
        for link in &page.links {
            checked += 1;
            if let Some(problem) = problem(&page, link) {
                wrong.push(format!("{}: {} {problem}", shown(&page.path), link.to));
            }
        }
    }
    assert!(checked > 50, "only {checked} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Paths from the root of the repository, in running text. Capitals and dots stand for what the reader fills in.
#[test]
fn every_path_in_running_text_exists() {
    let folders = ["bench/", "crates/", "docs/", "experiments/", "fuzz/", "python/", "tests/"];
    let (mut wrong, mut checked) = (Vec::new(), 0);
    let changelog = Page::read(&root().join("CHANGELOG.md"));
    for page in documents().iter().chain([&changelog]) {
        for code in page.code.iter().filter(|code| folders.iter().any(|folder| code.starts_with(folder))) {
            if code.contains([' ', '*', '{']) || code.contains("NAME") {
                continue;
            }
            checked += 1;
            if !root().join(code).exists() {
                wrong.push(format!("{}: {code}", shown(&page.path)));
            }
        }
    }
    assert!(checked > 50, "only {checked} paths were found");
    assert!(wrong.is_empty(), "no such file or folder: {}", wrong.join("\n"));
}

#[test]
fn every_toml_block_parses_and_every_whole_experiment_is_read() {
    let mut experiments = 0;
    for page in documents() {
        for block in page.blocks.iter().filter(|block| block.language == "toml") {
            let place = format!("{}:\n{}", shown(&page.path), block.text);
            let table: Table = block.text.parse().unwrap_or_else(|error| panic!("{place}{error}"));
            if table.contains_key("algorithm") && table.contains_key("problem") {
                experiments += 1;
                let mut table = table;
                // What is swept is an experiment without the lists too.
                table.remove("sweep");
                Spec::read(&table, Path::new("")).unwrap_or_else(|error| panic!("{place}{error}"));
            }
        }
    }
    assert!(experiments >= 3, "only {experiments} experiments were found");
}

#[test]
fn every_command_names_a_subcommand_and_flags_that_exist() {
    let program = commands::Program::find();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in documents() {
        let blocks = page.blocks.iter().filter(|block| ["sh", "console", "ini"].contains(&&*block.language));
        let lines = blocks.flat_map(|block| commands::lines(&block.text));
        for line in lines.chain(page.code.iter().map(|code| code.replace('\n', " "))) {
            for arguments in commands::of_mile(&line) {
                checked += 1;
                if let Some(problem) = program.problem(&arguments) {
                    wrong.push(format!("{}: mile {}: {problem}", shown(&page.path), arguments.join(" ")));
                }
            }
        }
    }
    assert!(checked > 50, "only {checked} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
