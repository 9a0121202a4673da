//! From arrays to samples and their targets: shapes, types and values are checked.

use mile_nn::data::{Shape, Targets, Values};

use super::npy::{Array, Numbers};
use super::spec::DataSpec;

/// Most classes, since labels are kept as bytes.
pub(super) const MAX_CLASSES: i64 = 256;
/// The message about inputs of another type.
pub(super) const WHOLE_NUMBERS: &str = "expected uint8 (divided by 255), float32 or float64 (used as they are), got other whole numbers; convert it, \
                             as in array.astype('float32')";

/// The shape of a sample.
pub(super) fn shape_of(config: &DataSpec, array: &[usize]) -> Result<Shape, String> {
    let shape = match *array {
        [_, features] => Shape { height: 1, width: 1, channels: features },
        [_, height, width] => Shape { height, width, channels: 1 },
        [_, channels, height, width] if config.channels_first => Shape { height, width, channels },
        [_, height, width, channels] => Shape { height, width, channels },
        _ => {
            return Err(format!(
                "expected shape [samples, features], [samples, height, width], or four numbers in the order of layout \
                 (nhwc: [samples, height, width, channels], nchw: [samples, channels, height, width]), got {array:?}"
            ));
        }
    };
    match shape.is_empty() {
        true => Err(format!("shape {array:?} leaves no numbers in a sample")),
        false => Ok(shape),
    }
}

/// The shape of a sample and all numbers, in the order row, column, channel.
pub(super) fn samples(
    config: &DataSpec,
    array: Array,
    chosen: Option<&[u32]>,
) -> Result<(Shape, Values), String> {
    let shape = shape_of(config, &array.shape)?;
    let reorders = config.channels_first && array.shape.len() == 4;
    let values = match array.numbers {
        Numbers::Bytes(all) => Values::Bytes(if reorders { channels_last(&all, shape) } else { all }),
        Numbers::Singles(all) => {
            check_finite(&all, shape.len(), chosen, |x| x.is_finite())?;
            Values::Singles(if reorders { channels_last(&all, shape) } else { all })
        }
        Numbers::Doubles(all) => {
            check_finite(&all, shape.len(), chosen, |x| x.is_finite())?;
            Values::Doubles(if reorders { channels_last(&all, shape) } else { all })
        }
        Numbers::Whole(_) => {
            return Err(WHOLE_NUMBERS.into());
        }
    };
    Ok((shape, values))
}

fn check_finite<V: Copy + std::fmt::Display>(
    all: &[V],
    each: usize,
    chosen: Option<&[u32]>,
    finite: impl Fn(V) -> bool,
) -> Result<(), String> {
    match all.iter().position(|x| !finite(*x)) {
        Some(i) => {
            let sample = number_of(i / each, chosen);
            Err(format!("expected finite numbers, got {} in sample {sample}", all[i]))
        }
        None => Ok(()),
    }
}

/// The number of a sample in its file.
fn number_of(place: usize, chosen: Option<&[u32]>) -> usize {
    chosen.map_or(place, |chosen| chosen[place] as usize)
}

/// Images `[channel][row][column]` as `[row][column][channel]`.
fn channels_last<V: Copy>(all: &[V], shape: Shape) -> Vec<V> {
    let pixels = shape.height * shape.width;
    let image = |image: &[V]| -> Vec<V> {
        (0..pixels)
            .flat_map(|p| (0..shape.channels).map(move |c| (p, c)))
            .map(|(p, c)| image[c * pixels + p])
            .collect()
    };
    all.chunks_exact(shape.len()).flat_map(image).collect()
}

/// How many targets each of `count` samples has.
pub(super) fn each_of(config: &DataSpec, shape: &[usize], count: usize) -> Result<usize, String> {
    let (found, each) = match *shape {
        [found] => (found, 1),
        [found, each] => (found, each),
        _ => (usize::MAX, 0),
    };
    if each == 0 || (each > 1 && !config.predicts_numbers) {
        let expected = if config.predicts_numbers {
            "[samples] or [samples, numbers per sample]"
        } else {
            "[samples] or [samples, 1]"
        };
        return Err(format!("expected shape {expected}, got {shape:?}"));
    }
    if found != count {
        return Err(format!(
            "expected targets for {count} samples, as many as there are inputs, got {found}"
        ));
    }
    Ok(each)
}

/// The targets of `count` samples.
pub(super) fn targets_of(
    config: &DataSpec,
    array: Array,
    count: usize,
    chosen: Option<&[u32]>,
) -> Result<Targets, String> {
    let each = each_of(config, &array.shape, count)?;
    if config.predicts_numbers {
        let values: Vec<f64> = match array.numbers {
            Numbers::Bytes(all) => all.into_iter().map(f64::from).collect(),
            Numbers::Whole(all) => all.into_iter().map(|n| n as f64).collect(),
            Numbers::Singles(all) => all.into_iter().map(f64::from).collect(),
            Numbers::Doubles(all) => all,
        };
        check_finite(&values, each, chosen, f64::is_finite)?;
        return Ok(Targets::Numbers { values, each });
    }
    let labels: Vec<i64> = match array.numbers {
        Numbers::Bytes(all) => all.into_iter().map(i64::from).collect(),
        Numbers::Whole(all) => all,
        _ => {
            return Err("expected whole numbers as labels, got floating-point numbers; convert it, as in array.astype('int64'), or \
                        set loss = \"least-squares\""
                .into());
        }
    };
    let most = config.classes.map_or(MAX_CLASSES, |classes| classes as i64);
    match labels.iter().position(|label| !(0..most).contains(label)) {
        Some(i) => {
            let sample = number_of(i, chosen);
            Err(format!("expected labels from 0 to {}, got {} in sample {sample}", most - 1, labels[i]))
        }
        None => Ok(Targets::Labels(labels.into_iter().map(|label| label as u8).collect())),
    }
}
