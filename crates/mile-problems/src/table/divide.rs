//! Divides rows among the agents, and holds some of them out.

use mile::random::{Permutation, Purpose, stream};
use mile_nn::partition::Partition;

use super::bad;
use super::here::Here;
use super::layout::Role;
use super::rows::Rows;
use super::spec::HeldOut;
use crate::error::{DataFileError, LabError};

/// The stream of the rows that are held out, among those of partitions.
const HELD_OUT: u64 = u64::MAX;

/// The rows of each agent, in increasing order.
pub(super) type Division = Vec<Vec<u32>>;

/// Divides the rows among the agents, into training rows and, with a share of them, held-out rows. `classes` are those of
/// the rows, if they have classes.
///
/// Rows are held out by `problem.seed`, or 0, and not by the seed of the run: all runs are measured on the same rows. Where
/// agents have their own rows, each holds out its share or fold; if the seed of the run divides the rows, they are
/// held out beforehand.
pub(super) fn training(
    rows: &Rows,
    classes: Option<(usize, &[Vec<u32>])>,
    owners: &[String],
    here: &Here,
    seed: u64,
) -> Result<(Division, Division), LabError> {
    let (division, held_out) = if here.spec.is_divided_by_owner() {
        let own = match &here.spec.columns.by {
            Some(by) => by_owner(rows, owners, by, here.agents)?,
            None => of_files(rows, here.agents),
        };
        own.into_iter().enumerate().map(|(agent, rows)| shares(rows, here, agent).into()).unzip()
    } else {
        let [rest, taken] = shares((0..rows.len() as u32).collect(), here, 0);
        if rest.len() < here.agents {
            let held_out =
                if taken.is_empty() { String::new() } else { format!(", besides {} held out", taken.len()) };
            let got = format!(
                "{}{held_out}; use fewer agents{}",
                rest.len(),
                if taken.is_empty() { "" } else { ", or hold out less" }
            );
            let expected = format!("at least {} rows for training, one for each agent", here.agents);
            return Err(LabError::expected("network.agents", expected, got));
        }
        (partition(rows, &rest, classes, here, seed)?, evenly(&taken, here.agents))
    };
    if let Some(agent) = here.available().into_iter().find(|agent| division[*agent].is_empty()) {
        let problem = format!("agent {agent} has no rows; give it some, or use fewer agents");
        return Err(bad(&rows.files[0].path, None, None, problem).into());
    }
    Ok((division, held_out))
}

/// Rows shared evenly among the agents.
fn evenly(rows: &[u32], agents: usize) -> Division {
    (0..agents).map(|agent| rows.iter().skip(agent).step_by(agents).copied().collect()).collect()
}

/// The held-out rows of each agent: by owner, by file, or shared evenly.
pub(super) fn held_out(rows: &Rows, owners: &[String], here: &Here) -> Result<Division, LabError> {
    let (agents, per_agent) = (here.agents, rows.agents[0].is_some());
    match &here.spec.columns.by {
        Some(by) => Ok(by_owner(rows, owners, by, agents)?),
        None if per_agent => Ok(of_files(rows, agents)),
        None => {
            let all: Vec<u32> = (0..rows.len() as u32).collect();
            Ok(evenly(&all, agents))
        }
    }
}

/// The values of `by`, in the order of the agents: words, then whole numbers by value.
pub(super) fn owners(rows: &Rows, here: &Here) -> Result<Vec<String>, DataFileError> {
    let (Some(by), Some(role)) = (&here.spec.columns.by, rows.layout().owner) else { return Ok(Vec::new()) };
    let mut names: Vec<String> = rows.names(role, str::to_owned).into_iter().collect();
    names.sort_by_key(|name| (name.parse::<i64>().ok(), name.clone()));
    if names.len() != here.agents {
        let problem =
            format!("expected {} different values, one per agent, got {}", here.agents, names.len());
        return Err(bad(&rows.files[0].path, None, Some(by), problem));
    }
    Ok(names)
}

fn by_owner(rows: &Rows, owners: &[String], by: &str, agents: usize) -> Result<Division, DataFileError> {
    let role = rows.layout().owner.unwrap_or(Role::Unused);
    let unknown = |word: &str| format!("'{word}' does not occur in column '{by}' of the training data");
    let codes = rows.codes(role, str::to_owned, owners, None, &unknown)?;
    let mut division = vec![Vec::new(); agents];
    if let Role::Word(column) = role {
        for (owner, row) in rows.coded(column, &codes).into_iter().zip(0..) {
            division[owner as usize].push(row);
        }
    }
    Ok(division)
}

/// The rows of each agent's own file.
fn of_files(rows: &Rows, agents: usize) -> Division {
    let mut division = vec![Vec::new(); agents];
    let mut first = 0;
    for (file, agent) in rows.files.iter().zip(&rows.agents) {
        let end = first + file.rows() as u32;
        if let Some(agent) = agent {
            division[*agent] = (first..end).collect();
        }
        first = end;
    }
    division
}

/// Divides some rows by the partition.
fn partition(
    rows: &Rows,
    some: &[u32],
    classes: Option<(usize, &[Vec<u32>])>,
    here: &Here,
    seed: u64,
) -> Result<Division, LabError> {
    let refuse = |problem: String| LabError::config("problem.partition", problem);
    let is_iid = matches!(here.spec.division.partition, Partition::Iid {});
    let (labels, count) = match (classes, rows.layout().target) {
        _ if is_iid => (vec![0; some.len()], 1),
        (Some((count, codes)), Role::Word(column)) => {
            if count > 256 {
                let problem =
                    format!("divides at most 256 classes, but the target has {count}; use iid, or by");
                return Err(refuse(problem));
            }
            let all = rows.coded(column, codes);
            (some.iter().map(|row| all[*row as usize] as u8).collect(), count)
        }
        _ => {
            let problem = format!(
                "divides by class, but {} has no classes; use iid, by, or one file per agent",
                here.spec.objective.loss_name
            );
            return Err(refuse(problem));
        }
    };
    let division = here.spec.division.partition.split(&labels, count, here.agents, seed);
    let division = division.map_err(|error| refuse(error.to_string()))?;
    let number = |place: &u32| some[*place as usize];
    Ok(division.iter().map(|places| places.iter().map(number).collect()).collect())
}

/// An agent's rows for training, at least one, and its share or fold of rows that are held out, at random.
pub(super) fn shares(rows: Vec<u32>, here: &Here, agent: usize) -> [Vec<u32>; 2] {
    let (all, seed) = (rows.len(), here.spec.division.seed.unwrap_or(0));
    let places = match here.spec.files.test {
        HeldOut::Share(share) => 0..((share * all as f64).round() as usize).min(all.saturating_sub(1)),
        HeldOut::Fold { number, of } if all > 1 => {
            let end = |fold: u32| (u64::from(fold) * all as u64 / u64::from(of)) as usize;
            end(number - 1)..end(number)
        }
        _ => 0..0,
    };
    let order = Permutation::new(all, stream(seed, Purpose::Partition, agent as u64, HELD_OUT));
    let mut is_taken = vec![false; all];
    places.for_each(|k| is_taken[order.at(k)] = true);
    let part = |taken: bool| -> Vec<u32> {
        rows.iter().zip(&is_taken).filter(|(_, is)| **is == taken).map(|(row, _)| *row).collect()
    };
    [part(false), part(true)]
}
