//! CSV files: what is read, and errors with file, line and column.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile::problems::Metric;
use mile_lab::execute::execute;
use mile_lab::objectives::Statistics;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::Spec;
use mile_lab::store::read_records;

const EXPERIMENT: &str = r#"
rounds = 2
[network]
agents = 2
[problem]
kind = "table"
data = "all.csv"
target = "y"
loss = "least-squares"
[[algorithm]]
name = "mile"
step_size = 0.1
"#;

const GOOD: &str = "a,b,y\n1,2,3\n4,5,6\n7,8,9\n1,0,1\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn plan(&self, set: &[&str]) -> Result<Plan, String> {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let spec = Spec::parse(EXPERIMENT, self.0.path(), &set).map_err(|e| e.to_string())?;
        Plan::new(spec).map_err(|e| e.to_string())
    }

    /// The error names these keys, files, lines, columns and values.
    #[track_caller]
    fn refuses(&self, set: &[&str], names: &[&str]) {
        let message = self.plan(set).err().unwrap_or_else(|| panic!("{set:?} was accepted"));
        for name in names {
            assert!(message.contains(name), "'{message}' does not name '{name}'");
        }
    }
}

#[track_caller]
fn refuses(text: &str, set: &[&str], names: &[&str]) {
    Folder::new(&[("all.csv", text)]).refuses(set, names);
}

#[test]
fn one_file_is_divided_and_an_intercept_added() {
    let folder = Folder::new(&[("all.csv", GOOD)]);
    assert_eq!(folder.plan(&[]).unwrap().size.dim, 2);
    assert_eq!(folder.plan(&["problem.intercept=true"]).unwrap().size.dim, 3);
    assert_eq!(folder.plan(&["problem.by=b", "network.agents=4"]).unwrap().size.dim, 1);
    assert_eq!(folder.plan(&["network.agents=1", "problem.batch=2"]).unwrap().size.dim, 2);
    assert_eq!(folder.plan(&["problem.batch={ epoch = 2 }"]).unwrap().size.dim, 2);
}

#[test]
fn a_file_for_each_agent_is_read() {
    let folder = Folder::new(&[("agent-0.csv", GOOD), ("agent-1.csv", "a,b,y\n1,1,1\n")]);
    assert_eq!(folder.plan(&["problem.data=agent-{agent}.csv"]).unwrap().size.dim, 2);
    folder.refuses(&["problem.data=agent-{agent}.csv", "network.agents=3"], &["agent-2.csv"]);
    folder.refuses(&["problem.data=agent-{agent}.csv", "problem.by=a"], &["problem.by"]);
    let other = Folder::new(&[("agent-0.csv", GOOD), ("agent-1.csv", "b,a,y\n1,1,1\n")]);
    other.refuses(&["problem.data=agent-{agent}.csv"], &["agent-1.csv", "line 1"]);
    let empty = Folder::new(&[("agent-0.csv", GOOD), ("agent-1.csv", "a,b,y\n")]);
    empty.refuses(&["problem.data=agent-{agent}.csv"], &["agent-1.csv"]);
}

#[test]
fn what_cannot_be_read_is_named_by_file_line_and_column() {
    refuses("a,b,y\n1,2,3\n1,x,3\n", &[], &["all.csv", "line 3", "b", "x"]);
    refuses("a,b,y\n1,inf,3\n", &[], &["line 2", "b"]);
    refuses("a,b,y\n1,2,3\n1,2\n", &[], &["all.csv", "line 3"]);
    refuses("a,b,y\n1,2,3,4\n", &[], &["line 2"]);
    refuses("a,b,y\n1,2,three\n", &[], &["line 2", "y", "three"]);
    refuses("a,b,Y\n1,2,3\n", &[], &["line 1", "y"]);
    refuses("a,b,y\n", &[], &["all.csv"]);
    refuses("", &[], &["all.csv"]);
    refuses(GOOD, &["problem.data=none.csv"], &["none.csv"]);
    refuses(GOOD, &["problem.by=owner"], &["problem.by", "owner"]);
    refuses(GOOD, &["problem.by=a"], &["a"]);
    refuses(GOOD, &["network.agents=9"], &["network.agents", "9", "4"]);
    refuses(GOOD, &["problem.l2=-1"], &["l2"]);
    for bad in ["0", "-1", "1.5", "half", "{ epoch = 0 }", "{ epoc = 3 }"] {
        refuses(GOOD, &[&format!("problem.batch={bad}")], &["problem.batch"]);
    }
    refuses(GOOD, &["problem.partition={ kind = \"dirichlet\", alpha = 1.0 }"], &["problem.partition"]);
}

#[test]
fn classes_are_two_and_may_be_words() {
    let logistic = "problem.loss=logistic";
    let accepts = |text: &str| Folder::new(&[("all.csv", text)]).plan(&[logistic]).map(|_| ()).unwrap();
    accepts("a,y\n1,0\n2,1\n3,0\n4,1\n");
    accepts("a,y\n1,-1\n2,1\n3,1.0\n4,1\n");
    accepts("a,y\n1,yes\n2,no\n3,no\n4,yes\n");
    refuses("a,y\n1,0\n2,1\n3,2\n", &[logistic], &["line 4", "y"]);
    refuses("a,y\n1,1\n2,1\n", &[logistic], &["y"]);
    refuses("a,y\n1,1\n2,\n", &[logistic], &["line 3", "y"]);
}

#[test]
fn missing_keys_of_a_table_are_named() {
    let text = EXPERIMENT.replace("target = \"y\"\n", "");
    let error = Spec::parse(&text, Path::new(""), &[]).err().unwrap().to_string();
    assert!(error.contains("problem.target"), "{error}");
}

#[test]
fn one_agent_needs_its_own_file_only_and_tells_what_it_has_in_common_with_others() {
    let folder =
        Folder::new(&[("1.csv", "a,b,y\n1,2,yes\n4,5,yes\n"), ("0.csv", "a,b,y\n3,2,yes\n4,1,no\n")]);
    let plan = |agent: usize, set: &[&str]| {
        let set: Vec<String> = ["problem.data={agent}.csv", "problem.loss=logistic"]
            .iter()
            .chain(set)
            .map(|s| (*s).into())
            .collect();
        let spec = Spec::parse(EXPERIMENT, folder.0.path(), &set).map_err(|e| e.to_string())?;
        Plan::for_agent(spec, agent).map_err(|e| e.to_string())
    };
    let gradient = |plan: &Plan, agent: usize| {
        let (problem, mut gradient) = (plan.problem::<f64>(0).unwrap(), [0.0; 2]);
        problem.gradient(agent, &[0.1, -0.2], &mut gradient).unwrap();
        gradient
    };
    let alone = plan(1, &[]).map(drop).unwrap_err();
    assert!(alone.contains("1.csv") && alone.contains("yes"), "{alone}");
    let classes = &["problem.classes=['no', 'yes']"];
    let all = Spec::parse(
        EXPERIMENT,
        folder.0.path(),
        &["problem.data={agent}.csv".into(), "problem.loss=logistic".into()],
    );
    let all = Plan::new(all.unwrap()).unwrap();
    for agent in 0..2 {
        let own = plan(agent, classes).unwrap();
        assert_eq!(gradient(&own, agent), gradient(&all, agent));
        assert_eq!(own.facts_for_agents(agent).unwrap()["problem.columns"].value, "a,b");
        assert_eq!(own.facts_for_agents(agent).unwrap()["problem.classes"].value, "no,yes");
    }
    std::fs::remove_file(folder.0.path().join("1.csv")).unwrap();
    plan(0, classes).unwrap();
    assert!(plan(1, classes).map(drop).unwrap_err().contains("1.csv"));
    let auto = plan(0, &["problem.classes=['no', 'yes']", "algorithm.mile.xi=auto"]).map(drop).unwrap_err();
    assert!(auto.contains("algorithm[0].xi"), "{auto}");
}

#[test]
fn a_run_directory_names_coefficients_and_agents() {
    let text = "who,a,c,y\nu,1,p,3\nv,2,q,5\nv,4,p,9\nu,3,q,7\n";
    let folder = Folder::new(&[("all.csv", text)]);
    let set = [
        "problem.by=who",
        "problem.categorical=['c']",
        "problem.standardise=true",
        "problem.intercept=true",
        "seeds=[0, 1]",
        "rounds=3",
    ];
    let (plan, run) = (folder.plan(&set).unwrap(), folder.0.path().join("run"));
    execute(&plan, &run, false, &Silent, &AtomicBool::new(false)).unwrap();
    let read = |name: &str| std::fs::read_to_string(run.join(name)).unwrap();
    let agents = "agent,source,training_rows,test_rows,training,test\n0,u,2,0,1 4,\n1,v,2,0,2-3,\n";
    assert_eq!(read("agents.csv"), agents);
    let coefficients = read("coefficients.csv");
    let rows: Vec<Vec<&str>> = coefficients.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..4], ["coefficient", "mile average", "mile seed 0", "mile seed 1"]);
    assert_eq!(rows.iter().skip(1).map(|row| row[0]).collect::<Vec<_>>(), ["a", "c=q", "intercept"]);
    let value = |row: &[&str], k: usize| row[k].parse::<f64>().unwrap();
    for row in &rows[1..] {
        assert_eq!(value(row, 1), (value(row, 2) + value(row, 3)) / 2.0);
    }
    let problem = plan.problem::<f64>(0).unwrap();
    let model: Vec<f64> = rows[1..].iter().map(|row| value(row, 2)).collect();
    assert!(problem.objective(&model).unwrap() < problem.objective(&[0.0; 3]).unwrap());
    let statistics = Statistics::read(&run.join("statistics.json")).unwrap();
    assert_eq!((statistics.columns[0].mean, statistics.columns[0].deviation()), (2.5, 1.25f64.sqrt()));
}

/// Six features, of which the second and the fifth matter.
fn sparse_rows() -> String {
    let mut text = "a,b,c,d,e,g,y\n".to_owned();
    for row in 0..48u32 {
        let feature = |k: u32| f64::from((row + 3) * (7 * k + 5) * (row + k) % 31) / 31.0 - 0.5;
        let features: Vec<f64> = (0..6).map(feature).collect();
        let noise = f64::from(row * row % 13) / 13.0 - 0.5;
        let y = 3.0 + 4.0 * features[1] - 3.0 * features[4] + 0.2 * noise;
        features.iter().for_each(|x| text += &format!("{x},"));
        text += &format!("{y}\n");
    }
    text
}

#[test]
fn coefficients_without_use_are_exactly_zero_with_l1() {
    let folder = Folder::new(&[("all.csv", &sparse_rows())]);
    let set = [
        "network.agents=4",
        "problem.l1=0.1",
        "problem.l2=0.01",
        "problem.intercept=true",
        "algorithm.mile.name=ed",
        "algorithm.ed.step_size=auto",
        "rounds=4000",
        "stop={ grad_norm = 1e-9, consensus = 1e-18 }",
    ];
    let (plan, run) = (folder.plan(&set).unwrap(), folder.0.path().join("run"));
    execute(&plan, &run, false, &Silent, &AtomicBool::new(false)).unwrap();
    let text = std::fs::read_to_string(run.join("coefficients.csv")).unwrap();
    let column = |k: usize| text.lines().skip(1).map(move |line| line.split(',').nth(k).unwrap());
    let zeros: Vec<&str> =
        column(0).zip(column(1)).filter(|(_, x)| *x == "0").map(|(name, _)| name).collect();
    assert_eq!(zeros, ["a", "c", "d", "g"], "{text}");
    let x: Vec<f64> = column(1).map(|x| x.parse().unwrap()).collect();
    let last = read_records(&run).unwrap().pop().unwrap();
    assert!(last.round < 4000 && last.grad_norm_sq.unwrap() <= 1e-18, "{last:?}");
    // A loss includes the penalty, but not on the intercept.
    let smooth: f64 = {
        let plan = folder.plan(&[&set[..1], &set[2..6]].concat()).unwrap();
        plan.problem::<f64>(0).unwrap().objective(&x).unwrap()
    };
    let expected = smooth + 0.1 * (x[1].abs() + x[4].abs());
    assert!((last.loss - expected).abs() < 1e-12, "{} {expected}", last.loss);
}

#[test]
fn methods_without_a_proximal_step_refuse_l1_before_anything_is_computed() {
    let folder = Folder::new(&[("all.csv", GOOD)]);
    let names = ["problem.l1", "algorithm[0]", "extra, ed, nids, dsgd, local-dsgd"];
    folder.refuses(&["problem.l1=0.1"], &names);
    folder.refuses(&["problem.l1=0.1", "algorithm.mile.step_size=auto"], &names);
    folder.refuses(&["problem.l1=0.1", "algorithm.mile.xi=auto"], &names);
    folder.refuses(&["problem.l1=-0.1", "algorithm.mile.name=ed"], &["l1"]);
    let resolved = |set: &[&str]| folder.plan(set).unwrap().spec.problem.get("l1").cloned();
    assert_eq!(resolved(&[]), None);
    assert_eq!(resolved(&["problem.l1=0"]), Some(0.0.into()));
    let nids = |l1: &str| folder.plan(&[l1, "algorithm.mile.name=nids"]).unwrap().methods[0].vectors_stored;
    assert_eq!((nids("problem.l1=0.0"), nids("problem.l1=0.1")), (2, 3));
}

#[test]
fn a_softmax_model_has_coefficients_for_each_class_and_is_measured_on_held_out_rows() {
    let rows: String = (0..30).map(|k| format!("{},{}\n", k % 3, ["x", "y", "z"][k % 3])).collect();
    let folder = Folder::new(&[("all.csv", &format!("a,y\n{rows}"))]);
    let set = ["problem.loss=softmax", "problem.intercept=true", "problem.test=0.2", "problem.weights=rows"];
    let (plan, run) = (folder.plan(&set).unwrap(), folder.0.path().join("run"));
    assert_eq!(plan.size.dim, 6);
    let problem = plan.problem::<f64>(0).unwrap();
    assert_eq!(problem.held_out().unwrap().metrics(), [Metric::Accuracy, Metric::TestLoss]);
    execute(&plan, &run, false, &Silent, &AtomicBool::new(false)).unwrap();
    let text = std::fs::read_to_string(run.join("coefficients.csv")).unwrap();
    let names: Vec<&str> = text.lines().map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(names, ["coefficient", "a", "intercept", "a", "intercept", "a", "intercept"]);
    assert!(text.lines().nth(3).unwrap().starts_with("y,a,"));
}

/// The numbers of rows in a cell of `agents.csv`, such as `1-3 7`.
fn numbers(cell: &str) -> Vec<usize> {
    let bounds = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    cell.split_whitespace().flat_map(bounds).collect()
}

#[test]
fn agents_csv_has_every_row_of_a_partition_once_for_each_seed_and_they_are_those_of_the_run() {
    let rows: String = (1..=40).map(|k| format!("{k},{}\n", 100 + k)).collect();
    let folder = Folder::new(&[("all.csv", &format!("a,y\n{rows}"))]);
    let set = ["problem.loss=least-squares", "problem.test=0.25", "seeds=[0, 3]", "rounds=1"];
    let (plan, run) = (folder.plan(&set).unwrap(), folder.0.path().join("run"));
    execute(&plan, &run, false, &Silent, &AtomicBool::new(false)).unwrap();
    let text = std::fs::read_to_string(run.join("agents.csv")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["seed", "agent", "source", "training_rows", "test_rows", "training", "test"]);
    let of = |seed: &str| lines.iter().filter(|line| line[0] == seed).collect::<Vec<_>>();
    for seed in ["0", "3"] {
        let [training, test] =
            [5, 6].map(|k| of(seed).iter().map(|line| numbers(line[k])).collect::<Vec<_>>());
        let counts = |k: usize| of(seed).iter().map(|line| line[k].parse().unwrap()).collect::<Vec<usize>>();
        assert_eq!((counts(3), counts(4)), (lengths(&training), lengths(&test)));
        assert_eq!(test.concat().len(), 10);
        let mut all = [training.concat(), test.concat()].concat();
        all.sort_unstable();
        assert_eq!(all, (1..=40).collect::<Vec<_>>(), "seed {seed}");
        // The only feature of row k is k: the gradient at 0 is the mean of -k (100 + k) over an agent's rows.
        let problem = plan.problem::<f64>(seed.parse().unwrap()).unwrap();
        for (agent, rows) in training.iter().enumerate() {
            let mut gradient = [0.0];
            problem.gradient(agent, &[0.0], &mut gradient).unwrap();
            let sum: usize = rows.iter().map(|k| k * (100 + k)).sum();
            let expected = -(sum as f64) / rows.len() as f64;
            assert!((gradient[0] - expected).abs() < 1e-9 * expected.abs(), "{gradient:?} {expected}");
        }
    }
    let part = |seed: &str, k: usize| of(seed).iter().map(|line| line[k].to_owned()).collect::<Vec<_>>();
    assert_ne!(part("0", 5), part("3", 5), "the seed of the run divides the rows");
    assert_eq!(part("0", 6), part("3", 6), "all runs are measured on the same rows");
}

fn lengths(lists: &[Vec<usize>]) -> Vec<usize> {
    lists.iter().map(Vec::len).collect()
}

#[test]
fn a_partition_is_shown_only_where_a_file_is_divided() {
    let folder = Folder::new(&[("all.csv", GOOD), ("0.csv", GOOD), ("1.csv", GOOD)]);
    let shown = |set: &[&str]| folder.plan(set).unwrap().spec.problem.get("partition").cloned();
    assert!(shown(&[]).is_some());
    assert_eq!(shown(&["problem.by=b", "network.agents=4"]), None);
    assert_eq!(shown(&["problem.data={agent}.csv"]), None);
    assert_eq!(shown(&["problem.data={agent}.csv", "problem.partition={ kind = 'iid' }"]), None);
    folder.refuses(&["problem.data={agent}.csv", "problem.partition=iid"], &["problem.partition"]);
}

#[test]
fn a_note_says_when_all_seeds_give_the_same_run() {
    let rows: String = (0..24).map(|k| format!("{},{k},{}\n", k % 3, k * k % 7)).collect();
    let folder = Folder::new(&[("all.csv", &format!("b,a,y\n{rows}"))]);
    let has_note = |set: &[&str]| {
        let plan = folder.plan(&[&["network.agents=3", "seeds=[0, 1]"], set].concat()).unwrap();
        mile_lab::advice::advise(&plan).unwrap().notes.iter().any(|note| note.contains("seeds"))
    };
    assert!(has_note(&["problem.by=b"]));
    assert!(has_note(&["problem.seed=4"]));
    for set in [
        &[][..],
        &["problem.by=b", "seeds=[3]"],
        &["problem.by=b", "problem.batch=2"],
        &["problem.by=b", "network.drop_rate=0.1"],
        &["problem.by=b", "start.value=random"],
        &["problem.by=b", "algorithm.mile.name=proxskip"],
    ] {
        assert!(!has_note(set), "{set:?}");
    }
}

#[test]
fn a_parameter_of_another_loss_is_named_with_its_loss() {
    let folder = Folder::new(&[("all.csv", GOOD)]);
    for (loss, key, own, of) in [
        ("welsch", "delta", "problem.c=1.0", "huber"),
        ("huber", "c", "problem.delta=1.0", "welsch"),
        ("least-squares", "delta", "problem.l2=0.1", "huber"),
    ] {
        let given = format!("problem.{key}=0.5");
        let loss = format!("problem.loss={loss}");
        folder.refuses(&[&loss, &given], &[&format!("problem.{key}"), of]);
        folder.refuses(&[&loss, &given, own], &[&format!("problem.{key}"), of]);
        assert!(folder.plan(&[&loss, own]).is_ok());
    }
}

#[test]
fn losses_of_least_squares_are_counted_by_the_rows_of_their_normal_equations() {
    // A gradient is a product with a matrix of 3 x 3 numbers, and so is a loss on an agent's rows, held out or not.
    let rows: String = (0..4000).map(|k| format!("{},{},{}\n", k % 7, k % 11, k % 5)).collect();
    let folder = Folder::new(&[("all.csv", &format!("a,b,y\n{rows}"))]);
    for (test, parts) in [("problem.l2=0.0", 1.0), ("problem.test=0.9", 2.0)] {
        let plan = folder.plan(&["rounds=2000", "eval_every=1", "problem.intercept=true", test]).unwrap();
        // Three models on 3 rows of two agents in a record, ten gradients of two agents with 3 rows in a round. On rows of three numbers a
        // loss costs 51.5 of them and a gradient 8.
        let (evaluation, round) = (51.5 / 8.0 * 3.0 * 6.0 * parts + 6.0, 60.0);
        let expected = 2001.0 * evaluation / (2001.0 * evaluation + 2000.0 * round);
        assert!((plan.evaluation.share - expected).abs() < 1e-6, "{} {expected}", plan.evaluation.share);
    }
}
