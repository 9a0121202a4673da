//! `mile data`: image data sets, and statistics of tables.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use mile_lab::error::LabError;
use mile_lab::objectives::Statistics;
use mile_lab::spec::Spec;
use mile_nn::data::{self, DownloadProgress, Located};

use crate::{CommandLine, output};

/// Time between two progress lines of a download, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Image data sets, and statistics of tables.
#[derive(Args)]
pub(crate) struct DataArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the known data sets and whether each is on this machine
    List(DataDirArguments),
    /// Download a data set, unless it is already on this machine
    ///
    /// Downloads over HTTPS from the data set's public mirrors, or from those in MILE_DATA_MIRRORS: base URLs separated by
    /// spaces, with a folder for each data set. Checksums are verified, and an interrupted download is resumed. Where no mirror
    /// can be reached, the error names the files and the folder to put them into; run the command again to have them checked.
    Get {
        /// Name of the data set, e.g. mnist; mile data list shows all names
        name: String,
        #[command(flatten)]
        place: DataDirArguments,
    },
    /// Show the folders searched for data sets, and where each was found
    Where(DataDirArguments),
    /// Write the statistics of one agent's table: counts, means, deviations and categories
    ///
    /// For agents that each have only their own file, and standardise features, use categories, fill in missing values or weight
    /// agents by their rows. Each owner writes such a file; mile data merge joins them, and every agent gets the result as
    /// statistics = "FILE" in [problem]. No row leaves its owner.
    Summary {
        /// Experiment file of a table with one file per agent
        #[arg(value_name = "EXPERIMENT.toml")]
        experiment: PathBuf,
        /// The agent whose file is read
        #[arg(long, value_name = "ID")]
        agent: usize,
        /// File to write [default: statistics-ID.json]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace a value of the experiment file; may be given several times
        #[arg(long, value_name = "KEY.PATH=VALUE")]
        set: Vec<String>,
    },
    /// Join the statistics of all agents
    Merge {
        /// Files written by mile data summary, one per agent, in any order
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// File to write
        #[arg(short, long, value_name = "FILE", default_value = "statistics.json")]
        output: PathBuf,
    },
}

#[derive(Args)]
struct DataDirArguments {
    /// Folder to search first and to download to [default: see mile data where]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &DataArguments, line: &CommandLine) -> anyhow::Result<u8> {
    match &arguments.action {
        Action::List(place) => output::print(&list(place.data_dir.as_deref()))?,
        Action::Where(place) => output::print(&search_path(place.data_dir.as_deref()))?,
        Action::Get { name, place } => get(name, place.data_dir.as_deref())?,
        Action::Summary { experiment, agent, output, set } => {
            let place = output.clone().unwrap_or_else(|| format!("statistics-{agent}.json").into());
            summary(experiment, *agent, set, line)?.write(&place)?;
            output::print(&format!("{}\n", place.display()))?;
        }
        Action::Merge { files, output } => {
            let each = files.iter().map(|file| Statistics::read(file)).collect::<Result<_, _>>()?;
            Statistics::merge(each)?.write(output)?;
            output::print(&format!("{}\n", output.display()))?;
        }
    }
    Ok(0)
}

/// The statistics of one agent's data.
fn summary(path: &Path, agent: usize, set: &[String], line: &CommandLine) -> Result<Statistics, LabError> {
    let spec = Spec::load(path, set, &line.kinds(), line.catalogue())?;
    let name = path.display().to_string();
    let agents = spec.membership().map_err(|error| error.in_file(&name))?.numbers();
    if agent >= agents {
        let problem = format!("expected the number of an agent, below {agents}, got {agent}");
        return Err(LabError::config("--agent", problem));
    }
    let found = spec.objectives.statistics(agent).map_err(|error| error.in_file(&name))?;
    found.ok_or_else(|| {
        let problem = "only kind = \"table\" needs statistics";
        LabError::config("problem.kind", problem).in_file(&name)
    })
}

fn location(name: &str, folder: Option<&Path>) -> String {
    match data::locate(name, folder) {
        Ok(Located::Generated) => "generated on demand".into(),
        Ok(Located::Directory(path)) => path.display().to_string(),
        Err(_) => format!("not found; download it with mile data get {name}"),
    }
}

fn list(folder: Option<&Path>) -> String {
    let mut text = String::new();
    for entry in data::list() {
        let shape = entry.shape;
        let _ = writeln!(
            text,
            "{:<14} {}\n{:14} {} training and {} test images of {} x {} x {}, {} classes; {}",
            entry.name,
            entry.summary,
            "",
            entry.train,
            entry.test,
            shape.height,
            shape.width,
            shape.channels,
            entry.classes,
            location(entry.name, folder),
        );
    }
    text
}

fn search_path(folder: Option<&Path>) -> String {
    let mut text = String::from("searched, in this order:\n");
    for path in data::search_path(folder) {
        let _ = writeln!(text, "  {}", path.display());
    }
    text.push_str("found:\n");
    for entry in data::list() {
        let _ = writeln!(text, "  {:<14} {}", entry.name, location(entry.name, folder));
    }
    text
}

fn get(name: &str, folder: Option<&Path>) -> anyhow::Result<()> {
    let terminal = std::io::stderr().is_terminal();
    let bar = if terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
    let style = "{msg:30!} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut printed = Instant::now();
    let say = |line: String| if terminal { bar.println(line) } else { eprintln!("{line}") };
    let mut show = |progress: DownloadProgress<'_>| match progress {
        DownloadProgress::Waiting => say("another process is downloading it; waiting".into()),
        DownloadProgress::Source(source) => say(format!("downloading from {source}")),
        DownloadProgress::Stored(file) => say(format!("stored {file}")),
        DownloadProgress::Failed(reason) => say(format!("failed: {reason}")),
        DownloadProgress::Bytes { file, done, total } => {
            total.into_iter().for_each(|total| bar.set_length(total));
            bar.set_message(file.to_owned());
            bar.set_position(done);
            if !terminal && printed.elapsed() > LINE_INTERVAL {
                printed = Instant::now();
                let of = total.map_or(String::new(), |total| format!(" of {}", HumanBytes(total)));
                eprintln!("{file}: {}{of}", HumanBytes(done));
            }
        }
        _ => {}
    };
    let located = data::get(name, folder, &mut show).map_err(LabError::from);
    bar.finish_and_clear();
    match located? {
        Located::Generated => output::print(&format!("{name} is generated on demand; nothing to download\n")),
        Located::Directory(path) => output::print(&format!("{name} is in {}\n", path.display())),
    }
}
