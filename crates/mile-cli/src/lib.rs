//! The command `mile`: command-line arguments, and calls to the libraries.
//!
//! It is a library because it is used in several places: the program `mile`, the Python package, which includes the command, and
//! programs with their own objectives ([`CommandLine`]).

mod agent;
mod algorithms;
mod command_line;
mod completions;
mod data;
mod device;
mod dry_run;
mod experiment_files;
mod export;
mod gather;
mod graph;
mod init;
mod invite;
mod join;
mod keygen;
mod keys;
mod log;
mod network;
mod network_view;
mod observers;
mod output;
mod paths;
mod place;
mod plot;
mod predict;
mod program;
mod progress;
mod reading;
mod records;
mod report;
mod reproduce;
mod run;
mod status;
mod swarm;
mod theory;
mod version;
mod watch;

use std::ffi::OsString;

use clap::{Parser, Subcommand, ValueEnum};
use mile::engine::HostError;
use mile_lab::error::LabError;
use mile_net::checkpoint::CheckpointError;
use mile_net::engine::NetworkEngineError;
use mile_net::keys::KeyError;

pub use self::command_line::CommandLine;
pub use self::program::Program;

/// Decentralized optimization and learning with multiple local updates.
///
/// N agents on a graph minimise f = (1/N) sum f_i together, without a server: each agent communicates only
/// with its neighbours, once every tau local steps. Start with `mile run`: it needs no data and no network. For your own
/// data: `mile init --data FILE.csv` writes an experiment file.
#[derive(Parser)]
#[command(name = "mile", version, long_version = version::long(), max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment or a sweep in this process; without a file, a built-in example
    Run(run::RunArguments),
    /// Write a commented experiment file to start from
    ///
    /// The file runs as it is with mile run, and each of its keys has a comment. For your own data: mile init --data
    /// FILE.csv looks at all rows, and chooses the target (the last column), the loss (by the target's
    /// values) and the agents (by a column of names, if there is one).
    Init(init::InitArguments),
    /// Run an experiment on this machine with one process per agent, over the network
    ///
    /// The run directory has the same layout as that of mile run, and final/ is bit-identical; DIR/agents/I holds agent
    /// I's configuration, key, checkpoint, log and pid. An agent that is killed is restarted from its checkpoint. With
    /// --emit, only the agents' folders are written, to be copied to other machines.
    Swarm(swarm::SwarmArguments),
    /// Run one agent of an experiment on this machine
    ///
    /// Agents identify each other by public key and wait for neighbours that are unreachable. A restarted agent resumes
    /// from its last checkpoint, with bit-identical results. It can be stopped at any time with Ctrl-C or SIGTERM.
    Agent(agent::AgentArguments),
    /// Show all keys of experiment files, with their values, defaults, meaning and an example (also: mile help keys)
    Keys(keys::KeysArguments),
    /// Generate an agent's secret key, or print its public key
    Keygen(keygen::KeygenArguments),
    /// Write an invitation with which a new agent joins a run, or accept the key with which it answers
    Invite(invite::InviteArguments),
    /// Open an invitation: make the folder of the new agent, with its key, and the answer
    Join(join::JoinArguments),
    /// Make a run directory from the folders of agents
    ///
    /// The folders may be copied from other machines by any means, even while the agents run; nothing in them is changed.
    Gather(gather::GatherArguments),
    /// Show agents' progress and who waits for whom
    Status(status::StatusArguments),
    /// Show the whole network, as any agent of it sees it
    Watch(watch::WatchArguments),
    /// Reproduce the paper's results
    Reproduce(reproduce::ReproduceArguments),
    /// Show admissible weights and step sizes, convergence rates and stability
    Theory(Box<theory::TheoryArguments>),
    /// List the built-in methods: parameters, vectors sent and stored, references
    Algorithms(algorithms::AlgorithmsArguments),
    /// Show a graph, its mixing matrix and its spectral gap
    Graph(graph::GraphArguments),
    /// List, download and locate image data sets; statistics of tables
    Data(data::DataArguments),
    /// Plot runs and sweeps, as SVG and PNG
    Plot(plot::PlotArguments),
    /// Write an HTML report of runs and sweeps
    Report(report::ReportArguments),
    /// Predict for new data with a trained model
    ///
    /// New data are prepared like those of the training, with its scales, categories and classes. Tables need no target; a row that lacks a
    /// value gets an empty prediction. Neural networks take arrays (.npy, .npz, .safetensors), and images also as .png files.
    Predict(predict::PredictArguments),
    /// Evaluate a trained model on held-out data
    Evaluate(predict::EvaluateArguments),
    /// Export a trained model, ready for a hub: safetensors under PyTorch's names, what the inputs mean, and a model card
    Export(export::ExportArguments),
    /// Log the records of a run to Weights & Biases or MLflow
    ///
    /// Each job, an algorithm with a seed, is a run there. Needs Python with mile-learn and the package of the logger. For TensorBoard, see
    /// mile run --tensorboard.
    Log(log::LogArguments),
    /// Print a completion script for a shell
    ///
    /// For bash: mile completions bash > ~/.local/share/bash-completion/completions/mile. For zsh: into the file _mile in
    /// a folder of $fpath. For fish: mile completions fish > ~/.config/fish/completions/mile.fish.
    Completions(completions::CompletionsArguments),
    /// Print the manual page, or write those of all commands
    ///
    /// For example, mile man ~/.local/share/man/man1, and then man mile-run.
    Man(completions::ManArguments),
}

/// Output format of a command.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable text
    Text,
    /// One JSON document; nothing else is printed on standard output
    Json,
}

/// Exit codes besides 0 for success.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// The model of an agent has diverged; starting it again repeats that.
const DIVERGED: u8 = 3;
const INTERRUPTED: u8 = 130;

impl CommandLine {
    /// Runs the command with these arguments, the first of which is its name; returns its exit code.
    pub fn run(&self, arguments: Vec<OsString>) -> u8 {
        let command = match keys::is_asked_for(&arguments) {
            true => Command::Keys(keys::all()),
            false => match Arguments::try_parse_from(arguments) {
                Ok(arguments) => arguments.command,
                // Help and versions are such errors too, with the code 0.
                Err(error) => {
                    let _ = error.print();
                    return u8::try_from(error.exit_code()).unwrap_or(USAGE);
                }
            },
        };
        match carry_out(command, self) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("mile: {}", error_message(&error));
                exit_code(&error)
            }
        }
    }
}

fn carry_out(command: Command, line: &CommandLine) -> anyhow::Result<u8> {
    match command {
        Command::Run(arguments) => run::run(&arguments, line),
        Command::Init(arguments) => init::run(&arguments),
        Command::Swarm(arguments) => swarm::run(&arguments, line),
        Command::Agent(arguments) => agent::run(&arguments, line),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Invite(arguments) => invite::run(&arguments, line),
        Command::Join(arguments) => join::run(&arguments, line),
        Command::Gather(arguments) => gather::run(&arguments, line),
        Command::Status(arguments) => status::run(&arguments, line),
        Command::Watch(arguments) => watch::run(&arguments, line),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Theory(arguments) => theory::run(&arguments, line),
        Command::Algorithms(arguments) => algorithms::run(&arguments),
        Command::Graph(arguments) => graph::run(&arguments),
        Command::Data(arguments) => data::run(&arguments, line),
        Command::Plot(arguments) => plot::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Predict(arguments) => predict::predict(&arguments),
        Command::Evaluate(arguments) => predict::evaluate(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Log(arguments) => log::run(&arguments, &line.program),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => completions::man(&arguments),
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error {
        _ if error.chain().any(|cause| cause.is::<agent::ModelDiverged>()) => DIVERGED,
        _ if is_usage(error) => USAGE,
        _ => FAILED,
    }
}

/// The message of an error with its causes, and the option that avoids it. A cause that a library error already includes in its own
/// message is not repeated.
fn error_message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_of_device) {
        return format!("--device: {text}; --device cpu computes on the CPU");
    }
    text
}

/// Whether a device cannot be used.
fn is_of_device(error: &LabError) -> bool {
    match error {
        LabError::Agreed(error) => is_of_device(error),
        _ => matches!(error, LabError::Host(HostError::Device(_))),
    }
}

/// Whether the error is in the user's input (exit code 2), rather than a failure while running (exit code 1).
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
            || match cause.downcast_ref() {
                Some(NetworkEngineError::Settings(_)) => true,
                Some(NetworkEngineError::Checkpoint(error)) => checkpoint(error),
                _ => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let lost = || std::io::Error::other("lost");
        let within = LabError::Io { path: "a".into(), action: "read", source: lost() };
        assert_eq!(error_message(&within.into()), "a: cannot read: lost");
        let beside = Err::<(), _>(lost()).context("cannot start").unwrap_err();
        assert_eq!(error_message(&beside), "cannot start: lost");
        let device = LabError::from(HostError::Device("lost".into()));
        assert_eq!(error_message(&device.into()), "--device: lost; --device cpu computes on the CPU");
    }
}
