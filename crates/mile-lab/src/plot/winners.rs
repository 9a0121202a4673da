//! A map of winners: for each pair of settings the method that needs least, and by how much.

use std::fmt::Write;

use super::style::{FAINT, FONT, GROUND, INK, colour, escape};

const LEFT: f64 = 96.0;
const TOP: f64 = 38.0;
/// Above the cells of a panel, for its name and the columns; and below, for what the columns are.
const HEAD: f64 = 46.0;
const FOOT: f64 = 36.0;
const CELL: (f64, f64) = (164.0, 58.0);
const GAP: f64 = 26.0;
const BOTTOM: f64 = 14.0;
/// Height of a line of the note, and the mean width of a letter.
const LINE: (f64, f64) = (16.0, 6.3);

/// The winner of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Winner {
    /// Its label.
    pub label: String,
    /// What it needs.
    pub value: f64,
    /// The next best, and how many times as much it needs.
    pub next: Option<(String, f64)>,
    /// How many others need hardly more.
    pub close: usize,
    /// Whether it needs less than all others whatever the seeds.
    pub is_clear: bool,
}

/// The name of a panel and its winners row by row; none where no method succeeded.
pub type Panel = (String, Vec<Vec<Option<Winner>>>);

/// A map of winners, in panels.
#[derive(Clone, Debug)]
pub struct WinnersMap<'a> {
    /// The title.
    pub title: &'a str,
    /// What is counted, such as `rounds`.
    pub unit: &'a str,
    /// Name and values of the vertical axis.
    pub rows: (&'a str, Vec<String>),
    /// Name and values of the horizontal axis.
    pub columns: (&'a str, Vec<String>),
    /// Rows of panels.
    pub panels: Vec<Vec<Panel>>,
    /// All labels; the place of a label decides its colour.
    pub labels: &'a [&'a str],
    /// A note below.
    pub note: &'a str,
}

/// Draws a map of winners.
pub fn winners_svg(map: &WinnersMap) -> String {
    let panel = (CELL.0 * map.columns.1.len() as f64, CELL.1 * map.rows.1.len() as f64);
    let most = map.panels.iter().map(Vec::len).max().unwrap_or(0);
    let width = LEFT + most as f64 * (panel.0 + GAP) - GAP + 16.0;
    let note = lines(map.note, ((width - 32.0) / LINE.1) as usize);
    let below = TOP + map.panels.len() as f64 * (HEAD + panel.1 + FOOT);
    let height = below + LINE.0 * note.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         role=\"img\" aria-label=\"{}\" font-family=\"{FONT}\" font-size=\"11.5\">\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n<g class=\"ink\" fill=\"{INK}\" text-anchor=\"middle\">\n\
         <text x=\"{:.0}\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escape(map.title),
        width / 2.0,
        escape(map.title),
    );
    for (k, panels) in map.panels.iter().enumerate() {
        let top = TOP + k as f64 * (HEAD + panel.1 + FOOT) + HEAD;
        let _ = writeln!(
            svg,
            "<text class=\"faint\" fill=\"{FAINT}\" transform=\"translate(16 {:.0}) rotate(-90)\">{}</text>",
            top + panel.1 / 2.0,
            escape(map.rows.0),
        );
        for (row, name) in map.rows.1.iter().enumerate() {
            let (x, y) = (LEFT - 8.0, top + CELL.1 * (row as f64 + 0.5) + 4.0);
            let _ =
                writeln!(svg, "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"end\">{}</text>", escape(name));
        }
        for (k, (name, cells)) in panels.iter().enumerate() {
            draw_panel(&mut svg, map, (LEFT + k as f64 * (panel.0 + GAP), top), name, cells);
        }
    }
    for (k, line) in note.iter().enumerate() {
        let y = below + LINE.0 * (k as f64 + 0.6);
        let _ = writeln!(
            svg,
            "<text class=\"faint\" fill=\"{FAINT}\" x=\"16\" y=\"{y:.0}\" text-anchor=\"start\">{}</text>",
            escape(line)
        );
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// A text in lines of at most so many letters, broken between words.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < letters) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn draw_panel(
    svg: &mut String,
    map: &WinnersMap,
    (left, top): (f64, f64),
    name: &str,
    cells: &[Vec<Option<Winner>>],
) {
    let middle = left + CELL.0 * map.columns.1.len() as f64 / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.0}\" y=\"{:.0}\" font-weight=\"bold\">{}</text>\
         <text class=\"faint\" fill=\"{FAINT}\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text>",
        top - HEAD + 8.0,
        escape(name),
        top + CELL.1 * cells.len() as f64 + 20.0,
        escape(map.columns.0),
    );
    for (column, name) in map.columns.1.iter().enumerate() {
        let x = left + CELL.0 * (column as f64 + 0.5);
        let _ = writeln!(svg, "<text x=\"{x:.0}\" y=\"{:.0}\">{}</text>", top - 10.0, escape(name));
    }
    for (row, winners) in cells.iter().enumerate() {
        for (column, winner) in winners.iter().enumerate() {
            let corner = (left + CELL.0 * column as f64, top + CELL.1 * row as f64);
            draw_cell(svg, map, corner, winner.as_ref());
        }
    }
}

fn draw_cell(svg: &mut String, map: &WinnersMap, (x, y): (f64, f64), winner: Option<&Winner>) {
    let place = winner.and_then(|winner| map.labels.iter().position(|label| *label == winner.label));
    let (fill, opacity) = place.map_or((FAINT, 0.08), |place| (colour(place), 0.28));
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>",
        x + 1.5,
        y + 1.5,
        CELL.0 - 3.0,
        CELL.1 - 3.0,
    );
    let middle = x + CELL.0 / 2.0;
    let Some(winner) = winner else {
        let _ = writeln!(svg, "<text x=\"{middle:.1}\" y=\"{:.1}\">none</text>", y + CELL.1 / 2.0 + 4.0);
        return;
    };
    let weight = if winner.is_clear { " font-weight=\"bold\"" } else { "" };
    let next = winner.next.as_ref().map_or_else(
        || "no other".to_owned(),
        |(label, times)| format!("+{}; {label} {times:.2} x", winner.close),
    );
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{:.1}\"{weight}>{}</text>\
         <text x=\"{middle:.1}\" y=\"{:.1}\">{} {}</text>\
         <text class=\"faint\" fill=\"{FAINT}\" font-size=\"10.5\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
        y + 19.0,
        escape(&winner.label),
        y + 34.0,
        crate::table::number(winner.value),
        escape(map.unit),
        y + 49.0,
        escape(&next),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_names_its_winner_and_the_next_best() {
        let winner = Winner {
            label: "A & B".into(),
            value: 12.0,
            next: Some(("C".into(), 1.5)),
            close: 0,
            is_clear: true,
        };
        let map = WinnersMap {
            title: "who",
            unit: "rounds",
            rows: ("heterogeneity", vec!["low".into(), "high".into()]),
            columns: ("local steps", vec!["2".into()]),
            panels: vec![vec![("exact".into(), vec![vec![Some(winner)], vec![None]])]],
            labels: &["A & B", "C"],
            note: "a note that is longer than the picture is wide, so that it is broken into lines",
        };
        let svg = winners_svg(&map);
        assert!(svg.contains(">a note that") && !svg.contains("into lines</text>\n<text"));
        assert_eq!(lines("one two  three", 8), ["one two", "three"]);
        assert!(svg.contains("A &amp; B") && svg.contains("+0; C 1.50 x") && svg.contains(">none<"));
        super::super::png(&svg).unwrap();
    }
}
