//! The observers of a run: progress on the terminal, a live view in a browser, TensorBoard files.

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
use mile_lab::sweep::ObserverFactory;
use mile_lab::tensorboard::EventFiles;

use crate::progress::Progress;

/// Options for observing a run, besides the progress on the terminal.
#[derive(Args)]
pub(crate) struct ObserverArguments {
    /// Serve the report live over HTTP while the experiment runs, e.g. --serve 0.0.0.0:8420 [default ADDR:
    /// 127.0.0.1:8420, for a browser on this machine]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "")]
    serve: Option<String>,
    /// Also write TensorBoard event files, to DIR/tensorboard
    #[arg(long)]
    tensorboard: bool,
}

impl ObserverArguments {
    pub(crate) fn refuse_for_a_sweep(&self) -> Result<(), LabError> {
        let problem = "is not available for a [sweep]: leave it out, and use mile report afterwards";
        match (&self.serve, self.tensorboard) {
            (Some(_), _) => Err(LabError::config("--serve", problem)),
            (None, true) => Err(LabError::config("--tensorboard", problem)),
            (None, false) => Ok(()),
        }
    }
}

/// Runs a plan with progress on the terminal and the observers that were asked for.
pub(crate) fn execute_observed(
    plan: &Plan,
    folder: &Path,
    resume: bool,
    arguments: &ObserverArguments,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Outcome>> {
    let listener = arguments.serve.as_deref().map(listen).transpose()?;
    let view = listener.map(|listener| LiveView::start(listener, plan, folder)).transpose()?;
    let events = arguments.tensorboard.then(|| EventFiles::new(folder));
    if let Some(view) = &view {
        eprintln!("live view: http://{}/", view.address());
    }
    let outcomes = {
        let progress = Progress::new(plan);
        let mut observers: Vec<&dyn Observer> = vec![&progress];
        observers.extend(view.as_ref().map(|view| view as &dyn Observer));
        observers.extend(events.as_ref().map(|events| events as &dyn Observer));
        execute(plan, folder, resume, &Observers(observers), stop)
    };
    view.into_iter().for_each(LiveView::finish);
    let outcomes = outcomes?;
    events.map_or(Ok(()), EventFiles::finish)?;
    Ok(outcomes)
}

/// The socket of the live view: at the given address, or on the loopback interface.
fn listen(address: &str) -> anyhow::Result<TcpListener> {
    if !address.is_empty() {
        return Ok(TcpListener::bind(address).map_err(|error| {
            let takes =
                "takes an address to listen on, such as 127.0.0.1:8420; put the experiment file before --serve";
            LabError::config("--serve", format!("got {address} ({error}), {takes}"))
        })?);
    }
    TcpListener::bind("127.0.0.1:8420")
        .or_else(|_| TcpListener::bind("127.0.0.1:0"))
        .context("cannot open a port on 127.0.0.1 for the live view")
}

/// Several observers as one.
struct Observers<'a>(Vec<&'a dyn Observer>);

impl Observer for Observers<'_> {
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
    fn failed(&self, job: Job, error: &LabError) {
        self.0.iter().for_each(|observer| observer.failed(job, error));
    }
}

/// Prints which point of a sweep starts, and shows its progress.
pub(crate) fn sweep_observers(points: usize) -> Box<ObserverFactory<'static>> {
    Box::new(move |k, point, plan| {
        eprintln!("point {} of {points}: {}", k + 1, point.name);
        Box::new(Progress::new(plan))
    })
}
