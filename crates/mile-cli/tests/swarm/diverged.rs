//! Models that diverge, and data from which no model comes.

use crate::common::{RunningCommand, TestFolder, text, wait_for};
use crate::manual::{agent, edit, emit, tables};

const TWO: &str = r#"
name = "two"
rounds = 30
eval_every = 30
[network]
agents = 4
topology = "ring"
[problem]
kind = "quadratic"
dim = 5
[[algorithm]]
name = "mile"
step_size = 1e9
[[algorithm]]
name = "led"
step_size = 0.05
"#;

#[test]
fn a_swarm_gives_up_an_algorithm_that_diverges_runs_the_others_and_says_so_with_its_exit_code() {
    let folder = TestFolder::with(TWO);
    let output = folder.mile(&["swarm", "e.toml", "--out", "many"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.lines().any(|line| line.starts_with("mile") && line.ends_with("diverged")), "{table}");
    assert!(table.lines().any(|line| line.starts_with("led") && line.contains("last round")), "{table}");
    // What the other algorithm computes does not depend on it.
    let alone = TWO.replace("[[algorithm]]\nname = \"mile\"\nstep_size = 1e9\n", "");
    std::fs::write(folder.path("alone.toml"), alone).unwrap();
    folder.succeed(&["run", "alone.toml", "--out", "one"]);
    assert_eq!(
        folder.finals("many")["led-seed0.safetensors"].bytes,
        folder.finals("one")["led-seed0.safetensors"].bytes
    );
    let said = std::fs::read(folder.path("many/final/mile-seed0.diverged.json")).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    assert!(said["round"].as_u64().unwrap() < 10, "long before the next record: {said}");
    // Nothing is left to do, and it is said again.
    let again = folder.mile(&["swarm", "e.toml", "--out", "many", "--resume"]);
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
}

#[test]
fn an_agent_that_diverges_keeps_its_last_good_checkpoint_tells_its_neighbours_and_has_an_exit_code_of_its_own()
 {
    // Slowly enough for some good rounds.
    let one = TWO.split("[[algorithm]]\nname = \"led\"").next().unwrap();
    let folder = TestFolder::with(&one.replace("1e9", "3.0").replace("dim = 5", "dim = 5\ncondition = 10"));
    emit(&folder, 4);
    let mut agents: Vec<RunningCommand> = (0..4).map(|k| agent(&folder, k)).collect();
    let ended =
        wait_for(|| (0..4).find(|k| agents[*k].child.try_wait().unwrap().is_some()), "an agent to diverge");
    assert_eq!(agents[ended].end(), Some(3), "{}", agents[ended].log());
    let said =
        std::fs::read(folder.path(&format!("out/agents/{ended}/final/mile-seed0.diverged.json"))).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    let (round, kept) = (said["round"].as_u64().unwrap(), said["checkpoint_round"].as_u64().unwrap());
    assert!(kept > 0 && kept < round, "{said}");
    let checked = folder.mile(&["status", &format!("out/agents/{ended}"), "--check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stdout).contains("diverged"), "{}", text(&checked.stdout));
    // Its neighbours diverge by themselves, or are told.
    let neighbour = (ended + 1) % 4;
    wait_for(
        || {
            let gone = agents[neighbour].child.try_wait().unwrap().is_some();
            let shown = text(&folder.mile(&["status", &format!("out/agents/{neighbour}")]).stdout);
            (gone || shown.contains("its model diverged")).then_some(())
        },
        "its neighbour to know",
    );
    drop(agents);
}

#[test]
fn an_agent_checks_its_own_data_before_it_talks_to_anybody() {
    let folder = tables();
    emit(&folder, 3);
    let path = folder.path("out/agents/1/agent-1.csv");
    let data = std::fs::read_to_string(&path).unwrap();
    let (first, rest) = data.split_once('\n').unwrap();
    let (_, rest) = rest.split_once(',').unwrap();
    std::fs::write(&path, format!("{first}\n1e200,{rest}")).unwrap();
    edit(&folder, 1, "standardise = true", "standardise = false");
    edit(&folder, 1, "statistics = \"statistics.json\"\n", "");
    let refused = folder.mile(&["agent", "out/agents/1/agent.toml"]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("problem: ") && message.contains("agent 1"), "{message}");
}
