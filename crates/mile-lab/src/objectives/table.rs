//! `kind = "table"`: regression or classification on the user's own CSV files.

use std::path::PathBuf;
use std::sync::Arc;

use mile::problems::{Batch, Loss, Problem};
use mile::real::Real;
use toml::Value;

use super::csv::{self, TableConfig};
use super::loaded::Loaded;
use super::{Facts, Objectives, RowCounts, Setting, samples};
use crate::digest;
use crate::error::LabError;
use crate::section::{Section, resolve};

pub(super) fn read(section: &Section, setting: Setting) -> Result<Arc<dyn Objectives>, LabError> {
    Ok(Arc::new(Tables::new(config(section, setting)?)))
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

/// The objectives of this kind.
struct Tables {
    config: Arc<TableConfig>,
    loaded: Arc<Loaded>,
    /// The most rows of each agent, for a sample.
    most: Option<u64>,
}

impl Tables {
    fn new(config: TableConfig) -> Self {
        Self { config: Arc::new(config), loaded: Arc::default(), most: None }
    }

    fn build<T: Real>(&self, seed: u64) -> Result<Arc<dyn Problem<T>>, LabError> {
        let tables = self.loaded.tables::<T>(&self.config, seed)?;
        Ok(match self.most {
            None => tables.all.clone(),
            Some(rows) => Arc::new(tables.sample(&self.config, rows as usize)?),
        })
    }
}

impl Objectives for Tables {
    fn title(&self) -> String {
        let data = &self.config.data;
        let file = data.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        format!("{} on {file}", self.config.loss_name)
    }

    fn single(&self, seed: u64) -> Result<Arc<dyn Problem<f32>>, LabError> {
        self.build(seed)
    }

    fn double(&self, seed: u64) -> Result<Arc<dyn Problem<f64>>, LabError> {
        self.build(seed)
    }

    fn is_stochastic(&self) -> bool {
        self.config.batch != Batch::Full
    }

    fn rows(&self, seed: u64) -> Result<Option<RowCounts>, LabError> {
        self.loaded.rows(&self.config, seed).map(Some)
    }

    fn sample(&self, rows: u64) -> Option<Arc<dyn Objectives>> {
        let (config, loaded) = (self.config.clone(), self.loaded.clone());
        Some(Arc::new(Self { config, loaded, most: Some(rows) }))
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("data", self.config.data.clone())]
    }

    fn path_keys(&self) -> &'static [&'static str] {
        &["data"]
    }

    fn digests(&self) -> Result<Facts, LabError> {
        let config = &self.config;
        if !config.is_per_agent() {
            return Ok(Facts::from([("problem.data".into(), digest::of_file(&config.data)?)]));
        }
        let one =
            |agent: usize| Ok((format!("problem.data[{agent}]"), digest::of_file(&config.file_of(agent))?));
        config.available().map(one).collect()
    }

    fn shared_facts(&self, agent: usize) -> Result<Facts, LabError> {
        csv::shared_facts(&self.config, agent)
    }

    fn for_agent(&self, agent: usize) -> Option<Arc<dyn Objectives>> {
        let own = || TableConfig { only: Some(agent), ..(*self.config).clone() };
        self.config.is_per_agent().then(|| Arc::new(Self::new(own())) as Arc<dyn Objectives>)
    }
}
