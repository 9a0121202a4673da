//! Drawing of a network while it runs: which agents are up, which edges are connected, and who waits for whom.
//!
//! A state is shown by colour and by form, so that it can be seen without colours: agents that are not up are hollow, edges without a
//! connection are dashed.

use super::{AgentView, NetworkView};
use crate::plot::graph::{BOX, positions, radius};
use crate::plot::style::{INK, WHITE};
use crate::plot::svg::{BODY, Svg, Text};

/// Above this number of agents, their numbers are not drawn.
const MAX_NUMBERED: usize = 60;
const LEGEND: &str = "filled: up; hollow: not up; dashed: no connection; arrow: waits for";

/// Draws a network as SVG. Its classes are coloured by the style of the page.
pub(super) fn network_svg(view: &NetworkView) -> String {
    let n = view.agents.len();
    let places = positions(n, view.topology);
    let place = |id: usize| {
        let k = view.agents.binary_search_by_key(&id, |agent| agent.id).ok()?;
        places.get(k).copied()
    };
    let radius = radius(n);
    let height = places.iter().map(|(_, y)| *y).fold(0.0, f64::max) + BOX.1 - 8.0;
    let mut svg = Svg::new(BOX.0, &view.summary());
    for edge in &view.edges {
        let (Some((x1, y1)), Some((x2, y2))) = (place(edge.ends.0), place(edge.ends.1)) else { continue };
        let (state, dash) = match edge.linked {
            Some(true) => ("linked", ""),
            Some(false) => ("unlinked", " stroke-dasharray=\"3 5\""),
            None => ("unknown", " stroke-dasharray=\"1 5\""),
        };
        let (i, j) = edge.ends;
        svg.put(format_args!(
            "<line class=\"edge {state}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#4477aa\" \
             stroke-width=\"2\" stroke-linecap=\"round\"{dash}><title>{i} - {j}: {}</title></line>",
            match edge.linked {
                Some(true) => "connected",
                Some(false) => "no connection",
                None => "neither end can be asked",
            }
        ));
    }
    let waiting = view.agents.iter().filter(|agent| agent.state.is_up());
    for (agent, said) in waiting.filter_map(|agent| Some((agent, agent.said.as_ref()?))) {
        for other in &said.waits_for {
            if let (Some(from), Some(to)) = (place(agent.id), place(*other)) {
                svg.put(format_args!("{}", arrow(from, to, radius, agent.id, *other)));
            }
        }
    }
    view.agents.iter().zip(&places).for_each(|(agent, at)| node(&mut svg, agent, *at, radius));
    let size = (radius * 1.1).max(6.0);
    for (agent, (x, y)) in view.agents.iter().zip(&places).filter(|_| n <= MAX_NUMBERED) {
        let paint = if agent.state.is_trouble() { INK } else { WHITE };
        svg.text((*x, y + 0.36 * size), Text { size, paint, ..BODY }, &agent.id.to_string());
    }
    svg.finish(height, LEGEND, 11.0)
}

fn node(svg: &mut Svg, agent: &AgentView, (x, y): (f64, f64), radius: f64) {
    let (id, state) = (agent.id, agent.state.name());
    let (fill, stroke) =
        if agent.state.is_trouble() { ("#ffffff", "#b3261e") } else { ("#222222", "#222222") };
    let round = agent.said.as_ref().map_or(String::new(), |said| format!(", round {}", said.round));
    svg.put(format_args!(
        "<circle class=\"agent {state}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{fill}\" stroke=\"{stroke}\" \
         stroke-width=\"2\"><title>agent {id}: {state}{round}</title></circle>"
    ));
}

/// An arrow along an edge, beside its middle, from one who waits to the one waited for.
fn arrow(from: (f64, f64), to: (f64, f64), radius: f64, waits: usize, awaited: usize) -> String {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let size = (0.6 * radius).clamp(3.0, 8.0);
    // Nearer to the one waited for, so that two that wait for each other have two arrows.
    let tip = length - radius - 3.0;
    let point = |along: f64, aside: f64| {
        format!("{:.1} {:.1}", from.0 + ux * along - uy * aside, from.1 + uy * along + ux * aside)
    };
    format!(
        "<path class=\"wait\" d=\"M{}L{}L{}Z\" fill=\"#d55e00\"><title>{waits} waits for {awaited}</title></path>",
        point(tip, 0.0),
        point(tip - 2.0 * size, size),
        point(tip - 2.0 * size, -size)
    )
}
