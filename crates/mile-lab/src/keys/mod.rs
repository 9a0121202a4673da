//! The reference of all keys of experiment files: `mile help keys`, a page of the documentation and a JSON schema.
//!
//! Keys, the values they accept and their defaults come from the readers themselves: some small files are read while everything
//! they ask for is noted. Only the texts are written by hand, and a test checks that there is one for each key.

mod about;
mod probes;
mod show;

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::section::{Asked, Form, listen};

/// A key of an experiment file.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its section, such as `network`; empty at the top level.
    pub section: String,
    /// Its name.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// The values it can have, in words.
    pub expected: String,
    /// Its default, as it is written in a file; none if it must be given, or is left out.
    pub default: Option<String>,
    /// What it means.
    pub about: String,
    /// An example, as a line of a file.
    pub example: String,
    form: Form,
}

/// All keys, in the order of sections and of their texts.
pub fn reference() -> Vec<Key> {
    let found = found();
    let mut keys = Vec::new();
    for text in about::ALL {
        // Any key can be swept: no reader asks for it by name.
        let any = FoundKey { form: Form::Any, expected: String::new(), default: None };
        let key = found.get(&(text.section.to_owned(), text.key.to_owned())).unwrap_or(&any);
        let of_section = found.iter().filter(|((section, _), _)| *section == text.section);
        let alias = |((_, name), other): (&(String, String), &FoundKey)| match other.form {
            Form::AliasOf(of) if of == text.key => Some(name.clone()),
            _ => None,
        };
        keys.push(Key {
            section: text.section.to_owned(),
            name: text.key.to_owned(),
            aliases: of_section.filter_map(alias).collect(),
            expected: if text.expected.is_empty() { key.expected.clone() } else { text.expected.to_owned() },
            default: key.default.as_ref().map(Value::to_string),
            about: text.about.to_owned(),
            example: text.example.to_owned(),
            form: key.form.clone(),
        });
    }
    keys
}

pub use show::{json_schema, markdown, text};

/// What the readers reveal about a key.
#[derive(Clone, Debug)]
struct FoundKey {
    form: Form,
    expected: String,
    default: Option<Value>,
}

/// All keys that readers ask for, by section and name.
fn found() -> BTreeMap<(String, String), FoundKey> {
    let mut found: BTreeMap<(String, String), FoundKey> = BTreeMap::new();
    for probe in probes::all() {
        let (written, asked) = listen(|| probe.read());
        for Asked { section, key, form, expected, .. } in asked {
            let place = (probe.section(&section), key.to_owned());
            let entry = found.entry(place);
            let entry = entry.or_insert(FoundKey { form: Form::Any, expected: String::new(), default: None });
            // A choice is read as a text.
            if form != Form::Any && !matches!(entry.form, Form::Words(_)) {
                (entry.form, entry.expected) = (form, expected);
            }
        }
        if let Some((given, written)) = written {
            defaults("", &given, &written, &mut |section, key, value| {
                if let Some(entry) = found.get_mut(&(probe.section(section), key.to_owned())) {
                    entry.default.get_or_insert_with(|| value.clone());
                }
            });
        }
    }
    found
}

/// The values that are written without having been given: section, key, value.
fn defaults(path: &str, given: &Table, written: &Table, tell: &mut dyn FnMut(&str, &str, &Value)) {
    let none = Table::new();
    for (key, value) in written {
        let dot = if path.is_empty() { "" } else { "." };
        let inner = format!("{path}{dot}{key}");
        let before = given.get(key);
        if before.is_none() {
            tell(path, key, value);
        }
        match value {
            Value::Table(written) => {
                defaults(&inner, before.and_then(Value::as_table).unwrap_or(&none), written, tell);
            }
            Value::Array(list) => {
                let before = before.and_then(Value::as_array);
                for (k, written) in list.iter().enumerate() {
                    let given = before.and_then(|list| list.get(k)).and_then(Value::as_table);
                    if let (Some(given), Some(written)) = (given, written.as_table()) {
                        defaults(&inner, given, written, tell);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_that_is_read_has_a_text_and_every_text_a_key() {
        let read: BTreeSet<(String, String)> = found()
            .into_iter()
            .filter(|(_, key)| !matches!(key.form, Form::AliasOf(_)))
            .map(|(place, _)| place)
            .collect();
        let mut told: BTreeSet<(String, String)> =
            about::ALL.iter().map(|text| (text.section.to_owned(), text.key.to_owned())).collect();
        assert_eq!(told.len(), about::ALL.len(), "a key is told twice");
        assert!(told.remove(&("sweep".into(), "KEY".into())), "stands for every key that can be swept");
        let only =
            |a: &BTreeSet<_>, b: &BTreeSet<_>| a.difference(b).cloned().collect::<Vec<(String, String)>>();
        assert_eq!(only(&read, &told), [], "keys without a text in keys/about.rs");
        assert_eq!(only(&told, &read), [], "texts of keys that no reader asks for");
    }

    #[test]
    fn every_key_says_what_it_accepts_and_every_example_is_toml_with_the_key() {
        for key in reference() {
            assert!(!key.expected.is_empty(), "{}.{}", key.section, key.name);
            let table: toml::Table =
                key.example.parse().unwrap_or_else(|error| panic!("{}: {error}", key.example));
            assert!(table.contains_key(&key.name), "{}", key.example);
        }
    }
}
