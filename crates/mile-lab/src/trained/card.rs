//! The card of an exported model: what it is, how it was trained, and how good it was.

use std::fmt::Write;

use mile_problems::predictions::ModelTensor;

use super::open::Origin;
use super::{Numbers, TrainedModel};
use crate::quantity::Quantity;
use crate::report::{network_name, problem_name};
use crate::table::number;

/// How a model is used whose form is known.
const KNOWN: &str = "```console\n$ mile predict . DATA       # a prediction for each row\n$ mile evaluate . DATA      # data with targets\n```\n\n\
    The numbers have PyTorch's names and shapes: `safetensors.torch.load_file(\"model.safetensors\")` is a `state_dict`. How inputs are \
    made from data (columns, scales, categories, classes) is in `model.json`.";

/// How a model of PyTorch is used.
const TORCH: &str = "```python\nimport safetensors.torch\n\n\
    model.load_state_dict(safetensors.torch.load_file(\"model.safetensors\"))\n```\n\n\
    `model` is a PyTorch module of the class that was trained. The numbers are in single precision.";

/// How other models are used.
const NAMED: &str = "```python\nimport safetensors.numpy\n\n\
    arrays = safetensors.numpy.load_file(\"model.safetensors\")\n```\n\n\
    The arrays have the names of the program that trained the model, which knows what they mean.";

/// The card, as a page that hubs of models show.
pub(super) fn card(model: &TrainedModel, origin: &Origin, tensors: &[ModelTensor]) -> String {
    let spec = &origin.folder.spec;
    let mut text = format!(
        "---\nlibrary_name: mile\ntags:\n- decentralized-optimization\n- {}\n---\n\n# {}\n\n",
        origin.algorithm().entry.name,
        spec.name
    );
    let whose = match origin.agent {
        None => "the average of all agents' models".to_owned(),
        Some(agent) => format!("the model of agent {agent}"),
    };
    let _ = writeln!(
        text,
        "A model that {} agents trained together, without a server: each kept its data and talked only to its neighbours. This is {whose}.\n",
        origin.folder.network.agents()
    );
    let mut facts = match &model.numbers {
        Numbers::Known { form, .. } => vec![("input", form.inputs()), ("output", form.outputs())],
        Numbers::Named(_) => Vec::new(),
    };
    facts.extend([
        ("problem", problem_name(&origin.folder)),
        ("network", network_name(&origin.folder)),
        ("method", origin.algorithm().label.clone()),
        ("seed", origin.seed.to_string()),
    ]);
    if let Some(outcome) = &origin.outcome {
        facts.push(("rounds", outcome.round.to_string()));
        facts.push(("ended", outcome.status.name().to_owned()));
    }
    facts.push(("precision", model.precision.name().to_owned()));
    let others = origin.others().map(|(name, version)| format!(", {name} {version}"));
    facts.push(("trained with", format!("mile {}{}", origin.version(), others.collect::<String>())));
    text.push_str(&rows(["", ""], &facts));
    text.push_str(&results(origin));
    let _ = writeln!(text, "\n## Method\n\n```toml\n{}```", origin.algorithm().to_table());
    let use_it = match &model.numbers {
        Numbers::Known { .. } => KNOWN,
        Numbers::Named(_) if origin.others().any(|(name, _)| name == "torch") => TORCH,
        Numbers::Named(_) => NAMED,
    };
    let _ = write!(text, "\n## Use\n\n{use_it}\n\n{}", table(tensors));
    text
}

fn rows(header: [&str; 2], rows: &[(&str, String)]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let line = |(name, value): &(&str, String)| format!("| {} | {} |\n", cell(name), cell(value));
    format!("| {} | {} |\n|---|---|\n{}", header[0], header[1], rows.iter().map(line).collect::<String>())
}

/// What was measured at the end of the run, of all models of the run.
fn results(origin: &Origin) -> String {
    let Some(outcome) = &origin.outcome else { return String::new() };
    let measured = |quantity: Quantity| Some((quantity.title(), number(quantity.of(&outcome.last)?)));
    let mut found: Vec<(&str, String)> = Quantity::ALL.into_iter().filter_map(measured).collect();
    let own = outcome.last.more.iter().filter_map(|(name, value)| Some((name.as_str(), number((*value)?))));
    found.extend(own);
    found.push(("Bytes sent by all agents", outcome.last.bytes_sent.to_string()));
    format!("\n## Measured at the end of the run\n\n{}", rows(["quantity", "value"], &found))
}

fn table(tensors: &[ModelTensor]) -> String {
    let row = |tensor: &ModelTensor| format!("| `{}` | {:?} |\n", tensor.name, tensor.shape);
    format!("| tensor | shape |\n|---|---|\n{}", tensors.iter().map(row).collect::<String>())
}
