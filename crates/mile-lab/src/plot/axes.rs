//! Axes of a coordinate system with ticks, grid lines and titles, and colour bars.

use super::scale::{Scale, Tick};
use super::style::{AXIS, GRID, Ramp, width};
use super::svg::{BODY, Svg, TICK, Text};

/// Room below a horizontal axis for its ticks and title.
pub(super) const BOTTOM: f64 = 46.0;
/// Width of a colour bar.
const BAR: f64 = 14.0;

/// A coordinate system at its place in a picture.
pub(super) struct Axes<'a> {
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) x_title: &'a str,
    pub(super) y_title: &'a str,
    /// Upper left corner.
    pub(super) corner: (f64, f64),
    pub(super) size: (f64, f64),
    /// Room to the left, for ticks and title.
    pub(super) margin: f64,
}

/// Room to the left of a vertical axis for its ticks and title; `larger` is the size that a font may get.
pub(super) fn left_margin(y: Scale, larger: impl Fn(f64) -> f64) -> f64 {
    let widest = y.ticks().iter().map(|tick| width(&tick.text, larger(TICK.size))).fold(0.0, f64::max);
    (7.0 + widest + 6.0 + larger(BODY.size) + 4.0).round()
}

impl Axes<'_> {
    /// The position of a point in the picture; `None` if an axis cannot show it.
    pub(super) fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = (self.x.place(x)?, self.y.place(y)?);
        Some((self.corner.0 + x * self.size.0, self.corner.1 + (1.0 - y) * self.size.1))
    }

    /// Draws the horizontal grid lines.
    pub(super) fn grid(&self, svg: &mut Svg) {
        let (left, w) = (self.corner.0, self.size.0);
        let line = |(y, _): (f64, Tick)| format!("M{left} {y:.1}h{w}");
        let lines: String = self.y_ticks().map(line).collect();
        svg.path(&lines, &format!("class=\"grid\" stroke=\"{GRID}\" fill=\"none\""), "");
    }

    fn y_ticks(&self) -> impl Iterator<Item = (f64, Tick)> {
        let (top, h) = (self.corner.1, self.size.1);
        let placed = move |tick: Tick| Some((top + h * (1.0 - self.y.place(tick.at)?), tick));
        self.y.ticks().into_iter().filter_map(placed)
    }

    /// Draws the axes with their ticks and titles.
    pub(super) fn write(&self, svg: &mut Svg) {
        let ((left, top), (w, h)) = (self.corner, self.size);
        let bottom = top + h;
        let mut lines = format!("M{left} {top}v{h}h{w}");
        for (y, tick) in self.y_ticks() {
            lines += &format!("M{left} {y:.1}h-4");
            svg.text((left - 7.0, y + 4.0), Text { anchor: "end", ..TICK }, &tick.text);
        }
        for tick in self.x.ticks() {
            let Some(place) = self.x.place(tick.at) else { continue };
            let x = left + place * w;
            lines += &format!("M{x:.1} {bottom}v4");
            svg.text((x, bottom + 17.0), TICK, &tick.text);
        }
        svg.path(&lines, &format!("class=\"axis\" fill=\"none\" stroke=\"{AXIS}\""), "");
        svg.text((left + w / 2.0, bottom + 36.0), BODY, self.x_title);
        svg.text_upwards((left - self.margin + 14.0, top + h / 2.0), BODY, self.y_title);
    }

    /// Draws a bar to the right that shows which colour means which value; ticks are places on it with their labels.
    pub(super) fn colour_bar(&self, svg: &mut Svg, ramp: &Ramp, title: &str, ticks: &[(f64, String)]) {
        let (left, top, h) = (self.corner.0 + self.size.0 + 18.0, self.corner.1, self.size.1);
        let stop = |(place, [r, g, b]): &(f64, [f64; 3])| {
            format!("<stop offset=\"{place}\" stop-color=\"rgb({r},{g},{b})\"/>")
        };
        let (name, stops) = (ramp.name, ramp.stops.iter().map(stop).collect::<String>());
        svg.put(format_args!(
            "<linearGradient id=\"{name}\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">{stops}</linearGradient>"
        ));
        svg.rect((left, top), (BAR, h), &format!("fill=\"url(#{name})\""), "");
        let right = left + BAR;
        let mut lines = String::new();
        for (place, text) in ticks {
            let y = top + h * (1.0 - place);
            lines += &format!("M{right:.1} {y:.1}h4");
            svg.text((right + 7.0, y + 4.0), Text { size: 11.0, anchor: "start", ..TICK }, text);
        }
        svg.path(&lines, &format!("class=\"axis\" stroke=\"{AXIS}\""), "");
        svg.text_upwards((right + 62.0, top + h / 2.0), BODY, title);
    }
}
