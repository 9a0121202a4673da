//! A map of winners: for each pair of settings the method that needs least, and by how much.

use std::fmt::Write;

use super::style::{FAINT, FONT, GROUND, INK, colour, escape};

const LEFT: f64 = 96.0;
const TOP: f64 = 84.0;
const CELL: (f64, f64) = (132.0, 58.0);
const GAP: f64 = 26.0;
const BOTTOM: f64 = 64.0;

/// The winner of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Winner {
    /// Its label.
    pub label: String,
    /// What it needs.
    pub value: f64,
    /// The next best, and how many times as much it needs.
    pub next: Option<(String, f64)>,
    /// Whether it needs less than all others whatever the seeds.
    pub is_clear: bool,
}

/// A map of winners, in panels side by side.
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
    /// Names of the panels, each with the winners row by row; none where no method succeeded.
    pub panels: Vec<(String, Vec<Vec<Option<Winner>>>)>,
    /// All labels; the place of a label decides its colour.
    pub labels: &'a [&'a str],
    /// A note below.
    pub note: &'a str,
}

/// Draws a map of winners.
pub fn winners_svg(map: &WinnersMap) -> String {
    let panel = CELL.0 * map.columns.1.len() as f64;
    let width = LEFT + map.panels.len() as f64 * (panel + GAP) - GAP + 16.0;
    let height = TOP + CELL.1 * map.rows.1.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         role=\"img\" aria-label=\"{}\" font-family=\"{FONT}\" font-size=\"11.5\">\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n<g class=\"ink\" fill=\"{INK}\" text-anchor=\"middle\">\n\
         <text x=\"{:.0}\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{}</text>\n\
         <text class=\"faint\" fill=\"{FAINT}\" transform=\"translate(16 {:.0}) rotate(-90)\">{}</text>\n",
        escape(map.title),
        width / 2.0,
        escape(map.title),
        TOP + CELL.1 * map.rows.1.len() as f64 / 2.0,
        escape(map.rows.0),
    );
    for (row, name) in map.rows.1.iter().enumerate() {
        let y = TOP + CELL.1 * (row as f64 + 0.5) + 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{y:.0}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            escape(name)
        );
    }
    for (k, (name, cells)) in map.panels.iter().enumerate() {
        let left = LEFT + k as f64 * (panel + GAP);
        let middle = left + panel / 2.0;
        let _ =
            writeln!(svg, "<text x=\"{middle:.0}\" y=\"46\" font-weight=\"bold\">{}</text>", escape(name));
        let _ = writeln!(
            svg,
            "<text class=\"faint\" fill=\"{FAINT}\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text>",
            height - BOTTOM + 22.0,
            escape(map.columns.0)
        );
        for (column, name) in map.columns.1.iter().enumerate() {
            let x = left + CELL.0 * (column as f64 + 0.5);
            let _ = writeln!(svg, "<text x=\"{x:.0}\" y=\"{:.0}\">{}</text>", TOP - 10.0, escape(name));
        }
        for (row, winners) in cells.iter().enumerate() {
            for (column, winner) in winners.iter().enumerate() {
                let corner = (left + CELL.0 * column as f64, TOP + CELL.1 * row as f64);
                draw_cell(&mut svg, map, corner, winner.as_ref());
            }
        }
    }
    let _ = writeln!(
        svg,
        "<text class=\"faint\" fill=\"{FAINT}\" x=\"16\" y=\"{:.0}\" text-anchor=\"start\">{}</text>\n</g>\n</svg>",
        height - 14.0,
        escape(map.note)
    );
    svg
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
    let next = winner
        .next
        .as_ref()
        .map_or_else(|| "no other".to_owned(), |(label, times)| format!("{label} {times:.2} x"));
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
        let winner =
            Winner { label: "A & B".into(), value: 12.0, next: Some(("C".into(), 1.5)), is_clear: true };
        let map = WinnersMap {
            title: "who",
            unit: "rounds",
            rows: ("heterogeneity", vec!["low".into(), "high".into()]),
            columns: ("local steps", vec!["2".into()]),
            panels: vec![("exact".into(), vec![vec![Some(winner)], vec![None]])],
            labels: &["A & B", "C"],
            note: "",
        };
        let svg = winners_svg(&map);
        assert!(svg.contains("A &amp; B") && svg.contains("C 1.50 x") && svg.contains(">none<"));
        super::super::png(&svg).unwrap();
    }
}
