//! Modelled time, bursts of loss and absent agents, from the file to the report.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile_lab::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::plot::{Runs, figures};
use mile_lab::quantity::Axis;
use mile_lab::report::write_report;
use mile_lab::spec::Spec;
use mile_lab::store::{Outcome, read_outcomes, read_records};
use mile_lab::table::outcomes_table;

const EXPERIMENT: &str = "rounds = 12\neval_every = 3\nseeds = [0, 1]\n[network]\nagents = 5\nKEYS\n[problem]\nkind = 'quadratic'\ndim = 7\n\
                          [[algorithm]]\nname = 'mile'\nstep_size = 0.01\nlocal_steps = 3\n\
                          [[algorithm]]\nname = 'gradient-tracking'\nstep_size = 0.01\n";

const TIME: &str = "[time]\nstep = [0.1, 0.1, { from = 0.1, to = 0.4 }, 0.1, { least = 0.1, mean = 0.3 }]\nlatency = 0.02\n\
                    bandwidth = 1000\nedges = [[0, 1, 0.5, 100.0], [3, 2, 0.1, inf], [3, 2, 0.2, inf]]\n";

fn spec(text: &str) -> Spec {
    Spec::parse(text, Path::new(""), &[]).unwrap()
}

fn plan(keys: &str, more: &str) -> Plan {
    Plan::new(spec(&(EXPERIMENT.replace("KEYS", keys) + more))).unwrap()
}

fn go(plan: &Plan, folder: &Path, resume: bool) -> Result<Vec<Outcome>, LabError> {
    execute(plan, folder, resume, &Silent, &AtomicBool::new(false))
}

/// The files of final states.
fn finals(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
    };
    std::fs::read_dir(folder.join("final")).unwrap().map(file).collect()
}

fn modelled(folder: &Path) -> Vec<Option<f64>> {
    read_records(folder).unwrap().iter().map(|record| record.modelled_s).collect()
}

#[test]
fn modelled_time_changes_no_bit_and_is_in_every_record_table_and_figure() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, timed) = (folder.path().join("plain"), folder.path().join("timed"));
    go(&plan("drop_rate = 0.2", ""), &plain, false).unwrap();
    let with_time = plan("drop_rate = 0.2", TIME);
    let outcomes = go(&with_time, &timed, false).unwrap();
    assert_eq!(finals(&plain), finals(&timed));
    assert!(modelled(&plain).iter().all(Option::is_none));
    let (before, records) = (read_records(&plain).unwrap(), read_records(&timed).unwrap());
    for (a, b) in before.iter().zip(&records) {
        assert_eq!((a.round, a.loss, a.bytes_sent), (b.round, b.loss, b.bytes_sent));
    }
    for pair in records.windows(2).filter(|pair| pair[0].round < pair[1].round) {
        assert!(pair[0].modelled_s.unwrap() < pair[1].modelled_s.unwrap());
    }
    for (job, outcome) in with_time.jobs().into_iter().zip(&outcomes) {
        assert_eq!(with_time.tally(job).unwrap().modelled_s, outcome.last.modelled_s);
    }
    let columns = |folder: &Path| outcomes_table(&read_outcomes(folder).unwrap(), 2).header;
    assert!(
        columns(&timed).contains(&"modelled s".into()) && !columns(&plain).contains(&"modelled s".into())
    );
    for (records, there) in [(&before, false), (&records, true)] {
        let runs = Runs::new(records, &[]);
        assert_eq!(runs.axes().any(|axis| axis == Axis::ModelledS), there);
        let against = |figure: &mile_lab::plot::Figure| figure.name.contains(Axis::ModelledS.name());
        assert_eq!(figures(&runs, "time").iter().any(against), there);
    }
    for (of, there) in [(&plain, false), (&timed, true)] {
        write_report(std::slice::from_ref(of), &of.join("report.html")).unwrap();
        let page = std::fs::read_to_string(of.join("report.html")).unwrap();
        assert_eq!(page.contains("class=\"chart\" data-axis=\"modelled_s\""), there);
    }
}

#[test]
fn another_time_is_given_to_the_records_of_a_run_that_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (run, fresh) = (folder.path().join("run"), folder.path().join("fresh"));
    go(&plan("", TIME), &run, false).unwrap();
    let (states, slow) = (finals(&run), TIME.replace("latency = 0.02", "latency = 2.0"));
    // As it was, with another model, and with more rounds than before.
    for (text, rounds) in [(TIME, 12), (&slow, 12), (&slow, 15), ("", 15)] {
        let longer = |text: &str| {
            let text =
                EXPERIMENT.replace("KEYS", "").replace("rounds = 12", &format!("rounds = {rounds}")) + text;
            Plan::new(spec(&text)).unwrap()
        };
        let outcomes = go(&longer(text), &run, true).unwrap();
        let _ = std::fs::remove_dir_all(&fresh);
        go(&longer(text), &fresh, false).unwrap();
        assert_eq!(modelled(&run), modelled(&fresh), "{text}");
        assert_eq!(read_outcomes(&run).unwrap(), outcomes);
        assert_eq!(outcomes[0].last.modelled_s, read_outcomes(&fresh).unwrap()[0].last.modelled_s);
        assert!(rounds > 12 || finals(&run) == states);
    }
}

#[test]
fn time_goes_on_when_agents_leave_join_and_are_replaced() {
    let events = "[[event]]\nround = 4\nleave = 2\n[[event]]\nround = 7\njoin = 5\nneighbours = [0, 3]\n\
                  [[event]]\nround = 9\nreplace = 4\n";
    let time = "[time]\nstep = [0.1, 0.1, 3.0, 0.1, 0.1, 0.2]\nedges = [[5, 0, 0.5, 100.0]]\n";
    let folder = tempfile::tempdir().unwrap();
    let plan = plan("", &format!("{events}{time}"));
    let outcomes = go(&plan, folder.path(), false).unwrap();
    for (job, outcome) in plan.jobs().into_iter().zip(outcomes) {
        assert_eq!(plan.tally(job).unwrap().modelled_s, outcome.last.modelled_s);
        assert_eq!(plan.tally(job).unwrap().bytes, outcome.last.bytes_sent);
    }
    let records = read_records(folder.path()).unwrap();
    let at = |round: u64| records.iter().find(|record| record.round == round).unwrap().modelled_s.unwrap();
    // MILE has taken eight gradients in three rounds, three seconds each at agent 2, which leaves.
    assert_eq!(at(3), 24.0);
    assert!(at(12) - at(6) < 12.0, "{} {}", at(6), at(12));
}

#[test]
fn files_of_measured_times_are_read_into_the_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "# agent seconds\n0 0.1\n1 0.2\n2 0.1\n2 0.9 # slow at times\n3 0.1\n4 0.1\n";
    std::fs::write(folder.path().join("steps.txt"), lines).unwrap();
    std::fs::write(folder.path().join("edges.txt"), "0 1 0.02 1e6\n0 1 0.05 1e5\n").unwrap();
    let text = EXPERIMENT.replace("KEYS", "") + "[time]\nstep = 'steps.txt'\nedges = 'edges.txt'\n";
    let read = Spec::parse(&text, folder.path(), &[]).unwrap();
    let typed = "[time]\nstep = [0.1, 0.2, { trace = [0.1, 0.9] }, 0.1, 0.1]\nedges = [[0, 1, 0.02, 1e6], [0, 1, 0.05, 1e5]]\n";
    assert_eq!(read, spec(&(EXPERIMENT.replace("KEYS", "") + typed)));
    assert_eq!(spec(&read.to_table().to_string()), read);
    for (name, bad, place) in [
        ("steps.txt", "0 0.1\n2 0.1\n", "agent 1"),
        ("steps.txt", "0 0.1 3\n", "line 1"),
        ("steps.txt", "\n0.5 0.1\n", "line 2"),
        ("edges.txt", "0 1 0.02\n", "line 1"),
        ("edges.txt", "# nothing\n", "edges.txt"),
    ] {
        let good = std::fs::read(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name), bad).unwrap();
        let error = Spec::parse(&text, folder.path(), &[]).unwrap_err();
        assert!(matches!(error, LabError::Data(_)) && error.is_usage(), "{error}");
        assert!(error.to_string().contains(place), "{bad}: {error}");
        std::fs::write(folder.path().join(name), good).unwrap();
    }
}

#[test]
fn mistakes_are_named_by_their_key() {
    for (keys, time, named) in [
        ("bursts = 0.1", "", "network.bursts"),
        ("bursts = { begin = 0.1 }", "", "network.bursts.end"),
        ("bursts = { begin = 0.0, end = 0.1 }", "", "network.bursts.begin"),
        ("bursts = { begin = 0.1, end = 0.1, loss = 2 }", "", "network.bursts.loss"),
        ("bursts = { begin = 0.1, end = 0.1, los = 1 }", "", "network.bursts.los"),
        ("absence = { begin = 0.1, end = 1.5 }", "", "network.absence.end"),
        ("", "step = -1", "time.step"),
        ("", "step = []", "time.step"),
        ("", "step = [0.1, 0.1]", "time.step"),
        ("", "step = { from = 2, to = 1 }", "time.step"),
        ("", "step = { least = 2, from = 1 }", "time.step"),
        ("", "latency = '3 ms'", "time.latency"),
        ("", "latency = { trace = [] }", "time.latency"),
        ("", "bandwidth = 0", "time.bandwidth"),
        ("", "edges = [[0, 1, 0.1]]", "time.edges"),
        ("", "edges = [[0, 2, 0.1, 1e6]]", "time.edges"),
        ("", "edges = [[0, 1, -0.1, 1e6]]", "time.edges"),
        ("", "bandwith = 1e6", "time.bandwith"),
    ] {
        let text = EXPERIMENT.replace("KEYS", keys) + "[time]\n" + time;
        let error = Spec::parse(&text, Path::new(""), &[]).and_then(Plan::new).map(|_| ()).unwrap_err();
        let LabError::Config(error) = error else { panic!("{keys} {time}: {error}") };
        assert_eq!(error.key, named, "{keys} {time}");
    }
}

#[test]
fn bursts_and_absent_agents_are_part_of_what_a_state_belongs_to() {
    let keys = "bursts = { begin = 0.2, end = 0.4, loss = 0.9 }\nabsence = { begin = 0.1, end = 0.5 }";
    let folder = tempfile::tempdir().unwrap();
    let (one, two, none) = (folder.path().join("1"), folder.path().join("2"), folder.path().join("3"));
    go(&plan(keys, ""), &one, false).unwrap();
    go(&plan(keys, ""), &two, false).unwrap();
    go(&plan("", ""), &none, false).unwrap();
    assert_eq!(finals(&one), finals(&two));
    assert_ne!(finals(&one), finals(&none));
    let sent = |folder: &Path| read_outcomes(folder).unwrap()[0].last.bytes_sent;
    assert!(sent(&one) < sent(&none));
    for (from, to, named) in [
        ("end = 0.4", "end = 0.3", "network.bursts.end"),
        ("begin = 0.1", "begin = 0.2", "network.absence.begin"),
    ] {
        let error = go(&plan(&keys.replace(from, to), ""), &one, true).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(named), "{error}");
    }
}
