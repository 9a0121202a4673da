//! From array files to a data set.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mile_nn::data::{Dataset, Images, Shape, Targets, Values};

use super::checked::{MAX_CLASSES, WHOLE_NUMBERS, each_of, samples, shape_of, targets_of};
use super::file::{bad, read};
use super::npy::{Array, Element};
use super::some::{header, some};
use super::spec::{DataSpec, Place, Source, Test};
use crate::error::{DataFileError, LabError};

/// Samples in memory, or what is known about them.
pub(super) struct Arrays {
    /// In an outline, without the inputs of the training samples; of numbers that are predicted there is a 0 for each sample.
    pub(super) set: Arc<Dataset>,
    /// The samples of each file.
    files: Vec<Range<u32>>,
    /// Bytes of all samples.
    pub(super) bytes: u64,
    is_per_agent: bool,
}

impl Arrays {
    /// With one file for each agent, the samples of those that are available.
    pub(super) fn owned(&self) -> Option<&[Range<u32>]> {
        self.is_per_agent.then_some(&self.files)
    }
}

/// How much of the training samples is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    All,
    /// Only their number and their labels.
    Outline,
}

pub(super) fn load(config: &DataSpec, extent: Extent) -> Result<Arrays, LabError> {
    let (train, files) = Samples::of(config, &config.train, extent)?;
    let test = match &config.test {
        Test::Arrays(source) => Some(Samples::of(config, source, Extent::All)?.0),
        _ => None,
    };
    if let Some(test) = test.as_ref().filter(|test| test.shape != train.shape) {
        let problem = format!("expected samples of {}, as for training, got {}", train.shape, test.shape);
        return Err(bad(&test.file, test.array.as_deref(), problem).into());
    }
    let classes = match &train.targets {
        Targets::Numbers { .. } => train.each,
        Targets::Labels(labels) => classes(config, labels, test.as_ref(), &train.file)?,
    };
    let (shape, file) = (train.shape, train.file.clone());
    let bytes = train.bytes() + test.as_ref().map_or(0, Samples::bytes);
    let images = |samples: Samples| Images { pixels: samples.pixels, targets: samples.targets };
    let test = test.map_or_else(|| Images::new(Vec::new(), Vec::new()), images);
    let set = match extent {
        Extent::All => Dataset::try_new("arrays", shape, classes, images(train), test)
            .map_err(|error| bad(&file, None, error))?,
        Extent::Outline => Dataset { name: "arrays".into(), train: images(train), test, classes, shape },
    };
    let is_per_agent = config.train.inputs.is_per_agent();
    Ok(Arrays { set: Arc::new(set), files, bytes, is_per_agent })
}

/// The training samples with these numbers, which increase, of arrays with this outline.
pub(super) fn some_of(config: &DataSpec, outline: &Arrays, kept: &[u32]) -> Result<Images, LabError> {
    let place = |sample: u32| kept.partition_point(|k| *k < sample);
    let mut all: Option<Samples> = None;
    for (agent, range) in outline.files.iter().enumerate() {
        let own: Vec<u32> =
            kept[place(range.start)..place(range.end)].iter().map(|k| k - range.start).collect();
        // The first file too if nothing is kept: then there are images of no samples.
        if own.is_empty() && agent > 0 {
            continue;
        }
        let one = Samples::some_of_file(config, &config.train, agent, &own)?;
        match &mut all {
            None => all = Some(one),
            Some(all) => all.append(one)?,
        }
    }
    let all = all.ok_or_else(|| LabError::expected("network.agents", "a whole number of at least 1", 0))?;
    Ok(Images { pixels: all.pixels, targets: all.targets })
}

/// The number of classes; an error if labels are not 0 to one less.
fn classes(
    config: &DataSpec,
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
        _ if least < 2 => "expected two or more classes, got one; set classes if there are others".into(),
        Some(absent) if config.only.is_none() => format!(
            "expected labels 0 to {} without gaps, but {absent} does not occur; renumber them, or set \
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
    /// How many numbers are predicted for each sample, or 1.
    each: usize,
    /// The last file, for messages, and its array of inputs.
    file: PathBuf,
    array: Option<String>,
}

impl Samples {
    /// All samples, and where those of each file are.
    fn of(config: &DataSpec, source: &Source, extent: Extent) -> Result<(Self, Vec<Range<u32>>), LabError> {
        let agents = if source.inputs.is_per_agent() { config.available() } else { 0..1 };
        let (mut all, mut ranges): (Option<Self>, Vec<Range<u32>>) = (None, Vec::new());
        for agent in agents {
            let one = match extent {
                Extent::All => Self::of_file(config, source, agent)?,
                Extent::Outline => Self::outline_of_file(config, source, agent)?,
            };
            let first = all.as_ref().map_or(0, Samples::len);
            let (file, array) = (one.file.clone(), one.array.clone());
            let total = first + one.len();
            match &mut all {
                None => all = Some(one),
                Some(all) => all.append(one)?,
            }
            let end = u32::try_from(total)
                .map_err(|_| bad(&file, array.as_deref(), "too many samples: the limit is 2^32"))?;
            ranges.push(first as u32..end);
        }
        let all =
            all.ok_or_else(|| LabError::expected("network.agents", "a whole number of at least 1", 0))?;
        Ok((all, ranges))
    }

    fn len(&self) -> usize {
        match &self.targets {
            Targets::Labels(labels) => labels.len(),
            Targets::Numbers { values, each } => values.len() / each,
        }
    }

    /// Bytes of all samples, whether they are in memory or not.
    fn bytes(&self) -> u64 {
        let element = match self.pixels {
            Values::Bytes(_) => size_of::<u8>(),
            Values::Singles(_) => size_of::<f32>(),
            Values::Doubles(_) => size_of::<f64>(),
        };
        let target = match self.targets {
            Targets::Labels(_) => size_of::<u8>(),
            Targets::Numbers { .. } => self.each * size_of::<f64>(),
        };
        (self.len() * (self.shape.len() * element + target)) as u64
    }

    fn append(&mut self, other: Self) -> Result<(), DataFileError> {
        let refuse = |what: String| {
            let problem = format!(
                "{what} differ from those in {}; they must be the same for all agents",
                self.file.display()
            );
            Err(bad(&other.file, other.array.as_deref(), problem))
        };
        if other.each != self.each {
            return refuse("lengths of targets".into());
        }
        if other.shape != self.shape {
            return refuse(format!("samples of shape {}", other.shape));
        }
        match (&mut self.pixels, other.pixels) {
            (Values::Bytes(all), Values::Bytes(more)) => all.extend(more),
            (Values::Singles(all), Values::Singles(more)) => all.extend(more),
            (Values::Doubles(all), Values::Doubles(more)) => all.extend(more),
            _ => return refuse("types of numbers".into()),
        }
        match (&mut self.targets, other.targets) {
            (Targets::Labels(all), Targets::Labels(more)) => all.extend(more),
            (Targets::Numbers { values, each }, Targets::Numbers { values: more, each: own })
                if *each == own =>
            {
                values.extend(more);
            }
            _ => return refuse("lengths of targets".into()),
        }
        (self.file, self.array) = (other.file, other.array);
        Ok(())
    }

    fn of_file(config: &DataSpec, source: &Source, agent: usize) -> Result<Self, DataFileError> {
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
            return Err(bad(&file, None, "no arrays in the file"));
        };
        Self::checked(config, source, agent, [values, labels], None)
    }

    /// The samples with these numbers, which increase.
    fn some_of_file(
        config: &DataSpec,
        source: &Source,
        agent: usize,
        chosen: &[u32],
    ) -> Result<Self, DataFileError> {
        let read = |place: &Place| some(&place.file_of(agent), place.array.as_deref(), chosen);
        let arrays = [read(&source.inputs)?, read(&source.targets)?];
        Self::checked(config, source, agent, arrays, Some(chosen))
    }

    /// What is known about the samples without their inputs, and without numbers that are predicted.
    fn outline_of_file(config: &DataSpec, source: &Source, agent: usize) -> Result<Self, DataFileError> {
        let Source { inputs, targets } = source;
        let file = inputs.file_of(agent);
        let of_inputs = |problem: String| bad(&file, inputs.array.as_deref(), problem);
        let of_targets = |problem: String| bad(&targets.file_of(agent), targets.array.as_deref(), problem);
        let values = header(&file, inputs.array.as_deref())?;
        let count = values.shape.first().copied().unwrap_or(0);
        if count == 0 {
            return Err(of_inputs(no_samples(inputs, agent)));
        }
        let shape = shape_of(config, &values.shape).map_err(of_inputs)?;
        let pixels = match values.element {
            Element::U8 => Values::Bytes(Vec::new()),
            Element::F32 => Values::Singles(Vec::new()),
            Element::F64 => Values::Doubles(Vec::new()),
            _ => return Err(of_inputs(WHOLE_NUMBERS.into())),
        };
        let (targets_file, name) = (targets.file_of(agent), targets.array.as_deref());
        let (targets, each) = if config.predicts_numbers {
            let found = header(&targets_file, name)?;
            let each = each_of(config, &found.shape, count).map_err(of_targets)?;
            (Targets::Numbers { values: vec![0.0; count], each: 1 }, each)
        } else {
            let array = read(&targets_file, &[name])?.swap_remove(0);
            (targets_of(config, array, count, None).map_err(of_targets)?, 1)
        };
        Ok(Self { shape, pixels, targets, each, file, array: inputs.array.clone() })
    }

    /// Checks the inputs and targets of all samples of a file, or of those with these numbers.
    fn checked(
        config: &DataSpec,
        source: &Source,
        agent: usize,
        [values, labels]: [Array; 2],
        chosen: Option<&[u32]>,
    ) -> Result<Self, DataFileError> {
        let Source { inputs, targets } = source;
        let file = inputs.file_of(agent);
        let of_inputs = |problem: String| bad(&file, inputs.array.as_deref(), problem);
        let of_targets = |problem: String| bad(&targets.file_of(agent), targets.array.as_deref(), problem);
        let count = values.shape.first().copied().unwrap_or(0);
        if count == 0 && chosen.is_none() {
            return Err(of_inputs(no_samples(inputs, agent)));
        }
        let (shape, pixels) = samples(config, values, chosen).map_err(of_inputs)?;
        let each = each_of(config, &labels.shape, count).map_err(of_targets)?;
        let targets = targets_of(config, labels, count, chosen).map_err(of_targets)?;
        Ok(Self { shape, pixels, targets, each, file, array: inputs.array.clone() })
    }
}

fn no_samples(inputs: &Place, agent: usize) -> String {
    let whose = if inputs.is_per_agent() { format!(" for agent {agent}") } else { String::new() };
    format!("no samples{whose}")
}
