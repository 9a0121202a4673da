//! `mile data`.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use mile_lab::error::LabError;
use mile_nn::data::{self, Located, Progress};

use crate::output;

/// Time between two plain lines of a download.
const LINE: Duration = Duration::from_secs(5);

/// Image data sets.
#[derive(Args)]
pub(crate) struct DataArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Every known data set and whether it is here
    List(Place),
    /// Fetch a data set, unless it is here already
    Get {
        /// Its name
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Where data sets are looked for, and where each was found
    Where(Place),
}

#[derive(Args)]
struct Place {
    /// Folder to look in first, and to fetch to
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &DataArguments) -> anyhow::Result<u8> {
    match &arguments.action {
        Action::List(place) => output::print(&list(place.data_dir.as_deref()))?,
        Action::Where(place) => output::print(&places(place.data_dir.as_deref()))?,
        Action::Get { name, place } => get(name, place.data_dir.as_deref())?,
    }
    Ok(0)
}

fn found(name: &str, folder: Option<&Path>) -> String {
    match data::locate(name, folder) {
        Ok(Located::Generated) => "generated when needed".into(),
        Ok(Located::Directory(path)) => path.display().to_string(),
        Err(_) => format!("not here: mile data get {name}"),
    }
}

fn list(folder: Option<&Path>) -> String {
    let mut text = String::new();
    for entry in data::list() {
        let shape = entry.shape;
        let _ = writeln!(
            text,
            "{:<14} {}\n{:14} {} + {} images of {} x {} x {}, {} classes; {}",
            entry.name,
            entry.summary,
            "",
            entry.train,
            entry.test,
            shape.height,
            shape.width,
            shape.channels,
            entry.classes,
            found(entry.name, folder),
        );
    }
    text
}

fn places(folder: Option<&Path>) -> String {
    let mut text = String::from("looked for, in this order, in\n");
    for path in data::search_path(folder) {
        let _ = writeln!(text, "  {}", path.display());
    }
    text.push_str("found\n");
    for entry in data::list() {
        let _ = writeln!(text, "  {:<14} {}", entry.name, found(entry.name, folder));
    }
    text
}

fn get(name: &str, folder: Option<&Path>) -> anyhow::Result<()> {
    let terminal = std::io::stderr().is_terminal();
    let bar = if terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
    let style = "{msg:30!} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut said = Instant::now();
    let say = |line: String| if terminal { bar.println(line) } else { eprintln!("{line}") };
    let mut show = |progress: Progress<'_>| match progress {
        Progress::Waiting => say("another process is fetching it; waiting".into()),
        Progress::Source(source) => say(format!("from {source}")),
        Progress::Stored(file) => say(format!("stored {file}")),
        Progress::Failed(reason) => say(format!("that did not work: {reason}")),
        Progress::Bytes { file, done, total } => {
            total.into_iter().for_each(|total| bar.set_length(total));
            bar.set_message(file.to_owned());
            bar.set_position(done);
            if !terminal && said.elapsed() > LINE {
                said = Instant::now();
                eprintln!("{file}: {}", HumanBytes(done));
            }
        }
        _ => {}
    };
    let located = data::get(name, folder, &mut show).map_err(LabError::from);
    bar.finish_and_clear();
    match located? {
        Located::Generated => output::print(&format!("{name} is generated when needed; nothing to fetch\n")),
        Located::Directory(path) => output::print(&format!("{name} is in {}\n", path.display())),
    }
}
