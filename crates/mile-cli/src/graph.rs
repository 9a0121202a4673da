//! `mile graph`: a graph, its mixing matrix and its spectrum.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use mile::mixing::Rule;
use mile::network::Network;
use mile::spectrum;
use mile_lab::plot::graph_svg;
use mile_lab::table::{TextTable, number};
use serde_json::json;

use crate::network::NetworkArguments;
use crate::output;

/// Above this number of agents, the mixing rules are not compared.
const MAX_COMPARED: usize = 300;
/// Up to this number of agents, the matrix is printed.
const MAX_PRINTED: usize = 12;

/// A graph and its mixing matrix.
#[derive(Args)]
pub(crate) struct GraphArguments {
    #[command(flatten)]
    network: NetworkArguments,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: GraphFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    /// Human-readable text
    Text,
    /// One JSON document; nothing else is printed on standard output
    Json,
    /// A drawing of the graph, as SVG
    Svg,
}

pub(crate) fn run(arguments: &GraphArguments) -> anyhow::Result<u8> {
    let config = arguments.network.config(None, None)?;
    let network = config.build()?;
    let text = match arguments.format {
        GraphFormat::Svg => graph_svg(&network, config.topology()),
        GraphFormat::Json => json(&network)?,
        GraphFormat::Text => text(&network, arguments),
    };
    output::print(&text)?;
    Ok(0)
}

fn json(network: &Network) -> anyhow::Result<String> {
    let lambda = spectrum::eigenvalues(network.mixing().rows());
    let edges: Vec<_> =
        network.graph().edges().map(|(i, j)| json!([i, j, network.mixing().weight(i, j)])).collect();
    let own: Vec<f64> = (0..network.agents()).map(|i| network.mixing().weight(i, i)).collect();
    let extremes = network.extremes();
    let one = network.agents() == 1;
    let document = json!({
        "agents": network.agents(), "edges": edges, "self_weights": own, "lambda": lambda,
        "lambda_2": if one { None } else { Some(extremes.lambda_2) }, "lambda_n": extremes.lambda_n,
        "spectral_gap": if one { None } else { Some(1.0 - contraction(network)) },
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// `max(|l_2|, |l_N|)`: the factor by which one exchange reduces disagreement, at worst.
fn contraction(network: &Network) -> f64 {
    let extremes = network.extremes();
    if network.agents() == 1 { 0.0 } else { extremes.lambda_2.abs().max(extremes.lambda_n.abs()) }
}

fn text(network: &Network, arguments: &GraphArguments) -> String {
    let (n, graph) = (network.agents(), network.graph());
    let degrees: Vec<usize> = (0..n).map(|i| graph.degree(i)).collect();
    let edges = graph.edges().count();
    let mut text = format!(
        "{} of {n} agents, {edges} edges, degrees {} to {} (mean {})\n",
        arguments.network.topology,
        degrees.iter().min().unwrap_or(&0),
        graph.max_degree(),
        number(2.0 * edges as f64 / n as f64),
    );
    if n == 1 {
        text.push_str("a single agent: nothing to mix\n");
        return text;
    }
    let extremes = network.extremes();
    let halving = (0.5f64.ln() / contraction(network).ln()).max(0.0);
    let _ = writeln!(
        text,
        "{}: second eigenvalue {}, smallest {}, spectral gap {}\n\
         one exchange reduces disagreement to at most {} of what it was; {} exchanges halve it",
        arguments.network.mixing,
        number(extremes.lambda_2),
        number(extremes.lambda_n),
        number(1.0 - contraction(network)),
        number(contraction(network)),
        number(halving),
    );
    if n <= MAX_COMPARED {
        let _ = write!(text, "\nthe same graph with each mixing rule:\n{}", rule_comparison(network));
    }
    if n <= MAX_PRINTED {
        text.push_str("\nmixing matrix:\n");
        for i in 0..n {
            let cell = |j: usize| match network.mixing().weight(i, j) {
                0.0 => "     .".to_owned(),
                weight => format!("{weight:6.3}"),
            };
            let _ = writeln!(text, "{}", (0..n).map(cell).collect::<Vec<_>>().join(" "));
        }
    }
    text
}

fn rule_comparison(network: &Network) -> TextTable {
    let header = ["rule", "lambda_2", "lambda_n", "disagreement left", "exchanges to halve it"];
    let row = |rule: Rule| {
        let name = rule.name().to_owned();
        match Network::new(network.graph().clone(), rule) {
            Ok(other) => {
                let (extremes, left) = (other.extremes(), contraction(&other));
                let halving = 0.5f64.ln() / left.ln();
                vec![
                    name,
                    number(extremes.lambda_2),
                    number(extremes.lambda_n),
                    number(left),
                    number(halving.max(0.0)),
                ]
            }
            Err(_) => vec![name, "-".into(), "-".into(), "-".into(), "-".into()],
        }
    };
    TextTable { header: header.map(str::to_owned).to_vec(), rows: Rule::ALL.map(row).to_vec() }
}
