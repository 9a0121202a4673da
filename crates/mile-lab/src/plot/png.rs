//! Converts SVG to PNG, with an embedded font, so that the result does not depend on the system's fonts.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// Pixels per unit of the SVG.
const DENSITY: f32 = 2.0;

/// Why an SVG could not be converted to PNG.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PngError {
    /// Invalid SVG.
    #[error("invalid SVG: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// The image is empty, or too large for memory.
    #[error("the image cannot be {0} by {1} pixels")]
    Size(u32, u32),
    /// The PNG cannot be encoded.
    #[error("the image cannot be encoded: {0}")]
    Encoding(String),
}

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// Renders an SVG as PNG, at twice its size.
pub fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let options = Options { fontdb: FONTS.clone(), font_family: "DejaVu Sans".into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let scaled = |length: u32| (length as f32 * DENSITY).ceil() as u32;
    let (width, height) = (scaled(size.width()), scaled(size.height()));
    let mut pixels = Pixmap::new(width, height).ok_or(PngError::Size(width, height))?;
    resvg::render(&tree, Transform::from_scale(DENSITY, DENSITY), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| PngError::Encoding(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_drawn_without_any_font_of_the_system() {
        let picture = |text: &str| {
            let svg = format!(
                "<svg xmlns='http://www.w3.org/2000/svg' width='60' height='20' font-family='Nowhere, sans-serif'>\
                 <rect width='60' height='20' fill='#fff'/><text x='2' y='15' font-size='14'>{text}</text></svg>"
            );
            png(&svg).unwrap()
        };
        let decode = |bytes: &[u8]| Pixmap::decode_png(bytes).unwrap();
        let (with, without) = (decode(&picture("10⁻³ ×")), decode(&picture("")));
        assert_eq!((with.width(), with.height()), (120, 40));
        let dark = |map: &Pixmap| map.pixels().iter().filter(|pixel| pixel.red() < 128).count();
        assert_eq!(dark(&without), 0);
        assert!(dark(&with) > 100, "{}", dark(&with));
    }

    #[test]
    fn invalid_svg_is_an_error() {
        assert!(matches!(png("no picture"), Err(PngError::Svg(_))));
    }
}
