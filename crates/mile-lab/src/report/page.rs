//! The sections of a report: a run, or a sweep.

use std::fmt::Write;

use super::coefficients::Coefficients;
use super::folder::RunFolder;
use super::summary;
use crate::error::LabError;
use crate::plot::style::escape;
use crate::plot::{Figure, Runs};
use crate::quantity::Quantity;
use crate::store::Outcome;
use crate::sweep::{SweepFolder, best_table, trials_table};
use crate::table::{COSTS, TextTable, number, outcomes_table, status_of};

/// The section of a run.
pub(crate) fn section(folder: &RunFolder, index: usize) -> String {
    let mut html = format!("<section class=\"run\">\n<h1>{}</h1>\n", escape(&folder.spec.name));
    let _ = writeln!(html, "<p class=\"sub\">{}</p>", escape(&subtitle(folder)));
    html.push_str("<ul class=\"summary\">\n");
    for sentence in summary::summary(folder) {
        let _ = writeln!(html, "<li>{}</li>", escape(&sentence));
    }
    html.push_str("</ul>\n");
    if !folder.outcomes.is_empty() {
        let (finished, all) = folder.finished_jobs();
        let whole = outcomes_table(&folder.outcomes, folder.spec.seeds.len());
        let is_cost = |name: &str| COSTS.contains(&name);
        let _ = write!(
            html,
            "<h2>Results</h2>\n<p class=\"hint\">At the last record, mean over {}seeds.</p>\n{}<h2>Costs</h2>\n{}",
            if finished < all { "finished " } else { "" },
            table(&status_first(whole.choose(|name| !is_cost(name)))),
            table(&whole.choose(is_cost))
        );
        let _ = writeln!(
            html,
            "<details><summary>Results of every seed</summary>{}</details>",
            table(&status_first(seeds_table(&folder.outcomes)))
        );
    }
    html.push_str(&coefficients(folder));
    html.push_str(&figures(&folder.runs(), index));
    html.push_str(&network(folder));
    html.push_str(&labels(folder));
    html.push_str(&provenance(folder));
    html.push_str("</section>\n");
    html
}

fn subtitle(folder: &RunFolder) -> String {
    let mut parts = vec![summary::problem_name(folder), summary::network_name(folder)];
    if let Some(context) = &folder.context {
        parts.push(date(context.started));
    }
    parts.join(" \u{00b7} ")
}

/// Seconds since 1970 as date and time in UTC.
pub(crate) fn date(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    // Civil date from days, by 400-year eras that start in March.
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let (d, m) = (in_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let y = year + era * 400 + i64::from(m <= 2);
    let (hours, minutes) = (seconds % 86_400 / 3600, seconds % 3600 / 60);
    format!("{y:04}-{m:02}-{d:02} {hours:02}:{minutes:02} UTC")
}

/// The section of a sweep: the best trials, their curves, and all trials.
pub(super) fn sweep_section(sweep: &SweepFolder, index: usize) -> Result<String, LabError> {
    let criterion = sweep.criterion;
    let mut html = format!("<section class=\"run\">\n<h1>{}: sweep</h1>\n", escape(&sweep.name));
    let _ = writeln!(html, "<p class=\"sub\">Criterion: {}</p>", escape(criterion.title()));
    let remarks = sweep.remarks();
    let items: String = remarks.iter().map(|remark| format!("<li>{}</li>\n", escape(remark))).collect();
    let _ = write!(
        html,
        "<h2>Best trial of each algorithm</h2>\n{}",
        table(&best_table(&sweep.trials, criterion))
    );
    if !items.is_empty() {
        let _ = writeln!(html, "<ul class=\"summary\">\n{items}</ul>");
    }
    html.push_str("<div class=\"figures\">\n");
    for figure in crate::plot::sensitivity(&sweep.trials, criterion) {
        let _ = writeln!(html, "<figure>{}</figure>", figure.page_svg());
    }
    html.push_str("</div>\n");
    let (records, outcomes) = sweep.best_runs()?;
    html.push_str(&figures(&Runs::new(&records, &outcomes), index));
    let _ = writeln!(
        html,
        "<details><summary>All trials</summary>{}</details>\n</section>",
        table(&trials_table(&sweep.trials, criterion))
    );
    Ok(html)
}

fn figures(runs: &Runs, index: usize) -> String {
    let mut html = String::from(
        "<h2>Figures</h2>\n<p class=\"hint\">Hover over a figure to see values; click a name in its legend to hide or show its curves.</p>\n<div class=\"figures\">\n",
    );
    for quantity in Quantity::ALL.into_iter().filter(|quantity| runs.have(*quantity)) {
        html.push_str("<figure>");
        for axis in runs.axes() {
            let mut figure = Figure::single(runs, quantity, axis);
            figure.name = format!("{index}-{}", figure.name);
            let _ = write!(
                html,
                "<div class=\"chart\" data-axis=\"{}\">{}</div>",
                axis.name(),
                figure.page_svg()
            );
        }
        html.push_str("</figure>\n");
    }
    html + "</div>\n"
}

fn coefficients(folder: &RunFolder) -> String {
    let Some(Coefficients { table: found, hint, is_long }) = Coefficients::read(&folder.path) else {
        return String::new();
    };
    let rows = found.rows.len();
    let body = match is_long {
        false => table(&found),
        true => format!("<details><summary>{rows} coefficients</summary>{}</details>\n", table(&found)),
    };
    format!("<h2>Coefficients</h2>\n<p class=\"hint\">{hint}</p>\n{body}")
}

fn network(folder: &RunFolder) -> String {
    let (network, graph) = (&folder.network, folder.network.graph());
    let n = network.agents();
    let svg = crate::plot::graph_svg(network, folder.spec.network.topology());
    let mut rows = vec![
        ("agents".to_owned(), n.to_string()),
        ("edges".to_owned(), graph.edges().count().to_string()),
        ("largest degree".to_owned(), graph.max_degree().to_string()),
    ];
    if n > 1 {
        let extremes = network.extremes();
        let left = extremes.lambda_2.abs().max(extremes.lambda_n.abs());
        let mut add = |name: &str, value: f64| rows.push((name.to_owned(), number(value)));
        add("second eigenvalue of W", extremes.lambda_2);
        add("smallest eigenvalue of W", extremes.lambda_n);
        add("spectral gap", 1.0 - left);
        add("exchanges to halve disagreement", (0.5f64.ln() / left.ln()).max(0.0));
    }
    let list: String =
        rows.iter().map(|(name, value)| format!("<tr><th>{name}</th><td>{value}</td></tr>")).collect();
    format!(
        "<h2>Network</h2>\n<div class=\"pair\"><figure class=\"graph\">{svg}</figure><div class=\"scroll\"><table class=\"facts\">{list}</table></div></div>\n"
    )
}

fn labels(folder: &RunFolder) -> String {
    let pictures: Vec<(String, String)> =
        folder.pictures().into_iter().filter(|(name, _)| name.starts_with("labels")).collect();
    if pictures.is_empty() {
        return String::new();
    }
    let figures: String = pictures.iter().map(|(_, svg)| format!("<figure>{svg}</figure>\n")).collect();
    format!("<h2>Label distribution by agent</h2>\n<div class=\"figures\">\n{figures}</div>\n")
}

fn provenance(folder: &RunFolder) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    match &folder.context {
        Some(context) => {
            let machine = &context.machine;
            rows.push(("mile", context.version.clone()));
            rows.push(("started", date(context.started)));
            rows.push(("machine", format!("{}, {}", machine.processor, machine.system)));
            rows.push(("threads", machine.threads.to_string()));
            if let Some(threads) = context.threads_per_job {
                let text = format!("each run on {threads} of its own, excluding evaluations");
                rows.push(("computing time", text));
            }
            if let Some(memory) = machine.memory {
                rows.push(("memory", format!("{:.1} GiB", memory as f64 / (1u64 << 30) as f64)));
            }
            rows.push(("dimension of the problem", context.dim.to_string()));
        }
        None => rows.push(("machine", "not recorded".into())),
    }
    rows.push(("folder", folder.path.display().to_string()));
    let list: String = rows
        .iter()
        // A path may break after each of its parts.
        .map(|(name, value)| {
            format!("<tr><th>{name}</th><td>{}</td></tr>", escape(value).replace('/', "/<wbr>"))
        })
        .collect();
    format!(
        "<h2>Environment and configuration</h2>\n<div class=\"scroll\"><table class=\"facts\">{list}</table></div>\n\
         <details><summary>Resolved experiment file, which reruns this experiment</summary><pre>{}</pre></details>\n",
        escape(&folder.spec.to_table().to_string())
    )
}

/// The table with its last column, the status, right after the first.
fn status_first(mut table: TextTable) -> TextTable {
    for cells in table.rows.iter_mut().chain([&mut table.header]) {
        cells[1..].rotate_right(1);
    }
    table
}

/// A table as HTML. On a narrow screen the style sheet folds each row into a list, for which every cell has the name of its
/// column. Elsewhere the more columns there are, the smaller they are set, and what is still too wide scrolls in its box, below
/// the first column.
pub(crate) fn table(table: &TextTable) -> String {
    let head: String = table.header.iter().map(|name| format!("<th>{}</th>", whole_words(name))).collect();
    let cell = |(text, name): (&String, &String)| {
        format!("<td data-name=\"{}\">{}</td>", escape(name), whole_words(text))
    };
    let cells = |row: &[String]| -> String { row.iter().zip(&table.header).map(cell).collect() };
    let rows: String = table.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row))).collect();
    format!(
        "<div class=\"scroll\"><table class=\"numbers\" style=\"--columns:{}\"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n",
        table.header.len()
    )
}

/// A text as HTML that breaks between words only, also where a browser would break a word: after a hyphen or a slash.
fn whole_words(text: &str) -> String {
    let word = |word: &str| match word.contains(['-', '/']) {
        true => format!("<span>{}</span>", escape(word)),
        false => escape(word),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn seeds_table(outcomes: &[Outcome]) -> TextTable {
    let have = |quantity: &Quantity| outcomes.iter().any(|outcome| quantity.of(&outcome.last).is_some());
    let quantities: Vec<Quantity> = Quantity::ALL.into_iter().filter(have).collect();
    let mut header = vec!["algorithm".to_owned(), "seed".into()];
    header.extend(quantities.iter().map(|quantity| quantity.symbol()));
    header.extend(["rounds", "seconds"].map(str::to_owned));
    let is_modelled = outcomes.iter().any(|outcome| outcome.last.modelled_s.is_some());
    header.extend(is_modelled.then(|| "modelled s".to_owned()));
    header.push("status".to_owned());
    let row = |outcome: &Outcome| {
        let mut cells = vec![outcome.label.clone(), outcome.seed.to_string()];
        cells
            .extend(quantities.iter().map(|quantity| number(quantity.of(&outcome.last).unwrap_or(f64::NAN))));
        let seconds = number((outcome.last.wall_s * 1e3).round() / 1e3);
        cells.extend([outcome.round.to_string(), seconds]);
        let modelled = || number(outcome.last.modelled_s.unwrap_or(f64::NAN));
        cells.extend(is_modelled.then(modelled));
        cells.push(status_of(&[outcome], 1));
        cells
    };
    TextTable { header, rows: outcomes.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::JobStatus;

    #[test]
    fn the_status_comes_right_after_the_name() {
        let outcomes = [crate::table::tests::outcome("a", 0, JobStatus::Converged, 0.25)];
        for table in [outcomes_table(&outcomes, 1), seeds_table(&outcomes)] {
            let moved = status_first(table.clone());
            assert_eq!((moved.header[1].as_str(), moved.rows[0][1].as_str()), ("status", "converged"));
            assert_eq!(moved.header[2..], table.header[1..table.header.len() - 1]);
        }
    }

    #[test]
    fn cells_have_the_names_of_their_columns_and_whole_words() {
        let text = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let content =
            TextTable { header: text(["name", "<n>"]), rows: vec![text(["local-dsgd, b&b", "1e-9"])] };
        let html = table(&content);
        assert!(html.contains("<td data-name=\"name\"><span>local-dsgd,</span> b&amp;b</td>"), "{html}");
        assert!(html.contains("<td data-name=\"&lt;n&gt;\"><span>1e-9</span></td>"), "{html}");
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_793_000_000), "2026-10-26 07:33 UTC");
    }
}
