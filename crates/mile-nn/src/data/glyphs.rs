//! `glyphs`: a generated data set of 28 x 28 digits.
//!
//! Each sample takes the strokes of its digit, moves every point a little, applies a random rotation, shear, scale
//! and shift, draws the strokes with a pen of random width and darkness, and adds a faint stray line and noise. The
//! shifts and stray lines make it hard for a linear model.

use mile::random::{Purpose, stream};
use rand::{Rng, RngExt};
use rayon::prelude::*;

use super::{Dataset, Images, Shape};

/// Number of training samples of the data set called `glyphs`.
pub const TRAIN: usize = 10_000;
/// Number of test samples of the data set called `glyphs`.
pub const TEST: usize = 2_000;

const SIDE: usize = 28;

type Point = (f32, f32);

/// The strokes of each digit: polylines through points (x right, y down) of the unit square.
const STROKES: [&[&[Point]]; 10] = [
    &[&[
        (0.5, 0.05),
        (0.25, 0.15),
        (0.15, 0.5),
        (0.25, 0.85),
        (0.5, 0.95),
        (0.75, 0.85),
        (0.85, 0.5),
        (0.75, 0.15),
        (0.5, 0.05),
    ]],
    &[&[(0.3, 0.25), (0.55, 0.05), (0.55, 0.95)]],
    &[&[(0.2, 0.25), (0.3, 0.1), (0.6, 0.05), (0.8, 0.2), (0.75, 0.45), (0.2, 0.95), (0.85, 0.93)]],
    &[
        &[(0.2, 0.12), (0.5, 0.05), (0.78, 0.2), (0.7, 0.42), (0.45, 0.48)],
        &[(0.45, 0.48), (0.75, 0.58), (0.8, 0.8), (0.5, 0.95), (0.2, 0.87)],
    ],
    &[&[(0.65, 0.95), (0.65, 0.05), (0.15, 0.65), (0.88, 0.65)]],
    &[&[
        (0.8, 0.06),
        (0.3, 0.06),
        (0.25, 0.45),
        (0.55, 0.4),
        (0.8, 0.55),
        (0.78, 0.8),
        (0.5, 0.95),
        (0.2, 0.86),
    ]],
    &[&[
        (0.7, 0.06),
        (0.35, 0.25),
        (0.2, 0.6),
        (0.28, 0.88),
        (0.55, 0.95),
        (0.8, 0.8),
        (0.75, 0.55),
        (0.5, 0.46),
        (0.22, 0.65),
    ]],
    &[&[(0.15, 0.08), (0.85, 0.08), (0.42, 0.95)]],
    &[&[
        (0.5, 0.48),
        (0.24, 0.3),
        (0.32, 0.09),
        (0.68, 0.09),
        (0.76, 0.3),
        (0.5, 0.48),
        (0.2, 0.72),
        (0.34, 0.94),
        (0.66, 0.94),
        (0.8, 0.72),
        (0.5, 0.48),
    ]],
    &[&[
        (0.78, 0.35),
        (0.5, 0.54),
        (0.24, 0.42),
        (0.22, 0.18),
        (0.48, 0.05),
        (0.74, 0.14),
        (0.78, 0.35),
        (0.72, 0.65),
        (0.5, 0.95),
    ]],
];

/// Generates `train` training samples and `test` test samples: a function of the three arguments only.
pub fn generate(seed: u64, train: usize, test: usize) -> Dataset {
    let shape = Shape { height: SIDE, width: SIDE, channels: 1 };
    let part = |first: usize, count: usize| {
        let (mut pixels, mut labels) = (vec![0; count * shape.len()], vec![0; count]);
        let samples = pixels.par_chunks_mut(shape.len()).zip(labels.par_iter_mut());
        samples.enumerate().for_each(|(i, (pixels, label))| *label = draw(seed, (first + i) as u64, pixels));
        Images::new(pixels, labels)
    };
    Dataset { name: "glyphs".into(), train: part(0, train), test: part(train, test), classes: 10, shape }
}

/// Draws sample `index` and returns its label.
fn draw(seed: u64, index: u64, pixels: &mut [u8]) -> u8 {
    let mut rng = stream(seed, Purpose::Data, index, 0);
    let digit = rng.random_range(0..10u8);
    let place = Placement::random(&mut rng);
    let pen = Pen { width: rng.random_range(0.7..1.6), ink: rng.random_range(0.55..1.0) };
    let mut canvas = [0.0f32; SIDE * SIDE];
    for stroke in STROKES[usize::from(digit)] {
        let joints: Vec<Point> = stroke.iter().map(|&joint| place.apply(jitter(joint, &mut rng))).collect();
        joints.windows(2).for_each(|ends| pen.line(ends[0], ends[1], &mut canvas));
    }
    stray_line(&mut rng, &mut canvas);
    for (pixel, &ink) in pixels.iter_mut().zip(&canvas) {
        let noise = (rng.random::<f32>() + rng.random::<f32>() - 1.0) * 0.25;
        *pixel = ((ink + noise) * 255.0).round().clamp(0.0, 255.0) as u8;
    }
    digit
}

fn jitter((x, y): Point, rng: &mut impl Rng) -> Point {
    (x + rng.random_range(-0.06..0.06), y + rng.random_range(-0.06..0.06))
}

/// A thin faint line across the image that is not part of the digit.
fn stray_line(rng: &mut impl Rng, canvas: &mut [f32]) {
    let mut end = || (rng.random_range(0.0..SIDE as f32), rng.random_range(0.0..SIDE as f32));
    let (from, to) = (end(), end());
    Pen { width: 0.5, ink: rng.random_range(0.2..0.6) }.line(from, to, canvas);
}

/// The affine map from the unit square to the canvas.
struct Placement {
    matrix: [f32; 4],
    centre: Point,
}

impl Placement {
    fn random(rng: &mut impl Rng) -> Self {
        let angle: f32 = rng.random_range(-0.4..0.4);
        let shear: f32 = rng.random_range(-0.3..0.3);
        let (width, height) = (rng.random_range(10.0..17.0f32), rng.random_range(14.0..20.0f32));
        let (sin, cos) = angle.sin_cos();
        let matrix = [cos * width, (cos * shear - sin) * height, sin * width, (sin * shear + cos) * height];
        let middle = SIDE as f32 / 2.0;
        let centre = (middle + rng.random_range(-3.5..3.5), middle + rng.random_range(-3.0..3.0));
        Self { matrix, centre }
    }

    fn apply(&self, (x, y): Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        let [a, b, c, d] = self.matrix;
        (self.centre.0 + a * x + b * y, self.centre.1 + c * x + d * y)
    }
}

/// A round pen: `width` is its radius in pixels, `ink` how dark it draws.
struct Pen {
    width: f32,
    ink: f32,
}

impl Pen {
    /// Darkens each pixel by its distance from the segment; only pixels near it are visited.
    fn line(&self, from: Point, to: Point, canvas: &mut [f32]) {
        let reach = self.width + 0.5;
        let span = |a: f32, b: f32| {
            let low = (a.min(b) - reach).floor().max(0.0) as usize;
            let high = (a.max(b) + reach).ceil().clamp(0.0, SIDE as f32) as usize;
            low.min(SIDE)..high
        };
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length_sq = (dx * dx + dy * dy).max(1e-6);
        for row in span(from.1, to.1) {
            for column in span(from.0, to.0) {
                let (px, py) = (column as f32 + 0.5 - from.0, row as f32 + 0.5 - from.1);
                let along = ((px * dx + py * dy) / length_sq).clamp(0.0, 1.0);
                let distance = (px - along * dx).hypot(py - along * dy);
                let cover = (reach - distance).clamp(0.0, 1.0) * self.ink;
                let pixel = &mut canvas[row * SIDE + column];
                *pixel = pixel.max(cover);
            }
        }
    }
}
