//! The view of a network as text that fits into 80 columns.

use std::fmt::Write;

use super::{AgentView, NetworkView, bytes, listed, time};
use crate::table::{TextTable, number};

/// Most agents that are named of those that one waits for.
const NAMED: usize = 3;
/// Most edges that are named.
const EDGES: usize = 8;

impl NetworkView {
    /// The view as text. Of more agents than `rows` those are shown that need attention, then those that wait longest.
    pub fn text(&self, rows: usize) -> String {
        let mut text = format!("{}: {}\n", self.run, self.summary());
        let progress = self.progress().unwrap_or_else(|| "nothing was heard yet".into());
        let _ = writeln!(text, "{progress}");
        if let Some(losses) = self.losses() {
            let _ = writeln!(text, "{losses}");
        }
        let shown = self.shown(rows);
        let header = ["agent", "state", "round", "own loss", "sent", "received", "heard", "waits for"];
        let header = header.map(str::to_owned).to_vec();
        let _ =
            write!(text, "\n{}", TextTable { header, rows: shown.iter().map(|agent| row(agent)).collect() });
        let hidden = self.agents.len() - shown.len();
        if hidden > 0 {
            let _ = writeln!(text, "and {hidden} more agents");
        }
        let down = self.edges.iter().filter(|edge| edge.linked == Some(false));
        let down: Vec<String> = down.map(|edge| format!("{}-{}", edge.ends.0, edge.ends.1)).collect();
        if !down.is_empty() {
            let _ = writeln!(text, "\nedges without a connection: {}", listed(&down, EDGES));
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// What is known of the losses, if anything is.
    pub(super) fn losses(&self) -> Option<String> {
        let own = self.mean_loss().map(|(mean, count)| {
            let whose = if count == self.agents.len() { "all".into() } else { count.to_string() };
            format!("mean of {whose} own losses {}", number(mean))
        });
        let estimate =
            self.estimate.map(|(_, consensus)| format!("consensus error about {}", number(consensus)));
        let parts: Vec<String> = [own, estimate].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn shown(&self, rows: usize) -> Vec<&AgentView> {
        let mut agents: Vec<&AgentView> = self.agents.iter().collect();
        if agents.len() > rows {
            let waits = |agent: &AgentView| agent.said.as_ref().map_or(0.0, |said| said.for_s);
            let calm = |agent: &AgentView| !agent.state.is_trouble();
            agents.sort_by(|a, b| calm(a).cmp(&calm(b)).then(waits(b).total_cmp(&waits(a))));
            agents.truncate(rows);
            agents.sort_by_key(|agent| agent.id);
        }
        agents
    }
}

fn row(agent: &AgentView) -> Vec<String> {
    let mut cells = vec![agent.id.to_string(), agent.state.name().to_owned()];
    cells.extend(cells_of(agent));
    cells
}

/// The cells of what an agent said.
pub(super) fn cells_of(agent: &AgentView) -> Vec<String> {
    let Some(said) = &agent.said else {
        return ["-", "-", "-", "-", "never", ""].map(str::to_owned).to_vec();
    };
    // One that is down waits for nobody.
    let waits = !said.waits_for.is_empty() && agent.state.is_up();
    let waits = waits.then(|| format!("{}, {}", listed(&said.waits_for, NAMED), time(said.for_s)));
    vec![
        said.round.to_string(),
        said.own_loss.map_or("-".into(), number),
        bytes(said.bytes.0),
        bytes(said.bytes.1),
        time(said.age_s),
        waits.unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;
    use crate::watch::AgentState;

    #[test]
    fn the_text_fits_into_eighty_columns_and_has_what_everybody_said() {
        let mut view = example();
        view.agents[0].id = 100;
        view.agents[0].said.as_mut().unwrap().round = 99_000;
        let text = view.text(50);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in
            ["field <1>", "99000", "waiting", "5.5 MiB", "123 B", "3, 8.0 s", "never", "0-3", "<refused>"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn where_not_all_agents_fit_those_in_trouble_are_shown_and_then_those_that_wait_longest() {
        let mut view = example();
        let ids =
            |view: &NetworkView, rows| view.shown(rows).iter().map(|agent| agent.id).collect::<Vec<_>>();
        assert_eq!(ids(&view, 4), [0, 1, 2, 3]);
        assert_eq!(ids(&view, 3), [0, 2, 3]);
        assert_eq!(ids(&view, 2), [2, 3]);
        view.agents[1].state = AgentState::Diverged;
        assert_eq!(ids(&view, 3), [1, 2, 3]);
        assert!(view.text(3).contains("and 1 more agents"));
    }
}
