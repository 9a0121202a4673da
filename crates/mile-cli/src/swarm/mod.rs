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
use mile_lab::agent_files::Divergence;
use mile_lab::choices::keep_choices;
use mile_lab::engines::Scalar;
use mile_lab::error::LabError;
use mile_lab::gather::Gatherer;
use mile_lab::plan::{Job, Plan};
use mile_lab::session::Executed;
use mile_lab::spec::{AgentSettings, Spec};
use mile_lab::store::{JobStatus, Outcome};

use self::supervisor::{Standing, Supervisor};
use self::view::View;
use crate::agent::check_stop;
use crate::output::OutputArguments;
use crate::run::{advice, choose_folder, command_line, finish, read_experiment, stop_on_interrupt};
use crate::status::refused_in;
use crate::{CommandLine, DIVERGED, Program};

/// Time between two checks of the agents' processes, and of their files.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
const GATHER_INTERVAL: Duration = Duration::from_millis(150);
/// How long agents may take to exit once all results are gathered, and to make the first record of a job that has diverged.
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

pub(crate) fn run(arguments: &SwarmArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let name = arguments.experiment.display().to_string();
    run_named(arguments, line).map_err(|error| match error.downcast::<LabError>() {
        Ok(error) => error.in_file(&name).into(),
        Err(error) => error,
    })
}

fn run_named(arguments: &SwarmArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let SwarmArguments { experiment, set, data_dir, .. } = arguments;
    let (mut table, base) = read_experiment(Some(experiment), set, data_dir.as_deref())?;
    if table.contains_key("sweep") {
        return Err(LabError::config("sweep", "mile swarm cannot run sweeps; use mile run").into());
    }
    let mut settings = AgentSettings::of_swarm(&table)?;
    if arguments.emit.is_none() {
        // Agents on this machine share it; elsewhere each has its own, in its folder.
        settings.page_token =
            settings.page_token.map(|path| std::path::absolute(base.join(path))).transpose()?;
    }
    table.remove("agent");
    let mut spec = Spec::read_with(&table, &base, &line.kinds(), line.catalogue())?;
    settings.apply(&mut spec)?;
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => choose_folder(&spec.name, arguments.resume),
    };
    if arguments.resume {
        keep_choices(&mut spec, &folder, Together::of(&Alone))?;
    }
    if let Some(folder) = &arguments.emit {
        let addresses = emit::addresses(
            &spec.membership()?,
            &arguments.host,
            arguments.hosts.as_deref(),
            settings.relay.is_some(),
        )?;
        let spec = emit::resolved(spec, table.contains_key("precision"))?;
        return emit::emit(spec, &settings, folder, &addresses);
    }
    let plan = Plan::new(spec)?;
    check_stop(&plan)?;
    eprint!("{}", advice(&plan)?);
    let swarm =
        Swarm { plan: &plan, settings, folder: &folder, resume: arguments.resume, program: &line.program };
    let outcomes = mile::with_precision!(plan.spec.precision, T => swarm.run::<T>())?;
    let again = command_line("swarm", Some(&arguments.experiment), set, data_dir.as_deref());
    let results = Executed::elsewhere(&plan, &folder, outcomes).report(true)?;
    let diverged = results.outcomes.iter().any(|outcome| outcome.status == JobStatus::Diverged);
    let code = finish(results, false, &again, &OutputArguments::default())?;
    Ok(if diverged && code == 0 { DIVERGED } else { code })
}

/// A swarm to be run in a folder.
struct Swarm<'a> {
    plan: &'a Plan,
    settings: AgentSettings,
    folder: &'a Path,
    resume: bool,
    /// What each agent is a process of.
    program: &'a Program,
}

impl Swarm<'_> {
    /// Runs all agents until they are done, or until Ctrl-C.
    fn run<T: Scalar>(&self) -> anyhow::Result<Vec<Outcome>> {
        let view = View::new(self.plan);
        let mut gatherer = Gatherer::<T>::open(self.plan, self.folder, self.resume, &view)?;
        let stop = stop_on_interrupt(Some("stopping all agents"))?;
        let folders = match gatherer.is_complete() {
            true => Vec::new(),
            false => folders::create_local(self.plan, self.folder, &self.settings)?,
        };
        while !gatherer.is_complete() && !stop.load(Ordering::Relaxed) {
            let mut supervisor = Supervisor::start(self.program, &folders, gatherer.first_job())?;
            let watched = view.watch(&folders, || supervise(&mut supervisor, &mut gatherer, &view, &stop));
            supervisor.stop();
            let standing = watched.inspect_err(|_| view.clear())?;
            gatherer.gather()?;
            if standing != Standing::Diverged {
                break;
            }
            let (job, found) = self.divergence(&gatherer)?;
            view.print_line(&format!(
                "{}: the model of agent {} diverged in round {}",
                self.plan.job_name(job),
                found.agent,
                found.round
            ));
        }
        view.clear();
        refused_in(&folders).iter().for_each(|line| eprintln!("{line}"));
        if !gatherer.is_complete() && !stop.load(Ordering::Relaxed) {
            let open = gatherer.open_jobs();
            let name = open.first().map(|job| self.plan.job_name(*job)).unwrap_or_default();
            anyhow::bail!("all agents have ended, but final states of {name} are missing; see agents/*/log");
        }
        Ok(gatherer.finish()?)
    }

    /// The job that has just diverged, and the agent that says so.
    fn divergence<T: Scalar>(&self, gatherer: &Gatherer<T>) -> anyhow::Result<(Job, Divergence)> {
        let last = gatherer.divergences().pop();
        let Some((job, found)) = last.filter(|(job, _)| !gatherer.open_jobs().contains(job)) else {
            anyhow::bail!("an agent's model has diverged before the first record; see agents/*/log");
        };
        Ok((job, found))
    }
}

fn supervise<T: Scalar>(
    supervisor: &mut Supervisor<'_>,
    gatherer: &mut Gatherer<T>,
    view: &View,
    stop: &AtomicBool,
) -> anyhow::Result<Standing> {
    let mut gathered = Instant::now();
    let (mut complete, mut diverged) = (None, None);
    let mut standing = Standing::Running;
    while !stop.load(Ordering::Relaxed) {
        standing = supervisor.poll(view)?;
        if standing == Standing::Done {
            break;
        }
        if gathered.elapsed() >= GATHER_INTERVAL {
            gatherer.gather()?;
            gathered = Instant::now();
        }
        // An agent that was killed near the end waits for confirmations of neighbours that have already exited.
        if gatherer.is_complete() && complete.get_or_insert_with(Instant::now).elapsed() > LEAVE_TIMEOUT {
            break;
        }
        if standing == Standing::Diverged {
            let open = gatherer.open_jobs();
            let recorded = gatherer.divergences().iter().all(|(job, _)| !open.contains(job));
            if recorded || diverged.get_or_insert_with(Instant::now).elapsed() > LEAVE_TIMEOUT {
                break;
            }
        }
        view.refresh();
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(standing)
}
