//! The live view: an HTTP server for the report of a run in progress; and pages behind a token ([`GuardedPage`]).
//!
//! The page polls the server once a second. The server is read-only. When it listens on a loopback address it answers only
//! requests whose `Host` header is a loopback address, against DNS rebinding.

mod guarded;
mod http;
mod pace;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use crate::context::Context;
use crate::error::LabError;
use crate::observer::Observer;
use crate::plan::{Job, Plan};
use crate::record::Record;
use crate::rehearsal::in_words;
use crate::report::{RunFolder, live_page, section};
use crate::spec::AlgorithmSpec;
use crate::store::Outcome;
pub use guarded::{GuardedPage, Look};
use http::{Answer, Server};
use pace::Pace;

/// How long to wait at the end of a run for open pages to fetch the final state.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// An observer that serves the report of a run to browsers.
pub struct LiveView {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Serves until it is dropped.
    _server: Server,
}

/// What the run and the server share. Jobs report every round, so the pace has a separate lock, which is never held while a page is made.
struct Shared {
    state: Mutex<State>,
    pace: Mutex<Pace>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    folder: RunFolder,
    version: u64,
    over: bool,
    /// The rendered report, with its version.
    rendered: (u64, String),
    /// When a page last polled, and whether one has fetched the final state.
    asked: Option<Instant>,
    end_seen: bool,
}

impl LiveView {
    /// Starts the server for a plan that is about to be run, or resumed, in `folder`.
    pub fn start(listener: TcpListener, plan: &Plan, folder: &Path) -> Result<Self, LabError> {
        let failed = || LabError::io(Path::new("the live view"), "start");
        let address = listener.local_addr().map_err(failed())?;
        let folder = RunFolder {
            path: folder.to_owned(),
            spec: plan.spec.clone(),
            network: plan.network().clone(),
            records: Vec::new(),
            outcomes: Vec::new(),
            context: Some(Context::of(plan, None)),
        };
        let state = State {
            folder,
            version: 1,
            over: false,
            rendered: (0, String::new()),
            asked: None,
            end_seen: false,
        };
        let steps = plan.spec.algorithms.iter().map(AlgorithmSpec::gradients_per_round).collect();
        let pace = Pace::new(plan.jobs(), plan.spec.rounds, steps);
        let shared = Arc::new(Shared { state: Mutex::new(state), pace: Mutex::new(pace) });
        let served = shared.clone();
        let answer = move |request: &Request<Incoming>| answer(request, &served, address);
        let server = Server::start(listener, answer).map_err(failed())?;
        Ok(Self { address, shared, _server: server })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a page has polled in the last seconds.
    pub fn is_watched(&self) -> bool {
        self.shared.state().asked.is_some_and(|asked| asked.elapsed() < CLOSE_TIMEOUT)
    }

    /// Marks the run as finished, waits briefly for open pages to fetch that, and stops the server.
    pub fn finish(self) {
        self.change(|state| state.over = true);
        let begun = Instant::now();
        loop {
            let state = self.shared.state();
            let watched = state.asked.is_some_and(|asked| asked.elapsed() < CLOSE_TIMEOUT);
            if !watched || state.end_seen || begun.elapsed() > CLOSE_TIMEOUT {
                break;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state();
        change(&mut state);
        state.version += 1;
    }
}

impl Observer for LiveView {
    /// Jobs that are resumed are not among the outcomes until they end.
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        self.change(|state| {
            let algorithms = &state.folder.spec.algorithms;
            for outcome in outcomes {
                let algorithm = algorithms.iter().position(|algorithm| algorithm.label == outcome.label);
                let job = algorithm.map(|algorithm| Job { algorithm, seed: outcome.seed });
                job.into_iter().for_each(|job| self.shared.pace().ended(job));
            }
            state.folder.records = records.to_vec();
            state.folder.outcomes = outcomes.to_vec();
        });
    }

    fn advanced(&self, job: Job, round: u64) {
        self.shared.pace().advanced(job, round, Instant::now());
    }

    fn recorded(&self, _: Job, record: &Record) {
        self.change(|state| state.folder.records.push(record.clone()));
    }

    fn ended(&self, job: Job, outcome: &Outcome) {
        self.shared.pace().ended(job);
        self.change(|state| state.folder.outcomes.push(outcome.clone()));
    }

    fn failed(&self, job: Job, _: &LabError) {
        self.shared.pace().ended(job);
    }
}

fn answer(request: &Request<Incoming>, shared: &Shared, address: SocketAddr) -> Answer {
    let text = |status, body: &str| Answer { status, kind: "text/plain", body: body.to_owned() };
    if !is_allowed_host(request, address) {
        return text(StatusCode::FORBIDDEN, "forbidden: requests must be addressed to localhost\n");
    }
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n");
    }
    let status = StatusCode::OK;
    match request.uri().path() {
        "/" => Answer { status, kind: "text/html", body: page(shared) },
        "/state" => {
            let query = request.uri().query().unwrap_or_default();
            Answer { status, kind: "application/json", body: state(shared, query) }
        }
        _ => text(StatusCode::NOT_FOUND, "not found; the pages are / and /state\n"),
    }
}

/// Whether a request may be answered: on a loopback address, only with a loopback `Host` header.
fn is_allowed_host(request: &Request<Incoming>, address: SocketAddr) -> bool {
    if !address.ip().is_loopback() {
        return true;
    }
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn page(shared: &Shared) -> String {
    let mut state = shared.state();
    state.asked = Some(Instant::now());
    live_page(&state.folder.spec.name, "<p class=\"hint\">waiting for the first record</p>\n")
}

fn state(shared: &Shared, query: &str) -> String {
    let mut state = shared.state();
    state.asked = Some(Instant::now());
    state.end_seen |= state.over;
    let version = state.version.to_string();
    let known = query.strip_prefix("version=").unwrap_or_default();
    let status = status(&state, shared.pace().seconds_left(Instant::now()));
    if known == version {
        return json!({ "version": version, "over": state.over, "status": status }).to_string();
    }
    if state.rendered.0 != state.version {
        state.rendered = (state.version, section(&state.folder, 0));
    }
    json!({ "version": version, "over": state.over, "status": status, "html": state.rendered.1 }).to_string()
}

/// What the page says of the run beside its name.
fn status(state: &State, seconds_left: Option<f64>) -> String {
    let (finished, all) = state.folder.finished_jobs();
    if state.over {
        return format!("finished: {finished} of {all} runs");
    }
    let left = seconds_left.map(|seconds| format!(", {} left", in_words(seconds))).unwrap_or_default();
    format!("live: {finished} of {all} runs finished{left}")
}
