//! Methods that files define: named by a `factory`, loaded when first needed, and part of what a run is compared by.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile::agents::{AgentsError, BlockFunction, BlocksMut, Failure, Step, Vector};
use mile::method::{Layout, Method, Unit};
use mile::methods::catalogue::{Catalogue, Definition, Load};
use mile_lab::advice::advise;
use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::objectives::{Facts, Kinds};
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::{Spec, parse_table};
use mile_lab::sweep::SweepPlan;

const TEXT: &str = r#"
rounds = 4
[network]
agents = 4
[problem]
kind = "quadratic"
dim = 3
[[algorithm]]
factory = "own.txt:Own"
arguments = { rate = 2 }
step_size = 0.05
"#;

/// Of a function the theory knows nothing, even if it changes nothing.
struct Same;

impl BlockFunction for Same {
    fn apply(&self, _: usize, _: BlocksMut<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// x <- W x - rate alpha grad f(x)
#[derive(Debug)]
struct Own {
    rate: f64,
}

impl Method for Own {
    fn layout(&self) -> Layout {
        Layout::new([("x".to_owned(), Unit::Fixed)], ["g".to_owned(), "d".to_owned()])
    }

    fn step(&self, step: &mut Step) -> Result<(), AgentsError> {
        let [x, g, d] = [0, 1, 2].map(Vector);
        step.gradient(x, g)?;
        step.apply(&Same, &[g])?;
        step.pull(&[(x, d)])?;
        let alpha = self.rate * step.step_size;
        step.combine(x, 1.0, &[(1.0, d), (-alpha, g)])
    }
}

/// The file holds a factor of the rate.
fn load(definition: Definition) -> Box<Load> {
    Box::new(move || {
        let factor: f64 = std::fs::read_to_string(&definition.file)?.trim().parse()?;
        let arguments: serde_json::Value = serde_json::from_str(&definition.arguments)?;
        let rate = arguments["rate"].as_f64().ok_or("no rate")?;
        Ok(Box::new(Own { rate: factor * rate }))
    })
}

fn read(folder: &Path, set: &[&str], catalogue: &Catalogue) -> Result<Spec, LabError> {
    let set: Vec<String> = set.iter().map(|one| (*one).to_owned()).collect();
    Spec::read_with(&parse_table(TEXT, &set)?, folder, &Kinds::default(), catalogue)
}

fn plan(folder: &Path, set: &[&str]) -> Plan {
    Plan::new(read(folder, set, &Catalogue::default().loading(load)).unwrap()).unwrap()
}

fn key(error: LabError) -> String {
    match error {
        LabError::Config(error) => error.key,
        other => panic!("{other}"),
    }
}

fn with_file(contents: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.txt"), contents).unwrap();
    folder
}

#[test]
fn nothing_is_loaded_before_a_plan_and_only_by_a_program_that_can() {
    let nowhere = tempfile::tempdir().unwrap();
    let spec = read(nowhere.path(), &[], &Catalogue::default()).unwrap();
    let algorithm = &spec.algorithms[0];
    assert_eq!((&*algorithm.entry.name, &*algorithm.label), ("Own", "Own"));
    let absent = Plan::new(spec.clone()).err().unwrap();
    assert!(matches!(&absent, LabError::Directory { path, .. } if path.ends_with("own.txt")), "{absent}");

    let again = Spec::parse(&spec.to_table().to_string(), Path::new("/elsewhere"), &[]).unwrap();
    assert_eq!(again, spec);

    let folder = with_file("1");
    let spec = read(folder.path(), &[], &Catalogue::default()).unwrap();
    assert_eq!(key(Plan::new(spec).err().unwrap()), "algorithm[0].factory");
    let wrong = with_file("a word");
    let spec = read(wrong.path(), &[], &Catalogue::default().loading(load)).unwrap();
    assert_eq!(key(Plan::new(spec).err().unwrap()), "algorithm[0].factory");
}

#[test]
fn what_cannot_be_is_refused_by_its_key() {
    let folder = with_file("1");
    for (set, expected) in [
        ("algorithm.0.factory=own.txt", "algorithm[0].factory"),
        ("algorithm.0.factory=own.txt:mile", "algorithm[0].factory"),
        ("algorithm.0.name=\"other\"", "algorithm[0].name"),
        ("algorithm.0.name=\"mile\"", "algorithm[0].name"),
        ("algorithm.0.arguments=3", "algorithm[0].arguments"),
        ("algorithm.0.files=[\"own-{agent}.txt\"]", "algorithm[0].files"),
        ("algorithm.0.files=3", "algorithm[0].files"),
    ] {
        let refused = read(folder.path(), &[set], &Catalogue::default().loading(load));
        assert_eq!(key(refused.err().unwrap_or_else(|| panic!("{set}"))), expected, "{set}");
    }
    let built_in = TEXT.replace("factory = \"own.txt:Own\"", "name = \"mile\"");
    assert_eq!(key(Spec::parse(&built_in, Path::new(""), &[]).err().unwrap()), "algorithm[0].arguments");
}

/// The keys of the facts that differ.
fn differences(one: &Facts, other: &Facts) -> Vec<String> {
    let keys = one.keys().chain(other.keys());
    let differ: std::collections::BTreeSet<_> = keys.filter(|key| one.get(*key) != other.get(*key)).collect();
    differ.into_iter().cloned().collect()
}

#[test]
fn agents_compare_what_is_in_the_file_and_what_it_is_made_with() {
    let facts =
        |folder: &tempfile::TempDir, set: &[&str]| plan(folder.path(), set).facts_for_agents(0).unwrap();
    let first = with_file("1");
    let own = facts(&first, &[]);
    assert_eq!(differences(&own, &facts(&with_file("1"), &[])), [""; 0], "files may lie elsewhere");
    assert_eq!(differences(&own, &facts(&with_file("2"), &[])), ["algorithm[0].factory"]);
    assert_eq!(
        differences(&own, &facts(&first, &["algorithm.0.arguments.rate=3"])),
        ["algorithm[0].arguments.rate"]
    );
    std::fs::write(first.path().join("beside.txt"), "beside").unwrap();
    let beside = facts(&first, &["algorithm.0.files=[\"beside.txt\"]"]);
    assert_eq!(differences(&own, &beside), ["algorithm[0].files[beside.txt]"]);
}

#[test]
fn a_run_goes_on_with_the_same_file_only() {
    let folder = with_file("1");
    let run = |set: &[&str], out: &Path, resume: bool| {
        let plan = plan(folder.path(), set);
        execute(&plan, out, resume, &Silent, &AtomicBool::new(false)).map(|_| ())
    };
    let state = |out: &Path| std::fs::read(out.join("final/Own-seed0.safetensors")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let (whole, parts) = (out.path().join("whole"), out.path().join("parts"));
    run(&["rounds=8"], &whole, false).unwrap();
    run(&[], &parts, false).unwrap();
    std::fs::write(folder.path().join("own.txt"), "2").unwrap();
    let changed = run(&["rounds=8"], &parts, true).unwrap_err().to_string();
    assert!(changed.contains("algorithm.factory"), "{changed}");
    std::fs::write(folder.path().join("own.txt"), "1").unwrap();
    let changed = run(&["rounds=8", "algorithm.0.arguments.rate=3"], &parts, true).unwrap_err().to_string();
    assert!(changed.contains("algorithm.arguments.rate"), "{changed}");
    run(&["rounds=8"], &parts, true).unwrap();
    assert_eq!(state(&parts), state(&whole));
}

#[test]
fn the_theory_advises_on_the_others_only() {
    let folder = with_file("1");
    let own = plan(folder.path(), &["algorithm.0.step_size=1000"]);
    assert_eq!(advise(&own).unwrap().of_algorithms, []);
    let both =
        TEXT.replace("[[algorithm]]", "[[algorithm]]\nname = \"dsgd\"\nstep_size = 1000\n[[algorithm]]");
    let table = parse_table(&both, &[]).unwrap();
    let spec = Spec::read_with(&table, folder.path(), &Kinds::default(), &Catalogue::default().loading(load))
        .unwrap();
    let advice = advise(&Plan::new(spec).unwrap()).unwrap().of_algorithms;
    assert!(!advice.is_empty() && advice.iter().all(|(label, _)| label == "dsgd"), "{advice:?}");
}

#[test]
fn arguments_can_be_swept() {
    let folder = with_file("1");
    let points = |key: &str| {
        let table = parse_table(&format!("{TEXT}[sweep]\n{key} = [1, 2]\n"), &[]).unwrap();
        let catalogue = Catalogue::default().loading(load);
        let engines = std::sync::Arc::new(mile_lab::engines::InProcess);
        let plan = SweepPlan::read_with(&table, folder.path(), &Kinds::default(), &catalogue, engines);
        let plan = plan.unwrap().unwrap();
        let rate = |point| {
            plan.plan(point).unwrap().spec.algorithms[0].factory.clone().unwrap().arguments["rate"].clone()
        };
        plan.points.iter().map(rate).collect::<Vec<_>>()
    };
    let expected = [toml::Value::from(1), toml::Value::from(2)];
    assert_eq!(points("\"arguments.rate\""), expected);
    assert_eq!(points("\"algorithm.Own.arguments.rate\""), expected);
}
