//! Skipping an edge by agreement: one end decides, writes its decision to disk, then tells the other.

use std::collections::BTreeMap;

use mile::real::Real;

use super::{Fault, Link, LinkState, Millis, MissingPolicy, Protocol};
use crate::edge::{Decisions, RoundRange};
use crate::frame::{Kind, control};

impl<T: Real> Protocol<T> {
    /// Tells the session the time: edges of neighbours that have been away for too long are skipped.
    pub fn tick(&mut self, now: Millis) {
        self.now = now;
        let (MissingPolicy::Skip { after }, Some(current)) = (self.on_missing, &self.current) else { return };
        let round = current.own.mark.round;
        let away = |(id, _): &&(usize, usize)| {
            let neighbour = &self.neighbours[id];
            let alone = neighbour.link.is_none() && now.saturating_sub(neighbour.since) >= after;
            self.me < *id && alone && neighbour.decisions.get(round).is_none()
        };
        let gone: Vec<usize> = current.row.iter().filter(away).map(|(id, _)| *id).collect();
        if gone.is_empty() {
            return;
        }
        for id in gone {
            self.decide(id, round, false);
        }
        self.apply_decisions();
        self.advance();
    }

    /// Decides to use the edges whose messages both ends have accepted, and tells the ends that decide what was accepted here.
    pub(super) fn decide_use(&mut self) {
        let (MissingPolicy::Skip { .. }, Some(current)) = (self.on_missing, &self.current) else { return };
        let (mark, total) = (current.own.mark, current.total());
        let here: Vec<usize> =
            current.row.iter().filter(|(_, folded)| *folded == total).map(|(id, _)| *id).collect();
        for id in here {
            let Some(neighbour) = self.neighbours.get(&id) else { continue };
            if id < self.me {
                self.accept_message(id, mark.exchange);
            } else if neighbour.has_accepted(mark.exchange) && neighbour.decisions.get(mark.round).is_none() {
                self.decide(id, mark.round, true);
            }
        }
    }

    pub(super) fn decide(&mut self, id: usize, round: u64, used: bool) {
        if let Some(neighbour) = self.neighbours.get_mut(&id) {
            self.unsaved |= neighbour.decisions.add(RoundRange { from: round, to: round, used }).is_ok();
        }
    }

    /// Takes edges out of the exchange that were decided to be skipped.
    pub(super) fn apply_decisions(&mut self) {
        let Some(current) = &mut self.current else { return };
        let mark = current.own.mark;
        let mut again = false;
        let (neighbours, outbox) = (&mut self.neighbours, &mut self.outbox);
        current.row.retain(|(id, folded)| {
            let Some(neighbour) = neighbours.get_mut(id) else { return true };
            if neighbour.decisions.get(mark.round) != Some(false) {
                return true;
            }
            neighbour.skipped += 1;
            outbox.withdraw(*id, mark.exchange);
            again |= *folded > 0;
            false
        });
        if !again {
            return;
        }
        // Part of a skipped message is in the sums: all messages are asked for and added up again.
        current.plausible.again();
        for (id, folded) in &mut current.row {
            *folded = 0;
            if let Some(neighbour) = neighbours.get_mut(id).filter(|neighbour| neighbour.link.is_some()) {
                (neighbour.link, neighbour.since) = (None, self.now);
            }
        }
        // Also those whose handshake is under way: it says what was needed before.
        let stale =
            |_: &Link, state: &mut LinkState<T>| current.row.iter().any(|(id, _)| *id == state.neighbour);
        for (link, _) in self.links.extract_if(.., stale) {
            self.closing.push((link, Fault::Superseded("its message is needed again from the beginning")));
        }
    }

    /// Decisions that are not on disk yet, with all others; call [`decisions_saved`](Self::decisions_saved) when they are.
    pub fn unsaved_decisions(&self) -> Option<BTreeMap<usize, Decisions>> {
        self.unsaved.then(|| self.decisions())
    }

    /// The decisions are on disk: neighbours may be notified.
    pub fn decisions_saved(&mut self) {
        self.unsaved = false;
        let others: Vec<usize> = self.neighbours.range(self.me + 1..).map(|(id, _)| *id).collect();
        others.into_iter().for_each(|id| self.tell_decisions(id));
    }

    pub(super) fn decisions(&self) -> BTreeMap<usize, Decisions> {
        self.neighbours.iter().map(|(id, neighbour)| (*id, neighbour.decisions.clone())).collect()
    }

    pub(super) fn tell_decisions(&mut self, id: usize) {
        let Some(neighbour) = self.neighbours.get(&id) else { return };
        let Some(state) = neighbour.link.and_then(|link| self.links.get_mut(&link)) else { return };
        for range in neighbour.decisions.ranges().iter().filter(|range| range.to >= state.told) {
            let from = range.from.max(state.told);
            state.control.push_back(control(Kind::Decide, from, range.to, &[u8::from(range.used)]));
        }
        state.told = neighbour.decisions.ranges().last().map_or(state.told, |last| last.to + 1);
    }

    pub(super) fn forget_decisions(&mut self) {
        for neighbour in self.neighbours.values_mut() {
            let before = self.durable.round.min(neighbour.durable.round);
            neighbour.decisions.forget(before.saturating_sub(self.limits.keep));
        }
    }
}
