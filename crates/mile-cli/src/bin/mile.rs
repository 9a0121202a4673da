//! The command `mile` as a program of its own.

use std::process::ExitCode;

use mile_cli::CommandLine;

fn main() -> ExitCode {
    CommandLine::default().main()
}
