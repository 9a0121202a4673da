//! Who watches a run: the terminal, a browser, TensorBoard.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Args;
use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::Observer;
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::serve::LiveView;
use mile_lab::store::Outcome;
use mile_lab::sweep::Watch;
use mile_lab::tensorboard::EventFiles;

use crate::progress::Progress;

/// What beside the terminal.
#[derive(Args)]
pub(crate) struct WatchArguments {
    /// Serve the report while the run goes on, to a browser on this machine or at ADDR
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "")]
    serve: Option<String>,
    /// Write TensorBoard event files to DIR/tensorboard too
    #[arg(long)]
    tensorboard: bool,
}

impl WatchArguments {
    pub(crate) fn refuse_for_a_sweep(&self) -> Result<(), LabError> {
        let problem =
            "is for one run, and this file has a [sweep]; leave it out, and use mile report afterwards";
        match (&self.serve, self.tensorboard) {
            (Some(_), _) => Err(LabError::config("--serve", problem)),
            (None, true) => Err(LabError::config("--tensorboard", problem)),
            (None, false) => Ok(()),
        }
    }
}

/// Runs a plan, with everyone watching who was asked to.
pub(crate) fn execute_watched(
    plan: &Plan,
    folder: &Path,
    resume: bool,
    arguments: &WatchArguments,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Outcome>> {
    let listener = arguments.serve.as_deref().map(listen).transpose()?;
    let view = listener.map(|listener| LiveView::start(listener, plan, folder)).transpose()?;
    let events = arguments.tensorboard.then(|| EventFiles::new(folder));
    if let Some(view) = &view {
        eprintln!("live view: http://{}/", view.address());
    }
    let outcomes = {
        let shown = Shown(Progress::new(plan));
        let mut observers: Vec<&dyn Observer> = vec![&shown];
        observers.extend(view.as_ref().map(|view| view as &dyn Observer));
        observers.extend(events.as_ref().map(|events| events as &dyn Observer));
        execute(plan, folder, resume, &Together(observers), stop)
    };
    view.into_iter().for_each(LiveView::finish);
    let outcomes = outcomes?;
    events.map_or(Ok(()), EventFiles::finish)?;
    Ok(outcomes)
}

/// Where the live view listens: the address given, or a port of this machine alone.
fn listen(address: &str) -> anyhow::Result<TcpListener> {
    if !address.is_empty() {
        return Ok(TcpListener::bind(address).map_err(|error| {
            let takes =
                "takes an address to listen on, such as 127.0.0.1:8420; an experiment file goes before it";
            LabError::config("--serve", format!("got {address} ({error}), {takes}"))
        })?);
    }
    TcpListener::bind("127.0.0.1:8420")
        .or_else(|_| TcpListener::bind("127.0.0.1:0"))
        .context("cannot listen on this machine")
}

/// Several observers as one.
struct Together<'a>(Vec<&'a dyn Observer>);

impl Observer for Together<'_> {
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        self.0.iter().for_each(|observer| observer.opened(records, outcomes));
    }
    fn began(&self, job: Job) {
        self.0.iter().for_each(|observer| observer.began(job));
    }
    fn advanced(&self, job: Job, round: u64) {
        self.0.iter().for_each(|observer| observer.advanced(job, round));
    }
    fn recorded(&self, job: Job, record: &Record) {
        self.0.iter().for_each(|observer| observer.recorded(job, record));
    }
    fn ended(&self, job: Job, outcome: &Outcome) {
        self.0.iter().for_each(|observer| observer.ended(job, outcome));
    }
}

/// Progress that is taken away when its plan is over.
pub(crate) struct Shown<'a>(pub(crate) Progress<'a>);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl Observer for Shown<'_> {
    fn began(&self, job: Job) {
        self.0.began(job);
    }
    fn advanced(&self, job: Job, round: u64) {
        self.0.advanced(job, round);
    }
    fn recorded(&self, job: Job, record: &Record) {
        self.0.recorded(job, record);
    }
    fn ended(&self, job: Job, outcome: &Outcome) {
        self.0.ended(job, outcome);
    }
}

/// Says which point of a sweep begins, and shows its progress.
pub(crate) fn point_by_point(points: usize) -> Box<Watch<'static>> {
    Box::new(move |k, point, plan| {
        eprintln!("point {} of {points}: {}", k + 1, point.name);
        Box::new(Shown(Progress::new(plan)))
    })
}
