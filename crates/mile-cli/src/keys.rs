//! `mile keys`: the reference of all keys of experiment files.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use crate::{USAGE, output};

/// Shows the keys of experiment files.
#[derive(Args)]
pub(crate) struct KeysArguments {
    /// Show only sections and keys whose name contains this, e.g. network or step_size
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: KeysFormat,
}

/// The form of the reference.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeysFormat {
    /// Human-readable text
    Text,
    /// The page of the documentation
    Markdown,
    /// A JSON schema, for editors that check TOML files
    JsonSchema,
}

pub(crate) fn run(arguments: &KeysArguments) -> anyhow::Result<u8> {
    let text = match arguments.format {
        KeysFormat::Text => mile_lab::keys::text(arguments.name.as_deref(), output::width()),
        KeysFormat::Markdown => mile_lab::keys::markdown(),
        KeysFormat::JsonSchema => mile_lab::keys::json_schema(),
    };
    if text.is_empty() {
        let name = arguments.name.as_deref().unwrap_or_default();
        eprintln!("mile: no section or key has \"{name}\" in its name; mile keys lists all");
        return Ok(USAGE);
    }
    output::print(&text)?;
    Ok(0)
}

/// Whether the arguments are `help keys`, which shows all keys.
pub(crate) fn is_asked_for(arguments: &[OsString]) -> bool {
    matches!(arguments, [_, help, keys] if help == "help" && keys == "keys")
}

/// All keys, as text.
pub(crate) fn all() -> KeysArguments {
    KeysArguments { name: None, format: KeysFormat::Text }
}
