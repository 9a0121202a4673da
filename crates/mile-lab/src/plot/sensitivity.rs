//! Sensitivity of a sweep's results to each numeric parameter.

use toml::Value;

use super::curve::{Curve, Point, Series};
use super::figure::{Figure, Panel};
use super::scale::{Scale, extent};
use crate::quantity::Quantity;
use crate::sweep::{Score, Trial};

/// One figure for each numeric key with several values: for every algorithm, the best result at each value over all values
/// of the other keys, and a cross where all trials diverged. An algorithm has the same colour in all figures.
pub fn sensitivity(trials: &[Trial], criterion: Quantity) -> Vec<Figure> {
    let mut names: Vec<String> = Vec::new();
    for (key, value) in trials.iter().flat_map(|trial| &trial.settings) {
        let name = short(key).to_owned();
        if number(value).is_some() && !names.contains(&name) {
            names.push(name);
        }
    }
    names.iter().filter_map(|name| figure(name, trials, criterion)).collect()
}

/// The last part of a key, so that `step_size` and `algorithm.mile.step_size` are plotted in one figure.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

fn figure(name: &str, trials: &[Trial], criterion: Quantity) -> Option<Figure> {
    let mut series: Vec<Series> = Vec::new();
    let mut curves: Vec<Curve> = Vec::new();
    for Trial { label, .. } in trials {
        if series.iter().any(|known| known.label == *label) {
            continue;
        }
        let points = points(name, label, trials, criterion);
        let seeds = usize::from(!points.is_empty());
        if !points.is_empty() {
            curves.push(Curve { series: series.len(), label: label.clone(), points, diverged: None });
        }
        series.push(Series { label: label.clone(), seeds, diverged: 0 });
    }
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (low, high) = extent(points().map(|point| point.x));
    if low >= high {
        return None;
    }
    let (bottom, top) = extent(points().flat_map(|point| [point.low, point.high]));
    let scale = |low: f64, high: f64, ratio: f64| match low > 0.0 && high / low > ratio {
        true => Scale::log(low, high),
        false => Scale::linear(low, high),
    };
    let cross = if points().any(|point| point.y.is_nan()) { "; \u{00d7}: diverged" } else { "" };
    let panel = Panel {
        title: String::new(),
        x_title: name.replace('_', " "),
        y_title: criterion.symbol(),
        x: scale(low, high, 4.0).padded(0.03),
        y: scale(bottom, top, 5.0).padded(0.06).with_tick_below(bottom),
        marks: best_points(&curves, criterion),
        curves,
        outside: Vec::new(),
        name: format!("{}-{name}", criterion.name()),
    };
    Some(Figure {
        name: format!("sensitivity-{name}"),
        title: format!("{}, by {}", criterion.title(), panel.x_title),
        note: format!(
            "best result at each value over all other values tried; circle: best of all; band: smallest to largest value over seeds{cross}"
        ),
        panels: vec![panel],
        columns: 1,
        series,
    })
}

/// The best point of each algorithm that has one.
fn best_points(curves: &[Curve], criterion: Quantity) -> Vec<(usize, Point)> {
    let better = |a: Point, b: Point| {
        let is_better = if criterion.larger_is_better() { b.y > a.y } else { b.y < a.y };
        if is_better { b } else { a }
    };
    let best = |curve: &Curve| {
        let points = curve.points.iter().copied().filter(|point| !point.y.is_nan());
        Some((curve.series, points.reduce(better)?))
    };
    curves.iter().filter_map(best).collect()
}

/// The best result at each value; it is NaN where all trials diverged.
fn points(name: &str, label: &str, trials: &[Trial], criterion: Quantity) -> Vec<Point> {
    let sign = if criterion.larger_is_better() { -1.0 } else { 1.0 };
    let mut found: Vec<Point> = Vec::new();
    for trial in trials.iter().filter(|trial| trial.label == label) {
        let setting =
            trial.settings.iter().find(|(key, value)| short(key) == name && number(value).is_some());
        let Some(x) = setting.and_then(|(_, value)| number(value)) else { continue };
        let (y, low, high) = match trial.score(criterion) {
            Score::Value { mean, low, high } => (sign * mean, sign * low, sign * high),
            Score::Diverged => (f64::NAN, f64::NAN, f64::NAN),
        };
        let new = Point { round: 0, x, y, low: low.min(high), high: low.max(high) };
        match found.iter_mut().find(|known| known.x == x) {
            None => found.push(new),
            Some(old) if old.y.is_nan() || sign * new.y < sign * old.y => *old = new,
            Some(_) => {}
        }
    }
    found.sort_by(|a, b| a.x.total_cmp(&b.x));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_value_of_each_algorithm_is_marked() {
        let curve = |series: usize, points: &[(f64, f64)]| Curve {
            series,
            label: "a".into(),
            points: points.iter().map(|(x, y)| Point { round: 0, x: *x, y: *y, low: *y, high: *y }).collect(),
            diverged: None,
        };
        let curves = [
            curve(0, &[(0.5, f64::NAN), (1.0, 5.0), (2.0, 3.0), (3.0, f64::NAN), (4.0, 4.0)]),
            curve(1, &[(1.0, f64::NAN)]),
            curve(2, &[(1.0, 7.0)]),
        ];
        let places = |criterion: Quantity| -> Vec<(usize, f64)> {
            best_points(&curves, criterion).iter().map(|(series, point)| (*series, point.x)).collect()
        };
        assert_eq!(places(Quantity::Loss), [(0, 2.0), (2, 1.0)]);
        let larger = Quantity::ALL.into_iter().find(|quantity| quantity.larger_is_better()).unwrap();
        assert_eq!(places(larger), [(0, 1.0), (2, 1.0)]);
    }
}
