//! What `[[algorithm]]` says about local steps: `optimizer`, `correction`, `clip` and `share_moments`.

use mile::methods::catalogue::Entry;
use mile::methods::{CorrectionAt, LocalSteps, Momentum, Optimizer};
use mile::optimiser::{Adam, Muon};
use toml::{Table, Value};

use super::{table, whole};
use crate::error::LabError;
use crate::section::{Section, as_number};

const NAMES: [&str; 4] = ["sgd", "adamw", "amsgrad", "muon"];
const SHARE: &str = "a number in [0, 1)";

/// The local steps of a method, as far as it has these keys.
pub(super) fn read(reader: &Section, entry: &Entry) -> Result<LocalSteps, LabError> {
    let takes = |key: &str| entry.parameters.iter().find(|p| p.name == key).map(|p| p.expected);
    Ok(LocalSteps {
        optimizer: takes("optimizer").map(|_| optimizer(reader)).transpose()?.flatten(),
        correction: takes("correction").map(|expected| correction(reader, expected)).transpose()?.flatten(),
        clip: takes("clip").map(|expected| reader.number("clip", expected)).transpose()?.flatten(),
        share_moments: takes("share_moments")
            .map(|expected| reader.whole("share_moments", expected))
            .transpose()?
            .flatten(),
    })
}

/// `"adamw"`, or a table such as `{ name = "adamw", betas = [0.9, 0.95] }`.
fn optimizer(reader: &Section) -> Result<Option<Optimizer>, LabError> {
    let expected = "the name of an optimizer, or a table such as { name = \"adamw\", betas = [0.9, 0.95] }";
    let found = match reader.value("optimizer") {
        None => return Ok(None),
        Some(Value::String(name)) => Table::from_iter([("name".to_owned(), Value::from(name.as_str()))]),
        Some(Value::Table(table)) => table.clone(),
        Some(other) => return Err(reader.refuse("optimizer", other, expected)),
    };
    let inner = Section::new(reader.path("optimizer"), &found);
    let expected = "\"sgd\", \"adamw\", \"amsgrad\" or \"muon\"";
    let name = inner.text("name", expected)?.ok_or_else(|| inner.missing("name", expected))?;
    let found = match name {
        "sgd" => {
            let mu = inner.number_or("momentum", SHARE, 0.0)?;
            let nesterov = inner.flag("nesterov")?.unwrap_or(false);
            if mu == 0.0 { Optimizer::Sgd } else { Optimizer::Momentum(Momentum { mu, nesterov }) }
        }
        "adamw" => Optimizer::Adam(adam(&inner, false)?),
        "amsgrad" => Optimizer::Adam(adam(&inner, true)?),
        "muon" => {
            let usual = Muon::default();
            Optimizer::Muon(Muon {
                momentum: inner.number_or("momentum", SHARE, usual.momentum)?,
                nesterov: inner.flag("nesterov")?.unwrap_or(usual.nesterov),
                rest: adam(&inner, false)?,
                exclude: words(&inner, "exclude", usual.exclude)?,
            })
        }
        _ => return Err(inner.unknown_word("name", name, &NAMES, expected)),
    };
    inner.finish()?;
    Ok(Some(found))
}

fn adam(inner: &Section, amsgrad: bool) -> Result<Adam, LabError> {
    let usual = Adam::default();
    let expected = "two numbers in [0, 1), such as [0.9, 0.999]";
    let betas = match inner.value("betas") {
        None => usual.betas,
        Some(value) => {
            let numbers: Option<Vec<f64>> =
                value.as_array().and_then(|list| list.iter().map(as_number).collect());
            let pair = numbers.and_then(|numbers| <[f64; 2]>::try_from(numbers).ok());
            pair.ok_or_else(|| inner.refuse("betas", value, expected))?
        }
    };
    let eps = inner.number_or("eps", "a positive number", usual.eps)?;
    let decay = inner.number_or("decay", "a number of at least 0", usual.decay)?;
    Ok(Adam { betas, eps, decay, amsgrad })
}

fn words(inner: &Section, key: &'static str, usual: Vec<String>) -> Result<Vec<String>, LabError> {
    let Some(value) = inner.value(key) else { return Ok(usual) };
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let found: Option<Vec<String>> = value.as_array().and_then(|list| list.iter().map(word).collect());
    found.ok_or_else(|| inner.refuse(key, value, "a list of words, such as [\"embed\", \"head\"]"))
}

/// `"step"`, `"gradient"`, or `{ kind = "gradient", scale = 0.1 }`.
fn correction(reader: &Section, expected: &str) -> Result<Option<CorrectionAt>, LabError> {
    let found = match reader.value("correction") {
        None => return Ok(None),
        Some(Value::String(kind)) => Table::from_iter([("kind".to_owned(), Value::from(kind.as_str()))]),
        Some(Value::Table(table)) => table.clone(),
        Some(other) => return Err(reader.refuse("correction", other, expected)),
    };
    let inner = Section::new(reader.path("correction"), &found);
    let found = match inner.choice("kind", &[("step", false), ("gradient", true)], None)? {
        true => CorrectionAt::Gradient { scale: inner.number_or("scale", "a positive number", 1.0)? },
        false => CorrectionAt::Step,
    };
    inner.finish()?;
    Ok(Some(found))
}

/// The same keys, as they are written.
pub(super) fn values(local: &LocalSteps) -> [(&'static str, Option<Value>); 4] {
    let LocalSteps { optimizer, correction, clip, share_moments } = local;
    let correction = correction.map(|at| match at {
        CorrectionAt::Gradient { scale } => {
            table([("kind", Some("gradient".into())), ("scale", Some(scale.into()))]).into()
        }
        _ => Value::from("step"),
    });
    [
        ("optimizer", optimizer.as_ref().map(|by| optimizer_table(by).into())),
        ("correction", correction),
        ("clip", clip.map(Value::Float)),
        ("share_moments", share_moments.map(whole)),
    ]
}

fn optimizer_table(by: &Optimizer) -> Table {
    let name = |name: &str| ("name", Some(Value::from(name)));
    let heavy = |mu: f64, nesterov: bool| {
        [("momentum", Some(Value::Float(mu))), ("nesterov", Some(Value::Boolean(nesterov)))]
    };
    let adam = |Adam { betas, eps, decay, .. }: &Adam| {
        let betas = Value::Array(betas.map(Value::Float).to_vec());
        [("betas", Some(betas)), ("eps", Some(Value::Float(*eps))), ("decay", Some(Value::Float(*decay)))]
    };
    match by {
        Optimizer::Momentum(Momentum { mu, nesterov }) => {
            table([name("sgd")].into_iter().chain(heavy(*mu, *nesterov)))
        }
        Optimizer::Adam(one) => {
            let kind = if one.amsgrad { "amsgrad" } else { "adamw" };
            table([name(kind)].into_iter().chain(adam(one)))
        }
        Optimizer::Muon(Muon { momentum, nesterov, rest, exclude }) => {
            let words = Value::Array(exclude.iter().map(|word| word.as_str().into()).collect());
            let own = [name("muon")].into_iter().chain(heavy(*momentum, *nesterov)).chain(adam(rest));
            table(own.chain([("exclude", Some(words))]))
        }
        _ => table([name("sgd")]),
    }
}
