//! Status reports: on a socket, and in words.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mile::real::Real;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use super::NetworkEngineError;
use super::shared::{Core, Shared};
use crate::protocol::{Millis, NeighbourStatus};
use crate::status::{Activity, Awaited, Neighbour, Status};

/// How long a client may take to read the answer.
const ANSWER: Duration = Duration::from_secs(2);

impl<T: Real> Shared<T> {
    /// What this agent reports about itself, and the notices of all agents.
    pub(super) fn status_and_notices(&self) -> Status {
        let notices = self.notices.as_ref().map(|notices| notices.board().all(self.now()));
        Status { notices: notices.unwrap_or_default(), ..self.status() }
    }

    pub(super) fn status(&self) -> Status {
        let core = self.lock();
        let (now, view) = (self.now(), &core.view);
        let seconds = |since: Millis| now.saturating_sub(since) as f64 / 1e3;
        let statuses = core.session.neighbour_statuses();
        let neighbours = statuses.iter().map(|status| core.neighbour(status, now)).collect();
        Status {
            agent: self.me,
            run: self.run.clone(),
            incarnation: self.incarnation,
            job: view.job,
            round: view.mark.round,
            rounds: view.rounds,
            exchange: view.mark.exchange,
            since_start_s: seconds(0),
            activity: view.activity,
            activity_s: seconds(view.since),
            neighbours,
            estimate: view.estimate.filter(|_| view.gossips),
            refused: self.admission.refused(),
            saved_round: view.saved,
            diverged: view.diverged,
            spent: view.spent_by(now),
            own_loss: view.own_loss.filter(|loss| loss.is_finite()),
            resident_bytes: resident_bytes(),
            notices: Vec::new(),
        }
    }
}

impl<T: Real> Core<T> {
    fn neighbour(&self, status: &NeighbourStatus, now: Millis) -> Neighbour {
        let seconds = |since: Millis| now.saturating_sub(since) as f64 / 1e3;
        let unconfirmed = self.view.activity == Activity::Leaving && status.unconfirmed;
        let away = self.leaving && !status.linked && !self.parted(status.id);
        let leaving = unconfirmed.then_some(Awaited::Confirmation).or(away.then_some(Awaited::Farewell));
        let waiting = status.waiting.or(leaving);
        // A neighbour can claim any exchange.
        let count = |exchange: u64| i64::try_from(exchange).unwrap_or(i64::MAX);
        let refused = || self.edges.get(&status.id)?.refusal.clone();
        let unlinked = || if status.linked { None } else { refused() };
        Neighbour {
            id: status.id,
            linked: status.linked,
            since_s: seconds(status.since),
            last_heard_s: status.heard.map(seconds),
            exchange: status.exchange,
            lag: count(self.view.mark.exchange) - count(status.exchange),
            durable_round: status.durable.round,
            sent: status.sent,
            received: status.received,
            waiting,
            waiting_s: waiting.map(|_| seconds(self.view.since)),
            refusal: status.refusal.clone().or_else(unlinked),
            trouble: self
                .edges
                .get(&status.id)
                .and_then(|edge| edge.trouble.clone())
                .filter(|_| !status.linked),
            skipped: status.skipped,
            refused_messages: status.refused_messages,
            refused_why: status.refused_why.clone(),
            distance: status.distance,
            relayed: if status.linked { self.is_relayed(status.id) } else { None },
        }
    }
}

/// What is awaited from a neighbour, and what is known about it, in words.
pub(super) fn describe(edge: &Neighbour) -> String {
    let what = match edge.waiting {
        Some(Awaited::Decision) => "its decision on whether the edge is used",
        Some(Awaited::Confirmation) => "its confirmation that messages are in a checkpoint",
        Some(Awaited::Farewell) => "its return, to tell it that its own messages are in a checkpoint",
        Some(Awaited::Message) | None => "its message",
    };
    let link = if edge.linked { "connected" } else { "not connected" };
    let heard =
        edge.last_heard_s.map_or("nothing received yet".into(), |s| format!("last frame {s:.0} s ago"));
    let why = edge.refusal.as_ref().or(edge.trouble.as_ref());
    let refusal = why.map_or(String::new(), |text| format!("; {text}"));
    let (id, waited, since) = (edge.id, edge.waiting_s.unwrap_or(0.0), edge.since_s);
    format!("agent {id}: {what}, for {waited:.0} s ({link} for {since:.0} s, {heard}{refusal})")
}

/// The status socket; its file is removed when this is dropped.
pub(super) struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves the status on a socket that only its owner may use. Call within the runtime.
pub(super) fn serve_status<T: Real>(
    shared: Arc<Shared<T>>,
    path: &Path,
) -> Result<Socket, NetworkEngineError> {
    let failed = |source: std::io::Error| NetworkEngineError::serve("status", path.display(), source);
    let left_over = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if left_over {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(failed(std::io::ErrorKind::AddrInUse.into()));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    tokio::spawn(async move {
        loop {
            // One after the other: a client that does not read delays the next, and nothing else.
            let Ok((mut stream, _)) = listener.accept().await else {
                sleep(ANSWER).await;
                continue;
            };
            let text = shared.status_and_notices().text();
            let _ = timeout(ANSWER, stream.write_all(&text)).await;
        }
    });
    Ok(Socket(path.to_owned()))
}

/// Bytes of memory that this process uses, where the system says so.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
