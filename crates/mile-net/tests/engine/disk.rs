//! A disk that fails ends the agent with an error that says so.

use std::process::Command;

use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::{StartFrom, work};
use mile_net::checkpoint::CheckpointError;
use mile_net::engine::NetworkEngineError;

use crate::lab::{Lab, cause};

/// The error that an agent ended with, if it concerns its folder: an engine's, or the agent's own.
fn disk_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e CheckpointError> {
    error.downcast_ref().or_else(|| {
        cause(error, |engine| match engine {
            NetworkEngineError::Checkpoint(error) => Some(error),
            _ => None,
        })
    })
}

#[test]
fn a_folder_that_cannot_be_is_an_error_at_the_start() {
    let lab = Lab::new(Topology::Path, 2, 10);
    std::fs::write(lab.folder(0), "a file where the folder should be").unwrap();
    let error = lab.open(0).unwrap_err();
    assert!(matches!(error, CheckpointError::Disk { .. }), "{error}");
}

#[test]
fn two_agents_cannot_share_a_folder_and_leftovers_of_a_crash_are_removed() {
    let lab = Lab::new(Topology::Path, 2, 10);
    std::fs::create_dir_all(lab.folder(0)).unwrap();
    let leftover = lab.folder(0).join(".checkpoint.safetensors.A1b2C3");
    std::fs::write(&leftover, "half a checkpoint").unwrap();
    let (engine, _) = lab.start(0, lab.settings(0));
    assert!(!leftover.exists());
    let error = lab.open(0).unwrap_err();
    assert!(matches!(error, CheckpointError::InUse(_)), "{error}");
    drop(engine);
    lab.start(0, lab.settings(0));
}

#[test]
fn a_disk_that_fails_stops_the_agent_and_leaves_the_last_checkpoint() {
    let lab = Lab::new(Topology::Path, 2, 10);
    let method = Mile::new(2, 0.2).unwrap();
    let states = std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.agent(1, &method, 9).0);
        let (mut engine, from) = lab.start(0, lab.settings(0));
        let state = work(&lab.job(0, &method, 4), from, &mut engine).unwrap();
        assert_eq!(state.progress.round, 4);
        // Not a read-only folder: for root there is no such thing.
        let unplugged = lab.folder(0).with_extension("unplugged");
        std::fs::rename(lab.folder(0), &unplugged).unwrap();
        let again = StartFrom::State(state);
        let error = work(&lab.job(0, &method, 9), again, &mut engine).unwrap_err();
        assert!(matches!(disk_error(&*error), Some(CheckpointError::Disk { .. })), "{error}");
        drop(engine);
        std::fs::rename(&unplugged, lab.folder(0)).unwrap();
        let (state, _) = lab.agent(0, &method, 9);
        [state, other.join().unwrap()]
    });
    lab.check(&method, 9, &states);
}

#[test]
#[ignore = "mounts a file system, which takes root"]
fn a_disk_that_is_full_stops_the_agent_and_leaves_the_last_checkpoint() {
    let lab = Lab::new(Topology::Path, 2, 3000);
    let method = Mile::new(2, 0.2).unwrap();
    let place = lab.folder(0);
    std::fs::create_dir_all(&place).unwrap();
    let mount = |options: &str| {
        Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&place).status().unwrap()
    };
    assert!(mount("size=100k").success());
    let states = std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.agent(1, &method, 9).0);
        let (mut engine, from) = lab.start(0, lab.settings(0));
        let error = work(&lab.job(0, &method, 9), from, &mut engine).unwrap_err();
        let Some(CheckpointError::Disk { source, .. }) = disk_error(&*error) else { panic!("{error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{error}");
        drop(engine);
        assert!(mount("remount,size=1m").success());
        let (state, _) = lab.agent(0, &method, 9);
        [state, other.join().unwrap()]
    });
    lab.check(&method, 9, &states);
    assert!(Command::new("umount").arg(&place).status().unwrap().success());
}
