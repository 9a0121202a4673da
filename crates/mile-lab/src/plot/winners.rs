//! A map of winners: for each pair of settings, the method that needs the least, and by how much.

use super::style::{AXIS, FAINT, hue};
use super::svg::{NOTE, Svg, TICK, Text};

const LEFT: f64 = 96.0;
const TOP: f64 = 38.0;
/// Room above the cells of a panel, for its name and the columns; and below, for what the columns are.
const HEAD: f64 = 46.0;
const FOOT: f64 = 36.0;
const CELL: (f64, f64) = (164.0, 58.0);
const GAP: f64 = 26.0;
const LABEL: Text = Text { paint: FAINT, ..TICK };

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
    /// Whether it needs less than all others for every seed.
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
    let mut svg = Svg::titled(LEFT + most as f64 * (panel.0 + GAP) - GAP + 16.0, map.title);
    for (k, panels) in map.panels.iter().enumerate() {
        let top = TOP + k as f64 * (HEAD + panel.1 + FOOT) + HEAD;
        svg.text_upwards((16.0, top + panel.1 / 2.0), LABEL, map.rows.0);
        for (row, name) in map.rows.1.iter().enumerate() {
            let at = (LEFT - 8.0, top + CELL.1 * (row as f64 + 0.5) + 4.0);
            svg.text(at, Text { anchor: "end", ..TICK }, name);
        }
        for (k, (name, cells)) in panels.iter().enumerate() {
            draw_panel(&mut svg, map, (LEFT + k as f64 * (panel.0 + GAP), top), name, cells);
        }
    }
    svg.finish(TOP + map.panels.len() as f64 * (HEAD + panel.1 + FOOT), map.note, NOTE.size)
}

fn draw_panel(
    svg: &mut Svg,
    map: &WinnersMap,
    (left, top): (f64, f64),
    name: &str,
    cells: &[Vec<Option<Winner>>],
) {
    let middle = left + CELL.0 * map.columns.1.len() as f64 / 2.0;
    svg.text((middle, top - HEAD + 8.0), Text { bold: true, ..TICK }, name);
    svg.text((middle, top + CELL.1 * cells.len() as f64 + 20.0), LABEL, map.columns.0);
    for (column, name) in map.columns.1.iter().enumerate() {
        svg.text((left + CELL.0 * (column as f64 + 0.5), top - 10.0), TICK, name);
    }
    for (row, winners) in cells.iter().enumerate() {
        for (column, winner) in winners.iter().enumerate() {
            let corner = (left + CELL.0 * column as f64, top + CELL.1 * row as f64);
            draw_cell(svg, map, corner, winner.as_ref());
        }
    }
}

fn draw_cell(svg: &mut Svg, map: &WinnersMap, (x, y): (f64, f64), winner: Option<&Winner>) {
    let place = winner.and_then(|winner| map.labels.iter().position(|label| *label == winner.label));
    let fill = match place {
        Some(place) => hue("band", place) + " fill-opacity=\"0.28\"",
        None => format!("fill=\"{AXIS}\" fill-opacity=\"0.08\""),
    };
    svg.rect((x + 1.5, y + 1.5), (CELL.0 - 3.0, CELL.1 - 3.0), &format!("rx=\"3\" {fill}"), "");
    let middle = x + CELL.0 / 2.0;
    let Some(winner) = winner else {
        return svg.text((middle, y + CELL.1 / 2.0 + 4.0), TICK, "none");
    };
    let next = winner.next.as_ref().map_or_else(
        || "no other".to_owned(),
        |(label, times)| format!("+{}; {label} {times:.2} x", winner.close),
    );
    svg.text((middle, y + 19.0), Text { bold: winner.is_clear, ..TICK }, &winner.label);
    let value = format!("{} {}", crate::table::number(winner.value), map.unit);
    svg.text((middle, y + 34.0), TICK, &value);
    svg.text((middle, y + 49.0), Text { size: 10.5, ..LABEL }, &next);
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
        assert!(svg.contains("A &amp; B") && svg.contains("+0; C 1.50 x") && svg.contains(">none<"));
        super::super::png(&svg).unwrap();
    }
}
