//! `mile init`: a commented experiment file to start from.

mod arrays;
mod table;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use mile_lab::error::LabError;
use toml::Value;

use crate::output;

/// What an experiment is about.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Regression or classification on your own CSV, Parquet or Arrow file, given with --data
    Table,
    /// A neural network on a set of images; needs no data of your own
    Images,
    /// A neural network on your own arrays, given with --data
    Arrays,
    /// Quadratic objectives, for a first look at the methods; needs no data and takes seconds
    Quadratic,
    /// Agents as separate processes, over the network
    Agent,
}

/// Writes a commented experiment file that mile run runs as it is, and prints what it understood of your data and the next
/// command. Where only you know what the data mean, the file has a question, and runs when it is answered.
#[derive(Args)]
pub(crate) struct InitArguments {
    /// What the experiment is about [default: table or arrays with --data, by the file's name; else images]
    #[arg(value_enum)]
    kind: Option<Kind>,
    /// Your data: a CSV file with a header, a Parquet or an Arrow file, whose rows are examined to choose loss, agents and
    /// features, or a file of arrays (.npy, .npz, .safetensors)
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Column to predict [default: the last]
    #[arg(long, value_name = "COLUMN", requires = "data")]
    target: Option<String>,
    /// Experiment file to write; an existing file is never overwritten [default: the name of the data or of the kind,
    /// with .toml]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// An experiment file, and what was understood of the data.
struct Understood {
    /// The text of the file.
    text: String,
    /// What was understood, and why.
    summary: String,
    /// Whether the file has a question that must be answered first.
    asks: bool,
}

pub(crate) fn run(arguments: &InitArguments) -> anyhow::Result<u8> {
    let kind = arguments.kind.unwrap_or_else(|| match &arguments.data {
        Some(path) if is_arrays(path) => Kind::Arrays,
        Some(_) => Kind::Table,
        None => Kind::Images,
    });
    let data = needed_data(kind, arguments)?;
    let out = arguments.out.clone().unwrap_or_else(|| match data {
        Some(path) => Path::new(path.file_name().unwrap_or_default()).with_extension("toml"),
        None => format!("{}.toml", name_of(kind)).into(),
    });
    let fixed = |text: &str| Understood { text: text.to_owned(), summary: String::new(), asks: false };
    let Understood { text, summary, asks } = match (kind, data) {
        (Kind::Table, Some(path)) => {
            table::experiment(path, &quoted_path(path, &out)?, arguments.target.as_deref())?
        }
        (Kind::Arrays, Some(path)) => arrays::experiment(path, &out)?,
        (Kind::Quadratic, _) => fixed(include_str!("quadratic.toml")),
        (Kind::Agent, _) => fixed(include_str!("agent.toml")),
        _ => fixed(include_str!("images.toml")),
    };
    write_new(&out, &text)?;
    let gap = if summary.is_empty() { "" } else { "\n" };
    let command = if kind == Kind::Agent { "swarm" } else { "run" };
    let shown = out.display();
    let first = if asks { "Answer the question in it" } else { "Review it" };
    output::print(&format!("{summary}{gap}{shown}\n{first}, then run: mile {command} {shown}\n"))?;
    Ok(0)
}

/// The data file, which tables and arrays need and others refuse.
fn needed_data(kind: Kind, arguments: &InitArguments) -> Result<Option<&Path>, LabError> {
    let needs = matches!(kind, Kind::Table | Kind::Arrays);
    let name = name_of(kind);
    match &arguments.data {
        None if needs => {
            let problem = format!(
                "missing; mile init {name} needs your data file, as in mile init {name} --data FILE; \
                 mile init images and mile init quadratic need none"
            );
            Err(LabError::config("--data", problem))
        }
        Some(_) if !needs => Err(LabError::config(
            "--data",
            format!("applies only to table and arrays, got {name}; leave one of them out"),
        )),
        _ if arguments.target.is_some() && kind != Kind::Table => {
            Err(LabError::config("--target", format!("applies only to table, got {name}; leave it out")))
        }
        Some(path) => match mile_lab::reading::open(path) {
            Ok(_) => Ok(Some(path.as_path())),
            Err(error) => {
                Err(LabError::Directory { path: path.clone(), problem: format!("cannot read it: {error}") })
            }
        },
        None => Ok(None),
    }
}

fn name_of(kind: Kind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn is_arrays(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["npy", "npz", "safetensors"].iter().any(|known| extension == *known))
}

/// The name of a file without its extension, as the name of an experiment.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let name = stem.replace(['/', '\\'], "-");
    let name = name.trim_start_matches('.');
    if name.is_empty() { "experiment".into() } else { name.to_owned() }
}

/// A key with its comment.
fn line(key: &str, value: &str, comment: &str) -> String {
    format!("{:<29} # {comment}", format!("{key} = {value}"))
}

/// A text for a comment or a line of a summary, which ends with its line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The path of the data as it is written in the experiment file, where it is relative to that file's folder.
fn quoted_path(data: &Path, out: &Path) -> anyhow::Result<String> {
    let beside = out.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let path = if beside { data.to_owned() } else { std::path::absolute(data)? };
    Ok(quoted(&path.to_string_lossy()))
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, content: &str) -> Result<(), LabError> {
    let created = std::fs::File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => LabError::Directory {
            path: path.to_owned(),
            problem: "already exists and is not overwritten; give another name with -o FILE".into(),
        },
        _ => LabError::io(path, "create")(error),
    });
    created?.write_all(content.as_bytes()).map_err(LabError::io(path, "write"))
}
