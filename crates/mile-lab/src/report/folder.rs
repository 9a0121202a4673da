//! Reads a run directory for figures and reports.

use std::path::{Path, PathBuf};

use mile::methods::catalogue::Catalogue;
use mile::network::Network;

use crate::context::Context;
use crate::error::LabError;
use crate::objectives::Kinds;
use crate::plot::{self, Figure, Runs};
use crate::record::Record;
use crate::spec::{Spec, parse_table};
use crate::store::{Outcome, read_outcomes, read_records};

/// The contents of a run directory.
#[non_exhaustive]
pub struct RunFolder {
    /// Its path.
    pub path: PathBuf,
    /// The experiment, from `config.toml`.
    pub spec: Spec,
    /// Its network.
    pub network: Network,
    /// Its records.
    pub records: Vec<Record>,
    /// The outcomes of the jobs that have ended.
    pub outcomes: Vec<Outcome>,
    /// The environment of the run, if recorded.
    pub context: Option<Context>,
}

impl RunFolder {
    /// Reads a run directory; neither its data sets nor custom methods are needed.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let config = path.join("config.toml");
        if !config.exists() {
            let problem = "not a run directory, because it has no config.toml; mile run creates one".into();
            return Err(LabError::Directory { path: path.to_owned(), problem });
        }
        let read = || {
            let text = std::fs::read_to_string(&config).map_err(LabError::io(&config, "read"))?;
            let (kinds, catalogue) = (Kinds::default().or_any(), Catalogue::default().or_any());
            let spec = Spec::read_with(&parse_table(&text, &[])?, path, &kinds, &catalogue)?;
            let network = spec.network.build()?;
            Ok((spec, network))
        };
        let name = config.display().to_string();
        let (spec, network) = read().map_err(|error: LabError| error.in_file(&name))?;
        Ok(Self {
            path: path.to_owned(),
            spec,
            network,
            records: read_records(path)?,
            outcomes: read_outcomes(path)?,
            context: Context::read(path),
        })
    }

    /// The number of finished jobs and of all jobs. A job that was stopped or failed is not finished.
    pub(crate) fn finished_jobs(&self) -> (usize, usize) {
        let finished = self.outcomes.iter().filter(|outcome| outcome.status.is_over()).count();
        (finished, self.spec.algorithms.len() * self.spec.seeds.len())
    }

    /// Its records, grouped by algorithm and seed.
    pub fn runs(&self) -> Runs<'_> {
        let labels: Vec<&str> = self.spec.algorithms.iter().map(|a| a.label.as_str()).collect();
        Runs::new(&self.records, &self.outcomes).in_order(&labels)
    }

    /// The drawings of the graph and of the label distribution, with their names.
    pub fn pictures(&self) -> Vec<(String, String)> {
        let graph = plot::graph_svg(&self.network, self.spec.network.topology());
        let mut pictures = vec![("graph".to_owned(), graph)];
        for labels in self.context.iter().flat_map(|context| &context.labels) {
            let title = format!("Training samples by agent and class, seed {}", labels.seed);
            pictures.push((format!("labels-seed{}", labels.seed), plot::labels_svg(&labels.counts, &title)));
        }
        pictures
    }

    /// All figures of the run and these drawings as SVG, with their names; the overview comes first.
    pub fn all_pictures(&self) -> Vec<(String, String)> {
        let figures = plot::figures(&self.runs(), &self.spec.name).into_iter();
        let drawn = figures.map(|figure| (figure.name.clone(), figure.svg()));
        drawn.chain(self.pictures()).collect()
    }

    /// Writes `figures/*.svg` and `*.png`, and returns the files. `note` is printed on every figure.
    pub fn draw(&self, note: &str) -> Result<Vec<PathBuf>, LabError> {
        let folder = self.path.join("figures");
        let figures: Vec<Figure> = plot::figures(&self.runs(), &self.spec.name)
            .into_iter()
            .map(|figure| figure.with_note(note))
            .collect();
        let mut written = plot::write_figures(&folder, &figures)?;
        for (name, svg) in self.pictures() {
            written.extend(plot::write_picture(&folder, &name, &svg)?);
        }
        Ok(written)
    }
}
