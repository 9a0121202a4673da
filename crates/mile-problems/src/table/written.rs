//! How the files of a table are written: the keys `delimiter`, `comment`, `encoding`, `formats` and `missing_words`.

use std::collections::BTreeMap;

use encoding_rs::Encoding;
use toml::Value;

use super::formats::NumberFormat;
use crate::error::LabError;
use crate::section::Section;

/// How files are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub(super) text: TextForm,
    /// The formats of columns whose numbers are not plain.
    pub(super) formats: BTreeMap<String, NumberFormat>,
    /// Words that stand for a missing value, in all columns.
    pub(super) missing_words: Vec<String>,
    /// Words that stand for a missing value, in some columns.
    pub(super) missing_words_of: BTreeMap<String, Vec<String>>,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TextForm {
    /// The character between fields; `None`: recognized.
    pub(super) delimiter: Option<u8>,
    /// The character with which lines begin that are not read.
    pub(super) comment: Option<u8>,
    /// How characters are stored; `None`: UTF-8, or UTF-16 with a byte order mark.
    pub(super) encoding: Option<&'static Encoding>,
}

impl Written {
    pub(super) fn read(section: &Section) -> Result<Self, LabError> {
        let text = TextForm {
            delimiter: delimiter(section)?,
            comment: comment(section)?,
            encoding: encoding(section)?,
        };
        let (missing_words, missing_words_of) = missing_words(section)?;
        Ok(Self { text, formats: formats(section)?, missing_words, missing_words_of })
    }
}

fn delimiter(section: &Section) -> Result<Option<u8>, LabError> {
    let expected = "a single character that separates fields, such as \";\" or \"\\t\"";
    let Some(text) = section.text("delimiter", expected)? else { return Ok(None) };
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"\"#\r\n+-.".contains(byte) => {
            Ok(Some(*byte))
        }
        _ => Err(section.refuse("delimiter", &Value::from(text), expected)),
    }
}

fn comment(section: &Section) -> Result<Option<u8>, LabError> {
    let expected = "a single character with which comments begin, such as \"#\"";
    let Some(text) = section.text("comment", expected)? else { return Ok(None) };
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() && !b"\"+-.,;|".contains(byte) => Ok(Some(*byte)),
        _ => Err(section.refuse("comment", &Value::from(text), expected)),
    }
}

fn encoding(section: &Section) -> Result<Option<&'static Encoding>, LabError> {
    let expected = "the name of an encoding, such as \"latin1\", \"utf-16le\" or \"shift_jis\"";
    let Some(text) = section.text("encoding", expected)? else { return Ok(None) };
    let found = Encoding::for_label(text.as_bytes());
    found.map(Some).ok_or_else(|| section.refuse("encoding", &Value::from(text), expected))
}

fn formats(section: &Section) -> Result<BTreeMap<String, NumberFormat>, LabError> {
    let Some(value) = section.value("formats") else { return Ok(BTreeMap::new()) };
    let expected =
        "a table of columns and how their numbers are written, such as { price = \"decimal-comma\" }";
    section.keep("formats", value.clone());
    let table = value.as_table().ok_or_else(|| section.refuse("formats", value, expected))?;
    let words = NumberFormat::NAMED.map(|(word, ..)| word);
    let shown = NumberFormat::NAMED.map(|(word, _, example)| format!("{word} ({example})"));
    let one = |(column, value): (&String, &Value)| {
        let format = NumberFormat::NAMED.iter().find(|(word, ..)| value.as_str() == Some(word));
        let key = format!("formats.{column}");
        format.map(|(_, format, _)| (column.clone(), *format)).ok_or_else(|| match value.as_str() {
            Some("?") => LabError::config(
                section.path(&key),
                "the question about this column has no answer yet; replace \"?\" by one of the answers in the comment above it",
            ),
            Some(word) => {
                section.unknown_word(&key, word, &words, format!("one of {}", shown.join(", ")))
            }
            None => section.refuse(&key, value, format!("one of {}", shown.join(", "))),
        })
    };
    table.iter().map(one).collect()
}

type WordsByColumn = (Vec<String>, BTreeMap<String, Vec<String>>);

fn missing_words(section: &Section) -> Result<WordsByColumn, LabError> {
    let Some(value) = section.value("missing_words") else { return Ok(WordsByColumn::default()) };
    let expected = "a list of words, such as [\"-999\"], or a table of columns with such lists";
    section.keep("missing_words", value.clone());
    let list = |value: &Value| -> Option<Vec<String>> {
        let word = |word: &Value| word.as_str().map(str::to_owned);
        value.as_array()?.iter().map(word).collect()
    };
    let found = match value {
        Value::Table(table) => {
            let of_column = |(column, value): (&String, &Value)| Some((column.clone(), list(value)?));
            table.iter().map(of_column).collect::<Option<_>>().map(|words| (Vec::new(), words))
        }
        _ => list(value).map(|words| (words, BTreeMap::new())),
    };
    found.ok_or_else(|| section.refuse("missing_words", value, expected))
}
