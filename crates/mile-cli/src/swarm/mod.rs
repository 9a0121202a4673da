//! `mile swarm`.

mod emit;
mod folders;
mod supervisor;
mod view;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use mile_lab::config::{AgentSettings, Experiment};
use mile_lab::engines::Scalar;
use mile_lab::error::LabError;
use mile_lab::gather::Gatherer;
use mile_lab::plan::Plan;
use mile_lab::store::Outcome;

use self::supervisor::Supervisor;
use self::view::View;
use crate::run::{advice, choose_folder, finish, read_experiment, stop_on_interrupt};

/// Time between two looks at the children, and at what they have left.
const LOOK: Duration = Duration::from_millis(25);
const GATHER: Duration = Duration::from_millis(150);
/// How long agents may take to leave once everything they have done is gathered.
const FAREWELL: Duration = Duration::from_secs(3);

/// Runs an experiment as one process for each agent.
#[derive(Args)]
pub(crate) struct SwarmArguments {
    /// Experiment file; a section [agent] in it holds settings for all agents
    #[arg(value_name = "EXPERIMENT.toml")]
    experiment: PathBuf,
    /// Run directory [default: runs/NAME, or the next free runs/NAME-K]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a value of the experiment file, e.g. rounds=50, agent.checkpoint_every=10; may be given several times
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
    /// Folder to look for image data sets first
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Go on with the run in --out (or the newest runs/NAME), each agent from its checkpoint
    #[arg(long, conflicts_with = "emit")]
    resume: bool,
    /// Write a folder with file and key for each agent to DIR/agents, for machines of their own, and stop
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    emit: Option<PathBuf>,
    /// Where an agent will be reached, e.g. 0=node0.example.org:7100; once for each agent (with --emit)
    #[arg(long, value_name = "ID=HOST:PORT", requires = "emit")]
    host: Vec<String>,
    /// The same from a file, a line each (with --emit)
    #[arg(long, value_name = "FILE", requires = "emit")]
    hosts: Option<PathBuf>,
}

pub(crate) fn run(arguments: &SwarmArguments) -> anyhow::Result<u8> {
    let name = arguments.experiment.display().to_string();
    run_named(arguments).map_err(|error| match error.downcast::<LabError>() {
        Ok(error) => error.in_file(&name).into(),
        Err(error) => error,
    })
}

fn run_named(arguments: &SwarmArguments) -> anyhow::Result<u8> {
    let SwarmArguments { experiment, set, data_dir, .. } = arguments;
    let (mut table, base) = read_experiment(Some(experiment), set, data_dir.as_deref())?;
    if table.contains_key("sweep") {
        return Err(LabError::config("sweep", "agents run one experiment: use mile run for a sweep").into());
    }
    let settings = AgentSettings::of_swarm(&table)?;
    table.remove("agent");
    let experiment = Experiment::read(&table, &base)?;
    settings.check(&experiment)?;
    if let Some(folder) = &arguments.emit {
        return emit::emit(experiment, &settings, folder, &arguments.host, arguments.hosts.as_deref());
    }
    let plan = Plan::new(experiment)?;
    eprint!("{}", advice(&plan)?);
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => choose_folder(&plan.experiment.name, arguments.resume),
    };
    let swarm = Swarm { plan: &plan, settings, folder: &folder, resume: arguments.resume };
    let outcomes = mile::with_precision!(plan.experiment.precision, T => swarm.run::<T>())?;
    finish(&folder, &plan, &outcomes, "swarm")
}

struct Swarm<'a> {
    plan: &'a Plan,
    settings: AgentSettings,
    folder: &'a Path,
    resume: bool,
}

impl Swarm<'_> {
    /// Runs all agents to their end, or until Ctrl-C.
    fn run<T: Scalar>(&self) -> anyhow::Result<Vec<Outcome>> {
        let view = View::new(self.plan);
        let mut gatherer = Gatherer::<T>::open(self.plan, self.folder, self.resume, &view)?;
        let stop = stop_on_interrupt("stopping all agents")?;
        if !gatherer.is_complete() {
            let folders = folders::make_local(self.plan, self.folder, &self.settings)?;
            let mut supervisor = Supervisor::start(&folders)?;
            let watched = view.watch(&folders, || supervise(&mut supervisor, &mut gatherer, &view, &stop));
            supervisor.stop();
            view.clear();
            watched?;
            gatherer.gather()?;
        }
        if !gatherer.is_complete() && !stop.load(Ordering::Relaxed) {
            let open = gatherer.open_jobs();
            let name = open.first().map(|job| self.plan.job_name(*job)).unwrap_or_default();
            anyhow::bail!("all agents have ended, but not all have left their final states of {name}");
        }
        Ok(gatherer.finish()?)
    }
}

fn supervise<T: Scalar>(
    supervisor: &mut Supervisor,
    gatherer: &mut Gatherer<T>,
    view: &View,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut gathered = Instant::now();
    let mut complete = None;
    while !stop.load(Ordering::Relaxed) && supervisor.look(view)? {
        if gathered.elapsed() >= GATHER {
            gatherer.gather()?;
            gathered = Instant::now();
        }
        // An agent that was killed on its last legs stays for neighbours that have long left. Nobody needs it any more.
        if gatherer.is_complete() && complete.get_or_insert_with(Instant::now).elapsed() > FAREWELL {
            break;
        }
        view.refresh();
        std::thread::sleep(LOOK);
    }
    Ok(())
}
