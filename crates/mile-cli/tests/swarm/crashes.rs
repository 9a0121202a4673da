//! Agents that are killed, and swarms that are stopped.

use crate::common::{TestFolder, signal, wait_for};

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
    let folder = TestFolder::with(LONG);
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    for by in ["tcp", "quic"] {
        let by_transport = format!("agent.transport={by}");
        let mut swarm = folder.start(&["swarm", "e.toml", "--out", by, "--set", &by_transport], "log");
        wait_for(|| (!folder.records(by).is_empty()).then_some(()), "the first record");
        for victims in [&[1][..], &[2, 3], &[0], &[3, 0]] {
            let pids: Vec<u32> = victims.iter().map(|agent| folder.pid(by, *agent, None)).collect();
            pids.iter().for_each(|pid| signal("KILL", *pid));
            for (agent, pid) in victims.iter().zip(&pids) {
                folder.pid(by, *agent, Some(*pid));
            }
        }
        assert_eq!(swarm.end(), Some(0), "{}", swarm.log());
        assert!(swarm.log().matches("restarting it from its checkpoint").count() >= 6, "{}", swarm.log());
        folder.assert_equal("one", by);
    }
}

#[test]
fn a_swarm_that_is_stopped_or_killed_continues() {
    // Rounds enough that it is stopped, and killed, in the midst of them on a busy machine too.
    let longer = LONG.replace("rounds = 250", "rounds = 2500").replace("eval_every = 25", "eval_every = 250");
    let folder = TestFolder::with(&longer);
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    let records = |least: usize| (folder.records("many").len() >= least).then_some(());
    let mut swarm = folder.start(&["swarm", "e.toml", "--out", "many"], "log");
    wait_for(|| records(2), "two records");
    swarm.signal("INT");
    assert_eq!(swarm.end(), Some(130), "{}", swarm.log());
    assert!(swarm.log().contains("mile swarm e.toml --out many --resume"), "{}", swarm.log());

    let mut swarm = folder.start(&["swarm", "e.toml", "--out", "many", "--resume"], "log");
    wait_for(|| records(6), "six records");
    let pids: Vec<u32> = (0..4).map(|agent| folder.pid("many", agent, None)).collect();
    swarm.signal("KILL");
    swarm.end();
    // Its agents end with it.
    let alive =
        |pid: &u32| std::path::Path::new("/proc").join(pid.to_string()).join("exe").read_link().is_ok();
    wait_for(|| (!pids.iter().any(alive)).then_some(()), "the agents to end");

    let other = folder.mile(&["swarm", "e.toml", "--out", "many", "--resume", "--set", "rounds=200"]);
    assert_eq!(other.status.code(), Some(2));
    let message = String::from_utf8(other.stderr).unwrap();
    assert!(message.contains("rounds"), "{message}");
    folder.succeed(&["swarm", "e.toml", "--out", "many", "--resume"]);
    folder.assert_equal("one", "many");
    // Nothing is left to do.
    folder.succeed(&["swarm", "e.toml", "--out", "many", "--resume"]);
    folder.assert_equal("one", "many");
}
