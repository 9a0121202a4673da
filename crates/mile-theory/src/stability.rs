//! The stable step sizes of a method, from its own code.
//!
//! A method is stable with step size alpha on a graph, for curvatures in (0, L], if every mode with
//! `a = alpha h <= alpha L` and every eigenvalue lambda of W shrinks. That is exact for quadratics in which all
//! agents have the same Hessian. Different Hessians couple the modes, and then it is not a proof.
//!
//! Negative curvature: along a direction with h < 0 every method, gradient descent included, moves away
//! from the saddle point, as it should. [`saddle_excess`] says whether the disagreement between agents grows faster
//! there than their average, which would be an instability of the method.

use mile::method::{InvalidParameter, Method};
use mile::spectrum::Spectrum;
use serde::Serialize;

use crate::modes::Modes;
use crate::{TheoryError, valid_smoothness, valid_step_size};

/// Most eigenvalues of W that are used; of a larger spectrum a selection of this size, with both ends.
pub const MODES: usize = 25;
/// A mode counts as growing if its growth per round is above this, which allows for rounding near 1.
const GROWS: f64 = 1.0 + 1e-9;
/// Smallest and largest a = alpha h of the scan; the limit of gradient descent is 2.
const SCAN_RANGE: (f64, f64) = (1e-5, 4.0);
/// Number of points of the scan, on a logarithmic scale.
const SCAN_POINTS: usize = 56;

/// The largest stable step size of a method.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepLimit {
    /// Largest alpha L for which every mode shrinks; 0 if some mode grows for every step size.
    pub step_times_smoothness: f64,
    /// Eigenvalue of W of the mode that grows first; 1 is the average of all agents.
    pub lambda: f64,
    /// Whether it comes from exact period matrices, and not from averages over random communication.
    pub exact: bool,
}

impl StepLimit {
    /// The largest stable step size for a smoothness constant.
    pub fn step_size(&self, smoothness: f64) -> f64 {
        self.step_times_smoothness / smoothness
    }
}

/// Factor of the disagreement per round as the step size goes to zero: the largest growth over the disagreement
/// modes. Below 1 the agents reach consensus.
pub fn contraction(modes: &Modes, spectrum: &Spectrum) -> Result<f64, TheoryError> {
    let mut worst = 0.0f64;
    for lambda in spectrum.disagreement(MODES) {
        worst = worst.max(modes.growth(0.0, lambda)?);
    }
    Ok(worst)
}

/// Largest growth per round at one step size over curvatures in (0, L]: of disagreement, and of the
/// average at h = L.
pub fn growth(
    modes: &Modes,
    spectrum: &Spectrum,
    step_size: f64,
    smoothness: f64,
) -> Result<f64, TheoryError> {
    let top = valid_step_size(step_size)? * valid_smoothness(smoothness)?;
    let mut worst = modes.growth(top, 1.0)?;
    for lambda in spectrum.disagreement(MODES) {
        for part in [0.0, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0] {
            worst = worst.max(modes.growth(part * top, lambda)?);
        }
    }
    Ok(worst)
}

/// The largest step size, in units of 1/L, for which no mode grows for any curvature in (0, L].
pub fn step_limit(modes: &Modes, spectrum: &Spectrum) -> Result<StepLimit, TheoryError> {
    let mut limit = StepLimit { step_times_smoothness: SCAN_RANGE.1, lambda: 1.0, exact: modes.is_exact() };
    let mut eigenvalues = vec![1.0];
    eigenvalues.extend(spectrum.disagreement(MODES));
    for lambda in eigenvalues {
        let found = first_growth(modes, lambda, limit.step_times_smoothness)?;
        if found < limit.step_times_smoothness {
            (limit.step_times_smoothness, limit.lambda) = (found, lambda);
        }
    }
    Ok(limit)
}

/// The largest step size, in units of 1/L, for which the average of all agents does not grow for any curvature in (0, L].
pub fn average_limit(modes: &Modes) -> Result<f64, TheoryError> {
    first_growth(modes, 1.0, SCAN_RANGE.1)
}

/// The smallest a below `top` at which the mode starts to grow; `top` if there is none.
fn first_growth(modes: &Modes, lambda: f64, top: f64) -> Result<f64, TheoryError> {
    let grows = |a: f64| modes.growth(a, lambda).map(|g| g > GROWS);
    if lambda < 1.0 && grows(0.0)? {
        return Ok(0.0);
    }
    let ratio = (SCAN_RANGE.1 / SCAN_RANGE.0).powf(1.0 / SCAN_POINTS as f64);
    let (mut stable, mut a) = (0.0, SCAN_RANGE.0);
    while stable < top {
        let here = a.min(top);
        if grows(here)? {
            return bisect(stable, here, grows);
        }
        stable = here;
        a *= ratio;
    }
    Ok(top)
}

/// Halves (stable, unstable) until they agree to 1e-9.
pub(super) fn bisect<E>(
    mut stable: f64,
    mut unstable: f64,
    mut grows: impl FnMut(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    while unstable - stable > 1e-9 * unstable.max(1e-3) {
        let middle = 0.5 * (stable + unstable);
        if grows(middle)? { unstable = middle } else { stable = middle }
    }
    Ok(stable)
}

/// The growth per round of the disagreement divided by that of the average, along a direction of curvature -h with
/// h > 0; at most 1 means that the agents stay together while they leave the saddle point.
pub fn saddle_excess(modes: &Modes, spectrum: &Spectrum, step_times_h: f64) -> Result<f64, TheoryError> {
    let mean = modes.growth(-step_times_h, 1.0)?;
    let mut worst = 0.0f64;
    for lambda in spectrum.disagreement(MODES) {
        worst = worst.max(modes.growth(-step_times_h, lambda)? / mean);
    }
    Ok(worst)
}

/// Growth per round over a grid of step sizes and another parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StabilityMap {
    /// Name of the other parameter.
    pub parameter: &'static str,
    /// Its values, one for each row.
    pub values: Vec<f64>,
    /// Step sizes, one for each column.
    pub step_sizes: Vec<f64>,
    /// Growth per round of the worst mode, row after row; above 1 the method diverges.
    pub growth: Vec<Vec<f64>>,
}

/// The stability map of a method over step sizes and one parameter; `build` makes the method for a value of it.
///
/// ```
/// use mile::{graph::Topology, methods::Mile, mixing::Rule, spectrum};
/// use mile_theory::stability;
/// let ring = Rule::Metropolis.matrix(&Topology::Ring.build(10, 0)?)?;
/// let build = |xi: f64| Ok(Box::new(Mile::new(10, xi)?) as Box<dyn mile::method::Method>);
/// let map = stability::map("xi", &[0.1, 0.3], &[0.01], 1.0, &spectrum::spectrum(ring.rows()), build)?;
/// assert!(map.growth[0][0] < 1.0 && map.growth[1][0] > 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map(
    parameter: &'static str,
    values: &[f64],
    step_sizes: &[f64],
    smoothness: f64,
    spectrum: &Spectrum,
    build: impl Fn(f64) -> Result<Box<dyn Method>, InvalidParameter>,
) -> Result<StabilityMap, TheoryError> {
    let row = |value: &f64| {
        let method = build(*value)?;
        let modes = Modes::of(&*method)?;
        step_sizes.iter().map(|alpha| growth(&modes, spectrum, *alpha, smoothness)).collect()
    };
    let growth = values.iter().map(row).collect::<Result<Vec<Vec<f64>>, TheoryError>>()?;
    Ok(StabilityMap { parameter, values: values.to_vec(), step_sizes: step_sizes.to_vec(), growth })
}
