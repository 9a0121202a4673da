//! Turns the rows of the user's files into the numbers of the problem: one shard for each agent.

use std::collections::HashMap;
use std::sync::Arc;

use mile::block::room;
use mile::problems::{Loss, Shard};
use mile::real::Real;
use rayon::prelude::*;

use super::agent_rows::AgentRows;
use super::bad;
use super::divided::{Divided, Use, class_codes};
use super::here::Here;
use super::layout::Role;
use super::parse::NO_WORD;
use super::rows::{Outlines, Row, Rows};
use super::spec::{HeldOut, Missing};
use super::statistics::{ColumnStatistics, Statistics};
use super::words::class;
use crate::Feature;
use crate::error::{DataFileError, LabError};

/// The category of missing and unknown words, where they have one.
const MISSING: &str = "missing";

/// The numbers of all agents.
pub(super) struct Data<T> {
    /// Number of features, the intercept included.
    pub(super) columns: usize,
    pub(super) shards: Vec<Shard<T>>,
    /// Held-out rows of each agent; empty if there are none at all.
    pub(super) test: Vec<Shard<T>>,
    pub(super) about: About,
}

/// What is known about the data besides their numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct About {
    /// The columns of the files that features are made of.
    pub(super) columns: Vec<String>,
    /// Names of the features, the intercept included.
    pub(super) features: Vec<String>,
    /// How each of them is made.
    pub(super) made: Vec<Feature>,
    /// The classes of the target, in order.
    pub(super) classes: Vec<String>,
    /// The statistics of all agents' data, if features depend on them.
    pub(super) statistics: Option<Statistics>,
    /// The rows of each agent whose rows are known here.
    pub(super) agents: Arc<Vec<AgentRows>>,
    /// Rows with missing values that were left out, and comments, in the files of all agents.
    pub(super) left_out: [u64; 2],
}

/// Reads the data of a table problem and divides them among the agents.
pub(super) fn load<T: Real>(here: &Here, outlines: &Outlines, seed: u64) -> Result<Data<T>, LabError> {
    let divided = Divided::read(here, outlines, seed, Use::Training)?;
    let statistics = divided.statistics(here)?;
    let encoder = Encoder::new(&divided.classes, &divided.rows, here, statistics.as_ref())?;
    let columns = divided.rows.layout().features.iter().map(|(name, _)| name.clone()).collect();
    let (features, made): (Vec<String>, Vec<Feature>) = encoder.features().into_iter().unzip();
    // The objectives of agents whose rows are elsewhere are never evaluated here, but must exist.
    let placeholder = || Shard {
        features: vec![T::zero(); features.len()],
        targets: vec![T::one()],
        // What it counts must not exceed what all agents' rows count together.
        weights: here.spec.columns.weights.iter().map(|_| T::min_positive_value()).collect(),
        offsets: Vec::new(),
    };
    let shard = |agent: usize| match here.is_here(agent) {
        false => placeholder(),
        true => encoder.shard(&divided.rows, &divided.training[agent]),
    };
    let shards = (0..here.agents).into_par_iter().map(shard).collect();
    let held = |encoder: &Encoder, rows: &Rows| -> Vec<Shard<T>> {
        let one = |(agent, held): (usize, &Vec<u32>)| match here.is_here(agent) {
            true => encoder.shard(rows, held),
            false => Shard::default(),
        };
        divided.held_out.par_iter().enumerate().map(one).collect()
    };
    let test: Vec<Shard<T>> = match (&here.spec.files.test, &divided.other) {
        (HeldOut::None, _) => Vec::new(),
        (_, None) => held(&encoder, &divided.rows),
        (_, Some(rows)) => {
            let encoder = Encoder::new(&divided.classes, rows, here, statistics.as_ref())?;
            held(&encoder, rows)
        }
    };
    let agents = Arc::new(divided.agents(here));
    let (classes, left_out) = (divided.classes, divided.left_out);
    let about = About { columns, features, made, classes, statistics, agents, left_out };
    Ok(Data { columns: about.features.len(), shards, test, about })
}

/// Turns rows into numbers.
pub(super) struct Encoder {
    columns: Vec<Column>,
    target: Role,
    /// For each file, the target of each of its words.
    targets: Vec<Vec<f64>>,
    weight: Option<usize>,
    /// The place of an offset, and whether it is the logarithm of the number there.
    offset: Option<(usize, bool)>,
    intercept: bool,
}

/// A column of the user's file as a feature.
enum Column {
    Number {
        name: String,
        place: usize,
        /// What replaces a missing value.
        fill: f64,
        /// What is subtracted, and what the difference is divided by.
        scale: Option<(f64, f64)>,
    },
    Category {
        name: String,
        place: usize,
        /// For each file, the category of each of its words.
        codes: Vec<Vec<u32>>,
        categories: Vec<String>,
        /// The first category that has a feature.
        first: usize,
        /// The category of missing words.
        other: u32,
    },
}

impl Encoder {
    /// The encoder for some files. A missing value without a replacement becomes NaN.
    pub(super) fn new(
        classes: &[String],
        rows: &Rows,
        here: &Here,
        statistics: Option<&Statistics>,
    ) -> Result<Self, DataFileError> {
        let layout = rows.layout();
        let columns = statistics.map_or(&[][..], |found| &found.columns);
        let known: HashMap<&str, &ColumnStatistics> =
            columns.iter().map(|column| (column.name.as_str(), column)).collect();
        let column = |(name, role): &(String, Role)| match *role {
            Role::Word(place) => {
                let mut categories =
                    statistics.and_then(|found| found.categories.get(name).cloned()).unwrap_or_default();
                let has_own = here.spec.columns.missing == Missing::Category;
                if has_own {
                    // Last, so that it is never the reference.
                    categories.retain(|category| category != MISSING);
                    categories.push(MISSING.to_owned());
                }
                let other = has_own.then(|| categories.len() as u32 - 1);
                let unknown = |word: &str| {
                    format!(
                        "expected one of the categories in all agents' data, {}, got '{word}'",
                        categories.join(", ")
                    )
                };
                let codes = rows.codes(*role, class, &categories, other, &unknown)?;
                let first = usize::from(here.spec.objective.intercept);
                let other = other.unwrap_or(u32::MAX);
                Ok(Column::Category { name: name.clone(), place, codes, categories, first, other })
            }
            Role::Number(place) => {
                let known = known.get(name.as_str());
                let is_filled = here.spec.columns.missing.fills_numbers();
                let fill = known.filter(|_| is_filled).map_or(f64::NAN, |column| column.mean);
                let scale = known.filter(|_| here.spec.columns.standardise).map(|column| {
                    let deviation = column.deviation();
                    (column.mean, if deviation > 0.0 { deviation } else { 1.0 })
                });
                Ok(Column::Number { name: name.clone(), place, fill, scale })
            }
            Role::Unused => Err(bad(&rows.files[0].path, None, Some(name), "not used")),
        };
        let columns = layout.features.iter().map(column).collect::<Result<_, _>>()?;
        let is_softmax = matches!(here.spec.objective.loss, Loss::Softmax { .. });
        let value = |code: u32| if is_softmax { f64::from(code) } else { 2.0 * f64::from(code) - 1.0 };
        let codes = class_codes(rows, classes)?;
        let targets = codes.into_iter().map(|codes| codes.into_iter().map(value).collect()).collect();
        let is_exposure = here.spec.columns.offset.as_ref().is_some_and(|offset| offset.is_exposure);
        Ok(Self {
            columns,
            target: layout.target,
            targets,
            weight: layout.weight,
            offset: layout.offset.map(|place| (place, is_exposure)),
            intercept: here.spec.objective.intercept,
        })
    }

    /// The names of the features, and how they are made.
    pub(super) fn features(&self) -> Vec<(String, Feature)> {
        let mut features = Vec::new();
        for column in &self.columns {
            match column {
                Column::Number { name, scale, .. } => {
                    let (shift, scale) = scale.unwrap_or((0.0, 1.0));
                    features.push((name.clone(), Feature::Number { shift, scale }));
                }
                Column::Category { name, categories, first, .. } => {
                    let reference = categories.first().filter(|_| *first > 0).cloned();
                    let feature = Feature::Category { reference };
                    let one = |category: &String| (format!("{name}={category}"), feature.clone());
                    features.extend(categories.iter().skip(*first).map(one));
                }
            }
        }
        if self.intercept {
            features.push(("intercept".to_owned(), Feature::Intercept));
        }
        features
    }

    /// How the first numbers of a row become features, if all features do so in this order: then rows are encoded in vectors.
    fn scales(&self) -> Option<Vec<Scale>> {
        let scale = |(k, column): (usize, &Column)| match column {
            Column::Number { place, fill, scale, .. } if *place == k => {
                let (shift, deviation) = scale.unwrap_or((0.0, 1.0));
                Some([*fill, shift, deviation])
            }
            _ => None,
        };
        self.columns.iter().enumerate().map(scale).collect()
    }

    /// The shard of some rows.
    pub(super) fn shard<T: Real>(&self, rows: &Rows, chosen: &[u32]) -> Shard<T> {
        let width = self.columns.iter().map(Column::width).sum::<usize>() + usize::from(self.intercept);
        let mut shard = Shard {
            features: room(width * chosen.len()),
            targets: Vec::with_capacity(chosen.len()),
            ..Shard::default()
        };
        let scales = self.scales();
        for row in rows.some(chosen) {
            match &scales {
                Some(scales) => shard.features.extend(row.numbers.iter().zip(scales).map(scaled::<T>)),
                None => self.columns.iter().for_each(|column| column.push(row, &mut shard.features)),
            }
            if self.intercept {
                shard.features.push(T::one());
            }
            let target = match self.target {
                Role::Number(place) => row.numbers[place],
                Role::Word(place) => self.targets[row.file][row.words[place] as usize],
                Role::Unused => f64::NAN,
            };
            shard.targets.push(T::of(target));
            shard.weights.extend(self.weight.map(|place| T::of(row.numbers[place])));
            let offset = |(place, is_exposure): (usize, bool)| match is_exposure {
                true => row.numbers[place].ln(),
                false => row.numbers[place],
            };
            shard.offsets.extend(self.offset.map(|column| T::of(offset(column))));
        }
        shard
    }
}

/// What replaces a missing number, what is subtracted, and what the difference is divided by.
type Scale = [f64; 3];

/// A number as a feature.
#[inline]
fn scaled<T: Real>((value, [fill, shift, deviation]): (&f64, &Scale)) -> T {
    let value = if value.is_nan() { *fill } else { *value };
    T::of((value - shift) / deviation)
}

impl Column {
    /// Number of features.
    fn width(&self) -> usize {
        match self {
            Self::Number { .. } => 1,
            Self::Category { categories, first, .. } => categories.len().saturating_sub(*first),
        }
    }

    /// Adds the features of a row.
    #[inline]
    fn push<T: Real>(&self, row: Row, features: &mut Vec<T>) {
        match self {
            Self::Number { place, fill, scale, .. } => {
                let (shift, deviation) = scale.unwrap_or((0.0, 1.0));
                features.push(scaled((&row.numbers[*place], &[*fill, shift, deviation])));
            }
            Self::Category { place, codes, categories, first, other, .. } => {
                let word = row.words[*place];
                let code = if word == NO_WORD { *other } else { codes[row.file][word as usize] } as usize;
                let is_missing = code == u32::MAX as usize;
                let one = |k: usize| match k == code {
                    _ if is_missing => T::nan(),
                    true => T::one(),
                    false => T::zero(),
                };
                features.extend((*first..categories.len()).map(one));
            }
        }
    }
}
