//! Messages that an agent has refused, in words.

use mile_net::status::{Neighbour, Status};

/// Whose messages an agent has refused, one line each.
pub(crate) fn refused_messages(status: &Status) -> Vec<String> {
    let refused = status.neighbours.iter().filter(|edge| edge.refused_messages > 0);
    let line = |edge: &Neighbour| {
        let (agent, Neighbour { id, refused_messages: count, skipped, .. }) = (status.agent, edge);
        let why = edge.refused_why.as_deref().unwrap_or_default();
        format!(
            "agent {agent} refused {count} messages of agent {id} and skipped their edge in {skipped} rounds; the last one: {why}"
        )
    };
    refused.map(line).collect()
}
