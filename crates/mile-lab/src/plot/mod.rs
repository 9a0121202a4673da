//! Figures.
//!
//! [`Runs`] groups the records of a run directory, a [`Figure`] plots them, and [`write_figures`] writes it as SVG and, from
//! the same SVG, as PNG.

mod axes;
mod curve;
mod draw;
mod figure;
mod files;
pub(crate) mod graph;
mod labels;
mod png;
mod relative;
mod scale;
mod sensitivity;
mod stability;
pub(crate) mod style;
pub(crate) mod svg;
mod winners;

pub use curve::Runs;
pub use figure::Figure;
pub use files::{figures, write_figures, write_picture};
pub use graph::graph_svg;
pub use labels::labels_svg;
pub use png::{PngError, png};
pub use relative::relative_to;
pub use sensitivity::sensitivity;
pub use stability::{StabilityMode, Used, modes_svg, stability_map_svg};
pub use winners::{Panel, Winner, WinnersMap, winners_svg};
