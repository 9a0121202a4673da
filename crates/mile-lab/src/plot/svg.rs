//! The SVG that all pictures are written to: its frame, its texts and its line breaks.
//!
//! Colours are attributes, which a style sheet can override by class, as that of the report does in dark mode. In files the
//! background is white.

use std::fmt::{Arguments, Write};

use super::style::{FAINT, FONT, GROUND, INK, Paint, escape, width};

/// How a text is set; `anchor` is the point of the text that is placed: `start`, `middle` or `end`.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    pub(crate) size: f64,
    pub(crate) anchor: &'static str,
    pub(crate) paint: Paint,
    pub(crate) bold: bool,
}

pub(crate) const BODY: Text = Text { size: 12.0, anchor: "middle", paint: INK, bold: false };
pub(crate) const TICK: Text = Text { size: 11.5, ..BODY };
pub(crate) const NOTE: Text = Text { size: 11.0, paint: FAINT, ..BODY };
const TITLE: Text = Text { size: 14.0, bold: true, ..BODY };

/// A picture of a given width that is being drawn.
pub(crate) struct Svg {
    width: f64,
    name: String,
    body: String,
}

impl Svg {
    /// An empty picture; its name is for readers that do not see it.
    pub(crate) fn new(width: f64, name: &str) -> Self {
        Self { width, name: escape(name), body: String::new() }
    }

    /// A picture with its name as a title on top.
    pub(crate) fn titled(width: f64, title: &str) -> Self {
        let mut svg = Self::new(width, title);
        svg.text((width / 2.0, 21.0), TITLE, title);
        svg
    }

    /// Adds an element.
    pub(crate) fn put(&mut self, element: Arguments) {
        let _ = writeln!(self.body, "{element}");
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), style: Text, words: &str) {
        self.set(format_args!("x=\"{x:.1}\" y=\"{y:.1}\""), style, words);
    }

    /// Adds a text that is read upwards.
    pub(crate) fn text_upwards(&mut self, (x, y): (f64, f64), style: Text, words: &str) {
        self.set(format_args!("transform=\"translate({x:.1} {y:.1}) rotate(-90)\""), style, words);
    }

    fn set(&mut self, place: Arguments, style: Text, words: &str) {
        if words.is_empty() {
            return;
        }
        let Text { size, anchor, paint: (class, fill), bold } = style;
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        self.put(format_args!(
            "<text class=\"{class}\" {place} text-anchor=\"{anchor}\" font-size=\"{size}\"{weight} fill=\"{fill}\">{}</text>",
            escape(words)
        ));
    }

    /// Adds a rectangle with a tooltip.
    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), attributes: &str, tooltip: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" {attributes}>{}</rect>",
            title(tooltip)
        ));
    }

    /// Adds a path with a tooltip, if there is anything to draw.
    pub(crate) fn path(&mut self, d: &str, attributes: &str, tooltip: &str) {
        if d.is_empty() {
            return;
        }
        self.put(format_args!("<path d=\"{d}\" {attributes}>{}</path>", title(tooltip)));
    }

    /// The finished picture: `height` is that of what was drawn, and the note is set below it in lines with room for a font
    /// of size `room`.
    pub(crate) fn finish(mut self, height: f64, note: &str, room: f64) -> String {
        let (width, line) = (self.width, room + 4.0);
        let lines = wrapped(note, width - 24.0, room);
        for (k, text) in lines.iter().enumerate() {
            self.text((width / 2.0, height + room + line * k as f64), NOTE, text);
        }
        let total = height + line * lines.len() as f64 + 8.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {total:.0}\" width=\"{width:.0}\" height=\"{total:.0}\" \
             role=\"img\" aria-label=\"{}\" font-family=\"{FONT}\">\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n{}</svg>\n",
            self.name, self.body
        )
    }
}

fn title(tooltip: &str) -> String {
    if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tooltip)) }
}

/// A text in lines of at most `most` pixels, broken between words.
pub(crate) fn wrapped(text: &str, most: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| width(line, size) + width(word, size) < most) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_only() {
        assert_eq!(wrapped("one two  three", 60.0, 12.0), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensibilities", 10.0, 12.0), ["incomprehensibilities"]);
        assert!(wrapped(" ", 10.0, 12.0).is_empty());
    }
}
