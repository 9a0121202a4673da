//! The reference as text, as a page, and as a JSON schema for editors.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use textwrap::{Options, WordSplitter};

use super::{Key, reference};
use crate::section::Form;

/// The title of a section.
fn title(section: &str) -> String {
    match section {
        "" => "Top level".into(),
        "stop" | "algorithm.schedule" | "agent.stop" => match section.rsplit_once('.') {
            Some((outer, name)) => format!("{name} = {{ ... }} in {}", bracketed(outer)),
            None => format!("{section} = {{ ... }}"),
        },
        "algorithm.change" => "change = [{ ... }] in [[algorithm]]".into(),
        section => match section.strip_prefix("problem (") {
            Some(kind) => format!("[problem] with kind = \"{}\"", kind.trim_end_matches(')')),
            None => bracketed(section),
        },
    }
}

fn bracketed(section: &str) -> String {
    match section {
        "algorithm" | "agent.neighbour" | "event" => format!("[[{section}]]"),
        _ => format!("[{section}]"),
    }
}

/// The sections, in order, each with its keys.
fn sections() -> Vec<(String, Vec<Key>)> {
    let mut sections: Vec<(String, Vec<Key>)> = Vec::new();
    for key in reference() {
        match sections.iter_mut().find(|(name, _)| *name == key.section) {
            Some((_, keys)) => keys.push(key),
            None => sections.push((key.section.clone(), vec![key])),
        }
    }
    sections
}

fn expected(key: &Key) -> String {
    let default = key.default.as_ref().map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let aliases = match key.aliases.is_empty() {
        true => String::new(),
        false => format!(" (also called {})", key.aliases.join(", ")),
    };
    format!("{}{default}{aliases}", key.expected)
}

/// The reference as plain text, in lines of at most `width` characters: all of it, or the keys whose section or name contains
/// `only`.
pub fn text(only: Option<&str>, width: usize) -> String {
    let mut text = String::new();
    let wrapped = |line: &str, first: &'static str| {
        let options = Options::new(width).initial_indent(first).subsequent_indent("      ");
        textwrap::fill(line, options.break_words(false).word_splitter(WordSplitter::NoHyphenation))
    };
    for (section, keys) in sections() {
        let here = |key: &&Key| only.is_none_or(|only| section.contains(only) || key.name.contains(only));
        let keys: Vec<&Key> = keys.iter().filter(here).collect();
        if keys.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}\n", title(&section));
        for key in keys {
            let head = wrapped(&format!("{}: {}", key.name, expected(key)), "  ");
            let about = wrapped(&key.about, "      ");
            let _ = writeln!(text, "{head}\n{about}\n      e.g. {}\n", key.example);
        }
    }
    text
}

/// The reference as a page of the documentation.
pub fn markdown() -> String {
    let mut text = "# Keys of experiment files\n\nWritten by `mile keys --format markdown` from the readers themselves. \
                    A file is TOML; `--set KEY.PATH=VALUE` replaces a value on the command line, and `mile run --dry-run` \
                    prints a file with all values that are used.\n"
        .to_owned();
    for (section, keys) in sections() {
        let _ = writeln!(text, "\n## `{}`\n", title(&section));
        for key in keys {
            let _ = writeln!(text, "**`{}`**: {}  ", key.name, expected(&key));
            let _ = writeln!(text, "{} Example: `{}`\n", key.about, key.example);
        }
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// A JSON schema of experiment files.
pub fn json_schema() -> String {
    let sections = sections();
    let keys = |section: &str| -> &[Key] {
        sections.iter().find(|(name, _)| name == section).map_or(&[], |(_, keys)| keys)
    };
    let object = |section: &str| object(keys(section));
    let mut top = object("");
    let mut algorithm = object("algorithm");
    algorithm["properties"]["schedule"] =
        json!({ "anyOf": [{ "type": "string" }, object("algorithm.schedule")] });
    algorithm["properties"]["change"] = json!({ "type": "array", "items": object("algorithm.change") });
    let mut agent = object("agent");
    agent["properties"]["stop"] = object("agent.stop");
    agent["properties"]["neighbour"] = json!({ "type": "array", "items": object("agent.neighbour") });
    let kinds: Vec<Value> = sections
        .iter()
        .filter_map(|(name, keys)| {
            let kind = name.strip_prefix("problem (")?.trim_end_matches(')');
            let mut problem = self::object(keys);
            problem["properties"]["kind"] = json!({ "const": kind });
            problem["required"] = json!(["kind"]);
            Some(problem)
        })
        .collect();
    top["properties"]["network"] = object("network");
    top["properties"]["start"] = object("start");
    top["properties"]["network"]["properties"]["bursts"] = object("network.bursts");
    top["properties"]["network"]["properties"]["absence"] = object("network.absence");
    top["properties"]["network"]["properties"]["time_varying"]["anyOf"] =
        json!([{ "type": ["string", "array"] }, object("network.time_varying")]);
    top["properties"]["time"] = object("time");
    top["properties"]["attack"] = object("attack");
    top["properties"]["stop"] = object("stop");
    top["properties"]["agent"] = agent;
    top["properties"]["event"] = json!({ "type": "array", "items": object("event") });
    top["properties"]["algorithm"] = json!({ "type": "array", "items": algorithm, "minItems": 1 });
    top["properties"]["problem"] = json!({ "oneOf": kinds });
    top["properties"]["sweep"] = sweep(keys("sweep"));
    top["required"] = json!(["algorithm"]);
    top["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    top["title"] = json!("An experiment of mile");
    serde_json::to_string_pretty(&top).unwrap_or_default() + "\n"
}

/// A sweep has a mode, a criterion, and lists by the names of keys, which may be nested.
fn sweep(keys: &[Key]) -> Value {
    let (swept, named): (Vec<Key>, Vec<Key>) = keys.iter().cloned().partition(|key| key.name == "KEY");
    let mut section = object(&named);
    let about = swept.first().map(property).unwrap_or_default();
    section["additionalProperties"] =
        json!({ "type": ["array", "object"], "description": about["description"] });
    section
}

fn object(keys: &[Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        for name in key.aliases.iter().chain([&key.name]) {
            properties.insert(name.clone(), property(key));
        }
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn property(key: &Key) -> Value {
    let description = format!("{} Expected: {}.", key.about, expected(key));
    let mut property = match &key.form {
        Form::Number => json!({ "type": "number" }),
        Form::Whole => json!({ "type": "integer", "minimum": 0 }),
        Form::Text => json!({ "type": "string" }),
        Form::Flag => json!({ "type": "boolean" }),
        Form::Words(words) => json!({ "enum": words }),
        Form::Any | Form::AliasOf(_) => json!({}),
    };
    property["description"] = json!(description);
    property
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_can_be_narrowed_to_a_section_or_a_key() {
        let text = |only: Option<&str>| text(only, 100);
        let all = text(None);
        assert!(all.contains("[network]") && all.contains("[[algorithm]]") && all.contains("[default: 10]"));
        let network = text(Some("network"));
        assert!(network.contains("drop_rate") && !network.contains("step_size"));
        assert!(text(Some("eta_s")).contains("[[algorithm]]"));
        assert_eq!(text(Some("nothing like it")), "");
    }

    #[test]
    fn lines_of_the_text_fit_except_for_examples() {
        for width in [60, 100] {
            let all = text(None, width);
            let too_long = |line: &&str| line.chars().count() > width && !line.contains("e.g. ");
            let long: Vec<&str> = all.lines().filter(too_long).collect();
            assert!(long.is_empty(), "{long:#?}");
        }
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(text(None, 60)), words(text(None, 100_000)), "no word is lost");
    }

    #[test]
    fn the_schema_has_every_key_in_its_place() {
        let schema: Value = serde_json::from_str(&json_schema()).unwrap();
        let network = &schema["properties"]["network"]["properties"];
        assert_eq!(network["agents"]["type"], "integer");
        assert!(network["topology"]["enum"].as_array().unwrap().contains(&json!("torus")));
        let algorithm = &schema["properties"]["algorithm"]["items"]["properties"];
        assert!(algorithm["lr"].is_object() && algorithm["tau"].is_object());
        assert!(algorithm["schedule"]["anyOf"][1]["properties"]["warmup"].is_object());
    }
}
