//! Sensitivity of a sweep's results to each numeric parameter.

use toml::Value;

use super::curve::{Curve, Point, Series};
use super::figure::{Figure, Panel, axis_title};
use super::scale::Scale;
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
    for trial in trials {
        if series.iter().any(|known| known.label == trial.label) {
            continue;
        }
        let (points, lost) = points(name, &trial.label, trials, criterion);
        let index = series.len();
        let tried = !points.is_empty() || !lost.is_empty();
        series.push(Series { label: trial.label.clone(), seeds: usize::from(tried), diverged: 0 });
        let curve = |points, diverged| Curve { series: index, label: trial.label.clone(), points, diverged };
        curves.extend(segments(points, &lost).into_iter().map(|points| curve(points, None)));
        let nowhere = |x: f64| vec![Point { round: 0, x, y: 0.0, low: 0.0, high: 0.0 }];
        curves.extend(lost.iter().map(|x| curve(nowhere(*x), Some(0))));
    }
    curves.retain(|curve| !curve.points.is_empty());
    let xs: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
    let (low, high) = extent(&xs);
    if xs.is_empty() || low >= high {
        return None;
    }
    let crosses = curves.iter().any(|curve| curve.diverged.is_some());
    let alive = curves.iter().filter(|curve| curve.diverged.is_none()).flat_map(|curve| &curve.points);
    let (bottom, top) = extent(&alive.flat_map(|point| [point.low, point.high]).collect::<Vec<_>>());
    let x = if low > 0.0 && high / low > 4.0 { Scale::log(low, high) } else { Scale::linear(low, high) };
    let y =
        if bottom > 0.0 && top / bottom > 5.0 { Scale::log(bottom, top) } else { Scale::linear(bottom, top) };
    side_by_side(&mut curves, &x);
    // Crosses are drawn at the upper edge of the panel.
    for point in curves.iter_mut().filter(|curve| curve.diverged.is_some()).flat_map(|c| &mut c.points) {
        point.y = y.padded(2.0).range().1;
    }
    let marks = best_points(&curves, series.len(), criterion);
    let panel = Panel {
        title: String::new(),
        x_title: name.replace('_', " "),
        y_title: axis_title(criterion),
        x: x.padded(0.03),
        y: y.padded(0.06).with_tick_below(bottom),
        curves,
        marks,
        outside: Vec::new(),
        name: format!("{}-{name}", criterion.name()),
    };
    let cross = if crosses { "; \u{00d7}: diverged" } else { "" };
    Some(Figure {
        name: format!("sensitivity-{name}"),
        title: format!("{}, by {name}", criterion.title()),
        note: format!(
            "best result at each value over all other values tried; circle: best of all; band: smallest to largest value over seeds{cross}"
        ),
        panels: vec![panel],
        columns: 1,
        series,
    })
}

/// The best point of each algorithm that has one.
fn best_points(curves: &[Curve], algorithms: usize, criterion: Quantity) -> Vec<(usize, Point)> {
    let better = |a: Point, b: Point| {
        let is_better = if criterion.larger_is_better() { b.y > a.y } else { b.y < a.y };
        if is_better { b } else { a }
    };
    let points = |series: usize| {
        let of = curves.iter().filter(move |curve| curve.series == series && curve.diverged.is_none());
        of.flat_map(|curve| curve.points.iter().copied())
    };
    (0..algorithms).filter_map(|series| Some((series, points(series).reduce(better)?))).collect()
}

/// The points split at values where all trials diverged, so that no line is drawn across these.
fn segments(points: Vec<Point>, lost: &[f64]) -> Vec<Vec<Point>> {
    let apart = |a: &Point, b: &Point| lost.iter().any(|x| (a.x..b.x).contains(x));
    points.chunk_by(|a, b| !apart(a, b)).map(<[Point]>::to_vec).collect()
}

/// Moves crosses at the same value next to each other.
fn side_by_side(curves: &mut [Curve], x: &Scale) {
    let mut taken: Vec<f64> = Vec::new();
    for point in curves.iter_mut().filter(|curve| curve.diverged.is_some()).flat_map(|c| &mut c.points) {
        let before = taken.iter().filter(|value| **value == point.x).count();
        taken.push(point.x);
        let (low, high) = x.range();
        let step = 0.025 * before as f64;
        point.x = if x.log { point.x * (high / low).powf(-step) } else { point.x - step * (high - low) };
    }
}

fn extent(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

/// The best result at each value, and the values at which all trials diverged.
fn points(name: &str, label: &str, trials: &[Trial], criterion: Quantity) -> (Vec<Point>, Vec<f64>) {
    let sign = if criterion.larger_is_better() { -1.0 } else { 1.0 };
    let mut found: Vec<(f64, Option<Point>)> = Vec::new();
    for trial in trials.iter().filter(|trial| trial.label == label) {
        let setting =
            trial.settings.iter().find(|(key, value)| short(key) == name && number(value).is_some());
        let Some(x) = setting.and_then(|(_, value)| number(value)) else { continue };
        let point = match trial.score(criterion) {
            Score::Value { mean, low, high } => {
                let (a, b) = (sign * low, sign * high);
                Some(Point { round: 0, x, y: sign * mean, low: a.min(b), high: a.max(b) })
            }
            Score::Diverged => None,
        };
        match found.iter_mut().find(|(known, _)| *known == x) {
            None => found.push((x, point)),
            Some((_, best)) => {
                let better = |new: &Point, old: &Point| sign * new.y < sign * old.y;
                if let Some(new) = point
                    && best.as_ref().is_none_or(|old| better(&new, old))
                {
                    *best = Some(new);
                }
            }
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let lost = found.iter().filter(|(_, point)| point.is_none()).map(|(x, _)| *x).collect();
    (found.into_iter().filter_map(|(_, point)| point).collect(), lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_drawn_across_a_value_that_diverged() {
        let point = |x: f64| Point { round: 0, x, y: 1.0, low: 1.0, high: 1.0 };
        let kept = segments(vec![point(1.0), point(2.0), point(8.0), point(16.0)], &[4.0]);
        let lengths: Vec<usize> = kept.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 2]);
        assert!(segments(Vec::new(), &[4.0]).is_empty());
        assert_eq!(segments(vec![point(1.0), point(2.0)], &[]).len(), 1);
    }

    #[test]
    fn the_best_value_of_each_algorithm_is_marked() {
        let curve = |series: usize, points: &[(f64, f64)], diverged: Option<u64>| Curve {
            series,
            label: "a".into(),
            points: points.iter().map(|(x, y)| Point { round: 0, x: *x, y: *y, low: *y, high: *y }).collect(),
            diverged,
        };
        let curves = [
            curve(0, &[(1.0, 5.0), (2.0, 3.0)], None),
            curve(0, &[(4.0, 4.0)], None),
            curve(0, &[(8.0, 0.0)], Some(0)),
            curve(2, &[(1.0, 7.0)], None),
        ];
        let places = |criterion: Quantity| -> Vec<(usize, f64)> {
            best_points(&curves, 3, criterion).iter().map(|(series, point)| (*series, point.x)).collect()
        };
        assert_eq!(places(Quantity::Loss), [(0, 2.0), (2, 1.0)]);
        let larger = Quantity::ALL.into_iter().find(|quantity| quantity.larger_is_better()).unwrap();
        assert_eq!(places(larger), [(0, 1.0), (2, 1.0)]);
    }

    #[test]
    fn crosses_at_one_value_are_drawn_next_to_each_other() {
        let cross = |x: f64| Curve {
            series: 0,
            label: "a".into(),
            points: vec![Point { round: 0, x, y: 1.0, low: 1.0, high: 1.0 }],
            diverged: Some(0),
        };
        let mut curves = [cross(0.1), cross(0.1), cross(0.2)];
        side_by_side(&mut curves, &Scale::log(0.01, 1.0));
        let xs: Vec<f64> = curves.iter().map(|curve| curve.points[0].x).collect();
        assert!(xs[0] == 0.1 && xs[1] < 0.1 && xs[1] > 0.08 && xs[2] == 0.2, "{xs:?}");
    }
}
