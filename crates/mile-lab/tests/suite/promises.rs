//! What a plan says before a run: bytes to be sent, and what is refused because no machine could hold it.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile_lab::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::Spec;

const QUADRATIC: &str = "[problem]\nkind = 'quadratic'\ndim = 7\n";

fn plan(text: &str, folder: &Path) -> Result<Plan, LabError> {
    Plan::new(Spec::parse(text, folder, &[])?)
}

/// Every job sends as many bytes as the plan says, to the byte.
#[track_caller]
fn sends_what_it_says(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(text, folder.path()).unwrap();
    let outcomes =
        execute(&plan, &folder.path().join("run"), false, &Silent, &AtomicBool::new(false)).unwrap();
    for (job, outcome) in plan.jobs().into_iter().zip(outcomes) {
        assert_eq!(plan.tally(job).unwrap().bytes, outcome.last.bytes_sent, "{} of {text}", outcome.label);
    }
}

#[test]
fn bytes_are_those_that_are_sent() {
    let one = |name: &str| format!("[[algorithm]]\nname = '{name}'\nstep_size = 0.01\n");
    let several = ["mile", "k-gt", "led", "proxskip"].map(one).concat();
    let methods =
        several.clone() + &["nids", "d2", "gta-3", "mg-skip", "extra", "diging", "dsgd"].map(one).concat();
    let mile = "[[algorithm]]\nname = 'mile'\nstep_size = 0.01\n";
    let adaptive = format!("{mile}xi = 'adaptive'\n");
    let compressed = format!("{mile}compression = '8-bit'\n");
    let network = |keys: &str| {
        format!("[network]\nagents = 8\ntopology = 'hypercube'\nmixing = 'lazy-metropolis'\n{keys}\n")
    };
    for (top, keys, algorithms) in [
        ("rounds = 23", "", &methods),
        ("rounds = 23", "", &adaptive),
        ("rounds = 23\nprecision = 'f32'", "", &adaptive),
        ("rounds = 123", "", &compressed),
        ("rounds = 23\nseeds = [0, 3]", "drop_rate = 0.3", &several),
        ("rounds = 23\nseeds = [0, 3]", "time_varying = 'random-matching'", &adaptive),
        ("rounds = 0", "", &methods),
    ] {
        sends_what_it_says(&format!("{top}\n{}{QUADRATIC}{algorithms}", network(keys)));
    }
    // Agents leave, join and are replaced.
    let events = "[[event]]\nround = 6\nleave = 2\n[[event]]\nround = 10\njoin = 5\nneighbours = [0, 3]\n\
                  [[event]]\nround = 11\nreplace = 4\n";
    for name in ["mile", "k-gt"] {
        sends_what_it_says(&format!("rounds = 14\n[network]\nagents = 5\n{QUADRATIC}{}{events}", one(name)));
    }
}

/// The key of an experiment that is refused.
#[track_caller]
fn refused(text: &str) -> String {
    let error = plan(text, Path::new("")).err().unwrap_or_else(|| panic!("taken: {text}"));
    match error {
        LabError::Config(error) => error.key,
        other => panic!("{other}"),
    }
}

#[test]
fn what_no_machine_could_hold_is_refused_by_its_key() {
    let with = |top: &str, agents: u64, network: &str, dim: u64, algorithm: &str| {
        format!(
            "{top}\n[network]\nagents = {agents}\n{network}\n[problem]\nkind = 'quadratic'\ndim = {dim}\n\
             [[algorithm]]\nname = 'mile'\nstep_size = 0.1\n{algorithm}"
        )
    };
    let huge = 100_000_000_000;
    for topology in ["ring", "path", "star", "grid", "torus", "exponential", "complete", "erdos-renyi"] {
        let network = format!("topology = '{topology}'");
        assert_eq!(refused(&with("", huge, &network, 3, "")), "network.agents", "{topology}");
    }
    assert_eq!(refused(&with("", 10_000_000, "topology = 'complete'", 3, "")), "network.agents");
    assert_eq!(refused(&with("", i64::MAX as u64, "", i64::MAX as u64, "")), "network.agents");
    assert_eq!(refused(&with("", 10, "", huge, "")), "problem.dim");
    assert_eq!(refused(&with("rounds = 1000000000000000\neval_every = 1", 10, "", 3, "")), "eval_every");
    assert_eq!(refused(&with("", 10, "", 3, "local_steps = 100000000000")), "algorithm[0].local_steps");
    let skipping = with("", 10, "", 3, "").replace("'mile'", "'proxskip'");
    assert_eq!(refused(&format!("{skipping}probability = 1e-12")), "algorithm[0].probability");
    // Long runs need no memory.
    let long = plan(&with("rounds = 1000000000000000", 10, "", 3, ""), Path::new("")).unwrap();
    let (bytes, expected) = (long.tally(long.jobs()[0]).unwrap().bytes as f64, 1e15 * 20.0 * 3.0 * 8.0);
    assert!((bytes / expected - 1.0).abs() < 1e-9, "{bytes}");
}
