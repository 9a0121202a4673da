//! `mile theory`, `mile reproduce theorems`, and advice before a run, on the command line.

use std::path::Path;
use std::process::{Command, Output};

fn mile(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mile")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn experiment(algorithm: &str, network: &str) -> String {
    format!(
        "name = \"small\"\nrounds = 20\n[network]\nagents = 8\n{network}\n[problem]\nkind = \"quadratic\"\n\
         dim = 3\n[[algorithm]]\nname = \"mile\"\nstep_size = 0.1\nlocal_steps = 5\n{algorithm}\n"
    )
}

#[test]
fn theory_speaks_json_alone_on_standard_output_and_draws() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["theory", "--agents", "6", "--local-steps", "4", "--format", "json", "--out", "pictures"];
    let output = mile(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["lambda"].as_array().unwrap().len(), 6);
    assert!((json["xi_paper_max"].as_f64().unwrap() - 2.0 / 7.0).abs() < 1e-12);
    assert!(json["step_size_max"].as_f64().unwrap() > json["step_size_max_stochastic"].as_f64().unwrap());
    for name in ["stability-xi.svg", "stability-tau.svg", "modes.svg"] {
        let svg = std::fs::read_to_string(folder.path().join("pictures").join(name)).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
    }
}

#[test]
fn theory_reads_an_experiment_and_estimates_its_smoothness() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("e.toml"), experiment("xi = 0.2", "")).unwrap();
    let output = mile(folder.path(), &["theory", "e.toml", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["agents"].as_u64(), json["local_steps"].as_u64()), (Some(8), Some(5)));
    assert!((json["smoothness"].as_f64().unwrap() - 1.0).abs() < 0.01, "{}", json["smoothness"]);
    assert_eq!(json["xi"].as_f64(), Some(0.2));
}

#[test]
fn bad_numbers_exit_with_2_and_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (["--local-steps", "0"], "local_steps"),
        (["--xi", "1.5"], "xi"),
        (["--xi", "much"], "xi"),
        (["--smoothness", "-1"], "smoothness"),
        (["--smoothness", "inf"], "smoothness"),
        (["--drop-rate", "1"], "drop_rate"),
    ];
    for (arguments, message) in cases {
        let output = mile(folder.path(), &["theory", arguments[0], arguments[1]]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    std::fs::write(folder.path().join("w.txt"), "0.5 0.5\n0.4 0.6\n").unwrap();
    let matrix = ["theory", "--topology", "path", "--agents", "2", "--mixing", "file", "--matrix", "w.txt"];
    let output = mile(folder.path(), &matrix);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("w[0][1]"), "{}", text(&output.stderr));
}

#[test]
fn a_network_next_to_an_experiment_that_has_its_own_is_refused() {
    let output = mile(std::path::Path::new("."), &["theory", "some.toml", "--agents", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--agents"), "{}", text(&output.stderr));
}

#[test]
fn the_theorems_are_printed_with_what_holds_and_what_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let output = mile(folder.path(), &["reproduce", "theorems", "--out", "."]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("NO") && table.contains("48"), "{table}");
    assert!(folder.path().join("theorems/report.html").exists());
    for (arguments, word) in [
        (["theorems", "--set", "rounds=1"], "--set: "),
        (["all", "--set", "rounds=1"], "--set: "),
        (["table1", "--dataset", "mnist"], "--dataset: "),
        (["all", "--dataset", "cifar10"], "dataset: "),
    ] {
        let output = mile(folder.path(), &[&["reproduce"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
    let json = std::fs::read(folder.path().join("theorems/theorems.json")).unwrap();
    let cases: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert!(cases.as_array().unwrap().iter().all(|case| case["corrected_holds"] == true));
}

#[test]
fn a_run_is_advised_before_it_starts_and_auto_is_a_number_by_then() {
    let folder = tempfile::tempdir().unwrap();
    let dry = |name: &str, algorithm: &str, network: &str| {
        std::fs::write(folder.path().join(name), experiment(algorithm, network)).unwrap();
        let output = mile(folder.path(), &["run", name, "--dry-run"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(!dry("fine.toml", "xi = \"paper\"", "").contains("warning:"));
    assert!(dry("wild.toml", "xi = 0.9", "").contains("warning: mile: "));
    assert!(dry("lossy.toml", "xi = 0.2", "drop_rate = 0.7").contains("warning: mile: "));
    for (name, weights) in [
        ("xi.toml", "xi = \"auto\""),
        ("both.toml", "gamma = \"auto\""),
        ("mixed.toml", "xi = \"auto\"\ngamma = 0.8"),
    ] {
        assert!(!dry(name, weights, "").contains("warning:"), "{name}");
        let output = mile(folder.path(), &["run", name, "--out", &format!("out-{name}")]);
        let table = text(&output.stdout);
        assert!(output.status.success() && !table.contains("diverged"), "{table}{}", text(&output.stderr));
    }
}
