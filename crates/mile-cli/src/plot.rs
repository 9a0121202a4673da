//! `mile plot`: figures of runs and sweeps.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use mile_lab::error::LabError;
use mile_lab::plot::{Figure, Runs, figures, write_figures};
use mile_lab::quantity::{Axis, Quantity};
use mile_lab::record::Record;
use mile_lab::report::{RunFolder, draw_sweep};
use mile_lab::store::Outcome;
use mile_lab::sweep::SweepFolder;

use crate::output;

/// Figures of finished, stopped or running runs, as SVG and PNG.
#[derive(Args)]
pub(crate) struct PlotArguments {
    /// Run directories and sweeps; figures are written to DIR/figures
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Quantities to plot, e.g. loss,accuracy [default: all that are recorded]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Quantity::ALL.map(Quantity::name)))]
    y: Vec<String>,
    /// Horizontal axes, e.g. round,bytes_sent [default: round if --y is given, else a standard set of figures]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Axis::ALL.map(Axis::name)))]
    x: Vec<String>,
    /// Plot all runs in the same figures, and write them to this folder
    #[arg(long, value_name = "DIR")]
    together: Option<PathBuf>,
}

pub(crate) fn run(arguments: &PlotArguments) -> anyhow::Result<u8> {
    let (sweeps, folders): (Vec<&PathBuf>, Vec<&PathBuf>) =
        arguments.folders.iter().partition(|path| SweepFolder::is_at(path));
    if let Some(sweep) = sweeps.first() {
        refuse_for_a_sweep(arguments, sweep)?;
    }
    let folders: Vec<RunFolder> =
        folders.iter().map(|path| RunFolder::read(path)).collect::<Result<_, _>>()?;
    if let Some(out) = &arguments.together {
        let (records, outcomes) = joined(&folders);
        let runs = Runs::new(&records, &outcomes);
        let drawn = match chosen(arguments, &runs, "these runs")? {
            Some(chosen) => chosen,
            None => figures(&runs, "all runs"),
        };
        print_count(&write_figures(out, &drawn)?, out)?;
        return Ok(0);
    }
    // All requested figures are checked before any is drawn.
    let drawn: Vec<Option<Vec<Figure>>> = folders
        .iter()
        .map(|folder| chosen(arguments, &folder.runs(), &folder.path.display().to_string()))
        .collect::<Result<_, _>>()?;
    for path in sweeps {
        print_count(&draw_sweep(&SweepFolder::read(path)?)?, &path.join("figures"))?;
    }
    for (folder, drawn) in folders.iter().zip(drawn) {
        let out = folder.path.join("figures");
        let written = match drawn {
            Some(chosen) => write_figures(&out, &chosen)?,
            None => folder.draw("")?,
        };
        print_count(&written, &out)?;
    }
    Ok(0)
}

fn print_count(written: &[PathBuf], out: &Path) -> anyhow::Result<()> {
    output::print(&format!("{} files in {}\n", written.len(), out.display()))
}

/// Refuses options that do not apply to sweeps.
fn refuse_for_a_sweep(arguments: &PlotArguments, sweep: &Path) -> Result<(), LabError> {
    let given = [
        ("--x", !arguments.x.is_empty()),
        ("--y", !arguments.y.is_empty()),
        ("--together", arguments.together.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((key, _)) => {
            let path = sweep.display();
            let problem = format!(
                "applies only to runs, but {path} is a sweep; leave it out, or plot its runs: {path}/points/*"
            );
            Err(LabError::config(key, problem))
        }
        None => Ok(()),
    }
}

/// The figures selected with --x and --y; `None` without these options. A quantity that was not recorded is an error.
fn chosen(arguments: &PlotArguments, runs: &Runs, whose: &str) -> Result<Option<Vec<Figure>>, LabError> {
    if arguments.x.is_empty() && arguments.y.is_empty() {
        return Ok(None);
    }
    let recorded: Vec<Quantity> = Quantity::ALL.into_iter().filter(|quantity| runs.have(*quantity)).collect();
    let names: Vec<&str> = recorded.iter().map(|quantity| quantity.name()).collect();
    if let Some(missing) = arguments.y.iter().find(|name| !names.contains(&name.as_str())) {
        let problem =
            format!("expected a quantity recorded in {whose} ({}), got {missing}", names.join(", "));
        return Err(LabError::config("--y", problem));
    }
    let wanted = |asked: &[String], name: &str| asked.is_empty() || asked.iter().any(|one| one == name);
    let axes = match &arguments.x[..] {
        [] => vec![Axis::Round],
        asked => {
            let axes: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| wanted(asked, axis.name())).collect();
            if let Some(missing) = axes.iter().find(|axis| !runs.axes().any(|recorded| recorded == **axis)) {
                let recorded: Vec<&str> = runs.axes().map(Axis::name).collect();
                let problem = format!(
                    "expected an axis recorded in {whose} ({}), got {}; modelled_s needs a section [time]",
                    recorded.join(", "),
                    missing.name()
                );
                return Err(LabError::config("--x", problem));
            }
            axes
        }
    };
    let quantities = recorded.into_iter().filter(|quantity| wanted(&arguments.y, quantity.name()));
    let of = |quantity| axes.iter().map(move |axis| Figure::single(runs, quantity, *axis));
    Ok(Some(quantities.flat_map(of).collect()))
}

/// The records and outcomes of all runs, with the name of the run's folder added to each label.
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
