//! The command `mile`: arguments, and glue to the libraries.

mod algorithms;
mod data;
mod graph;
mod network;
mod output;
mod plot;
mod progress;
mod report;
mod reproduce;
mod run;
mod theory;
mod watch;

use clap::{Parser, Subcommand, ValueEnum};

/// Decentralized optimization and learning with multiple local updates.
///
/// N agents on a graph minimise f = (1/N) sum f_i together, with no server, talking only to
/// neighbours and only every tau steps. Start with `mile run`: it needs no data and no network.
#[derive(Parser)]
#[command(name = "mile", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment in this process; without a file, an embedded one
    Run(run::RunArguments),
    /// Make results of the paper again
    Reproduce(reproduce::ReproduceArguments),
    /// Show which weights and step sizes are admissible, and how fast agents agree
    Theory(theory::TheoryArguments),
    /// List the built-in methods: parameters, vectors sent and stored, reference
    Algorithms(algorithms::AlgorithmsArguments),
    /// Show a graph, its mixing matrix, and how fast it mixes
    Graph(graph::GraphArguments),
    /// List, fetch and find image data sets
    Data(data::DataArguments),
    /// Draw the figures of runs, as SVG and PNG
    Plot(plot::PlotArguments),
    /// Write one self-contained HTML page about runs
    Report(report::ReportArguments),
}

/// How a command prints what it found.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: one JSON document, alone on standard output
    Json,
}

/// Exit codes: what the caller can tell from them.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const INTERRUPTED: u8 = 130;

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Theory(arguments) => theory::run(&arguments),
        Command::Algorithms(arguments) => algorithms::run(&arguments),
        Command::Graph(arguments) => graph::run(&arguments),
        Command::Data(arguments) => data::run(&arguments),
        Command::Plot(arguments) => plot::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
    };
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("mile: {error:#}");
            let usage = error.downcast_ref::<mile_lab::error::LabError>().is_some_and(|e| e.is_usage());
            if usage { USAGE.into() } else { FAILED.into() }
        }
    }
}
