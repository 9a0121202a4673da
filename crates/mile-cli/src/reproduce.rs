//! `mile reproduce`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use mile::theory::demonstration::{Case, demonstration};
use mile_lab::table::TextTable;

use crate::{Format, output};

/// Results of the paper, made again.
#[derive(Args)]
pub(crate) struct ReproduceArguments {
    #[command(subcommand)]
    item: Item,
}

#[derive(Subcommand)]
enum Item {
    /// Both sides of Theorems 1 to 4 on actual runs, as printed and as corrected
    Theorems(TheoremsArguments),
}

#[derive(Args)]
struct TheoremsArguments {
    /// How long the runs are
    #[arg(long, value_enum, default_value = "quick")]
    scale: Scale,
    /// Write theorems.txt, theorems.tex and theorems.json there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// 200 rounds, 5 seeds: seconds
    Quick,
    /// 2000 rounds, 20 seeds: minutes
    Paper,
}

pub(crate) fn run(arguments: &ReproduceArguments) -> anyhow::Result<u8> {
    match &arguments.item {
        Item::Theorems(arguments) => theorems(arguments),
    }
}

fn theorems(arguments: &TheoremsArguments) -> anyhow::Result<u8> {
    let cases = match arguments.scale {
        Scale::Quick => demonstration(200, 5)?,
        Scale::Paper => demonstration(2000, 20)?,
    };
    let (table, json) = (table(&cases), serde_json::to_string_pretty(&cases)? + "\n");
    let text = format!("{table}\n{}", explanation(&cases));
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)?;
        let write = |name: &str, text: &str| mile_lab::store::write_file(&folder.join(name), text.as_bytes());
        write("theorems.txt", &text)?;
        write("theorems.tex", &table.to_latex())?;
        write("theorems.json", &json)?;
    }
    output::print(if arguments.format == Format::Json { &json } else { &text })?;
    Ok(0)
}

fn table(cases: &[Case]) -> TextTable {
    let header = [
        "theorem",
        "tau",
        "xi",
        "start",
        "left side",
        "+-",
        "as printed",
        "left/printed",
        "holds",
        "as corrected",
        "holds",
    ];
    let word = |holds: bool| if holds { "yes" } else { "NO" }.to_owned();
    let row = |case: &Case| {
        let row = &case.row;
        vec![
            row.theorem.to_string(),
            row.tau.to_string(),
            format!("{:.2}", row.xi),
            case.start.to_owned(),
            format!("{:.3e}", row.left),
            if row.left_error > 0.0 { format!("{:.0e}", row.left_error) } else { "-".into() },
            format!("{:.3e}", row.printed),
            format!("{:.3}", row.factor()),
            word(row.printed_holds),
            format!("{:.3e}", row.corrected),
            word(row.corrected_holds),
        ]
    };
    TextTable { header: header.map(str::to_owned).to_vec(), rows: cases.iter().map(row).collect() }
}

fn explanation(cases: &[Case]) -> String {
    let failed = cases.iter().filter(|case| !case.row.printed_holds).count();
    let mended = cases.iter().filter(|case| case.row.corrected_holds).count();
    format!(
        "Theorems 1 and 3 bound the gradient at the average, 2 and 4 the disagreement; 3 and 4 with stochastic\n\
         gradients, means over seeds with 95 % confidence. {failed} of {} inequalities fail as printed, all of\n\
         Theorems 2 and 4 and from agents that start apart; as corrected (docs/theory.md) {mended} hold.\n",
        cases.len()
    )
}
