//! An exchange: neighbours' messages are added up, element by element, in increasing id.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mile::block;
use mile::real::Real;
use mile::steady::share;

use super::compressed::{self, Compressed};
use super::plausible::{Plausible, Unusable, check_finite, farthest};
use super::{Cursor, Millis, MissingPolicy, Piece, Protocol};
use crate::outbox::{Content, KeptMessage, Message, MessageForm};

/// The exchange under way.
pub(super) struct Current<T> {
    pub(super) own: Arc<Message<T>>,
    sums: Vec<Vec<T>>,
    dim: usize,
    /// Neighbours whose edge is used, in increasing id, each with the number of its elements in the sums.
    pub(super) row: Vec<(usize, usize)>,
    /// The beginning of each neighbour's message that must be known completely, as far as it has arrived.
    heads: BTreeMap<usize, Vec<T>>,
    /// How messages are read, if they are compressed.
    compressed: Option<Compressed<T>>,
    /// The weights of their edges.
    weights: BTreeMap<usize, f64>,
    /// Which elements are believed.
    pub(super) plausible: Plausible,
}

impl<T: Real> Current<T> {
    pub(super) fn total(&self) -> usize {
        self.own.vectors.len()
    }

    /// Elements at the beginning of a message that must be known before any is added up.
    fn head(&self) -> usize {
        match self.own.form {
            MessageForm::Whole | MessageForm::Compressed(_) => 0,
            MessageForm::Summary(head) => head,
            MessageForm::Robust(_) => self.total(),
        }
    }

    fn weight(&self, id: usize) -> f64 {
        self.weights.get(&id).copied().unwrap_or(0.0)
    }

    /// Adds a piece from the k-th neighbour to the sums, up to element `limit`; says whether the piece is used up.
    fn fold(&mut self, k: usize, piece: &Piece<T>, limit: usize) -> Result<bool, Unusable> {
        let (folded, total, weight) = (self.row[k].1, self.total(), self.weight(self.row[k].0));
        self.plausible.from(self.row[k].0);
        if piece.at.exchange > self.own.mark.exchange {
            return if folded < total { Err("a message is missing".into()) } else { Ok(false) };
        }
        let start = piece.at.offset as usize;
        let end = start + piece.elements.len();
        if end > total {
            return Err("a message is longer than the agreed dimension".into());
        }
        if start > folded {
            return Err("a message has a gap".into());
        }
        let to = end.min(limit);
        let message = |from: usize, elements: usize| &piece.elements[from - start..][..elements];
        if self.compressed.is_some() {
            if folded < to {
                self.fold_compressed(k, weight, message(folded, to - folded))?;
            }
            return Ok(self.row[k].1 >= end);
        }
        let head = self.head();
        if folded < to.min(head) {
            let known = self.heads.entry(self.row[k].0).or_default();
            known.truncate(folded);
            known.extend_from_slice(message(folded, to.min(head) - folded));
            match self.own.form {
                MessageForm::Robust(_) => {
                    self.plausible.check(0, &known[folded..], &self.own.vectors[folded..to])?
                }
                _ if to >= head => check_finite(&numbers(known))?,
                _ => {}
            }
        }
        if head == 0 {
            // All are checked before any is added.
            for (own, _, from) in pieces(&self.own.vectors, &mut self.sums, self.dim, folded, to) {
                self.plausible.check(from / self.dim, message(from, own.len()), own)?;
            }
            for (own, sum, from) in pieces(&self.own.vectors, &mut self.sums, self.dim, folded, to) {
                block::fold((weight, message(from, own.len())), own, sum, k == 0);
            }
        } else if folded.max(head) < to {
            let from = folded.max(head);
            self.plausible.check(0, message(from, to - from), &self.own.vectors[from..to])?;
            self.fold_steady(k, weight, message(from, to - from), from..to);
        }
        self.row[k].1 = folded.max(to);
        Ok(folded.max(to) >= end)
    }

    /// Adds what elements of the k-th neighbour's compressed message encode to the sum.
    fn fold_compressed(&mut self, k: usize, weight: f64, message: &[T]) -> Result<(), Unusable> {
        let Some(compressed) = &mut self.compressed else { return Ok(()) };
        let (id, folded) = self.row[k];
        let (plausible, sums, dim) = (&mut self.plausible, &mut self.sums, self.dim);
        let known = self.heads.entry(id).or_default();
        let add =
            |from: usize, both: [&[T]; 2]| compressed::add(plausible, sums, (weight, k == 0), from, both);
        let (folded, added) = compressed.fold(folded, message, known, &self.own.vectors, add, dim);
        self.row[k].1 = folded;
        added
    }

    /// Adds a part of the k-th neighbour's vector to both sums of an exchange that weighs differences; elements are counted from the
    /// beginning of the message.
    fn fold_steady(&mut self, k: usize, weight: f64, message: &[T], elements: Range<usize>) {
        let shares = self.shares(k + 1);
        let (own, head) = (&self.own.vectors[elements.clone()], self.head());
        let [to, steady] = &mut self.sums[..] else { return };
        let at = elements.start - head..elements.end - head;
        block::fold((weight, message), own, &mut to[at.clone()], k == 0);
        let weighted = weight * shares[k];
        // As everywhere, an edge of weight zero is left out.
        if weighted != 0.0 {
            let first = shares[..k].iter().all(|share| *share == 0.0);
            block::fold((weighted, message), own, &mut steady[at], first);
        } else if k == 0 {
            steady[at].fill(T::zero());
        }
    }

    /// The shares of the first neighbours, whose heads are here.
    fn shares(&self, count: usize) -> Vec<f64> {
        let own = self.own_summary();
        self.row[..count].iter().map(|(id, _)| share(&own, &numbers(&self.heads[id]))).collect()
    }

    /// Compares the messages of all neighbours, which are here, and adds up what is left of them.
    fn add_robust(&mut self) {
        let (MessageForm::Robust(by), [sum]) = (self.own.form, &mut self.sums[..]) else { return };
        let heard =
            self.row.iter().filter_map(|(id, _)| Some((*self.weights.get(id)?, &self.heads.get(id)?[..])));
        // As everywhere, an edge of weight zero is left out.
        let others: Vec<(f64, &[T])> = heard.filter(|(weight, _)| *weight != 0.0).collect();
        by.pull(&self.own.vectors, &others, sum);
    }

    fn own_summary(&self) -> Vec<f64> {
        numbers(&self.own.vectors[..self.head()])
    }
}

/// The numbers of a summary that was sent as elements of a message.
fn numbers<T: Real>(head: &[T]) -> Vec<f64> {
    bytemuck::pod_collect_to_vec(head)
}

/// An exchange that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished<T> {
    /// `sum_j w_ij (v_j - v_i)` for each vector.
    pub sums: Vec<Vec<T>>,
    /// The neighbours whose edge was used, in increasing id.
    pub used: Vec<usize>,
    /// Their [summaries](mile::steady), with their weights, if the messages had some.
    pub summaries: Vec<(f64, Vec<f64>)>,
    /// The gossip of the neighbours whose edge was used, with their weights, in increasing id.
    pub gossip: Vec<(f64, Vec<f64>)>,
}

impl<T: Real> Protocol<T> {
    /// Begins an exchange: the message is sent to the neighbours in `up`, each with the weight of its edge, and theirs are added up
    /// in `sums`, one for each vector of the message. If messages have a summary there is one vector, which is added up twice: with
    /// the weights, and with those times how steady its differences are. If they are compressed there is one vector.
    pub fn begin(&mut self, message: Message<T>, up: &[(usize, f64)], mut sums: Vec<Vec<T>>, now: Millis) {
        self.now = now;
        let (exchange, round) = (message.mark.exchange, message.mark.round);
        let weights: BTreeMap<usize, f64> = up.iter().copied().collect();
        let mut row: Vec<(usize, usize)> = Vec::with_capacity(up.len());
        for (id, neighbour) in self.neighbours.iter_mut().filter(|(id, _)| weights.contains_key(id)) {
            if self.on_missing != MissingPolicy::Wait && neighbour.decisions.get(round) == Some(false) {
                neighbour.skipped += 1;
            } else {
                row.push((*id, 0));
            }
        }
        sums.iter_mut().filter(|_| row.is_empty()).for_each(|sum| sum.fill(T::zero()));
        let own = Arc::new(message);
        if !row.is_empty() {
            let recipients = row.iter().map(|(id, _)| *id).collect();
            self.outbox.push(KeptMessage { content: Content::Memory(own.clone()), recipients });
        }
        let mut compressed = None;
        let (dim, sizes): (usize, Vec<f64>) = match own.form {
            MessageForm::Compressed(by) => {
                let dim = sums.first().map_or(0, Vec::len);
                let size = compressed.insert(Compressed::new(by, dim)).size(&own, dim);
                (dim, vec![size])
            }
            MessageForm::Summary(head) => {
                (own.vectors.len() / sums.len().max(1), vec![farthest(&own.vectors[head..], None)])
            }
            MessageForm::Whole | MessageForm::Robust(_) => {
                let dim = own.vectors.len() / sums.len().max(1);
                (dim, own.vectors.chunks(dim.max(1)).map(|own| farthest(own, None)).collect())
            }
        };
        let plausible = self.scales.begin(self.limits.range, sizes);
        let heads = BTreeMap::new();
        self.current = Some(Current { own, sums, dim, row, heads, compressed, weights, plausible });
        (self.next, self.round) = (exchange + 1, round);
        self.advance();
        self.tick(now);
    }

    /// An empty buffer for the next message.
    pub fn message_buffer(&mut self) -> Vec<T> {
        let mut buffer = self.outbox.spare();
        buffer.clear();
        buffer
    }

    /// The result of the exchange, if it is over.
    pub fn finish(&mut self) -> Option<Finished<T>> {
        let current = self.current.as_ref()?;
        let (mark, total) = (current.own.mark, current.total());
        let talks = !current.own.gossip.is_empty();
        let complete = |(id, folded): &(usize, usize)| {
            let agreed = self.on_missing == MissingPolicy::Wait
                || self.neighbours[id].decisions.get(mark.round) == Some(true);
            *folded == total && agreed && (!talks || self.has_gossip(*id, mark.exchange))
        };
        if self.unsaved || !current.row.iter().all(complete) {
            return None;
        }
        let owing = |(id, _): &(usize, usize)| self.owes_confirmation(*id, &self.neighbours[id]);
        if current.row.iter().any(owing) {
            return None;
        }
        let mut current = self.current.take()?;
        self.scales.end(&current.plausible);
        for (id, distance) in current.plausible.distances() {
            self.neighbours
                .get_mut(id)
                .into_iter()
                .for_each(|neighbour| neighbour.distance = Some(*distance));
        }
        if current.row.is_empty() {
            current.sums.iter_mut().for_each(|sum| sum.fill(T::zero()));
        }
        current.add_robust();
        let mut gossip = Vec::with_capacity(if talks { current.row.len() } else { 0 });
        for (id, _) in current.row.iter().filter(|_| talks) {
            if let Some(neighbour) = self.neighbours.get_mut(id) {
                let weight = current.weight(*id);
                gossip.extend(neighbour.gossip.remove(&mark.exchange).map(|numbers| (weight, numbers)));
            }
        }
        let used: Vec<usize> = current.row.iter().map(|(id, _)| *id).collect();
        let summarised = matches!(current.own.form, MessageForm::Summary(_));
        let heads = used.iter().filter(|_| summarised);
        let heads = heads.filter_map(|id| Some((current.weight(*id), current.heads.get(id)?)));
        let summaries = heads.map(|(weight, head)| (weight, numbers(head))).collect();
        Some(Finished { sums: current.sums, used, summaries, gossip })
    }

    /// Adds up what has arrived, as far as the order of agents allows, and decides about edges.
    pub(super) fn advance(&mut self) {
        loop {
            let refused = self.fold_pieces();
            if !self.refuse_messages(refused) && !self.skip_refused_edges() {
                break;
            }
        }
        self.decide_use();
    }

    /// Returns the neighbours whose message is not believed, each with the reason.
    fn fold_pieces(&mut self) -> Vec<(usize, String)> {
        self.drop_unneeded_pieces();
        let mut refused = Vec::new();
        let Some(current) = &mut self.current else { return refused };
        let mut limit = current.total();
        for k in 0..current.row.len() {
            let id = current.row[k].0;
            let Some(neighbour) = self.neighbours.get_mut(&id) else { continue };
            if let Some(link) = neighbour.link
                && let Some(state) = self.links.get_mut(&link)
                && let Some(piece) = &state.held
            {
                match current.fold(k, piece, limit) {
                    Ok(true) => self.spare.extend(state.held.take().map(|piece| piece.elements)),
                    Ok(false) => {}
                    Err(Unusable::Malformed(text)) => {
                        let given_up = neighbour.give_up(link, self.now, text.into());
                        self.links.remove(&link);
                        self.closing.push(given_up);
                    }
                    Err(Unusable::Implausible(why)) => refused.push((id, why)),
                }
            }
            limit = current.row[k].1;
        }
        refused
    }

    /// Drops pieces of exchanges that are over, and of edges that are not used in this one.
    fn drop_unneeded_pieces(&mut self) {
        let needed = |neighbour: usize, exchange: u64| match &self.current {
            Some(current) if exchange == current.own.mark.exchange => {
                current.row.iter().any(|(id, _)| *id == neighbour)
                    && !self
                        .neighbours
                        .get(&neighbour)
                        .is_some_and(|neighbour| neighbour.is_refused(exchange))
            }
            _ => exchange >= self.next,
        };
        for state in self.links.values_mut() {
            let idle = |piece: &mut Piece<T>| !needed(state.neighbour, piece.at.exchange);
            self.spare.extend(state.held.take_if(idle).map(|piece| piece.elements));
        }
    }

    /// What a neighbour is asked to send first: the rest of its message of this exchange, or its next one.
    pub(super) fn need(&self, neighbour: usize) -> Cursor {
        let Some(current) = &self.current else { return Cursor { exchange: self.next, offset: 0 } };
        let exchange = current.own.mark.exchange;
        match current.row.iter().find(|(id, _)| *id == neighbour) {
            // Gossip is sent only with the first piece.
            Some(_) if !current.own.gossip.is_empty() && !self.has_gossip(neighbour, exchange) => {
                Cursor { exchange, offset: 0 }
            }
            Some((_, folded)) => Cursor { exchange, offset: *folded as u64 },
            None => Cursor { exchange: exchange + 1, offset: 0 },
        }
    }

    fn has_gossip(&self, neighbour: usize, exchange: u64) -> bool {
        self.neighbours.get(&neighbour).is_some_and(|neighbour| neighbour.gossip.contains_key(&exchange))
    }
}

/// The parts of a flat message and of the sums between two of its elements, each with its first element's place.
fn pieces<'a, T>(
    own: &'a [T],
    sums: &'a mut [Vec<T>],
    dim: usize,
    from: usize,
    to: usize,
) -> impl Iterator<Item = (&'a [T], &'a mut [T], usize)> {
    sums.iter_mut().enumerate().filter_map(move |(k, sum)| {
        let (start, end) = (from.max(k * dim), to.min((k + 1) * dim));
        (start < end).then(|| (&own[start..end], &mut sum[start - k * dim..end - k * dim], start))
    })
}
