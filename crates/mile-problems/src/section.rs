//! Reads a section of an experiment file key by key.
//!
//! A section remembers which keys were read and which values were used. So unknown keys are refused, with the nearest known
//! key as a hint, and the values that were used, defaults included, make up the resolved experiment.
//!
//! Serde's derive cannot do this: it has no aliases that exclude each other, its messages do not say which values a key
//! can have, and it cannot list the defaults that were used.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::error::LabError;

thread_local! {
    /// The keys that readers have asked for, while [`listen`] runs.
    static ASKED: RefCell<Option<Vec<Asked>>> = const { RefCell::new(None) };
}

/// A key that a reader asked for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Asked {
    /// Path of the section.
    pub section: String,
    /// The key.
    pub key: &'static str,
    /// The form of its value.
    pub form: Form,
    /// The values it can have, in words: a noun phrase that follows "expected" in messages.
    pub expected: String,
}

/// The form of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Not known from the reader.
    Any,
    /// A number.
    Number,
    /// A whole number, at least 0.
    Whole,
    /// A text.
    Text,
    /// True or false.
    Flag,
    /// One of some words.
    Words(Vec<String>),
    /// Another name for a key.
    AliasOf(&'static str),
}

/// Does some reading, and returns everything that the readers asked for in this thread.
pub fn listen<R>(read: impl FnOnce() -> R) -> (R, Vec<Asked>) {
    ASKED.set(Some(Vec::new()));
    let result = read();
    (result, ASKED.take().unwrap_or_default())
}

/// One section of an experiment file.
pub struct Section<'a> {
    path: String,
    table: &'a Table,
    known: RefCell<Vec<&'static str>>,
    resolved: RefCell<Table>,
}

impl<'a> Section<'a> {
    /// A section with its name, such as `network`; the empty name is the top level of the file.
    pub fn new(path: impl Into<String>, table: &'a Table) -> Self {
        Self { path: path.into(), table, known: RefCell::default(), resolved: RefCell::default() }
    }

    /// The full path of a key, such as `network.agents`.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of a key, if it is given; marks the key as known.
    pub fn value(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().push(key);
        self.asks(key, Form::Any, "");
        self.table.get(key)
    }

    /// A key that is read elsewhere and not here, to be suggested for misspelt ones.
    pub fn suggest(&self, key: &'static str) {
        if !self.table.contains_key(key) {
            self.known.borrow_mut().push(key);
        }
    }

    fn asks(&self, key: &'static str, form: Form, expected: &str) {
        ASKED.with_borrow_mut(|asked| {
            let asked = asked.iter_mut();
            asked.for_each(|asked| {
                let (section, form, expected) = (self.path.clone(), form.clone(), expected.to_owned());
                asked.push(Asked { section, key, form, expected });
            });
        });
    }

    /// Whether a key is given.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of a key that has aliases; giving two of the names is an error.
    pub fn value_or(
        &self,
        key: &'static str,
        aliases: &[&'static str],
    ) -> Result<Option<&'a Value>, LabError> {
        let mut found = self.value(key).map(|value| (key, value));
        for alias in aliases {
            let given = self.value(alias);
            self.asks(alias, Form::AliasOf(key), "");
            if let Some(value) = given {
                if let Some((first, _)) = found {
                    return Err(LabError::config(
                        self.path(alias),
                        format!("another name for {first}; give only one of them"),
                    ));
                }
                found = Some((alias, value));
            }
        }
        Ok(found.map(|(_, value)| value))
    }

    /// Adds a value to the resolved experiment.
    pub fn keep(&self, key: &str, value: impl Into<Value>) {
        self.resolved.borrow_mut().insert(key.to_owned(), value.into());
    }

    /// The error of an invalid value.
    pub fn refuse(&self, key: &str, got: &Value, expected: impl std::fmt::Display) -> LabError {
        LabError::expected(self.path(key), expected, shown(got))
    }

    /// The error of a word that is not one of the known ones, with the nearest of them as a hint.
    pub fn unknown_word(
        &self,
        key: &str,
        word: &str,
        known: &[&str],
        expected: impl std::fmt::Display,
    ) -> LabError {
        let hint = nearest(word, known).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        LabError::expected(self.path(key), expected, format!("\"{word}\"{hint}"))
    }

    /// The error of a missing key, or of the misspelt one that is given instead.
    pub fn missing(&self, key: &str, expected: impl std::fmt::Display) -> LabError {
        let known = self.known.borrow();
        let unknown = self.table.keys().filter(|given| !known.contains(&given.as_str()));
        let mut misspelt = unknown.filter(|given| nearest(given, &[key]).is_some());
        match misspelt.next() {
            Some(given) => LabError::config(self.path(given), format!("unknown key; did you mean {key}?")),
            None => LabError::config(self.path(key), format!("missing; expected {expected}")),
        }
    }

    /// A number, if the key is given.
    pub fn number(&self, key: &'static str, expected: &str) -> Result<Option<f64>, LabError> {
        let read = |value| as_number(value).ok_or_else(|| self.refuse(key, value, expected));
        self.asks(key, Form::Number, expected);
        let number = self.value(key).map(read).transpose()?;
        number.into_iter().for_each(|n| self.keep(key, n));
        Ok(number)
    }

    /// A number, or its default.
    pub fn number_or(&self, key: &'static str, expected: &str, default: f64) -> Result<f64, LabError> {
        let number = self.number(key, expected)?.unwrap_or(default);
        self.keep(key, number);
        Ok(number)
    }

    /// A whole number, at least 0, if the key is given.
    pub fn whole(&self, key: &'static str, expected: &str) -> Result<Option<u64>, LabError> {
        let read = |value| as_whole(value).ok_or_else(|| self.refuse(key, value, expected));
        self.asks(key, Form::Whole, expected);
        let number = self.value(key).map(read).transpose()?;
        number.into_iter().for_each(|n| self.keep(key, n as i64));
        Ok(number)
    }

    /// A whole number, at least 0, or its default.
    pub fn whole_or(&self, key: &'static str, expected: &str, default: u64) -> Result<u64, LabError> {
        let number = self.whole(key, expected)?.unwrap_or(default);
        self.keep(key, number as i64);
        Ok(number)
    }

    /// A string, if the key is given.
    pub fn text(&self, key: &'static str, expected: &str) -> Result<Option<&'a str>, LabError> {
        let read = |value: &'a Value| value.as_str().ok_or_else(|| self.refuse(key, value, expected));
        self.asks(key, Form::Text, expected);
        let text = self.value(key).map(read).transpose()?;
        text.into_iter().for_each(|t| self.keep(key, t));
        Ok(text)
    }

    /// True or false, if the key is given.
    pub fn flag(&self, key: &'static str) -> Result<Option<bool>, LabError> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| self.refuse(key, value, "true or false"));
        self.asks(key, Form::Flag, "true or false");
        let flag = self.value(key).map(read).transpose()?;
        flag.into_iter().for_each(|f| self.keep(key, f));
        Ok(flag)
    }

    /// One of several words; an error if the key is not given and has no default.
    pub fn choice<T: Clone>(
        &self,
        key: &'static str,
        choices: &[(&str, T)],
        default: Option<&str>,
    ) -> Result<T, LabError> {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", words.join(", "));
        self.asks(key, Form::Words(words.iter().map(|word| (*word).to_owned()).collect()), &expected);
        let Some(word) = self.text(key, &expected)?.or(default) else {
            return Err(self.missing(key, expected));
        };
        self.keep(key, word);
        match choices.iter().find(|(known, _)| *known == word) {
            Some((_, choice)) => Ok(choice.clone()),
            None => Err(self.unknown_word(key, word, &words, expected)),
        }
    }

    /// One of several words, if the key is given.
    pub fn optional_choice<T: Clone>(
        &self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, LabError> {
        if self.value(key).is_some() {
            return self.choice(key, choices, None).map(Some);
        }
        let words: Vec<String> = choices.iter().map(|(word, _)| (*word).to_owned()).collect();
        let expected = format!("one of {}", words.join(", "));
        self.asks(key, Form::Words(words), &expected);
        Ok(None)
    }

    /// Adds all values to the resolved experiment, unchecked.
    pub fn keep_all(&self) {
        self.resolved.borrow_mut().extend(self.table.clone());
    }

    /// The resolved section, or an error for the first unknown key.
    pub fn finish(self) -> Result<Table, LabError> {
        let mut known = self.known.borrow().clone();
        let resolved = self.resolved.into_inner();
        let asked = |key: &String| known.contains(&key.as_str()) || resolved.contains_key(key);
        if let Some(key) = self.table.keys().find(|key| !asked(key)) {
            let hint = nearest(key, &known).map(|near| format!("; did you mean {near}?"));
            known.sort_unstable();
            known.dedup();
            let hint = hint.unwrap_or_else(|| format!("; the keys here are {}", known.join(", ")));
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            return Err(LabError::config(path, format!("unknown key{hint}")));
        }
        Ok(resolved)
    }
}

/// A value as it is shown in messages.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Table(_) => "a table".into(),
        other => other.to_string(),
    }
}

/// The number in a value, whole or not.
pub fn as_number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

/// The whole number, at least 0, in a value.
pub fn as_whole(value: &Value) -> Option<u64> {
    value.as_integer().and_then(|n| u64::try_from(n).ok())
}

/// The known word most similar to a misspelt one, if any is similar enough.
pub fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    let score = |candidate: &&str| strsim::jaro_winkler(word, candidate);
    let best = known.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(&best) > 0.75).then_some(best)
}

/// The absolute path of a path in an experiment file; a relative one is relative to `folder`.
pub fn resolve(folder: &Path, path: &str) -> PathBuf {
    let path = folder.join(path);
    std::path::absolute(&path).unwrap_or(path)
}
