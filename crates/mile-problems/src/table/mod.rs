//! `kind = "table"`: regression or classification on the user's own files, CSV, Parquet or Arrow.
//!
//! Data flows one way: [`source`] cuts a file into blocks ([`text`], [`columns`]), [`record`] gives their rows one by one, [`parse`] reads them
//! by the [`layout`] of the columns and the [`formats`] of their numbers ([`decimal`]), [`rows`] numbers the rows of all files, [`divide`] assigns them to agents, [`encode`] makes shards of them, and [`loaded`] keeps those.

mod agent_rows;
mod cell;
mod columns;
mod decimal;
mod divide;
mod divided;
mod encode;
mod foreign;
mod form;
mod formats;
mod here;
mod layout;
mod loaded;
mod look;
mod parse;
mod record;
mod rows;
mod source;
mod spec;
mod statistics;
#[cfg(test)]
mod tests;
mod text;
mod words;
mod written;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::problems::{Batch, Loss, Problem, Table};
use mile::ranks::Together;
use mile::real::{Precision, Real};
use mile::with_precision;
use rayon::prelude::*;

use self::agent_rows::AgentRows;
pub use self::form::TableForm;
pub use self::formats::NumberFormat;
use self::here::{Here, Told};
use self::loaded::Loaded;
pub use self::look::{ColumnLook, ColumnType, TableLook};
use self::rows::Outlines;
use self::spec::HeldOut;
pub use self::statistics::{ColumnStatistics, Statistics};
use super::{
    AnyProblem, Coefficient, Curvature, EvaluationRows, Fact, Facts, Feature, Objectives, RowCounts, Setting,
};
use crate::digest;
use crate::error::{DataFileError, FilePlace, LabError};
use crate::predictions::tagged;
use crate::ranks::{agree, lost};
use crate::section::Section;

pub(super) fn read(section: &Section, setting: Setting) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(Tables::new(Here::all(spec::read(section, setting)?, setting))))
}

/// What all ranks know about their agents' files.
fn tell(here: &Here, hosted: &[usize], ranks: Together<'_>) -> Result<Told, LabError> {
    let own: Result<Vec<(Statistics, [usize; 2])>, LabError> =
        hosted.par_iter().map(|agent| divided::summary_of(here, *agent)).collect();
    let own = serde_json::to_vec(&agree(ranks, own)?).unwrap_or_default();
    let (mut statistics, mut rows) = (Vec::new(), vec![[0; 2]; here.agents]);
    for text in ranks.all_gather(&own).map_err(lost)? {
        let told: Vec<(Statistics, [usize; 2])> =
            serde_json::from_slice(&text).map_err(|error| lost(error.into()))?;
        for (one, count) in told {
            one.agents.iter().for_each(|agent| rows[*agent] = count);
            statistics.push(one);
        }
    }
    Ok(Told { statistics: agree(ranks, Statistics::merge(statistics))?, rows })
}

/// What all ranks know about the rows of a file, after each has added up a part.
fn tell_parts(
    here: &Here,
    outlines: &Outlines,
    hosted: &[usize],
    ranks: Together<'_>,
) -> Result<Told, LabError> {
    let (own, with_words) = agree(ranks, divided::parts_of(here, outlines, hosted))?;
    let own = serde_json::to_vec(&own).unwrap_or_default();
    let mut parts: Vec<Statistics> = Vec::new();
    for text in ranks.all_gather(&own).map_err(lost)? {
        let told: Vec<Statistics> = serde_json::from_slice(&text).map_err(|error| lost(error.into()))?;
        parts.extend(told);
    }
    let statistics = with_words(agree(ranks, Statistics::merge(parts))?);
    // How many rows each agent has is known from the outline.
    Ok(Told { statistics, rows: vec![[0; 2]; here.agents] })
}

fn bad(file: &Path, place: Option<FilePlace>, column: Option<&str>, problem: impl ToString) -> DataFileError {
    let (file, column) = (file.to_owned(), column.map(str::to_owned));
    DataFileError { file, place, column, problem: problem.to_string() }
}

/// The objectives of this kind.
struct Tables {
    here: Arc<Here>,
    loaded: Arc<Loaded>,
    /// The most rows of each agent, for a sample.
    most: Option<u64>,
}

impl Tables {
    fn new(here: Here) -> Self {
        Self { here: Arc::new(here), loaded: Arc::default(), most: None }
    }

    fn build<T: Real>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let tables = self.loaded.tables::<T>(&self.here, seed)?;
        let table: Arc<Table<T>> = match self.most {
            None => tables.all.clone(),
            Some(rows) => Arc::new(tables.sample(&self.here, rows as usize)?),
        };
        Ok(table)
    }

    /// Whether the seed of the run decides which agent has which rows.
    fn is_divided_by_seed(&self) -> bool {
        !self.here.spec.is_divided_by_owner() && self.here.spec.division.seed.is_none()
    }

    /// Digests of the files of a path.
    fn digests_of(&self, key: &str, path: &Path) -> Result<Facts, LabError> {
        let one = |(agent, file): (Option<usize>, PathBuf)| {
            let fact = Fact::from(digest::of_file(&file)?);
            Ok(match agent {
                None => (format!("problem.{key}"), fact),
                Some(agent) => (format!("problem.{key}[{agent}]"), fact.of_agent(agent)),
            })
        };
        self.here.files(path).into_iter().map(one).collect()
    }

    /// What all agents' features have in common, by whatever means they know it.
    fn common_facts(&self) -> Result<Facts, LabError> {
        let mut facts = Facts::new();
        let here = &self.here;
        let is_given = here.spec.files.statistics.is_some() || here.spec.is_per_agent();
        if is_given
            && here.spec.needs_statistics()
            && let Some(statistics) = &self.loaded.about(here)?.statistics
        {
            facts.insert(
                "problem.statistics".into(),
                digest::of_bytes(statistics.to_json().as_bytes()).into(),
            );
        }
        match &here.spec.files.test {
            HeldOut::None => {}
            HeldOut::Share(share) => drop(facts.insert("problem.test".into(), share.to_string().into())),
            HeldOut::Fold { number, of } => {
                facts.insert("problem.test".into(), format!("fold {number} of {of}").into());
            }
            HeldOut::File(path) if !spec::is_per_agent(path) => facts.extend(self.digests_of("test", path)?),
            HeldOut::File(_) => {}
        }
        Ok(facts)
    }
}

impl Objectives for Tables {
    fn title(&self) -> String {
        let data = &self.here.spec.files.data;
        let file = data.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        format!("{} on {file}", self.here.spec.objective.loss_name)
    }

    fn problem(&self, seed: u64, precision: Precision) -> Result<AnyProblem, LabError> {
        Ok(with_precision!(precision, T => self.build::<T>(seed)?.into()))
    }

    fn is_stochastic(&self) -> bool {
        self.here.spec.batch != Batch::Full
    }

    fn depends_on_seed(&self) -> bool {
        self.is_stochastic() || self.is_divided_by_seed()
    }

    fn curvature(&self) -> Curvature {
        match self.here.spec.objective.loss.largest_curvature() {
            Some(_) => Curvature::Steady,
            None => Curvature::Changing,
        }
    }

    fn rows(&self, seed: u64) -> Result<Option<RowCounts>, LabError> {
        self.loaded.rows(&self.here, seed).map(Some)
    }

    fn evaluation_rows(&self) -> Result<Option<EvaluationRows>, LabError> {
        let about = self.loaded.about(&self.here)?;
        let read = |rows: usize| loaded::rows_read(&self.here, about.features.len(), rows) as u64;
        let count =
            |rows: fn(&AgentRows) -> &Vec<u32>| about.agents.iter().map(|own| read(rows(own).len())).sum();
        Ok(Some(EvaluationRows {
            training: count(|own| &own.training),
            test: count(|own| &own.test),
            is_given: true,
        }))
    }

    fn data_bytes(&self, _: u64) -> Result<u64, LabError> {
        let about = self.loaded.about(&self.here)?;
        let rows: usize = about.agents.iter().map(|own| own.training.len() + own.test.len()).sum();
        // Features and target of each row, in double precision, and its weight and offset.
        let columns = &self.here.spec.columns;
        let more = usize::from(columns.weights.is_some()) + usize::from(columns.offset.is_some());
        Ok((rows * (about.features.len() + 1 + more) * size_of::<f64>()) as u64)
    }

    fn sample(&self, rows: u64) -> Option<Arc<dyn Objectives>> {
        let (here, loaded) = (self.here.clone(), self.loaded.clone());
        Some(Arc::new(Self { here, loaded, most: Some(rows) }))
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let mut files = vec![("data", self.here.spec.files.data.clone())];
        files.extend(self.here.spec.files.statistics.clone().map(|path| ("statistics", path)));
        if let HeldOut::File(path) = &self.here.spec.files.test {
            files.push(("test", path.clone()));
        }
        files
    }

    fn path_keys(&self) -> &'static [&'static str] {
        &["data", "statistics", "test"]
    }

    fn digests(&self) -> Result<Facts, LabError> {
        let here = &self.here;
        let mut facts = self.digests_of("data", &here.spec.files.data)?;
        if let HeldOut::File(path) = &here.spec.files.test {
            facts.extend(self.digests_of("test", path)?);
        }
        facts.extend(self.common_facts()?);
        Ok(facts)
    }

    fn shared_facts(&self, _: usize) -> Result<Facts, LabError> {
        let mut facts = self.common_facts()?;
        let about = self.loaded.about(&self.here)?;
        facts.insert("problem.columns".into(), about.features.join(",").into());
        if self.here.spec.has_classes() {
            facts.insert("problem.classes".into(), about.classes.join(",").into());
        }
        if !self.here.spec.is_per_agent() {
            facts.extend(self.digests_of("data", &self.here.spec.files.data)?);
        }
        Ok(facts)
    }

    fn are_divided(&self) -> bool {
        !self.here.spec.is_per_agent()
    }

    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        let own = || Self::new(self.here.only(vec![agent]));
        self.here.spec.is_per_agent().then(|| Arc::new(own()) as Arc<dyn Objectives>)
    }

    fn for_ranks(
        &self,
        hosted: &[usize],
        ranks: Together<'_>,
    ) -> Result<Option<Arc<dyn Objectives>>, LabError> {
        let mut own = self.here.only(hosted.to_vec());
        let outlines = agree(ranks, Outlines::read(&own).map_err(LabError::from))?;
        let needs_numbers = own.spec.needs_statistics() && own.spec.files.statistics.is_none();
        own.told = match own.spec.is_per_agent() {
            true => Some(tell(&self.here, hosted, ranks)?),
            false if needs_numbers => Some(tell_parts(&own, &outlines, hosted, ranks)?),
            false => None,
        };
        let loaded = Arc::new(Loaded::with(outlines));
        Ok(Some(Arc::new(Self { here: Arc::new(own), loaded, most: None })))
    }

    fn statistics(&self, agent: usize) -> Result<Option<Statistics>, LabError> {
        divided::statistics_of(&self.here, agent).map(Some)
    }

    fn coefficients(&self) -> Result<Vec<Coefficient>, LabError> {
        let about = self.loaded.about(&self.here)?;
        let of_class = |class: Option<&String>| -> Vec<Coefficient> {
            let one = |(name, feature): (&String, &Feature)| {
                let (class, feature) = (class.cloned(), feature.clone());
                Coefficient { class, name: name.clone(), feature }
            };
            about.features.iter().zip(&about.made).map(one).collect()
        };
        Ok(match self.here.spec.objective.loss {
            Loss::Softmax { .. } => about.classes.iter().flat_map(|class| of_class(Some(class))).collect(),
            _ => of_class(None),
        })
    }

    fn form(&self, problem: &toml::Table) -> Result<Option<serde_json::Value>, LabError> {
        let about = self.loaded.about(&self.here)?;
        Ok(Some(tagged("table", &TableForm::new(problem, &about))))
    }

    fn notes(&self) -> Result<Vec<String>, LabError> {
        let about = self.loaded.about(&self.here)?;
        let rows: usize = about.agents.iter().map(|own| own.training.len() + own.test.len()).sum();
        let [missing, comments] = about.left_out;
        let said = |count: u64, one: &str, several: &str| match count {
            0 => None,
            1 => Some(format!("data: {count} {one}")),
            _ => Some(format!("data: {count} {several}")),
        };
        let one = format!("row with missing values is left out; {rows} rows are used");
        let several = format!("rows with missing values are left out; {rows} rows are used");
        let missing = said(missing, &one, &several);
        let comments =
            said(comments, "line is a comment and is not read", "lines are comments and are not read");
        let is_part = matches!(self.here.spec.files.test, HeldOut::Share(_) | HeldOut::Fold { .. });
        let none = is_part && about.agents.iter().all(|own| own.test.is_empty());
        let none = none.then(|| {
            "data: the part of the rows that test holds out is less than half a row, so there are none"
                .to_owned()
        });
        Ok(missing.into_iter().chain(comments).chain(none).collect())
    }

    fn documents(&self, seeds: &[u64]) -> Result<Vec<(&'static str, String)>, LabError> {
        let about = self.loaded.about(&self.here)?;
        let statistics = about.statistics.as_ref().map(|found| ("statistics.json", found.to_json()));
        let agents = match self.is_divided_by_seed() {
            false => agent_rows::to_csv(&[(None, about.agents.clone())]),
            true => {
                let of_seed = |seed: &u64| Ok((Some(*seed), self.loaded.agents(&self.here, *seed)?));
                agent_rows::to_csv(&seeds.iter().map(of_seed).collect::<Result<Vec<_>, LabError>>()?)
            }
        };
        Ok(statistics.into_iter().chain([("agents.csv", agents)]).collect())
    }
}
