//! What is made of each column of a table: target, agents, features.

use std::path::Path;

use mile_lab::error::LabError;
use mile_lab::objectives::{ColumnLook, ColumnType, NumberFormat, TableLook};

/// The most classes of a target of words.
const MOST_CLASSES: usize = 20;
/// The most classes of a target of whole numbers.
const MOST_NUMBERS: usize = 10;
/// The most values of a column that names agents, or is a category.
const MOST_AGENTS: usize = 50;
/// Agents if no column names them.
const AGENTS: u64 = 5;
/// With fewer rows none are held out.
const FEWEST_TO_HOLD_OUT: u64 = 25;
/// A column with gaps and fewer values may have none left when rows are held out.
const FEWEST_VALUES: u64 = 10;
/// Larger numbers have no square.
const LARGEST: f64 = 1e100;
/// Words in the names of columns of words that stand for agents, and those that do so even if its values are numbers.
const AGENT_NAMES: [&str; 20] = [
    "agent", "client", "node", "site", "station", "hospital", "clinic", "device", "sensor", "user", "owner",
    "branch", "school", "group", "region", "city", "country", "state", "centre", "center",
];
const NUMBERED_AGENTS: [&str; 11] = [
    "agent", "client", "node", "site", "station", "hospital", "clinic", "device", "sensor", "branch",
    "school",
];

/// What `mile run` should have done in seconds: multiplications of all steps, about.
const WORK: f64 = 3e10;
/// Local steps in a round, as in the template.
const LOCAL_STEPS: f64 = 10.0;
/// The fewest and the most rounds.
const ROUNDS: [f64; 2] = [200.0, 5000.0];

/// What is made of a table.
pub(super) struct Choices {
    /// The use of each column.
    pub(super) uses: Vec<ColumnUse>,
    pub(super) target: usize,
    pub(super) loss: &'static str,
    /// The column of exposures, to which expected counts are proportional.
    pub(super) exposure: Option<usize>,
    /// The column that names the agent of a row.
    pub(super) by: Option<usize>,
    pub(super) agents: u64,
    pub(super) holds_out: bool,
}

/// What a column is used for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ColumnUse {
    /// A target that is a number.
    Target,
    /// A target of classes.
    Classes,
    Agents,
    Exposure,
    Number,
    Category,
    /// No use, for this reason.
    LeftOut(String),
}

impl ColumnUse {
    pub(super) fn is_feature(&self) -> bool {
        matches!(self, Self::Number | Self::Category)
    }

    /// What is told about a column.
    pub(super) fn told(&self, column: &ColumnLook) -> String {
        let kind = match (self, &column.kind) {
            (Self::LeftOut(reason), _) => return reason.clone(),
            (Self::Category, _) => format!("category, {} values", column.values.as_ref().map_or(0, Vec::len)),
            (_, ColumnType::Unclear(..)) => "number, see the question".to_owned(),
            (_, ColumnType::Numbers(NumberFormat::Plain)) => "number".to_owned(),
            (_, ColumnType::Numbers(format)) => format!("number, written as {}", format.name()),
            _ => "words".to_owned(),
        };
        let missing =
            if column.missing == 0 { String::new() } else { format!(", {} missing", column.missing) };
        format!("{kind}{missing}{}", odd_words(column))
    }

    /// Words of a column that stand for missing values, besides those that always do.
    pub(super) fn missing_words(&self, column: &ColumnLook) -> Vec<String> {
        let odd = || column.odd.iter().map(|(word, ..)| word.clone());
        match self {
            Self::LeftOut(_) | Self::Category | Self::Agents => Vec::new(),
            // Classes are words, among which the words for missing numbers are not known.
            Self::Classes => column.blanks.iter().cloned().chain(odd()).collect(),
            Self::Target | Self::Number | Self::Exposure => odd().collect(),
        }
    }
}

/// What is told about words in a column of numbers.
pub(super) fn odd_words(column: &ColumnLook) -> String {
    column.odd.first().map_or_else(String::new, |(word, place, _)| {
        let count: u64 = column.odd.iter().map(|(.., count)| count).sum();
        format!(" (words that are not numbers: {count}, the first in {place}: {word:?})")
    })
}

impl Choices {
    pub(super) fn of(path: &Path, look: &TableLook, target: Option<&str>) -> Result<Self, LabError> {
        check_names(path, look)?;
        let target = find_target(path, look, target)?;
        let exposure = exposure_column(look, target);
        let loss = match exposure {
            Some(_) => "poisson",
            None => loss(path, look, &look.columns[target])?,
        };
        let usable = look.rows - look.columns[target].missing;
        let by = agents_column(look, target);
        let agents = by.map_or(AGENTS.min(usable).max(1), |by| distinct(&look.columns[by]) as u64);
        let holds_out = usable >= FEWEST_TO_HOLD_OUT;
        let use_of = |(k, column): (usize, &ColumnLook)| match k {
            k if k == target && matches!(loss, "least-squares" | "poisson") => ColumnUse::Target,
            k if k == target => ColumnUse::Classes,
            k if Some(k) == by => ColumnUse::Agents,
            k if Some(k) == exposure => ColumnUse::Exposure,
            _ => feature(column, look, holds_out),
        };
        let uses = look.columns.iter().enumerate().map(use_of).collect();
        Ok(Self { uses, target, loss, exposure, by, agents, holds_out })
    }

    /// The value of the key `missing`, if it is needed.
    pub(super) fn missing(&self, look: &TableLook) -> Option<&'static str> {
        let gaps = |wanted: &dyn Fn(&ColumnUse) -> bool| {
            let mut columns = look.columns.iter().zip(&self.uses);
            columns.any(|(column, used)| column.missing > 0 && wanted(used))
        };
        if gaps(&|used| *used == ColumnUse::Category) {
            return Some("category");
        }
        gaps(&|used| !matches!(used, ColumnUse::LeftOut(_) | ColumnUse::Category)).then_some("mean")
    }

    /// Number of features, the intercept included.
    fn width(&self, look: &TableLook) -> f64 {
        let width = |(column, used): (&ColumnLook, &ColumnUse)| match used {
            ColumnUse::Number => 1,
            ColumnUse::Category => distinct(column),
            _ => 0,
        };
        1.0 + look.columns.iter().zip(&self.uses).map(width).sum::<usize>() as f64
    }

    /// Rounds that take seconds: many for a small table, since classes that are nearly separated converge slowly.
    pub(super) fn rounds(&self, look: &TableLook) -> u64 {
        let outputs = if self.loss == "softmax" { distinct(&look.columns[self.target]) as f64 } else { 1.0 };
        let round = LOCAL_STEPS * look.rows as f64 * self.width(look) * outputs;
        rounded_down((WORK / round).clamp(ROUNDS[0], ROUNDS[1]), false) as u64
    }

    /// The gradient norm at which the run ends: a millionth of the target's largest value, or of 1 where losses have no unit.
    pub(super) fn grad_norm(&self, look: &TableLook) -> f64 {
        let largest = look.columns[self.target].largest;
        let scale = if self.loss == "least-squares" && largest > 0.0 { largest } else { 1.0 };
        rounded_down(1e-6 * scale, true)
    }

    /// The step size of a Poisson loss, whose curvature has no bound: half the inverse of the trace of its Hessian where expected counts are
    /// the exposures, as at the start, or the counts, as at the end.
    pub(super) fn step_size(&self, look: &TableLook) -> Option<f64> {
        let exposure = &look.columns[self.exposure?];
        let largest = exposure.mean.max(look.columns[self.target].mean);
        // The mean square of a row: 1 for the intercept and each standardised number, and 1 for all features of a category together.
        let square = 1.0 + self.uses.iter().filter(|used| used.is_feature()).count() as f64;
        Some(rounded_down(0.5 / (largest * square), false))
    }

    /// Why the loss is what it is.
    pub(super) fn loss_reason(&self, look: &TableLook) -> String {
        match self.loss {
            "least-squares" => match &look.columns[self.target].kind {
                ColumnType::Unclear(..) => "it is a number, see the question".into(),
                ColumnType::Numbers(format) if *format != NumberFormat::Plain => {
                    format!("it is a number, written as {}", format.name())
                }
                _ => "it is a number".into(),
            },
            "poisson" => "it is a count, and there is a column of exposures".into(),
            _ => format!("it has {} values", distinct(&look.columns[self.target])),
        }
    }

    pub(super) fn loss_comment(&self, look: &TableLook) -> String {
        match self.loss {
            "least-squares" => "the target is a number; for two classes: \"logistic\"".into(),
            "poisson" => "the target is a count; for numbers: \"least-squares\"".into(),
            _ if look.columns[self.target].is_whole && is_count(&look.columns[self.target]) => format!(
                "the target has {} values; for numbers: \"least-squares\", for counts: \"poisson\" and a number as step_size",
                distinct(&look.columns[self.target])
            ),
            _ => {
                let values = distinct(&look.columns[self.target]);
                format!("the target has {values} values; for numbers: \"least-squares\"")
            }
        }
    }
}

/// The number of different values, if they are not too many to be counted.
fn distinct(column: &ColumnLook) -> usize {
    column.values.as_ref().map_or(usize::MAX, Vec::len)
}

/// Refuses a file without two columns, without a header, or with two columns of the same name.
fn check_names(path: &Path, look: &TableLook) -> Result<(), LabError> {
    let refuse = |problem: String| Err(LabError::Directory { path: path.to_owned(), problem });
    let mut names: Vec<&str> = look.columns.iter().map(|column| column.name.as_str()).collect();
    if let [] | [_] = names[..] {
        return refuse(format!(
            "expected a table of at least two columns, separated by commas, semicolons, tabs or |, with their names in the first line, got {:?} there",
            names.concat()
        ));
    }
    // Names that count the columns are those of a frame of pandas without names.
    let numbers: Option<Vec<f64>> = names.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some_and(|numbers| numbers.windows(2).any(|pair| pair[1] != pair[0] + 1.0)) {
        let problem = "expected the names of the columns in the first line, got only numbers; put a line with names above the rows";
        return refuse(problem.to_owned());
    }
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1] && !pair[0].is_empty()) {
        Some(pair) => refuse(format!("two columns are named '{}'; rename one of them", pair[0])),
        None => Ok(()),
    }
}

/// The index of the target: the column of this name, or the last.
fn find_target(path: &Path, look: &TableLook, name: Option<&str>) -> Result<usize, LabError> {
    let Some(name) = name else { return Ok(look.columns.len() - 1) };
    look.columns.iter().position(|column| column.name == name).ok_or_else(|| {
        let names: Vec<&str> = look.columns.iter().map(|column| column.name.as_str()).collect();
        let problem =
            format!("{} has no column '{name}'; its columns are {}", path.display(), names.join(", "));
        LabError::config("--target", problem)
    })
}

/// The loss of a target.
fn loss(path: &Path, look: &TableLook, target: &ColumnLook) -> Result<&'static str, LabError> {
    let values = distinct(target);
    let refuse = |got: String| {
        let fits =
            |column: &&ColumnLook| matches!(column.kind, ColumnType::Numbers(_)) && !column.name.is_empty();
        let numbers: Vec<&str> = look.columns.iter().filter(fits).map(|c| c.name.as_str()).collect();
        let numbers = if numbers.is_empty() { "none".into() } else { numbers.join(", ") };
        let problem = format!(
            "expected numbers or 2 to {MOST_CLASSES} classes in a target, but column '{}' of {} {got}; columns of numbers are {numbers}",
            target.name,
            path.display(),
        );
        Err(LabError::config("--target", problem))
    };
    // Few whole numbers that occur often are classes; a measured quantity has more values.
    let are_few = target.is_whole && values <= MOST_NUMBERS && look.rows >= 5 * values as u64;
    match target.kind {
        _ if target.name.is_empty() => refuse("has no name".into()),
        ColumnType::Empty => refuse("has no values".into()),
        ColumnType::Numbers(NumberFormat::Boolean) | ColumnType::Words => match values {
            1 => refuse("has only one value".into()),
            2 => Ok("logistic"),
            3..=MOST_CLASSES => Ok("softmax"),
            usize::MAX => refuse("has more than a thousand different texts".into()),
            _ => refuse(format!("has {values} different texts")),
        },
        ColumnType::Numbers(_) if values == 2 => Ok("logistic"),
        ColumnType::Numbers(_) if values > 2 && are_few => Ok("softmax"),
        ColumnType::Numbers(_) | ColumnType::Unclear(..) if target.largest < LARGEST => Ok("least-squares"),
        _ => refuse(format!("has numbers up to {:e}, whose squares are too large", target.largest)),
    }
}

/// A positive number rounded down to its first digit, or to a power of ten.
fn rounded_down(value: f64, to_power: bool) -> f64 {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let first = if to_power { "1" } else { &digits[..1] };
    format!("{first}e{exponent}").parse().unwrap_or(value)
}

/// Whether a column has counts.
fn is_count(column: &ColumnLook) -> bool {
    let are_plain = column.kind == ColumnType::Numbers(NumberFormat::Plain);
    are_plain && column.is_whole && column.negative == 0 && column.mean > 0.0
}

/// The column of exposures, by its name, if the target has counts.
fn exposure_column(look: &TableLook, target: usize) -> Option<usize> {
    let fits = |(k, column): &(usize, &ColumnLook)| {
        let are_plain = column.kind == ColumnType::Numbers(NumberFormat::Plain);
        let are_positive = are_plain && column.negative + column.zeros + column.missing == 0;
        *k != target && are_positive && says(&column.name, &["exposure"])
    };
    let counts = &look.columns[target];
    look.columns
        .iter()
        .enumerate()
        .find(fits)
        .map(|(k, _)| k)
        .filter(|_| is_count(counts) && distinct(counts) > 1)
}

/// The column that names an agent, by its name: few values, each of which occurs more often than the target is missing.
fn agents_column(look: &TableLook, target: usize) -> Option<usize> {
    let gaps = look.columns[target].missing;
    let fits = |(k, column): &(usize, &ColumnLook)| {
        let values = column.values.as_deref().unwrap_or_default();
        let few = (2..=MOST_AGENTS).contains(&values.len());
        let often = values.iter().all(|(_, count)| *count > gaps + 1);
        let named = match column.kind {
            ColumnType::Words => says(&column.name, &AGENT_NAMES),
            ColumnType::Numbers(NumberFormat::Plain) => {
                column.is_whole && says(&column.name, &NUMBERED_AGENTS)
            }
            _ => false,
        };
        *k != target && few && often && named && column.missing == 0
    };
    look.columns.iter().enumerate().find(fits).map(|(k, _)| k)
}

/// Whether one of the words of a name is one of these, perhaps in the plural.
fn says(name: &str, words: &[&str]) -> bool {
    let is_same = |part: &str| {
        let part = part.to_ascii_lowercase();
        words.iter().any(|word| part == *word || part.strip_suffix('s') == Some(word))
    };
    parts(name).into_iter().any(is_same)
}

/// The words of a name such as `site_id`, `siteId` or `Site 2`.
fn parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in name.split(|c: char| !c.is_ascii_alphabetic()) {
        let mut rest = part;
        while let Some(place) = rest.char_indices().skip(1).find(|(k, c)| {
            c.is_ascii_uppercase() && rest[..*k].ends_with(|before: char| before.is_ascii_lowercase())
        }) {
            let (first, last) = rest.split_at(place.0);
            parts.push(first);
            rest = last;
        }
        parts.push(rest);
    }
    parts
}

/// What is told about lines that begin with #, where other lines do not.
fn perhaps_comments(column: &ColumnLook, look: &TableLook) -> String {
    let begins = |(word, _): &&(String, u64)| word.starts_with('#');
    let count: u64 = column.values.iter().flatten().filter(begins).map(|(_, count)| count).sum();
    let is_first = look.columns.first().is_some_and(|first| first.name == column.name);
    if !is_first || look.comment.is_some() || count == 0 || count == look.rows {
        return String::new();
    }
    format!("; {count} lines begin with #: if they are comments, write comment = \"#\" in [problem]")
}

/// The use of a column that is neither the target nor names agents.
fn feature(column: &ColumnLook, look: &TableLook, holds_out: bool) -> ColumnUse {
    let left_out = |reason: &str| ColumnUse::LeftOut(reason.to_owned());
    let values = distinct(column);
    let has_id = |name: &str| name.starts_with("ID") || name.ends_with("ID") || name.starts_with("Unnamed");
    let is_numbered = says(&column.name, &["id", "index", "row"]) || has_id(&column.name);
    // Each row has another number, as far as they are counted.
    let is_number_of_row = column.is_whole && is_numbered && values as u64 >= look.rows;
    match column.kind {
        _ if column.name.is_empty() => left_out("it has no name (perhaps an index that pandas wrote)"),
        ColumnType::Empty => left_out("it has no numbers and no words"),
        _ if values == 1 && column.missing == 0 => left_out("all rows have the same value"),
        _ if holds_out && column.missing > 0 && look.rows - column.missing < FEWEST_VALUES => {
            ColumnUse::LeftOut(format!("too few rows have a value: {}", look.rows - column.missing))
        }
        ColumnType::Numbers(_) if column.largest >= LARGEST => ColumnUse::LeftOut(format!(
            "it has numbers up to {:e}, whose squares are too large",
            column.largest
        )),
        ColumnType::Numbers(NumberFormat::Plain) if is_number_of_row => {
            left_out("by its name and its many values, it is a label and not a quantity")
        }
        ColumnType::Numbers(_) | ColumnType::Unclear(..) => ColumnUse::Number,
        ColumnType::Words if values <= MOST_AGENTS && 2 * values as u64 <= look.rows => ColumnUse::Category,
        ColumnType::Words if values == usize::MAX => {
            left_out("text with more than a thousand different values")
        }
        ColumnType::Words => ColumnUse::LeftOut(format!(
            "text with {values} different values{}",
            perhaps_comments(column, look)
        )),
    }
}
