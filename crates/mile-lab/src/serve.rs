//! The report of a run while it goes on, served to a browser on this machine.
//!
//! The page asks once a second for what is new. The server is read-only and, when it listens on a loopback
//! address, answers only requests that were addressed to one: a page elsewhere cannot read it by naming
//! this machine.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::context::Context;
use crate::error::LabError;
use crate::observer::Observer;
use crate::plan::{Job, Plan};
use crate::record::Record;
use crate::report::{RunFolder, live_page, section};
use crate::store::Outcome;

/// How long a page that is being looked at may take to hear that the run is over.
const FAREWELL: Duration = Duration::from_secs(3);

/// A run that can be watched in a browser.
pub struct LiveView {
    address: SocketAddr,
    server: Arc<Server>,
    shared: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    folder: RunFolder,
    version: u64,
    over: bool,
    /// What was rendered last, for which version.
    rendered: (u64, String),
    /// When a page last asked, and whether it has heard that the run is over.
    asked: Option<Instant>,
    told: bool,
}

impl LiveView {
    /// Serves the run of a plan that is about to begin, or go on, in `folder`.
    pub fn start(listener: TcpListener, plan: &Plan, folder: &Path) -> Result<Self, LabError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            LabError::io(Path::new("the live view"), "start")(std::io::Error::other(error))
        };
        let address = listener.local_addr().map_err(|error| failed(error.into()))?;
        let server = Arc::new(Server::from_listener(listener, None).map_err(failed)?);
        let folder = RunFolder {
            path: folder.to_owned(),
            experiment: plan.experiment.clone(),
            network: plan.network.clone(),
            records: Vec::new(),
            outcomes: Vec::new(),
            context: Some(Context::of(plan)),
        };
        let state =
            State { folder, version: 1, over: false, rendered: (0, String::new()), asked: None, told: false };
        let shared = Arc::new(Mutex::new(state));
        let (serving, state) = (server.clone(), shared.clone());
        let thread = std::thread::spawn(move || {
            for request in serving.incoming_requests() {
                answer(request, &state, address);
            }
        });
        Ok(Self { address, server, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a page has asked in the last seconds.
    pub fn is_watched(&self) -> bool {
        let state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.is_some_and(|asked| asked.elapsed() < FAREWELL)
    }

    /// Says that the run is over, waits a moment for an open page to hear it, and stops serving.
    pub fn finish(mut self) {
        self.change(|state| state.over = true);
        let begun = Instant::now();
        loop {
            let state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let watched = state.asked.is_some_and(|asked| asked.elapsed() < FAREWELL);
            if !watched || state.told || begun.elapsed() > FAREWELL {
                break;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(50));
        }
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.version += 1;
    }
}

impl Observer for LiveView {
    /// What was stopped runs again, and is not among the outcomes until it ends.
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        self.change(|state| {
            state.folder.records = records.to_vec();
            state.folder.outcomes = outcomes.to_vec();
        });
    }

    fn recorded(&self, _: Job, record: &Record) {
        self.change(|state| state.folder.records.push(record.clone()));
    }

    fn ended(&self, _: Job, outcome: &Outcome) {
        self.change(|state| state.folder.outcomes.push(outcome.clone()));
    }
}

fn answer(request: Request, shared: &Mutex<State>, address: SocketAddr) {
    let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
    let (code, kind, body) = if !addressed_to(&request, address) {
        (403, "text/plain", "this page answers only to the address it listens on\n".to_owned())
    } else if *request.method() != Method::Get {
        (405, "text/plain", "only GET\n".to_owned())
    } else {
        match path {
            "/" => (200, "text/html", page(shared)),
            "/state" => (200, "application/json", state(shared, query)),
            _ => (404, "text/plain", "there is / and /state\n".to_owned()),
        }
    };
    let header = |name: &str, value: &str| Header::from_bytes(name, value).ok();
    let mut response = Response::from_string(body).with_status_code(code);
    let headers = [
        header("Content-Type", &format!("{kind}; charset=utf-8")),
        header("Cache-Control", "no-store"),
        header("X-Content-Type-Options", "nosniff"),
    ];
    headers.into_iter().flatten().for_each(|header| response.add_header(header));
    // A browser that has gone away is no error of ours.
    let _ = request.respond(response);
}

/// Whether a request names an address of this machine, where only this machine may ask.
fn addressed_to(request: &Request, address: SocketAddr) -> bool {
    if !address.ip().is_loopback() {
        return true;
    }
    let host = request.headers().iter().find(|header| header.field.equiv("Host"));
    let host = host.map_or("", |header| header.value.as_str());
    let name = host.rsplit_once(':').filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn page(shared: &Mutex<State>) -> String {
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked = Some(Instant::now());
    live_page(&state.folder.experiment.name, "<p class=\"hint\">waiting for the first record</p>\n")
}

fn state(shared: &Mutex<State>, query: &str) -> String {
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked = Some(Instant::now());
    state.told |= state.over;
    let version = state.version.to_string();
    let known = query.strip_prefix("version=").unwrap_or_default();
    let status = status(&state);
    if known == version {
        return json!({ "version": version, "over": state.over, "status": status }).to_string();
    }
    if state.rendered.0 != state.version {
        state.rendered = (state.version, section(&state.folder, 0));
    }
    json!({ "version": version, "over": state.over, "status": status, "html": state.rendered.1 }).to_string()
}

fn status(state: &State) -> String {
    let (over, all) = state.folder.jobs_over();
    if state.over {
        format!("over: {over} of {all} runs")
    } else {
        format!("live: {over} of {all} runs over")
    }
}
