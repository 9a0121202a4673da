//! The experiment file of arrays: which of them are inputs and targets, from their shapes, types and names.

use std::path::{Path, PathBuf};

use mile_lab::error::LabError;
use mile_lab::objectives::{ArrayLook, ArrayNumbers};
use mile_lab::plan::Plan;
use mile_lab::spec::Spec;

use super::{Understood, line, one_line, quoted, quoted_path, stem};

/// The fewest samples of which some are held out.
const LEAST_TO_HOLD_OUT: usize = 10;

/// An array, and the file it is in.
struct Found {
    path: PathBuf,
    look: ArrayLook,
}

impl Found {
    /// The name by which people know it: of the array, or of its file.
    fn name(&self) -> String {
        self.look.name.clone().unwrap_or_else(|| file_name(&self.path))
    }

    /// Whether its name says that it is for testing.
    fn is_for_tests(&self) -> bool {
        let name = self.name().to_lowercase();
        ["test", "valid"].iter().any(|word| name.contains(word))
    }

    /// Its name, shape and numbers.
    fn described(&self) -> String {
        let numbers = match self.look.numbers {
            ArrayNumbers::Bytes => "bytes",
            ArrayNumbers::Floating => "floating-point numbers",
            _ => "whole numbers",
        };
        format!("{} {:?} ({numbers})", one_line(&self.name()), self.look.shape)
    }

    /// How it is named in the experiment file.
    fn written(&self, out: &Path) -> anyhow::Result<String> {
        match &self.look.name {
            Some(name) => Ok(quoted(name)),
            None => quoted_path(&self.path, out),
        }
    }
}

/// Inputs and targets.
type Pair<'f> = (&'f Found, &'f Found);

/// The experiment file of a file of arrays, to be written to `out`.
pub(super) fn experiment(path: &Path, out: &Path) -> anyhow::Result<Understood> {
    let found = arrays(path)?;
    let training = training_pair(path, &found)?;
    let mut text = vec![match is_npy(path) {
        true => String::new(),
        false => {
            let data = quoted_path(path, out)?;
            line("data", &data, "\"agent-{agent}.npz\" for one file per agent")
        }
    }];
    let mut told = vec![seen(path, &found)];
    let asks = match training {
        Some(pair) => {
            let (inputs, targets) = pair;
            told.push(format!(
                "inputs: {}, targets: {}",
                one_line(&inputs.name()),
                one_line(&targets.name())
            ));
            text.push(line("inputs", &inputs.written(out)?, "the samples"));
            text.push(line("targets", &targets.written(out)?, "their labels, or the numbers to predict"));
            if channels_come_first(&inputs.look.shape) {
                text.push(line("layout", "\"nchw\"", "the channels come before the rows and columns"));
            }
            let question = loss(targets, &mut text, &mut told)?;
            test(pair, &found, out, &mut text, &mut told)?;
            question
        }
        None => {
            let question = match path_of_one(path, &found) {
                Some(one) if may_be_inputs(&one.look) => {
                    text.push(line("inputs", &one.written(out)?, "the samples"));
                    text.push(line("targets", "\"?\"", "their labels, or the numbers to predict"));
                    "question: which .npy file has the targets? Write its path in place of \"?\"."
                }
                Some(one) => {
                    text.push(line("inputs", "\"?\"", "the samples"));
                    text.push(line("targets", &one.written(out)?, "their labels, or the numbers to predict"));
                    "question: which .npy file has the inputs? Write its path in place of \"?\"."
                }
                None => {
                    text.push(line("inputs", "\"?\"", "the samples"));
                    text.push(line("targets", "\"?\"", "their labels, or the numbers to predict"));
                    "question: which array has the inputs, and which the targets? Write their names in place of \"?\". If the targets are \
                     numbers to predict and not labels, add loss = \"least-squares\"."
                }
            };
            text.push(line("test", "0.2", "part of each agent's samples to hold out for testing"));
            Some(question.to_owned())
        }
    };
    if let Some(question) = &asks {
        text.insert(1, format!("# {question}"));
        told.push(question.clone());
    }
    let text: Vec<String> = text.into_iter().filter(|line| !line.is_empty()).collect();
    let text = include_str!("arrays.toml")
        .replace("@NAME@", &quoted(&stem(path)))
        .replace("@DATA@", &text.join("\n"));
    if asks.is_none() {
        // Samples that no run would accept, such as those with a NaN, are refused here.
        Plan::new(Spec::parse(&text, out.parent().unwrap_or(Path::new("")), &[])?)?;
    }
    Ok(Understood { text, summary: told.join("\n") + "\n", asks: asks.is_some() })
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The arrays that may belong together: those of the file, or of all `.npy` files in its folder, the given one first.
fn arrays(path: &Path) -> Result<Vec<Found>, LabError> {
    let of = |path: &Path| -> Result<Vec<Found>, LabError> {
        let looks = ArrayLook::all(path)?;
        Ok(looks.into_iter().map(|look| Found { path: path.to_owned(), look }).collect())
    };
    let mut found = of(path)?;
    if is_npy(path) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let files = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
        let beside =
            |name: std::ffi::OsString| folder.map_or_else(|| PathBuf::from(&name), |f| f.join(&name));
        let mut others: Vec<PathBuf> = files.map(|entry| beside(entry.file_name())).collect();
        others.retain(|other| is_npy(other) && other.file_name() != path.file_name());
        others.sort_unstable();
        // What is wrong with another file does not matter here.
        found.extend(others.iter().filter_map(|other| of(other).ok()).flatten());
    }
    Ok(found)
}

/// The given array, if the file has only one.
fn path_of_one<'f>(path: &Path, found: &'f [Found]) -> Option<&'f Found> {
    found.first().filter(|_| is_npy(path))
}

/// The only pair for training that fits; none if there are several, or if the other array may be anywhere.
fn training_pair<'f>(path: &Path, found: &'f [Found]) -> Result<Option<Pair<'f>>, LabError> {
    let given = path_of_one(path, found);
    let is_given = |one: &Found| given.is_some_and(|given| std::ptr::eq(given, one));
    let all: Vec<Pair> = pairs(found)
        .into_iter()
        .filter(|(inputs, targets)| given.is_none() || is_given(inputs) || is_given(targets))
        .collect();
    let for_training = |(inputs, targets): &Pair| {
        (is_given(inputs) || !inputs.is_for_tests()) && (is_given(targets) || !targets.is_for_tests())
    };
    if all.is_empty() && given.is_none() {
        let list: Vec<String> = found.iter().map(Found::described).collect();
        let got = if list.is_empty() { "none".into() } else { list.join(", ") };
        let problem = format!(
            "expected inputs of shape [samples, features], [samples, height, width] or one more number, as uint8, float32 or float64, and \
             targets for as many samples, got {got}"
        );
        return Err(LabError::Directory { path: path.to_owned(), problem });
    }
    let mut kept: Vec<Pair> = all.into_iter().filter(for_training).collect();
    // One number for each sample is a target sooner than an input.
    let is_clear = |(inputs, targets): &Pair| each(&targets.look) == 1 && each(&inputs.look) > 1;
    if kept.iter().any(is_clear) {
        kept.retain(is_clear);
    }
    let has_usual_names = |(inputs, targets): &Pair| {
        inputs.look.name.as_deref() == Some("x") && targets.look.name.as_deref() == Some("y")
    };
    if kept.iter().any(has_usual_names) {
        kept.retain(has_usual_names);
    }
    Ok(match kept[..] {
        [one] => Some(one),
        _ => None,
    })
}

/// All pairs of arrays that a run would accept as inputs and targets, by their shapes and types.
fn pairs(found: &[Found]) -> Vec<Pair<'_>> {
    let fits = |(inputs, targets): &Pair| {
        !std::ptr::eq(*inputs, *targets)
            && may_be_inputs(&inputs.look)
            && may_be_targets(&targets.look)
            && inputs.look.shape[0] == targets.look.shape[0]
    };
    let with = |inputs| found.iter().map(move |targets| (inputs, targets));
    found.iter().flat_map(with).filter(fits).collect()
}

/// Numbers of a sample.
fn each(look: &ArrayLook) -> usize {
    look.shape.iter().skip(1).product()
}

fn may_be_inputs(look: &ArrayLook) -> bool {
    let is_known = matches!(look.numbers, ArrayNumbers::Bytes | ArrayNumbers::Floating);
    is_known && (2..=4).contains(&look.shape.len()) && look.shape[0] > 0 && each(look) > 0
}

fn may_be_targets(look: &ArrayLook) -> bool {
    match look.shape[..] {
        [_] | [_, 1] => true,
        [_, more] => more > 1 && look.numbers == ArrayNumbers::Floating,
        _ => false,
    }
}

/// Whether images are `[channel][row][column]`, as the numbers of their channels suggest.
fn channels_come_first(shape: &[usize]) -> bool {
    let is_number_of_channels = |count: usize| matches!(count, 1 | 3 | 4);
    matches!(*shape, [_, first, _, last] if is_number_of_channels(first) && !is_number_of_channels(last))
}

/// What was seen, in one sentence.
fn seen(path: &Path, found: &[Found]) -> String {
    let list: Vec<String> = found.iter().map(Found::described).collect();
    let place = if is_npy(path) && found.len() > 1 { "beside " } else { "in " };
    format!("Seen {place}{}: {}.", one_line(&file_name(path)), list.join(", "))
}

/// The loss, with the question that must be answered first, if there is one.
fn loss(targets: &Found, text: &mut Vec<String>, told: &mut Vec<String>) -> Result<Option<String>, LabError> {
    let name = one_line(&targets.name());
    let (loss, why) = match targets.look.classes(&targets.path)? {
        Some(classes) => ("cross-entropy", format!("{name} has labels from 0 to {}", classes - 1)),
        None if targets.look.numbers == ArrayNumbers::Floating => {
            ("least-squares", format!("{name} has floating-point numbers"))
        }
        None => {
            text.push(line("loss", "\"?\"", "\"cross-entropy\" or \"least-squares\""));
            return Ok(Some(format!(
                "question: does {name} have numbers to predict? Then write \"least-squares\" in place of \"?\". If it has labels, renumber them \
                 0, 1, ... without gaps, and write \"cross-entropy\"."
            )));
        }
    };
    text.push(line("loss", &quoted(loss), &why));
    told.push(format!("loss: {loss}, because {why}"));
    Ok(None)
}

/// What is measured on samples that are not trained on: the arrays that are for tests by their names, or a part of the samples.
fn test(
    (inputs, targets): Pair,
    found: &[Found],
    out: &Path,
    text: &mut Vec<String>,
    told: &mut Vec<String>,
) -> anyhow::Result<()> {
    let is_like = |one: &Found, other: &Found| {
        one.look.shape[1..] == other.look.shape[1..] && one.look.numbers == other.look.numbers
    };
    let mut tests = pairs(found);
    tests.retain(|(a, b)| a.is_for_tests() && b.is_for_tests() && is_like(a, inputs) && is_like(b, targets));
    let samples = inputs.look.shape[0];
    if let [(inputs, targets)] = tests[..] {
        text.push(line("test_inputs", &inputs.written(out)?, "samples that are not trained on"));
        text.push(line("test_targets", &targets.written(out)?, "their targets"));
        told.push(format!("test: {} and {}", one_line(&inputs.name()), one_line(&targets.name())));
    } else if samples >= LEAST_TO_HOLD_OUT {
        text.push(line("test", "0.2", "part of each agent's samples to hold out for testing"));
        told.push("test: a fifth of each agent's samples".into());
    } else {
        text.push(line(
            "# test",
            "0.2",
            "part of the samples to hold out for testing; here they are too few",
        ));
        told.push("test: none, because there are too few samples to hold some out".into());
    }
    Ok(())
}
