//! From array files to a data set: shapes, types and values are checked.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile_nn::data::{Dataset, Images, Shape, Targets, Values};

use super::config::{DataConfig, Place, Source, Test};
use super::file::{bad, read};
use super::npy::{Array, Numbers};
use crate::error::{DataFileError, LabError};

/// Samples in memory.
pub(super) struct Arrays {
    pub(super) set: Arc<Dataset>,
    /// With one file for each agent, the samples of those that are available.
    pub(super) owned: Option<Vec<Range<u32>>>,
}

/// Most classes, since labels are kept as bytes.
const MAX_CLASSES: i64 = 256;

pub(super) fn load(config: &DataConfig) -> Result<Arrays, LabError> {
    let (train, owned) = Samples::of(config, &config.train)?;
    let test = match &config.test {
        Test::Arrays(source) => Some(Samples::of(config, source)?.0),
        _ => None,
    };
    if let Some(test) = test.as_ref().filter(|test| test.shape != train.shape) {
        let problem = format!("has samples of {}, those for training are {}", test.shape, train.shape);
        return Err(bad(&test.file, test.array.as_deref(), problem).into());
    }
    let classes = match &train.targets {
        Targets::Numbers { each, .. } => *each,
        Targets::Labels(labels) => classes(config, labels, test.as_ref(), &train.file)?,
    };
    let (shape, file) = (train.shape, train.file.clone());
    let images = |samples: Samples| Images { pixels: samples.pixels, targets: samples.targets };
    let test = test.map_or_else(|| Images::new(Vec::new(), Vec::new()), images);
    let set = Dataset::try_new("arrays", shape, classes, images(train), test)
        .map_err(|error| bad(&file, None, error))?;
    let owned = config.train.inputs.is_per_agent().then_some(owned);
    Ok(Arrays { set: Arc::new(set), owned })
}

/// The number of classes; an error if labels are not 0 to one less.
fn classes(
    config: &DataConfig,
    labels: &[u8],
    test: Option<&Samples>,
    file: &Path,
) -> Result<usize, DataFileError> {
    let test =
        if let Some(Targets::Labels(labels)) = test.map(|test| &test.targets) { &labels[..] } else { &[] };
    let mut found = [false; MAX_CLASSES as usize];
    labels.iter().chain(test).for_each(|label| found[usize::from(*label)] = true);
    let least = found.iter().rposition(|found| *found).map_or(0, |largest| largest + 1);
    let targets = config.train.targets.array.as_deref();
    if let Some(classes) = config.classes {
        // Files were read with this limit.
        return Ok(classes);
    }
    let problem = match found[..least].iter().position(|found| !found) {
        _ if least < 2 => {
            "has one class only; a classification takes two or more: set classes if others exist".into()
        }
        Some(absent) if config.only.is_none() => format!(
            "has labels up to {}, but none is {absent}; labels must be 0, 1, ... without a gap: renumber them, or set \
             classes = {least} if a class may be absent",
            least - 1
        ),
        _ => return Ok(least),
    };
    Err(bad(file, targets, problem))
}

/// The samples of one source, of all available agents.
struct Samples {
    shape: Shape,
    pixels: Values,
    targets: Targets,
    /// The last file, for messages, and its array of inputs.
    file: PathBuf,
    array: Option<String>,
}

impl Samples {
    /// All samples, and where those of each file are.
    fn of(config: &DataConfig, source: &Source) -> Result<(Self, Vec<Range<u32>>), LabError> {
        let agents = if source.inputs.is_per_agent() { config.available() } else { 0..1 };
        let (mut all, mut ranges): (Option<Self>, Vec<Range<u32>>) = (None, Vec::new());
        for agent in agents {
            let one = Self::of_file(config, source, agent)?;
            let first = all.as_ref().map_or(0, Samples::len);
            let (file, array) = (one.file.clone(), one.array.clone());
            let total = first + one.len();
            match &mut all {
                None => all = Some(one),
                Some(all) => all.append(one)?,
            }
            let end = u32::try_from(total)
                .map_err(|_| bad(&file, array.as_deref(), "has too many samples: takes fewer than 2^32"))?;
            ranges.push(first as u32..end);
        }
        let all =
            all.ok_or_else(|| LabError::config("network.agents", "got 0, takes a whole number from 1"))?;
        Ok((all, ranges))
    }

    fn len(&self) -> usize {
        match &self.targets {
            Targets::Labels(labels) => labels.len(),
            Targets::Numbers { values, each } => values.len() / each,
        }
    }

    fn append(&mut self, other: Self) -> Result<(), DataFileError> {
        let refuse = |what: String| {
            let problem = format!("{what}, unlike {}: all agents must have the same", self.file.display());
            Err(bad(&other.file, other.array.as_deref(), problem))
        };
        if other.shape != self.shape {
            return refuse(format!("has samples of {}", other.shape));
        }
        match (&mut self.pixels, other.pixels) {
            (Values::Bytes(all), Values::Bytes(more)) => all.extend(more),
            (Values::Singles(all), Values::Singles(more)) => all.extend(more),
            (Values::Doubles(all), Values::Doubles(more)) => all.extend(more),
            _ => return refuse("has numbers of another type".into()),
        }
        match (&mut self.targets, other.targets) {
            (Targets::Labels(all), Targets::Labels(more)) => all.extend(more),
            (Targets::Numbers { values, each }, Targets::Numbers { values: more, each: own })
                if *each == own =>
            {
                values.extend(more);
            }
            _ => return refuse("has targets of another length".into()),
        }
        (self.file, self.array) = (other.file, other.array);
        Ok(())
    }

    fn of_file(config: &DataConfig, source: &Source, agent: usize) -> Result<Self, DataFileError> {
        let Source { inputs, targets } = source;
        let (file, targets_file) = (inputs.file_of(agent), targets.file_of(agent));
        let name = |place: &'_ Place| place.array.clone();
        let names = [name(inputs), name(targets)];
        let names = names.each_ref().map(Option::as_deref);
        let mut arrays = if file == targets_file && inputs.array.is_some() {
            read(&file, &names)?
        } else {
            [read(&file, &names[..1])?, read(&targets_file, &names[1..])?].concat()
        };
        let (second, first) = (arrays.pop(), arrays.pop());
        let (Some(values), Some(labels)) = (first, second) else {
            return Err(bad(&file, None, "has no arrays"));
        };
        let count = values.shape.first().copied().unwrap_or(0);
        let of_inputs = |problem: String| bad(&file, names[0], problem);
        let of_targets = |problem: String| bad(&targets_file, names[1], problem);
        if count == 0 {
            let agent = if inputs.is_per_agent() {
                format!(": agent {agent} would have none")
            } else {
                String::new()
            };
            return Err(of_inputs(format!("has no samples{agent}")));
        }
        let (shape, pixels) = samples(config, values).map_err(of_inputs)?;
        let targets = targets_of(config, labels, count).map_err(of_targets)?;
        Ok(Self { shape, pixels, targets, file, array: inputs.array.clone() })
    }
}

/// The shape of a sample and all numbers, in the order row, column, channel.
fn samples(config: &DataConfig, array: Array) -> Result<(Shape, Values), String> {
    let shape = match array.shape[..] {
        [_, features] => Shape { height: 1, width: 1, channels: features },
        [_, height, width] => Shape { height, width, channels: 1 },
        [_, channels, height, width] if config.channels_first => Shape { height, width, channels },
        [_, height, width, channels] => Shape { height, width, channels },
        _ => {
            return Err(format!(
                "has shape {:?}, takes [samples, features], [samples, height, width], or four numbers as layout says: \
                 nhwc is [samples, height, width, channels], nchw is [samples, channels, height, width]",
                array.shape
            ));
        }
    };
    if shape.is_empty() {
        return Err(format!("has shape {:?}: its samples have no numbers", array.shape));
    }
    let reorders = config.channels_first && array.shape.len() == 4;
    let values = match array.numbers {
        Numbers::Bytes(all) => Values::Bytes(if reorders { channels_last(&all, shape) } else { all }),
        Numbers::Singles(all) => {
            check_finite(&all, shape, |x| x.is_finite())?;
            Values::Singles(if reorders { channels_last(&all, shape) } else { all })
        }
        Numbers::Doubles(all) => {
            check_finite(&all, shape, |x| x.is_finite())?;
            Values::Doubles(if reorders { channels_last(&all, shape) } else { all })
        }
        Numbers::Whole(_) => {
            return Err("has whole numbers, takes uint8 (divided by 255), float32 or float64 (used as they are): convert it, as \
                        in array.astype('float32')"
                .into());
        }
    };
    Ok((shape, values))
}

fn check_finite<V: Copy + std::fmt::Display>(
    all: &[V],
    shape: Shape,
    finite: impl Fn(V) -> bool,
) -> Result<(), String> {
    match all.iter().position(|x| !finite(*x)) {
        Some(i) => Err(format!("has {} in sample {}; takes finite numbers", all[i], i / shape.len())),
        None => Ok(()),
    }
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

/// The targets of `count` samples.
fn targets_of(config: &DataConfig, array: Array, count: usize) -> Result<Targets, String> {
    let (found, each) = match array.shape[..] {
        [found] => (found, 1),
        [found, each] => (found, each),
        _ => (usize::MAX, 0),
    };
    if each == 0 || (each > 1 && !config.predicts_numbers) {
        let takes = if config.predicts_numbers {
            "[samples] or [samples, numbers of each]"
        } else {
            "[samples] or [samples, 1]"
        };
        return Err(format!("has shape {:?}, takes {takes}", array.shape));
    }
    if found != count {
        return Err(format!("has targets of {found} samples, but there are inputs of {count}: give as many"));
    }
    if config.predicts_numbers {
        let values: Vec<f64> = match array.numbers {
            Numbers::Bytes(all) => all.into_iter().map(f64::from).collect(),
            Numbers::Whole(all) => all.into_iter().map(|n| n as f64).collect(),
            Numbers::Singles(all) => all.into_iter().map(f64::from).collect(),
            Numbers::Doubles(all) => all,
        };
        check_finite(&values, Shape { height: 1, width: 1, channels: each }, f64::is_finite)?;
        return Ok(Targets::Numbers { values, each });
    }
    let labels: Vec<i64> = match array.numbers {
        Numbers::Bytes(all) => all.into_iter().map(i64::from).collect(),
        Numbers::Whole(all) => all,
        _ => {
            return Err("has floating-point numbers, but labels are whole numbers: convert it, as in array.astype('int64'), or \
                        set loss = \"least-squares\""
                .into());
        }
    };
    let most = config.classes.map_or(MAX_CLASSES, |classes| classes as i64);
    match labels.iter().position(|label| !(0..most).contains(label)) {
        Some(i) => Err(format!("has label {} in sample {i}; takes 0 to {}", labels[i], most - 1)),
        None => Ok(Targets::Labels(labels.into_iter().map(|label| label as u8).collect())),
    }
}
