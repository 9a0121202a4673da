//! The observers of a run: progress on the terminal, records on standard output, a live view in a browser, TensorBoard
//! files.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Args;
use mile_lab::error::LabError;
use mile_lab::execute::execute;
use mile_lab::observer::{Lines, Observer};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::serve::LiveView;
use mile_lab::store::Outcome;
use mile_lab::sweep::ObserverFactory;
use mile_lab::tensorboard::EventFiles;

use crate::output::OutputArguments;
use crate::progress::Progress;
use crate::records::RecordStream;

/// Options for observing a run, besides the progress on the terminal.
#[derive(Args, Default)]
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
    (arguments, output): (&ObserverArguments, &OutputArguments),
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Outcome>> {
    let listener = arguments.serve.as_deref().map(listen).transpose()?;
    let view = listener.map(|listener| LiveView::start(listener, plan, folder)).transpose()?;
    let events = arguments.tensorboard.then(|| EventFiles::new(folder));
    if let Some(view) = &view {
        output.message(&format!("live view: http://{}/\n", view.address()));
    }
    let stream = RecordStream::default();
    let outcomes = {
        let mut observers = shown(plan, output, &stream, Point { number: None, bars: true });
        observers.extend(view.as_ref().map(|view| Box::new(Borrowed(view)) as Box<dyn Observer + '_>));
        observers.extend(events.as_ref().map(|events| Box::new(Borrowed(events)) as Box<dyn Observer + '_>));
        execute(plan, folder, resume, &Observers(observers), stop)
    };
    view.into_iter().for_each(LiveView::finish);
    let outcomes = outcomes?;
    events.map_or(Ok(()), EventFiles::finish)?;
    stream.check()?;
    Ok(outcomes)
}

/// What is shown of a run.
struct Point {
    /// The number of a sweep's point.
    number: Option<usize>,
    /// Whether bars are drawn.
    bars: bool,
}

/// The observers that print: progress, and records.
fn shown<'a>(
    plan: &'a Plan,
    output: &OutputArguments,
    stream: &RecordStream,
    point: Point,
) -> Vec<Box<dyn Observer + 'a>> {
    let mut observers: Vec<Box<dyn Observer + 'a>> = Vec::new();
    match (output.is_quiet(), point.bars) {
        (true, _) => {}
        (false, true) => observers.push(Box::new(Progress::new(plan))),
        (false, false) => observers.push(Box::new(Lines::new(plan))),
    }
    if output.streams_records() {
        observers.push(Box::new(stream.observer(point.number)));
    }
    observers
}

/// The socket of the live view: at the given address, or on the loopback interface.
fn listen(address: &str) -> anyhow::Result<TcpListener> {
    if !address.is_empty() {
        return Ok(TcpListener::bind(address).map_err(|error| {
            let problem = match error.kind() {
                ErrorKind::AddrInUse => {
                    format!("{address} is in use by another program; choose another port, or port 0 for any free one")
                }
                _ => format!(
                    "expected an address to listen on, such as 127.0.0.1:8420, got {address} ({error}); put the experiment \
                     file before --serve"
                ),
            };
            LabError::config("--serve", problem)
        })?);
    }
    TcpListener::bind("127.0.0.1:8420")
        .or_else(|_| TcpListener::bind("127.0.0.1:0"))
        .context("cannot open a port on 127.0.0.1 for the live view")
}

/// Several observers as one.
struct Observers<'a>(Vec<Box<dyn Observer + 'a>>);

/// An observer that is needed after the run.
struct Borrowed<'a, O>(&'a O);

macro_rules! pass_on {
    ($($event:ident($($argument:ident: $kind:ty),*);)*) => {
        impl Observer for Observers<'_> {
            $(fn $event(&self, $($argument: $kind),*) {
                self.0.iter().for_each(|observer| observer.$event($($argument),*));
            })*
        }
        impl<O: Observer> Observer for Borrowed<'_, O> {
            $(fn $event(&self, $($argument: $kind),*) {
                self.0.$event($($argument),*);
            })*
        }
    };
}

pass_on! {
    opened(records: &[Record], outcomes: &[Outcome]);
    began(job: Job);
    advanced(job: Job, round: u64);
    recorded(job: Job, record: &Record);
    ended(job: Job, outcome: &Outcome);
    failed(job: Job, error: &LabError);
}

/// Prints which point of a sweep starts, and shows its progress: in lines if several points run at the same time.
pub(crate) fn sweep_observers<'a>(
    points: usize,
    at_once: usize,
    output: &'a OutputArguments,
    stream: &'a RecordStream,
) -> Box<ObserverFactory<'a>> {
    Box::new(move |k, point, plan| {
        output.message(&format!("point {} of {points}: {}\n", k + 1, point.name));
        let bars = at_once == 1;
        Box::new(Observers(shown(plan, output, stream, Point { number: Some(k), bars })))
    })
}
