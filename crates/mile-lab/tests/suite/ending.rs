//! How jobs end: at the first round where `stop` holds, converged without one, or at the last round.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mile_lab::ending::Trend;
use mile_lab::execute::execute;
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::spec::Spec;
use mile_lab::store::{JobStatus, Outcome, read_records};

fn plan(text: &str, set: &[&str]) -> Plan {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    Plan::new(Spec::parse(text, Path::new(""), &set).unwrap()).unwrap()
}

fn run(plan: &Plan, folder: &Path, resume: bool) -> Vec<Outcome> {
    execute(plan, folder, resume, &Silent, &AtomicBool::new(false)).unwrap()
}

/// Interrupts a run at a round.
struct StopAt<'a>(u64, &'a AtomicBool);

impl Observer for StopAt<'_> {
    fn advanced(&self, _: Job, round: u64) {
        self.1.fetch_or(round >= self.0, Ordering::Relaxed);
    }
}

const NETWORK: &str = "[network]\nagents = 6\ntopology = 'complete'\n[problem]\nkind = 'quadratic'\n";

#[test]
fn a_rule_is_checked_between_records_and_ends_the_run_at_the_first_round_where_it_holds() {
    let text = format!("rounds = 400\n{NETWORK}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n");
    let run_with = |eval_every: u64, every: u64, folder: &Path| {
        let stop = format!("stop={{ grad_norm = 1e-3, consensus = 1e-6, every = {every} }}");
        let plan = plan(&text, &[&format!("eval_every={eval_every}"), &stop]);
        (run(&plan, folder, false).remove(0), plan)
    };
    let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let (seldom, plan) = run_with(400, 1, folders[0].path());
    let (always, _) = run_with(1, 1, folders[1].path());
    assert!(seldom.round < 400 && seldom.round == always.round, "{} {}", seldom.round, always.round);
    let records = read_records(folders[1].path()).unwrap();
    let (last, before) = (&records[records.len() - 1], &records[records.len() - 2]);
    let holds = |record: &Record| record.grad_norm_sq.unwrap() <= 1e-6 && record.consensus_error <= 1e-6;
    assert!(holds(last) && !holds(before), "it stopped too late or too early");
    let records = read_records(folders[0].path()).unwrap();
    assert_eq!(records.iter().map(|record| record.round).collect::<Vec<_>>(), [0, seldom.round]);
    assert_eq!(records[1], Record { wall_s: records[1].wall_s, ..last.clone() });
    let state = |folder: &Path| std::fs::read(folder.join("final/mile-seed0.safetensors")).unwrap();
    assert_eq!(state(folders[0].path()), state(folders[1].path()));

    let (rarely, _) = run_with(400, 7, folders[2].path());
    assert_eq!(rarely.round, seldom.round.div_ceil(7) * 7);

    // Interrupted, also between the last state and the summary, and resumed: the same bits.
    let stop = AtomicBool::new(false);
    let half = execute(&plan, folders[3].path(), false, &StopAt(7, &stop), &stop).unwrap();
    assert_eq!(half[0].status, JobStatus::Stopped);
    for _ in 0..2 {
        let resumed = run(&plan, folders[3].path(), true).remove(0);
        assert_eq!((resumed.round, resumed.status), (seldom.round, JobStatus::Converged));
        assert_eq!(state(folders[3].path()), state(folders[0].path()));
        std::fs::remove_file(folders[3].path().join("summary.json")).unwrap();
    }
}

#[test]
fn without_a_rule_a_job_has_converged_when_gradient_and_disagreement_have_vanished() {
    let text = format!(
        "rounds = 2000\nprecision = 'f64'\n{NETWORK}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n\
         [[algorithm]]\nname = 'dsgd'\nstep_size = 0.05\n"
    );
    let ended = |set: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let outcomes = run(&plan(&text, set), folder.path(), false);
        outcomes.into_iter().map(|outcome| (outcome.status, outcome.ending)).collect::<Vec<_>>()
    };
    let long = ended(&[]);
    assert_eq!(long[0].0, JobStatus::Converged, "{long:?}");
    assert_eq!(
        (long[1].0, long[1].1.loss),
        (JobStatus::LastRound, Some(Trend::Level)),
        "a known bias: {long:?}"
    );
    for (status, ending) in ended(&["stop={ grad_norm = 1e-300 }"]) {
        assert_eq!(
            (status, ending.stop_reached),
            (JobStatus::LastRound, Some(false)),
            "only the rule decides"
        );
    }
    let short = ended(&["rounds=12", "eval_every=1", "problem.condition=1000"]);
    assert_eq!((short[0].0, short[0].1.loss), (JobStatus::LastRound, Some(Trend::Falling)), "{short:?}");
    for rounds in ["rounds=0", "rounds=1"] {
        assert!(ended(&[rounds]).iter().all(|(status, _)| *status == JobStatus::LastRound));
    }
}
