//! `mile watch`: the whole network, as any agent of it sees it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mile_lab::error::LabError;
use mile_lab::spec::{AgentSettings, AgentSpec};
use mile_lab::watch::NetworkView;
use mile_net::status::{Status, ask, left_behind};

use crate::agent::socket;
use crate::network_view::{Layout, json, token, view};
use crate::status::agents;
use crate::{CommandLine, FAILED, Format, output};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// Fewest agents that are shown on a small terminal.
const FEWEST: usize = 3;

/// Shows the whole network, as one or more agents on this machine see it: who is at which round, who waits for whom and since when, own
/// losses, bytes, and which agents are down. Agents tell each other once a second (agent.gossip).
#[derive(Args)]
pub(crate) struct WatchArguments {
    /// Folders of agents, or run directories of mile swarm; one agent that runs is enough
    #[arg(value_name = "DIR", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Print what is known now, and end; exit with 1 if no agent answers
    #[arg(long)]
    once: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Print the addresses of the pages that these agents serve to their operator (agent.page_token), with their tokens
    #[arg(long, conflicts_with_all = ["once", "format"])]
    page: bool,
}

pub(crate) fn run(arguments: &WatchArguments, line: &CommandLine) -> anyhow::Result<u8> {
    let folders = agents(&arguments.folders)?;
    if arguments.page {
        let pages =
            folders.iter().map(|folder| page_address(folder, line)).collect::<anyhow::Result<Vec<_>>>()?;
        output::print_as_it_is(&pages.concat())?;
        return Ok(0);
    }
    let layout = folders.first().map(|folder| layout(folder, line)).transpose();
    let (layout, note) = match layout {
        Ok(layout) => (layout, None),
        Err(error) => (None, Some(format!("agents that nobody has heard of are not shown: {error}"))),
    };
    let terminal = std::io::stdout().is_terminal();
    loop {
        let answers: Vec<(Status, bool)> = folders.iter().filter_map(|folder| answer(folder)).collect();
        let any = !answers.is_empty();
        let mut view = view(&answers, layout.as_ref());
        view.notes.extend(note.clone());
        let screen = terminal_size::terminal_size().filter(|_| terminal && !arguments.once);
        match (arguments.format, screen) {
            (Format::Text, _) if !any => output::print("no agent answers here; is one running?\n")?,
            (Format::Text, Some((width, height))) => {
                let text = fit(&view, width.0.into(), height.0.into());
                output::print_as_it_is(&format!("\x1b[2J\x1b[H{text}"))?;
            }
            (Format::Text, None) => output::print(&view.text(usize::MAX))?,
            (Format::Json, _) => output::print_as_it_is(&(json(&view).to_string() + "\n"))?,
        }
        if arguments.once {
            return Ok(if any { 0 } else { FAILED });
        }
        std::thread::sleep(INTERVAL);
    }
}

/// The view for a terminal of this size: some agents are left out if there are too many lines, and the ends of those that are too long.
fn fit(view: &NetworkView, width: usize, height: usize) -> String {
    let room = height.saturating_sub(1);
    let whole = view.text(usize::MAX);
    let excess = whole.lines().count().saturating_sub(room);
    let text = match excess {
        0 => whole,
        // One line says how many are left out.
        _ => view.text(view.agents.len().saturating_sub(excess + 1).max(FEWEST)),
    };
    let cut = |line: &str| match line.chars().count() > width {
        true => line.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect(),
        false => line.to_owned(),
    };
    text.lines().take(room).map(cut).collect::<Vec<String>>().join("\n")
}

/// The status of the agent in a folder, and whether it has ended.
fn answer(folder: &Path) -> Option<(Status, bool)> {
    match ask(&socket::find_path(folder)) {
        Ok(status) => Some((status, false)),
        Err(_) => left_behind(folder).map(|status| (status, true)),
    }
}

fn layout(folder: &Path, line: &CommandLine) -> Result<Layout, LabError> {
    let (spec, _) = AgentSpec::load(&folder.join("agent.toml"), &line.kinds(), line.catalogue())?;
    Layout::of(&spec)
}

/// The address of the page of the agent in a folder, with its token.
fn page_address(folder: &Path, line: &CommandLine) -> anyhow::Result<String> {
    let file = folder.join("agent.toml");
    let (_, config) = AgentSpec::load(&file, &line.kinds(), line.catalogue())?;
    let Some(path) = &config.settings.page_token else {
        let problem = "expected the file with the token of a page, got none, so this agent serves no page; write one with mile keygen --token, and name it";
        return Err(LabError::config("agent.page_token", problem)
            .in_file(&file.display().to_string())
            .into());
    };
    let at = config.settings.page.unwrap_or(AgentSettings::PAGE);
    let token = token::read(path).context("the page cannot be opened")?;
    Ok(format!("http://{at}/{token}/\n"))
}

#[cfg(test)]
mod tests {
    use mile_lab::watch::{AgentState, AgentView};

    use super::*;

    #[test]
    fn a_view_fits_into_the_terminal_with_its_first_lines_and_the_agents_in_trouble() {
        let state = |id| if id == 30 { AgentState::Silent } else { AgentState::Computing };
        let agents = (0..40).map(|id| AgentView { id, state: state(id), said: None }).collect();
        let notes = vec![
            "a note that is much longer than the terminal is wide, as those about connections are".into(),
        ];
        let view = NetworkView { run: "wide".into(), agents, notes, ..NetworkView::default() };
        let fits = |width, height| {
            let text = fit(&view, width, height);
            assert!(
                text.lines().count() < height && text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            text
        };
        let small = fits(60, 15);
        let silent = small.lines().any(|line| line.starts_with("30 ") && line.contains(" silent "));
        assert!(small.starts_with("wide: 39 of 40 agents up") && silent, "{small}");
        assert!(small.contains("more agents") && small.contains("a note"), "{small}");
        fits(20, 6);
        assert!(!fits(80, 60).contains("more agents"));
    }
}
