//! A colour bar: which colour stands for which value.

use std::fmt::Write;

use super::style::{FAINT, INK, escape};

const WIDTH: f64 = 14.0;
const BANDS: usize = 60;

/// A vertical colour bar at its place in a picture.
pub(super) struct ColourBar<'a> {
    pub(super) title: &'a str,
    /// Upper left corner.
    pub(super) corner: (f64, f64),
    pub(super) height: f64,
    /// The colour at a position from 0, at the lower end, to 1.
    pub(super) colour: &'a dyn Fn(f64) -> String,
    /// Positions and their texts.
    pub(super) ticks: Vec<(f64, String)>,
}

impl ColourBar<'_> {
    pub(super) fn write(&self, svg: &mut String) {
        let ((left, top), height) = (self.corner, self.height);
        svg.push_str("<g class=\"colours\" shape-rendering=\"crispEdges\">\n");
        let band = height / BANDS as f64;
        for k in 0..BANDS {
            let y = top + height - (k + 1) as f64 * band;
            let hue = (self.colour)((k as f64 + 0.5) / BANDS as f64);
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.2}\" width=\"{WIDTH}\" height=\"{:.2}\" fill=\"{hue}\"/>",
                band + 0.3
            );
        }
        svg.push_str("</g>\n");
        for (place, text) in &self.ticks {
            let y = top + height * (1.0 - place);
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{:.1} {y:.1}h4\" stroke=\"{FAINT}\"/><text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{INK}\">{}</text>",
                left + WIDTH,
                left + WIDTH + 7.0,
                y + 4.0,
                escape(text)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"ink\" transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
            left + WIDTH + 62.0,
            top + height / 2.0,
            escape(self.title)
        );
    }
}
