//! `kind = "table"`: regression or classification on the user's own CSV files.

use std::path::PathBuf;
use std::sync::Arc;

use mile::problems::{Batch, Loss, Problem, Table};
use mile::real::Real;
use toml::Value;

use super::csv::{self, TableConfig};
use super::{Facts, Objectives, Setting, samples};
use crate::digest;
use crate::error::LabError;
use crate::section::{Section, resolve};

pub(super) fn read(section: &Section, setting: Setting) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(config(section, setting)?))
}

fn config(section: &Section, setting: Setting) -> Result<TableConfig, LabError> {
    let takes = "the path of a CSV file, or one for each agent such as \"agent-{agent}.csv\"";
    let data = section.text("data", takes)?.ok_or_else(|| section.missing("data", takes))?;
    let data = resolve(setting.folder, data);
    section.keep("data", data.display().to_string());
    let takes = "the name of the column to predict";
    let target = section.text("target", takes)?.ok_or_else(|| section.missing("target", takes))?;
    let losses = [
        ("least-squares", ("least-squares", Loss::LeastSquares)),
        ("logistic", ("logistic", Loss::Logistic)),
        ("nonconvex-logistic", ("nonconvex-logistic", Loss::NonconvexLogistic)),
    ];
    let (loss_name, loss) = section.choice("loss", &losses, None)?;
    let l2 = section.number_or("l2", "a number from 0", 0.0)?;
    let intercept = section.flag("intercept")?.unwrap_or(false);
    section.keep("intercept", intercept);
    Ok(TableConfig {
        data,
        by: section
            .text("by", "the name of the column that assigns each row to an agent")?
            .map(str::to_owned),
        target: target.to_owned(),
        loss,
        l2,
        intercept,
        batch: samples::batch(section, Batch::Full)?,
        partition: samples::partition(section)?,
        seed: section.whole("seed", "a whole number")?,
        classes: classes(section, loss)?,
        only: None,
        agents: setting.agents,
        loss_name,
    })
}

fn classes(section: &Section, loss: Loss) -> Result<Option<[String; 2]>, LabError> {
    let Some(value) = section.value("classes") else { return Ok(None) };
    let takes = "the two classes of the target, -1 first, such as [\"no\", \"yes\"]";
    let word = |value: &Value| match value {
        Value::String(word) => Some(word.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    };
    let words: Option<Vec<String>> = value.as_array().and_then(|list| list.iter().map(word).collect());
    let pair = words.and_then(|words| <[String; 2]>::try_from(words).ok()).filter(|[a, b]| a != b);
    if loss == Loss::LeastSquares {
        return Err(LabError::config(
            section.path("classes"),
            "needs a logistic loss, least-squares has no classes: leave it out",
        ));
    }
    section.keep("classes", value.clone());
    pair.map(Some).ok_or_else(|| section.refuse("classes", value, takes))
}

impl TableConfig {
    fn build<T: Real>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let table: Table<T> = csv::load(self, seed)?;
        Ok(Arc::new(table))
    }
}

impl Objectives for TableConfig {
    fn title(&self) -> String {
        let file = self.data.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        format!("{} on {file}", self.loss_name)
    }

    fn single(&self, seed: u64) -> Result<Arc<dyn Problem<f32>>, LabError> {
        self.build(seed)
    }

    fn double(&self, seed: u64) -> Result<Arc<dyn Problem<f64>>, LabError> {
        self.build(seed)
    }

    fn is_stochastic(&self) -> bool {
        self.batch != Batch::Full
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("data", self.data.clone())]
    }

    fn path_keys(&self) -> &'static [&'static str] {
        &["data"]
    }

    fn digests(&self) -> Result<Facts, LabError> {
        if !self.is_per_agent() {
            return Ok(Facts::from([("problem.data".into(), digest::of_file(&self.data)?)]));
        }
        let available = match self.only {
            Some(agent) => agent..agent + 1,
            None => 0..self.agents,
        };
        let one =
            |agent: usize| Ok((format!("problem.data[{agent}]"), digest::of_file(&self.file_of(agent))?));
        available.map(one).collect()
    }

    fn shared_facts(&self, agent: usize) -> Result<Facts, LabError> {
        csv::shared_facts(self, agent)
    }

    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        self.is_per_agent()
            .then(|| Arc::new(Self { only: Some(agent), ..self.clone() }) as Arc<dyn Objectives>)
    }
}
