//! Pictures in PNG files.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use mile_nn::data::Shape;
use png::{ColorType, Decoder, Transformations};

use crate::error::LabError;
use crate::reading;

/// The names of pictures, their common shape, and their pixels in the order row, column, channel.
type Pictures = (Vec<String>, Shape, Vec<u8>);

/// Reads a PNG file, or all PNG files of a folder in the order of their names.
pub(crate) fn read(path: &Path) -> Result<Pictures, LabError> {
    let nothing = |got: &str| {
        let expected = "a .npy, .npz, .safetensors or .png file, or a folder of .png files";
        LabError::Directory { path: path.to_owned(), problem: mile::refusal::expected(expected, got) }
    };
    if path.is_file() && !is_png(path) {
        return Err(nothing("a file with another ending"));
    }
    let files = if path.is_dir() { listed(path)? } else { vec![path.to_owned()] };
    let mut all: Option<Pictures> = None;
    for file in files {
        let refuse = |problem: String| LabError::Directory { path: file.clone(), problem };
        let (shape, pixels) = picture(&file).map_err(refuse)?;
        let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (names, common, values) = all.get_or_insert_with(|| (Vec::new(), shape, Vec::new()));
        if *common != shape {
            return Err(refuse(format!("expected {common}, as in {}, got {shape}", names[0])));
        }
        names.push(name);
        values.extend(pixels);
    }
    all.ok_or_else(|| nothing("no such file"))
}

fn is_png(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("png"))
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = std::fs::read_dir(folder).map_err(LabError::io(folder, "read"))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_png(path)).collect();
    files.sort();
    Ok(files)
}

fn picture(file: &Path) -> Result<(Shape, Vec<u8>), String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("cannot read it as a PNG file: {error}");
    let open = reading::open(file).map_err(|error| unreadable(&error))?;
    let mut decoder = Decoder::new(BufReader::new(open));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| unreadable(&error))?;
    let size = reader.output_buffer_size().ok_or("the picture is too large")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(|error| unreadable(&error))?;
    let channels = match frame.color_type {
        ColorType::Grayscale => 1,
        ColorType::Rgb => 3,
        ColorType::GrayscaleAlpha | ColorType::Rgba => {
            return Err("expected a picture without transparency; remove its alpha channel".into());
        }
        ColorType::Indexed => return Err("expected grey or RGB pixels, got a palette".into()),
    };
    pixels.truncate(frame.buffer_size());
    Ok((Shape { height: frame.height as usize, width: frame.width as usize, channels }, pixels))
}
