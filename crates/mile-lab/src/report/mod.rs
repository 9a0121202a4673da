//! Reports of runs and sweeps: figures, tables, and one self-contained HTML page.

mod coefficients;
mod folder;
mod html;
mod page;
mod summary;

use std::path::{Path, PathBuf};

pub use folder::RunFolder;
pub use html::Page;
pub(crate) use html::{lasting_page, live_page};
pub(crate) use page::section;
pub(crate) use summary::{network_name, problem_name};

use crate::error::LabError;
use crate::plot::{self, Runs};
use crate::store::{Outcome, write_file};
use crate::sweep::SweepFolder;
use crate::table::{outcomes_table, results_text};

/// Writes an HTML page about run directories and sweeps.
pub fn write_report(folders: &[impl AsRef<Path>], out: &Path) -> Result<(), LabError> {
    let name =
        |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let title = match folders {
        [only] => name(only.as_ref()),
        several => format!("{} runs", several.len()),
    };
    let mut page = Page::new(title);
    for folder in folders {
        let folder = folder.as_ref();
        if SweepFolder::is_at(folder) {
            page.sweep(&SweepFolder::read(folder)?)?;
        } else {
            page.run(&RunFolder::read(folder)?);
        }
    }
    page.write(out)
}

/// Writes the outputs of a run directory from its records: `figures/`, `report.html` and the tables. `seeds` is the number of seeds of
/// the experiment.
pub fn write_run_outputs(folder: &Path, outcomes: &[Outcome], seeds: usize) -> Result<(), LabError> {
    RunFolder::read(folder)?.draw("")?;
    write_report(&[folder], &folder.join("report.html"))?;
    write_run_tables(folder, outcomes, seeds)
}

/// Writes `table.txt` and `table.tex` alone: drawing takes longer than a short run.
pub(crate) fn write_run_tables(folder: &Path, outcomes: &[Outcome], seeds: usize) -> Result<(), LabError> {
    write_file(&folder.join("table.txt"), results_text(outcomes, seeds).as_bytes())?;
    write_file(&folder.join("table.tex"), outcomes_table(outcomes, seeds).to_latex().as_bytes())
}

/// Writes the figures of a sweep and returns the files: the best trial of each algorithm, and how the criterion depends on
/// each numeric key.
pub fn draw_sweep(sweep: &SweepFolder) -> Result<Vec<PathBuf>, LabError> {
    let (records, outcomes) = sweep.best_runs()?;
    let runs = Runs::new(&records, &outcomes);
    let mut figures = Vec::new();
    if !records.is_empty() {
        figures = plot::figures(&runs, &format!("{}: best trial of each algorithm", sweep.name));
    }
    figures.extend(plot::sensitivity(&sweep.trials, sweep.criterion));
    plot::write_figures(&sweep.path.join("figures"), &figures)
}

/// Writes the outputs of a sweep from its trials: `figures/` and `report.html`.
pub fn write_sweep_outputs(sweep: &SweepFolder) -> Result<(), LabError> {
    draw_sweep(sweep)?;
    write_report(&[&sweep.path], &sweep.path.join("report.html"))
}
