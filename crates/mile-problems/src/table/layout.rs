//! What the columns of a file are used for.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use mile::problems::Loss;
use mile_nn::partition::Partition;

use super::bad;
use super::cell::{Cell, Wanted};
use super::decimal;
use super::formats::{NumberFormat, is_missing_number, is_missing_word};
use super::here::Here;
use crate::error::{DataFileError, FilePlace};
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

/// A column whose numbers may be too small for their use.
#[derive(Clone, Debug)]
struct Bounded {
    column: usize,
    /// The place among the numbers of a row.
    place: usize,
    expected: &'static str,
    allows_zero: bool,
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
    /// Unused where targets are to be predicted.
    pub(super) target: Role,
    /// The places of a row's weight and offset among its numbers.
    pub(super) weight: Option<usize>,
    pub(super) offset: Option<usize>,
    pub(super) owner: Option<Role>,
    /// Number of numbers in a row.
    pub(super) numbers: usize,
    /// Number of words in a row.
    pub(super) words: usize,
    bounded: Vec<Bounded>,
    /// How the numbers of each column are written.
    formats: Vec<NumberFormat>,
    /// For each column, words that stand for a missing value, besides those that always do.
    missing_words: Vec<Vec<String>>,
    /// Where the header is, if the file is a text.
    pub(super) place: Option<FilePlace>,
}

impl Layout {
    /// Whether a column with this role is a feature.
    pub(super) fn is_feature(&self, role: Role) -> bool {
        self.features.iter().any(|(_, feature)| *feature == role)
    }

    /// The use of the columns of a file; `owner`: the column that assigns rows to agents, if the file has it.
    pub(super) fn new(
        path: &Path,
        header: &[String],
        place: Option<FilePlace>,
        here: &Here,
        owner: Option<&str>,
    ) -> Result<Self, DataFileError> {
        let refuse = |problem: String| bad(path, place, None, problem);
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (k, name) in header.iter().enumerate() {
            if known.insert(name, k).is_some() && !name.is_empty() {
                return Err(refuse(format!("two columns are named '{name}'; rename one of them")));
            }
        }
        let find = |name: &str, key: &str| {
            known.get(name).copied().ok_or_else(|| refuse(unknown(header, name, key)))
        };
        let target = here.is_labelled.then(|| find(&here.spec.columns.target, "target")).transpose()?;
        let columns = &here.spec.columns;
        let owner = owner.map(|by| find(by, "by")).transpose()?;
        let weight = columns.weights.as_ref().map(|name| find(name, "weights")).transpose()?;
        let offset_key = columns.offset.as_ref().map_or("offset", |offset| offset.key());
        let offset = columns.offset.as_ref().map(|offset| find(&offset.column, offset_key)).transpose()?;
        let uses = [("target", target), ("by", owner), ("weights", weight), (offset_key, offset)];
        for (at, (first, column)) in uses.iter().enumerate() {
            let twice = uses[at + 1..].iter().find(|(_, other)| column.is_some() && other == column);
            if let (Some((second, _)), Some(column)) = (twice, column) {
                let name = &header[*column];
                return Err(refuse(format!("column '{name}' is both problem.{first} and problem.{second}")));
            }
        }
        let reserved = |k: usize| uses.iter().any(|(_, column)| *column == Some(k));
        let mut excluded: Vec<usize> = Vec::new();
        for name in &here.spec.columns.exclude {
            find(name, "exclude")?;
            // Several columns may have no name.
            excluded.extend((0..header.len()).filter(|k| header[*k] == *name));
        }
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
            bounded: Vec::new(),
            formats: vec![NumberFormat::Plain; header.len()],
            missing_words: vec![here.spec.files.written.missing_words.clone(); header.len()],
            place,
        };
        for k in places {
            let role = layout.assign(k, here.spec.columns.categorical.contains(&header[k]));
            layout.features.push((header[k].clone(), role));
        }
        if let Some(target) = target {
            layout.target = layout.assign(target, here.spec.has_classes());
        }
        let mut number = |column: Option<usize>| match layout.assign(column?, false) {
            Role::Number(place) => Some(place),
            _ => None,
        };
        (layout.weight, layout.offset) = (number(weight), number(offset));
        let is_exposure = here.spec.columns.offset.as_ref().is_some_and(|offset| offset.is_exposure);
        for (column, applies, expected, allows_zero) in [
            (weight, true, "a weight of at least 0", true),
            (offset, is_exposure, "an exposure above 0", false),
            (
                target,
                here.spec.objective.loss == Loss::Poisson,
                "a count of at least 0, for the loss poisson",
                true,
            ),
        ] {
            if let Some(column) = column.filter(|_| applies)
                && let Role::Number(place) = layout.roles[column]
            {
                layout.bounded.push(Bounded { column, place, expected, allows_zero });
            }
        }
        layout.owner = owner.map(|k| layout.assign(k, true));
        for (name, words) in &here.spec.files.written.missing_words_of {
            layout.missing_words[find(name, "missing_words")?] = words.clone();
        }
        for (name, format) in &here.spec.files.written.formats {
            let k = find(name, "formats")?;
            if matches!(layout.roles[k], Role::Word(_)) {
                return Err(refuse(format!(
                    "column '{name}' in problem.formats is read as words; leave it out there"
                )));
            }
            layout.formats[k] = *format;
        }
        Ok(layout)
    }

    /// The first number of a row that is too small for its use: its column, and what is wrong with it.
    pub(super) fn too_small(&self, numbers: &[f64]) -> Option<(usize, String)> {
        let is_below = |one: &&Bounded| {
            let number = numbers[one.place];
            number < 0.0 || (number == 0.0 && !one.allows_zero)
        };
        let one = self.bounded.iter().find(is_below)?;
        Some((one.column, format!("expected {}, got {}", one.expected, numbers[one.place])))
    }

    /// What is read of each column.
    pub(super) fn wanted(&self) -> Vec<Wanted> {
        let wanted = |role: &Role| match role {
            Role::Unused => Wanted::Nothing,
            Role::Number(_) => Wanted::Number,
            Role::Word(_) => Wanted::Word,
        };
        self.roles.iter().map(wanted).collect()
    }

    /// The number of a cell in a column, none if it is missing; or what is wrong with it.
    #[inline]
    pub(super) fn number(&self, column: usize, cell: Cell) -> Result<Option<f64>, String> {
        match cell {
            Cell::Missing => Ok(None),
            Cell::Number(value) if value.is_finite() => Ok(Some(value)),
            Cell::Number(value) => Err(format!("'{value}' is not a finite number")),
            Cell::Text(field) => {
                let is_plain =
                    self.formats[column] == NumberFormat::Plain && self.missing_words[column].is_empty();
                match decimal::parse(field) {
                    Some(value) if is_plain && value.is_finite() => Ok(Some(value)),
                    _ => self.written_number(column, field),
                }
            }
        }
    }

    /// The number of a field that may not be plain.
    #[cold]
    fn written_number(&self, column: usize, field: &str) -> Result<Option<f64>, String> {
        let (format, text) = (self.formats[column], field.trim());
        if self.missing_words[column].iter().any(|word| word.trim() == text) {
            return Ok(None);
        }
        match format.parse(text) {
            Some(value) if value.is_finite() => Ok(Some(value)),
            Some(value) if value.is_nan() => Ok(None),
            Some(_) => Err(format!("'{field}' is not a finite number")),
            None if is_missing_number(text) => Ok(None),
            None => Err(self.explain(column, text)),
        }
    }

    /// What is wrong with a field that is not a number, and what to do about it.
    fn explain(&self, column: usize, text: &str) -> String {
        let (format, name) = (self.formats[column], &self.header[column]);
        let fits = |(word, other, _): &(&str, NumberFormat, &str)| {
            let value = other.parse(text).filter(|_| *other != format)?;
            Some(format!("for {value}, set formats = {{ \"{name}\" = \"{word}\" }} in [problem]"))
        };
        let remedies: Vec<String> = NumberFormat::NAMED.iter().filter_map(fits).collect();
        let problem = match NumberFormat::NAMED.iter().find(|(_, other, _)| *other == format) {
            None => format!("'{text}' is not a number"),
            Some((word, _, example)) => {
                format!("expected a number written as in {example} (formats: {word}), got '{text}'")
            }
        };
        // How values are written is then that of the training, and the file has to follow.
        if self.target == Role::Unused {
            return problem;
        }
        if !remedies.is_empty() {
            return format!("{problem}; {}", remedies.join("; "));
        }
        if column == 0 && text.starts_with('#') {
            return format!(
                "{problem}; if lines that begin with # are comments, set comment = \"#\" in [problem]"
            );
        }
        if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            || self.roles[column] == self.target
        {
            return format!(
                "{problem}; where it means that a value is missing, add it to missing_words in [problem]"
            );
        }
        format!(
            "{problem}; for a column of words, add it to categorical = [\"{name}\"] in [problem], or leave it out with exclude = [\"{name}\"]; \
             where it means that a value is missing, add it to missing_words"
        )
    }

    /// The word of a cell in a column; none if it is missing.
    #[inline]
    pub(super) fn word<'c>(&self, column: usize, cell: Cell<'c>) -> Option<&'c str> {
        let Cell::Text(field) = cell else { return None };
        let word = field.trim();
        let is_missing = is_missing_word(word) || self.missing_words[column].iter().any(|w| w.trim() == word);
        (!is_missing).then_some(word)
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
