//! Figure 2: each method with the best step size of a search, with the same number of trials for all.

use std::path::Path;

use toml::{Table, Value};

use super::{Finding, Request, create_folder};
use crate::fig1::{describe_run, draw};
use crate::plans::{FIG2, FIG2_SEARCH, apply_all, merge};
use mile::methods::catalogue::Catalogue;
use mile_lab::error::LabError;
use mile_lab::objectives::Kinds;
use mile_lab::report::{Page, RunFolder, draw_sweep};
use mile_lab::spec::{parse_table, set as paths};
use mile_lab::sweep::{SweepFolder, SweepPlan, Trial, best_of, best_table, within_stability};

const CLAIM: &str = "The paper's claim (Figure 2): with the best step size found for each method, MILE's training loss \
                     falls faster than that of LED, K-GT and DIGing.";

/// Searches step sizes, runs each method with its best one, draws the figure, and states whether the claim holds.
pub fn fig2(request: &Request) -> Result<Finding, LabError> {
    create_folder(request.out)?;
    let (mut text, mut page_text) = (vec![CLAIM.to_owned()], vec![CLAIM.to_owned()]);
    let mut made: Vec<(SweepFolder, Option<RunFolder>)> = Vec::new();
    for (name, mut table) in FIG2.at(request.scale, request.dataset)? {
        if request.stopped() {
            break;
        }
        apply_all(&mut table, request.set)?;
        let out = request.out.join(name);
        create_folder(&out)?;
        let found = search(request, &mut table, name, &out)?;
        let status = if found.is_complete() { "with equal numbers of trials" } else { "not finished" };
        text.push(format!("{name}, step size search, {status}:\n{}", found.summary()));
        let stable = within_stability(&found.trials, found.criterion);
        text.push(format!(
            "{name}, of these the best whose next larger step size did not diverge, as the figure shows them:\n{}",
            best_table(&stable, found.criterion)
        ));
        let best = if request.stopped() { None } else { Some(best(request, table, &found, &stable, &out)?) };
        if let Some(folder) = &best {
            draw(request, folder, &format!("fig2-{name}"), "Figure 2")?;
            describe_run(request, folder, &mut text, &mut page_text);
        }
        made.push((found, best));
    }
    let mut page = Page::new("Figure 2");
    page.text("Figure 2, reproduced", &page_text);
    for (found, best) in &made {
        best.iter().for_each(|folder| page.run(folder));
        page.sweep(found)?;
    }
    page.write(&request.out.join("report.html"))?;
    request.finish(&text, request.stopped())
}

/// Runs the step size search of one data set. The user's changes apply to it too, except for seeds: the search must not use
/// the runs that the figure shows.
fn search(request: &Request, table: &mut Table, name: &str, out: &Path) -> Result<SweepFolder, LabError> {
    let changes = match table.remove("search") {
        Some(Value::Table(changes)) => changes,
        _ => match parse_table(FIG2_SEARCH, &[])?.remove(name) {
            Some(Value::Table(changes)) => changes,
            _ => Table::new(),
        },
    };
    let mut searched = table.clone();
    merge(&mut searched, &changes);
    apply_all(&mut searched, request.set)?;
    if let Some(seeds) = changes.get("seeds") {
        searched.insert("seeds".into(), seeds.clone());
    }
    let plan = SweepPlan::read_with(
        &searched,
        out,
        &Kinds::default(),
        &Catalogue::default(),
        request.engines.clone(),
    )?
    .ok_or_else(|| LabError::config("sweep", "missing from the experiment file of figure 2"))?;
    let folder = out.join("search");
    let found = plan.execute(&folder, folder.join("sweep.toml").exists(), request.observers, request.stop)?;
    draw_sweep(&found)?;
    Ok(found)
}

/// Runs every method with its best values among the stable ones, or of all if none is, with the seeds and rounds of the figure. A
/// method whose trials all diverged is left out; the search's table shows it.
fn best(
    request: &Request,
    mut table: Table,
    found: &SweepFolder,
    stable: &[Trial],
    out: &Path,
) -> Result<RunFolder, LabError> {
    table.remove("sweep");
    let stable = best_of(stable, found.criterion);
    let mut lost = Vec::new();
    for best in best_of(&found.trials, found.criterion) {
        let stable = stable.iter().find(|stable| stable.label == best.label);
        let Some(trial) = stable.and_then(|stable| stable.trial).or(best.trial) else {
            lost.push(best.label.to_owned());
            continue;
        };
        for (key, value) in &trial.settings {
            let bad = |problem: &str| LabError::config(format!("sweep.{key}"), problem);
            let parameter = match key.rsplit_once('.') {
                None => key,
                Some((owner, parameter)) if owner.starts_with("algorithm.") => parameter,
                Some(_) => {
                    return Err(bad("not a parameter of an algorithm; figure 2 can search only those"));
                }
            };
            paths::assign(&mut table, &["algorithm", best.label, parameter], value.clone(), &bad)?;
        }
    }
    if let Some(Value::Array(list)) = table.get_mut("algorithm") {
        list.retain(|one| !lost.iter().any(|label| one.get("label").and_then(Value::as_str) == Some(label)));
    }
    request.run(table, out, &out.join("best"))
}
