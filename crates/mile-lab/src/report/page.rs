//! One page that holds everything and needs nothing: no network, no other file.

use std::fmt::Write;

use super::folder::RunFolder;
use super::words;
use crate::plot::style::{COLOURS, DARK_COLOURS, escape};
use crate::plot::{Axis, Figure, Quantity};
use crate::store::{Outcome, Status};
use crate::table::{TextTable, number, outcomes_table};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A whole page about some runs.
pub fn page(folders: &[RunFolder]) -> String {
    let title = match folders {
        [only] => only.experiment.name.clone(),
        several => format!("{} runs", several.len()),
    };
    let body: String = folders.iter().enumerate().map(|(k, folder)| section(folder, k)).collect();
    frame(&title, &body, false)
}

/// The page that a server fills and keeps up to date.
pub(crate) fn live_page(title: &str, body: &str) -> String {
    frame(title, body, true)
}

fn frame(title: &str, body: &str, live: bool) -> String {
    let mut colours = String::new();
    for (name, list) in [("light", COLOURS), ("dark", DARK_COLOURS)] {
        for (k, colour) in list.iter().enumerate() {
            let _ = write!(colours, "--{name}-c{k}:{colour};");
        }
    }
    let mut classes = String::new();
    for k in 0..COLOURS.len() {
        let _ = write!(classes, ".line.c{k}{{stroke:var(--c{k})}}.dot.c{k},.band.c{k}{{fill:var(--c{k})}}");
    }
    let pick = |theme: &str| -> String {
        (0..COLOURS.len()).map(|k| format!("--c{k}:var(--{theme}-c{k});")).collect()
    };
    let (light, dark) = (pick("light"), pick("dark"));
    let style = STYLE.replace("/*light*/", &light).replace("/*dark*/", &dark);
    let connect = if live { "'self'" } else { "'none'" };
    let axes: String = Axis::ALL
        .iter()
        .map(|axis| {
            format!("<button type=\"button\" data-axis=\"{}\">{}</button>", axis.name(), axis.short())
        })
        .collect();
    let status = if live { "<span id=\"live\" role=\"status\">live</span>" } else { "" };
    format!(
        "<!doctype html>\n<html lang=\"en\" data-axis=\"round\"{}>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:; connect-src {connect}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n:root{{{colours}}}\n{style}{classes}</style>\n</head>\n<body>\n\
         <nav><b>mile</b>{status}<span class=\"axes\" role=\"group\" aria-label=\"horizontal axis of the figures\">against {axes}</span>\
         <button type=\"button\" id=\"theme\" title=\"light or dark\" aria-label=\"light or dark\">\u{25d0}</button></nav>\n\
         <main id=\"main\">\n{body}</main>\n<div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        if live { " data-live" } else { "" },
        title = escape(title),
    )
}

/// All about one run.
pub(crate) fn section(folder: &RunFolder, index: usize) -> String {
    let mut html = format!("<section class=\"run\">\n<h1>{}</h1>\n", escape(&folder.experiment.name));
    let _ = writeln!(html, "<p class=\"sub\">{}</p>", escape(&subtitle(folder)));
    html.push_str("<ul class=\"summary\">\n");
    for sentence in words::summary(folder) {
        let _ = writeln!(html, "<li>{}</li>", escape(&sentence));
    }
    html.push_str("</ul>\n");
    if !folder.outcomes.is_empty() {
        let _ = write!(
            html,
            "<h2>Results</h2>\n<p class=\"hint\">At the last record, mean over seeds.</p>\n{}",
            table(&outcomes_table(&folder.outcomes))
        );
        let _ = writeln!(
            html,
            "<details><summary>Every seed</summary>{}</details>",
            table(&seeds_table(&folder.outcomes))
        );
    }
    html.push_str(&figures(folder, index));
    html.push_str(&network(folder));
    html.push_str(&labels(folder));
    html.push_str(&provenance(folder));
    html.push_str("</section>\n");
    html
}

fn subtitle(folder: &RunFolder) -> String {
    let mut parts = vec![words::problem_name(folder), words::network_name(folder)];
    if let Some(context) = &folder.context {
        parts.push(date(context.started));
    }
    parts.join(" \u{00b7} ")
}

/// Seconds since 1970 as a day and a time, in UTC.
pub(crate) fn date(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    // Civil date from days, in eras of 400 years that begin in March.
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

fn figures(folder: &RunFolder, index: usize) -> String {
    let runs = folder.runs();
    let mut html = String::from(
        "<h2>Figures</h2>\n<p class=\"hint\">Point at a figure for values; click a name in its legend to hide or show it.</p>\n<div class=\"figures\">\n",
    );
    for quantity in Quantity::ALL.into_iter().filter(|quantity| runs.have(*quantity)) {
        html.push_str("<figure>");
        for axis in Axis::ALL {
            let mut figure = Figure::single(&runs, quantity, axis);
            figure.name = format!("{index}-{}", figure.name);
            let _ = write!(
                html,
                "<div class=\"chart\" data-axis=\"{}\">{}</div>",
                axis.name(),
                figure.interactive_svg()
            );
        }
        html.push_str("</figure>\n");
    }
    html + "</div>\n"
}

fn network(folder: &RunFolder) -> String {
    let (network, graph) = (&folder.network, folder.network.graph());
    let n = network.agents();
    let svg = crate::plot::graph_svg(network, folder.experiment.network.topology());
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
        add("exchanges that halve a disagreement", (0.5f64.ln() / left.ln()).max(0.0));
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
    format!("<h2>Labels of each agent</h2>\n<div class=\"figures\">\n{figures}</div>\n")
}

fn provenance(folder: &RunFolder) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    match &folder.context {
        Some(context) => {
            let machine = &context.machine;
            rows.push(("mile", context.version.clone()));
            rows.push(("begun", date(context.started)));
            rows.push(("machine", format!("{}, {}", machine.processor, machine.system)));
            rows.push(("threads", machine.threads.to_string()));
            if let Some(memory) = machine.memory {
                rows.push(("memory", format!("{:.1} GiB", memory as f64 / (1u64 << 30) as f64)));
            }
            rows.push(("dimension of the variable", context.dim.to_string()));
        }
        None => rows.push(("machine", "not recorded".into())),
    }
    rows.push(("folder", folder.path.display().to_string()));
    let list: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>", escape(value)))
        .collect();
    format!(
        "<h2>How it was made</h2>\n<div class=\"scroll\"><table class=\"facts\">{list}</table></div>\n\
         <details><summary>The resolved experiment: enough to run it again</summary><pre>{}</pre></details>\n",
        escape(&folder.experiment.resolved.to_string())
    )
}

/// A table as HTML, in a box that scrolls on its own.
pub(crate) fn table(table: &TextTable) -> String {
    let cells = |row: &[String], tag: &str| -> String {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let rows: String = table.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row, "td"))).collect();
    format!(
        "<div class=\"scroll\"><table class=\"numbers\"><thead><tr>{}</tr></thead><tbody>\n{rows}</tbody></table></div>\n",
        cells(&table.header, "th")
    )
}

fn seeds_table(outcomes: &[Outcome]) -> TextTable {
    let have = |quantity: &Quantity| outcomes.iter().any(|outcome| quantity.of(&outcome.last).is_some());
    let quantities: Vec<Quantity> = Quantity::ALL.into_iter().filter(have).collect();
    let mut header = vec!["algorithm".to_owned(), "seed".into()];
    header.extend(quantities.iter().map(|quantity| quantity.name().replace('_', " ")));
    header.extend(["rounds", "seconds", "status"].map(str::to_owned));
    let row = |outcome: &Outcome| {
        let mut cells = vec![outcome.label.clone(), outcome.seed.to_string()];
        cells
            .extend(quantities.iter().map(|quantity| number(quantity.of(&outcome.last).unwrap_or(f64::NAN))));
        let status = match outcome.status {
            Status::Done => "done",
            Status::Diverged => "diverged",
            Status::Stopped => "stopped",
        };
        cells.extend([
            outcome.round.to_string(),
            number((outcome.last.wall_s * 1e3).round() / 1e3),
            status.to_owned(),
        ]);
        cells
    };
    TextTable { header, rows: outcomes.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_793_000_000), "2026-10-26 07:33 UTC");
    }
}
