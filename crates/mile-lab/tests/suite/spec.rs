//! Errors in experiment files name the key.

use std::path::Path;

use mile::real::Precision;
use mile_lab::error::LabError;
use mile_lab::plan::Plan;
use mile_lab::spec::{Spec, parse_table};
use mile_theory::weights::WeightChoice;

const GOOD: &str = r#"
name = "small"
seeds = [0, 4]
rounds = 6
[network]
agents = 5
topology = "small-world"
degree = 2
[problem]
kind = "quadratic"
dim = 3
[[algorithm]]
name = "mile"
step_size = 0.1
tau = 4
xi = "paper"
[[algorithm]]
name = "led"
lr = 0.1
schedule = { kind = "cosine", warmup = 2 }
[[algorithm]]
name = "dsgd"
step_size = 0.1
variant = "cta"
"#;

fn parse(text: &str, set: &[&str]) -> Result<Plan, String> {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let spec = Spec::parse(text, Path::new(""), &set).map_err(|error| error.to_string())?;
    Plan::new(spec).map_err(|error| error.to_string())
}

/// The error names these keys and values.
#[track_caller]
fn refused(set: &str, names: &[&str]) {
    let message = parse(GOOD, &[set]).err().unwrap_or_else(|| panic!("{set} was accepted"));
    for name in names {
        assert!(message.contains(name), "{set}: '{message}' does not name '{name}'");
    }
}

#[test]
fn a_good_file_is_read_with_its_aliases_and_defaults() {
    let plan = parse(GOOD, &[]).unwrap();
    let spec = &plan.spec;
    assert_eq!((spec.rounds, spec.eval_every(), spec.precision), (6, 1, Precision::F64));
    assert_eq!(spec.algorithms[0].parameters.local_steps, Some(4));
    assert_eq!(spec.algorithms[0].xi, Some(WeightChoice::Paper));
    assert_eq!(plan.methods[0].parameters.xi, Some((0.9 * 2.0 / 7.0).into()));
    assert_eq!(spec.algorithms[1].parameters.local_steps, Some(10));
    assert_eq!(plan.jobs().len(), 6);
}

#[test]
fn the_resolved_file_is_the_same_experiment() {
    let first = parse(GOOD, &["network.drop_rate=0.1", "network.time_varying=matchings"]).unwrap().spec;
    let again = Spec::parse(&first.to_table().to_string(), Path::new("/elsewhere"), &[]).unwrap();
    assert_eq!(first, again);
    assert_eq!(format!("{:?}", first.algorithms), format!("{:?}", again.algorithms));
    assert_eq!(first.network, again.network);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    refused("round=3", &["round", "rounds"]);
    refused("sweeep={ rounds = [1, 2] }", &["sweeep", "did you mean sweep"]);
    refused("network.topolgy=ring", &["network.topolgy", "topology"]);
    refused("algorithm.mile.step=1", &["algorithm[0].step", "step_size"]);
    refused("algorithm.led.xi=0.1", &["algorithm[1].xi"]);
    refused("problem.condtion=3", &["condition"]);
    refused("start.valeu=zeros", &["value"]);
    refused("algorithm=[{ name = \"mile\", stepsize = 1 }]", &["stepsize", "step_size"]);
    refused("algorithm.led.schedule.warm=3", &["algorithm[1].schedule.warm", "warmup"]);
}

#[test]
fn wrong_values_are_refused_with_what_was_expected_and_given() {
    refused("rounds=many", &["rounds", "many"]);
    refused("rounds=-1", &["rounds", "-1"]);
    refused("eval_every=0", &["eval_every", "0"]);
    refused("stop={}", &["stop", "grad_norm", "none of them"]);
    refused("algorithm={ name = 'mile' }", &["algorithm", "[algorithm]"]);
    refused("seeds=[1, 1]", &["seeds"]);
    refused("seeds=[]", &["seeds"]);
    refused("seeds=3", &["seeds", "3"]);
    refused("precision=f16", &["precision", "f16"]);
    refused("name=a/b", &["name"]);
    refused("network.agents=0", &["network.agents", "0"]);
    refused("network.agents=ten", &["network.agents", "ten"]);
    refused("network.topology=rng", &["network.topology", "rng", "ring"]);
    refused("network.drop_rate=1", &["network.drop_rate", "[0, 1)"]);
    refused("network.time_varying=weekly", &["network.time_varying", "weekly"]);
    refused("network.time_varying=[1]", &["network.time_varying"]);
    let own = |weights: &str| format!("network={{ agents = 3, time_varying = {{ weights = {weights} }} }}");
    refused(&own("[]"), &["network.time_varying.weights"]);
    refused(&own("[[[0, 1]]]"), &["network.time_varying.weights"]);
    refused(&own("['nowhere.txt']"), &["nowhere.txt"]);
    refused(&own("[[[0, 1, 0.5]], [[1, 5, 0.5]]]"), &["network.time_varying.weights[1]", "5"]);
    refused(&own("[[[0, 1, 0.6], [1, 2, 0.6]]]"), &["network.time_varying.weights[0]", "1.2"]);
    refused(&own("[[[0, 1, 0.5]]]"), &["network.time_varying"]);
    refused(
        "network={ agents = 3, time_varying = { weigths = [[[0, 1, 0.5]]] } }",
        &["network.time_varying.weigths", "weights"],
    );
    refused(
        &own("[[[0, 1, 0.5]]] }, topology = \"ring\", absence = { begin = 0.1, end = 0.1"),
        &["network.topology"],
    );
    refused("network={ agents = 5, time_varying = \"one-peer-hypercube\" }", &["network.agents", "5"]);
    refused("network={ agents = 5, time_varying = \"base-k\", mixing = \"fdla\" }", &["network.mixing"]);
    refused("network={ agents = 5, time_varying = \"base-k\", topology = \"ring\" }", &["network.topology"]);
    refused("network={ agents = 5, time_varying = \"base-k\", degree = 0 }", &["network.degree", "0"]);
    for varying in ["network.drop_rate=0.1", "network.time_varying=matchings"] {
        let error = parse(GOOD, &[varying, "event=[{ round = 3, replace = 1 }]"]).err().unwrap();
        assert!(error.contains("event[0]"), "{error}");
        assert!(error.contains("network.drop_rate"), "{error}");
    }
    refused("network.time_varying=['nowhere.csv']", &["nowhere.csv"]);
    refused("network={ agents = 5, topology = \"hypercube\" }", &["hypercube"]);
    refused("network={ topology = \"file\" }", &["network.edges"]);
    refused("problem.kind=quadrtic", &["quadratic"]);
    refused("problem.condition=0.5", &["problem.condition", "0.5"]);
    refused("problem.dim=0", &["problem.dim", "0"]);
    refused("algorithm.mile.name=mlie", &["algorithm[0].name", "mlie", "mile"]);
    refused("algorithm.mile.name=mind", &["mind"]);
    refused("algorithm.mile.step_size=0", &["algorithm[0].step_size", "0"]);
    refused("algorithm.mile.step_size=fast", &["algorithm[0].step_size", "fast"]);
    refused("algorithm.mile.lr=0.1", &["step_size"]);
    refused("algorithm.mile.local_steps=3", &["local_steps"]);
    refused("algorithm.mile.tau=0", &["algorithm[0].local_steps", "0"]);
    refused("algorithm.mile.tau=[3, 0, 1, 1, 1]", &["algorithm[0].local_steps", "0"]);
    refused("algorithm.mile.tau=[]", &["algorithm[0].local_steps"]);
    refused("algorithm.mile.tau=[3, 2]", &["algorithm[0].local_steps", "5"]);
    refused("algorithm.dsgd.local_steps=[1, 2, 1, 1, 1]", &["algorithm[2].local_steps"]);
    refused("algorithm.mile.xi={ from = 0.1, to = 0.2 }", &["algorithm[0].xi.rounds"]);
    refused("algorithm.mile.xi={ from = 0.1, to = 0.2, round = 5 }", &["algorithm[0].xi.round", "rounds"]);
    refused("algorithm.mile.xi={ from = 0, to = 0.2, rounds = 5 }", &["algorithm[0].xi", "0"]);
    refused("algorithm.mile.xi={ from = 0.1, to = 0.2, rounds = 0 }", &["algorithm[0].xi.rounds"]);
    refused("algorithm.mile.xi={ adaptive = 0 }", &["algorithm[0].xi", "0"]);
    refused("algorithm.mile.xi={ adaptiv = 0.1 }", &["algorithm[0].xi.from"]);
    refused("algorithm.mile.momentum=1", &["algorithm[0].momentum", "1", "[0, 1)"]);
    refused("algorithm.mile.nesterov=true", &["algorithm[0].nesterov"]);
    refused("algorithm.mile.nesterov=3", &["algorithm[0].nesterov", "3"]);
    refused("algorithm.mile.xi=2", &["algorithm[0].xi", "2"]);
    refused("algorithm.mile.xi=best", &["algorithm[0].xi", "best", "paper", "auto", "adaptive"]);
    refused("algorithm.dsgd.local_steps=3", &["algorithm[2].local_steps", "3"]);
    refused("algorithm.dsgd.variant=abc", &["algorithm[2].variant"]);
    refused("algorithm.dsgd.label=led", &["algorithm[2].label"]);
    refused("algorithm.led.schedule.floor=0", &["algorithm[1].schedule.floor"]);
    refused("network.topology=ring", &["network.degree"]);
    refused("algorithm.led.name=scaffold", &["network", "algorithm[1]", "complete"]);
}

#[test]
fn the_number_of_test_samples_is_checked_against_the_test_set() {
    let images = |test_samples: &str| {
        let set =
            format!("problem={{ kind = \"images\", model = \"linear\", test_samples = {test_samples} }}");
        parse(GOOD, &[&set])
    };
    for got in ["0", "2001", "\"some\"", "1.5"] {
        let message = images(got).err().unwrap_or_else(|| panic!("{got} was accepted"));
        assert!(message.contains("problem.test_samples") && message.contains(got), "{message}");
    }
    let kept = |test_samples: &str| {
        let resolved = images(test_samples).unwrap().spec.to_table();
        resolved["problem"].get("test_samples").and_then(toml::Value::as_integer)
    };
    assert_eq!((kept("2000"), kept("7"), kept("\"all\"")), (Some(2000), Some(7), None));
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_its_line() {
    let message = parse("name = \"x\"\nrounds = = 3\n", &[]).err().unwrap();
    assert!(message.starts_with("line 2"), "{message}");
    let message = parse("rounds = 3", &[]).err().unwrap();
    assert!(message.contains("problem.kind"), "{message}");
    let message = parse("[problem]\nkind = 'quadratic'", &[]).err().unwrap();
    assert!(message.contains("algorithm"), "{message}");
}

#[test]
fn networks_from_files_are_read_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    file("edges.txt", "0 1\n1 2\n2 3\n3 4\n");
    file("apart.txt", "0 1\n2 3\n3 4\n");
    file("bad.txt", "0 1\n1 9\n");
    file("matrix.txt", "0.5 0.5 0 0 0\n0.5 0 0.5 0 0\n0 0.5 0 0.5 0\n0 0 0.5 0 0.5\n0 0 0 0.5 0.5\n");
    file("skew.txt", "0.5 0.5 0 0 0\n0.4 0.1 0.5 0 0\n0 0.5 0 0.5 0\n0 0 0.5 0 0.5\n0 0 0 0.5 0.5\n");
    let text = GOOD.replace("topology = \"small-world\"\ndegree = 2", "topology = \"file\"");
    let read = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let spec = Spec::parse(&text, folder.path(), &set).map_err(|error| error.to_string())?;
        Plan::new(spec).map_err(|error| error.to_string())
    };
    let matrix = |name: &'static str| ["network.edges=edges.txt", "network.mixing=file", name];
    assert!(read(&["network.edges=edges.txt"]).is_ok());
    assert!(read(&matrix("network.matrix=matrix.txt")).is_ok());
    for (set, expected) in [
        (vec!["network.edges=apart.txt"], "network"),
        (vec!["network.edges=bad.txt"], "bad.txt"),
        (vec!["network.edges=none.txt"], "none.txt"),
        (matrix("network.matrix=skew.txt").to_vec(), "w[0][1]"),
        (vec!["network.edges=edges.txt", "network.mixing=file"], "network.matrix"),
    ] {
        let message = read(&set).err().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn graphs_with_weights_of_their_own_come_from_files_or_stand_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    file("even.txt", "0 1 0.5\n2, 3, 0.25  # agent 4 has no neighbour\n");
    file("odd.txt", "# a second round\n1 2 0.5\n4 0 0.125\n");
    file("bad.txt", "0 1 0.5\n1 2\n");
    let read = |weights: &str| {
        let set = format!("network={{ agents = 5, time_varying = {{ weights = {weights} }} }}");
        let spec = Spec::parse(GOOD, folder.path(), &[set]).map_err(|error| error.to_string())?;
        Plan::new(spec).map_err(|error| error.to_string())
    };
    let from_files = read("['even.txt', 'odd.txt']").unwrap();
    let inline = read("[[[0, 1, 0.5], [3, 2, 0.25]], [[1, 2, 0.5], [0, 4, 0.125]]]").unwrap();
    for plan in [&from_files, &inline] {
        let weights = |round| {
            [(0, 1), (2, 3), (1, 2), (4, 0)].map(|edge| plan.network().weight_in_round(0, edge, round))
        };
        assert_eq!(weights(0), [Some(0.5), Some(0.25), None, None]);
        assert_eq!((weights(1), weights(2)), ([None, None, Some(0.5), Some(0.125)], weights(0)));
        let written = plan.spec.to_table().to_string();
        assert_eq!(Spec::parse(&written, Path::new("/elsewhere"), &[]).unwrap(), plan.spec);
    }
    // Agents with one of them may have the other, in a separate folder; with other weights they may not.
    let other = read("[[[0, 1, 0.5], [3, 2, 0.25]], [[1, 2, 0.5], [0, 4, 0.25]]]").unwrap();
    let differing =
        |key: &str| other.facts_for_agents(0).unwrap()[key] != inline.facts_for_agents(0).unwrap()[key];
    assert!(differing("network.time_varying") && !differing("network.agents"));
    assert_eq!(from_files.facts_for_agents(0).unwrap(), inline.facts_for_agents(0).unwrap());
    assert!(read("['even.txt', 'bad.txt']").err().unwrap().contains("bad.txt"));
    assert!(read("['even.txt']").err().unwrap().contains("network.time_varying"), "not connected");
}

#[test]
fn edges_and_weights_may_stand_in_the_file() {
    let inline = |extra: &str| {
        let edges = "topology = \"file\"\nedges = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]";
        parse(&GOOD.replace("topology = \"small-world\"\ndegree = 2", &format!("{edges}\n{extra}")), &[])
    };
    let plan = inline("").unwrap();
    assert_eq!(plan.network().graph().edges().count(), 5);
    assert_eq!(plan.network().mixing().weight(0, 4), 1.0 / 3.0);
    let weights = |last: &str| {
        inline(&format!(
            "mixing = \"file\"\nmatrix = [[1, 0, 0.2], [1, 2, 0.3], [2, 3, 0.25], [3, 4, 0.25], {last}]"
        ))
    };
    let plan = weights("[4, 0, 0.1]").unwrap();
    assert_eq!([(0, 1), (2, 1), (4, 0)].map(|(i, j)| plan.network().mixing().weight(i, j)), [0.2, 0.3, 0.1]);
    assert!((plan.network().mixing().weight(0, 0) - 0.7).abs() < 1e-15);
    let said = |result: Result<Plan, String>| result.err().expect("refused");
    assert!(said(weights("[0, 2, 0.1]")).contains("network.matrix"));
    assert!(said(weights("[0, 1, 0.1]")).contains("network.matrix"), "an edge is given once");
    assert!(said(weights("[0, 9, 0.1]")).contains("network.matrix"));
    assert!(said(inline("mixing = \"file\"\nmatrix = 3")).contains("network.matrix"));
}

#[test]
fn a_method_that_was_added_is_known_to_its_catalogue_only() {
    use mile::methods::catalogue::{self, Catalogue, Entry, Parameters};
    use mile_lab::objectives::Kinds;
    let own = |name: &str| {
        Entry::own(name, |_, network, seed| {
            catalogue::find("dsgd").expect("built in").build(&Parameters::default(), network, seed)
        })
    };
    let table = parse_table(&GOOD.replace("name = \"led\"", "name = \"my-dsgd\""), &[]).unwrap();
    let read = |catalogue: &Catalogue| Spec::read_with(&table, Path::new(""), &Kinds::default(), catalogue);
    let key = |error: LabError| match error {
        LabError::Config(error) => error.key,
        other => panic!("{other}"),
    };
    let with = Catalogue::default().with(own("my-dsgd").with_title("My DSGD")).unwrap();
    let plan = Plan::new(read(&with).unwrap()).unwrap();
    assert_eq!(plan.spec.algorithms[1].entry.title, "My DSGD");
    assert_eq!(key(read(&Catalogue::default()).expect_err("not in this catalogue")), "algorithm[1].name");
    let any = read(&Catalogue::default().or_any()).unwrap();
    assert_eq!(key(Plan::new(any).err().expect("its code is not known")), "algorithm[1].name");
    let taken = Catalogue::default().with(own("mile")).unwrap_err();
    assert_eq!((taken.parameter, &*taken.got), ("name", "mile"));
}
