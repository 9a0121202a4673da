//! Runs the command in a temporary folder, and reads its results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A guard against waiting forever: nothing that is waited for takes this long.
pub(crate) const HANG: Duration = Duration::from_secs(120);

pub(crate) struct TestFolder {
    folder: tempfile::TempDir,
}

/// The parts of a state file that must be equal: names, shapes, values and progress.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) header: Value,
    pub(crate) bytes: Vec<u8>,
}

impl TestFolder {
    pub(crate) fn with(experiment: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("e.toml"), experiment).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
        command.env("MILE_HOME", self.path("home")).env_remove("MILE_DATA").current_dir(self.folder.path());
        command.args(arguments);
        command
    }

    pub(crate) fn mile(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Output {
        let output = self.mile(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        output
    }

    /// Starts a command whose output goes to a file.
    pub(crate) fn start(&self, arguments: &[&str], log: &str) -> RunningCommand {
        let file = std::fs::File::create(self.path(log)).unwrap();
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        RunningCommand { child: command.spawn().unwrap(), log: self.path(log) }
    }

    /// The final states of a run, by file.
    pub(crate) fn finals(&self, run: &str) -> BTreeMap<String, State> {
        states(&self.path(run).join("final"))
    }

    /// Asserts that two runs have the same final states and the same records.
    pub(crate) fn assert_equal(&self, one: &str, other: &str) {
        let (a, b) = (self.finals(one), self.finals(other));
        assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
        assert!(!a.is_empty());
        for (name, state) in &a {
            assert_eq!(state.header, b[name].header, "{name}");
            assert!(state.bytes == b[name].bytes, "{name} has other bits");
            let [one, other] =
                [one, other].map(|run| std::fs::read(self.path(run).join("final").join(name)).unwrap());
            assert!(one == other, "{name} is another file");
        }
        assert_eq!(self.records(one), self.records(other));
        assert_eq!(timeless(self.json(one, "summary.json")), timeless(self.json(other, "summary.json")));
    }

    fn json(&self, run: &str, file: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(run).join(file)).unwrap()).unwrap()
    }

    /// The records of a run, without their times.
    pub(crate) fn records(&self, run: &str) -> Vec<Value> {
        let lines = std::fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap_or_default();
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).map(timeless).collect()
    }

    /// The process of an agent of a swarm, once it exists and is not `other`.
    pub(crate) fn pid(&self, run: &str, agent: usize, other: Option<u32>) -> u32 {
        let path = self.path(run).join(format!("agents/{agent}/pid"));
        let read = || std::fs::read_to_string(&path).ok()?.trim().parse().ok();
        wait_for(|| read().filter(|pid| Some(*pid) != other), &format!("a new process of agent {agent}"))
    }
}

pub(crate) fn states(folder: &Path) -> BTreeMap<String, State> {
    let state = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        if let Some(own) = header["__metadata__"]["mile"].as_str() {
            let own: Value = serde_json::from_str(own).unwrap();
            header["__metadata__"] = timeless(own["state"]["header"].clone());
        }
        State { header, bytes: bytes[8 + length..].to_vec() }
    };
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    entries.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), state(path))).collect()
}

fn timeless(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("wall_s");
            map.values_mut().for_each(|inner| *inner = timeless(inner.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| *inner = timeless(inner.take())),
        _ => {}
    }
    value
}

/// A running command; killed when dropped.
pub(crate) struct RunningCommand {
    pub(crate) child: Child,
    log: PathBuf,
}

impl RunningCommand {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let ended = wait_for(|| self.child.try_wait().unwrap(), "a command to end");
        ended.code()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).output().unwrap();
    drop(sent);
}

pub(crate) fn wait_for<R>(mut look: impl FnMut() -> Option<R>, what: &str) -> R {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < HANG, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
