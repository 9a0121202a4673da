//! Outages that last for several rounds: bursts of loss on an edge (the model of Gilbert and Elliott), and agents that come and go.
//!
//! Each edge, or agent, has a two-state Markov chain over rounds. A chain has a history, but nothing is kept of it: one number drawn for
//! each round moves the chain from either state, some numbers move both states to the same one, and going back from any round to the
//! last such number gives the state there. So it is a function of (seed, edge, round) like every other random choice, known to both ends of
//! an edge. A chain has its stationary distribution in round 0, and therefore in all rounds.

use rand::RngExt;

use crate::random::{Purpose, stream};

/// Rounds whose numbers come from one stream.
const BLOCK: u64 = 64;

/// A two-state Markov chain over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outages {
    begin: f64,
    end: f64,
}

/// Bursts of loss on an edge: Gilbert's model, and with a drop rate outside bursts that of Gilbert and Elliott.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bursts {
    /// When bursts begin and end.
    pub during: Outages,
    /// The probability that a round within a burst is lost.
    pub loss: f64,
}

/// A probability of an outage that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{key}: expected {expected}, got {got}")]
#[non_exhaustive]
pub struct InvalidOutage {
    /// Its name in experiment files.
    pub key: &'static str,
    /// The value given.
    pub got: f64,
    /// The values allowed.
    pub expected: &'static str,
}

impl Outages {
    /// Outages that begin, and end, with these probabilities in a round. The mean length of an outage is `1/end` rounds, and of the time
    /// between two `1/begin`.
    ///
    /// ```
    /// let away = mile::outages::Outages::new(0.25, 0.75)?;
    /// assert_eq!(away.share(), 0.25);
    /// # Ok::<(), mile::outages::InvalidOutage>(())
    /// ```
    pub fn new(begin: f64, end: f64) -> Result<Self, InvalidOutage> {
        if !(begin > 0.0 && begin < 1.0) {
            return Err(InvalidOutage { key: "begin", got: begin, expected: "a probability in (0, 1)" });
        }
        if !(end > 0.0 && end <= 1.0) {
            return Err(InvalidOutage { key: "end", got: end, expected: "a probability in (0, 1]" });
        }
        Ok(Self { begin, end })
    }

    /// The probability that an outage begins.
    pub fn begin(&self) -> f64 {
        self.begin
    }

    /// The probability that it ends.
    pub fn end(&self) -> f64 {
        self.end
    }

    /// The share of rounds that are within an outage.
    pub fn share(&self) -> f64 {
        self.begin / (self.begin + self.end)
    }

    /// Whether a round is within an outage.
    pub(crate) fn is_out(&self, seed: u64, purpose: Purpose, index: u64, round: u64) -> bool {
        let (mut block, mut rounds) = (round / BLOCK, round % BLOCK + 1);
        // Whether the state is the opposite of that at the round we have gone back to.
        let mut turned = false;
        loop {
            let mut random = stream(seed, purpose, index, block);
            let mut numbers = [0.0; BLOCK as usize];
            let numbers = &mut numbers[..rounds as usize];
            numbers.fill_with(|| random.random::<f64>());
            for (k, number) in numbers.iter().enumerate().rev() {
                if block == 0 && k == 0 {
                    return (*number < self.share()) != turned;
                }
                match (*number < self.begin, *number < 1.0 - self.end) {
                    (out, stays) if out == stays => return out != turned,
                    (begins, _) => turned ^= begins,
                }
            }
            (block, rounds) = (block - 1, BLOCK);
        }
    }
}

impl Bursts {
    /// Bursts during these outages, in which a round is lost with a probability in (0, 1].
    pub fn new(during: Outages, loss: f64) -> Result<Self, InvalidOutage> {
        if !(loss > 0.0 && loss <= 1.0) {
            return Err(InvalidOutage { key: "loss", got: loss, expected: "a probability in (0, 1]" });
        }
        Ok(Self { during, loss })
    }

    /// The share of rounds that bursts lose.
    pub fn share(&self) -> f64 {
        self.during.share() * self.loss
    }

    /// Whether a burst loses a round on an edge.
    pub(crate) fn lose(&self, seed: u64, edge: u64, round: u64) -> bool {
        let lost =
            || self.loss == 1.0 || stream(seed, Purpose::LossInBurst, edge, round).random_bool(self.loss);
        self.during.is_out(seed, Purpose::Burst, edge, round) && lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same numbers, and a chain that is walked from round 0.
    fn walked(outages: &Outages, seed: u64, index: u64, rounds: u64) -> Vec<bool> {
        let mut states = Vec::new();
        for round in 0..rounds {
            let mut random = stream(seed, Purpose::Burst, index, round / BLOCK);
            let number = (0..=round % BLOCK).map(|_| random.random::<f64>()).last().unwrap();
            states.push(match states.last() {
                None => number < outages.begin / (outages.begin + outages.end),
                Some(true) => number < 1.0 - outages.end,
                Some(false) => number < outages.begin,
            });
        }
        states
    }

    #[test]
    fn a_state_asked_for_is_that_of_the_chain_walked_from_the_start() {
        for (begin, end) in [(0.01, 0.2), (0.002, 0.005), (0.5, 0.5), (0.9, 0.7), (0.999, 1.0), (1e-9, 1e-9)]
        {
            let outages = Outages::new(begin, end).unwrap();
            for (seed, index) in [(0, 0), (7, 3)] {
                let chain = walked(&outages, seed, index, 400);
                let asked: Vec<bool> =
                    (0..400).map(|round| outages.is_out(seed, Purpose::Burst, index, round)).collect();
                assert_eq!(asked, chain, "begin {begin}, end {end}");
            }
        }
    }

    #[test]
    fn outages_have_their_share_of_all_rounds_and_their_mean_length() {
        for (begin, end) in [(0.02, 0.1), (0.6, 0.8)] {
            let outages = Outages::new(begin, end).unwrap();
            let (mut out, mut begun, chains, rounds) = (0, 0, 200, 400);
            for index in 0..chains {
                let states: Vec<bool> =
                    (0..rounds).map(|round| outages.is_out(1, Purpose::Absence, index, round)).collect();
                out += states.iter().filter(|out| **out).count();
                begun += states.windows(2).filter(|pair| !pair[0] && pair[1]).count();
            }
            let share = out as f64 / (chains * rounds) as f64;
            assert!((share - begin / (begin + end)).abs() < 0.02, "{share}");
            let length = out as f64 / begun as f64;
            assert!((length * end - 1.0).abs() < 0.1, "{length}");
        }
    }

    #[test]
    fn bursts_lose_their_share_of_the_rounds_within_them() {
        let bursts = Bursts::new(Outages::new(0.1, 0.3).unwrap(), 0.5).unwrap();
        let (rounds, edges) = (1000, 40);
        let lost = (0..edges).flat_map(|edge| (0..rounds).map(move |round| (edge, round)));
        let lost = lost.filter(|(edge, round)| bursts.lose(2, *edge, *round));
        let mut count = 0;
        for (edge, round) in lost {
            assert!(bursts.during.is_out(2, Purpose::Burst, edge, round));
            count += 1;
        }
        let share = f64::from(count) / (rounds * edges) as f64;
        assert!((share - 0.125).abs() < 0.01, "{share}");
    }

    #[test]
    fn probabilities_out_of_range_are_refused_by_name() {
        let key = |begin, end| Outages::new(begin, end).unwrap_err().key;
        assert_eq!((key(0.0, 0.5), key(1.0, 0.5), key(f64::NAN, 0.5)), ("begin", "begin", "begin"));
        assert_eq!((key(0.5, 0.0), key(0.5, 1.1)), ("end", "end"));
        let during = Outages::new(0.5, 1.0).unwrap();
        assert_eq!(Bursts::new(during, 0.0).unwrap_err().key, "loss");
        assert!(Bursts::new(during, 1.0).is_ok());
    }
}
