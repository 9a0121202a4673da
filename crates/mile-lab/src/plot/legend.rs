//! The legend of a figure, and line wrapping of texts.

use std::fmt::Write;

use super::figure::Figure;
use super::style::{COLOURS, INK, colour, dash, escape, marker, width};

/// Height of a line of the legend.
pub(super) const LINE: f64 = 20.0;

/// A text in lines of at most `most` pixels.
pub(super) fn wrapped(text: &str, most: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) < most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A legend as SVG, and its number of lines.
pub(super) struct Legend {
    pub(super) svg: String,
    pub(super) lines: usize,
}

/// The legend, centred below the panels, with room for texts of font size `size`.
pub(super) fn legend(figure: &Figure, total: f64, size: f64) -> Legend {
    const SAMPLE: f64 = 34.0;
    let entry = |text: &str| SAMPLE + 6.0 + width(text, size) + 14.0;
    let mut lines: Vec<Vec<(usize, String)>> = vec![Vec::new()];
    for (k, series) in figure.series.iter().enumerate().filter(|(_, series)| series.seeds > 0) {
        let text = series.legend();
        let used: f64 = lines[lines.len() - 1].iter().map(|(_, text)| entry(text)).sum();
        if used > 0.0 && used + entry(&text) > total - 20.0 {
            lines.push(Vec::new());
        }
        let last = lines.len() - 1;
        lines[last].push((k, text));
    }
    let mut svg = String::new();
    for (row, line) in lines.iter().enumerate() {
        let used: f64 = line.iter().map(|(_, text)| entry(text)).sum();
        let mut x = ((total - used) / 2.0).max(8.0);
        let y = 10.0 + row as f64 * LINE;
        for (k, text) in line {
            let (hue, class) = (colour(*k), k % COLOURS.len());
            let _ = writeln!(
                svg,
                "<g class=\"legend\" data-series=\"{k}\"><path class=\"line c{class}\" d=\"M{x:.1} {y:.1}h{SAMPLE}\" fill=\"none\" stroke=\"{hue}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{}\"/><path class=\"dot c{class}\" d=\"{}\" fill=\"{hue}\"/>\
                 <text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" fill=\"{INK}\">{}</text></g>",
                none_if_empty(dash(*k)),
                marker(*k, x + SAMPLE / 2.0, y, 3.2),
                x + SAMPLE + 6.0,
                y + 4.0,
                escape(text)
            );
            x += entry(text);
        }
    }
    Legend { svg, lines: lines.len() }
}

pub(super) fn none_if_empty(dash: &str) -> &str {
    if dash.is_empty() { "none" } else { dash }
}
