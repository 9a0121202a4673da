//! The example in the README runs unchanged, twice.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_runs_and_runs_again() {
    // Cargo builds examples before it runs tests, and puts them next to each other.
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().and_then(Path::parent).unwrap().join("examples/own_objective");
    let home = tempfile::tempdir().unwrap();
    let run = || {
        let output = Command::new(&example).current_dir(home.path()).output();
        let output = output
            .expect("the example, which `cargo test` builds; beside `--test example`, add `--examples`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let table = run();
    assert!(table.contains("local-dsgd") && table.contains("runs/sensors"), "{table}");
    for file in ["report.html", "table.txt", "figures/overview.png", "final/mile-seed2.safetensors"] {
        assert!(home.path().join("runs/sensors").join(file).exists(), "{file}");
    }
    let records = || std::fs::read(home.path().join("runs/sensors/metrics.jsonl")).unwrap();
    let before = records();
    assert_eq!(run(), table);
    assert_eq!(records(), before, "finished work is kept");
}
