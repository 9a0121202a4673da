//! A new agent joins by a file: an invitation, an answer, and the key that the operator accepts.

use crate::common::{RunningCommand, TestFolder, states, text};
use crate::manual::{agent, edit, emit};

const PATH: &str = r#"
name = "joined"
rounds = 40
eval_every = 20
[network]
agents = 3
topology = "path"
[problem]
kind = "table"
data = "data/agent-{agent}.csv"
target = "y"
loss = "logistic"
classes = ["no", "yes"]
l2 = 0.1
batch = 2
[agent]
transport = "tcp"
checkpoint_every = 20
[[algorithm]]
name = "mile"
step_size = 0.2
"#;
const EVENT: &str = "[[event]]\nround = 60\njoin = 3\nneighbours = [0, 2]\n";

/// The emitted folders of three agents, and the data of a fourth in `mine.csv`.
fn three() -> TestFolder {
    let folder = TestFolder::with(PATH);
    std::fs::create_dir(folder.path("data")).unwrap();
    let rows = |agent: usize| -> String {
        let row = |k: usize| {
            let class = if (k + agent).is_multiple_of(2) { "yes" } else { "no" };
            format!("{},{},{class}\n", (k * 7 + agent) % 5, (k * 3 + 2 * agent) % 4)
        };
        (0..8).map(row).collect()
    };
    for agent in 0..3 {
        std::fs::write(folder.path(&format!("data/agent-{agent}.csv")), format!("a,b,y\n{}", rows(agent)))
            .unwrap();
    }
    std::fs::write(folder.path("mine.csv"), format!("a,b,y\n{}", rows(3))).unwrap();
    emit(&folder, 3);
    folder
}

/// The addresses of agents 0 and 2, of which neither file has the other's.
fn hosts(folder: &TestFolder) -> Vec<String> {
    let lines = std::fs::read_to_string(folder.path("hosts")).unwrap();
    lines.lines().filter(|line| !line.starts_with("1=")).map(str::to_owned).collect()
}

fn invite(folder: &TestFolder, round: &str) -> std::process::Output {
    let hosts = hosts(folder);
    let mut arguments = vec!["invite", "out/agents/0", "out/agents/2", "--round", round];
    hosts.iter().for_each(|host| arguments.extend(["--host", host]));
    folder.mile(&arguments)
}

fn refused(folder: &TestFolder, arguments: &[&str], names: &str) {
    let output = folder.mile(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(message.contains(names), "{arguments:?} names {names}: {message}");
}

#[test]
fn an_invited_agent_joins_a_run_under_way_to_the_bits_of_one_process() {
    let folder = three();
    let mut agents: Vec<RunningCommand> = (0..3).map(|k| agent(&folder, k)).collect();
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    // The run goes on, and one more joins it.
    (0..3).for_each(|k| edit(&folder, k, "rounds = 40", "rounds = 80"));
    let output = invite(&folder, "60");
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder.succeed(&[
        "join",
        "invitation.toml",
        "--data",
        "mine.csv",
        "--out",
        "new",
        "--listen",
        "127.0.0.1:0",
    ]);
    let key = text(&folder.succeed(&["keygen", "--public", "new/key"]).stdout);
    let all =
        ["invite", "out/agents/0", "out/agents/1", "out/agents/2", "--accept", "new/answer.toml", "--key"];
    folder.succeed(&[&all[..], &[key.trim()]].concat());
    // A second time it changes nothing.
    let file = || std::fs::read_to_string(folder.path("out/agents/2/agent.toml")).unwrap();
    let before = file();
    folder.succeed(&[&all[..], &[key.trim()]].concat());
    assert_eq!(file(), before);
    let mut agents: Vec<RunningCommand> = (0..3).map(|k| agent(&folder, k)).collect();
    agents.push(folder.start(&["agent", "new/agent.toml"], "log-3"));
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    std::fs::copy(folder.path("mine.csv"), folder.path("data/agent-3.csv")).unwrap();
    std::fs::write(
        folder.path("whole.toml"),
        format!("{}{EVENT}", PATH.replace("rounds = 40", "rounds = 80")),
    )
    .unwrap();
    folder.succeed(&["run", "whole.toml", "--out", "one"]);
    let whole = &folder.finals("one")["mile-seed0.safetensors"].bytes;
    let tensors = 2; // x and c
    let row = whole.len() / 4 / tensors;
    for (agent, home) in ["out/agents/0", "out/agents/1", "out/agents/2", "new"].iter().enumerate() {
        let own = &states(&folder.path(home).join("final"))["mile-seed0.safetensors"].bytes;
        for k in 0..tensors {
            let expected = &whole[(4 * k + agent) * row..(4 * k + agent + 1) * row];
            assert_eq!(&own[k * row..(k + 1) * row], expected, "tensor {k} of agent {agent}");
        }
    }
}

#[test]
fn texts_that_were_changed_or_do_not_fit_are_refused_and_change_nothing() {
    let folder = three();
    let output = invite(&folder, "60");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(invite(&folder, "60").status.code(), Some(2), "nothing is overwritten");
    let invitation = std::fs::read_to_string(folder.path("invitation.toml")).unwrap();
    let signer = text(&folder.succeed(&["keygen", "--public", "out/agents/0/key"]).stdout);
    assert!(invitation.contains(signer.trim()));
    let changed = |name: &str, text: &str| std::fs::write(folder.path(name), text).unwrap();
    changed("changed.toml", &invitation.replace("step_size = 0.2", "step_size = 0.3"));
    refused(&folder, &["join", "changed.toml", "--data", "mine.csv"], "signature");
    refused(&folder, &["join", "out/agents/0/agent.toml"], "signature");
    let other = text(&folder.succeed(&["keygen", "--out", "other"]).stdout);
    refused(&folder, &["join", "invitation.toml", "--data", "mine.csv", "--key", other.trim()], "--key");
    refused(&folder, &["join", "invitation.toml"], "agent-3.csv");
    changed("bad.csv", "a,b,y\n1,2,perhaps\n");
    refused(&folder, &["join", "invitation.toml", "--data", "bad.csv"], "perhaps");
    assert!(!folder.path("agent-3/agent.toml").exists());
    folder.succeed(&["join", "invitation.toml", "--data", "mine.csv", "--key", signer.trim()]);
    refused(&folder, &["join", "invitation.toml", "--data", "mine.csv"], "agent-3");
    let file = |agent: usize| {
        std::fs::read_to_string(folder.path(&format!("out/agents/{agent}/agent.toml"))).unwrap()
    };
    let before = [0, 1, 2].map(file);
    let answer = std::fs::read_to_string(folder.path("agent-3/answer.toml")).unwrap();
    changed("moved.toml", &answer.replace("round = 60", "round = 50"));
    let accept = |answer: &'static str| vec!["invite", "out/agents/1", "out/agents/0", "--accept", answer];
    refused(&folder, &accept("moved.toml"), "signature");
    refused(&folder, &accept("invitation.toml"), "[answer]");
    refused(&folder, &[&accept("agent-3/answer.toml")[..], &["--key", other.trim()]].concat(), "--key");
    assert_eq!([0, 1, 2].map(file), before);
    folder.succeed(&accept("agent-3/answer.toml"));
    assert!(file(0).contains("join = 3") && file(1).contains("join = 3"));
    let theirs = text(&folder.succeed(&["keygen", "--public", "agent-3/key"]).stdout);
    assert!(file(0).contains(theirs.trim()) && !file(1).contains(theirs.trim()), "1 is no neighbour of it");
    // Another newcomer with the same invitation has another key.
    folder.succeed(&["join", "invitation.toml", "--data", "mine.csv", "--out", "twin"]);
    refused(&folder, &accept("twin/answer.toml"), "agent 3");
}
