//! A table as one process has it: which agents' rows are kept here, and what is known of the others'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::spec::{TableSpec, file_of, is_per_agent};
use super::statistics::Statistics;
use crate::Setting;
use crate::reading::ReadingProgress;

/// A table in one process.
#[derive(Clone, Debug)]
pub(super) struct Here {
    /// The section that describes it.
    pub(super) spec: Arc<TableSpec>,
    /// Number of agents.
    pub(super) agents: usize,
    /// The agents whose rows are kept here, if not all. With one file for each agent, only these are read.
    pub(super) only: Option<Vec<usize>>,
    /// What the other ranks have reported about their agents' files.
    pub(super) told: Option<Told>,
    /// Whether rows have targets. Those without are to be predicted: all of them are kept, also with missing values.
    pub(super) is_labelled: bool,
    /// Who is told how much of the files has been read.
    pub(super) progress: ReadingProgress,
}

/// What ranks report to each other about the files of all agents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    /// The statistics of all agents' data.
    pub(super) statistics: Statistics,
    /// Training rows and held-out rows of each agent's files.
    pub(super) rows: Vec<[usize; 2]>,
}

impl Here {
    /// A table whose rows are all in this process.
    pub(super) fn all(spec: TableSpec, setting: Setting) -> Self {
        let (agents, progress) = (setting.agents, setting.progress.clone());
        Self { spec: Arc::new(spec), agents, only: None, told: None, is_labelled: true, progress }
    }

    /// Rows to be predicted, all in this process.
    pub(super) fn unlabelled(spec: TableSpec, setting: Setting) -> Self {
        Self { is_labelled: false, ..Self::all(spec, setting) }
    }

    /// The same table with the rows of these agents only.
    pub(super) fn only(&self, agents: Vec<usize>) -> Self {
        Self { only: Some(agents), ..self.clone() }
    }

    /// Whether the rows of an agent are kept here.
    pub(super) fn is_here(&self, agent: usize) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&agent))
    }

    /// Whether there are files of other agents that are not read here.
    pub(super) fn is_partial(&self) -> bool {
        self.only.is_some() && self.spec.is_per_agent()
    }

    /// Whether this is one of several ranks, which know about all agents' rows.
    pub(super) fn is_rank(&self) -> bool {
        self.told.is_some() || (self.only.is_some() && !self.spec.is_per_agent())
    }

    /// The agents whose files are read, with one file for each agent; otherwise all.
    pub(super) fn available(&self) -> Vec<usize> {
        match &self.only {
            Some(only) if self.spec.is_per_agent() => only.clone(),
            _ => (0..self.agents).collect(),
        }
    }

    /// The files of a path, with the agent of each if it has one.
    pub(super) fn files(&self, path: &Path) -> Vec<(Option<usize>, PathBuf)> {
        if is_per_agent(path) {
            self.available().into_iter().map(|agent| (Some(agent), file_of(path, agent))).collect()
        } else {
            vec![(None, path.to_owned())]
        }
    }
}
