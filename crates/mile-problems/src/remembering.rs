//! What agents remember from one gradient to the next, besides their vectors.

use std::collections::BTreeMap;

use crate::Objectives;
use crate::error::LabError;

/// Objectives whose gradients leave something behind that later losses or gradients depend on, such as the statistics of batch norms.
///
/// It is part of an agent's state: it starts from nothing with each job, and is written and restored with the vectors.
pub trait Remembering: Send + Sync {
    /// What an agent remembers now.
    ///
    /// # Errors
    /// If it cannot be put into bytes.
    fn memory(&self, agent: usize) -> Result<Vec<u8>, LabError>;

    /// Continues with what an agent remembered or, if that is nothing, as before its first gradient.
    ///
    /// # Errors
    /// If the bytes are not those of such objectives.
    fn recall(&self, agent: usize, memory: Option<&[u8]>) -> Result<(), LabError>;
}

/// What agents remember, by their numbers.
pub type Memories = BTreeMap<usize, Vec<u8>>;

/// What these agents remember now; nothing if their objectives do not remember.
///
/// # Errors
/// If it cannot be put into bytes.
pub fn memories(
    objectives: &dyn Objectives,
    agents: impl IntoIterator<Item = usize>,
) -> Result<Memories, LabError> {
    let Some(remembering) = objectives.remembering() else { return Ok(Memories::new()) };
    agents.into_iter().map(|agent| Ok((agent, remembering.memory(agent)?))).collect()
}

/// Lets these agents continue with what is in `memories`, or, without it, start from nothing.
///
/// # Errors
/// If the bytes are not those of such objectives, or if those of an agent are missing.
pub fn recall(
    objectives: &dyn Objectives,
    agents: impl IntoIterator<Item = usize>,
    memories: Option<&Memories>,
) -> Result<(), LabError> {
    let Some(remembering) = objectives.remembering() else { return Ok(()) };
    for agent in agents {
        let missing = || {
            let problem = format!(
                "these objectives remember something of agent {agent}, which its state does not have; it was written by a version that did not keep it: start the run over"
            );
            LabError::config("problem", problem)
        };
        let memory = memories.map(|memories| memories.get(&agent).ok_or_else(missing)).transpose()?;
        remembering.recall(agent, memory.map(Vec::as_slice))?;
    }
    Ok(())
}
