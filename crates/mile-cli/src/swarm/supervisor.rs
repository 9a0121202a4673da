//! The agents' processes: started, restarted from their checkpoints when they are killed, and ended with this process.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use mile_lab::error::LabError;
use rustix::process::{Pid, Signal, kill_process};

use super::view::View;
use crate::{DIVERGED, Program, USAGE};

/// The swarm fails if an agent ends this often within this time without completing a round.
const MAX_FAILURES: usize = 5;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Time from an agent's end to its restart; doubled each time it ends without completing a round.
const BACKOFF: Duration = Duration::from_millis(100);
/// How long agents may take to exit after SIGTERM; then they are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes at the end of a log that are read for an error message.
const LOG_TAIL: u64 = 4000;

/// Supervises the agents of a swarm.
pub(super) struct Supervisor<'p> {
    program: &'p Program,
    processes: Vec<AgentProcess>,
    /// The job with which agents begin.
    from_job: usize,
}

/// What the agents of a swarm are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Some of them run.
    Running,
    /// All have done their work.
    Done,
    /// The model of one of them has diverged: the others wait for it.
    Diverged,
}

/// One agent and its process.
struct AgentProcess {
    id: usize,
    folder: PathBuf,
    state: State,
    /// When it ended, since it last completed a round.
    failures: Vec<Instant>,
    round: u64,
}

enum State {
    Running(Child),
    /// To be restarted at that time.
    Due(Instant),
    Done,
    Diverged,
}

impl<'p> Supervisor<'p> {
    pub(super) fn start(program: &'p Program, folders: &[PathBuf], from_job: usize) -> anyhow::Result<Self> {
        let mut supervisor = Self { program, processes: Vec::new(), from_job };
        for (id, folder) in folders.iter().enumerate() {
            let state = State::Running(spawn(program, folder, folders.len(), from_job)?);
            supervisor.processes.push(AgentProcess {
                id,
                folder: folder.clone(),
                state,
                failures: Vec::new(),
                round: 0,
            });
        }
        Ok(supervisor)
    }

    /// Restarts agents that were killed.
    pub(super) fn poll(&mut self, view: &View) -> anyhow::Result<Standing> {
        let (agents, from_job) = (self.processes.len(), self.from_job);
        for process in &mut self.processes {
            match &mut process.state {
                State::Running(child) => {
                    let ended = child
                        .try_wait()
                        .with_context(|| format!("cannot get the status of agent {}", process.id))?;
                    if let Some(status) = ended {
                        process.ended(status, view)?;
                    }
                }
                State::Due(time) if *time <= Instant::now() => {
                    process.state = State::Running(spawn(self.program, &process.folder, agents, from_job)?);
                }
                State::Due(_) | State::Done | State::Diverged => {}
            }
        }
        let mut states = self.processes.iter().map(|process| &process.state);
        Ok(match () {
            () if states.clone().any(|state| matches!(state, State::Diverged)) => Standing::Diverged,
            () if states.all(|state| matches!(state, State::Done)) => Standing::Done,
            () => Standing::Running,
        })
    }

    /// Ends all running agents: SIGTERM first, then SIGKILL.
    pub(super) fn stop(&mut self) {
        for process in &self.processes {
            if let State::Running(child) = &process.state
                && let Some(pid) = Pid::from_raw(child.id().cast_signed())
            {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        for process in &mut self.processes {
            if let State::Running(child) = &mut process.state {
                while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
            process.state = State::Done;
        }
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl AgentProcess {
    fn ended(&mut self, status: ExitStatus, view: &View) -> anyhow::Result<()> {
        self.state = State::Done;
        if status.success() {
            return Ok(());
        }
        if status.code() == Some(DIVERGED.into()) {
            self.state = State::Diverged;
            return Ok(());
        }
        let round = view.round(self.id);
        if round > self.round {
            (self.round, self.failures) = (round, Vec::new());
        }
        self.failures.retain(|time| time.elapsed() < FAILURE_WINDOW);
        self.failures.push(Instant::now());
        if status.code() == Some(USAGE.into()) {
            let problem =
                format!("agent {} cannot run; the end of its log:\n{}", self.id, log_tail(&self.folder));
            return Err(LabError::Directory { path: self.folder.clone(), problem }.into());
        }
        if self.failures.len() >= MAX_FAILURES {
            let (id, tail) = (self.id, log_tail(&self.folder));
            anyhow::bail!(
                "agent {id} ended {MAX_FAILURES} times without completing a round ({status}); the end of its log:\n{tail}"
            );
        }
        let wait = BACKOFF * 2u32.pow(self.failures.len() as u32 - 1);
        view.print_line(&format!("agent {} ended ({status}); restarting it from its checkpoint", self.id));
        self.state = State::Due(Instant::now() + wait);
        Ok(())
    }
}

fn spawn(program: &Program, folder: &Path, agents: usize, from_job: usize) -> anyhow::Result<Child> {
    let log = folder.join("log");
    let open = || File::options().create(true).append(true).open(&log);
    let failed = || format!("cannot write {}", log.display());
    let (out, err) = (open().with_context(failed)?, open().with_context(failed)?);
    let mut command = program.again()?;
    command.arg("agent").arg(folder.join("agent.toml")).arg("--exit-with-parent");
    command.arg("--from-job").arg(from_job.to_string());
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RAYON_NUM_THREADS", (cores / agents).max(1).to_string());
    }
    // The agent exits when its standard input is closed, which happens when this process ends in any way.
    command.stdin(Stdio::piped()).stdout(out).stderr(err);
    command.spawn().context("cannot start an agent")
}

/// The last lines of an agent's log.
fn log_tail(folder: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(folder.join("log"))?;
        let start = file.metadata()?.len().saturating_sub(LOG_TAIL);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().rev().take(6).collect();
    lines.into_iter().rev().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
