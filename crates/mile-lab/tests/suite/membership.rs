//! Agents that leave and join: records, states and resumed runs cover those who take part.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mile::engine::{Engine, HostError};
use mile::real::Real;
use mile_lab::engines::{EngineSetup, Engines, EnginesIn, InProcess};
use mile_lab::execute::execute;
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::spec::Spec;
use mile_lab::store::read_records;
use safetensors::SafeTensors;

const EXPERIMENT: &str = r#"
rounds = 14
eval_every = 4
agent_metrics = true
precision = "f64"
[network]
agents = 5
[problem]
kind = "quadratic"
dim = 3
[start]
value = "random"
[[algorithm]]
name = "mile"
step_size = 0.1
local_steps = 3
[[algorithm]]
name = "k-gt"
step_size = 0.1
local_steps = 3
"#;

const EVENTS: &str = r#"
[[event]]
round = 6
leave = 2
[[event]]
round = 10
join = 5
neighbours = [0, 3]
[[event]]
round = 11
replace = 4
"#;

fn plan(text: &str, folder: &Path) -> Result<Plan, String> {
    let spec = Spec::parse(text, folder, &[]).map_err(|error| error.to_string())?;
    Plan::new(spec).map_err(|error| error.to_string())
}

fn with(events: &str) -> Plan {
    plan(&format!("{EXPERIMENT}{events}"), Path::new("")).unwrap()
}

struct StopAt<'a>(u64, &'a AtomicBool);

impl Observer for StopAt<'_> {
    fn advanced(&self, _: Job, round: u64) {
        if round >= self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

fn go(plan: &Plan, folder: &Path, resume: bool, until: u64) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let run = execute(plan, folder, resume, &StopAt(until, &stop), &stop);
    run.map(drop).map_err(|error| error.to_string())
}

/// The final states, byte by byte, and the records without their times.
fn results(folder: &Path) -> (BTreeMap<String, Vec<u8>>, Vec<Record>) {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
    };
    let finals = std::fs::read_dir(folder.join("final")).unwrap().map(read).collect();
    let mut records = read_records(folder).unwrap();
    records.iter_mut().for_each(|record| record.wall_s = 0.0);
    (finals, records)
}

#[test]
fn records_and_states_are_of_those_who_take_part() {
    let folder = tempfile::tempdir().unwrap();
    let plan = with(EVENTS);
    execute(&plan, folder.path(), false, &Silent, &AtomicBool::new(false)).unwrap();
    let (finals, records) = results(folder.path());
    let of =
        |round: u64| records.iter().find(|record| record.label == "mile" && record.round == round).unwrap();
    let agents = |round: u64| -> Vec<f64> { of(round).agents["agent"].iter().flatten().copied().collect() };
    assert_eq!(agents(4), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(agents(8), [0.0, 1.0, 3.0, 4.0]);
    assert_eq!(agents(14), [0.0, 1.0, 3.0, 4.0, 5.0]);
    // What is recorded, by hand from the state.
    let file = SafeTensors::deserialize(&finals["mile-seed0.safetensors"]).unwrap();
    let x = file.tensor("x").unwrap();
    assert_eq!(x.shape(), [5, 3]);
    let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    let models: Vec<f64> = x.data().chunks_exact(8).map(number).collect();
    let mean: Vec<f64> = (0..3).map(|k| models.iter().skip(k).step_by(3).sum::<f64>() / 5.0).collect();
    let problem = plan.problem::<f64>(0).unwrap();
    assert_eq!(problem.agents(), 6);
    let f =
        |x: &[f64]| [0, 1, 3, 4, 5].map(|agent| problem.loss(agent, x).unwrap()).iter().sum::<f64>() / 5.0;
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * b.abs(), "{a} {b}");
    let last = of(14);
    close(last.loss, f(&mean));
    close(last.local_loss, models.chunks(3).map(f).sum::<f64>() / 5.0);
    close(
        last.consensus_error,
        models.chunks(3).flat_map(|row| row.iter().zip(&mean)).map(|(x, m)| (x - m).powi(2)).sum::<f64>()
            / 5.0,
    );
    let mut gradient = [0.0; 3];
    for agent in [0, 1, 3, 4, 5] {
        let mut own = [0.0; 3];
        problem.gradient(agent, &mean, &mut own).unwrap();
        gradient.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / 5.0);
    }
    close(last.grad_norm_sq.unwrap(), gradient.iter().map(|g| g * g).sum());
    // Five agents in 6 rounds of 3 steps, four in 4, five in 4; a start-up and a shorter first round in each of four parts.
    let steps = |rounds: u64, agents: u64| agents * (3 * (rounds - 1) + 2);
    assert_eq!(last.gradient_evals, steps(6, 5) + steps(4, 4) + steps(1, 5) + steps(3, 5));
    // Two messages for each edge: a ring of 5, a path of 4, a ring of 5.
    assert_eq!(last.bytes_sent, (6 * 10 + 4 * 6 + 4 * 10) * 24);
}

#[test]
fn a_run_that_is_stopped_anywhere_and_told_of_events_before_they_happen_has_the_same_bits() {
    let whole = tempfile::tempdir().unwrap();
    let plan = with(EVENTS);
    go(&plan, whole.path(), false, u64::MAX).unwrap();
    let expected = results(whole.path());
    for stops in [[5, 6], [6, 10], [7, 11], [10, 13]] {
        let pieces = tempfile::tempdir().unwrap();
        // Nothing is known of events at first, if none has happened yet.
        let unaware = if stops[0] <= 6 { with("") } else { with(EVENTS) };
        go(&unaware, pieces.path(), false, stops[0]).unwrap();
        go(&plan, pieces.path(), true, stops[1]).unwrap();
        go(&plan, pieces.path(), true, u64::MAX).unwrap();
        assert!(results(pieces.path()) == expected, "stopped at {stops:?}");
    }
    let late = tempfile::tempdir().unwrap();
    go(&with(""), late.path(), false, 9).unwrap();
    let refused = go(&plan, late.path(), true, u64::MAX).unwrap_err();
    assert!(refused.contains("event[0].leave"), "{refused}");
}

/// Engines that know objectives by the numbers of the agents.
struct ByNumber;

impl Engines for ByNumber {
    fn evaluates_the_problem(&self) -> bool {
        false
    }
}

impl<T: Real> EnginesIn<T> for ByNumber {
    fn open<'a>(&self, setup: EngineSetup<'a, T>) -> Result<Box<dyn Engine<T> + 'a>, HostError> {
        InProcess.open(setup)
    }
}

#[test]
fn an_engine_that_knows_objectives_by_number_lets_agents_join_and_not_leave() {
    let folder = tempfile::tempdir().unwrap();
    let on = |events: &str| with(events).on(Arc::new(ByNumber));
    let refused = go(&on(EVENTS), &folder.path().join("a"), false, u64::MAX).unwrap_err();
    assert!(refused.contains("event"), "{refused}");
    let joins = "[[event]]\nround = 10\njoin = 5\nneighbours = [0, 3]\n";
    go(&on(joins), &folder.path().join("b"), false, u64::MAX).unwrap();
}

#[test]
fn events_that_do_not_fit_are_refused_by_their_keys() {
    let refused =
        |events: &str| plan(&format!("{EXPERIMENT}{events}"), Path::new("")).err().expect("a refusal");
    let says = |events: &str, expected: &str| {
        let refused = refused(events);
        assert!(refused.contains(expected), "{refused}");
    };
    says("[[event]]\nround = 3\n", "event[0]");
    says("[[event]]\nround = 3\nleave = 1\njoin = 5\nneighbours = [0]\n", "event[0]");
    says("[[event]]\nleave = 1\n", "event[0].round");
    says("[[event]]\nround = 3\njoin = 5\n", "event[0].neighbours");
    says("[[event]]\nround = 3\njoin = 5\nneighbours = 0\n", "event[0].neighbours");
    says("[[event]]\nround = 3\njoin = 7\nneighbours = [0]\n", "event[0].join");
    says("[[event]]\nround = 3\nleave = 1\nedges = [[0, 1, 2]]\n", "event[0].edges");
    says("[[event]]\nround = 3\nleave = 1\nneighbours = [0]\n", "neighbours");
    says("[[event]]\nround = 3\nleave = 1\n[[event]]\nround = 4\nleave = 3\n", "event[1].edges");
    let complete = EXPERIMENT.replace("agents = 5", "agents = 5\ntopology = \"complete\"");
    let scaffold = complete.replace("name = \"k-gt\"", "name = \"scaffold\"");
    let joins = format!("{scaffold}[[event]]\nround = 3\njoin = 5\nneighbours = [0]\n");
    let refused = plan(&joins, Path::new("")).err().expect("a graph that is not complete");
    assert!(refused.contains("event[0]"), "{refused}");
    assert!(plan(&format!("{scaffold}[[event]]\nround = 3\nleave = 1\n"), Path::new("")).is_ok());
}

#[test]
fn where_one_file_is_divided_an_agent_cannot_join_an_existing_run() {
    let home = tempfile::tempdir().unwrap();
    let rows: String = (0..24).map(|k| format!("{},{}\n", k % 7, k % 5)).collect();
    std::fs::write(home.path().join("d.csv"), format!("a,y\n{rows}")).unwrap();
    let table = "kind = \"table\"\ndata = \"d.csv\"\ntarget = \"y\"\nloss = \"least-squares\"";
    let text = EXPERIMENT.replace("kind = \"quadratic\"\ndim = 3", table);
    let joins = format!("{text}[[event]]\nround = 10\njoin = 5\nneighbours = [0]\n");
    let run = home.path().join("run");
    go(&plan(&text, home.path()).unwrap(), &run, false, 4).unwrap();
    let refused = go(&plan(&joins, home.path()).unwrap(), &run, true, u64::MAX).unwrap_err();
    assert!(refused.contains("problem.agents"), "{refused}");
    go(&plan(&joins, home.path()).unwrap(), &home.path().join("another"), false, u64::MAX).unwrap();
}

#[test]
fn own_local_steps_are_those_of_the_members() {
    let own = EXPERIMENT.replace("local_steps = 3", "local_steps = [3, 1, 2, 4, 2, 5]");
    let plan = plan(&format!("{own}{EVENTS}"), Path::new("")).unwrap();
    let job = plan.jobs()[0];
    let steps = |epoch| plan.method_in(job, epoch).unwrap().own_steps().unwrap().to_vec();
    assert_eq!([steps(0), steps(1), steps(2)], [vec![3, 1, 2, 4, 2], vec![3, 1, 4, 2], vec![3, 1, 4, 2, 5]]);
    let error = self::plan(&own, Path::new("")).err().unwrap();
    assert!(error.contains("algorithm[0].local_steps"), "{error}");
}
