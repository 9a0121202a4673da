//! What an agent that leaves notes on its disk, so that after a restart it does not wait for neighbours that need nothing more from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mile_store::{StateError, StateFile};
use serde::{Deserialize, Serialize};

use crate::handshake::Mark;

/// The name of the file.
pub const FAREWELL: &str = "farewell.safetensors";

/// How far an agent was when it left, and what it knew of its neighbours then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Farewell {
    /// Its last checkpoint.
    pub mark: Mark,
    /// The latest checkpoint that each neighbour had confirmed.
    pub known: BTreeMap<usize, Mark>,
    /// Neighbours whose link ended cleanly: they knew that this agent was about to leave, and what it had confirmed.
    pub parted: BTreeSet<usize>,
}

impl Farewell {
    /// The one in a folder, if there is one. A damaged one is ignored: the agent waits for its neighbours again.
    pub fn read(folder: &Path) -> Option<Self> {
        let file = StateFile::open(&folder.join(FAREWELL)).ok().flatten();
        file.map(|file| file.header)
    }

    /// Writes it to a folder.
    pub fn write(&self, folder: &Path) -> Result<(), StateError> {
        mile_store::state::write(&folder.join(FAREWELL), self, &[])
    }
}

/// Removes what an earlier run has left in a folder.
pub fn forget(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(folder.join(FAREWELL)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
