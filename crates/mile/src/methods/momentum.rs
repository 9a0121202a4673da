//! Momentum of local steps: heavy ball or Nesterov's.
//!
//! With the direction p of a step, which contains the correction, and a scale a (1, or the step size if p is in units of
//! gradients):
//!
//! ```text
//! heavy ball:  m = mu m + p ;  x = x - a m                 (= x - a (p + mu m) with the m before)
//! Nesterov:    m = mu m + p ;  x = x - a (p + mu m)
//! ```
//!
//! m stays with its agent: it is neither sent nor changed by an exchange. At a fixed point m = 0 and p = 0, the same as
//! without momentum.

use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter};

/// Most terms of a direction.
const MOST_TERMS: usize = 2;

/// The momentum of a method's local steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// The coefficient mu, in (0, 1).
    pub mu: f64,
    /// Nesterov's form, and not heavy ball.
    pub nesterov: bool,
}

impl Momentum {
    /// The momentum of a method's parameters; none if it is not given or 0.
    pub(super) fn of(
        method: &str,
        momentum: Option<f64>,
        nesterov: Option<bool>,
    ) -> Result<Option<Self>, InvalidParameter> {
        let (check, nesterov) = (Checker(method), nesterov.unwrap_or(false));
        let Some(mu) = momentum else {
            return match nesterov {
                true => Err(check.refuse("nesterov", true, "false, or a momentum such as momentum = 0.9")),
                false => Ok(None),
            };
        };
        check.number("momentum", mu, (0.0..1.0).contains(&mu), "a number in [0, 1)")?;
        Ok((mu > 0.0).then_some(Self { mu, nesterov }))
    }

    /// The power of mu with which the momentum before a step enters it: 1, or 2 in Nesterov's form.
    pub fn order(self) -> i32 {
        if self.nesterov { 2 } else { 1 }
    }

    /// A step of x along a direction of at most two terms. Heavy ball is written with the momentum before the step, so that
    /// the sum is that of the method without momentum and one more term.
    pub(super) fn step(
        self,
        s: &mut Step,
        (x, m): (Vector, Vector),
        scale: f64,
        direction: &[(f64, Vector)],
    ) -> Result<(), AgentsError> {
        let used = direction.len().min(MOST_TERMS);
        let mut terms = [(-scale * self.mu, m); MOST_TERMS + 1];
        for (term, (a, v)) in terms.iter_mut().zip(&direction[..used]) {
            *term = (-scale * a, *v);
        }
        if self.nesterov {
            s.combine(m, self.mu, direction)?;
        }
        s.combine(x, 1.0, &terms[..=used])?;
        if !self.nesterov {
            s.combine(m, self.mu, direction)?;
        }
        Ok(())
    }
}
