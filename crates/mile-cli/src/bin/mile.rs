//! The command `mile` as a program of its own.

use std::process::ExitCode;

use mile_cli::Program;

fn main() -> ExitCode {
    mile_cli::run(&Program::this(), std::env::args_os().collect()).into()
}
