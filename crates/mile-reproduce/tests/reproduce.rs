//! All reproductions at a small scale: that they run, keep their results, can be resumed, and state what they found.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use mile_lab::engines::{Engines, InProcess};
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::store::{Outcome, read_outcomes, read_records};
use mile_lab::sweep::{ObserverFactory, Point};
use mile_lab::table::number;
use mile_reproduce::{Finding, Request, Scale, check_dataset, fig1, fig2, table1, theorems};

fn silent<'x>(_: Option<(usize, &'x Point)>, _: &'x Plan) -> Box<dyn Observer + 'x> {
    Box::new(Silent)
}

fn in_process() -> &'static Arc<dyn Engines> {
    static ENGINES: OnceLock<Arc<dyn Engines>> = OnceLock::new();
    ENGINES.get_or_init(|| Arc::new(InProcess))
}

fn request<'a>(out: &'a Path, set: &'a [String], stop: &'a AtomicBool) -> Request<'a> {
    Request {
        scale: Scale::Quick,
        dataset: None,
        out,
        set,
        engines: in_process(),
        observers: &silent,
        say: &|_| (),
        stop,
    }
}

fn small() -> Vec<String> {
    ["problem.dataset=glyphs", "problem.model=linear", "problem.eval_samples=5", "problem.test_samples=20"]
        .into_iter()
        .chain(["rounds=4", "eval_every=2"])
        .map(str::to_owned)
        .collect()
}

fn outcomes(folder: &Path) -> Vec<Outcome> {
    read_outcomes(folder).unwrap()
}

#[test]
fn table_1_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let set = ["rounds=1200".to_owned(), "eval_every=1200".to_owned()];
    let finding = table1(&request(folder.path(), &set, &AtomicBool::new(false))).unwrap();
    for sentence in ["K-GT                  2 / 2   3 / 3", "MILE                  1 / 1   2 / 2"] {
        assert!(finding.text.contains(sentence), "{sentence}\n{}", finding.text);
    }
    for outcome in outcomes(&folder.path().join("nonconvex")) {
        let reached = outcome.last.consensus_error < 1e-20;
        assert_eq!(reached, outcome.label != "local DSGD*", "{}", outcome.label);
    }
    for file in ["finding.txt", "report.html", "table.txt", "table.tex", "nonconvex/figures/overview.png"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
}

#[test]
fn figure_1_is_drawn_with_its_scale_on_it_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (set, go) = (small(), AtomicBool::new(false));
    let finding = fig1(&request(folder.path(), &set, &go)).unwrap();
    assert!(finding.text.contains("MILE ("), "{}", finding.text);
    let svg = std::fs::read_to_string(folder.path().join("figures/fig1-mnist.svg")).unwrap();
    assert!(
        svg.contains("problem.dataset=glyphs")
            && svg.contains("Figure 1, glyphs")
            && svg.contains("20 test images")
    );
    let small = std::fs::read_to_string(folder.path().join("figures/fig1-mnist-rounds.svg")).unwrap();
    assert!(small.contains("relative to MILE"));
    assert!(folder.path().join("cifar10/metrics.jsonl").exists());
    let before = std::fs::read(folder.path().join("mnist/metrics.jsonl")).unwrap();
    fig1(&request(folder.path(), &set, &go)).unwrap();
    assert_eq!(
        std::fs::read(folder.path().join("mnist/metrics.jsonl")).unwrap(),
        before,
        "nothing is run again"
    );
}

#[test]
fn methods_are_compared_where_they_have_sent_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = small();
    set.push("rounds=5".into());
    let finding = fig1(&request(folder.path(), &set, &AtomicBool::new(false))).unwrap();
    let records = read_records(&folder.path().join("mnist")).unwrap();
    let at = |label: &str, round: u64| records.iter().find(|r| r.label == label && r.round == round).unwrap();
    // After five rounds MILE has sent less than K-GT after four, so it is K-GT's second round that counts.
    let (mile, baseline) = (at("MILE", 4), at("K-GT", 2));
    assert_eq!(mile.bytes_sent, baseline.bytes_sent);
    let expected = format!(
        "when each has sent {} MB: MILE ({}) is",
        number(mile.bytes_sent as f64 / 1e6),
        number(mile.loss)
    );
    assert!(finding.text.contains(&expected), "{expected}\n{}", finding.text);
    assert!(finding.text.contains(&format!("K-GT ({})", number(baseline.loss))), "{}", finding.text);
}

#[test]
fn what_the_user_sets_holds_for_the_search_but_not_its_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = small();
    set.push("seeds=[7]".into());
    fig2(&request(folder.path(), &set, &AtomicBool::new(false))).unwrap();
    let config = |path: &str| -> toml::Table {
        std::fs::read_to_string(folder.path().join("mnist").join(path)).unwrap().parse().unwrap()
    };
    let point =
        std::fs::read_dir(folder.path().join("mnist/search/points")).unwrap().next().unwrap().unwrap();
    let search = config(&format!("search/points/{}/config.toml", point.file_name().to_string_lossy()));
    assert_eq!(search["rounds"].as_integer(), Some(4));
    assert_ne!(search["seeds"], toml::Value::from(vec![7]));
    assert_eq!(config("best/config.toml")["seeds"], toml::Value::from(vec![7]));
}

#[test]
fn the_theorems_are_whole_whatever_is_asked_for_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let finding = theorems(&request(folder.path(), &[], &AtomicBool::new(true))).unwrap();
    assert!(!finding.stopped, "{}", finding.text);
}

#[test]
fn a_data_set_is_asked_for_where_there_is_one() {
    assert!(check_dataset(Scale::Paper, Some("cifar10")).is_ok());
    let message = check_dataset(Scale::Quick, Some("cifar10")).unwrap_err().to_string();
    assert!(message.contains("dataset: "), "{message}");
}

#[test]
fn figure_2_searches_runs_the_best_and_continues_after_an_interruption() {
    struct StopAt(&'static AtomicBool);
    impl Observer for StopAt {
        fn ended(&self, _: Job, _: &Outcome) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (set, go) = (small(), AtomicBool::new(false));
    let expected: Finding = fig2(&request(whole.path(), &set, &go)).unwrap();
    assert!(!expected.stopped && !expected.text.is_empty());
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let observers: Box<ObserverFactory> =
        Box::new(
            move |point, _| {
                if point.is_some_and(|(k, _)| k == 3) { Box::new(StopAt(stop)) } else { Box::new(Silent) }
            },
        );
    let half = fig2(&Request {
        scale: Scale::Quick,
        dataset: None,
        out: parts.path(),
        set: &set,
        engines: in_process(),
        observers: &observers,
        say: &|_| (),
        stop,
    })
    .unwrap();
    assert!(half.stopped && half.text.contains("4 of 21"), "{}", half.text);
    assert!(half.stopped && !parts.path().join("mnist/best").exists());
    let finding = fig2(&request(parts.path(), &set, &go)).unwrap();
    assert!(!finding.stopped);
    let last = |folder: &Path| -> Vec<(String, f64)> {
        outcomes(&folder.join("mnist/best")).into_iter().map(|o| (o.label, o.last.local_loss)).collect()
    };
    assert_eq!(last(parts.path()), last(whole.path()));
    assert_eq!(last(whole.path()).len(), 7);
}
