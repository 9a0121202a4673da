//! Tests of the command line, in one binary.

mod built_in; // the experiment that is run without a file
mod commands; // exit codes, messages, machine-readable output
mod init; // every file that `mile init` writes runs as it is
mod init_arrays; // the same for files of arrays
mod predict; // trained models on new data
mod promises; // what a dry run promises
mod theory; // `mile theory`, `mile reproduce theorems`, and advice before a run
