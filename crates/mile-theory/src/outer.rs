//! The weight xi of `"auto"` with outer momentum.
//!
//! Outer momentum multiplies a constant progress by eta/(1 - mu) in the long run ([`OuterMomentum::gain`]), and with it the drift of local
//! steps that the correction answers. So xi is divided by that, and halved until twice as much is stable for small step sizes, by the
//! period matrices of the method's own code. The mixing weight needs no change: without correction and for small step sizes, u decays
//! by itself, and the agents' models mix as they do without it.

use mile::methods::OuterMomentum;
use mile::methods::catalogue::{Entry, Parameters};
use mile::network::Network;
use mile::schedule::Weight;

use crate::TheoryError;
use crate::modes::Modes;
use crate::stability::contraction;

/// xi is not made smaller than this.
const LEAST: f64 = 1e-9;

/// Replaces the xi that was chosen without outer momentum.
pub fn choose_xi(
    entry: &Entry,
    outer: OuterMomentum,
    network: &Network,
    parameters: &mut Parameters,
) -> Result<(), TheoryError> {
    let Some(plain) = parameters.xi else { return Ok(()) };
    let with = |xi: f64| match plain {
        Weight::Adaptive(_) => Weight::Adaptive(xi),
        _ => Weight::Constant(xi),
    };
    let mut xi = plain.last() / outer.gain().max(1.0);
    while network.agents() > 1 && xi > LEAST {
        let twice = Parameters { xi: Some(with(f64::min(2.0 * xi, 1.0))), ..parameters.alike() };
        let method = entry.build(&twice, network, 0)?;
        if contraction(&Modes::of(&*method)?, network.spectrum())? < 1.0 {
            break;
        }
        xi *= 0.5;
    }
    parameters.xi = Some(with(xi));
    Ok(())
}
