//! Figure 2: every method with the best step size found for it, with the same number of trials for all.

use std::path::Path;

use toml::{Table, Value};

use super::{Finding, Request, make};
use crate::fig1::{draw, tell};
use crate::plans::{FIG2, FIG2_SEARCH, merge, set};
use mile_lab::config::{parse_table, set as paths};
use mile_lab::error::LabError;
use mile_lab::report::{Page, RunFolder, draw_sweep};
use mile_lab::sweep::{SweepFolder, SweepPlan, best_of};

const CLAIM: &str = "The paper's claim (Figure 2): with the best step size found for each method, MILE's training loss \
                     falls faster than that of LED, K-GT and DIGing.";

/// Searches, runs the best of each method, draws them, and says whether the claim holds.
pub fn fig2(request: &Request) -> Result<Finding, LabError> {
    make(request.out)?;
    let (mut said, mut prose) = (vec![CLAIM.to_owned()], vec![CLAIM.to_owned()]);
    let mut made: Vec<(SweepFolder, Option<RunFolder>)> = Vec::new();
    for (name, mut table) in FIG2.at(request.scale, request.dataset)? {
        if request.stopped() {
            break;
        }
        set(&mut table, request.set)?;
        let out = request.out.join(name);
        make(&out)?;
        let found = search(request, &mut table, name, &out)?;
        let all = if found.is_complete() { "with as many trials for each" } else { "not finished" };
        said.push(format!("{name}, the search, {all}:\n{}", found.found()));
        let best = if request.stopped() { None } else { Some(best(request, table, &found, &out)?) };
        if let Some(folder) = &best {
            draw(request, folder, &format!("fig2-{name}"), "Figure 2")?;
            tell(request, folder, &mut said, &mut prose);
        }
        made.push((found, best));
    }
    let mut page = Page::new("Figure 2");
    page.text("Figure 2, reproduced", &prose);
    for (found, best) in &made {
        best.iter().for_each(|folder| page.run(folder));
        page.sweep(found)?;
    }
    page.write(&request.out.join("report.html"))?;
    request.finish(&said, request.stopped())
}

/// The search of one data set, with the changes that make it one. What the user changes holds for it too, but for
/// its seeds: it must not choose by the runs that the figure shows.
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
    set(&mut searched, request.set)?;
    if let Some(seeds) = changes.get("seeds") {
        searched.insert("seeds".into(), seeds.clone());
    }
    let plan = SweepPlan::read(&searched, out)?
        .ok_or_else(|| LabError::config("sweep", "is missing from the plan of figure 2"))?;
    let folder = out.join("search");
    let found = plan.execute(&folder, folder.join("sweep.toml").exists(), request.watch, request.stop)?;
    draw_sweep(&found)?;
    Ok(found)
}

/// The best of every method, with the seeds and rounds of the figure. A method of which every trial
/// diverged is left out; the search's table says so.
fn best(request: &Request, mut table: Table, found: &SweepFolder, out: &Path) -> Result<RunFolder, LabError> {
    table.remove("sweep");
    let mut lost = Vec::new();
    for best in best_of(&found.trials, found.criterion) {
        let Some(trial) = best.trial else {
            lost.push(best.label.to_owned());
            continue;
        };
        for (key, value) in &trial.settings {
            let bad = |problem: &str| LabError::config(format!("sweep.{key}"), problem);
            let parameter = match key.rsplit_once('.') {
                None => key,
                Some((owner, parameter)) if owner.starts_with("algorithm.") => parameter,
                Some(_) => {
                    return Err(bad("is no parameter of an algorithm: figure 2 searches for these only"));
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
