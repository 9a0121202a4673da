//! What is chosen where an experiment file says "auto" or nothing, and when a run has converged.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use mile::methods::catalogue;
use mile_lab::Lab;
use mile_lab::execute::execute;
use mile_lab::observer::Silent;
use mile_lab::plan::Plan;
use mile_lab::spec::Spec;
use mile_lab::store::{JobStatus, Outcome, read_records};

fn plan(text: &str, set: &[&str]) -> Result<Plan, String> {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let spec = Spec::parse(text, Path::new(""), &set).map_err(|error| error.to_string())?;
    Plan::new(spec).map_err(|error| error.to_string())
}

fn run(plan: &Plan, folder: &Path, resume: bool) -> Vec<Outcome> {
    execute(plan, folder, resume, &Silent, &AtomicBool::new(false)).unwrap()
}

const NETWORK: &str = "[network]\nagents = 6\ntopology = 'complete'\n[problem]\nkind = 'quadratic'\n";

#[test]
fn the_automatic_step_size_is_stable_for_every_method() {
    let algorithms: String = catalogue::ALL
        .iter()
        .map(|entry| format!("[[algorithm]]\nname = '{}'\nstep_size = 'auto'\n", entry.name))
        .collect();
    let plan = plan(&format!("rounds = 300\n{NETWORK}{algorithms}"), &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let outcomes = run(&plan, folder.path(), false);
    let records = read_records(folder.path()).unwrap();
    for (outcome, algorithm) in outcomes.iter().zip(&plan.spec.algorithms) {
        let step_size = algorithm.schedule.step_size;
        assert!(step_size > 1e-3 && step_size <= 2.0, "{}: {step_size}", outcome.label);
        assert_eq!(algorithm.to_table()["step_size"].as_float(), Some(step_size));
        assert!(outcome.status.is_done(), "{} with {step_size}", outcome.label);
        let first = records.iter().find(|record| record.label == outcome.label).unwrap();
        let (before, after) = (first.grad_norm_sq.unwrap(), outcome.last.grad_norm_sq.unwrap());
        assert!(after < 0.1 * before, "{}: {before} {after}", outcome.label);
    }
}

#[test]
fn automatic_values_do_not_depend_on_the_length_of_the_run_and_are_kept_when_it_is_extended() {
    let text =
        format!("{NETWORK}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\nxi = 'auto'\ngamma = 'auto'\n");
    let chosen = |rounds: u64| {
        let plan = plan(&format!("rounds = {rounds}\n{text}"), &[]).unwrap();
        plan.spec.to_table()["algorithm"].clone()
    };
    assert_eq!(chosen(20), chosen(4000));
    let (folder, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lab = Lab::default().quiet();
    let run =
        |rounds: u64, folder: &Path| lab.run(&format!("rounds = {rounds}\neval_every = 10\n{text}"), folder);
    run(20, folder.path()).unwrap();
    run(60, folder.path()).unwrap();
    run(60, whole.path()).unwrap();
    let state = |folder: &Path| std::fs::read(folder.join("final/mile-seed0.safetensors")).unwrap();
    assert_eq!(state(folder.path()), state(whole.path()));
    let written = std::fs::read_to_string(folder.path().join("config.toml")).unwrap();
    assert!(!written.contains("auto"), "{written}");
}

#[test]
fn an_automatic_step_size_is_refused_where_it_would_mean_nothing() {
    let algorithm = "[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n";
    let images = format!("[problem]\nkind = 'images'\nmodel = 'linear'\n{algorithm}");
    let error = plan(&images, &[]).err().unwrap();
    assert!(error.contains("algorithm[0].step_size"), "{error}");
    // The curvature of a Poisson loss has no bound.
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("counts.csv");
    std::fs::write(&data, "x,y\n1,0\n2,1\n3,5\n4,2\n5,7\n6,3\n").unwrap();
    let counts = |loss: &str| {
        let problem = format!("kind = 'table'\ndata = '{}'\ntarget = 'y'\nloss = '{loss}'", data.display());
        plan(&format!("[network]\nagents = 3\n[problem]\n{problem}\n{algorithm}"), &[])
    };
    assert!(counts("least-squares").is_ok());
    let error = counts("poisson").err().unwrap();
    assert!(error.starts_with("algorithm[0].step_size: "), "{error}");
    let error = plan(&format!("{NETWORK}{algorithm}"), &["algorithm.mile.step_size=best"]).err().unwrap();
    assert!(error.contains("algorithm[0].step_size"), "{error}");
}

#[test]
fn what_is_wrong_is_named_where_the_step_size_is_automatic_too() {
    let text = format!(
        "{NETWORK}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n[[algorithm]]\nname = 'led'\nstep_size = 'auto'\n"
    );
    for (set, key) in [
        ("algorithm.mile.local_steps=0", "algorithm[0].local_steps"),
        ("algorithm.mile.xi=-1", "algorithm[0].xi"),
        ("algorithm.mile.momentum=1.5", "algorithm[0].momentum"),
        ("algorithm.led.beta=7", "algorithm[1].beta"),
        ("network={ agents = 5, topology = 'hypercube' }", "network.agents"),
        ("network={ agents = 5, topology = 'random-regular', degree = 9 }", "network.degree"),
    ] {
        let error = plan(&text, &[set]).err().unwrap();
        assert!(error.starts_with(&format!("{key}: ")), "{set}: {error}");
    }
}

#[test]
fn a_run_ends_when_it_has_converged_and_continues_when_the_tolerance_is_tightened() {
    let text = format!(
        "rounds = 5000\neval_every = 10\n{NETWORK}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\n\
         [[algorithm]]\nname = 'dsgd'\nstep_size = 0.01\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let loose = plan(&text, &["stop={ grad_norm = 1e-3, consensus = 1e-6 }"]).unwrap();
    let outcomes = run(&loose, folder.path(), false);
    let mile = &outcomes[0];
    assert!(mile.status == JobStatus::Converged && mile.round < 5000, "{mile:?}");
    assert!(mile.last.grad_norm_sq.unwrap() <= 1e-6 && mile.last.consensus_error <= 1e-6);
    assert!(loose.is_complete(&outcomes));
    let again = run(&loose, folder.path(), true);
    assert_eq!(again, outcomes);

    let tight = plan(&text, &["stop={ grad_norm = 1e-6, consensus = 1e-12 }"]).unwrap();
    let longer = run(&tight, folder.path(), true);
    assert!(longer[0].status == JobStatus::Converged && longer[0].round > mile.round);
    let whole = tempfile::tempdir().unwrap();
    assert_eq!(run(&tight, whole.path(), false)[0].round, longer[0].round);
    let state = |folder: &Path| std::fs::read(folder.join("final/mile-seed0.safetensors")).unwrap();
    assert_eq!(state(folder.path()), state(whole.path()));

    for (stop, expected) in [
        ("stop={ grad_nrom = 1 }", "stop.grad_nrom"),
        ("stop={ loss_change = 0 }", "stop.loss_change"),
        ("stop={ loss_change = 1, every = 2 }", "stop.every"),
        ("stop=3", "stop"),
    ] {
        let error = plan(&text, &[stop]).err().unwrap();
        assert!(error.contains(expected), "{stop}: {error}");
    }
}

/// Weights and step size are chosen for the momentum, and the run converges with them.
#[test]
fn automatic_weights_and_step_sizes_take_momentum_into_account() {
    let ring =
        "rounds = 1500\n[network]\nagents = 8\n[problem]\nkind = 'quadratic'\ndim = 6\ncondition = 5\n";
    let with = |keys: &str| {
        format!("{ring}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\nlocal_steps = 5\n{keys}\n")
    };
    let plan_of = |keys: &str| plan(&with(keys), &[]).unwrap();
    let chosen = |plan: &Plan| {
        let table = plan.spec.to_table()["algorithm"][0].clone();
        ["step_size", "xi", "gamma"].map(|key| table[key].as_float().unwrap())
    };
    let plain = chosen(&plan_of("gamma = 'auto'"));
    for keys in ["momentum = 0.9", "momentum = 0.9\nnesterov = true"] {
        let heavy = plan_of(&format!("gamma = 'auto'\n{keys}"));
        let [step_size, xi, gamma] = chosen(&heavy);
        assert!(
            xi <= 0.1 * plain[1] * (1.0 + 1e-12) && gamma > xi && step_size > 0.01,
            "{xi} {gamma} {step_size}"
        );
        let folder = tempfile::tempdir().unwrap();
        let last = run(&heavy, folder.path(), false)[0].last.grad_norm_sq.unwrap();
        assert!(last < 1e-12, "{keys}: {last:e}");
    }
    for keys in ["", "momentum = 0.5"] {
        let without = chosen(&plan_of(&format!("gamma = 'auto'\n{keys}")));
        let outer = plan_of(&format!("gamma = 'auto'\n{keys}\nouter = {{ momentum = 0.5, step_size = 1 }}"));
        let [_, xi, gamma] = chosen(&outer);
        assert!(xi <= 0.5 * without[1] * (1.0 + 1e-12) && gamma == without[2], "{xi} {gamma} {without:?}");
        let folder = tempfile::tempdir().unwrap();
        let last = run(&outer, folder.path(), false)[0].last.grad_norm_sq.unwrap();
        assert!(last < 1e-12, "{keys}, outer: {last:e}");
    }
    let refused = plan(&with("xi = 'auto'\nmomentum = 0.9"), &[]).err().unwrap();
    assert!(refused.contains("algorithm[0].xi"), "{refused}");
    let refused =
        plan(&with("xi = { from = 0.01, to = 0.1, rounds = 9 }\ngamma = 'auto'"), &[]).err().unwrap();
    assert!(refused.contains("algorithm[0].gamma"), "{refused}");
}

/// The weights that few elements require are written, runs are exact, their bytes are predicted, and invalid combinations are refused.
#[test]
fn compressed_runs_converge_send_what_was_predicted_and_refuse_invalid_combinations() {
    let with = |network: &str, name: &str, keys: &str| {
        format!(
            "rounds = 2500\n[network]\nagents = 8\n{network}\n[problem]\nkind = 'quadratic'\ndim = 40\ncondition = 5\n\
             [[algorithm]]\nname = '{name}'\nstep_size = 0.02\nlocal_steps = 5\n{keys}\n"
        )
    };
    let bits = "compression = '8-bit'";
    for (keys, gamma, bytes) in [
        (bits, None, 40 + 2 + 6),
        ("compression = 'bf16'", None, 2 * 40),
        ("compression = 'fp16'", None, 2 * 40 + 2 + 6),
        ("compression = '8-bit'\ngamma = 'auto'", Some(0.5), 48),
        ("compression = { top_k = 0.25 }", Some(0.25), 10 * 8 + 5 + 3),
    ] {
        let found = plan(&with("", "mile", keys), &[]).unwrap();
        let table = found.spec.to_table()["algorithm"][0].clone();
        let chosen = table.get("gamma").and_then(|gamma| gamma.as_float());
        assert_eq!(
            (chosen.is_some(), found.message_bytes(0)),
            (gamma.is_some(), bytes),
            "{keys}: {chosen:?}"
        );
        if keys.contains("top_k") {
            assert_eq!((chosen, table["xi"].as_float()), (gamma, Some(0.1 * 0.25 / 5.0)));
        }
        let folder = tempfile::tempdir().unwrap();
        let job = found.jobs()[0];
        let last = &run(&found, folder.path(), false)[0].last;
        assert!(last.grad_norm_sq.unwrap() < 1e-12 && last.consensus_error < 1e-12, "{keys}: {last:?}");
        assert_eq!(last.bytes_sent, found.tally(job).unwrap().bytes, "{keys}");
        assert_eq!(last.bytes_sent, 16 * (25 * 320 + 2475 * bytes as u64), "{keys}");
    }
    let event = "[[event]]\nround = 9\nreplace = 3";
    for (network, name, keys, expected) in [
        ("drop_rate = 0.1", "mile", bits, "algorithm[0].compression"),
        ("time_varying = 'matchings'", "local-dsgd", bits, "algorithm[0].compression"),
        ("", "mile", "compression = '7-bit'", "algorithm[0].compression"),
        ("", "mile", "compression = { top_k = 1.5 }", "algorithm[0].compression"),
        ("", "mile", "compression = { top = 0.5 }", "top_k"),
        ("", "mile", "compression = '8-bit'\nxi = 'adaptive'", "algorithm[0].compression"),
        ("", "mile", "compression = { top_k = 0.1 }\ngamma = 'auto'", "algorithm[0].compression"),
        ("", "local-dsgd", "gamma = 0.5", "algorithm[0].gamma"),
        ("", "led", bits, "algorithm[0].compression"),
        ("", "mile", &format!("{bits}\n{event}"), "algorithm[0].compression"),
    ] {
        let refused = plan(&with(network, name, keys), &[]).err();
        let refused = refused.unwrap_or_else(|| panic!("taken: {network} {name} {keys}"));
        assert!(refused.contains(expected), "{network} {name} {keys}: {refused}");
    }
    assert!(plan(&with("drop_rate = 0.1", "mile", "compression = 'none'"), &[]).is_ok());
}

/// The largest weight and gamma come from the network, and the run converges with them.
#[test]
fn adaptive_weights_are_resolved_and_a_run_with_them_converges() {
    let ring =
        "rounds = 1500\n[network]\nagents = 8\n[problem]\nkind = 'quadratic'\ndim = 6\ncondition = 5\n";
    let with = |keys: &str| {
        format!("{ring}[[algorithm]]\nname = 'mile'\nstep_size = 'auto'\nlocal_steps = 5\n{keys}\n")
    };
    for keys in
        ["xi = 'adaptive'", "xi = 'adaptive'\nmomentum = 0.5", "xi = { adaptive = 0.05 }\ngamma = 0.7"]
    {
        let found = plan(&with(keys), &[]).unwrap();
        let table = found.spec.to_table()["algorithm"][0].clone();
        let (most, gamma) = (table["xi"]["adaptive"].as_float().unwrap(), table["gamma"].as_float().unwrap());
        let given = keys.contains("0.05");
        assert_eq!((most, gamma) == (0.05, 0.7), given, "{keys}: {most} {gamma}");
        assert!(given || gamma == 1.0 && most > 0.01 && most < 0.2, "{keys}: {most} {gamma}");
        // What is written is the same experiment.
        let again = plan(&toml::to_string(&found.spec.to_table()).unwrap(), &[]).unwrap();
        assert_eq!(again.spec.to_table()["algorithm"], found.spec.to_table()["algorithm"]);
        let folder = tempfile::tempdir().unwrap();
        let last = run(&found, folder.path(), false)[0].last.grad_norm_sq.unwrap();
        assert!(last < 1e-12, "{keys}: {last:e}");
    }
    let refused = plan(&with("xi = 'adaptive'\ngamma = 'auto'"), &[]).err().unwrap();
    assert!(refused.contains("algorithm[0].gamma"), "{refused}");

    // With noisy gradients this is what auto chooses, up to 0.3/tau and, on graphs that mix fast, up to 0.05/(tau (1 - l_2)).
    let exact = plan(&with("gamma = 'auto'"), &[]).unwrap();
    assert!(exact.spec.to_table()["algorithm"][0]["xi"].is_float());
    let images = "rounds = 9\n[network]\nagents = 10\n[problem]\nkind = 'images'\nmodel = 'linear'\nbatch = 8\n\
                  [[algorithm]]\nname = 'mile'\nstep_size = 0.1\nlocal_steps = 5\ngamma = 'auto'\n";
    let largest = |text: &str| {
        let found = plan(text, &[]).unwrap().spec.to_table();
        found["algorithm"][0]["xi"]["adaptive"].as_float().unwrap()
    };
    assert_eq!(largest(images), 0.3 / 5.0);
    // Of the complete graph l_2 = 0.
    let complete = largest(&images.replace("agents = 10", "agents = 10\ntopology = 'complete'"));
    assert!((complete - 0.05 / 5.0).abs() < 1e-12, "{complete}");
    // One agent has no neighbour, and no second eigenvalue.
    assert!(largest(&images.replace("agents = 10", "agents = 1")) > 0.0);
}
