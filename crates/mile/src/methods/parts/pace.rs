//! The pace: how many local steps agents make in a round, and in which steps they exchange.
//!
//! Rounds are common, and as long as the largest number of local steps tau. An agent with its own number tau_i waits while the others make
//! tau - tau_i steps, and then makes its own:
//!
//! ```text
//! tau - tau_i times:  the agent does nothing
//! tau_i times:        a local step
//! exchange, with all others
//! ```
//!
//! So every agent takes part in the step of the exchange, and what a method does before the first local step of a round and in the exchange is done
//! by all. Waiting draws no samples and does not count in an optimiser's bias correction: each agent has its own time, the number of
//! steps it has made.

use std::sync::Arc;

use crate::agents::{AgentsError, Step};
use crate::method::{Checker, InvalidParameter};

/// When agents step and exchange.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::methods) struct Pace {
    /// Steps of a round.
    most: u64,
    /// Steps before the first round: 1 if the first exchange comes with step 0.
    lead: u64,
    /// The agents' numbers of local steps, where they differ.
    own: Option<Arc<[u64]>>,
    /// The different ones among these, in increasing order.
    kinds: Vec<u64>,
}

impl Pace {
    /// Rounds of this many steps, the last of which exchanges.
    pub(in crate::methods) fn new(check: Checker<'_>, most: u64) -> Result<Self, InvalidParameter> {
        let most = check.at_least_one("local_steps", most)?;
        Ok(Self { most, lead: 0, own: None, kinds: Vec::new() })
    }

    /// The same after an exchange in step 0.
    pub(in crate::methods) fn after_an_exchange(self) -> Self {
        Self { lead: 1, ..self }
    }

    /// The same with a separate number of local steps for each agent, if given.
    pub(in crate::methods) fn with_own(
        mut self,
        check: Checker<'_>,
        own: Option<&[u64]>,
    ) -> Result<Self, InvalidParameter> {
        let Some(own) = own else { return Ok(self) };
        let mut kinds = own.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.first() == Some(&0) || kinds.last() != Some(&self.most) {
            let expected = format!("numbers from 1 on, of which {} is the largest", self.most);
            return Err(check.refuse("local_steps", format!("{own:?}"), expected));
        }
        if kinds.len() > 1 {
            (self.own, self.kinds) = (Some(own.into()), kinds);
        }
        Ok(self)
    }

    /// The largest number of local steps.
    pub(in crate::methods) fn most(&self) -> u64 {
        self.most
    }

    /// For [`Method::own_steps`](crate::method::Method::own_steps).
    pub(in crate::methods) fn own(&self) -> Option<&[u64]> {
        self.own.as_deref()
    }

    /// Whether a round begins with step t.
    pub(in crate::methods) fn begins(&self, t: u64) -> bool {
        t.checked_sub(self.lead).is_some_and(|since| since.is_multiple_of(self.most))
    }

    /// Whether agents exchange in step t.
    pub(in crate::methods) fn exchanges(&self, t: u64) -> bool {
        (t + 1 - self.lead).is_multiple_of(self.most)
    }

    /// The own time in step t of an agent with this many local steps, unless it waits.
    fn own_time(&self, t: u64, own: u64) -> Option<u64> {
        let Some(since) = t.checked_sub(self.lead) else { return Some(t) };
        let (rounds, place) = (since / self.most, since % self.most);
        Some(self.lead + rounds * own + place.checked_sub(self.most - own)?)
    }

    /// Work of the agents that do not wait, which gets their own time and number of local steps: once if all agents have the same.
    pub(in crate::methods) fn each(
        &self,
        s: &mut Step,
        work: impl Fn(&mut Step, u64, u64) -> Result<(), AgentsError>,
    ) -> Result<(), AgentsError> {
        if self.kinds.is_empty() {
            return work(s, s.t, self.most);
        }
        for &own in &self.kinds {
            if let Some(t) = self.own_time(s.t, own) {
                s.only(own, t, |s| work(s, t, own))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_make_their_own_steps_before_each_exchange() {
        let pace = |own: &[u64]| {
            Pace::new(Checker("test"), 4).unwrap().with_own(Checker("test"), Some(own)).unwrap()
        };
        let times = |pace: &Pace, own| (0..13).map(|t| pace.own_time(t, own)).collect::<Vec<_>>();
        let at_the_end = pace(&[4, 1, 3, 1]);
        assert_eq!(at_the_end.kinds, [1, 3, 4]);
        let exchanges = |pace: &Pace| (0..13).filter(|t| pace.exchanges(*t)).collect::<Vec<u64>>();
        let begins = |pace: &Pace| (0..13).filter(|t| pace.begins(*t)).collect::<Vec<u64>>();
        assert_eq!((exchanges(&at_the_end), begins(&at_the_end)), (vec![3, 7, 11], vec![0, 4, 8, 12]));
        let (one, three) = (times(&at_the_end, 1), times(&at_the_end, 3));
        assert_eq!(
            one,
            [None, None, None, Some(0), None, None, None, Some(1), None, None, None, Some(2), None]
        );
        assert_eq!(three.iter().flatten().copied().collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
        assert_eq!(times(&at_the_end, 4), (0..13).map(Some).collect::<Vec<_>>());
        let lead = at_the_end.after_an_exchange();
        assert_eq!((exchanges(&lead), begins(&lead)), (vec![0, 4, 8, 12], vec![1, 5, 9]));
        let one = times(&lead, 1);
        assert_eq!(
            one,
            [Some(0), None, None, None, Some(1), None, None, None, Some(2), None, None, None, Some(3)]
        );
        assert_eq!(times(&lead, 4), (0..13).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn equal_numbers_are_nobodys_own_and_others_must_fit() {
        let pace = |own: &[u64]| Pace::new(Checker("test"), 4).unwrap().with_own(Checker("test"), Some(own));
        assert_eq!(pace(&[4, 4, 4]).unwrap(), Pace::new(Checker("test"), 4).unwrap());
        for bad in [&[4, 0][..], &[3, 2], &[5, 4], &[]] {
            assert_eq!(pace(bad).unwrap_err().parameter, "local_steps");
        }
    }
}
