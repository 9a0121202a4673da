//! How it stands with an agent, as told to whoever asks on its socket.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gossip::Estimate;

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Local steps, or a checkpoint.
    Computing,
    /// An exchange: it waits for neighbours.
    Waiting,
    /// It has done its work, and stays until its neighbours have all they need from it.
    Leaving,
}

/// What is missing from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Its message, or the rest of it.
    Message,
    /// Its decision whether the edge is used in this round.
    Decision,
    /// Word that the last message is on its disk.
    Confirmation,
}

/// One edge, as seen from this end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Id of the other end.
    pub id: usize,
    /// Whether there is a link.
    pub linked: bool,
    /// For how many seconds there has been one, or none.
    pub since_s: f64,
    /// Seconds since something was last heard from it.
    pub last_heard_s: Option<f64>,
    /// The latest exchange it sent something for.
    pub exchange: u64,
    /// How many exchanges it is behind this agent; negative if it is ahead.
    pub lag: i64,
    /// The round up to which its state is on its disk.
    pub durable_round: u64,
    /// Bytes of messages sent to it.
    pub bytes_sent: u64,
    /// Bytes of messages received from it.
    pub bytes_received: u64,
    /// What this agent waits for from it.
    pub waiting: Option<Missing>,
    /// For how many seconds.
    pub waiting_s: Option<f64>,
    /// Why the last attempt to talk was refused, by either end.
    pub refusal: Option<String>,
    /// Rounds in which the edge was skipped.
    pub skipped: u64,
}

/// What was kept out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Connections from keys that are not listed.
    pub strangers: u64,
    /// Connections turned away before a handshake, because there were too many.
    pub flooded: u64,
    /// Handshakes that failed or took too long.
    pub broken: u64,
    /// Links closed because a listed neighbour said something wrong.
    pub faults: u64,
}

/// How it stands with an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its id.
    pub agent: usize,
    /// Name of the run.
    pub run: String,
    /// How often it has been started.
    pub incarnation: u64,
    /// Which of the run's jobs it is at.
    pub job: usize,
    /// Rounds done, over all jobs.
    pub round: u64,
    /// Rounds to be done, over all jobs, where known.
    pub rounds: Option<u64>,
    /// Exchanges done, over all jobs.
    pub exchange: u64,
    /// Seconds since this start.
    pub since_start_s: f64,
    /// What it is doing.
    pub activity: Activity,
    /// For how many seconds.
    pub activity_s: f64,
    /// Its edges.
    pub neighbours: Vec<Neighbour>,
    /// The whole network as seen from here, if agents gossip.
    pub estimate: Option<Estimate>,
    /// What was kept out.
    pub refused: Refused,
}

/// An agent that does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// Nobody there.
    #[error("no agent answers on {path}: {source}")]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Something else is there.
    #[error("what answers on {path} is not an agent of this version: {source}")]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
}

/// Longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// Asks an agent on its socket.
pub fn ask(socket: &Path) -> Result<Status, StatusError> {
    let silent = |source| StatusError::Silent { path: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).map_err(silent)?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).map_err(silent)?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text).map_err(silent)?;
    serde_json::from_slice(&text).map_err(|source| StatusError::Foreign { path: socket.to_owned(), source })
}

impl Status {
    /// The same as Prometheus text.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut gauge = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
            if values.is_empty() {
                return;
            }
            let _ = writeln!(text, "# HELP mile_{name} {help}\n# TYPE mile_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "mile_{name}{{agent=\"{}\"{labels}}} {value}", self.agent);
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        gauge("round", "counter", "rounds done", one(self.round as f64));
        gauge("exchange", "counter", "exchanges done", one(self.exchange as f64));
        gauge("incarnation", "counter", "starts of this agent", one(self.incarnation as f64));
        gauge("uptime_seconds", "gauge", "seconds since this start", one(self.since_start_s));
        let waiting = self.activity == Activity::Waiting;
        gauge("waiting", "gauge", "1 while it waits for neighbours", one(f64::from(u8::from(waiting))));
        let waited = if waiting { self.activity_s } else { 0.0 };
        gauge("waiting_seconds", "gauge", "seconds it has been waiting", one(waited));
        let edges = |value: &dyn Fn(&Neighbour) -> Option<f64>| -> Vec<(String, f64)> {
            let label = |edge: &Neighbour| Some((format!(",neighbour=\"{}\"", edge.id), value(edge)?));
            self.neighbours.iter().filter_map(label).collect()
        };
        gauge(
            "linked",
            "gauge",
            "1 if there is a link",
            edges(&|edge| Some(f64::from(u8::from(edge.linked)))),
        );
        gauge("lag", "gauge", "exchanges it is behind", edges(&|edge| Some(edge.lag as f64)));
        gauge("sent_bytes", "counter", "bytes of messages sent", edges(&|edge| Some(edge.bytes_sent as f64)));
        let received = edges(&|edge| Some(edge.bytes_received as f64));
        gauge("received_bytes", "counter", "bytes of messages received", received);
        gauge("heard_seconds", "gauge", "seconds since it was heard", edges(&|edge| edge.last_heard_s));
        gauge("missing_seconds", "gauge", "seconds waited for it", edges(&|edge| edge.waiting_s));
        gauge(
            "skipped_rounds",
            "counter",
            "rounds its edge was skipped",
            edges(&|edge| Some(edge.skipped as f64)),
        );
        let Refused { strangers, flooded, broken, faults } = self.refused;
        let reasons = [("stranger", strangers), ("flood", flooded), ("handshake", broken), ("fault", faults)];
        let refused = reasons.map(|(why, count)| (format!(",why=\"{why}\""), count as f64));
        gauge("refused", "counter", "connections kept out", refused.into());
        if let Some(Estimate { loss, consensus_error, grad_norm_sq }) = self.estimate {
            gauge("loss", "gauge", "estimated mean loss", one(loss));
            gauge("consensus_error", "gauge", "estimated consensus error", one(consensus_error));
            let norm = grad_norm_sq.into_iter().map(|norm| (String::new(), norm)).collect();
            gauge("gradient_norm_squared", "gauge", "estimated squared norm of the mean gradient", norm);
        }
        text
    }
}
