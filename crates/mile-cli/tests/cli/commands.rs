//! The command line: exit codes, messages, machine-readable output.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A guard against waiting forever: nothing that is waited for takes this long.
const HANG: Duration = Duration::from_secs(60);

const SMALL: &str = r#"
name = "small"
rounds = 20
[network]
agents = 4
[problem]
kind = "quadratic"
dim = 3
[[algorithm]]
name = "mile"
step_size = 0.1
[[algorithm]]
name = "led"
step_size = 0.1
"#;

fn mile(folder: &Path, arguments: &[&str]) -> Output {
    // No data sets of this machine's user.
    let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
    command.env("MILE_HOME", folder.join("home")).env_remove("MILE_DATA");
    // Nor any that could be downloaded: nothing listens on this port.
    command.env("MILE_DATA_MIRRORS", "http://127.0.0.1:1");
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn folder_with(name: &str, content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), content).unwrap();
    folder
}

#[test]
fn the_version_says_the_commit_the_features_and_the_kernels_of_this_cpu() {
    let said = text(&mile(Path::new("."), &["--version"]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    let [version, commit, features, cpu] = lines[..] else { panic!("{said}") };
    assert_eq!(version, format!("mile {}", env!("CARGO_PKG_VERSION")));
    // Whoever builds can name it; otherwise it is that of the checkout.
    let head = || {
        let mut git = Command::new("git");
        let asked = git.args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = asked.output().ok().filter(|output| output.status.success())?;
        Some(text(&output.stdout).trim().to_owned())
    };
    let expected = std::env::var("MILE_COMMIT").ok().or_else(head);
    assert_eq!(commit, format!("commit: {}", expected.as_deref().unwrap_or("unknown")));
    let all = [("cuda", cfg!(feature = "cuda")), ("mpi", cfg!(feature = "mpi"))];
    let built: Vec<&str> = all.iter().filter(|(_, built)| *built).map(|(name, _)| *name).collect();
    assert_eq!(
        features,
        format!("features: {}", if built.is_empty() { "none".to_owned() } else { built.join(", ") })
    );
    // What Linux says of this CPU.
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |names: &[&str]| names.iter().all(|name| flags.split_whitespace().any(|flag| flag == *name));
    let kernels = match () {
        () if has(&["avx512f", "avx512bw", "avx512vl", "fma"]) => "AVX-512",
        () if has(&["avx2", "fma"]) => "AVX2",
        () => "portable",
    };
    assert_eq!(cpu, format!("CPU: {kernels} kernels"));
    // One line, for scripts.
    assert_eq!(text(&mile(Path::new("."), &["-V"]).stdout), format!("{version}\n"));
}

#[test]
fn a_run_prints_a_table_and_keeps_its_directory() {
    let folder = folder_with("small.toml", SMALL);
    let output = mile(folder.path(), &["run", "small.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.starts_with("algorithm") && table.contains("\nled ") && table.contains("runs/small"));
    for file in ["config.toml", "metrics.jsonl", "summary.json", "table.txt", "table.tex"] {
        assert!(folder.path().join("runs/small").join(file).exists(), "{file}");
    }
    // A second run does not touch the first, and a copy of the resolved file is the same run.
    let again = mile(folder.path(), &["run", "runs/small/config.toml"]);
    assert!(text(&again.stdout).contains("runs/small-2"));
    let state =
        |run: &str| std::fs::read(folder.path().join(run).join("final/mile-seed0.safetensors")).unwrap();
    let tensors = |bytes: Vec<u8>| bytes[bytes.len() - 4 * 3 * 8 * 2..].to_vec();
    assert_eq!(tensors(state("runs/small")), tensors(state("runs/small-2")));
}

#[test]
fn mistakes_exit_with_2_and_one_message_that_names_them() {
    let folder = folder_with("small.toml", SMALL);
    std::fs::write(folder.path().join("wide.toml"), b"\xff\xfer\0o\0").unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(folder.path().join("pipe.toml")).status().unwrap();
    assert!(pipe.success());
    let cases: [(&[&str], &str); 14] = [
        (&["run", "none.toml"], "none.toml"),
        (&["run", "wide.toml"], "UTF-16"),
        (&["run", "pipe.toml"], "a pipe"),
        (&["run", "small.toml", "--out", "wide.toml"], "--out"),
        (&["run", "small.toml", "--set", "start.file=none.safetensors"], "none.safetensors"),
        (&["run", "small.toml", "--set", "rounds=x"], "small.toml: rounds: "),
        (&["run", "small.toml", "--set", "algorithm.led.beta=7"], "small.toml: algorithm[1].beta: "),
        (&["run", "small.toml", "--out", "fresh", "--resume"], "fresh: "),
        (&["run", "--frobnicate"], "--frobnicate"),
        (&["run", "--set", "problem.dataset=cifar10", "--data-dir", "nowhere"], "nowhere"),
        (&["graph", "--topology", "ring", "--agents", "0"], "network.agents: "),
        (&["graph", "--topology", "rign", "--agents", "3"], "rign"),
        (&["graph", "--topology", "erdos-renyi", "--p", "0.01", "--agents", "20"], "network"),
        (&["algorithms", "mind"], "mind"),
    ];
    for (arguments, expected) in cases {
        let output = mile(folder.path(), arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty() && !message.contains("panicked"), "{arguments:?}");
    }
}

#[test]
fn a_data_set_that_cannot_be_downloaded_is_named_with_its_files_and_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let output = mile(folder.path(), &["data", "get", "mnist"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    let place = folder.path().join("home/data/mnist");
    for expected in [
        "http://127.0.0.1:1/mnist/",
        &place.display().to_string(),
        "t10k-labels-idx1-ubyte",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        "experiments/data.sh mnist",
    ] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn a_port_in_use_is_named_as_such() {
    let folder = folder_with("small.toml", SMALL);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let output = mile(folder.path(), &["run", "small.toml", "--serve", &address]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--serve: ") && message.contains(&address), "{message}");
}

#[test]
fn a_failure_while_running_exits_with_1() {
    let folder = folder_with("small.toml", SMALL);
    let output = mile(folder.path(), &["run", "small.toml", "--out", "small.toml/run"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("mile: small.toml/run: "), "{message}");
    assert_eq!(message.matches("os error").count(), 1, "{message}");
}

#[test]
fn a_plot_of_what_is_not_there_is_refused_with_what_there_is() {
    let folder = folder_with("small.toml", SMALL);
    let sweep = SMALL.to_owned() + "[sweep]\nstep_size = [0.1, 0.2]\n";
    std::fs::write(folder.path().join("sweep.toml"), sweep).unwrap();
    for (file, out) in [("small.toml", "r"), ("sweep.toml", "s")] {
        let output = mile(folder.path(), &["run", file, "--out", out]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::remove_dir_all(folder.path().join(out).join("figures")).unwrap();
    }
    let of_sweep = "s";
    let cases: [(&[&str], &str); 6] = [
        (&["r", "--y", "accuracy"], "--y: "),
        (&["r", "--y", "loss,accuracy", "--x", "wall_s"], "--y: "),
        (&["r", "--y", "accuracy", "--together", "both"], "--y: "),
        (&["r", "s", "--y", "loss"], of_sweep),
        (&["s", "--x", "wall_s"], of_sweep),
        (&["s", "r", "--together", "both"], of_sweep),
    ];
    for (arguments, expected) in cases {
        let output = mile(folder.path(), &[&["plot"], arguments].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    for untouched in ["r/figures", "s/figures", "both"] {
        assert!(!folder.path().join(untouched).exists(), "{untouched}");
    }
    let output = mile(folder.path(), &["plot", "r", "--y", "loss", "--x", "round,wall_s"]);
    assert_eq!(text(&output.stdout), "4 files in r/figures\n");
    assert!(mile(folder.path(), &["plot", "r", "s"]).status.success());
}

#[test]
fn tensorboard_has_every_record_once_after_a_resume() {
    let folder = folder_with("small.toml", SMALL);
    let run = |more: &[&str]| {
        mile(folder.path(), &[&["run", "small.toml", "--out", "r", "--tensorboard"], more].concat())
    };
    let events = || -> Vec<(std::path::PathBuf, u64)> {
        let list =
            |path: std::path::PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let files = list(folder.path().join("r/tensorboard")).flat_map(list);
        let mut files: Vec<_> = files.map(|path| (path.clone(), path.metadata().unwrap().len())).collect();
        files.sort();
        files
    };
    assert!(run(&[]).status.success());
    let whole: u64 = events().iter().map(|(_, size)| size).sum();
    // A process that was killed has left events and records beyond the state from which a run continues.
    let lines = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    std::fs::remove_file(folder.path().join("r/summary.json")).unwrap();
    std::fs::remove_dir_all(folder.path().join("r/final")).unwrap();
    let records = lines("r/metrics.jsonl").lines().count();
    let refused = mile(folder.path(), &["run", "small.toml", "--out", "r", "--tensorboard"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        events().iter().map(|(_, size)| size).sum::<u64>(),
        whole,
        "nothing is touched by a refused one"
    );
    assert!(run(&["--resume"]).status.success());
    assert_eq!(lines("r/metrics.jsonl").lines().count(), records);
    assert_eq!(events().len(), 2);
    assert_eq!(events().iter().map(|(_, size)| size).sum::<u64>(), whole);
}

#[test]
fn divergence_is_a_result() {
    let folder = folder_with("small.toml", SMALL);
    let output =
        mile(folder.path(), &["run", "small.toml", "--set", "algorithm.mile.step_size=1e6", "--out", "r"]);
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output.stdout);
    assert!(table.lines().any(|line| line.starts_with("mile") && line.ends_with("diverged")), "{table}");
    assert!(table.lines().any(|line| line.starts_with("led") && line.contains("last round")), "{table}");
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let folder = folder_with("small.toml", SMALL);
    let output = mile(folder.path(), &["run", "small.toml", "--dry-run"]);
    let plan = text(&output.stdout);
    assert!(output.status.success() && plan.contains("[problem]"), "{plan}");
    // 20 rounds, 1 vector, 8 messages, 3 numbers of 8 bytes.
    assert!(plan.contains("3.75 KiB"), "{plan}");
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn a_dry_run_estimates_the_time() {
    let folder = folder_with("small.toml", SMALL);
    let plan = text(&mile(folder.path(), &["run", "small.toml", "--dry-run"]).stdout);
    let line = plan.lines().find(|line| line.starts_with("time: ")).unwrap_or_else(|| panic!("{plan}"));
    assert!(line.contains("2 jobs at a time") || line.contains("1 job at a time"), "{line}");
    assert!(plan.contains("\nmemory: about "), "{plan}");
    // Every point of a sweep: 20 rounds, 1 vector, 8 messages, 3 or 6 numbers of 8 bytes, for each of two algorithms.
    std::fs::write(
        folder.path().join("sweep.toml"),
        SMALL.to_owned() + "[sweep]\ncriterion = 'loss'\nproblem.dim = [3, 6]\n",
    )
    .unwrap();
    let sweep = text(&mile(folder.path(), &["run", "sweep.toml", "--dry-run"]).stdout);
    for part in ["7.50 KiB", "15.00 KiB", "22.50 KiB", "\nmemory: about ", "\ntime: "] {
        assert!(sweep.contains(part), "{part}: {sweep}");
    }
}

#[test]
fn a_quiet_run_prints_nothing_but_errors() {
    let folder = folder_with("small.toml", SMALL);
    let sweep = SMALL.to_owned() + "[sweep]\nstep_size = [0.1, 0.2]\n";
    std::fs::write(folder.path().join("sweep.toml"), sweep).unwrap();
    for (file, out) in [("small.toml", "r"), ("sweep.toml", "s")] {
        // Unstable, which a run warns about.
        let output =
            mile(folder.path(), &["run", file, "--quiet", "--out", out, "--set", "algorithm.mile.xi=0.9"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{}", text(&output.stderr));
        assert!(folder.path().join(out).join("report.html").exists());
    }
    let again = mile(folder.path(), &["run", "small.toml", "-q", "--out", "r"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(again.stdout.is_empty() && text(&again.stderr).starts_with("mile: "), "{}", text(&again.stderr));
}

#[test]
fn a_run_streams_its_records_as_json_lines() {
    let folder = folder_with("small.toml", SMALL);
    let lines = |bytes: &[u8]| -> Vec<serde_json::Value> {
        text(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let by_key = |mut records: Vec<serde_json::Value>| {
        records.sort_by_key(|record| (record["label"].to_string(), record["round"].as_u64()));
        records
    };
    let output = mile(folder.path(), &["run", "small.toml", "--format", "json", "--out", "r"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("algorithm"), "the table is a message");
    let kept = lines(&std::fs::read(folder.path().join("r/metrics.jsonl")).unwrap());
    assert_eq!((kept.len(), by_key(lines(&output.stdout))), (42, by_key(kept)));
    // Only new records of a resumed run.
    let more =
        ["run", "small.toml", "--format", "json", "-q", "--out", "r", "--resume", "--set", "rounds=22"];
    let output = mile(folder.path(), &more);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let rounds: Vec<u64> =
        lines(&output.stdout).iter().map(|record| record["round"].as_u64().unwrap()).collect();
    assert!(rounds.len() == 4 && rounds.iter().all(|round| *round > 20), "{rounds:?}");
    let sweep = SMALL.to_owned() + "[sweep]\nstep_size = [0.1, 0.2]\n";
    std::fs::write(folder.path().join("sweep.toml"), sweep).unwrap();
    let output = mile(folder.path(), &["run", "sweep.toml", "--format", "json", "--out", "s"]);
    let points: Vec<u64> =
        lines(&output.stdout).iter().map(|record| record["point"].as_u64().unwrap()).collect();
    assert_eq!((points.len(), points.iter().filter(|point| **point == 1).count()), (84, 42));
    let refused = mile(folder.path(), &["run", "small.toml", "--format", "json", "--dry-run"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_star_sets_a_key_of_all_algorithms() {
    let folder = folder_with("small.toml", SMALL);
    let output =
        mile(folder.path(), &["run", "small.toml", "--dry-run", "--set", "algorithm.*.step_size=0.07"]);
    assert_eq!(text(&output.stdout).matches("step_size = 0.07").count(), 2, "{}", text(&output.stderr));
    let output =
        mile(folder.path(), &["run", "small.toml", "--dry-run", "--set", "algorithm.k-gt.step_size=0.07"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("k-gt"), "{}", text(&output.stderr));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = mile(folder.path(), &["completions", shell]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let script = text(&output.stdout);
        assert!(script.contains("reproduce") && script.contains("dry-run"), "{shell}");
    }
    let page = text(&mile(folder.path(), &["man"]).stdout);
    assert!(page.contains(".TH mile 1") && page.contains("mile\\-run(1)"), "{page}");
    let output = mile(folder.path(), &["man", "pages/man1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for command in ["mile", "mile-run", "mile-init", "mile-data-get"] {
        let page = std::fs::read_to_string(folder.path().join(format!("pages/man1/{command}.1")));
        assert!(page.unwrap().contains(".SH SYNOPSIS"), "{command}");
    }
}

#[test]
fn json_is_alone_on_standard_output() {
    let here = Path::new(".");
    let algorithms: serde_json::Value =
        serde_json::from_slice(&mile(here, &["algorithms", "--format", "json"]).stdout).unwrap();
    assert_eq!(algorithms["algorithms"].as_array().unwrap().len(), 31);
    assert_eq!(algorithms["unavailable"][0]["name"], "mind");
    let arguments = ["graph", "--topology", "ring", "--agents", "6", "--format", "json"];
    let graph: serde_json::Value = serde_json::from_slice(&mile(here, &arguments).stdout).unwrap();
    assert_eq!(graph["edges"].as_array().unwrap().len(), 6);
    assert!((graph["lambda_n"].as_f64().unwrap() + 1.0 / 3.0).abs() < 1e-12);
    let one: serde_json::Value = serde_json::from_slice(
        &mile(here, &["graph", "--topology", "star", "--agents", "1", "--format", "json"]).stdout,
    )
    .unwrap();
    assert!(one["lambda_2"].is_null() && one["lambda_n"] == 1.0);
}

#[test]
fn a_closed_pipe_does_not_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mile"))
        .args(["graph", "--topology", "complete", "--agents", "200", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn without_a_file_the_newest_built_in_run_is_resumed_with_its_own_settings() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| mile(folder.path(), &[&["run", "--quiet"], arguments].concat());
    let none = run(&["--resume"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("runs/default: "), "{}", text(&none.stderr));
    let small = ["problem={ kind = \"quadratic\", dim = 3 }", "rounds=4", "network.agents=3"];
    let small: Vec<&str> = small.iter().flat_map(|set| ["--set", set]).collect();
    for _ in 0..2 {
        let begun = run(&small);
        assert!(begun.status.success(), "{}", text(&begun.stderr));
    }
    let longer = run(&["--resume", "--set", "rounds=6"]);
    assert!(longer.status.success(), "{}", text(&longer.stderr));
    let rounds = |name: &str| {
        let config = std::fs::read_to_string(folder.path().join("runs").join(name).join("config.toml"));
        config.unwrap().parse::<toml::Table>().unwrap()["rounds"].as_integer().unwrap()
    };
    assert_eq!((rounds("default"), rounds("default-2")), (4, 6));
    let refused = run(&["--resume", "--set", "rounds=7", "--set", "network.agents=-1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("runs/default-2/config.toml"), "{}", text(&refused.stderr));
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_cleanly_and_resume_continues_to_the_same_bits() {
    let folder = folder_with("small.toml", SMALL);
    let long = ["--set", "rounds=3000000", "--set", "eval_every=1000"];
    let child = Command::new(env!("CARGO_BIN_EXE_mile"))
        .current_dir(folder.path())
        .args(["run", "small.toml", "--out", "r"])
        .args(long)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let metrics = folder.path().join("r/metrics.jsonl");
    let guard = Instant::now() + HANG;
    while std::fs::read_to_string(&metrics).unwrap_or_default().lines().count() < 4 {
        assert!(Instant::now() < guard, "no records");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--resume"));
    let stopped = std::fs::read_to_string(folder.path().join("r/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&stopped).unwrap();
    assert_eq!(summary[0]["status"], "stopped");
    let reached = summary.as_array().unwrap().iter().map(|outcome| outcome["round"].as_u64().unwrap());
    let rounds = format!("rounds={}", reached.max().unwrap() + 5);
    let finish = |out: &str, resume: &[&str]| {
        let mut arguments =
            vec!["run", "small.toml", "--out", out, "--set", &rounds, "--set", "eval_every=1000"];
        arguments.extend(resume);
        let output = mile(folder.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = std::fs::read(folder.path().join(out).join("final/mile-seed0.safetensors")).unwrap();
        bytes[bytes.len() - 4 * 3 * 8 * 2..].to_vec()
    };
    assert_eq!(finish("r", &["--resume"]), finish("whole", &[]));
}
