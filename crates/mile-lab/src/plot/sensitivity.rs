//! How the outcome of a sweep depends on each number that was tried.

use toml::Value;

use super::curve::{Curve, Point, Series};
use super::figure::{Figure, Panel};
use super::quantity::Quantity;
use super::scale::Scale;
use crate::sweep::{Trial, Worth};

/// One figure for each numeric key with several values: for every algorithm, the best that was found at
/// each value, whatever the others were; a cross where everything diverged.
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

/// `step_size` for `step_size` and for `algorithm.mile.step_size`: one figure compares them.
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
        if points.is_empty() && lost.is_empty() {
            continue;
        }
        let index = series.len();
        series.push(Series { label: trial.label.clone(), seeds: 1, diverged: 0 });
        curves.push(Curve { series: index, label: trial.label.clone(), points, diverged: None });
        // A value no axis reaches: the cross is drawn at the top.
        let top = |x: f64| vec![Point { round: 0, x, y: f64::MAX, low: f64::MAX, high: f64::MAX }];
        let cross =
            |x: &f64| Curve { series: index, label: trial.label.clone(), points: top(*x), diverged: Some(0) };
        curves.extend(lost.iter().map(cross));
    }
    curves.retain(|curve| !curve.points.is_empty());
    let xs: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
    let (low, high) = extent(&xs);
    if !(low < high) {
        return None;
    }
    let crosses = curves.iter().any(|curve| curve.diverged.is_some());
    let alive = curves.iter().filter(|curve| curve.diverged.is_none()).flat_map(|curve| &curve.points);
    let (bottom, top) = extent(&alive.flat_map(|point| [point.low, point.high]).collect::<Vec<_>>());
    let x = if low > 0.0 && high / low > 4.0 { Scale::log(low, high) } else { Scale::linear(low, high) };
    let y =
        if bottom > 0.0 && top / bottom > 5.0 { Scale::log(bottom, top) } else { Scale::linear(bottom, top) };
    let panel = Panel {
        title: String::new(),
        x_title: name.to_owned(),
        x: x.padded(0.03),
        y: y.padded(0.06),
        curves,
        outside: Vec::new(),
        name: format!("{}-{name}", criterion.name()),
    };
    let cross = if crosses { "; \u{00d7}: diverged" } else { "" };
    Some(Figure {
        name: format!("sensitivity-{name}"),
        title: format!("{} by {name}", criterion.title()),
        note: format!("the best at each value, over the other values tried; band over seeds{cross}"),
        panels: vec![panel],
        columns: 1,
        series,
    })
}

fn extent(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

/// The best at each value, and the values at which nothing was found.
fn points(name: &str, label: &str, trials: &[Trial], criterion: Quantity) -> (Vec<Point>, Vec<f64>) {
    let sign = if criterion.larger_is_better() { -1.0 } else { 1.0 };
    let mut found: Vec<(f64, Option<Point>)> = Vec::new();
    for trial in trials.iter().filter(|trial| trial.label == label) {
        let setting =
            trial.settings.iter().find(|(key, value)| short(key) == name && number(value).is_some());
        let Some(x) = setting.and_then(|(_, value)| number(value)) else { continue };
        let point = match trial.worth(criterion) {
            Worth::Value { mean, low, high } => {
                let (a, b) = (sign * low, sign * high);
                Some(Point { round: 0, x, y: sign * mean, low: a.min(b), high: a.max(b) })
            }
            Worth::Diverged => None,
            Worth::Unfinished => continue,
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
