//! A neighbour that is unreachable for many rounds.

use crate::common::{TestFolder, signal, text, wait_for};

#[test]
fn a_run_whose_agent_is_away_for_many_rounds_converges_to_the_right_point() {
    let folder = TestFolder::with(
        r#"
name = "away"
rounds = 2000
eval_every = 2000
[network]
agents = 4
topology = "ring"
[problem]
kind = "quadratic"
dim = 4
condition = 3
[agent]
on_missing = "skip-edge"
deadline = 0.3
[[algorithm]]
name = "mile"
step_size = 0.3
local_steps = 2
"#,
    );
    let mut swarm = folder.start(&["swarm", "e.toml", "--out", "many"], "log");
    // The edges of the agent with the largest id are decided by the others.
    let pid = folder.pid("many", 3, None);
    let status = |agent: usize| -> Option<serde_json::Value> {
        let output = folder.mile(&["status", &format!("many/agents/{agent}"), "--format", "json"]);
        let answers: serde_json::Value = serde_json::from_str(&text(&output.stdout)).ok()?;
        answers[0].get("status").cloned()
    };
    let reached = |agent: usize, round: u64| status(agent).filter(|s| s["round"].as_u64() >= Some(round));
    wait_for(|| reached(3, 20), "twenty rounds");
    signal("STOP", pid);
    let skips = |status: &serde_json::Value| {
        let edges = status["neighbours"].as_array().unwrap();
        edges.iter().find(|edge| edge["id"] == 3).and_then(|edge| edge["skipped"].as_u64()) >= Some(50)
    };
    let gone = wait_for(
        || status(2).filter(skips).and_then(|_| status(0).filter(skips)),
        "fifty rounds in which both neighbours skip agent 3",
    );
    signal("CONT", pid);
    assert!(gone["round"].as_u64() < Some(1400), "the others were too fast for this test: {gone}");
    assert_eq!(swarm.end(), Some(0), "{}", swarm.log());
    let records = folder.records("many");
    let last = records.last().unwrap();
    assert_eq!(last["round"], 2000);
    for key in ["grad_norm_sq", "consensus_error"] {
        assert!(last[key].as_f64().unwrap() < 1e-12, "{last}");
    }
    // Fewer messages were sent than without the outage: 8 a round, 4 numbers of 8 bytes each.
    assert!(last["bytes_sent"].as_u64().unwrap() <= (2000 - 50) * 8 * 32 + 50 * 4 * 32, "{last}");
}
