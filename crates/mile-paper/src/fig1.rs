//! Figure 1: all methods with one step size.

use super::{Finding, Request, make, statement};
use crate::plans::{FIG1, set};
use mile_lab::error::LabError;
use mile_lab::plot::{Figure, Runs, relative_to, write_figures};
use mile_lab::quantity::{Axis, Quantity};
use mile_lab::report::{Page, RunFolder};
use mile_lab::table::outcomes_table;

const CLAIM: &str = "The paper's claim (Figure 1): with a common step size (0.12 on MNIST, 0.04 on CIFAR-10), MILE's \
                     training loss falls faster than that of LED, K-GT and DIGing.";

/// Runs the plan of Figure 1, draws it, and says whether the claim holds.
pub fn fig1(request: &Request) -> Result<Finding, LabError> {
    make(request.out)?;
    let (mut said, mut prose) = (vec![CLAIM.to_owned()], vec![CLAIM.to_owned()]);
    let mut folders = Vec::new();
    for (name, mut table) in FIG1.at(request.scale, request.dataset)? {
        if request.stopped() {
            break;
        }
        set(&mut table, request.set)?;
        let folder = request.run(table, request.out, &request.out.join(name))?;
        draw(request, &folder, &format!("fig1-{name}"), "Figure 1")?;
        tell(request, &folder, &mut said, &mut prose);
        folders.push(folder);
    }
    let mut page = Page::new("Figure 1");
    page.text("Figure 1, reproduced", &prose);
    folders.iter().for_each(|folder| page.run(folder));
    page.write(&request.out.join("report.html"))?;
    request.finish(&said, request.stopped())
}

/// Says what a run found: with its table for a terminal, without for a page that has it anyway.
pub(super) fn tell(request: &Request, folder: &RunFolder, said: &mut Vec<String>, prose: &mut Vec<String>) {
    let head = format!("{} ({}; * not in the paper)", title(folder), request.note(folder));
    said.push(format!("{head}:\n{}", outcomes_table(&folder.outcomes, folder.experiment.seeds.len())));
    prose.push(format!("{head}."));
    let findings = statement::about(folder, &title(folder));
    said.extend(findings.iter().cloned());
    prose.extend(findings);
}

/// The data set as people write it.
pub(super) fn title(folder: &RunFolder) -> String {
    match folder.experiment.resolved_value("problem", "dataset").and_then(|name| name.as_str()) {
        Some("mnist") => "MNIST".into(),
        Some("cifar10") => "CIFAR-10".into(),
        Some(other) => other.to_owned(),
        None => folder.experiment.name.clone(),
    }
}

/// The figure of a data set: what the average and the agents' own models are worth against rounds (as they
/// are, and as multiples of MILE's), bytes and gradients, how far apart the agents are, and how well they do
/// on the test set. A small one has its first rows.
pub(super) fn draw(request: &Request, folder: &RunFolder, name: &str, figure: &str) -> Result<(), LabError> {
    let note = request.note(folder);
    folder.draw(&note)?;
    let drawn = [
        (Quantity::Loss, Axis::Round),
        (Quantity::LocalLoss, Axis::Round),
        (Quantity::Loss, Axis::BytesSent),
        (Quantity::LocalLoss, Axis::BytesSent),
        (Quantity::Loss, Axis::GradientEvals),
        (Quantity::LocalLoss, Axis::GradientEvals),
        (Quantity::ConsensusError, Axis::Round),
        (Quantity::LocalAccuracy, Axis::Round),
    ];
    let note = format!("{note}; * not in the paper");
    let heading = format!("{figure}, {}", title(folder));
    let relative = relative_to(&folder.records, statement::MILE);
    let labels: Vec<&str> = folder.experiment.algorithms.iter().map(|a| a.label.as_str()).collect();
    let relative = Runs::new(&relative, &folder.outcomes).in_order(&labels);
    let figure = |name: &str, drawn: &[(Quantity, Axis)]| {
        Figure::panels(name, &heading, &folder.runs(), drawn)
            .with_panels(2, &relative, &drawn[..2], ", relative to MILE")
            .with_note(&note)
    };
    let figures = [figure(name, &drawn), figure(&format!("{name}-rounds"), &drawn[..2])];
    write_figures(&request.out.join("figures"), &figures).map(|_| ())
}
