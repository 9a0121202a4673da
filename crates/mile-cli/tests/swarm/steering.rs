//! Runs that are extended, changed, started from an earlier one, gathered from folders, and checked by supervisors.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::common::{RunningCommand, TestFolder, text, wait_for};
use crate::manual::{agent, edit, emit};

const SHORT: &str = r#"
name = "steered"
rounds = 12
eval_every = 4
[network]
agents = 3
topology = "path"
[problem]
kind = "quadratic"
dim = 7
[[algorithm]]
name = "mile"
step_size = 0.2
"#;

/// The same with more rounds, another step size later, and agents that leave, join and are replaced.
fn longer() -> String {
    let more = SHORT.replace("rounds = 12", "rounds = 30");
    let change = "change = [{ round = 20, step_size = 0.05 }]\n";
    let leave = "[[event]]\nround = 14\nleave = 1\nedges = [[0, 2]]\n";
    let join = "[[event]]\nround = 18\njoin = 3\nneighbours = [0, 2]\n";
    format!("{more}{change}{leave}{join}[[event]]\nround = 26\nreplace = 0\n")
}

#[test]
fn a_swarm_is_extended_with_a_later_step_size_to_the_bits_of_one_run() {
    let folder = TestFolder::with(SHORT);
    folder.succeed(&["swarm", "e.toml", "--out", "many"]);
    std::fs::write(folder.path("more.toml"), longer()).unwrap();
    folder.succeed(&["swarm", "more.toml", "--out", "many", "--resume"]);
    folder.succeed(&["run", "more.toml", "--out", "one"]);
    folder.assert_equal("one", "many");
    let log = |k: usize| std::fs::read_to_string(folder.path(&format!("many/agents/{k}/log"))).unwrap();
    assert!(log(1).contains("round 14") && log(3).contains("round 18"), "{}{}", log(1), log(3));
    let noted = std::fs::read_to_string(folder.path("many/agents/0/changes.jsonl")).unwrap();
    assert!(noted.contains(r#"{"key":"rounds","new":"30","old":"12","round":12}"#), "{noted}");
    assert!(noted.contains("algorithm[0].change[0].step_size"), "{noted}");
    // The past cannot be changed.
    std::fs::write(folder.path("past.toml"), longer().replace("round = 20", "round = 25")).unwrap();
    let refused = folder.mile(&["swarm", "past.toml", "--out", "many", "--resume"]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("change[0]"), "{message}");
    // Nor can a run in one process.
    folder.succeed(&["run", "e.toml", "--out", "alone"]);
    folder.succeed(&["run", "more.toml", "--out", "alone", "--resume"]);
    assert_eq!(folder.finals("alone"), folder.finals("one"));
    let refused = folder.mile(&["run", "past.toml", "--out", "alone", "--resume"]);
    assert!(text(&refused.stderr).contains("change[0]"), "{}", text(&refused.stderr));
}

#[test]
fn a_run_begins_from_the_models_of_an_earlier_one_in_one_process_and_in_many() {
    let folder = TestFolder::with(SHORT);
    folder.succeed(&["run", "e.toml", "--out", "first"]);
    let next = format!("{SHORT}[start]\nfile = \"first/final/mile-seed0.safetensors\"\n");
    std::fs::write(folder.path("next.toml"), next).unwrap();
    folder.succeed(&["run", "next.toml", "--out", "one"]);
    folder.succeed(&["swarm", "next.toml", "--out", "many"]);
    folder.assert_equal("one", "many");
    let loss = |run: &str, place: usize| folder.records(run)[place]["loss"].as_f64().unwrap();
    let last = folder.records("first").len() - 1;
    // The first record is taken after the method's start-up, which is a local step.
    assert!((loss("one", 0) - loss("first", last)).abs() < 1e-4, "it begins where the first ended");
    assert!((loss("first", 0) - loss("first", last)).abs() > 1e-2);
}

#[test]
fn folders_of_agents_are_gathered_while_they_run_and_afterwards_and_supervisors_are_told() {
    let folder = TestFolder::with(&SHORT.replace("rounds = 12", "rounds = 12\nseeds = [0, 1]"));
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    emit(&folder, 3);
    (0..3).for_each(|k| edit(&folder, k, "snapshots = false", "snapshots = true"));
    let early = folder.mile(&["gather", "out", "--out", "all"]);
    assert_eq!(early.status.code(), Some(2));
    assert!(text(&early.stderr).starts_with("mile: "), "{}", text(&early.stderr));
    let mut agents: Vec<RunningCommand> = (0..2).map(|k| agent(&folder, k)).collect();
    let healthy =
        |patience: &str| folder.mile(&["status", "out/agents/0", "--check", "--patience", patience]);
    wait_for(|| healthy("600").status.success().then_some(()), "an answer");
    // Agent 2 has not been started.
    wait_for(|| (healthy("0.5").status.code() == Some(1)).then_some(()), "a complaint");
    agents.push(agent(&folder, 2));
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    folder.succeed(&["status", "out/agents/0", "out/agents/1", "out/agents/2"]);
    folder.succeed(&["status", "out/agents/0", "--check"]);
    folder.succeed(&["gather", "out/agents/0", "out/agents/2", "--out", "few"]);
    assert!(!folder.path("few/metrics.jsonl").exists(), "there are no records without all agents");
    assert_eq!(folder.finals("few").len(), 2, "the states of two seeds, of the agents that are there");
    folder.succeed(&["gather", "out/agents/2", "out/agents/0", "out/agents/1", "--out", "all"]);
    folder.assert_equal("one", "all");
    assert!(folder.path("all/report.html").exists());
    // Nothing was removed: it can be done again, and elsewhere.
    folder.succeed(&["gather", "out", "--out", "all"]);
    folder.succeed(&["gather", "out", "--out", "again"]);
    folder.assert_equal("all", "again");
}

#[test]
fn a_lost_agent_leaves_another_is_replaced_and_the_run_ends_near_the_minimiser() {
    let folder = TestFolder::with(
        &SHORT
            .replace("rounds = 12", "rounds = 2000")
            .replace("eval_every = 4", "eval_every = 500")
            .replace("agents = 3", "agents = 4"),
    );
    emit(&folder, 4);
    (0..4).for_each(|k| edit(&folder, k, "linger = 600.0", "linger = 5.0"));
    let agents: Vec<RunningCommand> = (0..4).map(|k| agent(&folder, k)).collect();
    let stand = || -> Vec<Option<u64>> {
        let status = folder.mile(&["status", "out", "--format", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let round =
            |k: usize| status[k]["status"]["round"].as_u64().or(status[k]["checkpoint_round"].as_u64());
        (0..4).map(round).collect()
    };
    wait_for(|| stand().iter().all(|round| round.is_some_and(|round| round > 20)).then_some(()), "rounds");
    drop(agents);
    let rounds: Vec<u64> = stand().into_iter().map(|round| round.expect("a checkpoint")).collect();
    let shown = text(&folder.mile(&["status", "out"]).stdout);
    assert!(shown.contains(&format!("round {}", rounds[0])), "{shown}");
    assert!(rounds.iter().all(|round| *round < 1900), "too fast for this test: {rounds:?}");
    // The last one has lost everything but its file; it gets a new key.
    let old = text(&folder.succeed(&["keygen", "--public", "out/agents/2/key"]).stdout).trim().to_owned();
    let file = std::fs::read(folder.path("out/agents/2/agent.toml")).unwrap();
    std::fs::remove_dir_all(folder.path("out/agents/2")).unwrap();
    std::fs::create_dir(folder.path("out/agents/2")).unwrap();
    std::fs::write(folder.path("out/agents/2/agent.toml"), file).unwrap();
    let new = text(&folder.succeed(&["keygen", "--out", "out/agents/2/key"]).stdout).trim().to_owned();
    edit(&folder, 1, &old, &new);
    edit(&folder, 3, &old, &new);
    // The first one leaves: what has to be written follows from the remaining checkpoints of the others.
    let (least, most) = (rounds[1].min(rounds[3]), rounds[1].max(rounds[3]));
    let told = text(&folder.succeed(&["status", "out/agents/1", "out/agents/3", "--without", "0"]).stdout);
    assert_eq!(told, format!("[[event]]\nround = {most}\nleave = 0\nlost = {least}\n"));
    let next = most + 1;
    let events = format!("\n{told}\n[[event]]\nround = {next}\nreplace = 2\nlost = {least}\n");
    for k in 0..4 {
        let path = folder.path(&format!("out/agents/{k}/agent.toml"));
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + &events).unwrap();
    }
    let mut agents: Vec<RunningCommand> = (1..4).map(|k| agent(&folder, k)).collect();
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    assert!(agents[1].log().contains("agent 2"), "{}", agents[1].log());
    std::fs::remove_dir_all(folder.path("out/agents/0")).unwrap();
    folder.succeed(&["gather", "out", "--out", "all"]);
    let last = folder.records("all").pop().unwrap();
    let number = |key: &str| last[key].as_f64().unwrap_or_else(|| panic!("{key} in {last}"));
    assert!(number("grad_norm_sq") < 1e-10 && number("consensus_error") < 1e-10, "{last}");
    // One process plays the same events, with the lost agents up to their end, and ends at the same point.
    let whole = std::fs::read_to_string(folder.path("e.toml")).unwrap() + &events;
    std::fs::write(folder.path("event.toml"), whole).unwrap();
    folder.succeed(&["run", "event.toml", "--out", "one"]);
    let same = folder.records("one").pop().unwrap();
    assert!(same["grad_norm_sq"].as_f64().unwrap() < 1e-10, "{same}");
    let [here, there] = [&last, &same].map(|record| record["loss"].as_f64().unwrap());
    assert!((here - there).abs() < 1e-9, "{here} {there}");
}

#[test]
fn an_agent_without_file_descriptors_left_serves_its_metrics_again_when_there_are_some() {
    let folder = TestFolder::with(SHORT);
    emit(&folder, 3);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = free.local_addr().unwrap();
    drop(free);
    edit(&folder, 0, "[agent]\n", &format!("[agent]\nmetrics = \"{metrics}\"\n"));
    let mut agent = agent(&folder, 0);
    let ask = |patience: u64| -> Option<String> {
        let mut stream = TcpStream::connect(metrics).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(patience))).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text).filter(|text| text.contains("mile_round"))
    };
    wait_for(|| ask(5000), "metrics");
    let pid = Pid::from_child(&agent.child);
    let all = getrlimit(Resource::Nofile);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(1), ..all }).unwrap();
    assert_eq!(ask(700), None, "an answer without a file descriptor");
    assert!(agent.child.try_wait().unwrap().is_none(), "{}", agent.log());
    prlimit(Some(pid), Resource::Nofile, all).unwrap();
    wait_for(|| ask(5000), "metrics again");
}
