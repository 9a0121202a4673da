//! Axes of a coordinate system: ticks, grid lines and titles.

use std::fmt::Write;

use super::scale::{Scale, TICKS};
use super::style::{FAINT, GRID, INK, escape, width};

/// Font sizes of ticks and titles.
const TICK_SIZE: f64 = 11.5;
const TITLE_SIZE: f64 = 12.0;

/// A coordinate system at its place in a picture.
pub(super) struct Axes<'a> {
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) x_title: &'a str,
    pub(super) y_title: &'a str,
    /// Upper left corner.
    pub(super) corner: (f64, f64),
    pub(super) size: (f64, f64),
}

/// Room to the left of a vertical axis for its ticks and title; `larger` is the size that a font may get.
pub(super) fn left_margin(y: Scale, larger: impl Fn(f64) -> f64) -> f64 {
    let texts = y.ticks(TICKS).into_iter().filter_map(|tick| tick.text);
    let widest = texts.map(|text| width(&text, larger(TICK_SIZE))).fold(0.0, f64::max);
    (7.0 + widest + 6.0 + larger(TITLE_SIZE) + 4.0).round()
}

impl Axes<'_> {
    /// The position of a point in the picture.
    pub(super) fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = (self.x.place(x)?, self.y.place(y)?);
        Some((self.corner.0 + x * self.size.0, self.corner.1 + (1.0 - y) * self.size.1))
    }

    /// Draws the horizontal grid lines.
    pub(super) fn grid(&self, svg: &mut String) {
        let ((left, top), (w, h)) = (self.corner, self.size);
        for tick in self.y.ticks(TICKS).into_iter().filter(|tick| tick.text.is_some()) {
            let Some(place) = self.y.place(tick.at) else { continue };
            let (y, right) = (top + h - place * h, left + w);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\" stroke=\"{GRID}\" fill=\"none\"/>"
            );
        }
    }

    /// Draws the axes with their ticks and titles; the base line of the vertical axis's title is at `y_title_at`.
    pub(super) fn write(&self, svg: &mut String, y_title_at: f64) {
        let ((left, top), (w, h)) = (self.corner, self.size);
        let (bottom, right) = (top + h, left + w);
        for tick in self.y.ticks(TICKS) {
            let (Some(place), Some(text)) = (self.y.place(tick.at), tick.text) else { continue };
            let y = bottom - place * h;
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{left} {y:.1}h-4\" stroke=\"{FAINT}\"/><text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\" font-size=\"{TICK_SIZE}\" fill=\"{INK}\">{}</text>",
                left - 7.0,
                y + 4.0,
                escape(&text)
            );
        }
        for tick in self.x.ticks(TICKS) {
            let Some(place) = self.x.place(tick.at) else { continue };
            let x = left + place * w;
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\" stroke=\"{FAINT}\"/><text class=\"ink\" x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\" font-size=\"{TICK_SIZE}\" fill=\"{INK}\">{}</text>",
                bottom + 17.0,
                escape(&tick.text.unwrap_or_default())
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"{FAINT}\"/>\
             <text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>\
             <text class=\"ink\" transform=\"translate({y_title_at:.1} {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
            left + w / 2.0,
            bottom + 36.0,
            escape(self.x_title),
            top + h / 2.0,
            escape(self.y_title)
        );
    }
}
