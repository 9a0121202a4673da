//! `mile init`: every file that it writes runs unchanged.

use std::path::Path;
use std::process::{Command, Output};

fn mile(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
    command.env("MILE_HOME", folder.join("home")).env_remove("MILE_DATA");
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a file as `mile init` wrote it.
fn run(folder: &Path, file: &str) {
    run_with(folder, file, &[]);
}

fn run_with(folder: &Path, file: &str, options: &[&str]) {
    let output = mile(folder, &[&["run", file], options].concat());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ended = table.contains("converged") || table.contains("last round");
    assert!(!table.contains("diverged") && ended, "{table}");
}

fn write(folder: &Path, name: &str, header: &str, row: impl Fn(usize) -> String) {
    let rows: String = (0..60).map(|k| row(k) + "\n").collect();
    std::fs::write(folder.join(name), format!("{header}\n{rows}")).unwrap();
}

#[test]
fn files_without_data_run_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["quadratic", "images", "agent"] {
        let output = mile(folder.path(), &["init", kind]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let command = if kind == "agent" { "swarm" } else { "run" };
        assert!(text(&output.stdout).ends_with(&format!("mile {command} {kind}.toml\n")));
        // Some rounds of a neural network are enough.
        let options: &[&str] = if kind == "images" { &["--set", "rounds=2"] } else { &[] };
        run_with(folder.path(), &format!("{kind}.toml"), options);
    }
    assert!(text(&mile(folder.path(), &["init", "-o", "x.toml"]).stdout).contains("x.toml"));
    let same = std::fs::read(folder.path().join("x.toml")).unwrap();
    assert_eq!(same, std::fs::read(folder.path().join("images.toml")).unwrap());
}

#[test]
fn tables_run_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let wave = |k: usize| (k as f64 * 0.7).sin() * 30.0;
    write(folder.path(), "price.csv", "size,age,price", |k| {
        format!("{},{},{}", wave(k), k, 3.0 * wave(k) + 0.5)
    });
    write(folder.path(), "ill.csv", "site,x,ill", |k| {
        format!(
            "{},{},{}",
            ["north", "east", "south"][k % 3],
            wave(k),
            if wave(k) > 3.0 { "yes" } else { "no" }
        )
    });
    write(folder.path(), "kind.csv", "colour,x,kind", |k| {
        let (colour, kind) = (["red", "green"][k % 2], ["a", "b", "c"][(wave(k) / 21.0 + 1.5) as usize]);
        format!("{colour},{},{kind}", wave(k))
    });
    for (name, loss, agents) in
        [("price", "least-squares", 5), ("ill", "logistic", 3), ("kind", "softmax", 2)]
    {
        let output = mile(folder.path(), &["init", "--data", &format!("{name}.csv")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = format!("{name}.toml");
        let table: toml::Table = std::fs::read_to_string(folder.path().join(&file)).unwrap().parse().unwrap();
        assert_eq!(table["problem"]["loss"].as_str(), Some(loss));
        assert_eq!(table["network"]["agents"].as_integer(), Some(agents));
        run(folder.path(), &file);
    }
    // From another folder, to another folder, with another target.
    std::fs::create_dir(folder.path().join("there")).unwrap();
    let output = mile(
        folder.path(),
        &["init", "table", "--data", "price.csv", "--target", "size", "-o", "there/e.toml"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    run(folder.path(), "there/e.toml");
}

#[test]
fn files_of_arrays_are_toml() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("d.npz"), "").unwrap();
    assert!(mile(folder.path(), &["init", "--data", "d.npz"]).status.success());
    let table: toml::Table = std::fs::read_to_string(folder.path().join("d.toml")).unwrap().parse().unwrap();
    let problem = &table["problem"];
    assert_eq!((problem["kind"].as_str(), problem["data"].as_str()), (Some("arrays"), Some("d.npz")));
    assert!(problem.get("model").is_some() && problem.get("batch").is_some());
}

#[test]
fn nothing_is_overwritten_and_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("quadratic.toml"), "mine").unwrap();
    write(folder.path(), "d.csv", "x,y", |k| format!("{k},{k}"));
    let cases: [(&[&str], &str); 6] = [
        (&["quadratic"], "quadratic.toml: "),
        (&["table"], "--data: "),
        (&["images", "--data", "d.csv"], "--data: "),
        (&["--data", "none.csv"], "none.csv"),
        (&["--data", "d.csv", "--target", "z"], "z"),
        (&["arrays", "--data", "d.csv", "--target", "y"], "--target: "),
    ];
    for (arguments, expected) in cases {
        let output = mile(folder.path(), &[&["init"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("quadratic.toml")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
