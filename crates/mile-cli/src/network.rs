//! A network on the command line: what `[network]` is in an experiment file.

use std::path::{Path, PathBuf};

use clap::Args;
use mile_lab::config::NetworkConfig;
use toml::{Table, Value};

/// The graph and its weights.
#[derive(Args)]
pub(crate) struct NetworkArguments {
    /// ring, path, star, complete, grid, torus, hypercube, exponential, erdos-renyi, random-regular,
    /// small-world, or file
    #[arg(long, default_value = "ring")]
    pub(crate) topology: String,
    /// Number of agents
    #[arg(long, default_value = "10")]
    agents: u64,
    /// metropolis, lazy-metropolis, max-degree, best-constant, fdla, or file
    #[arg(long, default_value = "metropolis")]
    pub(crate) mixing: String,
    /// Probability of an edge (erdos-renyi)
    #[arg(long)]
    p: Option<f64>,
    /// Neighbours of each agent (random-regular, small-world)
    #[arg(long)]
    degree: Option<u64>,
    /// Probability that an edge is moved (small-world)
    #[arg(long)]
    rewire: Option<f64>,
    /// Edge list: two agent numbers a line (topology = file)
    #[arg(long)]
    edges: Option<PathBuf>,
    /// Matrix: one row a line (mixing = file)
    #[arg(long)]
    matrix: Option<PathBuf>,
    /// Seed of a random graph
    #[arg(long)]
    seed: Option<u64>,
}

impl NetworkArguments {
    /// The network they describe, with edges that are down with this probability.
    pub(crate) fn config(&self, drop_rate: Option<f64>) -> anyhow::Result<NetworkConfig> {
        let whole = |number: u64| i64::try_from(number).map(Value::Integer);
        let path = |path: &PathBuf| Value::from(path.display().to_string());
        let entries = [
            ("topology", Some(self.topology.as_str().into())),
            ("agents", Some(whole(self.agents)?)),
            ("mixing", Some(self.mixing.as_str().into())),
            ("drop_rate", drop_rate.map(Value::Float)),
            ("p", self.p.map(Value::Float)),
            ("degree", self.degree.map(whole).transpose()?),
            ("rewire", self.rewire.map(Value::Float)),
            ("edges", self.edges.as_ref().map(path)),
            ("matrix", self.matrix.as_ref().map(path)),
            ("seed", self.seed.map(whole).transpose()?),
        ];
        let given = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Ok(NetworkConfig::from_table(&given.collect::<Table>(), Path::new(""))?)
    }
}
