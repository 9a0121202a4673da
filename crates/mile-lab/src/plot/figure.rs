//! A figure: one or more panels that share a legend.

use super::curve::{Curve, Point, Runs, Series};
use super::scale::{Scale, extent};
use crate::quantity::{Axis, Quantity};

/// Ratio of the largest to the smallest value from which a positive quantity gets a logarithmic axis.
const LOG_RATIO: f64 = 10.0;
/// A run whose loss exceeds this factor times the largest initial loss does not determine the range of the axis.
const FAILED_RATIO: f64 = 2.0;

/// One coordinate system with its curves.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_title: String,
    pub(crate) y_title: String,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) curves: Vec<Curve>,
    /// Points that are marked by a circle, with the algorithm of each.
    pub(crate) marks: Vec<(usize, Point)>,
    /// Algorithms that did not diverge, but exceed the range of the axis.
    pub(crate) outside: Vec<String>,
    /// Name of the quantity and the axis, for the report's script.
    pub(crate) name: String,
}

/// A figure about runs.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file name, without extension.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its caption: seeds, meaning of bands and crosses.
    pub note: String,
    pub(crate) panels: Vec<Panel>,
    pub(crate) columns: usize,
    pub(crate) series: Vec<Series>,
}

impl Figure {
    /// One quantity against one axis.
    pub fn single(runs: &Runs, quantity: Quantity, axis: Axis) -> Self {
        let mut panel = Panel::new(runs, quantity, axis);
        let (name, title) = (panel.name.clone(), std::mem::take(&mut panel.title));
        Self::of(name, title, runs, vec![panel])
    }

    /// Several panels in rows of two, under one title.
    pub fn panels(name: &str, title: &str, runs: &Runs, drawn: &[(Quantity, Axis)]) -> Self {
        let have = drawn.iter().filter(|(quantity, _)| runs.have(*quantity));
        let panels = have.map(|(quantity, axis)| Panel::new(runs, *quantity, *axis)).collect();
        Self::of(name.to_owned(), title.to_owned(), runs, panels)
    }

    fn of(name: String, title: String, runs: &Runs, panels: Vec<Panel>) -> Self {
        let (note, columns) = (note(runs, &panels), panels.len().clamp(1, 2));
        Self { name, title, note, panels, columns, series: runs.series() }
    }

    /// Inserts panels of other records at a position; `what` is appended to their titles.
    pub fn with_panels(mut self, at: usize, runs: &Runs, drawn: &[(Quantity, Axis)], what: &str) -> Self {
        let more = Self::panels("", "", runs, drawn);
        let at = at.min(self.panels.len());
        let titled = more.panels.into_iter().map(|panel| {
            let (title, name) = (format!("{}{what}", panel.title), format!("{}-relative", panel.name));
            Panel { title, name, ..panel }
        });
        self.panels.splice(at..at, titled);
        self.note = note(runs, &self.panels);
        self
    }

    /// Adds a sentence to the caption.
    pub fn with_note(mut self, note: &str) -> Self {
        if !note.is_empty() {
            self.note = if self.note.is_empty() { note.to_owned() } else { format!("{}. {note}", self.note) };
        }
        self
    }
}

fn note(runs: &Runs, panels: &[Panel]) -> String {
    let seeds = runs.series().iter().map(|series| series.seeds).max().unwrap_or(0);
    let mut parts = Vec::new();
    if runs.have_bands() {
        parts.push(format!("line: mean over {seeds} seeds, band: smallest to largest value"));
    } else if seeds == 1 {
        parts.push("one seed".into());
    }
    if runs.series().iter().any(|series| series.diverged > 0) {
        parts.push("\u{00d7} marks where a run diverged".into());
    }
    if panels.iter().any(|panel| panel.y.log && panel.curves.iter().any(Curve::falls_to_zero)) {
        parts.push("\u{25bd} marks zero".into());
    }
    let mut outside: Vec<&str> = panels.iter().flat_map(|panel| &panel.outside).map(String::as_str).collect();
    outside.sort_unstable();
    outside.dedup();
    if !outside.is_empty() {
        parts.push(format!("above the plotted range: {}", outside.join(", ")));
    }
    parts.join("; ")
}

impl Panel {
    pub(crate) fn new(runs: &Runs, quantity: Quantity, axis: Axis) -> Self {
        let mut curves = runs.curves(quantity, axis);
        let largest = curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).fold(0.0, f64::max);
        let (unit, x_title) = axis.unit(largest);
        for point in curves.iter_mut().flat_map(|curve| &mut curve.points) {
            point.x /= unit;
        }
        let y = y_scale(&mut curves, quantity);
        // Room for the last marker.
        let x = Scale::linear(0.0, if largest > 0.0 { 1.015 * largest / unit } else { 1.0 });
        let name = format!("{}-{}", quantity.name(), axis.name());
        let top = y.range().1;
        let leaves =
            |curve: &&Curve| curve.diverged.is_none() && curve.points.iter().any(|point| point.y > top);
        let outside = curves.iter().filter(leaves).map(|curve| curve.label.clone()).collect();
        let (title, y_title) = (quantity.title().to_owned(), quantity.symbol());
        Self { title, x_title, y_title, x, y, curves, marks: Vec::new(), outside, name }
    }
}

/// The vertical axis: its range is that of the runs that did not diverge, slightly extended for the others. Curves of which
/// a logarithmic axis can show nothing are dropped.
fn y_scale(curves: &mut Vec<Curve>, quantity: Quantity) -> Scale {
    let alive = curves.iter().any(|curve| curve.diverged.is_none());
    let is_healthy = |curve: &&Curve| !alive || curve.diverged.is_none();
    let cap = loss_cap(curves, quantity).unwrap_or(f64::INFINITY);
    let (low, high) = values_above(f64::NEG_INFINITY, curves.iter().filter(is_healthy));
    let log = quantity.tends_to_zero()
        || (!quantity.larger_is_better() && low > 0.0 && high.min(cap) / low >= LOG_RATIO);
    let floor = if log { 0.0 } else { f64::NEG_INFINITY };
    let (low, high) = values_above(floor, curves.iter().filter(is_healthy));
    let high = high.min(cap);
    let (lost_low, lost_high) = values_above(floor, curves.iter().filter(|curve| curve.diverged.is_some()));
    if log {
        curves.retain(|curve| curve.points.iter().any(|point| point.y > 0.0));
    }
    let room = 0.25 * (high - low);
    let (lowest_lost, highest_lost) = if log { (low / 10.0, high * 10.0) } else { (low - room, high + room) };
    let (lowest, highest) = (low.min(lost_low.max(lowest_lost)), high.max(lost_high.min(highest_lost)));
    let scale = if log { Scale::log(lowest, highest) } else { Scale::linear(lowest, highest) };
    scale.padded(0.04).with_tick_below(lowest)
}

/// The smallest and the largest value above `floor` of means and bands.
fn values_above<'a>(floor: f64, curves: impl Iterator<Item = &'a Curve>) -> (f64, f64) {
    let values = curves.flat_map(|curve| &curve.points).flat_map(|point| [point.low, point.y, point.high]);
    extent(values.filter(|value| *value > floor))
}

/// The largest loss to show, so that runs with very large losses do not compress the others.
fn loss_cap(curves: &[Curve], quantity: Quantity) -> Option<f64> {
    if quantity.tends_to_zero() || quantity.larger_is_better() {
        return None;
    }
    let first =
        curves.iter().filter_map(|curve| curve.points.first()).map(|point| point.high).fold(0.0, f64::max);
    let works = |curve: &&Curve| {
        curve.diverged.is_none() && curve.points.iter().all(|point| point.high <= FAILED_RATIO * first)
    };
    let highs = curves.iter().filter(works).flat_map(|curve| &curve.points).map(|point| point.high);
    highs.reduce(f64::max).map(|high| high.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_diverged_run_does_not_squash_the_others() {
        let mut records: Vec<_> =
            (0..10).map(|round| record("good", 0, round, 1.0 - 0.05 * round as f64)).collect();
        records.extend((0..5).map(|round| record("bad", 0, round, 1e3f64.powi(round as i32))));
        records.push(record("bad", 0, 5, f64::INFINITY));
        let runs = Runs::new(&records, &[]);
        let figure = Figure::single(&runs, Quantity::Loss, Axis::Round);
        let (low, high) = figure.panels[0].y.range();
        assert!(!figure.panels[0].y.log && low > 0.4 && high < 1.3, "{low} {high}");
        assert!(figure.note.contains("diverged"));
        let (_, high) = Figure::single(&runs, Quantity::ConsensusError, Axis::Round).panels[0].y.range();
        assert!(high < 2e-2, "{high}");
    }

    #[test]
    fn a_run_that_fails_without_diverging_leaves_the_picture_and_is_named() {
        let mut records: Vec<_> =
            (0..10).map(|round| record("good", 0, round, 2.3 / (1.0 + round as f64))).collect();
        records.extend((0..10).map(|round| record("bad", 0, round, 2.3 + 50.0 * round as f64)));
        let runs = Runs::new(&records, &[]);
        let figure = Figure::single(&runs, Quantity::Loss, Axis::Round);
        assert!(figure.panels[0].y.range().1 < 3.0);
        assert!(figure.note.contains("above the plotted range: bad"), "{}", figure.note);
        let alone = Runs::new(&records[10..], &[]);
        assert!(Figure::single(&alone, Quantity::Loss, Axis::Round).panels[0].y.range().1 > 400.0);
    }

    #[test]
    fn a_log_axis_is_taken_where_it_belongs() {
        let runs_of = |values: &[f64]| -> Vec<_> {
            values.iter().enumerate().map(|(round, loss)| record("a", 0, round as u64, *loss)).collect()
        };
        let log = |values: &[f64]| {
            let records = runs_of(values);
            let runs = Runs::new(&records, &[]);
            Figure::single(&runs, Quantity::Loss, Axis::Round).panels[0].y.log
        };
        assert!(log(&[2.3, 0.5, 0.1]));
        assert!(!log(&[2.3, 2.0, 1.9]));
        assert!(!log(&[2.3, 0.0, -1.0]));
    }

    #[test]
    fn zeros_do_not_widen_a_log_axis_and_curves_of_zeros_are_left_out() {
        let records = [record("a", 0, 0, 0.0), record("a", 0, 1, 1e-3), record("a", 0, 2, 1e-4)];
        let runs = Runs::new(&records, &[]);
        let panel = &Figure::single(&runs, Quantity::ConsensusError, Axis::Round).panels[0];
        assert_eq!(panel.curves[0].points.iter().filter(|point| panel.y.place(point.y).is_some()).count(), 2);
        assert!(panel.y.range().0 > 1e-8, "{:?}", panel.y);
        let panel = &Figure::single(&runs, Quantity::LossGap, Axis::Round).panels[0];
        assert!(panel.y.log && panel.y_title.contains("least recorded"), "{}", panel.y_title);
        let nothing = [record("a", 0, 0, 0.0)];
        let runs = Runs::new(&nothing, &[]);
        assert!(Figure::single(&runs, Quantity::ConsensusError, Axis::Round).panels[0].curves.is_empty());
    }
}
