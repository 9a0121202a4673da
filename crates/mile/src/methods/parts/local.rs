//! The local optimiser: what a gradient does to an agent's model.
//!
//! With the direction p of a step, which contains the correction, and its scale a (1, or the step size if p is in units of
//! gradients):
//!
//! ```text
//! plain:       x = x - a p
//! heavy ball:  m = mu m + p ;  x = x - a m                 (= x - a (p + mu m) with the m before)
//! Nesterov:    m = mu m + p ;  x = x - a (p + mu m)
//! ```
//!
//! m stays with its agent: it is neither sent nor changed by an exchange. A fixed point has m = 0 and p = 0, the same as
//! without momentum.

use super::{Direction, Needs};
use crate::agents::{AgentsError, Step, Vector};
use crate::method::{Checker, InvalidParameter, Unit};

/// The momentum of a method's local steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// The coefficient mu, in (0, 1).
    pub mu: f64,
    /// Whether it is Nesterov's form rather than heavy ball.
    pub nesterov: bool,
}

impl Momentum {
    /// The momentum of a method's parameters; none if it is not given or 0.
    pub(in crate::methods) fn of(
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

    /// The exponent of mu on the previous momentum in a step: 1, or 2 in Nesterov's form.
    pub fn order(self) -> i32 {
        if self.nesterov { 2 } else { 1 }
    }
}

/// A local optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::methods) enum Local {
    /// `x = x - a p`.
    #[default]
    Plain,
    /// Heavy ball or Nesterov's form.
    Momentum(Momentum),
}

impl From<Option<Momentum>> for Local {
    fn from(momentum: Option<Momentum>) -> Self {
        momentum.map_or(Self::Plain, Self::Momentum)
    }
}

impl Local {
    /// m, in the units of the direction.
    pub(in crate::methods) fn needs(self, unit: Unit) -> Needs {
        match (self, unit) {
            (Self::Plain, _) => Needs::NOTHING,
            (Self::Momentum(_), Unit::Fixed) => Needs { state: &[("m", Unit::Fixed)], scratch: &[] },
            (Self::Momentum(_), Unit::StepSize) => Needs { state: &[("m", Unit::StepSize)], scratch: &[] },
        }
    }

    /// 1 - mu: in the long run, a constant direction moves x by 1/(1 - mu) times as much.
    pub(in crate::methods) fn slack(self) -> f64 {
        match self {
            Self::Plain => 1.0,
            Self::Momentum(momentum) => 1.0 - momentum.mu,
        }
    }

    /// A step of x along a direction, with its state from vector m on. Heavy ball is written with the momentum before the step, so
    /// that the sum is that of the plain step plus one more term.
    pub(in crate::methods) fn step(
        self,
        s: &mut Step,
        x: Vector,
        m: Vector,
        direction: &Direction,
    ) -> Result<(), AgentsError> {
        let (a, p) = (direction.scale, direction.terms());
        let mut terms = [(0.0, m); Direction::MOST_TERMS + 1];
        for (term, (b, v)) in terms.iter_mut().zip(p) {
            *term = (-a * b, *v);
        }
        let Self::Momentum(Momentum { mu, nesterov }) = self else {
            return s.combine(x, 1.0, &terms[..p.len()]);
        };
        terms[p.len()] = (-a * mu, m);
        if nesterov {
            s.combine(m, mu, p)?;
        }
        s.combine(x, 1.0, &terms[..=p.len()])?;
        if !nesterov {
            s.combine(m, mu, p)?;
        }
        Ok(())
    }
}
