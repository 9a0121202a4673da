//! The label distribution as a table: one row for each agent, one column for each class.

use super::style::FAINT;
use super::svg::{NOTE, Svg, TICK, Text};

const LEFT: f64 = 74.0;
const TOP: f64 = 62.0;
const TOTAL: f64 = 66.0;
const ROW: f64 = 24.0;
/// The colour of cells, and how opaque the fullest is: numbers in it can be read on a light and on a dark background, in the
/// colour of all texts there.
const SHADE: &str = "#2f7fc1";
const FULLEST: f64 = 0.8;

/// Draws `counts[agent][class]` as a table of numbers in shaded cells.
pub fn labels_svg(counts: &[Vec<usize>], title: &str) -> String {
    let classes = counts.iter().map(Vec::len).max().unwrap_or(0);
    let column = (420.0 / classes.max(1) as f64).clamp(26.0, 60.0);
    let right = LEFT + column * classes as f64;
    let centre = |class: usize| LEFT + column * (class as f64 + 0.5);
    let mut svg = Svg::titled(right + TOTAL, title);
    svg.text(((LEFT + right) / 2.0, 38.0), Text { paint: FAINT, ..TICK }, "class");
    svg.text((right + TOTAL / 2.0, 54.0), TICK, "total");
    for class in 0..classes {
        svg.text((centre(class), 54.0), TICK, &class.to_string());
    }
    let most = counts.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
    for (agent, of_agent) in counts.iter().enumerate() {
        let y = TOP + ROW * agent as f64;
        let base = y + ROW / 2.0 + 4.0;
        svg.text((LEFT - 8.0, base), Text { anchor: "end", ..TICK }, &format!("agent {agent}"));
        svg.text((right + TOTAL / 2.0, base), TICK, &of_agent.iter().sum::<usize>().to_string());
        for (class, count) in of_agent.iter().enumerate() {
            let share = (*count as f64 / most).sqrt();
            let opacity = 0.04 + (FULLEST - 0.04) * share;
            let shade = format!("fill=\"{SHADE}\" fill-opacity=\"{opacity:.3}\"");
            let tooltip = format!("agent {agent}, class {class}: {count}");
            let corner = (centre(class) - column / 2.0 + 0.5, y + 0.5);
            svg.rect(corner, (column - 1.0, ROW - 1.0), &shade, &tooltip);
            svg.put(format_args!("<g pointer-events=\"none\">"));
            svg.text((centre(class), base), Text { size: 10.5, ..TICK }, &short(*count));
            svg.put(format_args!("</g>"));
        }
    }
    svg.finish(TOP + ROW * counts.len() as f64 + 6.0, "", NOTE.size)
}

fn short(count: usize) -> String {
    match count {
        0 => String::new(),
        10_000.. => format!("{}k", count / 1000),
        few => few.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_has_a_row_and_its_total() {
        let svg = labels_svg(&[vec![10, 0, 5], vec![1, 2, 12_345]], "labels");
        assert!(svg.contains(">agent 1</text>") && svg.contains(">15</text>") && svg.contains(">12k</text>"));
        assert_eq!(svg.matches("<rect x=").count(), 6);
        assert!(labels_svg(&[], "none").contains("</svg>"));
        assert_eq!(svg.matches(SHADE).count(), 6, "and every cell its shade");
        super::super::png(&svg).unwrap();
    }
}
