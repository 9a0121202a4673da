//! `mile keygen`.

use std::path::PathBuf;

use clap::Args;
use mile_net::keys;

use crate::output;

/// Makes a secret key, in a file that only its owner can read, and prints the public key that neighbours list.
#[derive(Args)]
pub(crate) struct KeygenArguments {
    /// Key file to write; an existing one is never overwritten
    #[arg(long, value_name = "FILE", default_value = "key")]
    out: PathBuf,
    /// Print the public key of an existing key file instead
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    public: Option<PathBuf>,
}

pub(crate) fn run(arguments: &KeygenArguments) -> anyhow::Result<u8> {
    let public = match &arguments.public {
        Some(path) => keys::read(path)?.public(),
        None => keys::generate(&arguments.out)?,
    };
    output::print(&format!("{public}\n"))?;
    Ok(0)
}
