//! A network in its most obvious form: channel-first images, four nested loops, PyTorch's tensors.

use mile::problems::Tensor;
use mile_nn::data::Shape;
use mile_nn::model::Layer;

/// An image `[channel][row][column]`.
struct Planes {
    channels: usize,
    height: usize,
    width: usize,
    values: Vec<f64>,
}

/// The scores of one image, without dropout.
pub(crate) fn scores(layers: &[Layer], shape: Shape, tensors: &[Tensor], pixels: &[u8]) -> Vec<f64> {
    let Shape { height, width, channels } = shape;
    let at = |c: usize, place: usize| f64::from(pixels[place * channels + c]) / 255.0;
    let values = (0..channels).flat_map(|c| (0..height * width).map(move |place| at(c, place))).collect();
    let image = Planes { channels, height, width, values };
    forward(layers, image, &mut tensors.chunks(2)).values
}

fn forward<'t>(
    layers: &[Layer],
    mut image: Planes,
    parameters: &mut impl Iterator<Item = &'t [Tensor]>,
) -> Planes {
    for layer in layers {
        image = match *layer {
            Layer::Residual { ref layers } => {
                let own = image.values.clone();
                let mut sum = forward(layers, image, parameters);
                sum.values.iter_mut().zip(own).for_each(|(sum, x)| *sum += x);
                sum
            }
            Layer::Conv { kernel, padding, stride, .. } => {
                convolve(&image, parameters.next().unwrap(), (kernel, padding, stride))
            }
            Layer::Dense { .. } => dense(&image, parameters.next().unwrap()),
            Layer::GroupNorm { groups } => normalise(image, parameters.next().unwrap(), groups),
            Layer::LayerNorm {} => normalise(image, parameters.next().unwrap(), 1),
            Layer::Relu {} => Planes { values: image.values.iter().map(|x| x.max(0.0)).collect(), ..image },
            Layer::MaxPool { size, stride } => {
                pool(&image, size, stride, |square| square.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            }
            Layer::AveragePool { size, stride } => {
                pool(&image, size, stride, |square| square.iter().sum::<f64>() / square.len() as f64)
            }
            _ => image,
        };
    }
    image
}

fn convolve(
    image: &Planes,
    parameters: &[Tensor],
    (kernel, padding, stride): (usize, usize, usize),
) -> Planes {
    let (weight, bias) = (&parameters[0], &parameters[1].values);
    let (out, channels) = (weight.shape[0], weight.shape[1]);
    let steps = |side: usize| (side + 2 * padding - kernel) / stride + 1;
    let (height, width) = (steps(image.height), steps(image.width));
    let pixel = |c: usize, y: usize, x: usize| {
        let inside =
            (padding..padding + image.height).contains(&y) && (padding..padding + image.width).contains(&x);
        if inside { image.values[(c * image.height + y - padding) * image.width + x - padding] } else { 0.0 }
    };
    let mut values = Vec::new();
    for (o, &bias) in bias.iter().enumerate() {
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let mut sum = f64::from(bias);
            for (c, dy) in (0..channels).flat_map(|c| (0..kernel).map(move |dy| (c, dy))) {
                for dx in 0..kernel {
                    let w = weight.values[((o * channels + c) * kernel + dy) * kernel + dx];
                    sum += f64::from(w) * pixel(c, stride * y + dy, stride * x + dx);
                }
            }
            values.push(sum);
        }
    }
    Planes { channels: out, height, width, values }
}

/// One scale and shift for each number, or for all of a channel.
fn normalise(mut image: Planes, parameters: &[Tensor], groups: usize) -> Planes {
    let size = image.values.len() / groups;
    for group in image.values.chunks_mut(size) {
        let mean = group.iter().sum::<f64>() / size as f64;
        let variance = group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
        group.iter_mut().for_each(|x| *x = (*x - mean) / (variance + 1e-5).sqrt());
    }
    let each = image.values.len() / parameters[0].values.len();
    for (i, x) in image.values.iter_mut().enumerate() {
        let [scale, shift] = [0, 1].map(|k| f64::from(parameters[k].values[i / each]));
        *x = *x * scale + shift;
    }
    image
}

fn dense(image: &Planes, parameters: &[Tensor]) -> Planes {
    let rows = parameters[0].values.chunks(parameters[0].shape[1]).zip(&parameters[1].values);
    let unit = |(row, &bias): (&[f32], &f32)| {
        f64::from(bias) + row.iter().zip(&image.values).map(|(&w, x)| f64::from(w) * x).sum::<f64>()
    };
    let values: Vec<f64> = rows.map(unit).collect();
    Planes { channels: values.len(), height: 1, width: 1, values }
}

fn pool(image: &Planes, size: usize, stride: Option<usize>, of: impl Fn(&[f64]) -> f64) -> Planes {
    let stride = stride.unwrap_or(size);
    let (height, width) = ((image.height - size) / stride + 1, (image.width - size) / stride + 1);
    let mut values = Vec::new();
    for plane in image.values.chunks(image.height * image.width) {
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let places = (0..size).flat_map(|dy| (0..size).map(move |dx| (stride * y + dy, stride * x + dx)));
            let square: Vec<f64> = places.map(|(y, x)| plane[y * image.width + x]).collect();
            values.push(of(&square));
        }
    }
    Planes { channels: image.channels, height, width, values }
}
