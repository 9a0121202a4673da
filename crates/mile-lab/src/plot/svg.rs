//! Draws figures as SVG.
//!
//! Colours are attributes, which a style sheet can override by class, as that of the report does in dark mode. In files the
//! background is white.

use std::fmt::Write;

use super::axes::{Axes, left_margin};
use super::curve::Curve;
use super::figure::{Figure, Panel};
use super::legend::{LINE as LEGEND_LINE, legend, none_if_empty, wrapped};
use super::style::{FAINT, FONT, GROUND, INK, colour, dash, escape, marker};

/// Maximal number of points of a line.
const MOST_POINTS: usize = 240;
/// Approximate number of markers on a line.
const MARKERS: usize = 7;

const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
const HEAD: f64 = 30.0;
/// Font size of all texts in a page on a small screen, as set in `page.css`.
const SMALL_SCREEN_TEXT: f64 = 14.0;

/// Sizes of a figure and its panels.
struct Layout {
    /// Size of a panel without margins.
    inner: (f64, f64),
    /// Size of a panel with margins.
    cell: (f64, f64),
    /// Room for ticks and titles of the vertical axes.
    left: f64,
    rows: usize,
    width: f64,
}

impl Layout {
    fn of(figure: &Figure, medium: Medium) -> Self {
        let (cell_width, height) = if figure.columns > 1 { (450.0, 232.0) } else { (560.0, 288.0) };
        let top = if figure.columns > 1 { TOP } else { 8.0 };
        let margins = figure.panels.iter().map(|panel| left_margin(panel.y, |size| medium.largest(size)));
        let left = margins.fold(0.0, f64::max);
        let cell = (cell_width, top + height + BOTTOM);
        let rows = figure.panels.len().div_ceil(figure.columns).max(1);
        let inner = (cell_width - left - RIGHT, height);
        Self { inner, cell, left, rows, width: cell.0 * figure.columns as f64 }
    }

    fn corner(&self, k: usize, columns: usize) -> (f64, f64) {
        let top = self.cell.1 - self.inner.1 - BOTTOM;
        ((k % columns) as f64 * self.cell.0 + self.left, HEAD + (k / columns) as f64 * self.cell.1 + top)
    }
}

/// What a figure is drawn for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A file.
    File,
    /// An HTML page, whose style sheet enlarges texts on small screens.
    Page,
    /// An HTML page with a script that shows the values.
    Script,
}

impl Medium {
    /// The largest font size that a text of this size may get.
    fn largest(self, size: f64) -> f64 {
        if self == Self::File { size } else { size.max(SMALL_SCREEN_TEXT) }
    }
}

/// Draws a figure.
pub(crate) fn draw(figure: &Figure, medium: Medium) -> String {
    let layout = Layout::of(figure, medium);
    let legend = legend(figure, layout.width, medium.largest(12.0));
    let notes = wrapped(&figure.note, layout.width - 24.0, medium.largest(11.0));
    let note_line = medium.largest(11.0) + 4.0;
    let legend_top = HEAD + layout.rows as f64 * layout.cell.1 + 4.0;
    let notes_top = legend_top + legend.lines as f64 * LEGEND_LINE;
    let height = notes_top + notes.len() as f64 * note_line + 8.0;
    let total = layout.width;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total:.0} {height:.0}\" width=\"{total:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{}\" font-family=\"{FONT}\" font-size=\"12\">\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n\
         <text class=\"ink\" x=\"{:.0}\" y=\"20\" font-size=\"14\" font-weight=\"bold\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>\n",
        escape(&figure.title),
        total / 2.0,
        escape(&figure.title)
    );
    for (k, panel) in figure.panels.iter().enumerate() {
        let clip = format!("clip-{}-{k}", figure.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let axes = Axes {
            x: panel.x,
            y: panel.y,
            x_title: &panel.x_title,
            y_title: &panel.y_title,
            corner: layout.corner(k, figure.columns),
            size: layout.inner,
        };
        let y_title_at = axes.corner.0 - layout.left + medium.largest(12.0);
        Drawing { panel, axes, y_title_at, clip, interactive: medium == Medium::Script }.write(&mut svg);
    }
    let _ = write!(svg, "<g transform=\"translate(0 {legend_top:.0})\">\n{}</g>\n", legend.svg);
    for (k, line) in notes.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text class=\"faint\" x=\"{:.0}\" y=\"{:.0}\" font-size=\"11\" text-anchor=\"middle\" fill=\"{FAINT}\">{}</text>",
            total / 2.0,
            notes_top + note_line - 4.0 + note_line * k as f64,
            escape(line)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A panel at its position in the figure.
struct Drawing<'a> {
    panel: &'a Panel,
    axes: Axes<'a>,
    /// Position of the title of the vertical axis.
    y_title_at: f64,
    clip: String,
    interactive: bool,
}

impl Drawing<'_> {
    fn write(&self, svg: &mut String) {
        let ((left, top), (w, h)) = (self.axes.corner, self.axes.size);
        let _ = writeln!(svg, "<g class=\"panel\"{}>", self.description());
        let _ = writeln!(
            svg,
            "<clipPath id=\"{}\"><rect x=\"{left}\" y=\"{top}\" width=\"{w}\" height=\"{h}\"/></clipPath>",
            self.clip
        );
        self.axes.grid(svg);
        self.axes.write(svg, self.y_title_at);
        if !self.panel.title.is_empty() {
            let _ = writeln!(
                svg,
                "<text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"12.5\" fill=\"{INK}\">{}</text>",
                left + w / 2.0,
                top - 9.0,
                escape(&self.panel.title)
            );
        }
        if self.panel.curves.is_empty() {
            let _ = writeln!(
                svg,
                "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{FAINT}\">nothing to draw yet</text>",
                left + w / 2.0,
                top + h / 2.0
            );
        }
        let _ = writeln!(svg, "<g clip-path=\"url(#{})\">", self.clip);
        self.panel.curves.iter().for_each(|curve| self.band(curve, svg));
        self.panel.curves.iter().for_each(|curve| self.line(curve, svg));
        svg.push_str("</g>\n");
        self.panel.curves.iter().for_each(|curve| self.end(curve, svg));
        for (series, point) in &self.panel.marks {
            // Circles of several algorithms at one place are around each other.
            let radius = 7.0 + 2.5 * (series % 4) as f64;
            let Some((x, y)) = self.place(point.x, point.y) else { continue };
            let (hue, class) = (colour(*series), series % super::style::COLOURS.len());
            let _ = writeln!(
                svg,
                "<circle class=\"line c{class}\" data-series=\"{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"none\" stroke=\"{hue}\" stroke-width=\"1.6\"/>"
            );
        }
        svg.push_str("</g>\n");
    }

    /// Attributes from which a script computes values from positions.
    fn description(&self) -> String {
        if !self.interactive {
            return String::new();
        }
        let ((left, top), (w, h), (x, y)) = (self.axes.corner, self.axes.size, (self.panel.x, self.panel.y));
        let (x_range, y_range) = (x.range(), y.range());
        format!(
            " data-name=\"{}\" data-box=\"{left} {top} {w} {h}\" data-x=\"{} {}\" data-y=\"{:e} {:e}\" data-log=\"{}\" data-digits=\"{}\" data-unit=\"{}\"",
            self.panel.name,
            x_range.0,
            x_range.1,
            y_range.0,
            y_range.1,
            u8::from(y.log),
            self.digits(),
            escape(&self.panel.x_title)
        )
    }

    /// The position of a point, limited to a range in which renderers are precise.
    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (top, h) = (self.axes.corner.1, self.axes.size.1);
        self.axes.place(x, y).map(|(x, y)| (x, y.clamp(top - 2.0 * h, top + 3.0 * h)))
    }

    fn band(&self, curve: &Curve, svg: &mut String) {
        if curve.points.iter().all(|point| point.high <= point.low) {
            return;
        }
        let shown = thinned(curve);
        let upper = shown.iter().filter_map(|point| self.place(point.x, point.high));
        let lower = shown.iter().rev().filter_map(|point| self.place(point.x, point.low));
        let path = path(upper.chain(lower));
        let (hue, class) = (colour(curve.series), curve.series % super::style::COLOURS.len());
        let _ = writeln!(
            svg,
            "<path class=\"band c{class}\" data-series=\"{}\" d=\"{path}Z\" fill=\"{hue}\" fill-opacity=\"0.16\"/>",
            curve.series
        );
    }

    fn line(&self, curve: &Curve, svg: &mut String) {
        let shown = thinned(curve);
        let places: Vec<(f64, f64)> = shown.iter().filter_map(|point| self.place(point.x, point.y)).collect();
        let (hue, class) = (colour(curve.series), curve.series % super::style::COLOURS.len());
        let weight = if curve.diverged.is_some() { 1.1 } else { 2.0 };
        let _ = writeln!(
            svg,
            "<path class=\"line c{class}\" data-series=\"{}\" d=\"{}\" fill=\"none\" stroke=\"{hue}\" stroke-width=\"{weight}\" \
             stroke-linejoin=\"round\" stroke-dasharray=\"{}\"{}/>",
            curve.series,
            path(places.iter().copied()),
            none_if_empty(dash(curve.series)),
            self.values(curve)
        );
        // Shifted for each series, so that markers of equal curves do not hide each other.
        let every = places.len().div_ceil(MARKERS).max(1);
        let first = curve.series % every;
        let dots: String = places
            .iter()
            .skip(first)
            .step_by(every)
            .map(|(x, y)| marker(curve.series, *x, *y, 3.2))
            .collect();
        let _ = writeln!(
            svg,
            "<path class=\"dot c{class}\" data-series=\"{}\" d=\"{dots}\" fill=\"{hue}\"/>",
            curve.series
        );
    }

    /// Significant digits of values, so that those of the panel can be told apart.
    fn digits(&self) -> usize {
        let (low, high) = self.panel.y.range();
        let same =
            if self.panel.y.log { 0.0 } else { (low.abs().max(high.abs()) / (high - low)).log10().floor() };
        4 + same.clamp(0.0, 11.0) as usize
    }

    /// Attributes with the values of a curve, for a script.
    fn values(&self, curve: &Curve) -> String {
        if !self.interactive {
            return String::new();
        }
        let shown = thinned(curve);
        let digits = self.digits();
        let value = |point: &super::curve::Point| {
            let band = if point.high > point.low {
                format!(" {:.*e} {:.*e}", digits - 1, point.low, digits - 1, point.high)
            } else {
                String::new()
            };
            format!("{} {:.digits$e}{band}", round_to(point.x), point.y)
        };
        let list: Vec<String> = shown.iter().map(value).collect();
        format!(" data-label=\"{}\" data-values=\"{}\"", escape(&curve.label), list.join(";"))
    }

    /// The cross where a run diverged, always inside the panel.
    fn end(&self, curve: &Curve, svg: &mut String) {
        let Some(seed) = curve.diverged else { return };
        let last =
            curve.points.last().and_then(|point| self.place(point.x, point.y).map(|place| (point, place)));
        let Some((point, (x, y))) = last else { return };
        let y = y.clamp(self.axes.corner.1 + 7.0, self.axes.corner.1 + self.axes.size.1 - 7.0);
        let (hue, class) = (colour(curve.series), curve.series % super::style::COLOURS.len());
        let _ = writeln!(
            svg,
            "<path class=\"line c{class}\" data-series=\"{}\" d=\"M{:.1} {:.1}l10 10m0 -10l-10 10\" stroke=\"{hue}\" stroke-width=\"2.6\" fill=\"none\">\
             <title>{}: seed {seed} diverged, last finite value at round {}</title></path>",
            curve.series,
            x - 5.0,
            y - 5.0,
            escape(&curve.label),
            point.round
        );
    }
}

fn round_to(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// At most [`MOST_POINTS`] points of a curve, including the last.
fn thinned(curve: &Curve) -> Vec<super::curve::Point> {
    let every = curve.points.len().div_ceil(MOST_POINTS).max(1);
    let last = curve.points.len() - 1;
    let kept = curve.points.iter().enumerate().filter(|(k, _)| k % every == 0 || *k == last);
    kept.map(|(_, point)| *point).collect()
}

fn path(places: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (k, (x, y)) in places.enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if k == 0 { 'M' } else { 'L' });
    }
    path
}

#[cfg(test)]
mod tests {
    use mile::problems::Metric;

    use super::super::style::width;
    use super::super::{Figure, Runs, png};
    use super::SMALL_SCREEN_TEXT;
    use crate::held_out::Models;
    use crate::quantity::{Axis, Quantity};
    use crate::record::tests::record;

    fn records() -> Vec<crate::record::Record> {
        let mut records = Vec::new();
        for seed in 0..3 {
            let of = |round: u64| (1.0 + 0.1 * seed as f64) / (1.0 + round as f64).powi(2);
            records.extend((0..2000).map(|round| record("a <&> \"b\"", seed, round, of(round))));
        }
        records.extend((0..6).map(|round| record("lost", 0, round, 10f64.powi(round as i32))));
        records.push(record("lost", 0, 6, f64::NAN));
        records
    }

    #[test]
    fn a_figure_has_a_line_a_band_a_cross_and_is_well_formed() {
        let records = records();
        let runs = Runs::new(&records, &[]);
        let svg = Figure::single(&runs, Quantity::Loss, Axis::Round).svg();
        assert_eq!(svg.matches("class=\"band c0\"").count(), 1);
        assert!(svg.contains("a &lt;&amp;&gt; &quot;b&quot;") && svg.contains("lost (diverged)"));
        assert!(svg.contains("seed 0 diverged, last finite value at round 5"));
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("data-values"));
        assert!(svg.len() < 60_000, "thousands of points are thinned: {}", svg.len());
        png(&svg).unwrap();
        let interactive = Figure::single(&runs, Quantity::Loss, Axis::Round).interactive_svg();
        assert!(interactive.contains("data-values=\"0 1.1000e0 1.000e0 1.200e0;"));
    }

    #[test]
    fn in_a_page_texts_have_room_to_be_set_larger() {
        let records = [record("a", 0, 0, 1.0), record("a", 0, 1, 0.5)];
        let runs = Runs::new(&records, &[]);
        let note = "a word or two of what a reader must know about it, and one more";
        let figure = Figure::single(&runs, Quantity::Loss, Axis::Round).with_note(note);
        let notes = |svg: &str| -> Vec<String> {
            let lines = svg.lines().filter(|line| line.contains("font-size=\"11\""));
            lines.map(|line| line.split(['<', '>']).nth(2).unwrap().to_owned()).collect()
        };
        for svg in [figure.page_svg(), figure.interactive_svg()] {
            let lines = notes(&svg);
            assert!(lines.len() > notes(&figure.svg()).len());
            assert!(lines.iter().all(|line| width(line, SMALL_SCREEN_TEXT) < 560.0 - 16.0), "{lines:?}");
        }
        let style = include_str!("../report/page.css");
        assert!(style.contains(&format!("svg text{{font-size:{SMALL_SCREEN_TEXT}px}}")));
    }

    #[test]
    fn panels_without_anything_to_draw_say_so() {
        let records = [record("a", 0, 0, 0.0)];
        let runs = Runs::new(&records, &[]);
        let drawn = [
            (Quantity::Loss, Axis::Round),
            (Quantity::ConsensusError, Axis::Round),
            (Quantity::Test(Metric::Accuracy, Models::Average), Axis::Round),
        ];
        let figure = Figure::panels("some", "title", &runs, &drawn);
        let svg = figure.svg();
        assert_eq!(svg.matches("class=\"panel\"").count(), 2, "what no record has is left out");
        assert_eq!(svg.matches("nothing to draw yet").count(), 1);
        png(&svg).unwrap();
    }
}
