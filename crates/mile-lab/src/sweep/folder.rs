//! The results of a sweep, kept in its folder.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Point;
use super::best::{Trial, best_of, best_remarks, best_table, trials_table};
use super::points::fold_folder;
use crate::error::LabError;
use crate::plan::Plan;
use crate::quantity::Quantity;
use crate::record::Record;
use crate::store::{Outcome, read_outcomes, read_records, write_file};

/// A sweep's folder: `sweep.toml`, `points/NAME/` (a run directory each), `sweep.json`, `table.txt`,
/// `table.tex`, `trials.txt`, `figures/`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepFolder {
    /// Its path.
    pub path: PathBuf,
    /// The experiment's name.
    pub name: String,
    /// The quantity by which the best trials are chosen.
    pub criterion: Quantity,
    /// Number of points of the sweep.
    pub points: usize,
    /// The trials of all finished points.
    pub trials: Vec<Trial>,
    /// Jobs that failed when the sweep was last run: the point and the job, and why.
    pub failed: Vec<(String, String)>,
}

/// The contents of `sweep.json`.
#[derive(Serialize, Deserialize)]
struct SweepFile {
    name: String,
    criterion: String,
    points: usize,
    trials: Vec<Trial>,
}

impl SweepFolder {
    /// Whether a folder holds a sweep.
    pub fn is_at(path: &Path) -> bool {
        path.join("sweep.json").exists()
    }

    /// Reads the results of a sweep so far.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let file = path.join("sweep.json");
        let bad = |problem: String| LabError::Directory { path: file.clone(), problem };
        let text = std::fs::read_to_string(&file)
            .map_err(|e| bad(format!("cannot read the results of a sweep: {e}")))?;
        let kept: SweepFile =
            serde_json::from_str(&text).map_err(|e| bad(format!("not a valid sweep file: {e}")))?;
        let criterion = Quantity::named(&kept.criterion);
        let criterion = criterion.ok_or_else(|| bad(format!("unknown criterion '{}'", kept.criterion)))?;
        let SweepFile { name, points, trials, .. } = kept;
        Ok(Self { path: path.to_owned(), name, criterion, points, trials, failed: Vec::new() })
    }

    /// Whether all points are finished.
    pub fn is_complete(&self) -> bool {
        self.finished() == self.points
    }

    /// Adds the results of a point, and returns whether it is finished; or an error that ends the sweep.
    pub(super) fn conclude(
        &mut self,
        point: &Point,
        plan: &Plan,
        out: &Path,
        result: Result<Vec<Outcome>, LabError>,
    ) -> Result<bool, LabError> {
        match result {
            Ok(outcomes) if plan.is_complete(&outcomes) => {
                self.add(point, plan, &outcomes);
                return Ok(true);
            }
            // Interrupted, or a job failed: the point is not finished.
            Ok(outcomes) => self.note_failures(point, outcomes.iter().filter_map(Outcome::failure)),
            Err(LabError::Failed(failed)) => {
                let recorded = read_outcomes(out)?;
                self.note_failures(point, recorded.iter().filter_map(Outcome::failure).chain(failed));
            }
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    pub(super) fn note_failures(&mut self, point: &Point, failed: impl Iterator<Item = (String, String)>) {
        self.failed.extend(failed.map(|(name, why)| (format!("{}: {name}", point.name), why)));
    }

    fn finished(&self) -> usize {
        let points = self.trials.chunk_by(|a, b| a.point == b.point);
        points.map(|trials| trials[0].folds.iter().collect::<HashSet<_>>().len().max(1)).sum()
    }

    /// Adds the trials of a point, or replaces its earlier ones; the outcomes of other folds stay.
    fn add(&mut self, point: &Point, plan: &Plan, outcomes: &[Outcome]) {
        let name = point.combination();
        let place = self.trials.iter().position(|trial| trial.point == name);
        let place = place.unwrap_or(self.trials.len());
        let before: Vec<Trial> = self.trials.extract_if(.., |trial| trial.point == name).collect();
        let mut added = Vec::new();
        for algorithm in &plan.spec.algorithms {
            let known = before.iter().filter(|trial| trial.label == algorithm.label);
            let known = known.flat_map(|trial| trial.folds.iter().copied().zip(&trial.outcomes));
            let others = known.filter(|(fold, _)| Some(*fold) != point.fold);
            let mine = outcomes.iter().filter(|outcome| outcome.label == algorithm.label);
            let mut all: Vec<(Option<u64>, &Outcome)> = others.map(|(fold, o)| (Some(fold), o)).collect();
            all.extend(mine.map(|outcome| (point.fold, outcome)));
            all.sort_by_key(|(fold, _)| *fold);
            added.push(Trial {
                label: algorithm.label.clone(),
                settings: point.settings.clone(),
                point: name.to_owned(),
                folds: all.iter().filter_map(|(fold, _)| *fold).collect(),
                outcomes: all.into_iter().map(|(_, outcome)| outcome.clone()).collect(),
            });
        }
        self.trials.splice(place..place, added);
    }

    pub(super) fn write(&self) -> Result<(), LabError> {
        let kept = SweepFile {
            name: self.name.clone(),
            criterion: self.criterion.name().into(),
            points: self.points,
            trials: self.trials.clone(),
        };
        let text = serde_json::to_string_pretty(&kept).unwrap_or_default();
        let best = best_table(&self.trials, self.criterion);
        let put = |name: &str, text: String| write_file(&self.path.join(name), text.as_bytes());
        put("sweep.json", text)?;
        put("table.txt", self.summary())?;
        put("table.tex", best.to_latex())?;
        put("trials.txt", trials_table(&self.trials, self.criterion).to_string())
    }

    /// The table of the best trials with remarks: the contents of `table.txt`.
    pub fn summary(&self) -> String {
        let mut text = best_table(&self.trials, self.criterion).to_string();
        for remark in self.remarks() {
            text.push_str(&format!("\n{remark}"));
        }
        text + "\n"
    }

    /// Remarks on the results: whether the sweep is finished, and on each best trial.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = best_remarks(&self.trials, self.criterion);
        if !self.is_complete() {
            let progress = format!("unfinished: {} of {} points have been run", self.finished(), self.points);
            remarks.insert(0, progress);
        }
        remarks
    }

    /// The records and outcomes of the best trial of every algorithm, labelled with its values; in a cross-validation, of its first fold.
    pub(crate) fn best_runs(&self) -> Result<(Vec<Record>, Vec<Outcome>), LabError> {
        let (mut records, mut outcomes) = (Vec::new(), Vec::new());
        for best in best_of(&self.trials, self.criterion) {
            let Some(trial) = best.trial else { continue };
            let fold = trial.folds.first().copied();
            let place = fold.map_or_else(|| trial.point.clone(), |fold| fold_folder(&trial.point, fold));
            let fold_name = fold.map_or_else(String::new, |fold| format!(", fold {fold}"));
            let label = format!("{} ({}{fold_name})", best.label, trial.description());
            let kept = read_records(&self.path.join("points").join(place))?;
            let mine = kept.into_iter().filter(|record| record.label == best.label);
            records.extend(mine.map(|record| Record { label: label.clone(), ..record }));
            let with_label = |o: &Outcome| Outcome { label: label.clone(), ..o.clone() };
            outcomes.extend(trial.of_first_fold().map(with_label));
        }
        Ok((records, outcomes))
    }
}
