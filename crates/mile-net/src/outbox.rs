//! An agent's own messages, kept for as long as a neighbour may ask for them again.

use std::collections::VecDeque;
use std::sync::Arc;

use mile::real::Real;

use crate::handshake::Mark;

/// What an agent sends in one exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Message<T> {
    /// The exchange and round it belongs to.
    pub mark: Mark,
    /// The vectors, end to end.
    pub vectors: Vec<T>,
    /// Numbers of the [gossip](crate::gossip); empty without gossip.
    pub gossip: Vec<f64>,
}

/// A message and the neighbours that may still ask for it.
#[derive(Debug, Clone)]
pub struct KeptMessage<T> {
    /// The message.
    pub message: Arc<Message<T>>,
    /// Neighbours that it is sent to and that have not confirmed a later checkpoint.
    pub recipients: Vec<usize>,
}

/// Own messages in increasing exchange.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    kept: VecDeque<KeptMessage<T>>,
    spare: Option<Vec<T>>,
}

impl<T: Real> Outbox<T> {
    pub(crate) fn new(kept: Vec<KeptMessage<T>>) -> Self {
        Self { kept: kept.into(), spare: None }
    }

    pub(crate) fn push(&mut self, kept: KeptMessage<T>) {
        self.kept.push_back(kept);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &KeptMessage<T>> {
        self.kept.iter()
    }

    /// The first message for a neighbour that is not before an exchange.
    pub(crate) fn first_for(&self, neighbour: usize, exchange: u64) -> Option<&Arc<Message<T>>> {
        let due = |kept: &&KeptMessage<T>| {
            kept.message.mark.exchange >= exchange && kept.recipients.contains(&neighbour)
        };
        self.kept.iter().find(due).map(|kept| &kept.message)
    }

    /// A neighbour will not ask for messages before an exchange.
    pub(crate) fn release(&mut self, neighbour: usize, before: u64) {
        self.retain(neighbour, |exchange| exchange >= before);
    }

    /// The edge to a neighbour is not used in an exchange after all.
    pub(crate) fn withdraw(&mut self, neighbour: usize, exchange: u64) {
        self.retain(neighbour, |other| other != exchange);
    }

    /// The memory of a message that nobody needs any more, for the next one.
    pub(crate) fn spare(&mut self) -> Vec<T> {
        self.spare.take().unwrap_or_default()
    }

    fn retain(&mut self, neighbour: usize, wanted: impl Fn(u64) -> bool) {
        for kept in &mut self.kept {
            let exchange = kept.message.mark.exchange;
            kept.recipients.retain(|id| *id != neighbour || wanted(exchange));
        }
        while let Some(spent) = self.kept.pop_front_if(|kept| kept.recipients.is_empty()) {
            self.spare = Arc::into_inner(spent.message).map(|message| message.vectors).or(self.spare.take());
        }
        self.kept.retain(|kept| !kept.recipients.is_empty());
    }
}
