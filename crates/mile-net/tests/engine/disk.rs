//! A disk that fails ends the agent with an error that says so.

use std::os::unix::fs::symlink;

use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::work;
use mile_net::engine::Engine;
use mile_net::session::Memory;

use crate::lab::Lab;

#[test]
fn a_folder_that_cannot_be_is_an_error_at_the_start() {
    let lab = Lab::new(Topology::Path, 2, 10);
    std::fs::write(lab.folder(0), "a file where the folder should be").unwrap();
    let started = Engine::start(lab.settings(0), lab.terms.clone(), Memory::<f32>::default());
    let text = started.err().expect("no folder").to_string();
    assert!(text.contains("cannot create"), "{text}");
}

#[test]
fn a_disk_that_is_full_stops_the_agent_and_leaves_the_last_checkpoint() {
    let lab = Lab::new(Topology::Path, 2, 10);
    let method = Mile::new(2, 0.2).unwrap();
    let states = std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.agent(1, &method, 9).0);
        let (mut engine, from) = lab.start(0, lab.settings(0));
        let state = work(&lab.job(0, &method, 4), from, &mut engine).unwrap();
        assert_eq!(state.progress.round, 4);
        let temporary = lab.folder(0).join("checkpoint.safetensors.tmp");
        symlink("/dev/full", &temporary).unwrap();
        let again = mile_net::agent::From::State(state);
        let error = work(&lab.job(0, &method, 9), again, &mut engine).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cannot write") && text.contains("the last checkpoint is whole"), "{text}");
        drop(engine);
        std::fs::remove_file(&temporary).unwrap();
        let (state, _) = lab.agent(0, &method, 9);
        [state, other.join().unwrap()]
    });
    lab.check(&method, 9, &states);
}
