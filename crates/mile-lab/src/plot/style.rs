//! Colours, dashes and markers of algorithms.

/// Okabe and Ito's palette for all kinds of colour vision, with wine red and grey instead of black and yellow, which are
/// hard to see on a dark or white background.
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#777777"];

/// The colours on a dark background, for the report.
pub(crate) const DARK_COLOURS: [&str; 8] =
    ["#4aa8e0", "#ff8c42", "#2fc79a", "#e79cc6", "#f5bd41", "#8fd0f7", "#d0648f", "#a9a9a9"];

/// Line patterns; the first is solid.
const DASHES: [&str; 7] = ["", "7 3", "2 2.5", "9 3 2 3", "12 4", "4 2 1 2 1 2", "1 3"];

pub(crate) const INK: &str = "#222222";
pub(crate) const FAINT: &str = "#6b6b6b";
pub(crate) const GRID: &str = "#e3e3e3";
pub(crate) const GROUND: &str = "#ffffff";
pub(crate) const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";

pub(crate) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

pub(crate) fn dash(series: usize) -> &'static str {
    DASHES[series % DASHES.len()]
}

/// The path of a marker of about `size` at a point.
pub(crate) fn marker(series: usize, x: f64, y: f64, size: f64) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let mut path = String::new();
        for (k, (dx, dy)) in corners.iter().enumerate() {
            let command = if k == 0 { 'M' } else { 'L' };
            path += &format!("{command}{:.1} {:.1}", x + dx * size, y + dy * size);
        }
        path + "Z"
    };
    match series % 7 {
        0 => format!(
            "M{:.1} {y:.1}a{size:.1} {size:.1} 0 1 0 {:.1} 0a{size:.1} {size:.1} 0 1 0 {:.1} 0Z",
            x - size,
            2.0 * size,
            -2.0 * size
        ),
        1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => polygon(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
        3 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => polygon(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
        5 => polygon(&[
            (-0.4, -1.2),
            (0.4, -1.2),
            (0.4, -0.4),
            (1.2, -0.4),
            (1.2, 0.4),
            (0.4, 0.4),
            (0.4, 1.2),
            (-0.4, 1.2),
            (-0.4, 0.4),
            (-1.2, 0.4),
            (-1.2, -0.4),
            (-0.4, -0.4),
        ]),
        _ => polygon(&[(-0.6, -1.1), (0.6, -1.1), (1.2, 0.0), (0.6, 1.1), (-0.6, 1.1), (-1.2, 0.0)]),
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
