//! The command `mile` as a program.

use std::process::ExitCode;

use mile_cli::CommandLine;

fn main() -> ExitCode {
    CommandLine::default().main()
}
