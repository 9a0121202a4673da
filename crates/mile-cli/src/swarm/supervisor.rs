//! The agents' processes: started, started again from their checkpoints when they are killed, and ended with us.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use mile_lab::error::LabError;
use rustix::process::{Pid, Signal, kill_process};

use super::view::View;
use crate::USAGE;

/// An agent that ends this often within this time, without having done a round, is given up.
const FAILURES: usize = 5;
const WITHIN: Duration = Duration::from_secs(60);
/// Time from an agent's end to its next start; doubled each time it does no round.
const BACKOFF: Duration = Duration::from_millis(100);
/// How long agents may take to end when asked to.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of a log that are looked at when its agent is given up.
const LAST_WORDS: u64 = 4000;

/// Supervises the agents of a swarm.
pub(super) struct Supervisor {
    members: Vec<Member>,
}

struct Member {
    id: usize,
    folder: PathBuf,
    state: State,
    /// When it ended, since it last did a round.
    failures: Vec<Instant>,
    round: u64,
}

enum State {
    Running(Child),
    /// To be started at that time.
    Due(Instant),
    Done,
}

impl Supervisor {
    pub(super) fn start(folders: &[PathBuf]) -> anyhow::Result<Self> {
        let mut supervisor = Self { members: Vec::new() };
        for (id, folder) in folders.iter().enumerate() {
            let state = State::Running(spawn(folder, folders.len())?);
            supervisor.members.push(Member {
                id,
                folder: folder.clone(),
                state,
                failures: Vec::new(),
                round: 0,
            });
        }
        Ok(supervisor)
    }

    /// Starts again whoever was killed. False when all have done their work.
    pub(super) fn look(&mut self, view: &View) -> anyhow::Result<bool> {
        let agents = self.members.len();
        for member in &mut self.members {
            match &mut member.state {
                State::Running(child) => {
                    let ended =
                        child.try_wait().with_context(|| format!("cannot watch agent {}", member.id))?;
                    if let Some(status) = ended {
                        member.ended(status, view)?;
                    }
                }
                State::Due(time) if *time <= Instant::now() => {
                    member.state = State::Running(spawn(&member.folder, agents)?);
                }
                State::Due(_) | State::Done => {}
            }
        }
        Ok(self.members.iter().any(|member| !matches!(member.state, State::Done)))
    }

    /// Ends all that still run, in good order if they let us.
    pub(super) fn stop(&mut self) {
        for member in &self.members {
            if let State::Running(child) = &member.state
                && let Some(pid) = Pid::from_raw(child.id().cast_signed())
            {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + GRACE;
        for member in &mut self.members {
            if let State::Running(child) = &mut member.state {
                while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
            member.state = State::Done;
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Member {
    fn ended(&mut self, status: ExitStatus, view: &View) -> anyhow::Result<()> {
        self.state = State::Done;
        if status.success() {
            return Ok(());
        }
        let round = view.round(self.id);
        if round > self.round {
            (self.round, self.failures) = (round, Vec::new());
        }
        self.failures.retain(|time| time.elapsed() < WITHIN);
        self.failures.push(Instant::now());
        if status.code() == Some(USAGE.into()) {
            let problem = format!("agent {} cannot work:\n{}", self.id, last_words(&self.folder));
            return Err(LabError::Directory { path: self.folder.clone(), problem }.into());
        }
        if self.failures.len() >= FAILURES {
            let (id, words) = (self.id, last_words(&self.folder));
            anyhow::bail!("agent {id} has ended {FAILURES} times without doing a round ({status}):\n{words}");
        }
        let wait = BACKOFF * 2u32.pow(self.failures.len() as u32 - 1);
        view.say(&format!("agent {} ended ({status}); starting it again from its checkpoint", self.id));
        self.state = State::Due(Instant::now() + wait);
        Ok(())
    }
}

fn spawn(folder: &Path, agents: usize) -> anyhow::Result<Child> {
    let log = folder.join("log");
    let open = || File::options().create(true).append(true).open(&log);
    let failed = || format!("cannot write {}", log.display());
    let (out, err) = (open().with_context(failed)?, open().with_context(failed)?);
    let mut command = Command::new(std::env::current_exe().context("cannot find the program mile")?);
    command.arg("agent").arg(folder.join("agent.toml")).arg("--leashed");
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RAYON_NUM_THREADS", (cores / agents).max(1).to_string());
    }
    // The other end of its standard input is ours: when we are gone, however that comes about, so is it.
    command.stdin(Stdio::piped()).stdout(out).stderr(err);
    command.spawn().context("cannot start an agent")
}

/// The end of an agent's log.
fn last_words(folder: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(folder.join("log"))?;
        let start = file.metadata()?.len().saturating_sub(LAST_WORDS);
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
