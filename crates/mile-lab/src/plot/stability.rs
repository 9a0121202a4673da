//! Stability figures: a map over two parameters, and the eigenvalues of one round in the complex plane.

use std::fmt::Write;

use mile_theory::stability::StabilityMap;

use super::axes::{Axes, left_margin};
use super::colour_bar::ColourBar;
use super::legend::wrapped;
use super::scale::Scale;
use super::style::{FAINT, FONT, GROUND, INK, escape};

const WIDTH: f64 = 600.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 46.0;
/// Room for the colour bar at the right.
const RIGHT: f64 = 104.0;
const NOTE_LINE: f64 = 15.0;
/// Largest modulus of an eigenvalue that is drawn at its place; larger ones are drawn at this distance.
const FARTHEST: f64 = 3.0;
/// The colour of what grows.
const GROWS: &str = "#c1272d";

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

/// The parameters in use, which are marked in a stability map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// The parameter on the vertical axis.
    pub value: f64,
    /// The step size, if one is given.
    pub step_size: Option<f64>,
}

/// Frame of a picture: background, title, and notes below.
fn framed(title: &str, height: f64, note: &str, content: &str) -> String {
    let notes = wrapped(note, WIDTH - 24.0, 11.0);
    let total = height + NOTE_LINE * notes.len() as f64 + 8.0;
    let middle = WIDTH / 2.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" width=\"{WIDTH}\" height=\"{total}\" \
         role=\"img\" aria-label=\"{title}\" font-family=\"{FONT}\" font-size=\"12\">\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n\
         <text class=\"ink\" x=\"{middle}\" y=\"22\" text-anchor=\"middle\" font-size=\"14\" font-weight=\"bold\" fill=\"{INK}\">{title}</text>\n{content}",
        title = escape(title)
    );
    for (k, line) in notes.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text class=\"faint\" x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" fill=\"{FAINT}\">{}</text>",
            height + 10.0 + NOTE_LINE * k as f64,
            escape(line)
        );
    }
    svg + "</svg>\n"
}

/// The colours of growth factors: blue where disagreement shrinks, darker where faster; red where it grows. Between 1/2 and
/// 2, on a scale that is finer near 1.
fn growth_place(growth: f64) -> f64 {
    if !growth.is_finite() {
        return 1.0;
    }
    let log = growth.max(1e-9).log2();
    0.5 + 0.5 * log.signum() * log.abs().min(1.0).sqrt()
}

fn growth_colour(place: f64) -> String {
    let (light, deep, share) = match place {
        grows if grows > 0.5 => ([253.0, 219.0, 206.0], [178.0, 24.0, 43.0], 2.0 * place - 1.0),
        _ => ([222.0, 235.0, 247.0], [8.0, 81.0, 156.0], 1.0 - 2.0 * place),
    };
    mixed(light, deep, share)
}

fn mixed(from: [f64; 3], to: [f64; 3], share: f64) -> String {
    let part = |k: usize| from[k] + (to[k] - from[k]) * share.clamp(0.0, 1.0);
    format!("rgb({:.0},{:.0},{:.0})", part(0), part(1), part(2))
}

/// Values in at most four digits.
fn short(value: f64) -> String {
    if value == 0.0 || (1e-3..1e5).contains(&value.abs()) {
        let digits = (3 - value.abs().max(1e-3).log10().floor() as i32).max(0) as usize;
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    } else {
        format!("{value:.2e}")
    }
}

/// The edges of the cells whose centres are these values, equally spaced on their scale.
fn edges(values: &[f64], log: bool) -> Vec<f64> {
    let to = |value: f64| if log { value.ln() } else { value };
    let back = |value: f64| if log { value.exp() } else { value };
    let (first, last) = (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
    let cells = values.len().max(1) as f64;
    let half = if cells > 1.0 { 0.5 * (to(last) - to(first)) / (cells - 1.0) } else { 0.5 };
    (0..=values.len().max(1)).map(|k| back(to(first) + half * (2.0 * k as f64 - 1.0))).collect()
}

/// Draws a map of the growth factor per round: step sizes on the horizontal axis, the other parameter on the vertical axis,
/// a line where stability ends, and a mark at the parameters in use.
pub fn stability_map_svg(map: &StabilityMap, title: &str, used: Used) -> String {
    let (xs, ys) = (edges(&map.step_sizes, true), edges(&map.values, false));
    let (x, y) = (Scale::log(xs[0], xs[xs.len() - 1]), Scale::linear(ys[0], ys[ys.len() - 1]));
    let (left, height) = (left_margin(y, |size| size), 300.0);
    let name = map.parameter.replace('_', " ");
    let axes = Axes {
        x,
        y,
        x_title: "step size",
        y_title: &name,
        corner: (left, TOP),
        size: (WIDTH - left - RIGHT, height),
    };
    let mut svg = String::new();
    cells(&mut svg, map, &axes, &xs, &ys);
    boundary(&mut svg, map, &axes, &xs, &ys);
    axes.write(&mut svg, 14.0);
    mark(&mut svg, &axes, used);
    let ticks = [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0];
    let text = |growth: f64| match growth {
        0.5 => "\u{2264} 0.5".to_owned(),
        2.0 => "\u{2265} 2".to_owned(),
        other => short(other),
    };
    ColourBar {
        title: "factor per round",
        corner: (WIDTH - RIGHT + 18.0, TOP),
        height,
        colour: &growth_colour,
        ticks: ticks.map(|growth| (growth_place(growth), text(growth))).to_vec(),
    }
    .write(&mut svg);
    let place = match used.step_size {
        Some(step) => format!("circle: in use, step size {}, {name} {}", short(step), short(used.value)),
        None => format!("dashed line: in use, {name} {}", short(used.value)),
    };
    let note = format!("blue: disagreement shrinks, red: it grows, black line: limit; {place}");
    framed(title, TOP + height + BOTTOM, &note, &svg)
}

fn cells(svg: &mut String, map: &StabilityMap, axes: &Axes, xs: &[f64], ys: &[f64]) {
    svg.push_str("<g shape-rendering=\"crispEdges\">\n");
    for (row, line) in map.growth.iter().enumerate() {
        for (column, growth) in line.iter().enumerate() {
            let corners = (axes.place(xs[column], ys[row + 1]), axes.place(xs[column + 1], ys[row]));
            let (Some((left, top)), Some((right, bottom))) = corners else { continue };
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"><title>step size {}, {} {}: factor {growth:.4} per round</title></rect>",
                right - left + 0.3,
                bottom - top + 0.3,
                growth_colour(growth_place(*growth)),
                short(map.step_sizes[column]),
                map.parameter,
                short(map.values[row]),
            );
        }
    }
    svg.push_str("</g>\n");
}

/// Draws a line between cells of which one is stable and the other is not.
fn boundary(svg: &mut String, map: &StabilityMap, axes: &Axes, xs: &[f64], ys: &[f64]) {
    let stable = |row: usize, column: usize| {
        map.growth.get(row).and_then(|line| line.get(column)).map(|growth| growth_place(*growth) <= 0.5)
    };
    let mut path = String::new();
    let mut line = |from: (f64, f64), to: (f64, f64)| {
        if let (Some((x1, y1)), Some((x2, y2))) = (axes.place(from.0, from.1), axes.place(to.0, to.1)) {
            let _ = write!(path, "M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}");
        }
    };
    for (row, cells) in map.growth.iter().enumerate() {
        for column in 0..cells.len() {
            let here = stable(row, column);
            let differs = |other: Option<bool>| other.is_some() && other != here;
            if differs(stable(row + 1, column)) {
                line((xs[column], ys[row + 1]), (xs[column + 1], ys[row + 1]));
            }
            if differs(stable(row, column + 1)) {
                line((xs[column + 1], ys[row]), (xs[column + 1], ys[row + 1]));
            }
        }
    }
    let _ = writeln!(
        svg,
        "<path class=\"limit\" d=\"{path}\" fill=\"none\" stroke=\"#111111\" stroke-width=\"1.4\" stroke-linecap=\"square\"/>"
    );
}

/// Marks the parameters in use: a circle, or a line if there is no step size.
fn mark(svg: &mut String, axes: &Axes, used: Used) {
    let x = used.step_size.unwrap_or(axes.x.range().0);
    let Some((x, y)) = axes.place(x, used.value) else { return };
    let (left, width) = (axes.corner.0, axes.size.0);
    let _ = match used.step_size {
        Some(_) => writeln!(
            svg,
            "<g class=\"mark\" fill=\"none\"><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" stroke=\"#ffffff\" stroke-width=\"4.5\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" stroke=\"#111111\" stroke-width=\"2\"/></g>"
        ),
        None => writeln!(
            svg,
            "<path class=\"mark\" d=\"M{left:.1} {y:.1}h{width:.1}\" stroke=\"#111111\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>"
        ),
    };
}

/// Draws the eigenvalues of one round with the unit circle; outside of it, disagreement grows.
pub fn modes_svg(modes: &[Mode], title: &str) -> String {
    let finite: Vec<&Mode> = modes.iter().filter(|m| m.re.is_finite() && m.im.is_finite()).collect();
    let farthest = finite.iter().map(|m| m.re.hypot(m.im)).fold(1.0, f64::max).min(FARTHEST);
    let scale = Scale::linear(-1.12 * farthest, 1.12 * farthest);
    let left = left_margin(scale, |size| size);
    let side = WIDTH - left - RIGHT;
    let axes = Axes {
        x: scale,
        y: scale,
        x_title: "real part",
        y_title: "imaginary part",
        corner: (left, TOP),
        size: (side, side),
    };
    let mut svg = String::new();
    axes.grid(&mut svg);
    axes.write(&mut svg, 14.0);
    let (centre, one) = (axes.place(0.0, 0.0), axes.place(1.0, 0.0));
    if let (Some((x, y)), Some((right, _))) = (centre, one) {
        let _ = writeln!(
            svg,
            "<circle class=\"unit\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"#08519c\" fill-opacity=\"0.06\" stroke=\"{INK}\" stroke-width=\"1.2\"/>",
            right - x
        );
    }
    let extent = |low: f64, high: f64| (low, if high > low { high } else { low + 1.0 });
    let lambdas = || finite.iter().map(|mode| mode.lambda);
    let range = extent(lambdas().fold(f64::INFINITY, f64::min), lambdas().fold(f64::NEG_INFINITY, f64::max));
    finite.iter().for_each(|mode| eigenvalue(&mut svg, &axes, mode, range));
    let bar = Scale::linear(range.0, range.1);
    ColourBar {
        title: "eigenvalue of W",
        corner: (WIDTH - RIGHT + 18.0, TOP),
        height: side,
        colour: &lambda_colour,
        ticks: bar
            .ticks(super::scale::TICKS)
            .into_iter()
            .filter_map(|tick| Some((bar.place(tick.at)?, tick.text?)))
            .collect(),
    }
    .write(&mut svg);
    let top = finite.iter().map(|mode| mode.a).fold(0.0, f64::max);
    let mut note = "circles: step size times curvature 0".to_owned();
    if top > 0.0 {
        let _ = write!(note, "; diamonds: {}", short(top));
    }
    note += "; a mode within the unit circle decays, one outside of it (red outline) grows";
    framed(title, TOP + side + BOTTOM, &note, &svg)
}

fn lambda_colour(place: f64) -> String {
    // From dark blue over green to yellow, which differ in lightness too.
    let (blue, green, yellow) = ([68.0, 1.0, 84.0], [33.0, 145.0, 140.0], [253.0, 200.0, 37.0]);
    if place < 0.5 { mixed(blue, green, 2.0 * place) } else { mixed(green, yellow, 2.0 * place - 1.0) }
}

fn eigenvalue(svg: &mut String, axes: &Axes, mode: &Mode, (low, high): (f64, f64)) {
    let modulus = mode.re.hypot(mode.im);
    let nearer = FARTHEST / modulus.max(FARTHEST);
    let Some((x, y)) = axes.place(mode.re * nearer, mode.im * nearer) else { return };
    let shape = super::style::marker(if mode.a > 0.0 { 3 } else { 0 }, x, y, 4.2);
    let outline = if modulus > 1.0 { (GROWS, 2.0) } else { ("#ffffff", 0.8) };
    let _ = writeln!(
        svg,
        "<path d=\"{shape}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\"><title>lambda {:.4}, step size times curvature {:.3}: {:.4} {:+.4}i, modulus {modulus:.4}</title></path>",
        lambda_colour((mode.lambda - low) / (high - low)),
        outline.0,
        outline.1,
        mode.lambda,
        mode.a,
        mode.re,
        mode.im
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> StabilityMap {
        StabilityMap {
            parameter: "xi",
            values: vec![0.1, 0.2],
            step_sizes: vec![0.01, 0.1, 1.0],
            growth: vec![vec![0.9, 0.95, 1.2], vec![0.8, f64::INFINITY, f64::NAN]],
        }
    }

    #[test]
    fn a_map_has_a_rectangle_for_each_pair_and_survives_infinities() {
        let svg = stability_map_svg(&map(), "a <title>", Used { value: 0.1, step_size: Some(0.1) });
        assert_eq!(svg.matches("per round</title>").count(), 6);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN,") && svg.contains("a &lt;title&gt;"));
        super::super::png(&svg).unwrap();
    }

    #[test]
    fn the_limit_runs_between_stable_cells_and_others() {
        let svg = stability_map_svg(&map(), "a title", Used { value: 0.1, step_size: None });
        let limit = svg.lines().find(|line| line.contains("class=\"limit\"")).unwrap();
        // Beside 0.95 | 1.2 and 0.8 | infinity, and above 0.95.
        assert_eq!(limit.matches('M').count(), 3, "{limit}");
    }

    #[test]
    fn the_parameters_in_use_are_marked() {
        let (xs, ys) = (edges(&[0.01, 0.1, 1.0], true), edges(&[0.1, 0.2], false));
        let near = |found: &[f64], expected: &[f64]| {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-12)
        };
        assert!(
            near(&xs, &[10f64.powf(-2.5), 10f64.powf(-1.5), 10f64.powf(-0.5), 10f64.powf(0.5)]),
            "{xs:?}"
        );
        assert!(near(&ys, &[0.05, 0.15, 0.25]), "{ys:?}");
        let with = stability_map_svg(&map(), "a title", Used { value: 0.15, step_size: Some(0.1) });
        // In the middle of both axes.
        assert!(with.contains(&format!("cy=\"{:.1}\" r=\"6\"", TOP + 150.0)), "{with}");
        assert!(with.contains("step size 0.1, xi 0.15"));
        let without = stability_map_svg(&map(), "a title", Used { value: 0.15, step_size: None });
        assert!(without.contains("stroke-dasharray") && !without.contains("<circle"));
    }

    #[test]
    fn modes_outside_the_circle_have_a_red_outline() {
        let mode = |re, im| Mode { re, im, lambda: 0.5, a: 0.1 };
        let svg = modes_svg(&[mode(0.5, 0.5), mode(-1.5, 0.0), mode(f64::NAN, 0.0)], "a title");
        assert_eq!((svg.matches("modulus").count(), svg.matches(GROWS).count()), (2, 1));
        super::super::png(&svg).unwrap();
        assert!(modes_svg(&[], "nothing").ends_with("</svg>\n"));
    }
}
