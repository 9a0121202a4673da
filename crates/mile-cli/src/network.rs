//! Command-line options that describe a network, as the section `[network]` does in an experiment file.

use std::path::{Path, PathBuf};

use clap::Args;
use mile_lab::spec::NetworkSpec;
use toml::{Table, Value};

/// The graph and its mixing matrix.
#[derive(Args)]
pub(crate) struct NetworkArguments {
    /// Graph: ring, path, star, complete, grid, torus, hypercube, exponential, erdos-renyi, random-regular,
    /// small-world, or file (with --edges)
    #[arg(long, default_value = "ring")]
    pub(crate) topology: String,
    /// Number of agents
    #[arg(long, default_value = "10")]
    agents: u64,
    /// Mixing matrix: metropolis, lazy-metropolis, max-degree, best-constant, fdla, or file (with --matrix)
    #[arg(long, default_value = "metropolis")]
    pub(crate) mixing: String,
    /// Probability of an edge (erdos-renyi) [default: 0.3]
    #[arg(long)]
    p: Option<f64>,
    /// Number of neighbours of each agent (random-regular, small-world) [default: 4]
    #[arg(long)]
    degree: Option<u64>,
    /// Probability that an edge is rewired (small-world) [default: 0.1]
    #[arg(long)]
    rewire: Option<f64>,
    /// File with the edge list, two agent numbers per line, e.g. "0 1" (for --topology file)
    #[arg(long, value_name = "FILE")]
    edges: Option<PathBuf>,
    /// File with the mixing matrix, one row per line (for --mixing file)
    #[arg(long, value_name = "FILE")]
    matrix: Option<PathBuf>,
    /// Seed of a random graph [default: 0]
    #[arg(long)]
    seed: Option<u64>,
}

impl NetworkArguments {
    /// The network that the options describe, with edges that are down with this probability, and changing from round to
    /// round in this way.
    pub(crate) fn config(
        &self,
        drop_rate: Option<f64>,
        time_varying: Option<&str>,
    ) -> anyhow::Result<NetworkSpec> {
        let whole = |number: u64| i64::try_from(number).map(Value::Integer);
        let path = |path: &PathBuf| Value::from(path.display().to_string());
        // Their graphs set their own weights, so there is no other topology.
        let is_alone = matches!(time_varying, Some("one-peer-hypercube" | "base-k"));
        let entries = [
            ("topology", (!is_alone).then(|| self.topology.as_str().into())),
            ("agents", Some(whole(self.agents)?)),
            ("mixing", (!is_alone).then(|| self.mixing.as_str().into())),
            ("drop_rate", drop_rate.map(Value::Float)),
            ("time_varying", time_varying.map(Value::from)),
            ("p", self.p.map(Value::Float)),
            ("degree", self.degree.map(whole).transpose()?),
            ("rewire", self.rewire.map(Value::Float)),
            ("edges", self.edges.as_ref().map(path)),
            ("matrix", self.matrix.as_ref().map(path)),
            ("seed", self.seed.map(whole).transpose()?),
        ];
        let given = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Ok(NetworkSpec::read(&given.collect::<Table>(), Path::new(""))?)
    }
}
