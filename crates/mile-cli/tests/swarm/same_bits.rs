//! A swarm compared with one process.

use crate::common::{TestFolder, text};

const NETWORK: &str = r#"
name = "same"
rounds = 5
eval_every = 2
[network]
agents = 4
topology = "complete"
[problem]
kind = "quadratic"
dim = 6
[start]
value = "random"
"#;

#[test]
fn every_method_ends_with_the_bits_of_one_process() {
    let names = [
        "mile",
        "led",
        "k-gt",
        "periodical-gt",
        "dec-fedtrack",
        "gta-1",
        "gta-2",
        "gta-3",
        "diging",
        "push-pull",
        "extra",
        "ed",
        "nids",
        "d2",
        "proxskip",
        "mg-skip",
        "local-dsgd",
        "dsgd",
        "gradient-tracking",
        "scaffold",
        "momentum-tracking",
        "edm",
        "qg-dsgdm",
        "decentlam",
        "lt-admm",
        "dinno",
        "fspda",
        "motef",
        "diloco",
        "noloco",
        "gasloc",
    ];
    let mut experiment = NETWORK.to_owned();
    for name in names {
        experiment += &format!("[[algorithm]]\nname = \"{name}\"\nstep_size = 0.05\n");
    }
    let heavy = [
        ("mile", "xi = { from = 0.001, to = 0.1, rounds = 3 }\ngamma = 0.9\nmomentum = 0.8"),
        ("led", "momentum = 0.8\nnesterov = true"),
        ("k-gt", "momentum = 0.5"),
        ("local-dsgd", "momentum = 0.9\nouter = { momentum = 0.3, step_size = 0.7 }"),
    ];
    for (name, keys) in heavy {
        experiment += &format!(
            "[[algorithm]]\nname = \"{name}\"\nlabel = \"heavy {name}\"\nstep_size = 0.05\n{keys}\n"
        );
    }
    experiment +=
        "[[algorithm]]\nname = \"mile\"\nlabel = \"adaptive\"\nstep_size = 0.05\nxi = \"adaptive\"\n";
    experiment +=
        "[[algorithm]]\nname = \"mile\"\nlabel = \"bits\"\nstep_size = 0.05\ncompression = \"8-bit\"\n";
    experiment += "[[algorithm]]\nname = \"local-dsgd\"\nlabel = \"few\"\nstep_size = 0.05\ncompression = { top_k = 0.2 }\n";
    experiment += "[[algorithm]]\nname = \"motef\"\nlabel = \"tracked\"\nstep_size = 0.05\ncompression = { top_k = 0.4 }\n";
    for name in ["mile", "k-gt", "gta-3"] {
        experiment += &format!(
            "[[algorithm]]\nname = \"{name}\"\nlabel = \"own {name}\"\nstep_size = 0.05\nlocal_steps = [5, 1, 2, 5]\n"
        );
    }
    let count = names.len() + heavy.len() + 7;
    let folder = TestFolder::with(&experiment);
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    folder.succeed(&["swarm", "e.toml", "--out", "many"]);
    assert_eq!(folder.finals("many").len(), count);
    folder.assert_equal("one", "many");
    for file in ["config.toml", "table.txt", "table.tex", "report.html", "context.json"] {
        assert!(folder.path("many").join(file).exists(), "{file}");
    }
    // What was gathered is gone from the agents' folders; their final states are not.
    let left = |part: &str| std::fs::read_dir(folder.path("many/agents/3").join(part)).unwrap().count();
    assert_eq!((left("snapshots"), left("final")), (0, count));
}

#[test]
fn mini_batches_and_a_network_of_layers_too() {
    let folder = TestFolder::with(
        r#"
name = "glyphs"
rounds = 3
eval_every = 2
seeds = [3]
[network]
agents = 4
topology = "ring"
[problem]
kind = "images"
dataset = "glyphs"
model = "mnist-cnn"
batch = 8
eval_samples = 8
partition = { kind = "dirichlet", alpha = 0.5 }
[[algorithm]]
name = "mile"
step_size = 0.05
local_steps = 2
schedule = { kind = "cosine", warmup = 1 }
"#,
    );
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    folder.succeed(&["swarm", "e.toml", "--out", "many", "--set", "agent.checkpoint_every=2"]);
    folder.assert_equal("one", "many");
}

#[test]
fn edges_that_drop_do_so_at_both_ends() {
    let folder = TestFolder::with(&format!(
        "{}\n[[algorithm]]\nname = \"mile\"\nstep_size = 0.05\n[[algorithm]]\nname = \"gta-2\"\nstep_size = 0.05\ncommunications = 2\n",
        NETWORK.replace("agents = 4", "agents = 4\ndrop_rate = 0.4").replace("complete", "ring")
    ));
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    folder.succeed(&["swarm", "e.toml", "--out", "many", "--set", "agent.gossip=false"]);
    folder.assert_equal("one", "many");
}

#[test]
fn agents_stop_together_on_a_tolerance() {
    let folder = TestFolder::with(&format!("{NETWORK}\n[[algorithm]]\nname = \"mile\"\nstep_size = 0.3\n"));
    let stop = "stop={ grad_norm = 1e-3, consensus = 1e-6 }";
    let output = folder.succeed(&["swarm", "e.toml", "--out", "many", "--set", "rounds=2000", "--set", stop]);
    let table = text(&output.stdout);
    assert!(table.lines().any(|line| line.starts_with("mile") && line.ends_with("converged")), "{table}");
    let records = folder.records("many");
    let last = records.last().unwrap();
    let round = last["round"].as_u64().unwrap();
    assert!(round < 2000, "{last}");
    assert!(
        last["grad_norm_sq"].as_f64().unwrap() < 1e-5 && last["consensus_error"].as_f64().unwrap() < 1e-5
    );
    // The same number of rounds in one process is the same run.
    folder.succeed(&["run", "e.toml", "--out", "one", "--set", &format!("rounds={round}")]);
    assert_eq!(
        folder.finals("one")["mile-seed0.safetensors"].bytes,
        folder.finals("many")["mile-seed0.safetensors"].bytes
    );
    // The same rule ends one process at about the same round: agents first have to agree on it.
    folder.succeed(&["run", "e.toml", "--out", "alone", "--set", "rounds=2000", "--set", stop]);
    let alone = folder.records("alone").last().unwrap()["round"].as_u64().unwrap();
    assert!(round.abs_diff(alone) < 40, "{alone} {round}");
    for refused in [
        ["--set", "network.drop_rate=0.1"],
        ["--set", "agent.on_missing=skip-edge"],
        ["--set", "agent.gossip=false"],
    ] {
        for (key, stop) in [("stop", stop.to_owned()), ("agent.stop", format!("agent.{stop}"))] {
            let output =
                folder.mile(&[&["swarm", "e.toml", "--out", "no", "--set", &stop], &refused[..]].concat());
            assert_eq!(output.status.code(), Some(2));
            assert!(text(&output.stderr).contains(&format!("e.toml: {key}: ")), "{}", text(&output.stderr));
        }
    }
}
