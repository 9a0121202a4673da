//! The standard figures of a run, and figures as files.

use std::path::{Path, PathBuf};

use mile::problems::Metric;
use rayon::prelude::*;

use super::curve::Runs;
use super::draw::{Medium, draw};
use super::figure::Figure;
use crate::error::LabError;
use crate::quantity::{Axis, Quantity};
use crate::recorded_metrics::Models;
use crate::store::write_file;

/// The standard figures of a run: an overview, every quantity against rounds, and losses and the first metric on held-out data
/// against every cost.
pub fn figures(runs: &Runs, title: &str) -> Vec<Figure> {
    let metric = Metric::ALL.into_iter().find(|metric| runs.have(Quantity::Test(*metric, Models::Own)));
    let third = metric.map_or(Quantity::GradNormSq, |metric| Quantity::Test(metric, Models::Own));
    let overview = [Quantity::Loss, Quantity::LocalLoss, Quantity::ConsensusError, third];
    let mut figures = vec![Figure::panels("overview", title, runs, &overview.map(|q| (q, Axis::Round)))];
    for quantity in Quantity::ALL.into_iter().filter(|quantity| runs.have(*quantity)) {
        let spent = match quantity {
            Quantity::Loss | Quantity::LocalLoss => true,
            Quantity::Test(of, Models::Average | Models::Own) => Some(of) == metric,
            _ => false,
        };
        let axes = runs.axes().filter(|axis| spent || *axis == Axis::Round);
        figures.extend(axes.map(|axis| Figure::single(runs, quantity, axis)));
    }
    figures
}

/// Writes an SVG as `NAME.svg` and `NAME.png` to a folder, and returns the files.
pub fn write_picture(folder: &Path, name: &str, svg: &str) -> Result<[PathBuf; 2], LabError> {
    std::fs::create_dir_all(folder).map_err(LabError::io(folder, "create"))?;
    let paths = ["svg", "png"].map(|extension| folder.join(format!("{name}.{extension}")));
    write_file(&paths[0], svg.as_bytes())?;
    let pixels =
        super::png(svg).map_err(|error| LabError::io(&paths[1], "draw")(std::io::Error::other(error)))?;
    write_file(&paths[1], &pixels)?;
    Ok(paths)
}

/// Writes figures as SVG and PNG to a folder, and returns the files.
pub fn write_figures(folder: &Path, figures: &[Figure]) -> Result<Vec<PathBuf>, LabError> {
    let write = |figure: &Figure| write_picture(folder, &figure.name, &figure.svg());
    let written: Vec<[PathBuf; 2]> = figures.par_iter().map(write).collect::<Result<_, _>>()?;
    Ok(written.concat())
}

impl Figure {
    /// The figure as SVG, for a file.
    pub fn svg(&self) -> String {
        draw(self, Medium::File)
    }

    /// The figure as SVG with its values, for an HTML page and its script.
    pub(crate) fn page_svg(&self) -> String {
        draw(self, Medium::Page)
    }
}
