//! The example `robots` is a program with all commands: its swarm ends with the bits of its run, and its parameters are swept.
//!
//! This test is that program: started with arguments, it is the command.

use std::path::Path;
use std::process::{Command, ExitCode};

#[path = "../examples/robots.rs"]
#[expect(dead_code, reason = "its main is this program's")]
mod robots;

fn main() -> ExitCode {
    if let Some("run" | "swarm" | "agent" | "gather" | "sweep") = std::env::args().nth(1).as_deref() {
        return robots::command_line().main();
    }
    let folder = tempfile::tempdir().unwrap();
    let experiment = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/robots.toml");
    let state =
        |name: &str| std::fs::read(folder.path().join(name).join("final/mile-seed0.safetensors")).unwrap();

    command(folder.path(), &["run", experiment, "--out", "run"]);
    command(folder.path(), &["swarm", experiment, "--out", "swarm"]);
    assert!(state("run") == state("swarm"), "other bits in the swarm");
    command(folder.path(), &["gather", "swarm", "--out", "gathered"]);
    assert!(state("run") == state("gathered"), "other bits after gathering");
    command(folder.path(), &["run", experiment, "--out", "more", "--set", "problem.measurements=9"]);
    assert!(state("run") != state("more"), "the parameter has no effect");
    println!("robots: the program has all commands");
    ExitCode::SUCCESS
}

fn command(folder: &Path, arguments: &[&str]) {
    let program = std::env::current_exe().unwrap();
    let done = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}
