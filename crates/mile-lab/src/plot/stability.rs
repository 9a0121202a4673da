//! Stability figures: a map over two parameters, and the eigenvalues of one round in the complex plane.

use std::fmt::Write;

use mile::theory::stability::StabilityMap;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 56.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 20.0;

/// An eigenvalue of the linear map of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Mode {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
    /// The eigenvalue of the mixing matrix that it belongs to.
    pub lambda: f64,
    /// The product of step size and curvature that it belongs to.
    pub a: f64,
}

fn head(title: &str, width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{:.0}\" y=\"22\" text-anchor=\"middle\" font-size=\"14\">{title}</text>\n",
        width / 2.0
    )
}

/// Blue where disagreement shrinks, darker where faster; red where it grows.
fn colour(growth: f64) -> String {
    if !growth.is_finite() || growth > 1.0 {
        let depth = if growth.is_finite() { (growth.ln() / 0.7).clamp(0.0, 1.0) } else { 1.0 };
        return format!("rgb(238,{:.0},{:.0})", 180.0 - 78.0 * depth, 170.0 - 51.0 * depth);
    }
    let depth = (-growth.max(1e-9).ln() / 0.7).clamp(0.0, 1.0).sqrt();
    format!("rgb({:.0},{:.0},{:.0})", 225.0 - 157.0 * depth, 235.0 - 116.0 * depth, 245.0 - 75.0 * depth)
}

fn short(value: f64) -> String {
    if value == 0.0 || (1e-2..1e4).contains(&value.abs()) {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.0e}")
    }
}

/// Draws a map of the growth factor per round: step sizes on the horizontal axis, the other parameter on the vertical axis.
pub fn stability_map_svg(map: &StabilityMap, title: &str) -> String {
    let mut svg = head(title, WIDTH, HEIGHT);
    let (columns, rows) = (map.step_sizes.len().max(1), map.values.len().max(1));
    let cell = ((WIDTH - LEFT - RIGHT) / columns as f64, (HEIGHT - TOP - BOTTOM) / rows as f64);
    let place = |row: usize, column: usize| {
        (LEFT + column as f64 * cell.0, HEIGHT - BOTTOM - (row + 1) as f64 * cell.1)
    };
    svg.push_str("<g shape-rendering=\"crispEdges\">\n");
    for (row, line) in map.growth.iter().enumerate() {
        for (column, growth) in line.iter().enumerate() {
            let (x, y) = place(row, column);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"><title>step size {}, {} {}: factor {growth:.4} per round</title></rect>",
                cell.0 + 0.3,
                cell.1 + 0.3,
                colour(*growth),
                short(map.step_sizes[column]),
                map.parameter,
                short(map.values[row]),
            );
        }
    }
    svg.push_str("</g>\n");
    let every = |count: usize| count.div_ceil(8);
    for column in (0..columns).step_by(every(columns)) {
        let (x, y) = (place(0, column).0 + 0.5 * cell.0, HEIGHT - BOTTOM + 16.0);
        let value = map.step_sizes.get(column).map_or(String::new(), |v| short(*v));
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{value}</text>");
    }
    for row in (0..rows).step_by(every(rows)) {
        let y = place(row, 0).1 + 0.5 * cell.1 + 4.0;
        let value = map.values.get(row).map_or(String::new(), |v| short(*v));
        let _ =
            writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{value}</text>", LEFT - 6.0);
    }
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">step size (blue: disagreement shrinks, red: it grows)</text>\n\
         <text transform=\"translate(18 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>\n",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 14.0,
        TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
        map.parameter
    );
    svg
}

/// Draws the eigenvalues of one round with the unit circle; outside of it, disagreement grows.
pub fn modes_svg(modes: &[Mode], title: &str) -> String {
    let size = HEIGHT;
    let reach = modes.iter().map(|m| m.re.hypot(m.im)).filter(|r| r.is_finite()).fold(1.1, f64::max).min(3.0);
    let (centre, unit) = ((size / 2.0, size / 2.0 + 10.0), (size / 2.0 - 40.0) / reach);
    let mut svg = head(title, size, size + 10.0);
    let _ = write!(
        svg,
        "<g fill=\"none\" stroke=\"#bbbbbb\"><line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\
         <line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/></g>\n\
         <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{unit:.1}\" fill=\"#4477aa\" fill-opacity=\"0.07\" stroke=\"#4477aa\"/>\n",
        30.0,
        size - 30.0,
        40.0,
        size - 20.0,
        x = centre.0,
        y = centre.1
    );
    for mode in modes.iter().filter(|m| m.re.is_finite() && m.im.is_finite()) {
        let modulus = mode.re.hypot(mode.im);
        let fill = if modulus > 1.0 { "#ee6677" } else { "#228833" };
        let scale = (3.0 / modulus.max(3.0)).min(1.0) * unit;
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.2}\" cy=\"{:.2}\" r=\"3.5\" fill=\"{fill}\" fill-opacity=\"0.75\"><title>lambda {:.4}, step size times curvature {:.3}: {:.4} {:+.4}i, modulus {modulus:.4}</title></circle>",
            centre.0 + mode.re * scale,
            centre.1 - mode.im * scale,
            mode.lambda,
            mode.a,
            mode.re,
            mode.im
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">modes inside the unit circle decay</text>\n</svg>\n",
        centre.0,
        size + 2.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_rectangle_for_each_pair_and_survives_infinities() {
        let map = StabilityMap {
            parameter: "xi",
            values: vec![0.1, 0.2],
            step_sizes: vec![0.01, 0.1, 1.0],
            growth: vec![vec![0.9, 0.95, 1.2], vec![0.8, f64::INFINITY, f64::NAN]],
        };
        let svg = stability_map_svg(&map, "a title");
        assert_eq!(svg.matches("per round</title>").count(), 6);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("rgb(NaN"));
    }

    #[test]
    fn modes_outside_the_circle_are_red() {
        let mode = |re, im| Mode { re, im, lambda: 0.5, a: 0.1 };
        let svg = modes_svg(&[mode(0.5, 0.5), mode(-1.5, 0.0), mode(f64::NAN, 0.0)], "a title");
        assert_eq!((svg.matches("#228833").count(), svg.matches("#ee6677").count()), (1, 1));
    }
}
