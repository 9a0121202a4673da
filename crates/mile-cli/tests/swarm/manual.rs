//! Agents that are started manually: keys, folders, messages.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;

use crate::common::{RunningCommand, TestFolder, states, text, wait_for};

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
standardise = true
[[algorithm]]
name = "mile"
step_size = 0.2
"#;

/// A folder with data of three agents, the first of which has only one class.
pub(crate) fn tables() -> TestFolder {
    let folder = TestFolder::with(TABLES);
    std::fs::create_dir(folder.path("data")).unwrap();
    for agent in 0..3 {
        let row = |k: usize| {
            let class = if agent == 0 || k.is_multiple_of(2) { "yes" } else { "no" };
            format!("{},{},{class}\n", (k * 7 + agent) % 5, (k * 3 + 2 * agent) % 4)
        };
        let rows: String = (0..6).map(row).collect();
        std::fs::write(folder.path(&format!("data/agent-{agent}.csv")), format!("a,b,y\n{rows}")).unwrap();
    }
    folder
}

/// Writes the agents' folders, with addresses of this machine.
pub(crate) fn emit(folder: &TestFolder, agents: usize) {
    let free = |_| {
        // A port for UDP that is also free for TCP.
        let both = || {
            let udp = UdpSocket::bind("127.0.0.1:0").ok()?;
            Some((TcpListener::bind(udp.local_addr().ok()?).ok()?, udp))
        };
        std::iter::repeat_with(both).flatten().next().unwrap()
    };
    let sockets: Vec<(TcpListener, UdpSocket)> = (0..agents).map(free).collect();
    let lines: String =
        sockets.iter().enumerate().map(|(k, (_, s))| format!("{k}={}\n", s.local_addr().unwrap())).collect();
    std::fs::write(folder.path("hosts"), lines).unwrap();
    drop(sockets);
    let output = folder.succeed(&["swarm", "e.toml", "--emit", "out", "--hosts", "hosts"]);
    assert!(text(&output.stdout).contains("127.0.0.1:"), "{}", text(&output.stdout));
}

pub(crate) fn agent(folder: &TestFolder, agent: usize) -> RunningCommand {
    folder.start(&["agent", &format!("out/agents/{agent}/agent.toml")], &format!("log-{agent}"))
}

pub(crate) fn edit(folder: &TestFolder, agent: usize, old: &str, new: &str) {
    let path = folder.path(&format!("out/agents/{agent}/agent.toml"));
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file.contains(old), "{file}");
    std::fs::write(path, file.replace(old, new)).unwrap();
}

#[test]
fn emitted_agents_need_their_own_data_only_and_give_the_same_bits() {
    let folder = tables();
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    folder.succeed(&["swarm", "e.toml", "--out", "swarm"]);
    let bytes = |run: &str| folder.finals(run)["mile-seed0.safetensors"].bytes.clone();
    assert_eq!(bytes("swarm"), bytes("one"));
    let model = |run: &str| std::fs::read_to_string(folder.path(&format!("{run}/coefficients.csv"))).unwrap();
    assert_eq!(model("swarm"), model("one"));
    emit(&folder, 3);
    std::fs::remove_dir_all(folder.path("data")).unwrap();
    std::fs::write(folder.path("auto.toml"), format!("{TABLES}xi = \"auto\"\n")).unwrap();
    let refused = folder.mile(&["swarm", "auto.toml", "--emit", "other", "--hosts", "hosts"]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("algorithm[0].xi"), "{message}");
    let mut agents: Vec<RunningCommand> = (0..3).map(|k| agent(&folder, k)).collect();
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    let whole = &folder.finals("one")["mile-seed0.safetensors"].bytes;
    let tensors = 2; // x and c
    let row = whole.len() / 3 / tensors;
    for agent in 0..3 {
        let own = &states(&folder.path(&format!("out/agents/{agent}/final")))["mile-seed0.safetensors"].bytes;
        for k in 0..tensors {
            assert_eq!(own[k * row..(k + 1) * row], whole[(3 * k + agent) * row..(3 * k + agent + 1) * row]);
        }
    }
    gathered(&folder);
    used(&folder);
    // Nothing is left to do, and nobody is there any more: it ends although it would linger for ten minutes, which is longer than
    // `end` waits.
    let mut again = agent(&folder, 1);
    assert_eq!(again.end(), Some(0), "{}", again.log());
    // As if it had been killed before it knew that: it waits for what its checkpoint does not tell it, for the linger time.
    std::fs::remove_file(folder.path("out/agents/1/farewell.safetensors")).unwrap();
    edit(&folder, 1, "linger = 600.0", "linger = 0.1");
    let mut again = agent(&folder, 1);
    assert_eq!(again.end(), Some(0), "{}", again.log());
}

/// Gathers what agents have that brought their own data, and what is left where nobody has all data or all folders.
fn gathered(folder: &TestFolder) {
    folder.succeed(&["gather", "out", "--out", "all"]);
    let state = |run: &str| folder.finals(run)["mile-seed0.safetensors"].bytes.clone();
    assert_eq!(state("all"), state("one"));
    let mut last = folder.records("one").pop().unwrap();
    // Agents that write no snapshots do not know the model before the exchange.
    last.as_object_mut().unwrap().remove("consensus_error_before");
    assert_eq!(folder.records("all"), [last]);
    let data = folder.path("out/agents/1/agent-1.csv");
    let bytes = std::fs::read(&data).unwrap();
    std::fs::remove_file(&data).unwrap();
    let parts = folder.succeed(&["gather", "out", "--out", "parts"]);
    std::fs::write(&data, bytes).unwrap();
    assert!(text(&parts.stderr).contains("agent-1.csv"), "{}", text(&parts.stderr));
    assert_eq!(state("parts"), state("one"), "final states need nobody's data");
    let losses = std::fs::read_to_string(folder.path("parts/own_losses.csv")).unwrap();
    assert_eq!(losses.lines().next(), Some("algorithm,seed,round,mean,agent 0,agent 1,agent 2"));
    let line: Vec<f64> =
        losses.lines().last().unwrap().split(',').skip(2).map(|cell| cell.parse().unwrap()).collect();
    let [round, mean, own @ ..] = &line[..] else { panic!("{losses}") };
    assert_eq!((*round, own.len()), (10.0, 3), "{losses}");
    assert_eq!(*mean, own.iter().sum::<f64>() / 3.0, "{losses}");
    for (agent, loss) in own.iter().enumerate() {
        let noted =
            std::fs::read_to_string(folder.path(&format!("out/agents/{agent}/own_losses.jsonl"))).unwrap();
        let noted: serde_json::Value = serde_json::from_str(noted.lines().last().unwrap()).unwrap();
        assert_eq!(noted["loss"].as_f64(), Some(*loss), "{losses}");
    }
    folder.succeed(&["gather", "out/agents/0", "out/agents/2", "--out", "some"]);
    assert!(!folder.path("some/metrics.jsonl").exists(), "there are no records without all agents");
    assert_eq!(state("some").len(), 2 * state("one").len() / 3);
}

/// Uses the models of agents: their own ones in their own folders, and those of a run that was gathered from all.
fn used(folder: &TestFolder) {
    let said = |arguments: &[&str]| text(&folder.succeed(arguments).stdout);
    std::fs::write(folder.path("new.csv"), "a,b\n1,2\n4,0\n").unwrap();
    let whole = said(&["predict", "one", "new.csv"]);
    assert_eq!(said(&["predict", "swarm", "new.csv"]), whole);
    assert_eq!(said(&["predict", "all", "new.csv"]), whole);
    folder.succeed(&["export", "all", "--out", "away"]);
    assert_eq!(said(&["predict", "away", "new.csv"]), whole);
    for agent in ["0", "1", "2"] {
        let own = said(&["predict", "one", "new.csv", "--agent", agent]);
        let place = format!("out/agents/{agent}");
        assert_ne!(own, whole);
        assert_eq!(said(&["predict", &place, "new.csv"]), own);
        assert_eq!(said(&["predict", &place, "new.csv", "--agent", agent]), own);
    }
    folder.succeed(&["export", "out/agents/2", "--out", "away-2"]);
    let own = said(&["predict", "one", "new.csv", "--agent", "2"]);
    assert_eq!(said(&["predict", "away-2", "new.csv"]), own);
    for (model, agent, named) in
        [("out/agents/2", "1", "--agent"), ("parts", "1", "mile gather"), ("some", "0", "mile gather")]
    {
        let refused = folder.mile(&["predict", model, "new.csv", "--agent", agent]);
        assert_eq!(refused.status.code(), Some(2));
        let message = text(&refused.stderr);
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn files_with_the_graphs_of_rounds_are_copied_to_the_agents() {
    let folder = tables();
    let text =
        TABLES.replace("topology = \"path\"", "time_varying = { weights = [\"even.txt\", \"odd.txt\"] }");
    std::fs::write(folder.path("e.toml"), text).unwrap();
    std::fs::write(folder.path("even.txt"), "0 1 0.5\n").unwrap();
    std::fs::write(folder.path("odd.txt"), "1 2 0.5\n").unwrap();
    emit(&folder, 3);
    for agent in 0..3 {
        let file =
            |name: &str| std::fs::read_to_string(folder.path(&format!("out/agents/{agent}/{name}"))).unwrap();
        assert_eq!((&*file("even.txt"), &*file("odd.txt")), ("0 1 0.5\n", "1 2 0.5\n"));
        assert!(
            file("agent.toml").contains("weights = [\"even.txt\", \"odd.txt\"]"),
            "{}",
            file("agent.toml")
        );
    }
}

#[test]
fn agents_behind_nat_on_both_sides_are_emitted_if_they_have_a_relay() {
    let folder = tables();
    let refused = folder.mile(&["swarm", "e.toml", "--emit", "out"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let relay = "agent.relay=\"https://relay.example.org\"";
    let told = folder.succeed(&["swarm", "e.toml", "--emit", "out", "--set", relay]);
    assert!(text(&told.stdout).contains("https://relay.example.org"), "{}", text(&told.stdout));
    for agent in 0..3 {
        let file = std::fs::read_to_string(folder.path(&format!("out/agents/{agent}/agent.toml"))).unwrap();
        assert!(
            file.contains("relay = \"https://relay.example.org\"") && file.contains("addresses = []"),
            "{file}"
        );
    }
    // The agents accept such a file.
    let _agent = agent(&folder, 0);
    let answers = || folder.mile(&["status", "out/agents/0"]).status.success();
    wait_for(|| answers().then_some(()), "the agent to start");
}

#[test]
fn agents_of_different_experiments_say_why_they_do_not_talk() {
    let folder = tables();
    emit(&folder, 3);
    edit(&folder, 1, "step_size = 0.2", "step_size = 0.25");
    let agents = [agent(&folder, 0), agent(&folder, 1)];
    for agent in &agents {
        wait_for(|| agent.log().contains("algorithm[0].step_size").then_some(()), "the reason");
        assert!(agent.log().contains("0.25"), "{}", agent.log());
    }
    let status = folder.succeed(&["status", "out", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let refusal = status[0]["status"]["neighbours"][0]["refusal"].as_str().unwrap();
    assert!(refusal.contains("step_size"), "{status}");
    assert!(status[2]["error"].is_string(), "{status}");
    let shown = text(&folder.succeed(&["status", "out/agents/0", "out/agents/1"]).stdout);
    assert!(shown.contains("step_size"), "{shown}");
    // A second agent in the same folder would corrupt the first one's state.
    let second = folder.mile(&["agent", "out/agents/0/agent.toml"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("out/agents/0"), "{}", text(&second.stderr));
}

#[test]
fn agents_of_different_transports_name_the_key_and_agree_once_it_is_the_same() {
    let folder = tables();
    emit(&folder, 3);
    edit(&folder, 1, "transport = \"quic\"", "transport = \"tcp\"");
    let agents: Vec<RunningCommand> = (0..3).map(|k| agent(&folder, k)).collect();
    for agent in &agents {
        wait_for(|| agent.log().contains("agent.transport").then_some(()), "the name of the key");
        assert!(agent.log().contains("127.0.0.1:"), "{}", agent.log());
    }
    drop(agents);
    for agent in [0, 2] {
        edit(&folder, agent, "transport = \"quic\"", "transport = \"tcp\"");
    }
    let mut agents: Vec<RunningCommand> = (0..3).map(|k| agent(&folder, k)).collect();
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
}

#[test]
fn what_is_wrong_in_an_agents_file_is_named() {
    let folder = tables();
    emit(&folder, 3);
    let refused = |agent: usize, expected: &str| {
        let output = folder.mile(&["agent", &format!("out/agents/{agent}/agent.toml")]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    std::fs::remove_file(folder.path("out/agents/0/key")).unwrap();
    refused(0, "key");
    std::fs::set_permissions(folder.path("out/agents/1/key"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    refused(1, "key");
    edit(&folder, 2, "statistics = \"statistics.json\"\n", "");
    refused(2, "problem.statistics: ");
    std::fs::remove_file(folder.path("out/agents/2/agent-2.csv")).unwrap();
    refused(2, "agent-2.csv");
    edit(&folder, 2, "id = 1", "id = 0");
    refused(2, "agent.neighbour[0].id: ");
    edit(&folder, 2, "[[agent.neighbour]]", "[[agent.neighbor]]");
    refused(2, "agent.neighbor: ");
    let path = folder.path("out/agents/2/agent.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.split("[[agent.neighbor]]").next().unwrap()).unwrap();
    refused(2, "agent.neighbour");
    edit(&folder, 1, "weight = ", "weight = 1");
    refused(1, "weight");
    edit(&folder, 0, "[agent]", "[agent]\non_mising = \"wait\"");
    refused(0, "agent.on_mising: ");
    for (arguments, expected) in [
        (&["agent", "e.toml"][..], "e.toml: agent: "),
        (&["agent", "none.toml"], "none.toml"),
        (&["status", "data"], "data: "),
        (&["swarm", "e.toml", "--set", "agent.transport=udp"], "agent.transport: "),
        (
            &[
                "swarm",
                "e.toml",
                "--set",
                "agent.transport=tcp",
                "--set",
                "agent.relay=https://a.example.org",
            ],
            "agent.relay: ",
        ),
        (&["swarm", "e.toml", "--set", "agent.id=3"], "agent.id: "),
        (&["swarm", "e.toml", "--emit", "no"], "--host: "),
        (&["swarm", "e.toml", "--emit", "no", "--host", "7=a:1"], "--host: "),
        (&["swarm", "e.toml", "--emit", "no", "--host", "1=a"], "--host: "),
    ] {
        let output = folder.mile(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn an_agent_whose_files_are_damaged_says_so_with_the_exit_code_that_ends_restarts() {
    let folder = tables();
    emit(&folder, 3);
    for (agent, file) in [(0, "incarnation"), (1, "checkpoint.safetensors")] {
        std::fs::write(folder.path(&format!("out/agents/{agent}/{file}")), "something else").unwrap();
        let output = folder.mile(&["agent", &format!("out/agents/{agent}/agent.toml")]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(file), "{message}");
    }
}

#[test]
fn a_key_is_made_once_and_is_its_owners_alone() {
    let folder = TestFolder::with("");
    let public = text(&folder.succeed(&["keygen", "--out", "k"]).stdout);
    assert_eq!(public.trim().len(), 64);
    let mode = std::fs::metadata(folder.path("k")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(text(&folder.succeed(&["keygen", "--public", "k"]).stdout), public);
    let again = folder.mile(&["keygen", "--out", "k"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("k: "), "{}", text(&again.stderr));
}
