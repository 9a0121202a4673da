//! Agents that are killed, and swarms that are stopped.

use crate::common::{Place, signal, wait_for};

const LONG: &str = r#"
name = "long"
rounds = 250
eval_every = 25
[network]
agents = 4
topology = "ring"
[problem]
kind = "quadratic"
dim = 40
[[algorithm]]
name = "mile"
step_size = 0.1
[[algorithm]]
name = "gradient-tracking"
step_size = 0.05
"#;

#[test]
fn killed_agents_come_back_and_the_bits_are_the_same() {
    let place = Place::with(LONG);
    place.succeed(&["run", "e.toml", "--out", "one"]);
    let mut swarm = place.start(&["swarm", "e.toml", "--out", "many"], "words");
    wait_for(|| (!place.records("many").is_empty()).then_some(()), "the first record");
    for victims in [&[1][..], &[2, 3], &[0], &[3, 0]] {
        let pids: Vec<u32> = victims.iter().map(|agent| place.pid("many", *agent, None)).collect();
        pids.iter().for_each(|pid| signal("KILL", *pid));
        for (agent, pid) in victims.iter().zip(&pids) {
            place.pid("many", *agent, Some(*pid));
        }
    }
    assert_eq!(swarm.end(), Some(0), "{}", swarm.words());
    assert!(swarm.words().matches("starting it again from its checkpoint").count() >= 6, "{}", swarm.words());
    place.assert_equal("one", "many");
}

#[test]
fn a_swarm_that_is_stopped_or_killed_goes_on() {
    let place = Place::with(LONG);
    place.succeed(&["run", "e.toml", "--out", "one"]);
    let records = |least: usize| (place.records("many").len() >= least).then_some(());
    let mut swarm = place.start(&["swarm", "e.toml", "--out", "many"], "words");
    wait_for(|| records(2), "two records");
    swarm.signal("INT");
    assert_eq!(swarm.end(), Some(130), "{}", swarm.words());
    assert!(swarm.words().contains("go on with: mile swarm ... --out many --resume"), "{}", swarm.words());

    let mut swarm = place.start(&["swarm", "e.toml", "--out", "many", "--resume"], "words");
    wait_for(|| records(6), "six records");
    let pids: Vec<u32> = (0..4).map(|agent| place.pid("many", agent, None)).collect();
    swarm.signal("KILL");
    swarm.end();
    // Its agents end with it.
    let alive =
        |pid: &u32| std::path::Path::new("/proc").join(pid.to_string()).join("exe").read_link().is_ok();
    wait_for(|| (!pids.iter().any(alive)).then_some(()), "the agents to end");

    let other = place.mile(&["swarm", "e.toml", "--out", "many", "--resume", "--set", "rounds=300"]);
    assert_eq!(other.status.code(), Some(2));
    let message = String::from_utf8(other.stderr).unwrap();
    assert!(message.contains("rounds was 250 and is 300 now"), "{message}");
    place.succeed(&["swarm", "e.toml", "--out", "many", "--resume"]);
    place.assert_equal("one", "many");
    // Nothing is left to be done.
    place.succeed(&["swarm", "e.toml", "--out", "many", "--resume"]);
    place.assert_equal("one", "many");
}
