//! An agent's own messages, kept for as long as a neighbour may ask for them again.
//!
//! A message is in memory until it is part of a checkpoint. A large one is then read from there, so that an agent has at most the messages
//! of the rounds since its last checkpoint in memory, whatever its neighbours have confirmed.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use mile::compression::Compression;
use mile::real::Real;
use mile::robust::Robust;
use mile_store::{StateError, StoredVector};

use crate::handshake::Mark;

/// Bytes from which on a message is read from the checkpoint that has it, and its memory goes back to the system.
pub const LARGE: usize = 4 << 20;

/// How a message encodes an agent's vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MessageForm {
    /// Element by element.
    Whole,
    /// Element by element, after a [summary](mile::steady) of this many elements.
    Summary(usize),
    /// As the bytes of a [compressed](mile::compression) vector, in place of elements.
    Compressed(Compression),
    /// Element by element; the messages of all neighbours are compared by this rule before they are added up.
    Robust(Robust),
}

/// What an agent sends in one exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Message<T> {
    /// The exchange and round it belongs to.
    pub mark: Mark,
    /// The vectors, end to end, in this form.
    pub vectors: Vec<T>,
    /// How they are encoded.
    pub form: MessageForm,
    /// Numbers of the [gossip](crate::gossip); empty without gossip.
    pub gossip: Vec<f64>,
}

/// A message in a checkpoint, which is only sent again.
#[derive(Debug)]
pub struct StoredMessage {
    /// The exchange and round it belongs to.
    pub mark: Mark,
    /// The vectors, end to end, as they are sent.
    pub vectors: StoredVector,
    /// Numbers of the [gossip](crate::gossip); empty without gossip.
    pub gossip: Vec<f64>,
}

/// A message, wherever its elements are.
#[derive(Debug, Clone)]
pub enum Content<T> {
    /// In memory.
    Memory(Arc<Message<T>>),
    /// On disk.
    Disk(Arc<StoredMessage>),
}

impl<T: Real> Content<T> {
    /// The exchange and round it belongs to.
    pub fn mark(&self) -> Mark {
        match self {
            Self::Memory(message) => message.mark,
            Self::Disk(message) => message.mark,
        }
    }

    /// Its gossip.
    pub fn gossip(&self) -> &[f64] {
        match self {
            Self::Memory(message) => &message.gossip,
            Self::Disk(message) => &message.gossip,
        }
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        match self {
            Self::Memory(message) => message.vectors.len(),
            Self::Disk(message) => message.vectors.bytes() / size_of::<T>(),
        }
    }

    /// Some of its elements, which must exist.
    ///
    /// # Errors
    /// If they cannot be read from disk.
    pub fn read(&self, elements: Range<usize>) -> Result<Cow<'_, [T]>, StateError> {
        match self {
            Self::Memory(message) => Ok(Cow::Borrowed(&message.vectors[elements])),
            Self::Disk(message) => message.vectors.read(elements).map(Cow::Owned),
        }
    }
}

/// A message and the neighbours that may still ask for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeptMessage<T> {
    /// The message.
    pub content: Content<T>,
    /// Neighbours that it is sent to and that have not confirmed a later checkpoint.
    pub recipients: Vec<usize>,
}

/// Own messages in increasing exchange.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    kept: VecDeque<KeptMessage<T>>,
    /// Memory of messages that are no longer needed. Of large ones it goes back to the system.
    spare: Vec<Vec<T>>,
    /// Most messages there were.
    most: usize,
}

impl<T: Real> Outbox<T> {
    pub(crate) fn new(kept: Vec<KeptMessage<T>>) -> Self {
        Self { most: kept.len(), kept: kept.into(), spare: Vec::new() }
    }

    pub(crate) fn push(&mut self, kept: KeptMessage<T>) {
        self.kept.push_back(kept);
        self.most = self.most.max(self.kept.len());
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &KeptMessage<T>> {
        self.kept.iter()
    }

    /// The messages for a neighbour that are not before an exchange.
    fn messages_for(&self, neighbour: usize, exchange: u64) -> impl Iterator<Item = &Content<T>> {
        let first = self.kept.partition_point(|kept| kept.content.mark().exchange < exchange);
        let due = self.kept.range(first..).filter(move |kept| kept.recipients.contains(&neighbour));
        due.map(|kept| &kept.content)
    }

    /// The first of them.
    pub(crate) fn first_for(&self, neighbour: usize, exchange: u64) -> Option<&Content<T>> {
        self.messages_for(neighbour, exchange).next()
    }

    /// A neighbour has a checkpoint at a mark: it will ask for an earlier message only if it is restored from a copy that is up to
    /// `keep` rounds older.
    pub(crate) fn release(&mut self, neighbour: usize, durable: Mark, keep: u64) {
        self.retain(neighbour, |mark| {
            mark.exchange >= durable.exchange || mark.round.saturating_add(keep) >= durable.round
        });
    }

    /// In how many rounds a neighbour was sent something that it has not confirmed.
    pub(crate) fn unconfirmed_rounds(&self, neighbour: usize, durable: Mark) -> u64 {
        let mut last = None;
        let mut count = 0;
        for round in self.messages_for(neighbour, durable.exchange).map(|message| message.mark().round) {
            count += u64::from(last.replace(round) != Some(round));
        }
        count
    }

    /// The edge to a neighbour is not used in an exchange after all.
    pub(crate) fn withdraw(&mut self, neighbour: usize, exchange: u64) {
        self.retain(neighbour, |mark| mark.exchange != exchange);
    }

    /// A message is on disk, and its memory is no longer needed.
    pub(crate) fn stored(&mut self, message: &Arc<StoredMessage>) {
        for kept in self.kept.iter_mut().filter(|kept| kept.content.mark() == message.mark) {
            kept.content = Content::Disk(message.clone());
        }
    }

    /// A neighbour will not ask for messages again.
    pub(crate) fn forget(&mut self, neighbour: usize) {
        self.retain(neighbour, |_| false);
    }

    /// The memory of a message that is no longer needed, for the next one.
    pub(crate) fn spare(&mut self) -> Vec<T> {
        self.spare.pop().unwrap_or_default()
    }

    fn retain(&mut self, neighbour: usize, wanted: impl Fn(Mark) -> bool) {
        for kept in &mut self.kept {
            let mark = kept.content.mark();
            kept.recipients.retain(|id| *id != neighbour || wanted(mark));
        }
        while let Some(spent) = self.kept.pop_front_if(|kept| kept.recipients.is_empty()) {
            // As many as there were before will be needed again: new pages cost as much as copying the message.
            if let Content::Memory(message) = spent.content
                && size_of_val(&message.vectors[..]) < LARGE
                && self.kept.len() + self.spare.len() < self.most
            {
                self.spare.extend(Arc::into_inner(message).map(|message| message.vectors));
            }
        }
        self.kept.retain(|kept| !kept.recipients.is_empty());
    }
}
