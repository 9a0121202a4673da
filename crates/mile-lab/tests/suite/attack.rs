//! Experiments with malicious agents: whose results they have, and what is refused.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::record::Record;
use mile_lab::spec::Spec;
use mile_lab::store::read_records;

const EXPERIMENT: &str = r#"
rounds = 40
eval_every = 10
[network]
agents = 6
topology = "complete"
mixing = "lazy-metropolis"
[problem]
kind = "quadratic"
dim = 7
[start]
value = "zeros"
[attack]
agents = [4, 1]
kind = "slow"
[[algorithm]]
name = "local-dsgd"
step_size = 0.1
local_steps = [4, 1, 2, 4, 3, 4]
exchange = { robust = "clip", byzantine = 2 }
[[algorithm]]
name = "local-dsgd"
label = "trimmed"
step_size = 0.1
exchange = { robust = "trimmed-mean", byzantine = 2 }
[[algorithm]]
name = "mile"
step_size = 0.1
local_steps = 4
exchange = { robust = "clip", threshold = 0.5 }
"#;

fn spec(set: &[&str]) -> Result<Spec, LabError> {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    Spec::parse(EXPERIMENT, Path::new(""), &set)
}

fn records(plan: &Plan, folder: &Path, resume: bool) -> Vec<Record> {
    execute(plan, folder, resume, &Silent, &AtomicBool::new(false)).unwrap();
    let mut records = read_records(folder).unwrap();
    records.iter_mut().for_each(|record| record.wall_s = 0.0);
    records
}

#[test]
fn results_are_those_of_the_honest_agents_and_of_their_objectives() {
    let plan = Plan::new(spec(&[]).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let found = records(&plan, &folder.path().join("run"), false);
    let problem = plan.problem::<f64>(0).unwrap();
    let loss = |agents: &[usize]| {
        let sum: f64 = agents.iter().map(|agent| problem.loss(*agent, &[0.0; 7]).unwrap()).sum();
        sum / agents.len() as f64
    };
    // MILE makes a local step before its first round.
    for record in found.iter().filter(|record| record.round == 0 && record.label != "mile") {
        assert!((record.loss - loss(&[0, 2, 3, 5])).abs() < 1e-12, "{}", record.label);
        assert!((record.loss - loss(&[0, 1, 2, 3, 4, 5])).abs() > 1e-6);
    }
    assert!(found.iter().all(|record| record.loss.is_finite()) && found.len() == 3 * 5);
    // Other attackers, and another attack, have other results; the same have the same, also when resumed.
    let other = Plan::new(spec(&["attack.kind=alie"]).unwrap()).unwrap();
    assert_ne!(found.last(), records(&other, &folder.path().join("other"), false).last());
    let shorter = Plan::new(spec(&["rounds=20"]).unwrap()).unwrap();
    records(&shorter, &folder.path().join("resumed"), false);
    let resumed = records(&plan, &folder.path().join("resumed"), true);
    for record in &found {
        assert!(resumed.contains(record), "{} at round {}", record.label, record.round);
    }
    let error =
        execute(&other, &folder.path().join("run"), true, &Silent, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("attack.kind"), "{error}");
}

#[test]
fn what_an_attack_and_a_robust_exchange_are_is_written_and_read_back() {
    let first = spec(&["attack.strength=2.5"]).unwrap();
    let written = first.to_table();
    assert_eq!(written["attack"]["agents"].to_string(), "[1, 4]");
    assert_eq!(Spec::read(&written, Path::new("")).unwrap(), first);
    let exchanges: Vec<String> =
        written["algorithm"].as_array().unwrap().iter().map(|table| table["exchange"].to_string()).collect();
    let expected = [
        "{ robust = \"clip\", byzantine = 2 }",
        "{ robust = \"trimmed-mean\", byzantine = 2 }",
        "{ robust = \"clip\", threshold = 0.5 }",
    ];
    for (found, expected) in exchanges.iter().zip(expected) {
        let table = |text: &str| format!("x = {text}").parse::<toml::Table>().unwrap();
        assert_eq!(table(found), table(expected));
    }
}

#[test]
fn mistakes_are_named_by_their_key() {
    for (set, key) in [
        ("attack.agents=[]", "attack.agents"),
        ("attack.agents=[6]", "attack.agents"),
        ("attack.agents=[1, 1]", "attack.agents"),
        ("attack.agents=[0, 1, 2, 3, 4, 5]", "attack.agents"),
        ("attack.kind=flip", "attack.kind"),
        ("attack.strength=0", "attack.strength"),
        ("attack.strenght=1", "attack.strenght"),
        ("event=[{ round = 5, replace = 2 }]", "attack"),
        ("algorithm.local-dsgd.exchange={ robust = \"clip\" }", "algorithm[0].exchange.byzantine"),
        ("algorithm.local-dsgd.exchange={ byzantine = 1 }", "algorithm[0].exchange.robust"),
        ("algorithm.local-dsgd.exchange=clip", "algorithm[0].exchange"),
        ("algorithm.local-dsgd.exchange=pairs", "algorithm[0].exchange"),
        ("algorithm.mile.exchange=2", "algorithm[2].exchange"),
        (
            "algorithm.local-dsgd.exchange={ robust = \"clip\", byzantine = 1, threshold = 1 }",
            "algorithm[0].exchange.threshold",
        ),
        (
            "algorithm.local-dsgd.exchange={ robust = \"trimmed-mean\", byzantine = 1, threshold = 1 }",
            "algorithm[0].exchange.threshold",
        ),
    ] {
        let error = spec(&[set]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key}:")), "{set}: {error}");
    }
    // What a plan finds.
    for (set, key) in [
        ("algorithm.local-dsgd.exchange={ robust = \"clip\", byzantine = 3 }", "algorithm[0].exchange"),
        ("algorithm.mile.exchange={ robust = \"clip\", byzantine = 1 }", "algorithm[2].exchange"),
        ("algorithm.mile.exchange=pairs", "algorithm[2].exchange"),
        ("algorithm.mile.exchange={ robust = \"clip\", threshold = 0 }", "algorithm[2].exchange.threshold"),
    ] {
        let error = Plan::new(spec(&[set]).unwrap()).err().expect("a refusal").to_string();
        assert!(error.starts_with(key), "{set}: {error}");
    }
    let error = Plan::for_agent(spec(&[]).unwrap(), 0).err().expect("a refusal").to_string();
    assert!(error.starts_with("attack: "), "{error}");
}
