//! What the columns of a file are used for.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use mile_nn::partition::Partition;

use super::bad;
use super::here::Here;
use crate::error::DataFileError;
use crate::section::nearest;

/// The use of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is not read.
    Unused,
    /// A number, at this place among the numbers of a row.
    Number(usize),
    /// A word, at this place among the words of a row.
    Word(usize),
}

/// The columns of a file, and the features that they give.
///
/// The numbers of a row are those of its features, then the target if it is a number, its weight and its offset. Its words are the categories of its
/// features, then the target if it is a class, then the value of `by`.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) header: Vec<String>,
    /// The role of each column of the header.
    pub(super) roles: Vec<Role>,
    /// Names and roles of the features, in their order.
    pub(super) features: Vec<(String, Role)>,
    pub(super) target: Role,
    /// The places of a row's weight and offset among its numbers.
    pub(super) weight: Option<usize>,
    pub(super) offset: Option<usize>,
    pub(super) owner: Option<Role>,
    /// Number of numbers in a row.
    pub(super) numbers: usize,
    /// Number of words in a row.
    pub(super) words: usize,
}

impl Layout {
    /// The use of the columns of a file; `owner`: the column that assigns rows to agents, if the file has it.
    pub(super) fn new(
        path: &Path,
        header: &[String],
        here: &Here,
        owner: Option<&str>,
    ) -> Result<Self, DataFileError> {
        let refuse = |problem: String| bad(path, Some(1), None, problem);
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (k, name) in header.iter().enumerate() {
            if known.insert(name, k).is_some() && !name.is_empty() {
                return Err(refuse(format!("two columns are named '{name}'; rename one of them")));
            }
        }
        let find = |name: &str, key: &str| {
            known.get(name).copied().ok_or_else(|| refuse(unknown(header, name, key)))
        };
        let target = find(&here.spec.columns.target, "target")?;
        let columns = &here.spec.columns;
        let owner = owner.map(|by| find(by, "by")).transpose()?;
        let weight = columns.weights.as_ref().map(|name| find(name, "weights")).transpose()?;
        let offset_key = columns.offset.as_ref().map_or("offset", |offset| offset.key());
        let offset = columns.offset.as_ref().map(|offset| find(&offset.column, offset_key)).transpose()?;
        let uses = [("target", Some(target)), ("by", owner), ("weights", weight), (offset_key, offset)];
        for (at, (first, column)) in uses.iter().enumerate() {
            let twice = uses[at + 1..].iter().find(|(_, other)| column.is_some() && other == column);
            if let (Some((second, _)), Some(column)) = (twice, column) {
                let name = &header[*column];
                return Err(refuse(format!("column '{name}' is both problem.{first} and problem.{second}")));
            }
        }
        let reserved = |k: usize| uses.iter().any(|(_, column)| *column == Some(k));
        let excluded: Vec<usize> =
            here.spec.columns.exclude.iter().map(|name| find(name, "exclude")).collect::<Result<_, _>>()?;
        let places: Vec<usize> = match &here.spec.columns.features {
            Some(names) => names.iter().map(|name| find(name, "columns")).collect::<Result<_, _>>()?,
            None => (0..header.len()).filter(|k| !reserved(*k) && !excluded.contains(k)).collect(),
        };
        for (list, key) in [(&places, "columns"), (&excluded, "exclude")] {
            if let Some(k) = list.iter().find(|k| reserved(**k)) {
                let of = uses.iter().find(|(_, column)| *column == Some(*k)).map_or("", |(key, _)| *key);
                let name = &header[*k];
                return Err(refuse(format!(
                    "column '{name}' is problem.{of} and cannot be in problem.{key}"
                )));
            }
        }
        if let Some(k) = places.iter().find(|k| header[**k].is_empty()) {
            let problem = format!(
                "column {} has no name (perhaps an index that pandas wrote); name it, or leave it out with exclude = [\"\"]",
                k + 1
            );
            return Err(refuse(problem));
        }
        for name in &here.spec.columns.categorical {
            let k = find(name, "categorical")?;
            if !places.contains(&k) {
                return Err(refuse(format!("column '{name}' in problem.categorical is not a feature")));
            }
        }
        let mut layout = Self {
            header: header.to_vec(),
            roles: vec![Role::Unused; header.len()],
            features: Vec::with_capacity(places.len()),
            target: Role::Unused,
            weight: None,
            offset: None,
            owner: None,
            numbers: 0,
            words: 0,
        };
        for k in places {
            let role = layout.assign(k, here.spec.columns.categorical.contains(&header[k]));
            layout.features.push((header[k].clone(), role));
        }
        layout.target = layout.assign(target, here.spec.has_classes());
        let mut number = |column: Option<usize>| match layout.assign(column?, false) {
            Role::Number(place) => Some(place),
            _ => None,
        };
        (layout.weight, layout.offset) = (number(weight), number(offset));
        layout.owner = owner.map(|k| layout.assign(k, true));
        Ok(layout)
    }

    fn assign(&mut self, column: usize, is_word: bool) -> Role {
        let count = if is_word { &mut self.words } else { &mut self.numbers };
        let role = if is_word { Role::Word(*count) } else { Role::Number(*count) };
        *count += 1;
        self.roles[column] = role;
        role
    }

    /// The place, among the words of a row, of the word by which rows are divided among the agents; an empty range if there is none.
    pub(super) fn dividing(&self, partition: &Partition) -> Range<usize> {
        let by_class = || (!matches!(partition, Partition::Iid {})).then_some(self.target);
        match self.owner.or_else(by_class) {
            Some(Role::Word(place)) => place..place + 1,
            _ => 0..0,
        }
    }

    /// The name of the column with a role.
    pub(super) fn name(&self, role: Role) -> &str {
        let place = self.roles.iter().position(|other| *other == role);
        place.map_or("", |place| &self.header[place])
    }
}

/// The message about a column that a key names and the file does not have.
fn unknown(header: &[String], name: &str, key: &str) -> String {
    const SHOWN: usize = 20;
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    let hint = nearest(name, &names).map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let shown = names[..names.len().min(SHOWN)].join(", ");
    format!("no column '{name}', named in problem.{key}{hint}; the columns are {shown}{more}")
}
