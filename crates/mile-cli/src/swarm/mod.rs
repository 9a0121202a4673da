//! `mile swarm`: an experiment with one process per agent.

mod emit;
mod folders;
mod supervisor;
mod view;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use mile::ranks::{Alone, Together};
use mile_lab::choices::keep_choices;
use mile_lab::engines::Scalar;
use mile_lab::error::LabError;
use mile_lab::gather::Gatherer;
use mile_lab::plan::Plan;
use mile_lab::session::Executed;
use mile_lab::spec::{AgentSettings, Spec};
use mile_lab::store::Outcome;

use self::supervisor::Supervisor;
use self::view::View;
use crate::agent::check_stop;
use crate::output::OutputArguments;
use crate::run::{advice, choose_folder, command_line, finish, read_experiment, stop_on_interrupt};

/// Time between two checks of the agents' processes, and of their files.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
const GATHER_INTERVAL: Duration = Duration::from_millis(150);
/// How long agents may take to exit once all results are gathered.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs an experiment with one process per agent.
#[derive(Args)]
pub(crate) struct SwarmArguments {
    /// Experiment file; a section [agent] in it holds settings of all agents
    #[arg(value_name = "EXPERIMENT.toml")]
    experiment: PathBuf,
    /// Run directory [default: runs/NAME for the experiment's name, or the next free runs/NAME-K]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a value of the experiment file, e.g. rounds=50, agent.checkpoint_every=10; may be given several times
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
    /// Folder to search first for image data sets [default: see mile data where]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Resume the run in --out [default: the newest runs/NAME], each agent from its checkpoint
    #[arg(long, conflicts_with = "emit")]
    resume: bool,
    /// Do not run the experiment: write each agent's folder, with configuration and key, to DIR/agents, to be copied to
    /// other machines
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    emit: Option<PathBuf>,
    /// Address at which neighbours reach an agent, e.g. 0=node0.example.org:7100; may be given once per agent, and
    /// is needed for at least one end of every edge (with --emit)
    #[arg(long, value_name = "ID=HOST:PORT", requires = "emit")]
    host: Vec<String>,
    /// File with one such ID=HOST:PORT per line (with --emit)
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
        return Err(LabError::config("sweep", "mile swarm cannot run sweeps; use mile run").into());
    }
    let settings = AgentSettings::of_swarm(&table)?;
    table.remove("agent");
    let mut spec = Spec::read(&table, &base)?;
    settings.apply(&mut spec)?;
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => choose_folder(&spec.name, arguments.resume),
    };
    if arguments.resume {
        keep_choices(&mut spec, &folder, Together::of(&Alone))?;
    }
    if let Some(folder) = &arguments.emit {
        return emit::emit(spec, &settings, folder, &arguments.host, arguments.hosts.as_deref());
    }
    let plan = Plan::new(spec)?;
    check_stop(&plan)?;
    eprint!("{}", advice(&plan)?);
    let swarm = Swarm { plan: &plan, settings, folder: &folder, resume: arguments.resume };
    let outcomes = mile::with_precision!(plan.spec.precision, T => swarm.run::<T>())?;
    let again = command_line("swarm", Some(&arguments.experiment), set, data_dir.as_deref());
    let results = Executed::elsewhere(&plan, &folder, outcomes).report(true)?;
    finish(results, false, &again, &OutputArguments::default())
}

/// A swarm to be run in a folder.
struct Swarm<'a> {
    plan: &'a Plan,
    settings: AgentSettings,
    folder: &'a Path,
    resume: bool,
}

impl Swarm<'_> {
    /// Runs all agents until they are done, or until Ctrl-C.
    fn run<T: Scalar>(&self) -> anyhow::Result<Vec<Outcome>> {
        let view = View::new(self.plan);
        let mut gatherer = Gatherer::<T>::open(self.plan, self.folder, self.resume, &view)?;
        let stop = stop_on_interrupt(Some("stopping all agents"))?;
        if !gatherer.is_complete() {
            let folders = folders::create_local(self.plan, self.folder, &self.settings)?;
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
            anyhow::bail!("all agents have ended, but final states of {name} are missing; see agents/*/log");
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
    while !stop.load(Ordering::Relaxed) && supervisor.poll(view)? {
        if gathered.elapsed() >= GATHER_INTERVAL {
            gatherer.gather()?;
            gathered = Instant::now();
        }
        // An agent that was killed near the end waits for confirmations of neighbours that have already exited.
        if gatherer.is_complete() && complete.get_or_insert_with(Instant::now).elapsed() > LEAVE_TIMEOUT {
            break;
        }
        view.refresh();
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
