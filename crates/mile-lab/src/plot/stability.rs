//! Stability figures: a map over two parameters, and the eigenvalues of one round in the complex plane.

use mile_theory::stability::StabilityMap;

use super::axes::{Axes, BOTTOM, left_margin};
use super::scale::{Scale, extent, short};
use super::style::{INK, Ramp, marker, path};
use super::svg::{NOTE, Svg};

const WIDTH: f64 = 600.0;
const TOP: f64 = 40.0;
/// Room for the colour bar at the right.
const RIGHT: f64 = 104.0;
/// Largest modulus of an eigenvalue that is drawn at its place; larger ones are drawn at this distance.
const FARTHEST: f64 = 3.0;
/// The colour of what grows.
const GROWS: &str = "#c1272d";
/// Growth factors: blue where disagreement shrinks, darker where faster; red where it grows.
const GROWTH: Ramp = Ramp {
    name: "growth",
    stops: &[
        (0.0, [8.0, 81.0, 156.0]),
        (0.5, [222.0, 235.0, 247.0]),
        (0.5, [253.0, 219.0, 206.0]),
        (1.0, [178.0, 24.0, 43.0]),
    ],
};
/// Eigenvalues of the mixing matrix: from dark blue through green to yellow, which also differ in lightness.
const LAMBDA: Ramp = Ramp {
    name: "lambda",
    stops: &[(0.0, [68.0, 1.0, 84.0]), (0.5, [33.0, 145.0, 140.0]), (1.0, [253.0, 200.0, 37.0])],
};

/// An eigenvalue of the linear map of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct StabilityMode {
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

/// The place of a growth factor in [`GROWTH`]: from 1/2 to 2, on a scale that is finer near 1.
fn growth_place(growth: f64) -> f64 {
    if !growth.is_finite() {
        return 1.0;
    }
    let log = growth.max(1e-9).log2();
    0.5 + 0.5 * log.signum() * log.abs().min(1.0).sqrt()
}

/// Axes with room for a colour bar to the right.
fn axes<'a>(x: Scale, y: Scale, [x_title, y_title]: [&'a str; 2], height: Option<f64>) -> Axes<'a> {
    let margin = left_margin(y, |size| size);
    let width = WIDTH - margin - RIGHT;
    let size = (width, height.unwrap_or(width));
    Axes { x, y, x_title, y_title, corner: (margin, TOP), size, margin }
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
    let name = map.parameter.replace('_', " ");
    let axes = axes(x, y, ["step size", &name], Some(300.0));
    let mut svg = Svg::titled(WIDTH, title);
    cells(&mut svg, map, &axes, &xs, &ys);
    boundary(&mut svg, map, &axes, &xs, &ys);
    axes.write(&mut svg);
    mark(&mut svg, &axes, used);
    let text = |growth: f64| match growth {
        0.5 => "\u{2264} 0.5".to_owned(),
        2.0 => "\u{2265} 2".to_owned(),
        other => short(other, 4),
    };
    let ticks = [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0];
    let ticks = ticks.map(|growth| (growth_place(growth), text(growth)));
    axes.colour_bar(&mut svg, &GROWTH, "factor per round", &ticks);
    let place = match used.step_size {
        Some(step) => {
            format!("circle: in use, step size {}, {name} {}", short(step, 4), short(used.value, 4))
        }
        None => format!("dashed line: in use, {name} {}", short(used.value, 4)),
    };
    let note = format!("blue: disagreement shrinks, red: it grows, black line: limit; {place}");
    svg.finish(TOP + axes.size.1 + BOTTOM, &note, NOTE.size)
}

fn cells(svg: &mut Svg, map: &StabilityMap, axes: &Axes, xs: &[f64], ys: &[f64]) {
    svg.put(format_args!("<g shape-rendering=\"crispEdges\">"));
    for (row, line) in map.growth.iter().enumerate() {
        for (column, growth) in line.iter().enumerate() {
            let corners = (axes.place(xs[column], ys[row + 1]), axes.place(xs[column + 1], ys[row]));
            let (Some((left, top)), Some((right, bottom))) = corners else { continue };
            let fill = format!("fill=\"{}\"", GROWTH.colour(growth_place(*growth)));
            let (step, value) = (short(map.step_sizes[column], 4), short(map.values[row], 4));
            let tooltip =
                format!("step size {step}, {} {value}: factor {growth:.4} per round", map.parameter);
            svg.rect((left, top), (right - left + 0.3, bottom - top + 0.3), &fill, &tooltip);
        }
    }
    svg.put(format_args!("</g>"));
}

/// Draws a line between cells when one is stable and the other is not.
fn boundary(svg: &mut Svg, map: &StabilityMap, axes: &Axes, xs: &[f64], ys: &[f64]) {
    let stable = |row: usize, column: usize| {
        map.growth.get(row).and_then(|line| line.get(column)).map(|growth| growth_place(*growth) <= 0.5)
    };
    let mut lines = String::new();
    let mut line = |from: (f64, f64), to: (f64, f64)| {
        let ends = [from, to].into_iter().filter_map(|(x, y)| axes.place(x, y));
        lines += &path(ends);
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
    let style =
        "class=\"limit\" fill=\"none\" stroke=\"#111111\" stroke-width=\"1.4\" stroke-linecap=\"square\"";
    svg.path(&lines, style, "");
}

/// Marks the parameters in use: a circle, or a line if there is no step size.
fn mark(svg: &mut Svg, axes: &Axes, used: Used) {
    let x = used.step_size.unwrap_or(axes.x.range().0);
    let Some((x, y)) = axes.place(x, used.value) else { return };
    if used.step_size.is_none() {
        let style = "class=\"mark\" stroke=\"#111111\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"";
        return svg.path(&format!("M{x:.1} {y:.1}h{:.1}", axes.size.0), style, "");
    }
    for (colour, width) in [("#ffffff", 4.5), ("#111111", 2.0)] {
        svg.put(format_args!(
            "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }
}

/// Draws the eigenvalues of one round with the unit circle; outside of it, disagreement grows.
pub fn modes_svg(modes: &[StabilityMode], title: &str) -> String {
    let finite: Vec<&StabilityMode> = modes.iter().filter(|m| m.re.is_finite() && m.im.is_finite()).collect();
    let farthest = finite.iter().map(|m| m.re.hypot(m.im)).fold(1.0, f64::max).min(FARTHEST);
    let scale = Scale::linear(-1.12 * farthest, 1.12 * farthest);
    let axes = axes(scale, scale, ["real part", "imaginary part"], None);
    let mut svg = Svg::titled(WIDTH, title);
    axes.grid(&mut svg);
    axes.write(&mut svg);
    if let (Some((x, y)), Some((right, _))) = (axes.place(0.0, 0.0), axes.place(1.0, 0.0)) {
        svg.put(format_args!(
            "<circle class=\"unit\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"#08519c\" fill-opacity=\"0.06\" stroke=\"{}\" stroke-width=\"1.2\"/>",
            right - x,
            INK.1
        ));
    }
    let (low, high) = extent(finite.iter().map(|mode| mode.lambda));
    let bar = Scale::linear(low, high);
    finite.iter().for_each(|mode| eigenvalue(&mut svg, &axes, mode, bar));
    let ticks: Vec<(f64, String)> =
        bar.ticks().into_iter().filter_map(|tick| Some((bar.place(tick.at)?, tick.text))).collect();
    axes.colour_bar(&mut svg, &LAMBDA, "eigenvalue of W", &ticks);
    let top = finite.iter().map(|mode| mode.a).fold(0.0, f64::max);
    let diamonds = if top > 0.0 { format!("; diamonds: {}", short(top, 4)) } else { String::new() };
    let note = format!(
        "circles: step size times curvature 0{diamonds}; a mode within the unit circle decays, one outside of it (red outline) grows"
    );
    svg.finish(TOP + axes.size.1 + BOTTOM, &note, NOTE.size)
}

fn eigenvalue(svg: &mut Svg, axes: &Axes, mode: &StabilityMode, bar: Scale) {
    let modulus = mode.re.hypot(mode.im);
    let nearer = FARTHEST / modulus.max(FARTHEST);
    let Some(at) = axes.place(mode.re * nearer, mode.im * nearer) else { return };
    // A diamond, or else a circle.
    let shape = marker(if mode.a > 0.0 { 3 } else { 0 }, at, 4.2);
    let (colour, width) = if modulus > 1.0 { (GROWS, 2.0) } else { ("#ffffff", 0.8) };
    let fill = LAMBDA.colour(bar.place(mode.lambda).unwrap_or(0.0));
    let style = format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"{width}\"");
    let StabilityMode { re, im, lambda, a } = mode;
    let value = format!("{re:.4} {im:+.4}i, modulus {modulus:.4}");
    svg.path(&shape, &style, &format!("lambda {lambda:.4}, step size times curvature {a:.3}: {value}"));
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
        // Next to 0.95 | 1.2 and 0.8 | infinity, and above 0.95.
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
        let mode = |re, im| StabilityMode { re, im, lambda: 0.5, a: 0.1 };
        let svg = modes_svg(&[mode(0.5, 0.5), mode(-1.5, 0.0), mode(f64::NAN, 0.0)], "a title");
        assert_eq!((svg.matches("modulus").count(), svg.matches(GROWS).count()), (2, 1));
        super::super::png(&svg).unwrap();
        assert!(modes_svg(&[], "nothing").ends_with("</svg>\n"));
    }
}
