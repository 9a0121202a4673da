//! Words of a column: categories, classes and the names of agents.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::error::FilePlace;

/// The different words of a column, numbered in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    numbers: HashMap<String, u32>,
    /// Each word with the place where it was found first.
    pub(super) found: Vec<(String, FilePlace)>,
}

impl Words {
    /// The number of a word.
    pub(super) fn number(&mut self, word: &str, place: impl FnOnce() -> FilePlace) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let number = self.found.len() as u32;
        self.numbers.insert(word.to_owned(), number);
        self.found.push((word.to_owned(), place()));
        number
    }

    /// Adds the words of another part of the column; returns the new number of each.
    pub(super) fn add(&mut self, other: &Self) -> Vec<u32> {
        other.found.iter().map(|(word, place)| self.number(word, || *place)).collect()
    }
}

/// The name of a class or category: numbers are compared by value, so 1, 1.0 and +1 are the same.
pub(super) fn class(text: &str) -> String {
    text.parse::<f64>().map_or(text.to_owned(), |value| value.to_string())
}

/// Sorts classes or categories: numbers by value, then words.
pub(super) fn sort(classes: &mut Vec<String>) {
    let value = |text: &String| text.parse::<f64>().ok();
    classes.sort_by(|a, b| match (value(a), value(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    });
    classes.dedup();
}
