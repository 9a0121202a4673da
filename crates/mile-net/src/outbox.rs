//! An agent's own messages, kept for as long as somebody may ask for them.

use std::collections::VecDeque;
use std::sync::Arc;

use mile::real::Real;

use crate::hello::Mark;

/// What an agent says in one exchange: its vectors one after the other, and the numbers that go with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Message<T> {
    /// When.
    pub mark: Mark,
    /// The vectors, end to end.
    pub vectors: Vec<T>,
    /// Numbers of the [gossip](crate::gossip), if there is any.
    pub gossip: Vec<f64>,
}

/// A message and who may still ask for it.
#[derive(Debug, Clone)]
pub struct Kept<T> {
    /// The message.
    pub message: Arc<Message<T>>,
    /// Neighbours over whose edge it goes and who may not have it on disk yet.
    pub recipients: Vec<usize>,
}

/// Own messages in increasing exchange.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    kept: VecDeque<Kept<T>>,
    spare: Option<Vec<T>>,
}

impl<T: Real> Outbox<T> {
    pub(crate) fn new(kept: Vec<Kept<T>>) -> Self {
        Self { kept: kept.into(), spare: None }
    }

    pub(crate) fn push(&mut self, kept: Kept<T>) {
        self.kept.push_back(kept);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Kept<T>> {
        self.kept.iter()
    }

    /// The first message for a neighbour that is not before an exchange.
    pub(crate) fn first_for(&self, neighbour: usize, exchange: u64) -> Option<&Arc<Message<T>>> {
        let due =
            |kept: &&Kept<T>| kept.message.mark.exchange >= exchange && kept.recipients.contains(&neighbour);
        self.kept.iter().find(due).map(|kept| &kept.message)
    }

    /// A neighbour will not ask for what lies before an exchange.
    pub(crate) fn release(&mut self, neighbour: usize, before: u64) {
        self.retain(neighbour, |exchange| exchange >= before);
    }

    /// The edge to a neighbour is not used in a round after all.
    pub(crate) fn withdraw(&mut self, neighbour: usize, exchange: u64) {
        self.retain(neighbour, |other| other != exchange);
    }

    /// The memory of a message that nobody asks for any more, for the next one.
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
