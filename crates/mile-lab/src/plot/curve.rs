//! Curves of records: the mean over seeds with a band, and the seeds that diverged.
//!
//! A diverged seed is not part of the mean: it is drawn separately, up to the round where it ended.

use std::collections::HashMap;

use crate::quantity::{Axis, Quantity};
use crate::record::Record;
use crate::store::{JobStatus, Outcome};

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) round: u64,
    pub(crate) x: f64,
    /// Mean over the seeds that have this round; NaN where there is no value, because all trials of a sweep diverged.
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    /// Index of the algorithm in the legend.
    pub(crate) series: usize,
    pub(crate) label: String,
    pub(crate) points: Vec<Point>,
    /// The seed, if this is the curve of one seed that diverged at the last point.
    pub(crate) diverged: Option<u64>,
}

impl Curve {
    /// Whether it falls to zero after having been above it.
    pub(crate) fn falls_to_zero(&self) -> bool {
        self.points.iter().skip_while(|point| point.y <= 0.0).any(|point| point.y <= 0.0)
    }
}

/// An algorithm in the legend; not shown if the figure has none of its seeds. Its index in the figure's list determines its
/// colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) seeds: usize,
    pub(crate) diverged: usize,
}

impl Series {
    /// Its text in the legend.
    pub(crate) fn legend(&self) -> String {
        match (self.diverged, self.seeds) {
            (0, _) => self.label.clone(),
            (some, all) if some == all => format!("{} (diverged)", self.label),
            (some, all) => format!("{} ({some} of {all} diverged)", self.label),
        }
    }
}

/// Records grouped by algorithm and seed.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    labels: Vec<Vec<Run<'a>>>,
    /// The least loss recorded with each seed: runs of one seed have the same objective.
    least: HashMap<u64, f64>,
}

#[derive(Clone, Debug)]
struct Run<'a> {
    seed: u64,
    diverged: bool,
    records: Vec<&'a Record>,
}

impl<'a> Runs<'a> {
    /// Groups records; without an outcome, a run diverged if its last loss is not finite.
    pub fn new(records: &'a [Record], outcomes: &[Outcome]) -> Self {
        let mut labels: Vec<Vec<Run>> = Vec::new();
        for record in records {
            let of_label = labels.iter_mut().find(|runs| runs[0].records[0].label == record.label);
            let run = || Run { seed: record.seed, diverged: false, records: vec![record] };
            match of_label {
                None => labels.push(vec![run()]),
                Some(runs) => match runs.iter_mut().find(|run| run.seed == record.seed) {
                    None => runs.push(run()),
                    Some(run) => run.records.push(record),
                },
            }
        }
        for run in labels.iter_mut().flatten() {
            run.records.sort_by_key(|record| record.round);
            let (first, last) = (run.records[0], run.records[run.records.len() - 1]);
            let outcome = outcomes.iter().find(|o| o.label == first.label && o.seed == run.seed);
            run.diverged = outcome.is_some_and(|o| o.status == JobStatus::Diverged) || !last.loss.is_finite();
        }
        let mut least = HashMap::new();
        for record in records.iter().filter(|record| record.loss.is_finite()) {
            let known = least.entry(record.seed).or_insert(record.loss);
            *known = record.loss.min(*known);
        }
        Self { labels, least }
    }

    /// The value of a quantity in a record.
    fn value(&self, quantity: Quantity, record: &Record) -> Option<f64> {
        match quantity {
            Quantity::LossGap => Some(record.loss - self.least.get(&record.seed)?),
            other => other.of(record),
        }
    }

    /// Sorts the algorithms in the order of `labels`; others come last.
    pub fn in_order(mut self, labels: &[&str]) -> Self {
        let place = |runs: &Vec<Run>| labels.iter().position(|label| *label == runs[0].records[0].label);
        self.labels.sort_by_key(|runs| place(runs).unwrap_or(usize::MAX));
        self
    }

    /// The algorithms, in order.
    pub(crate) fn series(&self) -> Vec<Series> {
        let series = |runs: &Vec<Run>| Series {
            label: runs[0].records[0].label.clone(),
            seeds: runs.len(),
            diverged: runs.iter().filter(|run| run.diverged).count(),
        };
        self.labels.iter().map(series).collect()
    }

    /// Whether any record has the quantity; for the loss above the least, whether any is above it.
    pub fn have(&self, quantity: Quantity) -> bool {
        let shown = |value: f64| quantity != Quantity::LossGap || value > 0.0;
        let mut records = self.labels.iter().flatten().flat_map(|run| &run.records);
        records.any(|record| self.value(quantity, record).is_some_and(shown))
    }

    /// The axes of which any record has a value.
    pub fn axes(&self) -> impl Iterator<Item = Axis> + '_ {
        let records = || self.labels.iter().flatten().flat_map(|run| &run.records);
        Axis::ALL.into_iter().filter(move |axis| records().any(|record| axis.of(record).is_some()))
    }

    /// Whether any algorithm has a band, that is several seeds that did not diverge.
    pub(crate) fn have_bands(&self) -> bool {
        self.labels.iter().any(|runs| runs.iter().filter(|run| !run.diverged).count() > 1)
    }

    /// All curves of a quantity against an axis.
    pub(crate) fn curves(&self, quantity: Quantity, axis: Axis) -> Vec<Curve> {
        let mut curves = Vec::new();
        for (series, runs) in self.labels.iter().enumerate() {
            let label = runs[0].records[0].label.clone();
            let alive: Vec<&Run> = runs.iter().filter(|run| !run.diverged).collect();
            let mut add = |label: String, runs: &[&Run], diverged: Option<u64>| {
                let points = self.points(runs, quantity, axis);
                if !points.is_empty() {
                    curves.push(Curve { series, label, points, diverged });
                }
            };
            if !alive.is_empty() {
                add(label.clone(), &alive, None);
            }
            for run in runs.iter().filter(|run| run.diverged) {
                let name = if runs.len() > 1 { format!("{label}, seed {}", run.seed) } else { label.clone() };
                add(name, &[run], Some(run.seed));
            }
        }
        curves
    }

    /// The mean over runs at every round at which any of them has a finite value.
    fn points(&self, runs: &[&Run], quantity: Quantity, axis: Axis) -> Vec<Point> {
        let mut values: Vec<(u64, f64, f64)> = Vec::new();
        for record in runs.iter().flat_map(|run| &run.records) {
            let y = self.value(quantity, record).filter(|y| y.is_finite());
            if let (Some(x), Some(y)) = (axis.of(record), y) {
                values.push((record.round, x, y));
            }
        }
        values.sort_by_key(|value| value.0);
        let mean = |group: &[(u64, f64, f64)]| {
            let count = group.len() as f64;
            Point {
                round: group[0].0,
                x: group.iter().map(|v| v.1).sum::<f64>() / count,
                y: group.iter().map(|v| v.2).sum::<f64>() / count,
                low: group.iter().map(|v| v.2).fold(f64::INFINITY, f64::min),
                high: group.iter().map(|v| v.2).fold(f64::NEG_INFINITY, f64::max),
            }
        };
        values.chunk_by(|a, b| a.0 == b.0).map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use mile::problems::Metric;

    use super::*;
    use crate::record::tests::record;
    use crate::recorded_metrics::Models;

    #[test]
    fn the_mean_and_the_band_are_over_the_seeds_that_did_not_diverge() {
        let mut records = Vec::new();
        for (seed, factor) in [(0, 1.0), (1, 3.0)] {
            records.extend((0..4).map(|round| record("a", seed, round, factor / (1.0 + round as f64))));
        }
        records.extend((0..2).map(|round| record("a", 2, round, 1e6f64.powi(round as i32))));
        records.push(record("a", 2, 2, f64::NAN));
        let runs = Runs::new(&records, &[]);
        assert_eq!(runs.series()[0].legend(), "a (1 of 3 diverged)");
        let curves = runs.curves(Quantity::Loss, Axis::BytesSent);
        assert_eq!(curves.len(), 2);
        assert_eq!(curves[0].points[1], Point { round: 1, x: 100.0, y: 1.0, low: 0.5, high: 1.5 });
        assert_eq!((curves[1].diverged, curves[1].points.len()), (Some(2), 2), "NaN is no point");
        assert!(
            !runs.have(Quantity::Test(Metric::Accuracy, Models::Average)) && runs.have(Quantity::LocalLoss)
        );
    }

    #[test]
    fn a_gap_is_above_the_least_loss_of_the_same_seed() {
        let records = [
            record("a", 0, 0, 3.0),
            record("a", 0, 1, 2.0),
            record("a", 1, 0, 30.0),
            record("a", 1, 1, 25.0),
            record("b", 0, 1, 1.0),
            record("b", 1, 1, 20.0),
            record("b", 1, 2, f64::NAN),
        ];
        let runs = Runs::new(&records, &[]);
        let curves = runs.curves(Quantity::LossGap, Axis::Round);
        let values: Vec<(f64, f64, f64)> = curves[0].points.iter().map(|p| (p.low, p.y, p.high)).collect();
        assert_eq!(values, [(2.0, 6.0, 10.0), (1.0, 3.0, 5.0)]);
        assert_eq!(curves[1].points[0].y, 0.0, "the best run of seed 0 ends at zero");
        assert!(runs.have(Quantity::LossGap) && !Runs::new(&records[..1], &[]).have(Quantity::LossGap));
    }

    #[test]
    fn the_order_of_the_legend_can_be_given() {
        let records = [record("b", 0, 0, 1.0), record("a", 0, 0, 1.0), record("c", 0, 0, 1.0)];
        let series = Runs::new(&records, &[]).in_order(&["a", "b"]).series();
        let labels: Vec<&str> = series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels, ["a", "b", "c"]);
    }

    #[test]
    fn a_seed_that_has_not_come_as_far_leaves_the_mean_to_the_others() {
        let mut records: Vec<_> = (0..3).map(|round| record("a", 0, round, 1.0)).collect();
        records.push(record("a", 1, 0, 3.0));
        let curves = Runs::new(&records, &[]).curves(Quantity::Loss, Axis::Round);
        let means: Vec<f64> = curves[0].points.iter().map(|point| point.y).collect();
        assert_eq!(means, [2.0, 1.0, 1.0]);
    }
}
