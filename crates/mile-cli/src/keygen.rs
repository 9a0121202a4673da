//! `mile keygen`: an agent's key, and the token of its page.

use std::path::PathBuf;

use clap::Args;
use mile_net::keys;

use crate::network_view::token;
use crate::output;

/// Writes a secret key to a file that only its owner can read, and prints the public key that neighbours list.
#[derive(Args)]
pub(crate) struct KeygenArguments {
    /// Key file to write; an existing file is never overwritten
    #[arg(long, value_name = "FILE", default_value = "key")]
    out: PathBuf,
    /// Print the public key of this existing key file, and generate nothing
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    public: Option<PathBuf>,
    /// Write a token to this file, for the page that an agent serves to its operator (agent.page_token), and generate no key
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "public"])]
    token: Option<PathBuf>,
}

pub(crate) fn run(arguments: &KeygenArguments) -> anyhow::Result<u8> {
    if let Some(path) = &arguments.token {
        token::generate(path)?;
        return Ok(0);
    }
    let public = match &arguments.public {
        Some(path) => keys::read(path)?.public(),
        None => keys::generate(&arguments.out)?,
    };
    output::print(&format!("{public}\n"))?;
    Ok(0)
}
