//! A figure: one or more panels that share a legend.

use super::curve::{Curve, Runs, Series};
use super::scale::Scale;
use crate::quantity::{Axis, Quantity};

/// Above this ratio of the largest to the smallest value a positive quantity gets a logarithmic axis.
const WIDE: f64 = 10.0;
/// A run fails if its loss is ever this many times the largest at the start.
const LOST: f64 = 2.0;

/// One coordinate system with its curves.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_title: String,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) curves: Vec<Curve>,
    /// Algorithms that did not diverge, but leave the picture at the top.
    pub(crate) outside: Vec<String>,
    /// Name of what is drawn, for programs.
    pub(crate) name: String,
}

/// A picture of runs.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file's name, without extension.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What a reader must know: seeds, band, scale.
    pub note: String,
    pub(crate) panels: Vec<Panel>,
    pub(crate) columns: usize,
    pub(crate) series: Vec<Series>,
}

impl Figure {
    /// One quantity against one axis.
    pub fn single(runs: &Runs, quantity: Quantity, axis: Axis) -> Self {
        let mut panel = Panel::new(runs, quantity, axis);
        let title = std::mem::take(&mut panel.title);
        Self {
            name: format!("{}-{}", quantity.name(), axis.name()),
            title,
            note: note(runs, std::slice::from_ref(&panel)),
            panels: vec![panel],
            columns: 1,
            series: runs.series(),
        }
    }

    /// Several panels in rows of two, under one heading.
    pub fn panels(name: &str, title: &str, runs: &Runs, drawn: &[(Quantity, Axis)]) -> Self {
        let have = drawn.iter().filter(|(quantity, _)| runs.have(*quantity));
        let panels: Vec<Panel> = have.map(|(quantity, axis)| Panel::new(runs, *quantity, *axis)).collect();
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            note: note(runs, &panels),
            columns: panels.len().clamp(1, 2),
            panels,
            series: runs.series(),
        }
    }

    /// The same with panels of other records put in at a place, their titles followed by `what`.
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

    /// The same with a sentence added to its note.
    pub fn with_note(mut self, note: &str) -> Self {
        if !note.is_empty() {
            self.note = if self.note.is_empty() { note.to_owned() } else { format!("{}. {note}", self.note) };
        }
        self
    }

    /// The same under another heading.
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }
}

fn note(runs: &Runs, panels: &[Panel]) -> String {
    let seeds = runs.series().iter().map(|series| series.seeds).max().unwrap_or(0);
    let mut parts = Vec::new();
    if runs.have_bands() {
        parts.push(format!("line: mean over {seeds} seeds, band: smallest to largest"));
    } else if seeds == 1 {
        parts.push("one seed".into());
    }
    if runs.series().iter().any(|series| series.diverged > 0) {
        parts.push("\u{00d7} marks where a run diverged".into());
    }
    let mut outside: Vec<&str> = panels.iter().flat_map(|panel| &panel.outside).map(String::as_str).collect();
    outside.sort_unstable();
    outside.dedup();
    if !outside.is_empty() {
        parts.push(format!("off the top: {}", outside.join(", ")));
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
        // A little room, so that the last marker is whole.
        let x = Scale::linear(0.0, if largest > 0.0 { 1.015 * largest / unit } else { 1.0 });
        let name = format!("{}-{}", quantity.name(), axis.name());
        let top = y.range().1;
        let leaves =
            |curve: &&Curve| curve.diverged.is_none() && curve.points.iter().any(|point| point.y > top);
        let outside = curves.iter().filter(leaves).map(|curve| curve.label.clone()).collect();
        Self { title: quantity.title().to_owned(), x_title, x, y, curves, outside, name }
    }
}

/// The range that shows the runs that did not diverge, and the others as far as they go along. Points that
/// a logarithmic axis cannot show are dropped.
fn y_scale(curves: &mut Vec<Curve>, quantity: Quantity) -> Scale {
    let extent = |curves: &[Curve], mut which: Box<dyn FnMut(&Curve) -> bool>, positive: bool| {
        let points = curves.iter().filter(move |curve| which(curve)).flat_map(|curve| &curve.points);
        let shown = points.filter(|point| !positive || point.low > 0.0);
        shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
            (low.min(point.low), high.max(point.high))
        })
    };
    let alive = curves.iter().any(|curve| curve.diverged.is_none());
    let healthy =
        || -> Box<dyn FnMut(&Curve) -> bool> { Box::new(move |c: &Curve| !alive || c.diverged.is_none()) };
    let (low, mut high) = extent(curves, healthy(), false);
    if let Some(most) = most(curves, quantity) {
        high = high.min(most);
    }
    let log = quantity.vanishes() || (!quantity.larger_is_better() && low > 0.0 && high / low >= WIDE);
    if !log {
        let (lost_low, lost_high) = extent(curves, Box::new(|c| c.diverged.is_some()), false);
        let room = 0.25 * (high - low);
        let scale = Scale::linear(low.min(lost_low.max(low - room)), high.max(lost_high.min(high + room)));
        return scale.padded(0.04);
    }
    let (low, positive_high) = extent(curves, healthy(), true);
    let high = high.min(positive_high);
    let (lost_low, lost_high) = extent(curves, Box::new(|c| c.diverged.is_some()), true);
    curves.iter_mut().for_each(|curve| curve.points.retain(|point| point.low > 0.0));
    curves.retain(|curve| !curve.points.is_empty());
    Scale::log(low.min(lost_low.max(low / 10.0)), high.max(lost_high.min(high * 10.0))).padded(0.04)
}

/// The largest loss worth showing: runs that fail without diverging must not squash those that work.
fn most(curves: &[Curve], quantity: Quantity) -> Option<f64> {
    if quantity.vanishes() || quantity.larger_is_better() {
        return None;
    }
    let first =
        curves.iter().filter_map(|curve| curve.points.first()).map(|point| point.high).fold(0.0, f64::max);
    let works = |curve: &&Curve| {
        curve.diverged.is_none() && curve.points.iter().all(|point| point.high <= LOST * first)
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
        assert!(!figure.panels[0].y.log && low > 0.5 && high < 1.3, "{low} {high}");
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
        assert!(figure.note.contains("off the top: bad"), "{}", figure.note);
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
    fn zeros_are_left_out_of_a_log_axis() {
        let records = [record("a", 0, 0, 0.0), record("a", 0, 1, 1e-3), record("a", 0, 2, 1e-4)];
        let runs = Runs::new(&records, &[]);
        let figure = Figure::single(&runs, Quantity::ConsensusError, Axis::Round);
        assert_eq!(figure.panels[0].curves[0].points.len(), 2);
        let nothing = [record("a", 0, 0, 0.0)];
        let runs = Runs::new(&nothing, &[]);
        assert!(Figure::single(&runs, Quantity::ConsensusError, Axis::Round).panels[0].curves.is_empty());
    }
}
