//! The section `[problem]` of kind `arrays`.

use std::path::{Path, PathBuf};

use mile_nn::partition::Partition;
use toml::Value;

use super::file::Format;
use crate::Setting;
use crate::error::LabError;
use crate::samples::Training;
use crate::section::{Section, as_number, resolve};

pub(super) struct ArraysSpec {
    pub(super) data: DataSpec,
    pub(super) training: Training,
}

/// Which samples are read, and how.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DataSpec {
    pub(super) train: Source,
    pub(super) test: Test,
    /// Whether images are `[channel][row][column]`; otherwise `[row][column][channel]`.
    pub(super) channels_first: bool,
    /// Whether targets are numbers, for least squares; otherwise they are labels, for the cross-entropy.
    pub(super) predicts_numbers: bool,
    /// Number of classes; `None`: one more than the largest label.
    pub(super) classes: Option<usize>,
    /// Number of agents.
    pub(super) agents: usize,
    /// With one file for each agent: the only agent whose file is available.
    pub(super) only: Option<usize>,
}

/// Where inputs and targets are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    pub(super) inputs: Place,
    pub(super) targets: Place,
}

/// An array in a file. `{agent}` in the path stands for the number of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// The key that names the file.
    pub(super) key: &'static str,
    pub(super) path: PathBuf,
    /// Its name, unless the file has only one array.
    pub(super) array: Option<String>,
}

/// The samples on which the accuracy is measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    None,
    /// A fraction of each agent's samples, which are not trained on.
    Fraction(f64),
    Arrays(Source),
}

impl Place {
    /// Whether each agent has its own file.
    pub(super) fn is_per_agent(&self) -> bool {
        self.path.to_string_lossy().contains("{agent}")
    }

    pub(super) fn file_of(&self, agent: usize) -> PathBuf {
        self.path.to_string_lossy().replace("{agent}", &agent.to_string()).into()
    }
}

impl DataSpec {
    /// The agents whose files are available, with one file for each agent.
    pub(super) fn available(&self) -> std::ops::Range<usize> {
        self.only.map_or(0..self.agents, |agent| agent..agent + 1)
    }

    /// All files, each once.
    pub(super) fn files(&self) -> Vec<&Place> {
        let test = if let Test::Arrays(source) = &self.test { Some(source) } else { None };
        let mut files: Vec<&Place> = Vec::new();
        for place in
            [&self.train].into_iter().chain(test).flat_map(|source| [&source.inputs, &source.targets])
        {
            if !files.iter().any(|known| known.path == place.path) {
                files.push(place);
            }
        }
        files
    }
}

impl ArraysSpec {
    pub(super) fn read(section: &Section, setting: Setting) -> Result<Self, LabError> {
        let (train, test) = sources(section, setting.folder)?;
        let layouts = [("nhwc", false), ("nchw", true)];
        let losses = [("cross-entropy", false), ("least-squares", true)];
        let data = DataSpec {
            train,
            test,
            channels_first: section.choice("layout", &layouts, Some("nhwc"))?,
            predicts_numbers: section.choice("loss", &losses, Some("cross-entropy"))?,
            classes: section.whole("classes", "a whole number from 2 to 256")?.map(|n| n as usize),
            agents: setting.agents,
            only: None,
        };
        let config = Self { data, training: Training::read(section, setting, "linear")? };
        config.check(section)?;
        Ok(config)
    }

    /// Refuses keys that contradict each other.
    fn check(&self, section: &Section) -> Result<(), LabError> {
        let refuse = |key: &str, problem: &str| Err(LabError::config(section.path(key), problem));
        let [inputs, targets] = [&self.data.train.inputs, &self.data.train.targets].map(Place::is_per_agent);
        if inputs != targets {
            return refuse(
                "targets",
                "must have {agent} in its path if and only if inputs has; give one file per agent for both or for neither",
            );
        }
        let is_iid = matches!(self.training.partition(), Partition::Iid {});
        if inputs && !is_iid {
            return refuse(
                "partition",
                "applies to a single file, but {agent} in the path gives each agent its own; leave it out",
            );
        }
        if self.data.classes.is_some_and(|classes| !(2..=256).contains(&classes)) {
            let got = section.value("classes").cloned().unwrap_or(Value::from(0));
            return Err(section.refuse("classes", &got, "a whole number from 2 to 256"));
        }
        if self.data.predicts_numbers {
            if self.data.classes.is_some() {
                return refuse("classes", "applies only to loss = \"cross-entropy\"; leave it out");
            }
            if !is_iid {
                return refuse(
                    "partition",
                    "divides by class, but least-squares has no classes; use iid, or one file per agent",
                );
            }
        }
        if self.data.test == Test::None
            && section.value("test_samples").is_some_and(|n| n.as_str() != Some("all"))
        {
            return refuse(
                "test_samples",
                "needs test, the data on which models are tested; give it, or leave test_samples out",
            );
        }
        Ok(())
    }
}

/// Where the samples for training and for the accuracy are.
fn sources(section: &Section, folder: &Path) -> Result<(Source, Test), LabError> {
    let expected = "the path of a .npz or .safetensors file (\"agent-{agent}.npz\": one per agent), or instead of data \
                    two .npy files as inputs and targets";
    let data = section.text("data", expected)?.map(|path| resolve(folder, path));
    let Some(data) = data else { return loose(section, folder, expected) };
    section.keep("data", data.display().to_string());
    let is_archive = |path: &Path| matches!(Format::of(path), Some(Format::Npz | Format::Safetensors));
    if !is_archive(&data) {
        return Err(section.refuse("data", &Value::from(data.display().to_string()), expected));
    }
    let name = |key, default: &str| {
        let name = section.text(key, "the name of an array in the file")?.unwrap_or(default).to_owned();
        section.keep(key, name.as_str());
        Ok::<_, LabError>(name)
    };
    let (inputs, targets) = (name("inputs", "x")?, name("targets", "y")?);
    let source = |key, path: &Path, inputs: &str, targets: &str| {
        let place = |array: &str| Place { key, path: path.to_owned(), array: Some(array.to_owned()) };
        Source { inputs: place(inputs), targets: place(targets) }
    };
    let train = source("data", &data, &inputs, &targets);
    let own = |key| section.text(key, "the name of an array with test samples");
    let (test_inputs, test_targets) = (own("test_inputs")?, own("test_targets")?);
    let expected = "a number between 0 and 1 (the part of each agent's samples to hold out), or the path of a .npz or \
                    .safetensors file";
    let test = match section.value("test") {
        Some(value @ (Value::Float(_) | Value::Integer(_))) => {
            return Ok((train, Test::Fraction(fraction(section, value, expected)?)));
        }
        Some(Value::String(path)) => Some(resolve(folder, path)),
        Some(other) => return Err(section.refuse("test", other, expected)),
        None => None,
    };
    test.iter().for_each(|path| section.keep("test", path.display().to_string()));
    if let Some(path) = test.as_ref().filter(|path| !is_archive(path)) {
        return Err(section.refuse("test", &Value::from(path.display().to_string()), expected));
    }
    let test = match (test, test_inputs, test_targets) {
        (Some(path), a, b) => {
            Test::Arrays(source("test", &path, a.unwrap_or(&inputs), b.unwrap_or(&targets)))
        }
        (None, Some(a), Some(b)) => Test::Arrays(source("data", &data, a, b)),
        (None, None, None) => Test::None,
        (None, a, _) => {
            let missing = if a.is_none() { "test_inputs" } else { "test_targets" };
            return Err(
                section.missing(missing, "the name of an array, since testing needs both inputs and targets")
            );
        }
    };
    Ok((train, test))
}

/// Two `.npy` files for training and, perhaps, two for the accuracy.
fn loose(section: &Section, folder: &Path, expected: &str) -> Result<(Source, Test), LabError> {
    let npy = "the path of a .npy file (\"x-{agent}.npy\": one per agent)";
    let place = |key: &'static str| {
        let Some(text) = section.text(key, npy)? else { return Ok(None) };
        let path = resolve(folder, text);
        section.keep(key, path.display().to_string());
        if Format::of(&path) != Some(Format::Npy) {
            let problem = format!(
                "expected {npy}, got \"{text}\"; to name an array in a file, give the path of the file as data"
            );
            return Err(LabError::config(section.path(key), problem));
        }
        Ok(Some(Place { key, path, array: None }))
    };
    let train = match (place("inputs")?, place("targets")?) {
        (Some(inputs), Some(targets)) => Source { inputs, targets },
        (None, None) => return Err(section.missing("data", expected)),
        (inputs, _) => return Err(section.missing(if inputs.is_none() { "inputs" } else { "targets" }, npy)),
    };
    let expected = "a number between 0 and 1 (the part of each agent's samples to hold out), or for .npy files \
                    test_inputs and test_targets instead";
    let test = match (section.value("test"), place("test_inputs")?, place("test_targets")?) {
        (Some(value), None, None) => Test::Fraction(fraction(section, value, expected)?),
        (None, Some(inputs), Some(targets)) => Test::Arrays(Source { inputs, targets }),
        (None, None, None) => Test::None,
        (Some(_), ..) => {
            return Err(LabError::config(
                section.path("test"),
                "conflicts with test_inputs and test_targets; leave one or the other out",
            ));
        }
        (None, inputs, _) => {
            return Err(section.missing(if inputs.is_none() { "test_inputs" } else { "test_targets" }, npy));
        }
    };
    Ok((train, test))
}

fn fraction(section: &Section, value: &Value, expected: &str) -> Result<f64, LabError> {
    section.keep("test", value.clone());
    let fraction = as_number(value).filter(|part| 0.0 < *part && *part < 1.0);
    fraction.ok_or_else(|| section.refuse("test", value, expected))
}
