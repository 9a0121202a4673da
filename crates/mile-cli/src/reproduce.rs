//! `mile reproduce`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mile_lab::error::LabError;
use mile_paper::{Finding, Request};

use crate::progress::Progress;
use crate::run::{AFTER_THIS_ROUND, stop_on_interrupt};
use crate::watch::Shown;
use crate::{INTERRUPTED, output};

/// The paper's results.
#[derive(Args)]
pub(crate) struct ReproduceArguments {
    /// Which result
    #[arg(value_enum)]
    item: Item,
    /// How much of it
    #[arg(long, value_enum, default_value = "quick")]
    scale: Scale,
    /// Only this data set of a figure: mnist or cifar10
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Where to; what is finished there is kept [default: runs/reproduce-SCALE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a value of the plan of table1, fig1 or fig2, e.g. problem.dataset=glyphs; said on the figures.
    /// It holds for the search of fig2 too, but for its seeds
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Item {
    /// Vectors sent and stored by every method, measured, and a check on a nonconvex problem
    Table1,
    /// Every method with the paper's step size, on MNIST and CIFAR-10
    Fig1,
    /// Every method with the best step size found for it
    Fig2,
    /// Both sides of Theorems 1 to 4 on actual runs, as printed and as corrected
    Theorems,
    /// All of these
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// Within ten minutes on two cores for each item: fewer rounds, one seed
    Quick,
    /// The full thing; can be interrupted and called again
    Paper,
}

type Reproduce = fn(&Request) -> Result<Finding, LabError>;

pub(crate) fn run(arguments: &ReproduceArguments) -> anyhow::Result<u8> {
    let scale = match arguments.scale {
        Scale::Quick => mile_paper::Scale::Quick,
        Scale::Paper => mile_paper::Scale::Paper,
    };
    let out = arguments.out.clone().unwrap_or_else(|| format!("runs/reproduce-{}", scale.name()).into());
    let items: [(Item, &str, Reproduce); 4] = [
        (Item::Table1, "table1", mile_paper::table1),
        (Item::Theorems, "theorems", mile_paper::theorems),
        (Item::Fig1, "fig1", mile_paper::fig1),
        (Item::Fig2, "fig2", mile_paper::fig2),
    ];
    let figures = [Item::Fig1, Item::Fig2, Item::All].contains(&arguments.item);
    if arguments.dataset.is_some() && !figures {
        return Err(LabError::config("--dataset", "only the figures have data sets to choose from").into());
    }
    if !arguments.set.is_empty() && [Item::Theorems, Item::All].contains(&arguments.item) {
        return Err(LabError::config("--set", "takes one item at a time: table1, fig1 or fig2").into());
    }
    if arguments.item == Item::All {
        mile_paper::check_dataset(scale, arguments.dataset.as_deref())?;
    }
    let stop = stop_on_interrupt(AFTER_THIS_ROUND)?;
    for (item, name, reproduce) in items {
        if arguments.item != item && arguments.item != Item::All {
            continue;
        }
        let folder = out.join(name);
        let finding = reproduce(&Request {
            scale,
            dataset: arguments.dataset.as_deref(),
            out: &folder,
            set: &arguments.set,
            watch: &|_, point, plan| {
                eprintln!("{name}: {}", point.name);
                Box::new(Shown(Progress::new(plan)))
            },
            stop: &stop,
        })?;
        output::print(&format!("{}\n{}\n\n", finding.text, finding.folder.display()))?;
        if finding.stopped {
            eprintln!("stopped; the same command goes on");
            return Ok(INTERRUPTED);
        }
    }
    Ok(0)
}
