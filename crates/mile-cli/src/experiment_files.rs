//! The files that an experiment refers to, for folders on other machines.

use std::path::{Path, PathBuf};

use anyhow::Context;
use mile_lab::error::LabError;
use mile_lab::objectives::PythonFunction;
use mile_lab::spec::{GraphSource, MixingSource, Spec, StartSpec, VaryingSource};
use toml::Table;

use crate::paths::moved;

/// Keys whose files are text about the network or about all data, and may travel in an invitation.
const TEXTS: [[&str; 2]; 4] =
    [["problem", "statistics"], ["network", "edges"], ["network", "matrix"], ["network", "time_varying"]];
/// Files that an agent makes itself.
const OWN: [&str; 3] = ["agent.toml", "key", "answer.toml"];

/// The files that an experiment refers to, each with its section and key.
pub(crate) struct ExperimentFiles(Vec<([&'static str; 2], PathBuf)>);

impl ExperimentFiles {
    /// Two files of one name would overwrite each other in an agent's folder.
    pub(crate) fn of(spec: &Spec) -> Result<Self, LabError> {
        let of_problem = spec.objectives.files().into_iter();
        let mut named: Vec<_> = of_problem.map(|(key, path)| (["problem", key], path)).collect();
        let factories = spec.algorithms.iter().filter_map(|algorithm| algorithm.factory.as_ref());
        for (key, path) in factories.flat_map(PythonFunction::files) {
            // Methods and objectives may be in one file.
            if named.iter().all(|(_, other)| *other != path) {
                named.push((["algorithm", key], path));
            }
        }
        if let GraphSource::File(path) = &spec.network.graph {
            named.push((["network", "edges"], path.clone()));
        }
        if let MixingSource::File(path) = &spec.network.mixing {
            named.push((["network", "matrix"], path.clone()));
        }
        let in_turn = spec.network.time_varying.iter().flat_map(VaryingSource::files);
        named.extend(in_turn.map(|path| (["network", "time_varying"], path.clone())));
        if let StartSpec::File(path) = &spec.start {
            named.push((["start", "file"], path.clone()));
        }
        for (k, ([section, key], path)) in named.iter().enumerate() {
            let twin =
                |(_, other): &&([&str; 2], PathBuf)| other != path && file_name(other) == file_name(path);
            if let Some((_, other)) = named[..k].iter().find(twin) {
                let problem = format!(
                    "has the same file name as {}, and both are copied to one folder; rename one of them",
                    other.display()
                );
                return Err(LabError::config(format!("{section}.{key}"), problem));
            }
        }
        Ok(Self(named))
    }

    /// The experiment with all paths relative to the agent's folder.
    pub(crate) fn relative(&self, spec: &Spec) -> Spec {
        let mut spec = spec.clone();
        let relative = |path: &mut PathBuf| *path = file_name(path).into();
        if let GraphSource::File(path) = &mut spec.network.graph {
            relative(path);
        }
        if let MixingSource::File(path) = &mut spec.network.mixing {
            relative(path);
        }
        spec.network.time_varying.iter_mut().flat_map(VaryingSource::files_mut).for_each(relative);
        if let StartSpec::File(path) = &mut spec.start {
            relative(path);
        }
        let factories = spec.algorithms.iter_mut().filter_map(|algorithm| algorithm.factory.as_mut());
        factories.flat_map(PythonFunction::paths_mut).for_each(relative);
        for ([_, key], path) in self.0.iter().filter(|([section, _], _)| *section == "problem") {
            let value = spec.problem.entry(*key).or_insert_with(|| "".into());
            *value = moved(value, path, &file_name(path));
        }
        spec.problem.remove("data_dir");
        spec
    }

    /// Refuses files outside the folder of an agent, and those that it has itself.
    pub(crate) fn check_within(&self, folder: &Path) -> Result<(), LabError> {
        let odd = |(_, path): &&([&str; 2], PathBuf)| {
            path.parent() != Some(folder) || OWN.contains(&&*file_name(path))
        };
        match self.0.iter().find(odd) {
            None => Ok(()),
            Some(([section, key], path)) => {
                let expected =
                    format!("the name of a file in the agent's folder, other than {}", OWN.join(", "));
                Err(LabError::expected(format!("{section}.{key}"), expected, path.display()))
            }
        }
    }

    /// The texts that may travel in an invitation, by name.
    pub(crate) fn enclosed(&self, most: u64) -> Result<Table, LabError> {
        let mut texts = Table::new();
        for (key, path) in self.0.iter().filter(|(key, _)| TEXTS.contains(key)) {
            let failed = |error: std::io::Error| LabError::Directory {
                path: path.clone(),
                problem: format!("cannot read a file of the experiment: {error}"),
            };
            let length = std::fs::metadata(path).map_err(failed)?.len();
            if length > most {
                let got = format!("{} of {length}", path.display());
                return Err(LabError::expected(
                    key.join("."),
                    format!("a file of at most {most} bytes"),
                    got,
                ));
            }
            texts.insert(file_name(path), std::fs::read_to_string(path).map_err(failed)?.into());
        }
        Ok(texts)
    }

    /// Whether a file may come with an invitation.
    pub(crate) fn may_enclose(&self, path: &Path) -> bool {
        self.0.iter().any(|(key, known)| TEXTS.contains(key) && known == path)
    }

    /// Copies the files of an agent from elsewhere: by their name or, if there is only one of its own, from the only file given. Returns
    /// the names of those that were neither given nor there.
    pub(crate) fn take_in(
        &self,
        agent: usize,
        folder: &Path,
        from: &[PathBuf],
    ) -> anyhow::Result<Vec<String>> {
        let name_of = |path: &Path| file_name(path).replace("{agent}", &agent.to_string());
        let own: Vec<&Path> = self.0.iter().map(|(_, path)| &**path).filter(|path| is_own(path)).collect();
        let mut missing = Vec::new();
        for (_, path) in &self.0 {
            let name = name_of(path);
            let named = |from: &PathBuf| {
                let path = if from.is_dir() { from.join(&name) } else { from.clone() };
                (path.is_file() && file_name(&path) == name).then_some(path)
            };
            let only = || match (&own[..], from) {
                ([only], [given]) if *only == path && given.is_file() => Some(given.clone()),
                _ => None,
            };
            let to = folder.join(&name);
            match from.iter().find_map(named).or_else(only) {
                Some(from) => {
                    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
                    std::fs::copy(&from, &to).with_context(failed)?;
                }
                None if to.exists() => {}
                None => missing.push(name),
            }
        }
        Ok(missing)
    }

    /// Copies the files that exist to an agent's folder; returns the names of the others.
    pub(crate) fn copy(&self, agent: usize, folder: &Path) -> anyhow::Result<Vec<String>> {
        let mut missing = Vec::new();
        for (_, path) in &self.0 {
            let path = PathBuf::from(path.to_string_lossy().replace("{agent}", &agent.to_string()));
            let to = folder.join(file_name(&path));
            if path.exists() {
                std::fs::copy(&path, &to).with_context(|| format!("cannot write {}", to.display()))?;
            } else {
                missing.push(file_name(&path));
            }
        }
        Ok(missing)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether every agent has its own.
fn is_own(path: &Path) -> bool {
    file_name(path).contains("{agent}")
}
