//! What is seen in a column: numbers, words, and which formats of numbers the words fit.

use std::collections::HashMap;

use super::super::cell::Cell;
use super::super::decimal;
use super::super::formats::{NumberFormat, is_missing_number, is_missing_word};
use super::{ColumnLook, ColumnType};
use crate::error::FilePlace;

/// The most distinct values of a column that are counted.
const MOST_DISTINCT: usize = 1000;
/// The most words that are not numbers in a column of numbers.
const MOST_ODD: usize = 20;
/// The most different numbers of a column in which a word that occurs again makes categories of them.
const FEW: usize = 20;
/// Formats of which a text may fit both and mean something else in each.
const PAIRS: [[NumberFormat; 2]; 3] = [
    [NumberFormat::Thousands, NumberFormat::DecimalComma],
    [NumberFormat::Percent, NumberFormat::PercentComma],
    [NumberFormat::DateDayFirst, NumberFormat::DateMonthFirst],
];

/// What is seen in some rows of a column.
#[derive(Default)]
pub(super) struct Seen {
    missing: u64,
    /// Plain finite numbers, and those among them that are whole.
    plain: u64,
    whole: u64,
    /// Plain numbers that could not be read with a decimal comma.
    not_comma: u64,
    largest: f64,
    sum: f64,
    negative: u64,
    zeros: u64,
    numbers: Distinct,
    words: HashMap<String, (u64, FilePlace)>,
    /// Words for which the list had no room.
    beyond: Tally,
}

/// How often numbers occur, by their bits.
#[derive(Default)]
struct Distinct {
    counts: HashMap<u64, u64>,
    are_too_many: bool,
}

/// Which formats some words fit.
#[derive(Default)]
struct Tally {
    words: u64,
    /// Words that say that a value is missing.
    blank: HashMap<String, u64>,
    /// For each format, the words that fit it.
    fits: [Fits; NumberFormat::NAMED.len()],
    /// The first word that means different numbers in the formats of a pair.
    unclear: [Option<String>; PAIRS.len()],
    /// Words that fit no format.
    odd: HashMap<String, (u64, FilePlace)>,
}

/// Words that fit a format.
#[derive(Clone, Copy, Default)]
struct Fits {
    count: u64,
    /// Those that are whole numbers.
    whole: u64,
    /// The largest absolute value.
    largest: f64,
}

impl Distinct {
    fn add(&mut self, bits: u64, count: u64) {
        if self.are_too_many {
            return;
        }
        *self.counts.entry(bits).or_default() += count;
        if self.counts.len() > MOST_DISTINCT {
            (self.counts, self.are_too_many) = (HashMap::new(), true);
        }
    }
}

impl Tally {
    fn add(&mut self, word: &str, count: u64, place: FilePlace) {
        self.words += count;
        if is_missing_number(word) {
            *self.blank.entry(word.to_owned()).or_default() += count;
            return;
        }
        let mut is_number = false;
        for (fits, (_, format, _)) in self.fits.iter_mut().zip(NumberFormat::NAMED) {
            if let Some(number) = format.parse(word) {
                is_number = true;
                fits.count += count;
                fits.whole += if number.fract() == 0.0 { count } else { 0 };
                fits.largest = fits.largest.max(number.abs());
            }
        }
        for (unclear, [a, b]) in self.unclear.iter_mut().zip(PAIRS) {
            if let (None, Some(one), Some(other)) = (&unclear, a.parse(word), b.parse(word))
                && one != other
            {
                *unclear = Some(word.to_owned());
            }
        }
        if !is_number && (self.odd.len() <= MOST_ODD || self.odd.contains_key(word)) {
            self.odd.entry(word.to_owned()).or_insert((0, place)).0 += count;
        }
    }

    /// The words that fit a format; none fit the plain one.
    fn fits(&self, format: NumberFormat) -> Fits {
        let place = NumberFormat::NAMED.iter().position(|(_, other, _)| *other == format);
        place.map_or(Fits::default(), |place| self.fits[place])
    }

    fn merge(&mut self, other: Self) {
        self.words += other.words;
        other.blank.into_iter().for_each(|(word, count)| *self.blank.entry(word).or_default() += count);
        for (all, more) in self.fits.iter_mut().zip(other.fits) {
            all.count += more.count;
            all.whole += more.whole;
            all.largest = all.largest.max(more.largest);
        }
        for (all, more) in self.unclear.iter_mut().zip(other.unclear) {
            *all = all.take().or(more);
        }
        for (word, (count, place)) in other.odd {
            let all = self.odd.entry(word).or_insert((0, place));
            *all = (all.0 + count, all.1.min(place));
        }
    }
}

impl Seen {
    #[inline]
    pub(super) fn add(&mut self, cell: Cell, has_commas: bool, place: impl Fn() -> FilePlace) {
        match cell {
            Cell::Missing => self.missing += 1,
            Cell::Number(value) if value.is_finite() => self.number(value),
            Cell::Number(value) => self.word(&value.to_string(), 1, &place),
            Cell::Text(field) => match decimal::parse(field) {
                Some(value) if value.is_finite() => {
                    self.not_comma += u64::from(has_commas && is_no_comma_number(field));
                    self.number(value);
                }
                _ => self.field(field.trim(), &place),
            },
        }
    }

    fn number(&mut self, value: f64) {
        self.plain += 1;
        self.whole += u64::from(value.fract() == 0.0);
        self.largest = self.largest.max(value.abs());
        self.sum += value;
        self.negative += u64::from(value < 0.0);
        self.zeros += u64::from(value == 0.0);
        // Both zeros are one value.
        self.numbers.add((value + 0.0).to_bits(), 1);
    }

    #[cold]
    fn field(&mut self, field: &str, place: &dyn Fn() -> FilePlace) {
        match field.parse::<f64>() {
            _ if is_missing_word(field) => self.missing += 1,
            Ok(value) if value.is_nan() => self.missing += 1,
            Ok(value) if value.is_finite() => {
                self.not_comma += u64::from(is_no_comma_number(field));
                self.number(value);
            }
            _ => self.word(field, 1, place),
        }
    }

    fn word(&mut self, word: &str, count: u64, place: &dyn Fn() -> FilePlace) {
        if let Some((all, _)) = self.words.get_mut(word) {
            *all += count;
        } else if self.words.len() < MOST_DISTINCT {
            self.words.insert(word.to_owned(), (count, place()));
        } else {
            self.beyond.add(word, count, place());
        }
    }

    /// Adds what was seen in later rows.
    pub(super) fn merge(&mut self, other: Self) {
        self.missing += other.missing;
        self.plain += other.plain;
        self.whole += other.whole;
        self.not_comma += other.not_comma;
        self.largest = self.largest.max(other.largest);
        self.sum += other.sum;
        self.negative += other.negative;
        self.zeros += other.zeros;
        self.numbers.are_too_many |= other.numbers.are_too_many;
        other.numbers.counts.into_iter().for_each(|(bits, count)| self.numbers.add(bits, count));
        other.words.into_iter().for_each(|(word, (count, place))| self.word(&word, count, &|| place));
        self.beyond.merge(other.beyond);
    }

    /// What the column is.
    pub(super) fn finish(mut self, name: String) -> ColumnLook {
        let are_listed = self.beyond.words == 0;
        let mut tally = std::mem::take(&mut self.beyond);
        let mut words: Vec<(&String, &(u64, FilePlace))> = self.words.iter().collect();
        words.sort_by_key(|(_, (_, place))| *place);
        words.into_iter().for_each(|(word, (count, place))| tally.add(word, *count, *place));
        let blank: u64 = tally.blank.values().sum();
        let values = self.plain + tally.words - blank;
        let format = self.best(&tally);
        let odd = self.odd(&tally, format);
        let odd_count: u64 = odd.iter().map(|(.., count)| count).sum();
        let kind = if values == 0 {
            ColumnType::Empty
        } else if self.fits(&tally, format) + odd_count == values && self.may_be_numbers(values, &odd) {
            let pair = PAIRS.iter().position(|pair| pair.contains(&format));
            let same = |[a, b]: [NumberFormat; 2]| self.fits(&tally, a) == self.fits(&tally, b);
            match pair.filter(|k| same(PAIRS[*k])).and_then(|k| Some((k, tally.unclear[k].clone()?))) {
                Some((k, example)) => ColumnType::Unclear(PAIRS[k], example),
                None => ColumnType::Numbers(format),
            }
        } else {
            ColumnType::Words
        };
        let are_numbers = matches!(kind, ColumnType::Numbers(_) | ColumnType::Unclear(..));
        let is_empty = kind == ColumnType::Empty;
        let fits = tally.fits(format);
        let mut blanks: Vec<String> = tally.blank.into_keys().collect();
        blanks.sort();
        ColumnLook {
            name,
            missing: self.missing
                + if are_numbers {
                    blank + odd_count
                } else if is_empty {
                    blank
                } else {
                    0
                },
            values: self.values(are_listed, are_numbers.then_some(&odd)),
            blanks: if are_numbers { blanks } else { Vec::new() },
            odd: if are_numbers { odd } else { Vec::new() },
            is_whole: self.whole + fits.whole == values,
            largest: self.largest.max(fits.largest),
            mean: self.sum / self.plain.max(1) as f64,
            negative: self.negative,
            zeros: self.zeros,
            kind,
        }
    }

    /// The format that most values fit; the first of those that fit as many.
    fn best(&self, tally: &Tally) -> NumberFormat {
        let named = NumberFormat::NAMED.iter().map(|(_, format, _)| *format);
        let better = |best: NumberFormat, other: NumberFormat| {
            if self.fits(tally, other) > self.fits(tally, best) { other } else { best }
        };
        named.fold(NumberFormat::Plain, better)
    }

    /// How many values fit a format.
    fn fits(&self, tally: &Tally, format: NumberFormat) -> u64 {
        let plain = match format {
            NumberFormat::Plain | NumberFormat::Thousands => self.plain,
            NumberFormat::DecimalComma => self.plain - self.not_comma,
            NumberFormat::Boolean if !self.are_booleans() => return 0,
            _ => 0,
        };
        plain + tally.fits(format).count
    }

    /// Whether the words are those of one pair, such as yes and no.
    fn are_booleans(&self) -> bool {
        let pairs = [["true", "false"], ["yes", "no"], ["on", "off"], ["t", "f"], ["y", "n"]];
        let words = || self.words.keys().filter(|word| !is_missing_number(word));
        let among = |pair: &[&str; 2]| words().all(|word| pair.iter().any(|w| word.eq_ignore_ascii_case(w)));
        self.plain == 0 && pairs.iter().any(among)
    }

    /// Words that are not numbers in a format, as far as they are listed.
    fn odd(&self, tally: &Tally, format: NumberFormat) -> Vec<(String, FilePlace, u64)> {
        let is_odd = |word: &str| {
            !is_missing_number(word) && format.parse(word).is_none_or(|number| !number.is_finite())
        };
        let mut odd: HashMap<&str, (FilePlace, u64)> =
            tally.odd.iter().map(|(word, (count, place))| (word.as_str(), (*place, *count))).collect();
        for (word, (count, place)) in self.words.iter().filter(|(word, _)| is_odd(word)) {
            odd.entry(word).or_insert((*place, *count));
        }
        let mut odd: Vec<(String, FilePlace, u64)> =
            odd.into_iter().map(|(word, (place, count))| (word.to_owned(), place, count)).collect();
        odd.sort_by_key(|(_, place, _)| *place);
        odd
    }

    /// Whether the odd words of a column of numbers are few. Where a word occurs again beside few different numbers, all may be categories.
    fn may_be_numbers(&self, values: u64, odd: &[(String, FilePlace, u64)]) -> bool {
        let count: u64 = odd.iter().map(|(.., count)| count).sum();
        let are_few = 10 * count <= values || (count == 1 && values >= 5);
        let distinct = if self.numbers.are_too_many { usize::MAX } else { self.numbers.counts.len() };
        let occurs_again = odd.iter().any(|(.., count)| *count > 1);
        let may_be_categories = occurs_again && distinct <= FEW && self.words.len() <= FEW;
        odd.is_empty() || (odd.len() <= MOST_ODD && are_few && !may_be_categories)
    }

    /// The different values with their counts, without the odd words of a column of numbers.
    fn values(
        &self,
        are_listed: bool,
        odd: Option<&Vec<(String, FilePlace, u64)>>,
    ) -> Option<Vec<(String, u64)>> {
        if self.numbers.are_too_many || !are_listed {
            return None;
        }
        let number = |(bits, count): (&u64, &u64)| (f64::from_bits(*bits).to_string(), *count);
        let mut values: Vec<(String, u64)> = self.numbers.counts.iter().map(number).collect();
        let is_value = |word: &str| match odd {
            Some(odd) => !is_missing_number(word) && !odd.iter().any(|(other, ..)| other == word),
            None => true,
        };
        let words = self.words.iter().filter(|(word, _)| is_value(word));
        values.extend(words.map(|(word, (count, _))| (word.clone(), *count)));
        values.sort();
        Some(values)
    }
}

/// Whether a plain number cannot be one with a decimal comma, in which points separate groups of three digits.
fn is_no_comma_number(field: &str) -> bool {
    let point = field.rfind('.');
    point.is_some_and(|point| {
        field.trim().len() != point + 4 || NumberFormat::DecimalComma.parse(field).is_none()
    })
}
