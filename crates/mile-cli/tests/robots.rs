//! The example `robots` is a program with all commands: its runs are resumed, its swarm and its agents end with the bits of its run, and its
//! parameters are swept.
//!
//! This test is that program: started with arguments, it is the command.

use std::net::UdpSocket;
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
    command(folder.path(), &["run", experiment, "--out", "parts", "--set", "rounds=70"]);
    command(folder.path(), &["run", experiment, "--out", "parts", "--resume"]);
    assert!(state("run") == state("parts"), "other bits after resuming");

    let sockets = [(); 6].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let hosts = sockets.iter().enumerate().map(|(k, one)| format!("{k}={}\n", one.local_addr().unwrap()));
    std::fs::write(folder.path().join("hosts"), hosts.collect::<String>()).unwrap();
    drop(sockets);
    command(folder.path(), &["swarm", experiment, "--emit", "deploy", "--hosts", "hosts"]);
    std::thread::scope(|scope| {
        let folder = folder.path();
        (0..6).for_each(|k| {
            drop(scope.spawn(move || command(folder, &["agent", &format!("deploy/agents/{k}/agent.toml")])))
        });
    });
    command(folder.path(), &["gather", "deploy", "--out", "field"]);
    assert!(state("run") == state("field"), "other bits from agents in their own folders");

    command(folder.path(), &["run", experiment, "--out", "more", "--set", "problem.measurements=9"]);
    assert!(state("run") != state("more"), "the parameter has no effect");
    let text = std::fs::read_to_string(experiment).unwrap();
    let sweep = "[sweep]\ncriterion = \"grad_norm_sq\"\n\"problem.measurements\" = [4, 9]\n";
    std::fs::write(folder.path().join("sweep.toml"), format!("{text}\n{sweep}")).unwrap();
    command(folder.path(), &["run", "sweep.toml", "--out", "swept"]);
    let points = std::fs::read_dir(folder.path().join("swept/points")).unwrap();
    let names = points.map(|point| format!("swept/points/{}", point.unwrap().file_name().display()));
    let mut found: Vec<Vec<u8>> = names.map(|name| state(&name)).collect();
    found.sort();
    let mut expected = vec![state("run"), state("more")];
    expected.sort();
    assert!(found == expected, "other bits in the sweep");
    println!("robots: the program has all commands");
    ExitCode::SUCCESS
}

fn command(folder: &Path, arguments: &[&str]) {
    let program = std::env::current_exe().unwrap();
    let done = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}
