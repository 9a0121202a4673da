//! Draws figures: panels of curves with bands, crosses and circles, and a legend.

use super::axes::{Axes, BOTTOM, left_margin};
use super::curve::{Curve, Point};
use super::figure::{Figure, Panel};
use super::style::{dash, escape, hue, marker, path, width};
use super::svg::{BODY, NOTE, Svg, Text};

/// Maximal number of points of a line.
const MOST_POINTS: usize = 240;
/// Approximate number of markers on a line.
const MARKERS: usize = 7;
/// Size of a marker.
const MARKER: f64 = 3.2;

const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const HEAD: f64 = 30.0;
/// Height of a line of the legend, and length of its sample.
const LEGEND_LINE: f64 = 20.0;
const SAMPLE: f64 = 34.0;
/// Font size of all texts in a page on a small screen, as set in `page.css`.
const SMALL_SCREEN_TEXT: f64 = 14.0;

/// What a figure is drawn for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A file.
    File,
    /// An HTML page, whose style sheet enlarges texts on small screens and whose script shows values.
    Page,
}

impl Medium {
    /// The largest font size that a text of this size may get.
    fn largest(self, size: f64) -> f64 {
        if self == Self::File { size } else { size.max(SMALL_SCREEN_TEXT) }
    }
}

/// Draws a figure.
pub(crate) fn draw(figure: &Figure, medium: Medium) -> String {
    let several = figure.columns > 1;
    let (cell_width, height) = if several { (450.0, 232.0) } else { (560.0, 288.0) };
    let top = if several { TOP } else { 8.0 };
    let cell_height = top + height + BOTTOM;
    let rows = figure.panels.len().div_ceil(figure.columns).max(1);
    let total = cell_width * figure.columns as f64;
    let margins = figure.panels.iter().map(|panel| left_margin(panel.y, |size| medium.largest(size)));
    let margin = margins.fold(0.0, f64::max);
    let mut svg = Svg::titled(total, &figure.title);
    for (k, panel) in figure.panels.iter().enumerate() {
        let (row, column) = (k / figure.columns, k % figure.columns);
        let axes = Axes {
            x: panel.x,
            y: panel.y,
            x_title: &panel.x_title,
            y_title: &panel.y_title,
            corner: (column as f64 * cell_width + margin, HEAD + row as f64 * cell_height + top),
            size: (cell_width - margin - RIGHT, height),
            margin,
        };
        let clip = format!("clip-{}-{k}", figure.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        Drawing { panel, axes, clip, interactive: medium == Medium::Page }.write(&mut svg);
    }
    let below = HEAD + rows as f64 * cell_height + 4.0;
    let lines = legend(&mut svg, figure, (total, below), medium.largest(BODY.size));
    svg.finish(below + lines as f64 * LEGEND_LINE, &figure.note, medium.largest(NOTE.size))
}

/// Draws the legend, centred in the whole width, with room for texts of font size `size`. Returns its number of lines.
fn legend(svg: &mut Svg, figure: &Figure, (total, top): (f64, f64), size: f64) -> usize {
    let entry = |text: &str| SAMPLE + 6.0 + width(text, size) + 14.0;
    let length = |line: &[(usize, String)]| line.iter().map(|(_, text)| entry(text)).sum::<f64>();
    let mut lines: Vec<Vec<(usize, String)>> = vec![Vec::new()];
    for (k, series) in figure.series.iter().enumerate().filter(|(_, series)| series.seeds > 0) {
        let text = series.legend();
        match lines.last_mut() {
            Some(line) if line.is_empty() || length(line) + entry(&text) <= total - 20.0 => {
                line.push((k, text))
            }
            _ => lines.push(vec![(k, text)]),
        }
    }
    for (row, line) in lines.iter().enumerate() {
        let mut x = ((total - length(line)) / 2.0).max(8.0);
        let y = top + 10.0 + row as f64 * LEGEND_LINE;
        for (k, text) in line {
            svg.put(format_args!("<g class=\"legend\" data-series=\"{k}\">"));
            let style = format!("{} stroke-width=\"2\" stroke-dasharray=\"{}\"", hue("line", *k), dash(*k));
            svg.path(&format!("M{x:.1} {y:.1}h{SAMPLE}"), &style, "");
            svg.path(&marker(*k, (x + SAMPLE / 2.0, y), MARKER), &hue("dot", *k), "");
            svg.text((x + SAMPLE + 6.0, y + 4.0), Text { anchor: "start", ..BODY }, text);
            svg.put(format_args!("</g>"));
            x += entry(text);
        }
    }
    lines.len()
}

/// A panel at its position in the figure.
struct Drawing<'a> {
    panel: &'a Panel,
    axes: Axes<'a>,
    clip: String,
    interactive: bool,
}

impl Drawing<'_> {
    fn write(&self, svg: &mut Svg) {
        let ((left, top), (w, h)) = (self.axes.corner, self.axes.size);
        svg.put(format_args!(
            "<g class=\"panel\"{}><clipPath id=\"{}\"><rect x=\"{left}\" y=\"{top}\" width=\"{w}\" height=\"{h}\"/></clipPath>",
            self.description(),
            self.clip
        ));
        self.axes.grid(svg);
        self.axes.write(svg);
        svg.text((left + w / 2.0, top - 9.0), Text { size: 12.5, ..BODY }, &self.panel.title);
        if self.panel.curves.is_empty() {
            svg.text((left + w / 2.0, top + h / 2.0), NOTE, "nothing to draw yet");
        }
        svg.put(format_args!("<g clip-path=\"url(#{})\">", self.clip));
        self.panel.curves.iter().for_each(|curve| self.band(curve, svg));
        self.panel.curves.iter().for_each(|curve| self.line(curve, svg));
        svg.put(format_args!("</g>"));
        self.panel.curves.iter().for_each(|curve| self.zeros(curve, svg));
        (0..self.panel.curves.len()).for_each(|k| self.crosses(k, svg));
        for (series, point) in &self.panel.marks {
            // Circles of several algorithms at one place are around each other.
            let radius = 7.0 + 2.5 * (series % 4) as f64;
            let Some((x, y)) = self.place(point.x, point.y) else { continue };
            svg.put(format_args!(
                "<circle {} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" stroke-width=\"1.6\"/>",
                hue("line", *series)
            ));
        }
        svg.put(format_args!("</g>"));
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

    /// The position of a point, limited to a range in which renderers are precise; `None` for zero on a logarithmic axis.
    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (top, h) = (self.axes.corner.1, self.axes.size.1);
        self.axes.place(x, y).map(|(x, y)| (x, y.clamp(top - 2.0 * h, top + 3.0 * h)))
    }

    /// The lower end of the vertical axis, at the horizontal position of a point.
    fn foot(&self, point: &Point) -> Option<(f64, f64)> {
        self.place(point.x, self.panel.y.range().0)
    }

    /// The points of a curve, thinned, in pieces: a line breaks where the axis cannot show its value.
    fn pieces(&self, curve: &Curve) -> Vec<Vec<Point>> {
        let shown = thinned(curve);
        let pieces = shown.split(|point| self.place(point.x, point.y).is_none());
        pieces.filter(|piece| !piece.is_empty()).map(<[Point]>::to_vec).collect()
    }

    fn band(&self, curve: &Curve, svg: &mut Svg) {
        if !curve.points.iter().any(|point| point.high > point.low) {
            return;
        }
        let outline = |piece: Vec<Point>| {
            let upper = piece.iter().filter_map(|point| self.place(point.x, point.high));
            let lower = piece.iter().rev();
            let lower = lower.filter_map(|point| self.place(point.x, point.low).or_else(|| self.foot(point)));
            path(upper.chain(lower)) + "Z"
        };
        let outlines: String = self.pieces(curve).into_iter().map(outline).collect();
        svg.path(&outlines, &format!("{} fill-opacity=\"0.16\"", hue("band", curve.series)), "");
    }

    fn line(&self, curve: &Curve, svg: &mut Svg) {
        let (series, weight) = (curve.series, if curve.diverged.is_some() { 1.1 } else { 2.0 });
        let place = |point: &Point| self.place(point.x, point.y);
        let pieces = self.pieces(curve);
        let lines: String = pieces.iter().map(|piece| path(piece.iter().filter_map(place))).collect();
        let style = format!(
            "{} stroke-width=\"{weight}\" stroke-linejoin=\"round\" stroke-dasharray=\"{}\"{}",
            hue("line", series),
            dash(series),
            self.values(curve)
        );
        svg.path(&lines, &style, "");
        // Shifted for each series, so that markers of equal curves do not hide each other; a point alone has one too.
        let every = pieces.iter().map(Vec::len).sum::<usize>().div_ceil(MARKERS).max(1);
        let alone = pieces.iter().filter(|piece| piece.len() == 1).flatten();
        let marked = pieces.iter().flatten().skip(series % every).step_by(every);
        let dots: String =
            marked.chain(alone).filter_map(place).map(|at| marker(series, at, MARKER)).collect();
        svg.path(&dots, &hue("dot", series), "");
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
        let digits = self.digits();
        let value = |point: &Point| {
            let band = if point.high > point.low {
                format!(" {:.*e} {:.*e}", digits - 1, point.low, digits - 1, point.high)
            } else {
                String::new()
            };
            let x: f64 = format!("{:.5e}", point.x).parse().unwrap_or(point.x);
            format!("{x} {:.digits$e}{band}", point.y)
        };
        let shown = thinned(curve);
        let list: Vec<String> = shown.iter().filter(|point| !point.y.is_nan()).map(value).collect();
        format!(" data-label=\"{}\" data-values=\"{}\"", escape(&curve.label), list.join(";"))
    }

    /// Triangles on the axis where a curve falls to zero, which a logarithmic axis cannot show, and where it leaves it. Zeros
    /// at its start are not marked: most methods start in agreement.
    fn zeros(&self, curve: &Curve, svg: &mut Svg) {
        let shown = thinned(curve);
        let is_zero = |point: &Point| self.panel.y.log && point.y <= 0.0;
        let is_marked = |k: &usize| {
            let mut beside = [k.wrapping_sub(1), k + 1].into_iter().filter_map(|k| shown.get(k));
            is_zero(&shown[*k]) && beside.any(|point| !is_zero(point))
        };
        let start = shown.iter().position(|point| !is_zero(point)).unwrap_or(shown.len());
        let feet = (start..shown.len()).filter(is_marked).filter_map(|k| self.foot(&shown[k]));
        let triangles: String =
            feet.map(|(x, y)| format!("M{:.1} {:.1}h7l-3.5 6.5z", x - 3.5, y - 7.0)).collect();
        if !triangles.is_empty() {
            let style = format!("{} stroke-width=\"1.3\"", hue("line", curve.series));
            svg.path(&triangles, &style, &format!("{}: zero", curve.label));
        }
    }

    /// Crosses: where a run diverged, always inside the panel, and at the upper edge where there is no value.
    fn crosses(&self, k: usize, svg: &mut Svg) {
        let curve = &self.panel.curves[k];
        let ((left, top), (w, h)) = (self.axes.corner, self.axes.size);
        for point in curve.points.iter().filter(|point| point.y.is_nan()) {
            let is_same = |other: &Point| other.x == point.x && other.y.is_nan();
            // Next to those of other algorithms at the same place.
            let before =
                self.panel.curves[..k].iter().filter(|curve| curve.points.iter().any(is_same)).count();
            let Some(place) = self.axes.x.place(point.x) else { continue };
            cross(svg, curve, (left + place * w - 12.0 * before as f64, top + 7.0), "diverged");
        }
        let Some((seed, point)) = curve.diverged.zip(curve.points.last()) else { return };
        let Some((x, y)) = self.place(point.x, point.y) else { return };
        let what = format!("seed {seed} diverged, last finite value at round {}", point.round);
        cross(svg, curve, (x, y.clamp(top + 7.0, top + h - 7.0)), &what);
    }
}

fn cross(svg: &mut Svg, curve: &Curve, (x, y): (f64, f64), what: &str) {
    let style = format!("{} stroke-width=\"2.6\"", hue("line", curve.series));
    let arms = format!("M{:.1} {:.1}l10 10m0 -10l-10 10", x - 5.0, y - 5.0);
    svg.path(&arms, &style, &format!("{}: {what}", curve.label));
}

/// At most [`MOST_POINTS`] points of a curve, including the last.
fn thinned(curve: &Curve) -> Vec<Point> {
    let every = curve.points.len().div_ceil(MOST_POINTS).max(1);
    let last = curve.points.len() - 1;
    let kept = curve.points.iter().enumerate().filter(|(k, _)| k % every == 0 || *k == last);
    kept.map(|(_, point)| *point).collect()
}

#[cfg(test)]
mod tests {
    use mile::problems::Metric;

    use super::super::style::width;
    use super::super::{Figure, Runs, png};
    use super::{Point, SMALL_SCREEN_TEXT};
    use crate::quantity::{Axis, Quantity};
    use crate::record::tests::record;
    use crate::recorded_metrics::Models;

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
        let interactive = Figure::single(&runs, Quantity::Loss, Axis::Round).page_svg();
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
        let lines = notes(&figure.page_svg());
        assert!(lines.len() > notes(&figure.svg()).len());
        assert!(lines.iter().all(|line| width(line, SMALL_SCREEN_TEXT) < 560.0 - 16.0), "{lines:?}");
        let style = include_str!("../report/page.css");
        assert!(style.contains(&format!("svg text{{font-size:{SMALL_SCREEN_TEXT}px}}")));
    }

    #[test]
    fn a_line_breaks_at_zeros_of_a_log_axis_and_the_axis_marks_them() {
        let mut records: Vec<_> = (0..9).map(|round| record("a", 0, round, 1.0)).collect();
        for record in &mut records {
            record.consensus_error = 10f64.powi(-(record.round as i32));
        }
        [0, 3, 5, 6, 7].into_iter().for_each(|k: usize| records[k].consensus_error = 0.0);
        let runs = Runs::new(&records, &[]);
        let figure = Figure::single(&runs, Quantity::ConsensusError, Axis::Round);
        assert!(figure.note.contains("zero"), "{}", figure.note);
        let svg = figure.svg();
        let line = svg.lines().find(|line| line.contains("stroke-linejoin")).unwrap();
        let data = line.split('"').nth(1).unwrap();
        // Rounds 1 and 2, 4, and 8.
        assert_eq!((data.matches('M').count(), data.matches('L').count()), (3, 1), "{data}");
        let marks = svg.lines().find(|line| line.contains("a: zero")).unwrap();
        assert_eq!(marks.matches("h7l-3.5").count(), 3, "3, 5 and 7, neither 0 nor 6 between zeros: {marks}");
        png(&svg).unwrap();
    }

    #[test]
    fn a_band_that_reaches_to_zero_ends_at_a_log_axis() {
        let mut records = Vec::new();
        for (seed, factor) in [(0, 0.0), (1, 2.0)] {
            records.extend((0..4).map(|round| record("a", seed, round, 1.0)));
            let of_seed = records.iter_mut().filter(|record| record.seed == seed);
            of_seed.for_each(|r| r.consensus_error = factor * 10f64.powi(-(r.round as i32)));
        }
        let runs = Runs::new(&records, &[]);
        let svg = Figure::single(&runs, Quantity::ConsensusError, Axis::Round).svg();
        let band = svg.lines().find(|line| line.contains("class=\"band c0\"")).unwrap();
        assert_eq!(band.matches('L').count(), 7, "four points above and four below: {band}");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("a: zero"));
    }

    #[test]
    fn where_all_trials_diverged_the_line_breaks_and_crosses_are_side_by_side() {
        let records = [record("a", 0, 0, 1.0), record("a", 0, 1, 0.5), record("b", 0, 0, 1.0)];
        let mut figure = Figure::single(&Runs::new(&records, &[]), Quantity::Loss, Axis::Round);
        let values = [1.0, 2.0, f64::NAN, 3.0, 2.0];
        let points =
            (0..5).map(|k| Point { round: 0, x: k as f64, y: values[k], low: values[k], high: values[k] });
        figure.panels[0].curves.iter_mut().for_each(|curve| curve.points = points.clone().collect());
        let svg = figure.svg();
        let paths = |what: &str| -> Vec<&str> {
            let lines = svg.lines().filter(|line| line.contains(what));
            lines.map(|line| line.split('"').nth(1).unwrap()).collect()
        };
        let lines = paths("stroke-linejoin");
        assert!(lines.iter().all(|line| line.matches('M').count() == 2 && line.matches('L').count() == 2));
        let crosses = paths(": diverged</title>");
        let place = |cross: &str| cross[1..].split(' ').next().unwrap().parse::<f64>().unwrap();
        assert!((place(crosses[0]) - place(crosses[1]) - 12.0).abs() < 0.11, "{crosses:?}");
        assert!(!svg.contains("NaN") && !figure.page_svg().contains("NaN"));
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
