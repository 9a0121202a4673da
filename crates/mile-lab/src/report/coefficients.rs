//! The coefficients of a run's models, from `coefficients.csv`, in the units of the data.

use std::path::Path;

use crate::table::{TextTable, number};

/// Most coefficients that are shown; the file has all.
const MOST: usize = 200;
/// Coefficients from which the table is folded.
const FEW: usize = 30;

/// The coefficients of a run directory, for its report.
pub(super) struct Coefficients {
    pub(super) table: TextTable,
    /// How the table is to be read.
    pub(super) hint: String,
    /// Whether it is too long to be shown at once.
    pub(super) is_long: bool,
}

impl Coefficients {
    /// Those of a run directory; none if its problem names no coefficients, or it has not ended.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let (table, count) = read(&folder.join("coefficients.csv"))?;
        let mut hint = "In the units of the columns in the data, also where the model was fitted to standardised columns; averages over \
                        agents and seeds."
            .to_owned();
        if table.header.iter().any(|name| name == INTERVAL) {
            hint += " The intervals are 95% confidence intervals, for a model that has converged; they do not include the bias of a penalty.";
        }
        if count > MOST {
            hint += &format!(" The first {MOST} of {count} are shown; coefficients.csv has all.");
        }
        Some(Self { table, hint, is_long: count > FEW })
    }
}

const INTERVAL: &str = "interval";

/// The table, and how many coefficients the file has.
fn read(path: &Path) -> Option<(TextTable, usize)> {
    let mut reader = csv::Reader::from_path(path).ok()?;
    let header = reader.headers().ok()?.clone();
    let place = |name: &str| header.iter().position(|other| other == name);
    let of = |label: &str, what: &str| place(&format!("{label} {what}"));
    let labels: Vec<&str> = header.iter().filter_map(|name| name.strip_suffix(" original")).collect();
    if labels.is_empty() {
        return None;
    }
    let names: Vec<usize> = ["class", "coefficient"].into_iter().filter_map(place).collect();
    let mut columns: Vec<(String, Vec<usize>)> = Vec::new();
    for label in labels {
        columns.push((label.to_owned(), of(label, "original").into_iter().collect()));
        columns.extend(of(label, "std_error").map(|k| ("standard error".to_owned(), vec![k])));
        let ends = of(label, "lower").zip(of(label, "upper"));
        columns.extend(ends.map(|(lower, upper)| (INTERVAL.to_owned(), vec![lower, upper])));
    }
    let rounded = |cell: Option<&str>| number(cell.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN));
    let (mut rows, mut count) = (Vec::new(), 0);
    for record in reader.records() {
        let record = record.ok()?;
        count += 1;
        if count <= MOST {
            let name: Vec<&str> = names.iter().filter_map(|k| record.get(*k)).collect();
            let cell = |places: &[usize]| {
                places.iter().map(|k| rounded(record.get(*k))).collect::<Vec<_>>().join(" to ")
            };
            let cells = columns.iter().map(|(_, places)| cell(places));
            rows.push(std::iter::once(name.join(": ")).chain(cells).collect());
        }
    }
    let header = std::iter::once("coefficient".to_owned()).chain(columns.into_iter().map(|(name, _)| name));
    Some((TextTable { header: header.collect(), rows }, count))
}
