//! Drawing of a graph: agents on a circle, or on a lattice.

use mile::graph::Topology;
use mile::network::Network;

use super::style::WHITE;
use super::svg::{BODY, Svg, Text};

const SIZE: f64 = 480.0;
const MARGIN: f64 = 40.0;
/// The width of a drawing, and the room around the agents.
pub(crate) const BOX: (f64, f64) = (SIZE, MARGIN);
/// Above this number of agents, their numbers are not drawn.
const MAX_NUMBERED: usize = 60;

/// Draws a network as SVG; wider lines are edges with larger weights, dashed lines edges with negative weights.
pub fn graph_svg(network: &Network, topology: Option<Topology>) -> String {
    let n = network.agents();
    let positions = positions(n, topology);
    let height = positions.iter().map(|(_, y)| *y).fold(0.0, f64::max) + MARGIN - 8.0;
    let radius = radius(n);
    let heaviest =
        network.graph().edges().map(|(i, j)| network.mixing().weight(i, j).abs()).fold(0.0, f64::max);
    let mut svg = Svg::new(SIZE, &format!("a graph of {n} agents"));
    svg.put(format_args!("<g class=\"edges\" stroke=\"#4477aa\" stroke-linecap=\"round\">"));
    for (i, j) in network.graph().edges() {
        let ((x1, y1), (x2, y2)) = (positions[i], positions[j]);
        let weight = network.mixing().weight(i, j);
        let width = 0.5 + 3.0 * weight.abs() / heaviest.max(f64::MIN_POSITIVE);
        let dash = if weight < 0.0 { " stroke-dasharray=\"4 4\"" } else { "" };
        svg.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke-width=\"{width:.2}\" \
             stroke-opacity=\"0.7\"{dash}><title>{i} - {j}: weight {weight:.4}</title></line>"
        ));
    }
    svg.put(format_args!("</g>\n<g class=\"nodes\" fill=\"#222222\">"));
    for (i, (x, y)) in positions.iter().enumerate() {
        let own = network.mixing().weight(i, i);
        svg.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>agent {i}: weight {own:.4}</title></circle>"
        ));
    }
    svg.put(format_args!("</g>\n<g pointer-events=\"none\">"));
    let size = (radius * 1.1).max(6.0);
    for (i, (x, y)) in positions.iter().enumerate().filter(|_| n <= MAX_NUMBERED) {
        svg.text((*x, y + 0.36 * size), Text { size, paint: WHITE, ..BODY }, &i.to_string());
    }
    svg.put(format_args!("</g>"));
    svg.finish(height, "", BODY.size)
}

/// The radius of an agent.
pub(crate) fn radius(n: usize) -> f64 {
    (0.35 * SIZE / (n as f64).max(8.0)).clamp(2.0, 14.0)
}

/// Where the agents are.
pub(crate) fn positions(n: usize, topology: Option<Topology>) -> Vec<(f64, f64)> {
    let inner = SIZE - 2.0 * MARGIN;
    match topology {
        _ if n == 1 => vec![(SIZE / 2.0, MARGIN + 20.0)],
        Some(Topology::Grid | Topology::Torus | Topology::Path) if n > 2 => {
            let square = (1..=n.isqrt()).rev().find(|rows| n.is_multiple_of(*rows)).unwrap_or(1);
            let rows = if topology == Some(Topology::Path) { 1 } else { square };
            let columns = n / rows;
            let gap = inner / (columns.max(2) - 1) as f64;
            let place = |i: usize| (MARGIN + (i % columns) as f64 * gap, MARGIN + (i / columns) as f64 * gap);
            (0..n).map(place).collect()
        }
        Some(Topology::Star) => {
            let mut positions = vec![(SIZE / 2.0, SIZE / 2.0)];
            positions.extend(circle(n - 1, inner / 2.0));
            positions
        }
        _ => circle(n, inner / 2.0),
    }
}

fn circle(n: usize, radius: f64) -> Vec<(f64, f64)> {
    let angle = |i: usize| std::f64::consts::TAU * (i as f64 / n as f64 - 0.25);
    (0..n).map(|i| (SIZE / 2.0 + radius * angle(i).cos(), SIZE / 2.0 + radius * angle(i).sin())).collect()
}
