//! The label distribution as a table: one row for each agent, one column for each class.

use std::fmt::Write;

use super::style::{FAINT, FONT, GROUND, INK};

const LEFT: f64 = 74.0;
const TOP: f64 = 62.0;
const TOTAL: f64 = 66.0;

/// Draws `counts[agent][class]` as a table of numbers in shaded cells.
pub fn labels_svg(counts: &[Vec<usize>], title: &str) -> String {
    let classes = counts.iter().map(Vec::len).max().unwrap_or(0);
    let (column, row) = ((420.0 / classes.max(1) as f64).clamp(26.0, 60.0), 24.0f64);
    let (width, height) = (LEFT + column * classes as f64 + TOTAL, TOP + row * counts.len() as f64 + 14.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         role=\"img\" aria-label=\"training samples of each class at each agent\" font-family=\"{FONT}\" font-size=\"11.5\">\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n<g class=\"ink\" fill=\"{INK}\" text-anchor=\"middle\">\n\
         <text x=\"{:.0}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{:.0}\" y=\"38\" class=\"faint\" fill=\"{FAINT}\">class</text>\n<text x=\"{:.0}\" y=\"54\">total</text>\n",
        width / 2.0,
        super::style::escape(title),
        LEFT + column * classes as f64 / 2.0,
        width - TOTAL / 2.0,
    );
    for class in 0..classes {
        let _ =
            writeln!(svg, "<text x=\"{:.1}\" y=\"54\">{class}</text>", LEFT + column * (class as f64 + 0.5));
    }
    let most = counts.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
    for (agent, of_agent) in counts.iter().enumerate() {
        draw_agent(&mut svg, agent, of_agent, [column, row, width], most);
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Draws the row of an agent; `most` is the largest count of all agents.
fn draw_agent(svg: &mut String, agent: usize, of_agent: &[usize], [column, row, width]: [f64; 3], most: f64) {
    let y = TOP + row * agent as f64;
    let middle = y + row / 2.0 + 4.0;
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">agent {agent}</text>",
        LEFT - 8.0
    );
    for (class, count) in of_agent.iter().enumerate() {
        let share = *count as f64 / most;
        let x = LEFT + column * class as f64;
        let ink = if share.sqrt() > 0.5 { "#ffffff" } else { "#222222" };
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>agent {agent}, class {class}: {count}</title></rect>\
                 <text class=\"cell\" x=\"{:.1}\" y=\"{middle:.1}\" font-size=\"10.5\" fill=\"{ink}\" pointer-events=\"none\">{}</text>",
            x + 0.5,
            y + 0.5,
            column - 1.0,
            row - 1.0,
            shade(share),
            x + column / 2.0,
            short(*count)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{middle:.1}\">{}</text>",
        width - TOTAL / 2.0,
        of_agent.iter().sum::<usize>()
    );
}

fn short(count: usize) -> String {
    match count {
        0 => String::new(),
        10_000.. => format!("{}k", count / 1000),
        few => few.to_string(),
    }
}

/// A colour between near white (0) and dark blue (1).
fn shade(share: f64) -> String {
    let (light, deep) = ([243.0, 246.0, 250.0], [8.0, 69.0, 128.0]);
    let mixed: Vec<String> = light
        .iter()
        .zip(deep)
        .map(|(from, to): (&f64, f64)| format!("{:02x}", (from + (to - from) * share.sqrt()).round() as u8))
        .collect();
    format!("#{}", mixed.concat())
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
        super::super::png(&svg).unwrap();
    }
}
