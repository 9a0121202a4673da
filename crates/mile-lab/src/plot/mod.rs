//! Pictures: the only place where they are drawn.

mod graph;
mod stability;

pub use graph::graph_svg;
pub use stability::{Mode, modes_svg, stability_map_svg};
