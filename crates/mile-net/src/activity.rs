//! What an agent is doing, and what it waits for.

use serde::{Deserialize, Serialize};

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It does local steps, or writes a checkpoint.
    Computing,
    /// It waits for neighbours in an exchange.
    Waiting,
    /// Its work is done; it stays until its neighbours have confirmed its last message.
    Leaving,
    /// It has ended, with its work done.
    Done,
}

/// What is awaited from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// Its message, or the rest of it.
    Message,
    /// Its decision whether the edge is used in this round.
    Decision,
    /// Its confirmation that the last message is part of a checkpoint.
    Confirmation,
    /// Its return, so that it learns that its own last message is part of a checkpoint.
    Farewell,
}
