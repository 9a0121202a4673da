//! Pictures: the only place where they are drawn.

mod graph;

pub use graph::graph_svg;
