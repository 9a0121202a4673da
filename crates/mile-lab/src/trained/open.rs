//! Opens trained models.

use std::path::Path;

use mile::block;
use mile::real::{Precision, Real};
use mile::with_precision;
use mile_problems::form::ModelForm;
use mile_problems::predictions::ModelTensor;
use safetensors::{Dtype, SafeTensors};

use super::{ModelChoice, NUMBERS, TrainedModel};
use crate::error::LabError;
use crate::model_form::{FORM, FormFile};
use crate::report::RunFolder;
use crate::spec::AlgorithmSpec;
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

    pub(super) fn algorithm(&self) -> &AlgorithmSpec {
        &self.folder.spec.algorithms[self.algorithm]
    }
}

pub(super) fn open(path: &Path, choice: &ModelChoice) -> Result<TrainedModel, LabError> {
    let refuse = |problem: &str| LabError::Directory { path: path.to_owned(), problem: problem.to_owned() };
    if path.join("agent.toml").exists() {
        return Err(refuse(
            "the folder of an agent, got no run directory; make one with mile gather, and give that",
        ));
    }
    let is_run = path.join("config.toml").exists();
    let form_path = path.join(FORM);
    if !form_path.exists() {
        return Err(refuse(match is_run {
            false => {
                "expected a run directory or a folder that mile export wrote, got neither (no model.json)"
            }
            true => {
                "has no model.json: models of this kind of problem predict nothing, or the file was removed; \
                 mile run --out DIR --resume writes it"
            }
        }));
    }
    let text = std::fs::read_to_string(&form_path).map_err(LabError::io(&form_path, "read"))?;
    let damaged = |error: &dyn std::fmt::Display| LabError::Directory {
        path: form_path.clone(),
        problem: format!("expected the form of a model, got {error}"),
    };
    let file: FormFile<ModelForm> = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    let precision = [Precision::F32, Precision::F64].into_iter().find(|one| one.name() == file.precision);
    let precision = precision.ok_or_else(|| damaged(&format!("precision {}", file.precision)))?;
    let (x, origin) = match is_run {
        true => of_run(path, choice, precision, file.form.dim())?,
        false => (exported(&path.join(NUMBERS), choice, &file.form)?, None),
    };
    Ok(TrainedModel { form: file.form, precision, x, origin })
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
    let bytes = std::fs::read(path).map_err(LabError::io(path, "read"))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| refuse(format!("expected tensors, got {error}; export the model again")))?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        let values = match view.dtype() {
            Dtype::F32 => numbers::<4>(view.data(), |bytes| f32::from_le_bytes(bytes).into()),
            Dtype::F64 => numbers::<8>(view.data(), f64::from_le_bytes),
            other => return Err(refuse(format!("tensor {name}: expected F32 or F64, got {other:?}"))),
        };
        tensors.push(ModelTensor { name, shape: view.shape().to_vec(), values });
    }
    form.parameters(&tensors).map_err(refuse)
}

fn numbers<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
}

/// The numbers of a model of a run.
fn of_run(
    path: &Path,
    choice: &ModelChoice,
    precision: Precision,
    dim: usize,
) -> Result<(Vec<f64>, Option<Origin>), LabError> {
    let folder = RunFolder::read(path)?;
    let (algorithm, seed) = (algorithm(&folder, choice)?, seed(&folder, choice)?);
    let spec = &folder.spec.algorithms[algorithm];
    let file = path.join("final").join(format!("{}-seed{seed}.safetensors", spec.file_name()));
    let refuse = |problem: String| LabError::Directory { path: file.clone(), problem };
    let mut found = state::open(&file)?
        .ok_or_else(|| refuse("missing: this job has not ended; resume the run, then try again".into()))?;
    let membership = folder.spec.membership()?;
    let members = folder.spec.honest(&membership.epochs()[membership.at(found.header.round)].members);
    let x = with_precision!(precision, T => {
        let rows: Vec<T> = state::vector(&mut found, &file, "x", [members.len(), dim])?;
        let row = match choice.agent {
            None => block::mean_row(&rows, dim),
            Some(agent) => {
                let place = members.iter().position(|member| *member == agent);
                let known = || members.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                let place = place.ok_or_else(|| LabError::expected("--agent", format!("one of {}", known()), agent))?;
                rows[place * dim..(place + 1) * dim].to_vec()
            }
        };
        row.into_iter().map(Real::wide).collect()
    });
    let mut outcomes = folder.outcomes.iter();
    let outcome = outcomes.find(|outcome| outcome.label == spec.label && outcome.seed == seed).cloned();
    Ok((x, Some(Origin { folder, algorithm, seed, agent: choice.agent, outcome })))
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
