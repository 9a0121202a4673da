//! The rows of the user's files, divided among the agents and into training and held-out rows; their classes and statistics.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use mile::problems::Loss;
use rayon::prelude::*;

use super::agent_rows::AgentRows;
use super::bad;
use super::divide::{self, Division};
use super::here::Here;
use super::layout::Role;
use super::parse::File;
use super::rows::{Outlines, Rows, check_features};
use super::spec::{HeldOut, file_of, is_per_agent};
use super::statistics::{ColumnStatistics, Statistics, Sums};
use super::words::{class, sort};
use crate::error::{DataFileError, LabError};

/// Most classes of a target.
const MOST_CLASSES: usize = 1000;

/// What rows are read for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Use {
    Training,
    /// Statistics of one agent, which may have fewer classes than all together.
    Summary,
}

/// The training rows and the held-out rows of all agents.
pub(super) struct Divided {
    pub(super) rows: Arc<Rows>,
    pub(super) training: Division,
    /// Held-out rows with their files; `None`: those of the training files.
    pub(super) other: Option<Arc<Rows>>,
    pub(super) held_out: Division,
    pub(super) classes: Vec<String>,
    /// Rows with missing values that were left out, and comments.
    pub(super) left_out: [u64; 2],
    owners: Vec<String>,
    /// Statistics from a file.
    given: Option<Statistics>,
}

/// The statistics of one agent's data.
pub(super) fn statistics_of(here: &Here, agent: usize) -> Result<Statistics, LabError> {
    summary_of(here, agent).map(|(statistics, _)| statistics)
}

/// The statistics of one agent's data, and the numbers of its training and held-out rows.
pub(super) fn summary_of(here: &Here, agent: usize) -> Result<(Statistics, [usize; 2]), LabError> {
    let mut spec = (*here.spec).clone();
    spec.files.statistics = None;
    if matches!(&spec.files.test, HeldOut::File(path) if !is_per_agent(path)) {
        // A file that all agents share reveals nothing about this one.
        spec.files.test = HeldOut::None;
    }
    let own = if spec.is_per_agent() { here.only(vec![agent]) } else { here.clone() };
    let here = Here { spec: Arc::new(spec), ..own };
    let divided = Divided::read(&here, &Outlines::default(), here.spec.data_seed(0), Use::Summary)?;
    let rows = [&divided.training, &divided.held_out].map(|all| all.get(agent).map_or(0, Vec::len));
    Ok((divided.with_words(divided.numbers_of(agent, &divided.training[agent])), rows))
}

/// The statistics of parts of a file that all ranks read, those of the agents hosted here; and what is known of its words.
pub(super) fn parts_of(
    here: &Here,
    outlines: &Outlines,
    hosted: &[usize],
) -> Result<(Vec<Statistics>, impl FnOnce(Statistics) -> Statistics), LabError> {
    let mut divided = Divided::divide(here, outlines, here.spec.data_seed(0), Use::Training)?;
    let parts = divided.rows_of_statistics(here).into_owned();
    divided.rows = Arc::new(divided.rows.keep(&here.spec.files.data, here, &merged(hosted, [&parts]))?);
    let own = hosted.par_iter().map(|agent| divided.numbers_of(*agent, &parts[*agent])).collect();
    Ok((own, move |numbers| divided.with_words(numbers)))
}

/// The rows of some agents in several divisions, in increasing order.
fn merged<'d>(agents: &[usize], divisions: impl IntoIterator<Item = &'d Division>) -> Vec<u32> {
    let of = |division: &'d Division| agents.iter().filter_map(|agent| division.get(*agent));
    let mut rows: Vec<u32> = divisions.into_iter().flat_map(of).flatten().copied().collect();
    rows.sort_unstable();
    rows
}

impl Divided {
    /// Reads the rows; of files with outlines, only those of the agents whose rows are kept here.
    pub(super) fn read(
        here: &Here,
        outlines: &Outlines,
        seed: u64,
        use_of_rows: Use,
    ) -> Result<Self, LabError> {
        let mut divided = Self::divide(here, outlines, seed, use_of_rows)?;
        let hosted: Vec<usize> = (0..here.agents).filter(|agent| here.is_here(*agent)).collect();
        if outlines.data.is_some() {
            let held_out = divided.other.is_none().then_some(&divided.held_out);
            let own = merged(&hosted, [&divided.training].into_iter().chain(held_out));
            divided.rows = Arc::new(divided.rows.keep(&here.spec.files.data, here, &own)?);
        }
        if let (HeldOut::File(path), Some(outline)) = (&here.spec.files.test, &outlines.test) {
            let own = merged(&hosted, [&divided.held_out]);
            divided.other = Some(Arc::new(outline.keep(path, here, &own)?));
        }
        Ok(divided)
    }

    /// Divides the rows; files with outlines are not read.
    fn divide(here: &Here, outlines: &Outlines, seed: u64, use_of_rows: Use) -> Result<Self, LabError> {
        let read = |path, outline: &Option<Arc<Rows>>| match outline {
            Some(rows) => Ok(rows.clone()),
            None => Rows::read(path, here).map(Arc::new),
        };
        let told = || here.told.as_ref().map(|told| told.statistics.clone());
        let given = here.spec.files.statistics.as_deref().map(Statistics::read).transpose()?.or_else(told);
        let rows = read(&here.spec.files.data, &outlines.data)?;
        let owners = divide::owners(&rows, here)?;
        let classes = classes(&rows, here, given.as_ref(), use_of_rows)?;
        let codes = class_codes(&rows, &classes)?;
        let labels = here.spec.has_classes().then_some((classes.len(), &codes[..]));
        let (training, mut held_out) = divide::training(&rows, labels, &owners, here, seed)?;
        let mut other = None;
        if let HeldOut::File(path) = &here.spec.files.test {
            let rows_of_test = read(path, &outlines.test)?;
            check_features(&rows_of_test.files[0], &rows.files[0])?;
            held_out = divide::held_out(&rows_of_test, &owners, here)?;
            other = Some(rows_of_test);
        }
        let files = rows.files.iter().chain(other.iter().flat_map(|rows| &rows.files));
        let left_out = files.map(File::left_out).fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        Ok(Self { rows, training, other, held_out, classes, left_out, owners, given })
    }

    /// The statistics of all agents' data, if they are needed: given, or computed where all data is available.
    pub(super) fn statistics(&self, here: &Here) -> Result<Option<Statistics>, LabError> {
        let found = match (&self.given, here.is_partial()) {
            (Some(_), _) if here.spec.files.statistics.is_none() && !here.spec.needs_statistics() => {
                return Ok(None);
            }
            (Some(given), _) => {
                self.check(given, here)?;
                given.clone()
            }
            (None, _) if !here.spec.needs_statistics() => return Ok(None),
            (None, true) => {
                let problem = "missing; standardise, categorical, missing = \"mean\" and weights need numbers from all agents' data, \
                               and an agent has only its own; summarise each agent's data with mile data \
                               summary, merge the summaries with mile data merge, and give every agent the result, as in \
                               statistics = \"statistics.json\"";
                return Err(LabError::config("problem.statistics", problem));
            }
            (None, false) => {
                let rows = self.rows_of_statistics(here);
                let parts = rows.par_iter().enumerate().map(|(agent, rows)| self.numbers_of(agent, rows));
                self.with_words(Statistics::merge(parts.collect())?)
            }
        };
        let is_used = here.spec.columns.standardise || here.spec.columns.missing.fills_numbers();
        for column in found.columns.iter().filter(|_| is_used) {
            let problem = match column.count {
                0 => "no training row has a value; leave it out with exclude",
                _ if !column.deviation().is_finite() => {
                    "values are too large for a mean; scale or exclude it"
                }
                _ => continue,
            };
            return Err(bad(&self.rows.files[0].path, None, Some(&column.name), problem).into());
        }
        Ok(Some(found))
    }

    /// Checks that given statistics are those of the features of all agents.
    fn check(&self, given: &Statistics, here: &Here) -> Result<(), LabError> {
        let path = here.spec.files.statistics.clone().unwrap_or_default();
        let refuse = |problem: String| Err(LabError::Directory { path: path.clone(), problem });
        if let Some(agent) = (0..here.agents).find(|agent| !given.agents.contains(agent)) {
            return refuse(format!(
                "the statistics of agent {agent} are missing; merge those of all {} agents",
                here.agents
            ));
        }
        if let Some(agent) = given.agents.iter().find(|agent| **agent >= here.agents) {
            return refuse(format!(
                "holds statistics of agent {agent}, but there are only {} agents",
                here.agents
            ));
        }
        let found: Vec<&str> = given.columns.iter().map(|column| column.name.as_str()).collect();
        let expected: Vec<&str> = self.numbers().collect();
        if found != expected {
            return refuse(format!(
                "expected the columns of the data, {}, got {}",
                expected.join(", "),
                found.join(", ")
            ));
        }
        if here.spec.columns.weights.is_some() && given.weight.is_none() {
            return refuse(
                "the sum of the rows' weights is missing; summarise each agent's data again".into(),
            );
        }
        match here.spec.columns.categorical.iter().find(|name| !given.categories.contains_key(*name)) {
            Some(name) => refuse(format!("the categories of column '{name}' are missing")),
            None => Ok(()),
        }
    }

    /// Names of the numeric features, whose numbers are the first of each row, in this order.
    fn numbers(&self) -> impl Iterator<Item = &str> {
        let features = self.rows.layout().features.iter();
        features.filter(|(_, role)| matches!(role, Role::Number(_))).map(|(name, _)| name.as_str())
    }

    /// The training rows, in as many parts as there are agents, in whose order their statistics are merged: those of each
    /// agent, or, where the seed of the run divides them, parts that are the same for all seeds.
    fn rows_of_statistics(&self, here: &Here) -> Cow<'_, Division> {
        if here.spec.is_divided_by_owner() {
            return Cow::Borrowed(&self.training);
        }
        let mut all: Vec<u32> = self.training.concat();
        all.sort_unstable();
        let cut = |agent: usize| agent * all.len() / here.agents;
        Cow::Owned((0..here.agents).map(|agent| all[cut(agent)..cut(agent + 1)].to_vec()).collect())
    }

    /// The statistics of the numbers in an agent's training rows.
    fn numbers_of(&self, agent: usize, training: &[u32]) -> Statistics {
        let names: Vec<&str> = self.numbers().collect();
        let Sums { counts, means, squares } =
            Sums::of(names.len(), || self.rows.some(training).map(|row| row.numbers));
        let column = |k: usize| ColumnStatistics {
            name: names[k].to_owned(),
            count: counts[k],
            mean: means[k],
            squares: squares[k],
        };
        let weight = |place: usize| self.rows.some(training).map(|row| row.numbers[place]).sum();
        Statistics {
            agents: vec![agent],
            rows: training.len() as u64,
            weight: self.rows.layout().weight.map(weight),
            columns: (0..names.len()).map(column).collect(),
            categories: BTreeMap::new(),
            classes: Vec::new(),
        }
    }

    /// Adds the categories and classes of all available rows.
    fn with_words(&self, numbers: Statistics) -> Statistics {
        let words = self.rows.layout().features.iter().filter(|(_, role)| matches!(role, Role::Word(_)));
        let sorted = |mut names: Vec<String>| {
            sort(&mut names);
            names
        };
        let names = |role: Role| sorted(self.rows.names(role, class).into_iter().collect());
        Statistics {
            categories: words.map(|(name, role)| (name.clone(), names(*role))).collect(),
            classes: sorted(self.classes.clone()),
            ..numbers
        }
    }

    /// The rows of each agent whose rows are known here.
    pub(super) fn agents(&self, here: &Here) -> Vec<AgentRows> {
        let source = |agent: usize| match self.owners.get(agent) {
            Some(owner) => owner.clone(),
            None => file_of(&here.spec.files.data, agent).display().to_string(),
        };
        let one = |agent: usize| {
            let [training, test] = match here.spec.is_per_agent() {
                true => self.rows_of_file(here, agent),
                false => [&self.training, &self.held_out].map(|all| of(all, agent).to_vec()),
            };
            AgentRows { agent, source: source(agent), training, test }
        };
        match here.told {
            Some(_) => (0..here.agents).map(one).collect(),
            None => here.available().into_iter().map(one).collect(),
        }
    }

    /// The training rows and the held-out rows of an agent with its own file, by their places there. Other ranks' files are not
    /// read here, but they have reported how many rows there are, which decides what is held out.
    fn rows_of_file(&self, here: &Here, agent: usize) -> [Vec<u32>; 2] {
        let told = here.told.as_ref().map_or([0; 2], |told| told.rows[agent]);
        let training = told[0].max(of(&self.training, agent).len());
        let test = told[1].max(of(&self.held_out, agent).len());
        let all = |rows: usize| (0..rows as u32).collect();
        match &here.spec.files.test {
            HeldOut::File(path) if is_per_agent(path) => [all(training), all(test)],
            HeldOut::File(_) => [all(training), of(&self.held_out, agent).to_vec()],
            HeldOut::None | HeldOut::Share(_) | HeldOut::Fold { .. } => {
                divide::shares(all(training + test), here, agent)
            }
        }
    }
}

/// The rows of an agent in a division.
fn of(division: &Division, agent: usize) -> &[u32] {
    division.get(agent).map_or(&[], |rows| rows)
}

/// The classes of the target, in order: given, or those of the statistics, or those of the data.
fn classes(
    rows: &Rows,
    here: &Here,
    given: Option<&Statistics>,
    use_of_rows: Use,
) -> Result<Vec<String>, LabError> {
    if !here.spec.has_classes() {
        return Ok(Vec::new());
    }
    let target = rows.layout().target;
    let two = !matches!(here.spec.objective.loss, Loss::Softmax { .. });
    let named = here.spec.columns.classes.clone().or_else(|| given.map(|given| given.classes.clone()));
    if two && use_of_rows == Use::Training {
        refuse_third_class(rows, named.as_deref().unwrap_or_default())?;
    }
    if let Some(classes) = named.filter(|classes| classes.len() >= 2) {
        return Ok(classes);
    }
    let mut classes: Vec<String> = rows.names(target, class).into_iter().collect();
    sort(&mut classes);
    let refuse = |problem: String| bad(&rows.files[0].path, None, Some(&here.spec.columns.target), problem);
    if classes.len() > MOST_CLASSES {
        let problem =
            format!("expected at most {MOST_CLASSES} classes, got {} different values", classes.len());
        return Err(refuse(problem).into());
    }
    if use_of_rows == Use::Summary {
        return Ok(classes);
    }
    if !two && here.is_partial() {
        let problem = "missing; other agents' files are not available and may have other classes; name them all, as in \
                       classes = [\"a\", \"b\", \"c\"], or give the agents' statistics";
        return Err(LabError::config("problem.classes", problem));
    }
    if classes.len() < 2 {
        let remedy = match here.is_partial() {
            true => {
                ", and other agents' files are not available; name all classes in [problem], as in classes = [0, 1]"
            }
            false if two => "; a logistic loss needs two",
            false => "; softmax needs two or more",
        };
        let problem = format!("only one class, '{}'{remedy}", classes.concat());
        return Err(refuse(problem).into());
    }
    Ok(classes)
}

/// Refuses a third class, where it occurs first.
fn refuse_third_class(rows: &Rows, named: &[String]) -> Result<(), DataFileError> {
    let Role::Word(column) = rows.layout().target else { return Ok(()) };
    let mut seen = named.to_vec();
    for file in &rows.files {
        for (word, place) in &file.words[column].found {
            let word = class(word);
            if !seen.contains(&word) {
                seen.push(word);
            }
            if seen.len() > 2 {
                let name = file.layout.name(file.layout.target);
                let problem = format!("a third class ({}); a logistic loss has two", seen.join(", "));
                return Err(bad(&file.path, Some(*place), Some(name), problem));
            }
        }
    }
    Ok(())
}

/// For each file, the number of the class of each word of the target.
pub(super) fn class_codes(rows: &Rows, classes: &[String]) -> Result<Vec<Vec<u32>>, DataFileError> {
    let unknown = |word: &str| format!("expected one of the classes {}, got '{word}'", classes.join(", "));
    rows.codes(rows.layout().target, class, classes, None, &unknown)
}
