//! A page: its links, headings and code.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page of markdown.
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    /// Links and images.
    pub(crate) links: Vec<Link>,
    /// The anchors of its headings.
    pub(crate) anchors: Vec<String>,
    pub(crate) blocks: Vec<Block>,
    /// Code in running text.
    pub(crate) code: Vec<String>,
}

/// A link or an image.
pub(crate) struct Link {
    pub(crate) to: String,
}

/// A block of code.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut links, mut blocks, mut code) = (Vec::new(), Vec::new(), Vec::new());
        let mut anchors: Vec<String> = Vec::new();
        let (mut heading, mut block): (Option<String>, Option<Block>) = (None, None);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.push(Link { to: dest_url.into_string() });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    anchors.push(unique(&anchors, anchor));
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let language = match kind {
                        CodeBlockKind::Fenced(info) => info.split([',', ' ']).next().unwrap_or("").to_owned(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    block = Some(Block { language, text: String::new() });
                }
                Event::End(TagEnd::CodeBlock) => blocks.extend(block.take()),
                Event::Text(text) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&text));
                    block.iter_mut().for_each(|block| block.text.push_str(&text));
                }
                Event::Code(text) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&text));
                    code.push(text.into_string());
                }
                _ => {}
            }
        }
        Self { path: path.to_owned(), links, anchors, blocks, code }
    }
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().chars().filter_map(letter).collect()
}

/// The second heading with the same anchor gets the suffix `-1`, and so on.
fn unique(known: &[String], anchor: String) -> String {
    let free = |candidate: &String| !known.contains(candidate);
    if free(&anchor) {
        return anchor;
    }
    (1..).map(|k| format!("{anchor}-{k}")).find(free).unwrap_or(anchor)
}

#[test]
fn anchors_are_those_of_the_site() {
    assert_eq!(anchor("6. Theorems 2 and 4, corrected"), "6-theorems-2-and-4-corrected");
    assert_eq!(anchor("`[agent]`"), "agent");
    assert_eq!(anchor("Tables: kind = \"table\""), "tables-kind--table");
    assert_eq!(unique(&["a".into(), "a-1".into()], "a".into()), "a-2");
}
