//! The status of an agent, as served on its socket and as Prometheus metrics.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::activity::{Activity, Awaited};
use crate::board::Posted;
use crate::frame::{HEAD, Kind};
use crate::gossip::Estimate;
use crate::notice::{Notice, NoticedEdge};

/// Bytes of frames in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Elements of vectors.
    pub payload: u64,
    /// Numbers of the [gossip](crate::gossip).
    pub gossip: u64,
    /// Everything else in the protocol: heads of frames, handshakes, confirmations, decisions.
    pub protocol: u64,
}

impl Traffic {
    /// Counts a frame by its head.
    pub(crate) fn count(&mut self, kind: Kind, length: usize) {
        self.protocol += HEAD as u64;
        let length = length as u64;
        match kind {
            Kind::Data => self.payload += length,
            Kind::Gossip => self.gossip += length,
            Kind::Hello | Kind::Refuse | Kind::Have | Kind::Decide | Kind::Verdict | Kind::Notices => {
                self.protocol += length;
            }
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.payload + self.gossip + self.protocol
    }
}

/// A neighbour, as seen from this agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its id.
    pub id: usize,
    /// Whether it is connected.
    pub linked: bool,
    /// For how many seconds it has been connected, or has not been.
    pub since_s: f64,
    /// Seconds since a frame last arrived from it.
    pub last_heard_s: Option<f64>,
    /// The latest exchange for which it sent something.
    pub exchange: u64,
    /// How many exchanges it is behind this agent; negative if it is ahead.
    pub lag: i64,
    /// The round of the latest checkpoint that it has confirmed.
    pub durable_round: u64,
    /// Bytes sent to it.
    pub sent: Traffic,
    /// Bytes received from it.
    pub received: Traffic,
    /// What is awaited from it.
    pub waiting: Option<Awaited>,
    /// For how many seconds.
    pub waiting_s: Option<f64>,
    /// Why its last connection was refused, by either end.
    pub refusal: Option<String>,
    /// Why there is no connection: what the last attempt ended with.
    pub trouble: Option<String>,
    /// Rounds in which the edge was skipped.
    pub skipped: u64,
    /// Messages of it that were refused because they were not finite or far out of range.
    #[serde(default)]
    pub refused_messages: u64,
    /// Why the last one was.
    #[serde(default)]
    pub refused_why: Option<String>,
    /// How far the elements of its last message were from the agent's own, at most.
    #[serde(default)]
    pub distance: Option<f64>,
    /// Whether what it sends comes through the relay; none if it is not connected.
    #[serde(default)]
    pub relayed: Option<bool>,
}

/// How many connections were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RefusedConnections {
    /// Connections from keys that are not listed.
    pub strangers: u64,
    /// Connections ignored before their handshake, because there were too many.
    pub flooded: u64,
    /// Handshakes that failed or took too long.
    pub broken: u64,
    /// Connections closed because a listed neighbour broke the protocol.
    pub faults: u64,
}

/// The status of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// Rounds to do, over all jobs, where known.
    pub rounds: Option<u64>,
    /// Exchanges done, over all jobs.
    pub exchange: u64,
    /// Seconds since this start.
    pub since_start_s: f64,
    /// What it is doing.
    pub activity: Activity,
    /// For how many seconds.
    pub activity_s: f64,
    /// Its neighbours, in increasing id.
    pub neighbours: Vec<Neighbour>,
    /// Its estimates of the whole network, if agents gossip.
    pub estimate: Option<Estimate>,
    /// How many connections were refused.
    pub refused: RefusedConnections,
    /// The round of its last checkpoint, if there is one.
    pub saved_round: Option<u64>,
    /// The round in which its model was found to have diverged.
    pub diverged: Option<u64>,
    /// Where its time went since this start.
    #[serde(default)]
    pub spent: Spent,
    /// Its own loss at the last evaluation, if that is a number.
    #[serde(default)]
    pub own_loss: Option<f64>,
    /// Bytes of memory that it uses, where the system says so.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// The latest notices of all agents, its own among them, if agents gossip.
    #[serde(default)]
    pub notices: Vec<Posted>,
}

/// Seconds since the start of an agent, by what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Spent {
    /// Local steps and evaluations.
    pub computing_s: f64,
    /// Exchanges, that is, waiting for neighbours.
    pub exchanging_s: f64,
    /// Checkpoints.
    pub writing_s: f64,
}

/// A text as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

/// An agent whose status is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// Nothing answers on the socket.
    #[error("no agent answers on {path}: {source}; is it running?")]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The answer is not a status.
    #[error(
        "the process that answers on {path} is not an agent of this version: {source}; use the version of mile that started the agent"
    )]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
}

/// The file in which an agent that has done its work leaves its last status.
const LAST: &str = "status.json";

/// Leaves the last status of an agent in its folder, for queries after it has ended.
pub fn leave_behind(folder: &Path, status: Status) -> std::io::Result<()> {
    let status = Status { activity: Activity::Done, activity_s: 0.0, ..status };
    mile_store::write_file(&folder.join(LAST), &serde_json::to_vec(&status)?)
}

/// Removes what an earlier start has left behind.
pub fn forget(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(folder.join(LAST)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The last status of an agent that has done its work, if it has.
pub fn left_behind(folder: &Path) -> Option<Status> {
    serde_json::from_slice(&std::fs::read(folder.join(LAST)).ok()?).ok()
}

/// Most bytes of an answer that are read.
const LONGEST: u64 = 16 << 20;

/// Asks an agent for its status on its socket.
pub fn ask(socket: &Path) -> Result<Status, StatusError> {
    let silent = |source| StatusError::Silent { path: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).map_err(silent)?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).map_err(silent)?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text).map_err(silent)?;
    serde_json::from_slice(&text).map_err(|source| StatusError::Foreign { path: socket.to_owned(), source })
}

impl Status {
    /// What the agent says about itself to the whole network.
    pub fn notice(&self) -> Notice {
        let total = |bytes: &dyn Fn(&Neighbour) -> Traffic| -> u64 {
            self.neighbours.iter().map(|edge| bytes(edge).total()).sum()
        };
        let edge = |edge: &Neighbour| NoticedEdge { id: edge.id, linked: edge.linked, waiting: edge.waiting };
        Notice {
            agent: self.agent,
            version: 0,
            incarnation: self.incarnation,
            round: self.round,
            rounds: self.rounds,
            activity: self.activity,
            activity_ms: (self.activity_s * 1e3) as u32,
            own_loss: self.own_loss,
            sent: total(&|edge| edge.sent),
            received: total(&|edge| edge.received),
            diverged: self.diverged,
            edges: self.neighbours.iter().map(edge).collect(),
        }
    }

    /// What is answered on the socket.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The status as metrics in the text format of Prometheus.
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
        gauge("agent_info", "gauge", "1, with the name of the run", {
            vec![(format!(",run=\"{}\"", label(&self.run)), 1.0)]
        });
        let rounds = self.rounds.into_iter().map(|rounds| (String::new(), rounds as f64)).collect();
        gauge("rounds", "gauge", "rounds to do", rounds);
        let Spent { computing_s, exchanging_s, writing_s } = self.spent;
        let spent = [("computing", computing_s), ("exchanging", exchanging_s), ("writing", writing_s)];
        let spent = spent.map(|(what, seconds)| (format!(",what=\"{what}\""), seconds));
        gauge("spent_seconds", "counter", "seconds since this start, by what the agent did", spent.into());
        let memory = self.resident_bytes.into_iter().map(|bytes| (String::new(), bytes as f64)).collect();
        gauge("resident_bytes", "gauge", "bytes of memory in use", memory);
        let own = self.own_loss.into_iter().map(|loss| (String::new(), loss)).collect();
        gauge("own_loss", "gauge", "the agent's own loss at its last evaluation", own);
        gauge("round", "counter", "rounds done", one(self.round as f64));
        gauge("exchange", "counter", "exchanges done", one(self.exchange as f64));
        gauge("incarnation", "counter", "starts of this agent", one(self.incarnation as f64));
        gauge("uptime_seconds", "gauge", "seconds since this start", one(self.since_start_s));
        let waiting = self.activity == Activity::Waiting;
        gauge(
            "waiting",
            "gauge",
            "1 while the agent waits for neighbours",
            one(f64::from(u8::from(waiting))),
        );
        let waited = if waiting { self.activity_s } else { 0.0 };
        gauge("waiting_seconds", "gauge", "seconds the agent has been waiting for neighbours", one(waited));
        let edges = |value: &dyn Fn(&Neighbour) -> Option<f64>| -> Vec<(String, f64)> {
            let label = |edge: &Neighbour| Some((format!(",neighbour=\"{}\"", edge.id), value(edge)?));
            self.neighbours.iter().filter_map(label).collect()
        };
        gauge(
            "linked",
            "gauge",
            "1 if the neighbour is connected",
            edges(&|edge| Some(f64::from(u8::from(edge.linked)))),
        );
        gauge("lag", "gauge", "exchanges the neighbour is behind", edges(&|edge| Some(edge.lag as f64)));
        let traffic = |side: &dyn Fn(&Neighbour) -> Traffic| -> Vec<(String, f64)> {
            let kinds = |edge: &Neighbour| {
                let (id, Traffic { payload, gossip, protocol }) = (edge.id, side(edge));
                [("payload", payload), ("gossip", gossip), ("protocol", protocol)]
                    .map(|(kind, bytes)| (format!(",neighbour=\"{id}\",kind=\"{kind}\""), bytes as f64))
            };
            self.neighbours.iter().flat_map(kinds).collect()
        };
        gauge("sent_bytes", "counter", "bytes sent to the neighbour", traffic(&|edge| edge.sent));
        gauge(
            "received_bytes",
            "counter",
            "bytes received from the neighbour",
            traffic(&|edge| edge.received),
        );
        gauge(
            "heard_seconds",
            "gauge",
            "seconds since a frame arrived from the neighbour",
            edges(&|edge| edge.last_heard_s),
        );
        gauge(
            "missing_seconds",
            "gauge",
            "seconds waited for the neighbour in this exchange",
            edges(&|edge| edge.waiting_s),
        );
        gauge(
            "skipped_rounds",
            "counter",
            "rounds in which the edge to the neighbour was skipped",
            edges(&|edge| Some(edge.skipped as f64)),
        );
        gauge(
            "refused_messages",
            "counter",
            "messages of the neighbour that were refused because they were not finite or far out of range",
            edges(&|edge| Some(edge.refused_messages as f64)),
        );
        let far = "largest difference between elements of the neighbour's last message and the agent's own";
        gauge("distance", "gauge", far, edges(&|edge| edge.distance));
        let relayed = |edge: &Neighbour| edge.relayed.map(|relayed| f64::from(u8::from(relayed)));
        gauge(
            "relayed",
            "gauge",
            "1 if the connection goes through the relay, 0 if it is direct",
            edges(&relayed),
        );
        let saved = self.saved_round.into_iter().map(|round| (String::new(), round as f64)).collect();
        gauge("checkpoint_round", "gauge", "round of the last checkpoint", saved);
        let diverged = f64::from(u8::from(self.diverged.is_some()));
        gauge("diverged", "gauge", "1 if the model has diverged", one(diverged));
        let RefusedConnections { strangers, flooded, broken, faults } = self.refused;
        let reasons = [("stranger", strangers), ("flood", flooded), ("handshake", broken), ("fault", faults)];
        let refused = reasons.map(|(why, count)| (format!(",why=\"{why}\""), count as f64));
        gauge("refused", "counter", "connections refused", refused.into());
        if let Some(Estimate { loss, consensus_error, grad_norm_sq }) = self.estimate {
            gauge("loss", "gauge", "estimated mean loss", one(loss));
            gauge("consensus_error", "gauge", "estimated consensus error", one(consensus_error));
            let norm = grad_norm_sq.into_iter().map(|norm| (String::new(), norm)).collect();
            gauge("gradient_norm_squared", "gauge", "estimated squared norm of the mean gradient", norm);
        }
        text
    }
}
