//! Agents started by hand: keys, folders, messages.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Place, Started, states, text, wait_for};

const TABLES: &str = r#"
name = "tables"
rounds = 12
eval_every = 5
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
[[algorithm]]
name = "mile"
step_size = 0.2
"#;

/// A place with data of three agents, the first of which has one class only.
fn tables() -> Place {
    let place = Place::with(TABLES);
    std::fs::create_dir(place.path("data")).unwrap();
    for agent in 0..3 {
        let row = |k: usize| {
            let class = if agent == 0 || k.is_multiple_of(2) { "yes" } else { "no" };
            format!("{},{},{class}\n", (k * 7 + agent) % 5, (k * 3 + 2 * agent) % 4)
        };
        let rows: String = (0..6).map(row).collect();
        std::fs::write(place.path(&format!("data/agent-{agent}.csv")), format!("a,b,y\n{rows}")).unwrap();
    }
    place
}

/// Writes the agents' folders for this machine.
fn emit(place: &Place, agents: usize) {
    let sockets: Vec<UdpSocket> = (0..agents).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let lines: String =
        sockets.iter().enumerate().map(|(k, s)| format!("{k}={}\n", s.local_addr().unwrap())).collect();
    std::fs::write(place.path("hosts"), lines).unwrap();
    drop(sockets);
    let output = place.succeed(&["swarm", "e.toml", "--emit", "out", "--hosts", "hosts"]);
    assert!(text(&output.stdout).contains("agent 1, reached at 127.0.0.1:"), "{}", text(&output.stdout));
}

fn agent(place: &Place, agent: usize) -> Started {
    place.start(&["agent", &format!("out/agents/{agent}/agent.toml")], &format!("words-{agent}"))
}

fn edit(place: &Place, agent: usize, old: &str, new: &str) {
    let path = place.path(&format!("out/agents/{agent}/agent.toml"));
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file.contains(old), "{file}");
    std::fs::write(path, file.replace(old, new)).unwrap();
}

#[test]
fn emitted_agents_need_their_own_data_only_and_give_the_same_bits() {
    let place = tables();
    place.succeed(&["run", "e.toml", "--out", "one"]);
    emit(&place, 3);
    std::fs::remove_dir_all(place.path("data")).unwrap();
    let mut agents: Vec<Started> = (0..3).map(|k| agent(&place, k)).collect();
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.words());
    }
    let whole = &place.finals("one")["mile-seed0.safetensors"].bytes;
    let tensors = 2; // x and c
    let row = whole.len() / 3 / tensors;
    for agent in 0..3 {
        let own = &states(&place.path(&format!("out/agents/{agent}/final")))["mile-seed0.safetensors"].bytes;
        for k in 0..tensors {
            assert_eq!(own[k * row..(k + 1) * row], whole[(3 * k + agent) * row..(3 * k + agent + 1) * row]);
        }
    }
    // Nothing is left to be done, and nobody is there any more: it says so after a while.
    edit(&place, 0, "linger = 600.0", "linger = 0.1");
    let mut again = agent(&place, 0);
    assert_eq!(again.end(), Some(0), "{}", again.words());
}

#[test]
fn agents_of_different_experiments_say_why_they_do_not_talk() {
    let place = tables();
    emit(&place, 3);
    edit(&place, 1, "step_size = 0.2", "step_size = 0.25");
    let agents = [agent(&place, 0), agent(&place, 1)];
    for agent in &agents {
        wait_for(|| agent.words().contains("algorithm[0].step_size differs").then_some(()), "the reason");
        assert!(agent.words().contains("0.2 at agent 0") || agent.words().contains("0.25 at agent 1"));
    }
    let status = place.succeed(&["status", "out", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let refusal = status[0]["status"]["neighbours"][0]["refusal"].as_str().unwrap();
    assert!(refusal.contains("step_size differs"), "{status}");
    assert!(status[2]["error"].as_str().unwrap().contains("no agent answers"), "{status}");
    let shown = text(&place.succeed(&["status", "out/agents/0", "out/agents/1"]).stdout);
    assert!(shown.contains("waited for") && shown.contains("step_size differs"), "{shown}");
    // A second agent in the same folder would spoil the first one's state.
    let second = place.mile(&["agent", "out/agents/0/agent.toml"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("in use by another agent that is still running"));
}

#[test]
fn what_is_wrong_in_an_agents_file_is_named() {
    let place = tables();
    emit(&place, 3);
    let refused = |agent: usize, expected: &str| {
        let output = place.mile(&["agent", &format!("out/agents/{agent}/agent.toml")]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    std::fs::remove_file(place.path("out/agents/0/key")).unwrap();
    refused(0, "cannot read the key file");
    std::fs::set_permissions(place.path("out/agents/1/key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(1, "chmod 600");
    std::fs::remove_file(place.path("out/agents/2/agent-2.csv")).unwrap();
    refused(2, "agent-2.csv: cannot be read");
    edit(&place, 2, "id = 1", "id = 0");
    refused(2, "agent.neighbour[0].id: got 0, takes a neighbour of agent 2");
    edit(&place, 2, "[[agent.neighbour]]", "[[agent.neighbor]]");
    refused(2, "agent.neighbor: unknown key; did you mean neighbour?");
    let path = place.path("out/agents/2/agent.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.split("[[agent.neighbor]]").next().unwrap()).unwrap();
    refused(2, "agent 1 is a neighbour of agent 2 in the experiment's graph, and is not listed");
    edit(&place, 1, "weight = ", "weight = 1");
    refused(1, "in the experiment's mixing matrix");
    edit(&place, 0, "[agent]", "[agent]\non_mising = \"wait\"");
    refused(0, "agent.on_mising: unknown key; did you mean on_missing?");
    for (arguments, expected) in [
        (&["agent", "e.toml"][..], "e.toml: agent: is missing"),
        (&["agent", "none.toml"], "none.toml: cannot read the agent's file"),
        (&["status", "data"], "data: is neither the folder of an agent"),
        (&["swarm", "e.toml", "--set", "agent.id=3"], "agent.id: is different for every agent"),
        (&["swarm", "e.toml", "--emit", "no"], "--host: agents 0 and 1 are neighbours"),
        (&["swarm", "e.toml", "--emit", "no", "--host", "7=a:1"], "there are agents 0 to 2"),
        (&["swarm", "e.toml", "--emit", "no", "--host", "1=a"], "it has no port"),
    ] {
        let output = place.mile(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn a_key_is_made_once_and_is_its_owners_alone() {
    let place = Place::with("");
    let public = text(&place.succeed(&["keygen", "--out", "k"]).stdout);
    assert_eq!(public.trim().len(), 64);
    let mode = std::fs::metadata(place.path("k")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(text(&place.succeed(&["keygen", "--public", "k"]).stdout), public);
    let again = place.mile(&["keygen", "--out", "k"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("never overwritten"));
}
