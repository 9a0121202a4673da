//! `mile status`: progress of agents, and who waits for whom.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::HumanBytes;
use mile_lab::error::LabError;
use mile_lab::gather::agent_folder;
use mile_lab::spec::AgentSpec;
use mile_lab::table::TextTable;
use mile_net::checkpoint::{CheckpointError, standing};
use mile_net::status::{Activity, Awaited, Neighbour, Status, StatusError, Traffic, ask, left_behind};

use crate::agent::refused::refused_messages;
use crate::agent::socket;
use crate::{CommandLine, FAILED, Format, output};

/// Time between two updates with --watch.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the round of each agent and, for every edge, its lag, its traffic, and what is awaited.
#[derive(Args)]
pub(crate) struct StatusArguments {
    /// Folders of agents, or run directories of mile swarm
    #[arg(value_name = "DIR", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Update the output every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// For supervisors: print only problems, and exit with 1 if an agent does not answer although it has not finished, if its
    /// model has diverged, if it has refused messages, or if it has waited longer than --patience
    #[arg(long, conflicts_with = "watch")]
    check: bool,
    /// Print the section [[event]] that removes a lost agent for good, computed from the checkpoints of the others; stop all agents and
    /// add it to their files (with replace = instead of leave = if a new agent takes its place)
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["watch", "check"])]
    without: Option<usize>,
    /// Seconds an agent may wait for neighbours (with --check)
    #[arg(long, value_name = "SECONDS", default_value = "60", requires = "check")]
    patience: f64,
}

/// The status of the agent in a folder, or why there is none.
type Answer = (PathBuf, Result<Status, StatusError>);

pub(crate) fn run(arguments: &StatusArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let folders = agents(&arguments.folders)?;
    loop {
        let answer = |folder: &PathBuf| {
            let answer = ask(&socket::find_path(folder));
            (folder.clone(), answer.or_else(|error| left_behind(folder).ok_or(error)))
        };
        let answers: Vec<Answer> = folders.iter().map(answer).collect();
        if let Some(agent) = arguments.without {
            output::print(&departure(agent, &answers, line)?)?;
            return Ok(0);
        }
        if arguments.check {
            let problems = problems(&answers, arguments.patience);
            output::print(&problems.iter().map(|line| format!("{line}\n")).collect::<String>())?;
            return Ok(if problems.is_empty() { 0 } else { FAILED });
        }
        let text = match arguments.format {
            Format::Text => text(&answers),
            Format::Json => json(&answers) + "\n",
        };
        let clear = arguments.watch && std::io::stdout().is_terminal();
        output::print(&if clear { format!("\x1b[2J\x1b[H{text}") } else { text })?;
        if !arguments.watch {
            let any = answers.iter().any(|(_, answer)| answer.is_ok());
            return Ok(if any { 0 } else { FAILED });
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// The event with which a lost agent leaves: at the largest round that any of the others has reached, and lost since the smallest.
fn departure(agent: usize, answers: &[Answer], line: &CommandLine) -> Result<String, LabError> {
    let (mut rounds, mut running) = (Vec::new(), Vec::new());
    for (folder, answer) in answers {
        let (_, config) = AgentSpec::load(&folder.join("agent.toml"), &line.kinds(), line.catalogue())?;
        if config.id == agent {
            continue;
        }
        let alive = answer.as_ref().is_ok_and(|status| status.activity != Activity::Done);
        running.extend(alive.then_some(config.id));
        let unreadable =
            |error: CheckpointError| LabError::Directory { path: folder.clone(), problem: error.to_string() };
        rounds.push(standing(folder).map_err(unreadable)?.map_or(0, |mark| mark.round));
    }
    let (Some(least), Some(most)) = (rounds.iter().min(), rounds.iter().max()) else {
        let problem = "no folders of other agents found; give those of all agents that remain";
        return Err(LabError::config("DIR", problem));
    };
    let mut text = format!("[[event]]\nround = {}\nleave = {agent}\nlost = {least}\n", most.max(&1));
    if !running.is_empty() {
        let _ =
            writeln!(text, "# agents {running:?} are still running: stop all agents, then run this again");
    }
    Ok(text)
}

/// What a supervisor should know about, one line each.
fn problems(answers: &[Answer], patience: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for (folder, answer) in answers {
        let status = match answer {
            Ok(status) => status,
            Err(error) => {
                lines.push(format!("{}: {error}", folder.display()));
                continue;
            }
        };
        if let Some(round) = status.diverged {
            lines.push(format!("agent {}: its model diverged in round {round}", status.agent));
        }
        lines.extend(refused_messages(status));
        let waits = matches!(status.activity, Activity::Waiting | Activity::Leaving);
        if waits && status.activity_s > patience {
            for edge in &status.neighbours {
                if let Some(what) = waited_for(edge) {
                    lines.push(format!(
                        "agent {} waits for agent {}: {what}{}",
                        status.agent,
                        edge.id,
                        reason(edge)
                    ));
                }
            }
        }
    }
    lines
}

/// Whose messages agents that have ended had refused, from their folders.
pub(crate) fn refused_in(folders: &[PathBuf]) -> Vec<String> {
    folders
        .iter()
        .filter_map(|folder| left_behind(folder))
        .flat_map(|status| refused_messages(&status))
        .collect()
}

/// Why there is no link to a neighbour, in brackets, if it is known.
pub(crate) fn reason(edge: &Neighbour) -> String {
    let why = edge.refusal.as_ref().or(edge.trouble.as_ref());
    why.map(|why| format!(" ({why})")).unwrap_or_default()
}

/// The agents' folders: those given, and those in the given run directories.
pub(crate) fn agents(folders: &[PathBuf]) -> Result<Vec<PathBuf>, LabError> {
    let mut found = Vec::new();
    for folder in folders {
        let swarm: Vec<PathBuf> =
            (0..).map(|agent| agent_folder(folder, agent)).take_while(|path| path.is_dir()).collect();
        if !swarm.is_empty() {
            found.extend(swarm);
        } else if folder.join("pid").exists() {
            found.push(folder.clone());
        } else {
            let problem =
                "neither the folder of an agent that has been started nor the run directory of a swarm";
            return Err(LabError::Directory { path: folder.clone(), problem: problem.into() });
        }
    }
    Ok(found)
}

fn json(answers: &[Answer]) -> String {
    let one = |(folder, answer): &Answer| match answer {
        Ok(status) => serde_json::json!({ "folder": folder, "status": status }),
        Err(error) => {
            let round = standing(folder).ok().flatten().map(|mark| mark.round);
            serde_json::json!({ "folder": folder, "error": error.to_string(), "checkpoint_round": round })
        }
    };
    serde_json::Value::Array(answers.iter().map(one).collect()).to_string()
}

fn text(answers: &[Answer]) -> String {
    let rows = |row: &dyn Fn(&Path, &Status) -> Vec<Vec<String>>| {
        let known = answers.iter().filter_map(|(folder, answer)| Some((folder, answer.as_ref().ok()?)));
        known.flat_map(|(folder, status)| row(folder, status)).collect::<Vec<_>>()
    };
    let table = |header: &[&str], rows: Vec<Vec<String>>| {
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        if rows.is_empty() { String::new() } else { TextTable { header, rows }.to_string() }
    };
    let agents =
        table(&["agent", "run", "round", "start", "up", "doing"], rows(&|_, status| vec![agent(status)]));
    let header =
        ["agent", "neighbour", "link", "lag", "sent", "received", "last heard", "skipped", "waited for"];
    let edges =
        table(&header, rows(&|_, status| status.neighbours.iter().map(|e| edge(status, e)).collect()));
    let mut text = if edges.is_empty() { agents } else { format!("{agents}\n{edges}") };
    for (_, status) in answers.iter().filter_map(|(folder, answer)| Some((folder, answer.as_ref().ok()?))) {
        for edge in &status.neighbours {
            if let Some(why) = edge.refusal.as_ref().or(edge.trouble.as_ref()) {
                let _ = writeln!(text, "agent {}, edge to agent {}: {why}", status.agent, edge.id);
            }
        }
        refused_messages(status).iter().for_each(|line| text += &format!("{line}\n"));
    }
    for (folder, answer) in answers {
        if let Err(error) = answer {
            let stands = match standing(folder) {
                Ok(Some(mark)) => format!("; its checkpoint is of round {}", mark.round),
                Ok(None) => "; it has no checkpoint".to_owned(),
                Err(error) => format!("; {error}"),
            };
            let _ = writeln!(text, "{}: {error}{stands}", folder.display());
        }
    }
    text
}

fn agent(status: &Status) -> Vec<String> {
    let doing = match status.activity {
        Activity::Computing => "computing".into(),
        Activity::Waiting => format!("in an exchange for {}", seconds(status.activity_s)),
        Activity::Leaving => format!("done, waiting for confirmations for {}", seconds(status.activity_s)),
        Activity::Done => "finished".into(),
    };
    let doing = match status.diverged {
        Some(round) => format!("{doing}; diverged in round {round}"),
        None => doing,
    };
    let rounds = status.rounds.map(|rounds| format!("/{rounds}")).unwrap_or_default();
    vec![
        status.agent.to_string(),
        status.run.clone(),
        format!("{}{rounds}", status.round),
        status.incarnation.to_string(),
        seconds(status.since_start_s),
        doing,
    ]
}

fn edge(status: &Status, edge: &Neighbour) -> Vec<String> {
    let link = match (edge.linked, edge.relayed) {
        (true, Some(true)) => "relayed",
        (true, _) => "direct",
        (false, _) => "down",
    };
    vec![
        status.agent.to_string(),
        edge.id.to_string(),
        format!("{link} for {}", seconds(edge.since_s)),
        edge.lag.to_string(),
        traffic(edge.sent),
        traffic(edge.received),
        edge.last_heard_s.map_or("never".into(), |s| format!("{} ago", seconds(s))),
        edge.skipped.to_string(),
        waited_for(edge).unwrap_or_default(),
    ]
}

/// Bytes of vectors, and of everything else.
fn traffic(traffic: Traffic) -> String {
    let rest = traffic.gossip + traffic.protocol;
    format!("{} + {}", HumanBytes(traffic.payload), HumanBytes(rest))
}

/// What is awaited from a neighbour, and for how long.
pub(crate) fn waited_for(edge: &Neighbour) -> Option<String> {
    let what = match edge.waiting? {
        Awaited::Message => "its message",
        Awaited::Decision => "its decision",
        Awaited::Confirmation => "its confirmation",
        Awaited::Farewell => "its return",
    };
    Some(format!("{what}, for {}", seconds(edge.waiting_s.unwrap_or(0.0))))
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
