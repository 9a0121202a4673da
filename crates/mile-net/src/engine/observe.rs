//! What people get to see: the status, its socket, the metrics, and whom an agent waits for.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mile::real::Real;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use super::EngineError;
use super::shared::{Core, Shared};
use crate::session::{Millis, Standing, Waiting};
use crate::status::{Activity, Missing, Neighbour, Status};

/// How long somebody who asked may take to read the answer.
const ANSWER: Duration = Duration::from_secs(2);

impl<T: Real> Shared<T> {
    pub(super) fn status(&self) -> Status {
        let core = self.lock();
        let (now, view) = (self.now(), &core.view);
        let seconds = |since: Millis| now.saturating_sub(since) as f64 / 1e3;
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
            neighbours: core.session.standings().iter().map(|edge| core.neighbour(edge, now)).collect(),
            estimate: view.estimate.filter(|_| view.gossips),
            refused: self.door.refused(),
        }
    }
}

impl<T: Real> Core<T> {
    fn neighbour(&self, standing: &Standing, now: Millis) -> Neighbour {
        let seconds = |since: Millis| now.saturating_sub(since) as f64 / 1e3;
        let unconfirmed = self.view.activity == Activity::Leaving && !self.confirmed(standing);
        let waiting = match standing.waiting {
            Some(Waiting::Message) => Some(Missing::Message),
            Some(Waiting::Decision) => Some(Missing::Decision),
            None => unconfirmed.then_some(Missing::Confirmation),
        };
        let refused = || self.edges.get(&standing.id)?.refusal.clone();
        let unlinked = || if standing.linked { None } else { refused() };
        Neighbour {
            id: standing.id,
            linked: standing.linked,
            since_s: seconds(standing.since),
            last_heard_s: standing.heard.map(seconds),
            exchange: standing.exchange,
            lag: self.view.mark.exchange as i64 - standing.exchange as i64,
            durable_round: standing.durable.round,
            bytes_sent: standing.sent,
            bytes_received: standing.received,
            waiting,
            waiting_s: waiting.map(|_| seconds(self.view.since)),
            refusal: standing.refusal.clone().or_else(unlinked),
            skipped: standing.skipped,
        }
    }

    /// Whether a neighbour has on disk all that this agent has said.
    pub(super) fn confirmed(&self, standing: &Standing) -> bool {
        standing.durable.exchange >= self.view.mark.exchange
    }
}

/// Why nothing comes from a neighbour, in words.
pub(super) fn describe(edge: &Neighbour) -> String {
    let what = match edge.waiting {
        Some(Missing::Decision) => "whether its edge is used",
        Some(Missing::Confirmation) => "word that it has the last message",
        _ => "its message",
    };
    let link = if edge.linked { "linked" } else { "no link" };
    let heard = edge.last_heard_s.map_or("never heard".into(), |s| format!("last heard {s:.0} s ago"));
    let refusal = edge.refusal.as_ref().map_or(String::new(), |text| format!("; {text}"));
    let (id, waited, since) = (edge.id, edge.waiting_s.unwrap_or(0.0), edge.since_s);
    format!("agent {id}: {what}, for {waited:.0} s ({link} for {since:.0} s, {heard}{refusal})")
}

/// The status socket; its file goes when this does.
pub(super) struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Answers on a socket that only its owner may use. Call within the runtime.
pub(super) fn answer<T: Real>(shared: Arc<Shared<T>>, path: &Path) -> Result<Socket, EngineError> {
    let failed = |source: std::io::Error| EngineError::serve("status", path.display(), source);
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
            // One after the other: whoever does not read its answer delays the next, and nothing else.
            let Ok((mut stream, _)) = listener.accept().await else {
                sleep(ANSWER).await;
                continue;
            };
            let text = serde_json::to_vec(&shared.status()).unwrap_or_default();
            let _ = timeout(ANSWER, stream.write_all(&text)).await;
        }
    });
    Ok(Socket(path.to_owned()))
}

/// Metrics over HTTP; they stop when this is dropped.
pub(super) struct Metrics(Arc<tiny_http::Server>);

impl Drop for Metrics {
    fn drop(&mut self) {
        self.0.unblock();
    }
}

/// Serves metrics as Prometheus text at an address.
pub(super) fn metrics<T: Real>(
    shared: Arc<Shared<T>>,
    address: SocketAddr,
) -> Result<(Metrics, SocketAddr), EngineError> {
    let server =
        tiny_http::Server::http(address).map_err(|source| EngineError::serve("metrics", address, source))?;
    let server = Arc::new(server);
    let bound = server.server_addr().to_ip().unwrap_or(address);
    let serving = server.clone();
    let serve = move || {
        while let Ok(request) = serving.recv() {
            let kind = tiny_http::Header::from_bytes("content-type", "text/plain; version=0.0.4");
            let mut response = tiny_http::Response::from_string(shared.status().prometheus());
            kind.into_iter().for_each(|kind| response.add_header(kind));
            let _ = request.respond(response);
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(serve).map_err(EngineError::Threads)?;
    Ok((Metrics(server), bound))
}
