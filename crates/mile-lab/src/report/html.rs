//! A self-contained HTML page: it needs no network access and no other file.

use std::fmt::Write;
use std::path::Path;

use super::folder::RunFolder;
use super::page::{section, sweep_section, table};
use crate::error::LabError;
use crate::plot::style::{COLOURS, DARK_COLOURS, escape};
use crate::quantity::Axis;
use crate::sweep::SweepFolder;
use crate::table::TextTable;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// An HTML page that is built section by section.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
    sections: usize,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), body: String::new(), sections: 0 }
    }

    /// Adds a section about a run.
    pub fn run(&mut self, folder: &RunFolder) {
        self.body.push_str(&section(folder, self.sections));
        self.sections += 1;
    }

    /// Adds a section about a sweep.
    pub fn sweep(&mut self, folder: &SweepFolder) -> Result<(), LabError> {
        self.body.push_str(&sweep_section(folder, self.sections)?);
        self.sections += 1;
        Ok(())
    }

    /// Adds a heading with paragraphs.
    pub fn text(&mut self, heading: &str, paragraphs: &[String]) {
        let _ = writeln!(self.body, "<h1>{}</h1>", escape(heading));
        self.body.push_str("<div class=\"summary\">\n");
        for paragraph in paragraphs {
            let _ = writeln!(self.body, "<p>{}</p>", escape(paragraph));
        }
        self.body.push_str("</div>\n");
    }

    /// Adds a table.
    pub fn table(&mut self, heading: &str, content: &TextTable) {
        let _ = write!(self.body, "<h2>{}</h2>\n{}", escape(heading), table(content));
    }

    /// Adds a figure.
    pub fn picture(&mut self, svg: &str) {
        let _ = writeln!(self.body, "<figure>{svg}</figure>");
    }

    /// The page as HTML.
    pub fn html(&self) -> String {
        frame(&self.title, &self.body, Kind::Still)
    }

    /// Writes the page.
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        crate::store::write_file(path, self.html().as_bytes())
    }
}

/// Where a page gets its contents from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It has them.
    Still,
    /// It polls the server of a run until that ends.
    Live,
    /// It polls a server that may be away for a while.
    Lasting,
}

/// The page of the live view, which polls the server for its contents.
pub(crate) fn live_page(title: &str, body: &str) -> String {
    frame(title, body, Kind::Live)
}

/// A page that polls its server for as long as it is open.
pub(crate) fn lasting_page(title: &str) -> String {
    frame(title, "", Kind::Lasting)
}

fn frame(title: &str, body: &str, kind: Kind) -> String {
    let live = kind != Kind::Still;
    let mut colours = String::new();
    for (name, list) in [("light", COLOURS), ("dark", DARK_COLOURS)] {
        for (k, colour) in list.iter().enumerate() {
            let _ = write!(colours, "--{name}-c{k}:{colour};");
        }
    }
    let mut classes = String::new();
    for k in 0..COLOURS.len() {
        let _ = write!(classes, ".line.c{k}{{stroke:var(--c{k})}}.dot.c{k},.band.c{k}{{fill:var(--c{k})}}");
    }
    let pick = |theme: &str| -> String {
        (0..COLOURS.len()).map(|k| format!("--c{k}:var(--{theme}-c{k});")).collect()
    };
    let (light, dark) = (pick("light"), pick("dark"));
    let style = STYLE.replace("/*light*/", &light).replace("/*dark*/", &dark);
    let connect = if live { "'self'" } else { "'none'" };
    let axes: String = Axis::ALL
        .iter()
        .map(|axis| {
            format!("<button type=\"button\" data-axis=\"{}\">{}</button>", axis.name(), axis.short())
        })
        .collect();
    let status = if live { "<span id=\"live\" role=\"status\">live</span>" } else { "" };
    format!(
        "<!doctype html>\n<html lang=\"en\" data-axis=\"round\"{}>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:; connect-src {connect}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n:root{{{colours}}}\n{style}{classes}</style>\n</head>\n<body>\n\
         <nav><b>mile</b>{status}<span class=\"axes\" role=\"group\" aria-label=\"horizontal axis of the figures\">plot against {axes}</span>\
         <button type=\"button\" id=\"theme\" title=\"switch between light and dark\" aria-label=\"switch between light and dark\">\u{25d0}</button></nav>\n\
         <main id=\"main\">\n{body}</main>\n<div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        match kind {
            Kind::Still => "",
            Kind::Live => " data-live",
            Kind::Lasting => " data-live data-lasting",
        },
        title = escape(title),
    )
}
