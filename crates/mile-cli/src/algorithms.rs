//! `mile algorithms`: the built-in methods.

use std::fmt::Write;

use clap::Args;
use mile::graph::Topology;
use mile::methods::catalogue::{self, Entry, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile_lab::plan::first_round_costs;
use mile_lab::table::TextTable;
use serde_json::{Value, json};

use crate::{Format, output};

/// The built-in methods, with their measured costs.
#[derive(Args)]
pub(crate) struct AlgorithmsArguments {
    /// Methods to show in full, e.g. mile k-gt [default: a table of all methods]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Costs of one round, measured by running one.
struct MeasuredCosts {
    sent: u64,
    exchanges: u64,
    stored: usize,
}

fn measure(entry: &Entry) -> anyhow::Result<MeasuredCosts> {
    let complete = entry.has_server();
    let (topology, rule) = if complete {
        (Topology::Complete, Rule::Metropolis)
    } else {
        (Topology::Ring, Rule::LazyMetropolis)
    };
    let network = Network::new(topology.build(6, 0)?, rule)?;
    let method = entry.build(&Parameters::default(), &network, 0)?;
    let costs = first_round_costs(&*method, &network)?;
    Ok(MeasuredCosts {
        sent: costs.vectors_sent,
        exchanges: costs.exchanges,
        stored: method.layout().state.len(),
    })
}

pub(crate) fn run(arguments: &AlgorithmsArguments) -> anyhow::Result<u8> {
    let mut entries: Vec<&Entry> = Vec::new();
    for name in &arguments.names {
        match catalogue::find(name) {
            Some(entry) => entries.push(entry),
            None => {
                eprintln!("mile: {}", unknown(name));
                return Ok(crate::USAGE);
            }
        }
    }
    let detailed = !entries.is_empty();
    if entries.is_empty() {
        entries = catalogue::ALL.iter().collect();
    }
    let text = match arguments.format {
        Format::Json => json(&entries)?,
        Format::Text if detailed => details(&entries)?,
        Format::Text => list(&entries)?,
    };
    output::print(&text)?;
    Ok(0)
}

fn unknown(name: &str) -> String {
    if let Some(absent) = catalogue::UNAVAILABLE.iter().find(|absent| absent.name == name) {
        return format!("{name} is not available: {}", absent.reason);
    }
    let names: Vec<&str> = catalogue::ALL.iter().map(|entry| &*entry.name).collect();
    let hint = mile_lab::section::nearest(name, &names).map(|near| format!("; did you mean \"{near}\"?"));
    let hint = hint.unwrap_or_else(|| "; mile algorithms lists all methods".into());
    format!("unknown method \"{name}\"{hint}")
}

fn list(entries: &[&Entry]) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for entry in entries {
        let measured = measure(entry)?;
        let parameters: Vec<&str> = entry.parameters.iter().map(|parameter| parameter.name).collect();
        rows.push(vec![
            entry.name.to_string(),
            measured.sent.to_string(),
            measured.exchanges.to_string(),
            measured.stored.to_string(),
            if entry.exact { "yes" } else { "no" }.to_owned(),
            format!("  {}", if parameters.is_empty() { "-".into() } else { parameters.join(", ") }),
        ]);
    }
    let header = ["method", "sent", "exchanges", "stored", "exact", "  parameters besides step_size"];
    let table = TextTable { header: header.map(str::to_owned).to_vec(), rows };
    let mut text = left_align_last(&table);
    let _ = writeln!(
        text,
        "\nsent: vectors sent to each neighbour per round; exchanges: message exchanges per round; stored: vectors\n\
         kept between updates, not counting gradients and messages. All three are measured by running one\n\
         round. exact: with a constant step size, every agent converges to a stationary point of f.\n\
         mile algorithms NAME shows one method in full."
    );
    for absent in catalogue::UNAVAILABLE {
        let _ = writeln!(text, "\nnot available: {} ({})", absent.name, absent.reason);
    }
    Ok(text)
}

/// The table with its last column, which is text, left-aligned.
fn left_align_last(table: &TextTable) -> String {
    let mut table = table.clone();
    let last = table.header.len() - 1;
    let width =
        table.rows.iter().map(|row| row[last].len()).chain([table.header[last].len()]).max().unwrap_or(0);
    let pad = |cell: &mut String| *cell = format!("{cell:<width$}");
    table.rows.iter_mut().for_each(|row| pad(&mut row[last]));
    pad(&mut table.header[last]);
    table.to_string()
}

fn details(entries: &[&Entry]) -> anyhow::Result<String> {
    let mut text = String::new();
    for entry in entries {
        let measured = measure(entry)?;
        let _ = writeln!(text, "{} ({})\n  reference   {}", entry.title, entry.name, entry.reference);
        if !entry.note.is_empty() {
            let _ = writeln!(text, "  note        {}", entry.note);
        }
        let _ = writeln!(
            text,
            "  exact       {}\n  sent        {} vectors to each neighbour per round, in {} exchange{}\n  stored      {} vectors",
            if entry.exact { "yes" } else { "no: converges to a biased point when the f_i differ" },
            measured.sent,
            measured.exchanges,
            if measured.exchanges == 1 { "" } else { "s" },
            measured.stored
        );
        for parameter in entry.parameters {
            let _ = writeln!(
                text,
                "  {:<11} {} (default {})",
                parameter.name, parameter.expected, parameter.default
            );
        }
        text.push('\n');
    }
    Ok(text)
}

fn json(entries: &[&Entry]) -> anyhow::Result<String> {
    let mut list = Vec::new();
    for entry in entries {
        let measured = measure(entry)?;
        let parameters: Vec<Value> = entry
            .parameters
            .iter()
            .map(|p| json!({ "name": p.name, "expected": p.expected, "default": p.default }))
            .collect();
        list.push(json!({
            "name": entry.name, "title": entry.title, "reference": entry.reference, "note": entry.note,
            "exact": entry.exact, "vectors_sent": measured.sent, "exchanges": measured.exchanges,
            "vectors_stored": measured.stored, "parameters": parameters,
        }));
    }
    let absent: Vec<Value> =
        catalogue::UNAVAILABLE.iter().map(|a| json!({ "name": a.name, "reason": a.reason })).collect();
    Ok(serde_json::to_string_pretty(&json!({ "algorithms": list, "unavailable": absent }))? + "\n")
}
