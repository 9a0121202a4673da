//! Who wins when: for heterogeneity, local steps and gradient noise, which method needs the fewest rounds, bytes and
//! gradients to a target loss.

mod setting;

use std::path::Path;

use mile_lab::error::LabError;
use mile_lab::plot::{Winner, WinnersMap, winners_svg, write_picture};
use mile_lab::report::Page;
use mile_lab::store::write_file;
use mile_lab::table::{TextTable, number};
use rayon::prelude::*;

use super::{Finding, Request, Scale, create_folder};
use setting::{
    AGENTS, ARMS, Entry, FEATURES, LARGEST_STEP, MOST_ROUNDS, MOST_STEPS, Needed, ROWS, SMALLEST, Setting,
};

/// The settings of a scale, and how many step sizes and seeds are tried.
struct Grid {
    heterogeneity: &'static [f64],
    local_steps: &'static [u64],
    batch: &'static [usize],
    targets: &'static [f64],
    steps: usize,
    seeds: u64,
}

const QUICK: Grid = Grid {
    heterogeneity: &[0.3, 3.0],
    local_steps: &[2, 10],
    batch: &[ROWS, 4],
    targets: &[0.01],
    steps: 10,
    seeds: 3,
};
const FULL: Grid = Grid {
    heterogeneity: &[0.1, 1.0, 3.0],
    local_steps: &[2, 10, 50],
    batch: &[ROWS, 10, 1],
    targets: &[0.1, 0.01],
    steps: 14,
    seeds: 5,
};

/// Methods that need up to this many times what the winner needs count as equally good.
const CLOSE: f64 = 1.1;

/// What is counted: its name, its unit in figures, and its value in that unit.
type Count = (&'static str, &'static str, fn(&Needed) -> f64);
const COUNTS: [Count; 3] = [
    ("rounds", "rounds", |needed| needed.rounds),
    ("bytes", "kB", |needed| needed.bytes / 1e3),
    ("gradients", "gradients", |needed| needed.gradients),
];

/// Measures all cells, draws the maps, and says what a user can learn from them.
pub fn when(request: &Request) -> Result<Finding, LabError> {
    let grid = if request.scale == Scale::Quick { &QUICK } else { &FULL };
    let cells = request.out.join("cells");
    create_folder(&cells)?;
    let settings = grid.settings();
    let mut measured = Vec::with_capacity(settings.len());
    // The methods of a cell take times so different that a few cells at once are needed to occupy all cores.
    for group in settings.chunks(rayon::current_num_threads().div_ceil(4)) {
        if request.stopped() {
            break;
        }
        let (done, all) = (measured.len(), settings.len());
        (request.say)(&format!("when: cell {} of {all}, {}", done + 1, group[0].name()));
        let entries = group.par_iter().map(|setting| cell(&cells, grid, setting));
        measured.extend(group.iter().copied().zip(entries.collect::<Result<Vec<_>, _>>()?));
    }
    let stopped = measured.len() < settings.len();
    let (table, conventions) = (table(&measured), conventions(grid));
    write_file(&request.out.join("table.txt"), table.to_string().as_bytes())?;
    write_file(&request.out.join("table.tex"), table.to_latex().as_bytes())?;
    let findings = findings(grid, &measured);
    let mut page = Page::new("Who wins when");
    page.text("Which method needs least", &[vec![conventions.clone()], findings.clone()].concat());
    if !stopped {
        for count in COUNTS {
            let svg = winners_svg(&grid.map(&measured, count, request.scale));
            write_picture(request.out, &format!("when-{}", count.0), &svg)?;
            page.picture(&svg);
        }
    }
    page.table("All methods in all cells", &table);
    page.write(&request.out.join("report.html"))?;
    request.finish(&[vec![conventions], findings, vec![table.to_string()]].concat(), stopped)
}

/// The results of a cell, from its file if it was measured before.
fn cell(folder: &Path, grid: &Grid, setting: &Setting) -> Result<Vec<Entry>, LabError> {
    let path = folder.join(format!("{}.json", setting.name().replace([' ', ','], "-").replace("--", "-")));
    let known = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let matches = |(steps, entries): &(usize, Vec<Entry>)| {
        *steps == grid.steps && entries.iter().all(|entry| entry.needed.len() as u64 == grid.seeds)
    };
    if let Some((_, entries)) = known.filter(matches) {
        return Ok(entries);
    }
    let entries = setting.measure(grid.steps, grid.seeds)?;
    let text = serde_json::to_string(&(grid.steps, &entries)).unwrap_or_default();
    write_file(&path, text.as_bytes())?;
    Ok(entries)
}

impl Setting {
    fn name(&self) -> String {
        format!(
            "heterogeneity {}, {} local steps, {}, target {}",
            self.heterogeneity,
            self.local_steps,
            self.noise(),
            self.target
        )
    }

    fn noise(&self) -> String {
        if self.batch >= ROWS { "exact gradients".into() } else { format!("batch {}", self.batch) }
    }
}

impl Grid {
    /// Row by row of the map: by target, noise, heterogeneity and local steps.
    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &target in self.targets {
            for &batch in self.batch {
                for &heterogeneity in self.heterogeneity {
                    let setting = |&local_steps| Setting { heterogeneity, local_steps, batch, target };
                    settings.extend(self.local_steps.iter().map(setting));
                }
            }
        }
        settings
    }

    fn map<'a>(&self, measured: &[(Setting, Vec<Entry>)], count: Count, scale: Scale) -> WinnersMap<'a> {
        let panel = self.heterogeneity.len() * self.local_steps.len();
        let panels = measured.chunks_exact(panel).map(|cells| {
            let (setting, _) = &cells[0];
            let rows = cells.chunks_exact(self.local_steps.len());
            let winners = rows.map(|row| row.iter().map(|(_, entries)| winner(entries, count.2)).collect());
            (format!("{}, to {}", setting.noise(), percent(setting.target)), winners.collect())
        });
        let panels: Vec<_> = panels.collect();
        let panels = panels.chunks(self.batch.len()).map(<[_]>::to_vec).collect();
        WinnersMap {
            title: match count.0 {
                "rounds" => "Which method needs the fewest rounds",
                "bytes" => "Which method sends the fewest bytes (of one agent)",
                _ => "Which method needs the fewest gradients (of one agent)",
            },
            unit: count.1,
            rows: ("heterogeneity", self.heterogeneity.iter().map(ToString::to_string).collect()),
            columns: ("local steps", self.local_steps.iter().map(ToString::to_string).collect()),
            panels,
            labels: &LABELS,
            note: match scale {
                Scale::Quick => {
                    "quick scale. To x%: until the loss of the agents' models above the minimum is x% of its initial value. Bold: fewer for every seed than any other method needs for any seed. Below: how many others need at most a tenth more, and the next best"
                }
                Scale::Paper => {
                    "To x%: until the loss of the agents' models above the minimum is x% of its initial value. Bold: fewer for every seed than any other method needs for any seed. Below: how many others need at most a tenth more, and the next best"
                }
            },
        }
    }
}

fn percent(share: f64) -> String {
    format!("{}%", 100.0 * share)
}

/// Labels of the methods that have no server, then of the one that has one.
const LABELS: [&str; ARMS.len()] = {
    let mut labels = [""; ARMS.len()];
    let mut k = 0;
    while k < ARMS.len() {
        labels[k] = ARMS[k].label;
        k += 1;
    }
    labels
};

/// Mean, least and most over the seeds; none if a seed did not reach the target.
fn over_seeds(entry: &Entry, value: fn(&Needed) -> f64) -> Option<(f64, f64, f64)> {
    let values: Vec<f64> =
        entry.needed.iter().map(|needed| needed.as_ref().map(value)).collect::<Option<_>>()?;
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(*x), b.max(*x)));
    (!values.is_empty()).then(|| (values.iter().sum::<f64>() / values.len() as f64, least, most))
}

/// The methods without a server that reached the target, the one that needs least first.
fn ranking(entries: &[Entry], value: fn(&Needed) -> f64) -> Vec<(&str, (f64, f64, f64))> {
    let without_server = entries.iter().filter(|entry| !entry.label.contains("server"));
    let mut all: Vec<_> =
        without_server.filter_map(|entry| Some((entry.label.as_str(), over_seeds(entry, value)?))).collect();
    all.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
    all
}

fn winner(entries: &[Entry], value: fn(&Needed) -> f64) -> Option<Winner> {
    let ranking = ranking(entries, value);
    let (label, (mean, _, most)) = ranking.first()?;
    let next = ranking.get(1).map(|(label, (other, ..))| ((*label).to_owned(), other / mean));
    let is_clear = ranking[1..].iter().all(|(_, (_, least, _))| least > most);
    let close = ranking[1..].iter().filter(|(_, (other, ..))| *other < CLOSE * mean).count();
    Some(Winner { label: (*label).to_owned(), value: *mean, next, close, is_clear })
}

fn table(measured: &[(Setting, Vec<Entry>)]) -> TextTable {
    let header = [
        "heterogeneity",
        "tau",
        "gradients",
        "target",
        "method",
        "step size",
        "rounds",
        "of seeds",
        "kB sent",
        "gradients",
    ];
    let mut rows = Vec::new();
    for (setting, entries) in measured {
        for entry in entries {
            let mean =
                |count: Count| over_seeds(entry, count.2).map_or("-".into(), |(mean, ..)| number(mean));
            let range = over_seeds(entry, COUNTS[0].2);
            rows.push(vec![
                number(setting.heterogeneity),
                setting.local_steps.to_string(),
                setting.noise(),
                percent(setting.target),
                entry.label.clone(),
                entry.step_size.map_or("-".into(), number),
                mean(COUNTS[0]),
                match (range, entry.needed.iter().flatten().count()) {
                    (Some((_, least, most)), _) => format!("{least} to {most}"),
                    (None, 0) => "none".into(),
                    (None, some) => format!("{some} of {}", entry.needed.len()),
                },
                mean(COUNTS[1]),
                mean(COUNTS[2]),
            ]);
        }
    }
    TextTable { header: header.map(str::to_owned).to_vec(), rows }
}

fn conventions(grid: &Grid) -> String {
    format!(
        "{AGENTS} agents on a ring with lazy Metropolis weights, each with {ROWS} rows of {FEATURES} features, of scales from 1 to {SMALLEST}: logistic regression with a small quadratic \
         penalty. Heterogeneity: how far apart the agents' true parameters are, in units of their own size. Counted until the mean loss of the \
         agents' own models above the minimum has fallen to a share (the target) of its initial value, and stays there for three rounds. Each method uses the \
         best of the same {} step sizes (from {LARGEST_STEP}/L down by halves, L a bound on the smoothness), chosen by its worst result on five other data sets; figures are means over {} data sets. At \
         most {MOST_ROUNDS} rounds and {MOST_STEPS} local steps. MILE uses the paper's xi; decoupled MILE* has gamma = 1 and xi at 0.3 of its limit for small steps, adaptive MILE* at most 0.6 of it; with \
         momentum 0.9, xi and step sizes are in units of 1 - 0.9. SCAFFOLD needs a server, here a complete graph, and is not counted among the winners.",
        grid.steps, grid.seeds
    )
}

/// Sentences on who wins how often, by target, with and without exact gradients.
fn findings(grid: &Grid, measured: &[(Setting, Vec<Entry>)]) -> Vec<String> {
    let mut sentences = Vec::new();
    let kinds = [("With exact gradients", true), ("With mini-batches", false)];
    for (target, (name, exact)) in grid.targets.iter().flat_map(|target| kinds.map(|kind| (*target, kind))) {
        let is_kind = |setting: &Setting| (setting.batch >= ROWS) == exact && setting.target == target;
        let cells: Vec<_> = measured.iter().filter(|(setting, _)| is_kind(setting)).collect();
        if cells.is_empty() {
            continue;
        }
        for (what, _, value) in COUNTS {
            let mut wins: Vec<(&str, usize)> = LABELS.iter().map(|label| (*label, 0)).collect();
            for (_, entries) in &cells {
                if let Some((best, _)) = ranking(entries, value).first()
                    && let Some(slot) = wins.iter_mut().find(|(label, _)| label == best)
                {
                    slot.1 += 1;
                }
            }
            wins.retain(|(_, count)| *count > 0);
            wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let list: Vec<String> = wins.iter().map(|(label, count)| format!("{label} {count}")).collect();
            sentences.push(format!(
                "{name}, fewest {what} to {} in {} cells: {}.",
                percent(target),
                cells.len(),
                list.join(", ")
            ));
        }
    }
    sentences
}
