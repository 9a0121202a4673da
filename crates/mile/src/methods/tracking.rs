//! The common step of the gradient-tracking methods that store the last gradient.
//!
//! ```text
//! x' = W1 x - alpha W2 y ;  y = W3 y + W4 (grad f(x') - grad f(x))
//! ```
//!
//! | mixed | W1 | W2 | W3 | W4 | exchanges |
//! |---|---|---|---|---|---|
//! | nothing | I | I | I | I | none |
//! | x | Z | I | Z | I | (x, y) |
//! | descent | Z | Z | Z | I | (x - alpha y, y) |
//! | everything | Z | Z | Z | Z | x - alpha y, then y + grad f(x') - grad f(x) |
//!
//! Z is W or, with k communications, W^k: k exchanges one after the other.

use super::parts::Pace;
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Layout, Unit};

const X: Vector = Vector(0);
const Y: Vector = Vector(1);
const OLD: Vector = Vector(2);
const G: Vector = Vector(3);
const P: Vector = Vector(4);
const Q: Vector = Vector(5);

/// State: the model x, the tracker y and the last gradient g.
pub(super) fn layout() -> Layout {
    Layout::new([("x", Unit::Fixed), ("y", Unit::Fixed), ("g", Unit::Fixed)], ["g_new", "p", "q"])
}

/// What is mixed in a step with an exchange: a row of the table above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mixed {
    X,
    Descent,
    Everything,
}

/// `y = g = grad f(x)`.
pub(super) fn initialise(s: &mut Step) -> Result<(), AgentsError> {
    s.gradient(X, OLD)?;
    s.combine(Y, 0.0, &[(1.0, OLD)])?;
    Ok(())
}

/// One update of x and y, with or without an exchange.
pub(super) fn paced_update(
    s: &mut Step,
    pace: &Pace,
    mixed: Mixed,
    communications: u64,
) -> Result<(), AgentsError> {
    if pace.exchanges(s.t) {
        return update(s, mixed, communications, |s| pace.each(s, |s, _, _| track(s)));
    }
    pace.each(s, |s, _, _| {
        s.combine(X, 1.0, &[(-s.step_size, Y)])?;
        track(s)?;
        s.combine(OLD, 0.0, &[(1.0, G)])
    })
}

/// `y = y + grad f(x') - grad f(x)`.
pub(super) fn track(s: &mut Step) -> Result<(), AgentsError> {
    s.gradient(X, G)?;
    s.combine(Y, 1.0, &[(1.0, G), (-1.0, OLD)])
}

/// One update of x and y with an exchange, in which `track` is done with [`track`].
pub(super) fn update(
    s: &mut Step,
    mixed: Mixed,
    communications: u64,
    track: impl Fn(&mut Step) -> Result<(), AgentsError>,
) -> Result<(), AgentsError> {
    let alpha = s.step_size;
    match mixed {
        Mixed::X => {
            s.combine(G, 0.0, &[(1.0, Y)])?; // x moves by y before mixing
            mix_repeatedly(s, &[(X, P), (Y, Q)], communications)?;
            s.combine(X, 1.0, &[(-alpha, G)])?;
        }
        Mixed::Descent => {
            s.combine(X, 1.0, &[(-alpha, Y)])?;
            mix_repeatedly(s, &[(X, P), (Y, Q)], communications)?;
        }
        Mixed::Everything => {
            s.combine(X, 1.0, &[(-alpha, Y)])?;
            mix_repeatedly(s, &[(X, P)], communications)?;
        }
    }
    track(s)?;
    if mixed == Mixed::Everything {
        mix_repeatedly(s, &[(Y, Q)], communications)?;
    }
    s.combine(OLD, 0.0, &[(1.0, G)])
}

/// `v <- W^k v` for each (v, scratch).
fn mix_repeatedly(s: &mut Step, pairs: &[(Vector, Vector)], communications: u64) -> Result<(), AgentsError> {
    for _ in 0..communications {
        s.pull(pairs)?;
        for &(v, d) in pairs {
            s.combine(v, 1.0, &[(1.0, d)])?;
        }
    }
    Ok(())
}
