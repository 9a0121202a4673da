//! Opens trained models.

use std::path::Path;

use mile::block;
use mile::methods::catalogue::Catalogue;
use mile::real::{Precision, Real};
use mile::with_precision;
use mile_problems::form::ModelForm;
use mile_problems::predictions::ModelTensor;

use super::{ModelChoice, NUMBERS, Numbers, TrainedModel, meaningless, tensors};
use crate::error::LabError;
use crate::export;
use crate::model_form::{FORM, FormFile};
use crate::objectives::Kinds;
use crate::report::RunFolder;
use crate::spec::{AgentSpec, AlgorithmSpec};
use crate::state;
use crate::store::Outcome;

/// Where a model comes from.
pub(super) struct Origin {
    pub(super) folder: RunFolder,
    /// The place of its algorithm.
    pub(super) algorithm: usize,
    pub(super) seed: u64,
    pub(super) agent: Option<usize>,
    /// How its run ended, if it has.
    pub(super) outcome: Option<Outcome>,
}

impl Origin {
    /// The version that trained it.
    pub(super) fn version(&self) -> String {
        let recorded = self.folder.context.as_ref().map(|context| context.version.clone());
        recorded.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())
    }

    /// The versions of what else took part, by name.
    pub(super) fn others(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.folder.context.iter().flat_map(|context| &context.others);
        others.map(|(name, version)| (name.as_str(), version.as_str()))
    }

    pub(super) fn algorithm(&self) -> &AlgorithmSpec {
        &self.folder.spec.algorithms[self.algorithm]
    }
}

pub(super) fn open(path: &Path, choice: &ModelChoice) -> Result<TrainedModel, LabError> {
    let refuse = |problem: &str| LabError::Directory { path: path.to_owned(), problem: problem.to_owned() };
    if path.join("agent.toml").exists() {
        let (folder, agent) = folder_of_agent(path)?;
        return of_run(folder, choice, Some(agent));
    }
    if path.join("config.toml").exists() {
        return of_run(RunFolder::read(path)?, choice, None);
    }
    if path.join("gathered.json").exists() {
        return Err(refuse(
            "gathered without the folders or the data of all agents, so it is no run directory; give the folder of one agent for its own \
             model, or use mile gather where all of them are",
        ));
    }
    let numbers = path.join(NUMBERS);
    let Some((form, precision)) = read_form(path)? else {
        return Err(match numbers.exists() {
            true => meaningless(path),
            false => refuse(
                "expected a run directory, the folder of an agent, or a folder that mile export wrote, got none of them (no model.json)",
            ),
        });
    };
    let x = exported(&numbers, choice, &form)?;
    let numbers = Numbers::Known { form: Box::new(form), x };
    Ok(TrainedModel { path: path.to_owned(), numbers, precision, origin: None })
}

/// The folder of an agent on a network, as that of a run without records, and which agent it is.
fn folder_of_agent(path: &Path) -> Result<(RunFolder, usize), LabError> {
    let (kinds, catalogue) = (Kinds::default().or_any(), Catalogue::default().or_any());
    let (spec, agent) = AgentSpec::load(&path.join("agent.toml"), &kinds, &catalogue)?;
    let network = spec.network.build()?;
    let (records, outcomes, context) = (Vec::new(), Vec::new(), None);
    Ok((RunFolder { path: agent.folder, spec, network, records, outcomes, context }, agent.id))
}

/// What the numbers of the models in a folder mean, and their precision, if the folder says it.
fn read_form(folder: &Path) -> Result<Option<(ModelForm, Precision)>, LabError> {
    let path = folder.join(FORM);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).map_err(LabError::io(&path, "read"))?;
    let damaged = |error: &dyn std::fmt::Display| LabError::Directory {
        path: path.clone(),
        problem: format!("expected the form of a model, got {error}"),
    };
    let file: FormFile<ModelForm> = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    let precision = [Precision::F32, Precision::F64].into_iter().find(|one| one.name() == file.precision);
    let precision = precision.ok_or_else(|| damaged(&format!("precision {}", file.precision)))?;
    Ok(Some((file.form, precision)))
}

/// The numbers of an exported model.
fn exported(path: &Path, choice: &ModelChoice, form: &ModelForm) -> Result<Vec<f64>, LabError> {
    let ModelChoice { algorithm, seed, agent } = choice;
    let given =
        [("--algorithm", algorithm.is_some()), ("--seed", seed.is_some()), ("--agent", agent.is_some())];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(LabError::config(*option, "an exported folder has one model; leave it out"));
    }
    let refuse = |problem: String| LabError::Directory { path: path.to_owned(), problem };
    form.parameters(&tensors::read(path)?).map_err(refuse)
}

/// A model of a run, or the one of an agent that has its own folder.
fn of_run(folder: RunFolder, choice: &ModelChoice, own: Option<usize>) -> Result<TrainedModel, LabError> {
    let form = read_form(&folder.path)?;
    let (algorithm, seed) = (algorithm(&folder, choice)?, seed(&folder, choice)?);
    let spec = &folder.spec.algorithms[algorithm];
    let file = folder.path.join("final").join(format!("{}-seed{seed}.safetensors", spec.file_name()));
    let precision = form.as_ref().map_or(folder.spec.precision, |(_, precision)| *precision);
    let (agent, dim) = (choice.agent.or(own), form.as_ref().map(|(form, _)| form.dim()));
    let x = with_precision!(precision, T => variable::<T>(&folder, &file, [agent, own], dim)?);
    let named = export::path_of(&file, agent);
    let (numbers, precision) = match form {
        Some((form, _)) => (Numbers::Known { form: Box::new(form), x }, precision),
        None if named.exists() => (Numbers::Named(tensors::read(&named)?), Precision::F32),
        None => {
            let x = ModelTensor { name: "x".to_owned(), shape: vec![x.len()], values: x };
            (Numbers::Named(vec![x]), precision)
        }
    };
    let mut outcomes = folder.outcomes.iter();
    let outcome = outcomes.find(|outcome| outcome.label == spec.label && outcome.seed == seed).cloned();
    let path = folder.path.clone();
    Ok(TrainedModel {
        path,
        numbers,
        precision,
        origin: Some(Origin { folder, algorithm, seed, agent, outcome }),
    })
}

/// The variable of an agent, or the average of all agents', in a final state: that of all, or of its own agent only.
fn variable<T: Real>(
    folder: &RunFolder,
    file: &Path,
    [agent, own]: [Option<usize>; 2],
    dim: Option<usize>,
) -> Result<Vec<f64>, LabError> {
    let refuse = |problem: &str| LabError::Directory { path: file.to_owned(), problem: problem.to_owned() };
    let mut found = state::open(file)?
        .ok_or_else(|| refuse("missing: this job has not ended; resume the run, then try again"))?;
    let membership = folder.spec.membership()?;
    let members = match own {
        Some(own) => vec![own],
        None => folder.spec.honest(&membership.epochs()[membership.at(found.header.round)].members),
    };
    let columns = found.shape("x").and_then(|shape| shape.get(1)).copied();
    let dim = dim.or(columns).ok_or_else(|| refuse("expected a state with x, got none"))?;
    let rows: Vec<T> = state::vector(&mut found, file, "x", [members.len(), dim])?;
    let Some(agent) = agent else { return Ok(wide(block::mean_row(&rows, dim))) };
    let place = members.iter().position(|member| *member == agent);
    let known = || members.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let place = place.ok_or_else(|| LabError::expected("--agent", format!("one of {}", known()), agent))?;
    Ok(wide(rows[place * dim..(place + 1) * dim].to_vec()))
}

fn wide<T: Real>(row: Vec<T>) -> Vec<f64> {
    row.into_iter().map(Real::wide).collect()
}

/// The place of the algorithm that was chosen.
fn algorithm(folder: &RunFolder, choice: &ModelChoice) -> Result<usize, LabError> {
    let labels: Vec<&str> = folder.spec.algorithms.iter().map(|one| one.label.as_str()).collect();
    let expected = || format!("one of {}, the algorithms of this run", labels.join(", "));
    match &choice.algorithm {
        None if labels.len() == 1 => Ok(0),
        None => Err(LabError::expected("--algorithm", expected(), "none")),
        Some(label) => {
            let place = labels.iter().position(|known| known == label);
            place.ok_or_else(|| LabError::expected("--algorithm", expected(), label))
        }
    }
}

fn seed(folder: &RunFolder, choice: &ModelChoice) -> Result<u64, LabError> {
    let seeds = &folder.spec.seeds;
    let known = || seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match choice.seed {
        None => Ok(seeds.first().copied().unwrap_or(0)),
        Some(seed) if seeds.contains(&seed) => Ok(seed),
        Some(seed) => Err(LabError::expected("--seed", format!("one of {}", known()), seed)),
    }
}
