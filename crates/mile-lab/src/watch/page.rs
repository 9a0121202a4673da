//! The view of a network as a part of a page.

use std::fmt::Write;

use super::graph::network_svg;
use super::table::cells_of;
use super::{AgentView, NetworkView};
use crate::plot::style::escape;

impl NetworkView {
    /// The view as HTML, for the body of a page: a summary, the graph with live edges, and a table of the agents.
    pub fn html(&self) -> String {
        let mut html = format!("<h1>{}</h1>\n<div class=\"summary lines\">\n", escape(&self.run));
        let progress = self.progress().unwrap_or_else(|| "nothing was heard yet".into());
        let _ = writeln!(html, "<p><b>{}</b></p>", escape(&self.summary()));
        let facts = std::iter::once(progress).chain(self.losses()).collect::<Vec<_>>().join("; ");
        let _ = writeln!(html, "<p>{}</p>", escape(&facts));
        for note in &self.notes {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
        }
        html.push_str("</div>\n<div class=\"pair\">\n");
        let _ =
            write!(html, "<figure class=\"graph network\">{}</figure>\n{}", network_svg(self), self.table());
        html.push_str("</div>\n");
        html
    }

    fn table(&self) -> String {
        let names = ["agent", "state", "round", "own loss", "sent", "received", "last heard", "waits for"];
        let head: String = names.iter().map(|name| format!("<th>{name}</th>")).collect();
        let rows: String = self.agents.iter().map(|agent| row(agent, &names[2..])).collect();
        format!(
            "<div class=\"scroll\"><table class=\"numbers agents\" style=\"--columns:{}\"><thead><tr>{head}</tr></thead>\
             <tbody>\n{rows}</tbody></table></div>\n",
            names.len()
        )
    }
}

fn row(agent: &AgentView, names: &[&str]) -> String {
    let state = agent.state.name();
    let mut row = format!(
        "<tr><td data-name=\"agent\">{}</td><td data-name=\"state\"><span class=\"state {state}\">{state}</span></td>",
        agent.id
    );
    for (name, cell) in names.iter().zip(cells_of(agent)) {
        let _ = write!(row, "<td data-name=\"{name}\">{}</td>", escape(&cell));
    }
    row + "</tr>\n"
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn the_page_has_every_agent_and_every_edge_and_escapes_what_others_say() {
        let html = example().html();
        assert!(html.contains("field &lt;1&gt;") && html.contains("&lt;refused&gt;"), "{html}");
        assert!(!html.contains("<refused>"));
        assert_eq!(html.matches("<circle").count(), 4);
        assert_eq!(html.matches("class=\"edge ").count(), 4);
        assert_eq!(html.matches("class=\"wait\"").count(), 1, "agent 0 waits for agent 3");
        for state in ["waiting", "computing", "silent", "down"] {
            assert!(html.contains(&format!("class=\"state {state}\"")), "{state}");
            assert!(html.contains(&format!("class=\"agent {state}\"")), "{state}");
        }
    }
}
