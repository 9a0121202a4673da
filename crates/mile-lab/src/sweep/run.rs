//! Runs the points of a sweep one after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mile::methods::catalogue::Catalogue;
use mile::problems::Metric;
use mile::ranks::Together;
use mile_store::FolderLock;
use toml::Table;

use super::best::Trial;
use super::folder::SweepFolder;
use super::{Point, Sweep};
use crate::choices::{choose_once, keep_choices};
use crate::engines::{Engines, InProcess};
use crate::error::LabError;
use crate::execute::{check, execute};
use crate::objectives::Kinds;
use crate::observer::Observer;
use crate::plan::Plan;
use crate::quantity::Quantity;
use crate::ranks::{agree, from_first, lost};
use crate::recorded_metrics::Models;
use crate::sharing::MOST_TOGETHER;
use crate::spec::Spec;
use crate::store::{lock_folder, write_file};

/// A sweep that can be run.
#[derive(Clone)]
pub struct SweepPlan {
    /// The section `[sweep]`.
    pub sweep: Sweep,
    /// The points, in the order in which they are run.
    pub points: Vec<Point>,
    file: Table,
    base: PathBuf,
    kinds: Kinds,
    catalogue: Catalogue,
    pub(crate) engines: Arc<dyn Engines>,
}

/// Creates the observer of a plan before it is executed; with the index and the point if it belongs to a sweep.
pub type ObserverFactory<'w> =
    dyn for<'x> Fn(Option<(usize, &'x Point)>, &'x Plan) -> Box<dyn Observer + 'x> + 'w;

impl SweepPlan {
    /// Reads the sweep of an experiment's table, if it has one; relative paths in it are relative to `base`.
    pub fn read(table: &Table, base: &Path) -> Result<Option<Self>, LabError> {
        Self::read_with(table, base, &Kinds::default(), &Catalogue::default(), Arc::new(InProcess))
    }

    /// Reads a sweep with problems of the given kinds and methods of the catalogue, to be run on the given engines.
    pub fn read_with(
        table: &Table,
        base: &Path,
        kinds: &Kinds,
        catalogue: &Catalogue,
        engines: Arc<dyn Engines>,
    ) -> Result<Option<Self>, LabError> {
        let Some(sweep) = Sweep::read(table)? else { return Ok(None) };
        let mut rest = table.clone();
        rest.remove("sweep");
        let points = sweep.points(&rest, catalogue)?;
        let (file, base) = (table.clone(), base.to_owned());
        let (kinds, catalogue) = (kinds.clone(), catalogue.clone());
        Ok(Some(Self { sweep, points, file, base, kinds, catalogue, engines }))
    }

    /// The name of the experiment.
    pub fn name(&self) -> &str {
        self.file.get("name").and_then(|name| name.as_str()).unwrap_or("experiment")
    }

    /// The plan of a point, checked.
    pub fn plan(&self, point: &Point) -> Result<Plan, LabError> {
        let ranks = Together::of(self.engines.ranks());
        self.plan_of(ranks, self.read_point(ranks, point)?)
    }

    /// The plan of a point in its folder: with what was chosen when it was begun, and evaluated like the first point.
    fn plan_in(
        &self,
        ranks: Together<'_>,
        folder: &Path,
        point: &Point,
        first: Option<&Spec>,
    ) -> Result<Plan, LabError> {
        let mut spec = self.read_point(ranks, point)?;
        if from_first(ranks, || Ok(folder.join("config.toml").exists()))? {
            keep_choices(&mut spec, folder, ranks)?;
        }
        if let Some(first) = first.filter(|_| self.has_one_problem()) {
            spec.adopt_evaluation(first);
        }
        self.plan_of(ranks, spec)
    }

    /// Whether all points have the same data, divided among the same agents.
    fn has_one_problem(&self) -> bool {
        if self.sweep.folds.is_some() {
            return false;
        }
        let is_training =
            |key: &str| key == "problem.batch" || !key.starts_with("problem") && !key.starts_with("network");
        self.sweep.values.iter().all(|(key, _)| is_training(key))
    }

    fn read_point(&self, ranks: Together<'_>, point: &Point) -> Result<Spec, LabError> {
        let read = Spec::read_with(&point.table, &self.base, &self.kinds, &self.catalogue);
        agree(ranks, read)
    }

    fn plan_of(&self, ranks: Together<'_>, mut spec: Spec) -> Result<Plan, LabError> {
        choose_once(&mut spec, ranks)?;
        let plan = Plan::spread(spec, self.engines.clone())?;
        agree(ranks, self.criterion(&plan))?;
        Ok(plan)
    }

    /// Runs all points that are not finished, each in `folder/points/NAME`, until `stop` becomes true. The result has the
    /// trials of finished points only. Ranks run each point together, and the first one writes.
    pub fn execute(
        &self,
        folder: &Path,
        resume: bool,
        observers: &ObserverFactory,
        stop: &AtomicBool,
    ) -> Result<SweepFolder, LabError> {
        let ranks = Together::of(self.engines.ranks());
        let place = |point: &Point| folder.join("points").join(&point.name);
        let has_begun = |point: &Point| from_first(ranks, || Ok(place(point).join("config.toml").exists()));
        // Most mistakes show in the first point: it is checked before anything is written, and so is every point
        // that has been started before.
        let first =
            self.points.first().map(|point| self.plan_in(ranks, &place(point), point, None)).transpose()?;
        let criterion = first.as_ref().map(|plan| self.criterion(plan)).transpose()?;
        let criterion = criterion.unwrap_or(Quantity::LocalLoss);
        let first = first.map(|plan| plan.spec);
        let plan = |point: &Point| -> Result<Plan, LabError> {
            let plan = self.plan_in(ranks, &place(point), point, first.as_ref())?;
            agree(ranks, refuse_unrecorded(&plan, criterion))?;
            Ok(plan)
        };
        let mut _lock = None;
        from_first(ranks, || {
            _lock = Some(open(folder, resume)?);
            Ok(())
        })?;
        for point in &self.points {
            if has_begun(point)? {
                let plan = plan(point)?;
                from_first(ranks, || check(&plan, &place(point)))?;
            }
        }
        let mut found = SweepFolder {
            path: folder.to_owned(),
            name: self.name().to_owned(),
            criterion,
            points: self.points.len(),
            trials: from_first(ranks, || Ok(self.previous_trials(folder)))?,
            failed: Vec::new(),
        };
        from_first(ranks, || {
            write_file(&folder.join("sweep.toml"), self.file.to_string().as_bytes())?;
            found.write()
        })?;
        let all: Vec<(usize, &Point)> = self.points.iter().enumerate().collect();
        for group in all.chunks(self.at_once()?) {
            if ranks.any(stop.load(Ordering::Relaxed).into()).map_err(lost)? != 0 {
                break;
            }
            let mut plans = Vec::new();
            for (k, point) in group {
                match plan(point) {
                    Ok(plan) => plans.push((*k, *point, plan)),
                    Err(error) if error.is_of_one_job() => {
                        found.note_failures(
                            point,
                            [("the problem".to_owned(), error.to_string())].into_iter(),
                        );
                    }
                    Err(error) => return Err(error),
                }
            }
            let watched: Vec<_> = plans
                .iter()
                .map(|(k, point, plan)| (*point, plan, observers(Some((*k, *point)), plan)))
                .collect();
            let run = |point: &Point, plan: &Plan, observer: &dyn Observer| {
                execute(plan, &place(point), has_begun(point)?, observer, stop)
            };
            for ((point, plan, _), result) in watched.iter().zip(at_once(&watched, run)) {
                if found.conclude(point, plan, &place(point), result)? {
                    from_first(ranks, || found.write())?;
                }
            }
        }
        Ok(found)
    }

    /// Points that are run at the same time: as many as fit if their jobs compute together, otherwise one.
    pub fn at_once(&self) -> Result<usize, LabError> {
        if !self.engines.computes_together() {
            return Ok(1);
        }
        let Some(first) = self.points.first() else { return Ok(1) };
        let plan = self.plan(first)?;
        let jobs = plan.jobs().len().max(1);
        let fitting = plan.fitting(jobs.saturating_mul(self.points.len()).min(MOST_TOGETHER))?;
        Ok((fitting.unwrap_or(1) / jobs).max(1))
    }

    /// The trials that an earlier process of the same sweep has finished.
    fn previous_trials(&self, folder: &Path) -> Vec<Trial> {
        let before = std::fs::read_to_string(folder.join("sweep.toml")).unwrap_or_default();
        let same = before == self.file.to_string();
        let found = if same { SweepFolder::read(folder).ok() } else { None };
        found.map(|found| found.trials).unwrap_or_default()
    }

    /// The quantity by which the best values are chosen: the given one or, by default, the loss of the agents' own models. Where points
    /// differ in what they minimise, their losses say nothing about which is better: then it is by default what is measured on held-out
    /// data, the loss if possible, and a sweep without such data is refused. A cross-validation always chooses by held-out rows.
    ///
    /// # Errors
    /// If it is not recorded for the problem of this plan, or cannot compare points.
    pub fn criterion(&self, plan: &Plan) -> Result<Quantity, LabError> {
        let (sweep, key) = (&self.sweep, self.sweep.objective_key());
        if let Some(given) = sweep.criterion {
            refuse_unrecorded(plan, given)?;
            if sweep.folds.is_some() && !matches!(given, Quantity::Test(..)) {
                let expected = "a quantity on held-out rows, by which cv compares";
                return Err(LabError::expected("sweep.criterion", expected, given.name()));
            }
            return Ok(given);
        }
        if sweep.folds.is_none() && key.is_none() {
            return Ok(Quantity::LocalLoss);
        }
        if let Some(folds) = sweep.folds.filter(|_| plan.size.metrics.is_empty()) {
            let expected = "fewer folds, each of which holds out rows";
            return Err(LabError::expected("sweep.cv", expected, folds));
        }
        // Where the loss itself is swept, its values on held-out data are no more comparable than those in training.
        let is_loss =
            |(key, _): &(String, _)| ["problem.loss", "problem.delta", "problem.c"].contains(&key.as_str());
        let is_swept = sweep.values.iter().any(is_loss);
        let measured = || plan.size.metrics.iter().filter(|metric| !is_swept || **metric != Metric::TestLoss);
        let metric = measured().find(|metric| **metric == Metric::TestLoss).or_else(|| measured().next());
        metric.map(|metric| Quantity::Test(*metric, Models::Own)).ok_or_else(|| {
            let problem = format!(
                "expected a quantity by which different objectives can be compared, got none; {} changes the objective, so that the \
                 smallest loss does not mean the best model: {}",
                key.unwrap_or("the sweep"),
                to_compare(plan)
            );
            LabError::config("sweep.criterion", problem)
        })
    }
}

/// What to do where points minimise different objectives: hold out data, where the problem has any.
fn to_compare(plan: &Plan) -> &'static str {
    match plan.spec.problem.get("kind").and_then(toml::Value::as_str) {
        Some("table") => {
            "hold out data, as in test = 0.2 in [problem] or cv = 5 in [sweep], to choose by their loss, or name a criterion"
        }
        Some("arrays") => {
            "hold out data, as in test = 0.2 in [problem], to choose by their loss, or name a criterion"
        }
        _ => "no data is held out, so name a criterion, as in criterion = \"grad_norm_sq\" in [sweep]",
    }
}

/// Refuses a criterion that is not recorded for the problem of a point.
fn refuse_unrecorded(plan: &Plan, criterion: Quantity) -> Result<(), LabError> {
    if plan.records(criterion) {
        return Ok(());
    }
    let recorded = Quantity::ALL.into_iter().filter(|quantity| plan.records(*quantity));
    let names: Vec<&str> = recorded.map(Quantity::name).collect();
    let expected = format!("a quantity that is recorded for this problem ({})", names.join(", "));
    Err(LabError::expected("sweep.criterion", expected, criterion.name()))
}

/// A point with its plan and its observer.
type Watched<'x> = (&'x Point, &'x Plan, Box<dyn Observer + 'x>);

/// Runs points at the same time, each in a thread if there are several.
fn at_once<R: Send>(points: &[Watched], run: impl Fn(&Point, &Plan, &dyn Observer) -> R + Sync) -> Vec<R> {
    if let [(point, plan, observer)] = points {
        return vec![run(point, plan, &**observer)];
    }
    let run = &run;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (point, plan, observer) in points {
            threads.push(scope.spawn(move || run(point, plan, &**observer)));
        }
        let ended = |thread: std::thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(ended).collect()
    })
}

/// Creates the folder of a sweep, or checks that it holds one, and locks it.
fn open(folder: &Path, resume: bool) -> Result<FolderLock, LabError> {
    let refuse = |problem: &str| LabError::Directory { path: folder.to_owned(), problem: problem.into() };
    if folder.exists() && !folder.is_dir() {
        return Err(refuse("expected a folder for the sweep, got a file; choose another --out"));
    }
    let used = folder.join("sweep.toml").exists();
    if (used && !resume) || folder.join("config.toml").exists() {
        return Err(refuse("already holds a run; add --resume to resume a sweep, or choose another --out"));
    }
    if !used && resume {
        return Err(refuse("no sweep to resume; leave --resume out, or give its folder with --out"));
    }
    let points = folder.join("points");
    std::fs::create_dir_all(&points).map_err(LabError::io(&points, "create"))?;
    lock_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(key: &str) -> SweepPlan {
        let text = format!(
            "rounds = 40\n[network]\nagents = 4\n[problem]\nkind = 'quadratic'\n[[algorithm]]\nname = 'mile'\nstep_size = 0.1\n\
             [sweep]\ncriterion = 'loss'\n{key} = [5, 6]\n"
        );
        SweepPlan::read(&text.parse().unwrap(), Path::new("")).unwrap().unwrap()
    }

    #[test]
    fn points_of_one_problem_are_evaluated_as_the_first_one_and_begun_points_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let alone = sweep("local_steps");
        let alone = alone.plan(&alone.points[1]).unwrap().spec;
        let first = Spec { eval_every: Some(7), ..alone.clone() };
        let every = |sweep: &SweepPlan| {
            let ranks = Together::of(sweep.engines.ranks());
            let plan = sweep.plan_in(ranks, folder.path(), &sweep.points[1], Some(&first));
            plan.unwrap().spec.eval_every()
        };
        let begun = Spec { eval_every: Some(3), ..alone.clone() };
        let alone = alone.eval_every();
        assert!(![3, 7].contains(&alone));
        assert_eq!(every(&sweep("local_steps")), 7);
        assert_eq!(every(&sweep("'network.agents'")), alone, "other agents have other data");
        std::fs::write(folder.path().join("config.toml"), begun.to_table().to_string()).unwrap();
        assert_eq!(every(&sweep("local_steps")), 3);
    }
}
