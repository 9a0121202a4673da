//! The observers of a run: progress on the terminal, records on standard output, a live view in a browser, TensorBoard
//! files.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Args;
use mile_lab::error::LabError;
use mile_lab::observer::{Lines, Observer};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::serve::LiveView;
use mile_lab::session::{Executed, Session, Work};
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
        let problem = "not available for a [sweep]; leave it out, and use mile report afterwards";
        match (&self.serve, self.tensorboard) {
            (Some(_), _) => Err(LabError::config("--serve", problem)),
            (None, true) => Err(LabError::config("--tensorboard", problem)),
            (None, false) => Ok(()),
        }
    }
}

/// Executes a session with progress on the terminal and the observers that were asked for.
pub(crate) fn execute_observed<'s>(
    session: &'s Session,
    folder: &Path,
    (arguments, output): (&ObserverArguments, &OutputArguments),
    stop: &AtomicBool,
) -> anyhow::Result<Executed<'s>> {
    let stream = RecordStream::default();
    let executed = match session.work() {
        Work::Run(plan) => execute_run(session, plan, folder, (arguments, output, &stream), stop)?,
        Work::Sweep(sweep) => {
            let (points, bars) = (sweep.points.len(), sweep.at_once()? == 1);
            let observers: &ObserverFactory = &|point, plan| {
                if let Some((k, point)) = point {
                    output.message(&format!("point {} of {points}: {}\n", k + 1, point.name));
                }
                let number = point.map(|(k, _)| k);
                Box::new(Observers(shown(plan, output, &stream, Shown { number, bars })))
            };
            session.execute(observers, stop)?
        }
    };
    stream.check()?;
    Ok(executed)
}

fn execute_run<'s>(
    session: &'s Session,
    plan: &Plan,
    folder: &Path,
    (arguments, output, stream): (&ObserverArguments, &OutputArguments, &RecordStream),
    stop: &AtomicBool,
) -> anyhow::Result<Executed<'s>> {
    let listener = arguments.serve.as_deref().map(listen).transpose()?;
    let view = listener.map(|listener| LiveView::start(listener, plan, folder)).transpose()?.map(Arc::new);
    let events = arguments.tensorboard.then(|| Arc::new(EventFiles::new(folder)));
    if let Some(view) = &view {
        output.message(&format!("live view: http://{}/\n", view.address()));
    }
    let observers: &ObserverFactory = &|_, plan| {
        let mut observers = shown(plan, output, stream, Shown { number: None, bars: true });
        observers.extend(view.clone().map(|view| Box::new(Shared(view)) as Box<dyn Observer>));
        observers.extend(events.clone().map(|events| Box::new(Shared(events)) as Box<dyn Observer>));
        Box::new(Observers(observers))
    };
    let executed = session.execute(observers, stop);
    view.and_then(Arc::into_inner).into_iter().for_each(LiveView::finish);
    let executed = executed?;
    events.and_then(Arc::into_inner).map_or(Ok(()), EventFiles::finish)?;
    Ok(executed)
}

/// What is shown of a run.
struct Shown {
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
    which: Shown,
) -> Vec<Box<dyn Observer + 'a>> {
    let mut observers: Vec<Box<dyn Observer + 'a>> = Vec::new();
    match (output.is_quiet(), which.bars) {
        (true, _) => {}
        (false, true) => observers.push(Box::new(Progress::new(plan))),
        (false, false) => observers.push(Box::new(Lines::new(plan))),
    }
    if output.streams_records() {
        observers.push(Box::new(stream.observer(which.number)));
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
struct Shared<O>(Arc<O>);

macro_rules! pass_on {
    ($($event:ident($($argument:ident: $kind:ty),*);)*) => {
        impl Observer for Observers<'_> {
            $(fn $event(&self, $($argument: $kind),*) {
                self.0.iter().for_each(|observer| observer.$event($($argument),*));
            })*
        }
        impl<O: Observer + Send> Observer for Shared<O> {
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
