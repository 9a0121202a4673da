//! Which elements of a message are believed: finite ones, and none much farther from this agent's own than anything seen so far.
//!
//! The scale is the largest of 1, of the moduli of this agent's own elements and of the differences that it has accepted in earlier
//! exchanges. It is a function of the run, so a restarted agent judges a message as it did before: the check takes elements one by one,
//! whatever pieces they come in, and what was seen is part of the checkpoint.

use std::collections::BTreeMap;

use mile::real::Real;

/// How far the elements of messages may be from the agent's own: this many times the scale, unless a session is told otherwise. A model
/// that grows by this factor counts as diverged.
pub const MESSAGE_RANGE: f64 = 1e8;

/// What was seen in earlier exchanges: the scale of each vector of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scales(pub(super) Vec<f64>);

/// What is believed in one exchange.
pub(super) struct Plausible {
    /// The largest difference, for each vector of a message.
    limits: Vec<f64>,
    /// The largest that was accepted.
    largest: Vec<f64>,
    /// The neighbour whose elements are checked, and the largest difference of each.
    sender: usize,
    distances: BTreeMap<usize, f64>,
}

/// Why a piece is not added up.
pub(super) enum Unusable {
    /// It breaks the protocol.
    Malformed(&'static str),
    /// Its elements are not believed.
    Implausible(String),
}

impl From<&'static str> for Unusable {
    fn from(what: &'static str) -> Self {
        Self::Malformed(what)
    }
}

impl From<String> for Unusable {
    fn from(what: String) -> Self {
        Self::Implausible(what)
    }
}

impl Scales {
    /// Takes in how far the agent's own vectors of an exchange that begins are from zero.
    pub(super) fn begin(&mut self, range: f64, own: Vec<f64>) -> Plausible {
        let mut limits = Vec::with_capacity(own.len());
        for (k, size) in own.into_iter().enumerate() {
            if self.0.len() <= k {
                self.0.push(1.0);
            }
            self.note(k, size);
            // An agent that is not finite itself cannot say who is far away.
            limits.push(if size.is_finite() { range * self.0[k] } else { f64::INFINITY });
        }
        let (largest, distances) = (vec![0.0; limits.len()], BTreeMap::new());
        Plausible { largest, limits, sender: usize::MAX, distances }
    }

    /// Takes in what was accepted in an exchange that is over.
    pub(super) fn end(&mut self, plausible: &Plausible) {
        plausible.largest.iter().enumerate().for_each(|(k, largest)| self.note(k, *largest));
    }

    fn note(&mut self, k: usize, size: f64) {
        if let Some(scale) = self.0.get_mut(k).filter(|scale| size.is_finite() && size > **scale) {
            *scale = size;
        }
    }
}

impl Plausible {
    /// From now on, elements are those of this neighbour.
    pub(super) fn from(&mut self, sender: usize) {
        self.sender = sender;
    }

    /// How far the accepted elements of each neighbour are from the agent's own, at most.
    pub(super) fn distances(&self) -> &BTreeMap<usize, f64> {
        &self.distances
    }

    /// Checks elements of a neighbour's k-th vector against the agent's own. An error says what is wrong with them.
    pub(super) fn check<T: Real>(&mut self, k: usize, message: &[T], own: &[T]) -> Result<(), String> {
        let limit = self.limits[k];
        if limit.is_infinite() {
            return check_finite(message);
        }
        let far = farthest(message, Some(own));
        if far <= limit {
            self.largest[k] = self.largest[k].max(far);
            let distance = self.distances.entry(self.sender).or_default();
            *distance = distance.max(far);
            return Ok(());
        }
        check_finite(message)?;
        Err(format!(
            "an element is {far:.0e} away from this agent's own, and at most {limit:.0e} is believed (agent.message_range)"
        ))
    }

    /// Forgets what was accepted: all messages of the exchange are needed again.
    pub(super) fn again(&mut self) {
        self.largest.fill(0.0);
        self.distances.clear();
    }
}

/// Checks that all elements are numbers.
pub(super) fn check_finite<T: Real>(elements: &[T]) -> Result<(), String> {
    match elements.iter().find(|element| !element.is_finite()) {
        Some(element) => Err(format!("an element is {element}")),
        None => Ok(()),
    }
}

/// The largest distance of elements from their origin, or from zero; infinite if one is not finite.
pub(super) fn farthest<T: Real>(elements: &[T], origin: Option<&[T]>) -> f64 {
    // Lanes without a dependence on each other, which a compiler turns into vectors.
    const LANES: usize = 16;
    let (mut most, mut finite) = ([T::zero(); LANES], [true; LANES]);
    let mut take = |lane: usize, distance: T| {
        finite[lane] &= distance < T::infinity();
        most[lane] = if distance > most[lane] { distance } else { most[lane] };
    };
    match origin {
        None => elements.chunks(LANES).for_each(|chunk| {
            chunk.iter().enumerate().for_each(|(lane, element)| take(lane, element.abs()));
        }),
        Some(origin) => elements.chunks(LANES).zip(origin.chunks(LANES)).for_each(|(chunk, from)| {
            let pairs = chunk.iter().zip(from).enumerate();
            pairs.for_each(|(lane, (element, from))| take(lane, (*element - *from).abs()));
        }),
    }
    if finite.contains(&false) {
        return f64::INFINITY;
    }
    most.iter().fold(0.0, |largest, lane| largest.max(lane.wide()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(scales: &mut Scales, own: &[f32]) -> Plausible {
        scales.begin(100.0, vec![farthest(own, None)])
    }

    #[test]
    fn what_is_not_finite_or_far_outside_what_was_seen_is_refused_and_the_scale_grows_with_what_was_accepted()
    {
        let (mut scales, own) = (Scales::default(), [0.5f32; 40]);
        let mut now = begin(&mut scales, &own);
        let with = |place: usize, value: f32| {
            let mut message = own;
            message[place] = value;
            message
        };
        for place in [0, 15, 16, 39] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, f32::MAX, 101.0] {
                assert!(now.check(0, &with(place, bad), &own).is_err(), "{bad} at {place}");
            }
        }
        now.from(4);
        now.check(0, &with(3, 80.0), &own).unwrap();
        now.from(7);
        now.check(0, &with(3, 100.5), &own).unwrap();
        now.check(0, &with(2, 1.0), &own).unwrap();
        assert_eq!(*now.distances(), BTreeMap::from([(4, 79.5), (7, 100.0)]));
        assert!(now.check(0, &with(3, 1000.0), &own).is_err(), "the scale grows between exchanges only");
        scales.end(&now);
        let mut next = begin(&mut scales, &own);
        next.check(0, &with(3, 1000.0), &own).unwrap();
        assert!(next.check(0, &with(3, 20_000.0), &own).is_err());
        next.again();
        scales.end(&next);
        assert_eq!(scales.0, [100.0], "what is needed again has not been accepted");
    }

    #[test]
    fn an_agent_that_is_not_finite_itself_refuses_only_what_is_not() {
        let mut scales = Scales::default();
        let own = [f32::NAN, 1.0];
        let mut now = begin(&mut scales, &own);
        now.check(0, &[1.0, 1e30], &own).unwrap();
        assert!(now.check(0, &[1.0, f32::NAN], &own).is_err());
        assert_eq!(scales.0, [1.0]);
    }
}
