//! `kind = "python"`: objectives that a function in a Python file makes.
//!
//! The Python package computes them. What every program knows is the section, so that it can check experiments of this kind, read
//! their results, and say what runs them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile::real::Precision;
use toml::{Table, Value};

use crate::digest;
use crate::error::{DataFileError, LabError};
use crate::section::{Section, resolve};
use crate::{AnyProblem, Fact, Facts, Objectives, Setting};

/// A function or a class in a Python file, and what it is called with: the keys `factory`, `arguments` and `files` of a section.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PythonFunction {
    /// The file.
    pub file: PathBuf,
    /// The name of the function or class.
    pub name: String,
    /// What it is called with.
    pub arguments: Table,
    /// Files beside it that it needs; `{agent}` in a path stands for the number of an agent, which needs only its own.
    pub files: Vec<PathBuf>,
}

impl PythonFunction {
    /// Keys whose values differ between machines.
    pub const PATH_KEYS: &'static [&'static str] = &["factory", "files"];

    /// Reads the keys of a section, if it has a factory; relative paths are relative to `folder`.
    pub fn read(section: &Section, folder: &Path, expected: &str) -> Result<Option<Self>, LabError> {
        let Some(text) = section.text("factory", expected)? else { return Ok(None) };
        let (file, name) = match text.rsplit_once(':') {
            Some((file, name)) if !file.is_empty() && !name.is_empty() => (file, name),
            _ => return Err(LabError::expected(section.path("factory"), expected, format!("\"{text}\""))),
        };
        let expected = "a table of arguments, such as { width = 64 }";
        let arguments = match section.value("arguments") {
            None => Table::new(),
            Some(Value::Table(table)) => table.clone(),
            Some(other) => return Err(section.refuse("arguments", other, expected)),
        };
        let (file, files) = (resolve(folder, file), files(section, folder)?);
        let found = Self { file, name: name.to_owned(), arguments, files };
        found.to_table().into_iter().for_each(|(key, value)| section.keep(&key, value));
        Ok(Some(found))
    }

    /// The keys, as they are written.
    pub fn to_table(&self) -> Table {
        let factory = format!("{}:{}", self.file.display(), self.name);
        let mut table = Table::from_iter([("factory".to_owned(), factory.into())]);
        if !self.arguments.is_empty() {
            table.insert("arguments".to_owned(), self.arguments.clone().into());
        }
        if !self.files.is_empty() {
            let files: Vec<Value> = self.files.iter().map(|path| path.display().to_string().into()).collect();
            table.insert("files".to_owned(), files.into());
        }
        table
    }

    /// The files that agents on other machines need, by key.
    pub fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let beside = self.files.iter().map(|path| ("files", path.clone()));
        std::iter::once(("factory", self.file.clone())).chain(beside).collect()
    }

    /// The paths of all files.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        std::iter::once(&mut self.file).chain(&mut self.files)
    }

    /// Digests of the function, and of the files that all agents have, under the name of the section.
    pub fn shared_digests(&self, section: &str) -> Result<Facts, LabError> {
        let mut found = Facts::from([(format!("{section}.function"), self.name.as_str().into())]);
        found.insert(format!("{section}.factory"), digest::of_file(&self.file)?.into());
        for path in self.files.iter().filter(|path| !is_of_an_agent(path)) {
            found.insert(fact_of(section, path), digest::of_file(path)?.into());
        }
        Ok(found)
    }

    /// The same, and digests of the files that each of these agents has for itself.
    pub fn digests(&self, section: &str, agents: Range<usize>) -> Result<Facts, LabError> {
        let mut found = self.shared_digests(section)?;
        let own = self.files.iter().filter(|path| is_of_an_agent(path));
        for (path, agent) in own.flat_map(|path| agents.clone().map(move |agent| (path, agent))) {
            let path = PathBuf::from(path.to_string_lossy().replace(AGENT, &agent.to_string()));
            let digest = digest::of_file(&path).map_err(elsewhere)?;
            found.insert(fact_of(section, &path), Fact::from(digest).of_agent(agent));
        }
        Ok(found)
    }
}

/// The section `[problem]` of this kind.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Factory {
    /// The function that makes the objectives; it may also be told numbers of agents.
    pub function: PythonFunction,
    /// Number of agents.
    pub agents: usize,
    /// On how many samples of each agent, and of the test data, models are evaluated, where a plan has chosen that.
    pub samples: Option<(usize, usize)>,
}

impl Factory {
    /// Reads the section.
    pub fn read(section: &Section, setting: Setting) -> Result<Self, LabError> {
        let expected = "a function in a file, such as \"train.py:problem\"";
        let function = PythonFunction::read(section, setting.folder, expected)?;
        let function = function.ok_or_else(|| section.missing("factory", expected))?;
        let expected = "a whole number of at least 1";
        let per_agent = section.whole("eval_samples", expected)?;
        let test = section.whole("test_samples", expected)?.unwrap_or(0);
        let samples = per_agent.map(|per_agent| (per_agent as usize, test as usize));
        Ok(Self { function, agents: setting.agents, samples })
    }

    /// Digests of the function, and of the files that all agents have.
    pub fn shared_digests(&self) -> Result<Facts, LabError> {
        self.function.shared_digests("problem")
    }

    /// The same, and digests of the files that each of these agents has for itself.
    pub fn digests(&self, agents: Range<usize>) -> Result<Facts, LabError> {
        self.function.digests("problem", agents)
    }
}

/// What stands for the number of an agent in a path.
const AGENT: &str = "{agent}";

fn is_of_an_agent(path: &Path) -> bool {
    path.to_string_lossy().contains(AGENT)
}

/// A file of an agent that is not here is on that agent's machine: an error in the data.
fn elsewhere(error: LabError) -> LabError {
    match error {
        LabError::Directory { path, problem } => {
            LabError::Data(DataFileError { file: path, place: None, column: None, problem })
        }
        other => other,
    }
}

fn fact_of(section: &str, path: &Path) -> String {
    format!("{section}.files[{}]", path.file_name().unwrap_or_default().to_string_lossy())
}

fn files(section: &Section, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let expected = "a list of files, such as [\"model.py\"]";
    let Some(value) = section.value("files") else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| section.refuse("files", value, expected))?;
    let path = |value: &Value| value.as_str().map(|text| resolve(folder, text));
    let found: Option<Vec<PathBuf>> = list.iter().map(path).collect();
    found.ok_or_else(|| section.refuse("files", value, expected))
}

/// Reads the section for a program that has no Python.
pub(super) fn read(section: &Section, setting: Setting) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(Elsewhere(Factory::read(section, setting)?)))
}

/// Objectives that only the Python package computes.
struct Elsewhere(Factory);

impl Objectives for Elsewhere {
    fn title(&self) -> String {
        self.0.function.name.clone()
    }

    fn problem(&self, _: u64, _: Precision) -> Result<AnyProblem, LabError> {
        let expected = "a kind that this program computes";
        let got = "\"python\"; pip install mile-learn, and use its command: python -m mile";
        Err(LabError::expected("problem.kind", expected, got))
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        self.0.function.files()
    }

    fn path_keys(&self) -> &'static [&'static str] {
        PythonFunction::PATH_KEYS
    }

    fn digests(&self) -> Result<Facts, LabError> {
        self.0.digests(0..self.0.agents)
    }

    fn shared_facts(&self, _: usize) -> Result<Facts, LabError> {
        self.0.shared_digests()
    }
}
