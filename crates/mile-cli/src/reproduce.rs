//! `mile reproduce`: the paper's tables, figures and theorems.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use mile_lab::engines::InProcess;
use mile_lab::error::LabError;
use mile_reproduce::{Finding, Request};

use crate::device::DeviceArguments;
use crate::progress::Progress;
use crate::run::{STOP_MESSAGE, stop_on_interrupt};
use crate::{INTERRUPTED, output};

/// The paper's results.
#[derive(Args)]
pub(crate) struct ReproduceArguments {
    /// Result to reproduce
    #[arg(value_enum)]
    item: Item,
    /// Size of the experiments
    #[arg(long, value_enum, default_value = "quick")]
    scale: Scale,
    /// Data set of fig1 or fig2: mnist or cifar10 [default: all that the scale has]
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Output folder; results that are already there are kept, and an interrupted run is resumed [default:
    /// runs/reproduce-SCALE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a value of the experiment files of table1, fig1 or fig2, e.g. problem.dataset=glyphs; noted on the
    /// figures. It also applies to the step size search of fig2, except for seeds; may be given several times
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    device: DeviceArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Item {
    /// Vectors sent and stored by each method, measured, and a convergence check on a nonconvex problem
    Table1,
    /// All methods with the paper's step size, on MNIST and CIFAR-10
    Fig1,
    /// All methods, each with the best step size of a search
    Fig2,
    /// Both sides of the inequalities of Theorems 1 to 4 on actual runs, as printed and as corrected
    Theorems,
    /// Which method needs the fewest rounds, bytes and gradients, by heterogeneity, local steps and gradient noise (ours, not
    /// the paper's)
    When,
    /// All of the above
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// Fewer rounds and one seed: at most ten minutes per item on two cores
    Quick,
    /// The full experiments, which take hours; can be interrupted and resumed with the same command
    Paper,
}

type Reproduce = fn(&Request) -> Result<Finding, LabError>;

pub(crate) fn run(arguments: &ReproduceArguments) -> anyhow::Result<u8> {
    let scale = match arguments.scale {
        Scale::Quick => mile_reproduce::Scale::Quick,
        Scale::Paper => mile_reproduce::Scale::Paper,
    };
    let out = arguments.out.clone().unwrap_or_else(|| format!("runs/reproduce-{}", scale.name()).into());
    let items: [(Item, &str, Reproduce); 5] = [
        (Item::Table1, "table1", mile_reproduce::table1),
        (Item::Theorems, "theorems", mile_reproduce::theorems),
        (Item::Fig1, "fig1", mile_reproduce::fig1),
        (Item::Fig2, "fig2", mile_reproduce::fig2),
        (Item::When, "when", mile_reproduce::when),
    ];
    let figures = [Item::Fig1, Item::Fig2, Item::All].contains(&arguments.item);
    if arguments.dataset.is_some() && !figures {
        return Err(LabError::config("--dataset", "applies only to fig1, fig2 and all; leave it out").into());
    }
    if !arguments.set.is_empty() && [Item::Theorems, Item::When, Item::All].contains(&arguments.item) {
        return Err(LabError::config(
            "--set",
            "applies only to table1, fig1 and fig2; leave it out, or reproduce one of these",
        )
        .into());
    }
    if arguments.item == Item::All {
        mile_reproduce::check_dataset(scale, arguments.dataset.as_deref())?;
    }
    let (engines, device) = arguments.device.engines(Arc::new(InProcess))?;
    eprint!("{device}");
    let stop = stop_on_interrupt(Some(STOP_MESSAGE))?;
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
            engines: &engines,
            observers: &|point, plan| {
                point.into_iter().for_each(|(_, point)| eprintln!("{name}: {}", point.name));
                Box::new(Progress::new(plan))
            },
            say: &|text| eprintln!("{text}"),
            stop: &stop,
        })?;
        output::print(&format!("{}\n{}\n\n", finding.text, finding.folder.display()))?;
        if finding.stopped {
            eprintln!("stopped; run the same command again to resume");
            return Ok(INTERRUPTED);
        }
    }
    Ok(0)
}
