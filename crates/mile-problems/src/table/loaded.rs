//! The tables that were read last, and samples of their rows.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use mile::problems::{AgentWeights, Batch, InvalidTable, Shard, Table, TableObjective, has_normal_equations};
use mile::random::{Permutation, Purpose, stream};
use mile::real::Real;
use mile_theory::smoothness::Effort;

use super::agent_rows::AgentRows;
use super::encode::{self, About, Data};
use super::here::Here;
use super::rows::Outlines;
use super::spec::HeldOut;
use crate::RowCounts;
use crate::error::LabError;

/// One in this many rows is kept a second time, for samples.
const PART: usize = 4;

/// The tables that were read last: planning, estimates and the run read the files once. Other data replace them, so that
/// there is at most one copy more than jobs use.
#[derive(Default)]
pub(super) struct Loaded {
    last: Mutex<Option<Last>>,
    /// The rows of the agents by the seed that divides them.
    agents: Mutex<BTreeMap<u64, Arc<Vec<AgentRows>>>>,
    /// Of the files from which some rows are kept here.
    outlines: Outlines,
}

struct Last {
    key: Key,
    rows: RowCounts,
    about: Arc<About>,
    /// [`Tables`] in the precision that was asked for.
    tables: Arc<dyn Any + Send + Sync>,
}

/// Seed of the partition, and size and time of each file.
type Key = (u64, Vec<Option<(u64, Option<SystemTime>)>>);

/// All rows, and some of them.
pub(super) struct Tables<T> {
    pub(super) all: Arc<Table<T>>,
    columns: usize,
    /// Rows of some agents, spread evenly, in random order.
    some: Vec<Shard<T>>,
    /// What is minimised with them.
    objective: TableObjective,
}

impl Loaded {
    /// Of files with these outlines.
    pub(super) fn with(outlines: Outlines) -> Self {
        Self { outlines, ..Self::default() }
    }

    /// The tables of a seed.
    pub(super) fn tables<T: Real>(&self, here: &Here, seed: u64) -> Result<Arc<Tables<T>>, LabError> {
        let seed = here.spec.data_seed(seed);
        let key = (seed, stamps(here));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = last.as_ref().filter(|last| last.key == key).map(|last| last.tables.clone());
        if let Some(Ok(tables)) = kept.map(Arc::downcast::<Tables<T>>) {
            return Ok(tables);
        }
        *last = None;
        let (tables, rows, about) = Tables::load(here, &self.outlines, seed)?;
        let tables = Arc::new(tables);
        self.note_agents(seed, &about);
        *last = Some(Last { key, rows, about: Arc::new(about), tables: tables.clone() });
        Ok(tables)
    }

    fn note_agents(&self, seed: u64, about: &About) {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.insert(seed, about.agents.clone());
    }

    /// The rows of each agent in a run with this seed.
    pub(super) fn agents(&self, here: &Here, seed: u64) -> Result<Arc<Vec<AgentRows>>, LabError> {
        let seed = here.spec.data_seed(seed);
        let known = self.agents.lock().unwrap_or_else(PoisonError::into_inner).get(&seed).cloned();
        match known {
            Some(agents) => Ok(agents),
            None => encode::load::<f64>(here, &self.outlines, seed).map(|data| data.about.agents),
        }
    }

    /// How many rows gradients read.
    pub(super) fn rows(&self, here: &Here, seed: u64) -> Result<RowCounts, LabError> {
        let key = (here.spec.data_seed(seed), stamps(here));
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_ref().filter(|last| last.key == key) {
            Some(last) => Ok(last.rows),
            None => Tables::<f64>::load(here, &self.outlines, key.0).map(|(_, rows, _)| rows),
        }
    }

    /// What is known about the data besides their numbers, for any seed.
    pub(super) fn about(&self, here: &Here) -> Result<Arc<About>, LabError> {
        let stamps = stamps(here);
        let kept = |last: &Option<Last>| last.as_ref().filter(|l| l.key.1 == stamps).map(|l| l.about.clone());
        if let Some(about) = kept(&self.last.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(about);
        }
        encode::load::<f64>(here, &self.outlines, here.spec.data_seed(0)).map(|data| Arc::new(data.about))
    }
}

/// Size and time of each file; a file that cannot be read is named when its rows are.
fn stamps(here: &Here) -> Vec<Option<(u64, Option<SystemTime>)>> {
    let mut paths = here.files(&here.spec.files.data);
    if let HeldOut::File(path) = &here.spec.files.test {
        paths.extend(here.files(path));
    }
    paths.extend(here.spec.files.statistics.clone().map(|path| (None, path)));
    let stamp = |about: Metadata| (about.len(), about.modified().ok());
    paths.iter().map(|(_, path)| std::fs::metadata(path).ok().map(stamp)).collect()
}

impl<T: Real> Tables<T> {
    fn load(here: &Here, outlines: &Outlines, seed: u64) -> Result<(Self, RowCounts, About), LabError> {
        let Data { columns, shards, test, about } = encode::load::<T>(here, outlines, seed)?;
        let counts: Vec<usize> = match here.is_rank() {
            true => about.agents.iter().map(|own| own.training.len()).collect(),
            false => shards.iter().map(|shard| shard.targets.len()).collect(),
        };
        let rows = row_counts(here, columns, &counts);
        let chosen = if rows.largest_sample == 0 || here.is_rank() {
            0
        } else {
            Effort::default().agents_of(shards.len())
        };
        let agent = |k: usize| k * shards.len() / chosen;
        let some = (0..chosen).map(|k| part(&shards[agent(k)], columns, agent(k), seed)).collect();
        let of_statistics = || about.statistics.as_ref().map(|found| found.rows as f64);
        let total = match (here.is_rank(), here.is_partial()) {
            // The same sum, to the last bit, wherever it is needed.
            _ if here.spec.columns.weights.is_some() => {
                about.statistics.as_ref().and_then(|found| found.weight)
            }
            (true, _) => Some(counts.iter().map(|rows| *rows as f64).sum()),
            (false, true) => of_statistics(),
            (false, false) => None,
        };
        let objective = here.spec.objective.of(about.classes.len(), total);
        let masses: Vec<f64> = shards.iter().map(Shard::mass).collect();
        let factors =
            if chosen == 0 { Vec::new() } else { objective.weights.factors(&masses).map_err(invalid)? };
        let factors = AgentWeights::Factors((0..chosen).map(|k| factors[agent(k)]).collect());
        let sampled = TableObjective { weights: factors, ..objective.clone() };
        let mut all = Table::new(columns, shards, objective, here.spec.batch).map_err(invalid)?;
        if !test.is_empty() {
            all = match here.is_rank() && about.agents.iter().any(|own| !own.test.is_empty()) {
                true => all.with_part_of_test(test).map_err(invalid)?,
                false => all.with_test(test).map_err(invalid)?,
            };
        }
        Ok((Self { all: Arc::new(all), columns, some, objective: sampled }, rows, about))
    }

    /// The same problem with at most `rows` rows of each of some agents, all of which are in each gradient.
    pub(super) fn sample(&self, here: &Here, rows: usize) -> Result<Table<T>, LabError> {
        let first = |shard: &Shard<T>| shard.some(self.columns, 0..rows.clamp(1, shard.targets.len()));
        let shards = self.some.iter().map(first).collect();
        Table::new(self.columns, shards, self.objective.clone(), here.spec.batch).map_err(invalid)
    }
}

fn invalid(error: InvalidTable) -> LabError {
    LabError::config("problem", error)
}

/// The rows that a gradient or a loss of an agent with this many rows reads: with all rows in every gradient, least squares is a product
/// with a matrix of `columns` rows.
pub(super) fn rows_read(here: &Here, columns: usize, rows: usize) -> usize {
    let pays = has_normal_equations(here.spec.objective.loss, here.spec.batch, columns, rows);
    if pays { columns } else { rows }
}

fn row_counts(here: &Here, columns: usize, counts: &[usize]) -> RowCounts {
    let most = counts.iter().copied().max().unwrap_or(0);
    if rows_read(here, columns, most) < most {
        return RowCounts { all: columns as u64, run: columns as u64, largest_sample: 0 };
    }
    let run = match here.spec.batch {
        Batch::Full => counts.iter().sum::<usize>() / counts.len().max(1),
        Batch::Size(rows) | Batch::Epoch(rows) => rows,
    };
    RowCounts { all: most as u64, run: run as u64, largest_sample: (most / PART) as u64 }
}

/// Some rows of an agent, in random order.
fn part<T: Real>(shard: &Shard<T>, columns: usize, agent: usize, seed: u64) -> Shard<T> {
    let all = shard.targets.len();
    let order = Permutation::new(all, stream(seed, Purpose::Probe, 6, agent as u64));
    shard.some(columns, (0..all.div_ceil(PART)).map(|k| order.at(k)))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use mile::problems::Problem;

    use super::*;
    use crate::Setting;
    use crate::reading::ReadingProgress;
    use crate::section::Section;
    use crate::table::spec;

    fn table(folder: &Path, loss: &str, batch: &str) -> Here {
        let keys = format!("data = 'all.csv'\ntarget = 'y'\nloss = '{loss}'\nbatch = {batch}\n");
        let keys = keys.parse().unwrap();
        let setting = Setting { agents: 2, folder, progress: &ReadingProgress::default() };
        Here::all(spec::read(&Section::new("problem", &keys), setting).unwrap(), setting)
    }

    fn write(folder: &Path, rows: usize) {
        let mut text = "a,y\n".to_owned();
        (0..rows).for_each(|k| writeln!(text, "{k},{}", k % 2).unwrap());
        std::fs::write(folder.join("all.csv"), text).unwrap();
    }

    #[test]
    fn files_are_read_once_and_again_when_they_or_the_seed_change() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 40);
        let (here, loaded) = (table(folder.path(), "logistic", "'full'"), Loaded::default());
        let tables = |seed| loaded.tables::<f64>(&here, seed).unwrap();
        let first = tables(0);
        assert!(Arc::ptr_eq(&first, &tables(0)) && !Arc::ptr_eq(&first, &tables(1)));
        write(folder.path(), 60);
        assert_eq!(tables(1).all.rows(), [30, 30]);
        assert_eq!(loaded.rows(&here, 1).unwrap().all, 30);
        assert_eq!(loaded.tables::<f32>(&here, 1).unwrap().all.rows(), [30, 30]);
        std::fs::remove_file(folder.path().join("all.csv")).unwrap();
        assert!(loaded.tables::<f64>(&here, 1).is_err());
    }

    #[test]
    fn a_sample_is_a_part_of_the_rows_and_of_a_larger_sample() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 80);
        let here = table(folder.path(), "logistic", "4");
        let (tables, rows, _) = Tables::<f64>::load(&here, &Outlines::default(), 3).unwrap();
        assert_eq!(rows, RowCounts { all: 40, run: 4, largest_sample: 10 });
        let small = tables.sample(&here, 4).unwrap();
        assert_eq!((small.rows(), small.agents()), (vec![4, 4], 2));
        assert_eq!(tables.sample(&here, 99).unwrap().rows(), [10, 10]);
        let mut seen = tables.some[0].features.clone();
        seen.sort_by(f64::total_cmp);
        seen.dedup();
        assert_eq!(seen.len(), 10);
        assert_ne!(seen, tables.some[0].features, "the order is random");
        let again = Tables::<f64>::load(&here, &Outlines::default(), 3).unwrap().0;
        assert_eq!(again.some, tables.some);
    }

    #[test]
    fn least_squares_on_all_rows_is_counted_as_a_product_and_needs_no_sample() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 80);
        let counts = |batch| {
            let here = table(folder.path(), "least-squares", batch);
            Tables::<f64>::load(&here, &Outlines::default(), 3).unwrap().1
        };
        assert_eq!(counts("'full'"), RowCounts { all: 1, run: 1, largest_sample: 0 });
        assert_eq!(counts("{ epoch = 5 }"), RowCounts { all: 40, run: 5, largest_sample: 10 });
    }
}
