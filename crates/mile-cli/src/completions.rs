//! `mile completions` and `mile man`: texts for shells and manuals, generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{Arguments, output};

/// A completion script for a shell.
#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "mile", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// Manual pages.
#[derive(Args)]
pub(crate) struct ManArguments {
    /// Write mile.1 and a page for each command, such as mile-run.1, to this folder [default: print mile.1]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn man(arguments: &ManArguments) -> anyhow::Result<u8> {
    let Some(folder) = &arguments.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
        output::print(&String::from_utf8_lossy(&page))?;
        return Ok(0);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    clap_mangen::generate_to(Arguments::command(), folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    output::print(&format!("{}\n", folder.display()))?;
    Ok(0)
}
