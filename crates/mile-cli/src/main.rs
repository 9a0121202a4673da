//! The command `mile`: arguments, and glue to the libraries.

mod agent;
mod algorithms;
mod data;
mod graph;
mod keygen;
mod network;
mod output;
mod plot;
mod progress;
mod report;
mod reproduce;
mod run;
mod status;
mod swarm;
mod theory;
mod watch;

use clap::{Parser, Subcommand, ValueEnum};
use mile_lab::error::LabError;
use mile_net::checkpoint::CheckpointError;
use mile_net::engine::EngineError;
use mile_net::keys::KeyError;

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
    /// Run an experiment as one process for each agent, over a real network, on this machine
    ///
    /// The run directory has the layout of mile run, and final/ the same bits; DIR/agents/I holds agent I's file, key,
    /// checkpoint, log and pid. An agent that is killed is started again from its checkpoint. With --emit, only the
    /// agents' folders are written, for machines of their own.
    Swarm(swarm::SwarmArguments),
    /// Run one agent of an experiment, on a machine of its own
    ///
    /// Agents find each other by public key and address, wait for neighbours that are away, and go on from their last
    /// checkpoint when they are started again, to the same bits. Ctrl-C or SIGTERM at any moment is safe.
    Agent(agent::AgentArguments),
    /// Make a key: who an agent is
    Keygen(keygen::KeygenArguments),
    /// Show how agents get on, and who waits for whom
    Status(status::StatusArguments),
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
        Command::Swarm(arguments) => swarm::run(&arguments),
        Command::Agent(arguments) => agent::run(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
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
            eprintln!("mile: {}", said(&error));
            if is_usage(&error) { USAGE.into() } else { FAILED.into() }
        }
    }
}

/// An error and its causes. Those of the libraries say their cause themselves, for who prints nothing else:
/// it is not said again.
fn said(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Whether it is in what the user gave, rather than in what happened while running.
fn is_usage(error: &anyhow::Error) -> bool {
    let checkpoint = |error: &CheckpointError| {
        matches!(
            error,
            CheckpointError::Foreign { .. } | CheckpointError::Damaged { .. } | CheckpointError::InUse(_)
        )
    };
    error.chain().any(|cause| {
        cause.downcast_ref::<LabError>().is_some_and(LabError::is_usage)
            || cause.is::<KeyError>()
            || cause.downcast_ref::<CheckpointError>().is_some_and(checkpoint)
            || matches!(cause.downcast_ref(), Some(EngineError::Settings(_)))
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let lost = || std::io::Error::other("lost");
        let within = LabError::Io { path: "a".into(), action: "read", source: lost() };
        assert_eq!(said(&within.into()), "a: cannot read: lost");
        let beside = Err::<(), _>(lost()).context("cannot start").unwrap_err();
        assert_eq!(said(&beside), "cannot start: lost");
    }
}
