//! Colours, dashes and markers.
/// The class of an element, by which a page chooses its colour, and its colour in files.
pub(crate) type Paint = (&'static str, &'static str);

pub(crate) const INK: Paint = ("ink", "#222222");
pub(crate) const FAINT: Paint = ("faint", "#6b6b6b");
/// On a dark surface in both themes.
pub(crate) const WHITE: Paint = ("white", "#ffffff");
pub(crate) const AXIS: &str = "#6b6b6b";
pub(crate) const GRID: &str = "#e3e3e3";
pub(crate) const GROUND: &str = "#ffffff";
pub(crate) const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";

/// Okabe and Ito's palette for all kinds of colour vision, with wine red and grey instead of black and yellow, which are
/// hard to see on a dark or white background.
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#777777"];

/// The colours on a dark background, for the report.
pub(crate) const DARK_COLOURS: [&str; 8] =
    ["#4aa8e0", "#ff8c42", "#2fc79a", "#e79cc6", "#f5bd41", "#8fd0f7", "#d0648f", "#a9a9a9"];

/// Line patterns; the first is solid.
const DASHES: [&str; 7] = ["none", "7 3", "2 2.5", "9 3 2 3", "12 4", "4 2 1 2 1 2", "1 3"];

/// Corners of markers, as multiples of their size; the one without corners is a circle.
const MARKERS: [&[(f64, f64)]; 7] = [
    &[],
    &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    &[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    &[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
    &[(-1.3, 0.0), (-0.4, -0.4), (0.0, -1.3), (0.4, -0.4), (1.3, 0.0), (0.4, 0.4), (0.0, 1.3), (-0.4, 0.4)],
    &[(-0.6, -1.1), (0.6, -1.1), (1.2, 0.0), (0.6, 1.1), (-0.6, 1.1), (-1.2, 0.0)],
];

pub(crate) fn dash(series: usize) -> &'static str {
    DASHES[series % DASHES.len()]
}

/// Attributes that give a `line`, a `dot` or a `band` the colour of an algorithm, and name it for a script.
pub(crate) fn hue(kind: &str, series: usize) -> String {
    let k = series % COLOURS.len();
    let paint = if kind == "line" { "fill=\"none\" stroke" } else { "fill" };
    format!("class=\"{kind} c{k}\" data-series=\"{series}\" {paint}=\"{}\"", COLOURS[k])
}

/// The path of the marker of an algorithm of about `size` at a point.
pub(crate) fn marker(series: usize, (x, y): (f64, f64), size: f64) -> String {
    let corners = MARKERS[series % MARKERS.len()];
    if corners.is_empty() {
        let arc = |width: f64| format!("a{size:.1} {size:.1} 0 1 0 {width:.1} 0");
        return format!("M{:.1} {y:.1}{}{}Z", x - size, arc(2.0 * size), arc(-2.0 * size));
    }
    path(corners.iter().map(|(dx, dy)| (x + dx * size, y + dy * size))) + "Z"
}

/// A colour scale: colours at places from 0 to 1, between which they are mixed.
pub(crate) struct Ramp {
    pub(crate) name: &'static str,
    pub(crate) stops: &'static [(f64, [f64; 3])],
}

impl Ramp {
    /// The colour at a place; where two stops are at one place, the first counts.
    pub(crate) fn colour(&self, place: f64) -> String {
        let last = self.stops.len() - 2;
        let k = self.stops[1..].iter().position(|stop| place <= stop.0).unwrap_or(last);
        let ((from, a), (to, b)) = (self.stops[k], self.stops[k + 1]);
        let share = ((place - from) / (to - from)).clamp(0.0, 1.0);
        let mixed: Vec<String> = (0..3).map(|k| format!("{:.0}", a[k] + (b[k] - a[k]) * share)).collect();
        format!("rgb({})", mixed.join(","))
    }
}

/// The approximate width of a text in a sans-serif font.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let one = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | '\'' | '|' | '!' | '(' | ')' => 0.36,
        'f' | 't' | 'r' | ' ' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' => 0.95,
        c if c.is_uppercase() => 0.72,
        _ => 0.61,
    };
    size * text.chars().map(one).sum::<f64>()
}

/// Escapes a text for XML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in XML.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The path through points.
pub(super) fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let point = |(k, (x, y))| format!("{}{x:.1} {y:.1}", if k == 0 { 'M' } else { 'L' });
    points.into_iter().enumerate().map(point).collect()
}
