//! `mile plot`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use mile_lab::plot::{Axis, Figure, Quantity, Runs, figures, write_figures};
use mile_lab::record::Record;
use mile_lab::report::RunFolder;
use mile_lab::store::Outcome;
use mile_lab::sweep::SweepFolder;

use crate::output;

/// Pictures of finished or running runs, as SVG and PNG.
#[derive(Args)]
pub(crate) struct PlotArguments {
    /// Run directories; each gets its own figures/
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Only these quantities
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Quantity::ALL.map(Quantity::name)))]
    y: Vec<String>,
    /// Only against these
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Axis::ALL.map(Axis::name)))]
    x: Vec<String>,
    /// Draw all runs in the same figures, and write them here
    #[arg(long, value_name = "DIR")]
    together: Option<PathBuf>,
}

pub(crate) fn run(arguments: &PlotArguments) -> anyhow::Result<u8> {
    let (sweeps, folders): (Vec<&PathBuf>, Vec<&PathBuf>) =
        arguments.folders.iter().partition(|path| SweepFolder::is_at(path));
    let folders: Vec<RunFolder> =
        folders.iter().map(|path| RunFolder::read(path)).collect::<Result<_, _>>()?;
    for path in sweeps {
        say(SweepFolder::read(path)?.draw()?, &path.join("figures"))?;
    }
    if let Some(out) = &arguments.together
        && !folders.is_empty()
    {
        let (records, outcomes) = joined(&folders);
        let runs = Runs::new(&records, &outcomes);
        let drawn = match chosen(arguments, &runs) {
            some if some.is_empty() => figures(&runs, "all runs"),
            some => some,
        };
        return say(write_figures(out, &drawn)?, out);
    }
    for folder in &folders {
        let out = folder.path.join("figures");
        let drawn = chosen(arguments, &folder.runs());
        let written = if drawn.is_empty() { folder.draw("")? } else { write_figures(&out, &drawn)? };
        say(written, &out)?;
    }
    Ok(0)
}

fn say(written: Vec<PathBuf>, out: &std::path::Path) -> anyhow::Result<u8> {
    output::print(&format!("{} files in {}\n", written.len(), out.display()))?;
    Ok(0)
}

/// The figures asked for by name; none if none were.
fn chosen(arguments: &PlotArguments, runs: &Runs) -> Vec<Figure> {
    if arguments.x.is_empty() && arguments.y.is_empty() {
        return Vec::new();
    }
    let quantities = Quantity::ALL.into_iter().filter(|q| wanted(&arguments.y, q.name()) && runs.have(*q));
    let axes = |quantity: Quantity| {
        let asked =
            if arguments.x.is_empty() { vec![Axis::Round.name().to_owned()] } else { arguments.x.clone() };
        let axes = Axis::ALL.into_iter().filter(move |axis| asked.iter().any(|name| name == axis.name()));
        axes.map(move |axis| (quantity, axis))
    };
    quantities.flat_map(axes).map(|(quantity, axis)| Figure::single(runs, quantity, axis)).collect()
}

fn wanted(asked: &[String], name: &str) -> bool {
    asked.is_empty() || asked.iter().any(|one| one == name)
}

/// All records, told apart by their run's folder.
fn joined(folders: &[RunFolder]) -> (Vec<Record>, Vec<Outcome>) {
    let (mut records, mut outcomes) = (Vec::new(), Vec::new());
    for folder in folders {
        let name =
            folder.path.file_name().map_or_else(String::new, |name| format!(" [{}]", name.to_string_lossy()));
        let renamed = |label: &str| format!("{label}{name}");
        records.extend(folder.records.iter().map(|r| Record { label: renamed(&r.label), ..r.clone() }));
        outcomes.extend(folder.outcomes.iter().map(|o| Outcome { label: renamed(&o.label), ..o.clone() }));
    }
    (records, outcomes)
}
