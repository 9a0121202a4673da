//! Figure 1: all methods with the same step size.

use super::{Finding, Request, comparison, create_folder};
use crate::plans::{FIG1, apply_all};
use mile::problems::Metric;
use mile_lab::error::LabError;
use mile_lab::plot::{Figure, Runs, relative_to, write_figures};
use mile_lab::quantity::{Axis, Quantity};
use mile_lab::recorded_metrics::Models;
use mile_lab::report::{Page, RunFolder};
use mile_lab::table::outcomes_table;

const CLAIM: &str = "The paper's claim (Figure 1): with a common step size (0.12 on MNIST, 0.04 on CIFAR-10), MILE's \
                     training loss falls faster than that of LED, K-GT and DIGing.";

/// Runs the experiments of Figure 1, draws it, and states whether the claim holds.
pub fn fig1(request: &Request) -> Result<Finding, LabError> {
    create_folder(request.out)?;
    let (mut text, mut page_text) = (vec![CLAIM.to_owned()], vec![CLAIM.to_owned()]);
    let mut folders = Vec::new();
    for (name, mut table) in FIG1.at(request.scale, request.dataset)? {
        if request.stopped() {
            break;
        }
        apply_all(&mut table, request.set)?;
        let folder = request.run(table, request.out, &request.out.join(name))?;
        draw(request, &folder, &format!("fig1-{name}"), "Figure 1")?;
        describe_run(request, &folder, &mut text, &mut page_text);
        folders.push(folder);
    }
    let mut page = Page::new("Figure 1");
    page.text("Figure 1, reproduced", &page_text);
    folders.iter().for_each(|folder| page.run(folder));
    page.write(&request.out.join("report.html"))?;
    request.finish(&text, request.stopped())
}

/// Adds what a run found: to `text` with the table of results, to `page_text` without, since the page has the table.
pub(super) fn describe_run(
    request: &Request,
    folder: &RunFolder,
    text: &mut Vec<String>,
    page_text: &mut Vec<String>,
) {
    let head = format!("{} ({}; * not in the paper)", title(folder), request.note(folder));
    text.push(format!("{head}:\n{}", outcomes_table(&folder.outcomes, folder.spec.seeds.len())));
    page_text.push(format!("{head}."));
    let findings = comparison::sentences(folder, &title(folder));
    text.extend(findings.iter().cloned());
    page_text.extend(findings);
}

/// The usual name of the data set.
pub(super) fn title(folder: &RunFolder) -> String {
    match folder.spec.problem.get("dataset").and_then(|name| name.as_str()) {
        Some("mnist") => "MNIST".into(),
        Some("cifar10") => "CIFAR-10".into(),
        Some(other) => other.to_owned(),
        None => folder.spec.name.clone(),
    }
}

/// Draws the figure of a data set: losses of the average model and of the agents' own models against rounds (absolute, and
/// relative to MILE), bytes sent and gradient evaluations; consensus error and test accuracy. A second figure has only the
/// first rows.
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
        (Quantity::Test(Metric::Accuracy, Models::Own), Axis::Round),
    ];
    let note = format!("{note}; * not in the paper");
    let heading = format!("{figure}, {}", title(folder));
    let relative = relative_to(&folder.records, comparison::MILE);
    let labels: Vec<&str> = folder.spec.algorithms.iter().map(|a| a.label.as_str()).collect();
    let relative = Runs::new(&relative, &folder.outcomes).in_order(&labels);
    let figure = |name: &str, drawn: &[(Quantity, Axis)]| {
        Figure::panels(name, &heading, &folder.runs(), drawn)
            .with_panels(2, &relative, &drawn[..2], ", relative to MILE")
            .with_note(&note)
    };
    let figures = [figure(name, &drawn), figure(&format!("{name}-rounds"), &drawn[..2])];
    write_figures(&request.out.join("figures"), &figures).map(|_| ())
}
