//! Tests of the command line, in one binary.

mod commands; // exit codes, messages, machine-readable output
mod init; // every file that `mile init` writes runs as it is
mod promises; // what a dry run promises
mod theory; // `mile theory`, `mile reproduce theorems`, and advice before a run
