//! How this program is started again: the agents of a swarm are processes of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

/// An executable file, and the arguments that make it this command.
#[derive(Clone, Debug, Default)]
pub struct Program {
    executable: Option<PathBuf>,
    arguments: Vec<OsString>,
}

impl Program {
    /// The executable file of this process, without arguments.
    pub fn this() -> Self {
        Self::default()
    }

    /// An interpreter that runs this command, such as `python -m mile`.
    pub fn interpreted(executable: PathBuf, arguments: Vec<OsString>) -> Self {
        Self { executable: Some(executable), arguments }
    }

    /// Python: the interpreter that runs this command, or the one on the path.
    pub(crate) fn python(&self) -> Command {
        Command::new(self.executable.clone().unwrap_or_else(|| PathBuf::from("python3")))
    }

    /// The command, to which its own arguments are added.
    pub(crate) fn again(&self) -> anyhow::Result<Command> {
        let executable = match &self.executable {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("cannot find the path of this program")?,
        };
        let mut command = Command::new(executable);
        command.args(&self.arguments);
        Ok(command)
    }
}
