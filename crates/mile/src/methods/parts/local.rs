//! The local optimiser: what a gradient does to an agent's model.
//!
//! With the direction p of a step, which contains the correction, and its scale a (1, or the step size if p is in units of
//! gradients):
//!
//! ```text
//! plain:       x = x - a p
//! heavy ball:  m = mu m + p ;  x = x - a m                 (= x - a (p + mu m) with the m before)
//! Nesterov:    m = mu m + p ;  x = x - a (p + mu m)
//! AdamW, AMSGrad, Muon:  see crate::optimiser
//! ```
//!
//! What an optimiser remembers stays with its agent: it is neither sent nor changed by an exchange, except that every K-th round
//! `share_moments` moves the second moments halfway to the mean of the neighbours'. A fixed point has p = 0 where the correction is part of p, the same
//! point as without an optimiser. A correction that is added after the optimiser balances its step instead of the gradient
//! (`correction.rs`).

use super::{Correction, CorrectionAt, Direction, Needs};
use crate::agents::{AgentsError, OptimiserStep, Step, Vector};
use crate::method::{Checker, InvalidParameter, Unit};
use crate::network::Network;
use crate::optimiser::{Adam, Muon, OptimiserRule, Stepping};

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
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Optimizer {
    /// `x = x - a p`.
    #[default]
    Sgd,
    /// Heavy ball or Nesterov's form.
    Momentum(Momentum),
    /// AdamW or AMSGrad.
    Adam(Adam),
    /// Muon for matrices, AdamW for the rest.
    Muon(Muon),
}

impl From<Option<Momentum>> for Optimizer {
    fn from(momentum: Option<Momentum>) -> Self {
        momentum.map_or(Self::Sgd, Self::Momentum)
    }
}

impl Optimizer {
    /// Whether it divides by the size of gradients, so that its steps do not scale with them.
    pub fn is_preconditioned(&self) -> bool {
        matches!(self, Self::Adam(_) | Self::Muon(_))
    }

    fn check(&self, check: Checker<'_>) -> Result<(), InvalidParameter> {
        let share = "a number in [0, 1)";
        let adam = match self {
            Self::Sgd | Self::Momentum(_) => return Ok(()),
            Self::Adam(adam) => adam,
            Self::Muon(Muon { momentum, rest, .. }) => {
                check.number("optimizer.momentum", *momentum, (0.0..1.0).contains(momentum), share)?;
                rest
            }
        };
        for beta in adam.betas {
            check.number("optimizer.betas", beta, (0.0..1.0).contains(&beta), "two numbers in [0, 1)")?;
        }
        check.number("optimizer.eps", adam.eps, adam.eps > 0.0, "a positive number")?;
        let expected = "a number of at least 0";
        check.number("optimizer.decay", adam.decay, adam.decay >= 0.0, expected).map(|_| ())
    }
}

impl std::fmt::Display for Optimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let adam = |f: &mut std::fmt::Formatter<'_>, Adam { betas: [b1, b2], eps, decay, .. }: &Adam| {
            write!(f, "betas {b1} {b2}, eps {eps}, decay {decay}")
        };
        match self {
            Self::Sgd => f.write_str("sgd"),
            Self::Momentum(Momentum { mu, nesterov }) => write!(f, "sgd, momentum {mu}, nesterov {nesterov}"),
            Self::Adam(one) => {
                f.write_str(if one.amsgrad { "amsgrad, " } else { "adamw, " })?;
                adam(f, one)
            }
            Self::Muon(Muon { momentum, nesterov, rest, exclude }) => {
                write!(f, "muon, momentum {momentum}, nesterov {nesterov}, ")?;
                adam(f, rest)?;
                write!(f, ", exclude {exclude:?}")
            }
        }
    }
}

/// What a user chooses about local steps, beside a momentum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalSteps {
    /// The optimiser.
    pub optimizer: Option<Optimizer>,
    /// Where the correction acts.
    pub correction: Option<CorrectionAt>,
    /// The largest norm of a gradient, before the correction.
    pub clip: Option<f64>,
    /// Every how many rounds neighbours average their second moments.
    pub share_moments: Option<u64>,
}

/// The local steps of a method.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::methods) struct Local {
    pub(in crate::methods) by: Optimizer,
    pub(in crate::methods) at: CorrectionAt,
    clip: Option<f64>,
    share_moments: Option<u64>,
}

impl From<Option<Momentum>> for Local {
    fn from(momentum: Option<Momentum>) -> Self {
        Self { by: momentum.into(), ..Self::PLAIN }
    }
}

impl Local {
    pub(in crate::methods) const PLAIN: Self =
        Self { by: Optimizer::Sgd, at: CorrectionAt::INSIDE, clip: None, share_moments: None };

    /// The local steps of a method's parameters, checked.
    pub(in crate::methods) fn of(
        method: &str,
        momentum: Option<Momentum>,
        given: &LocalSteps,
    ) -> Result<Self, InvalidParameter> {
        let check = Checker(method);
        let LocalSteps { optimizer, correction, clip, share_moments } = given;
        let by = optimizer.clone().unwrap_or_else(|| momentum.into());
        by.check(check)?;
        if let (Some(momentum), true) = (momentum, optimizer.is_some() && by != momentum.into()) {
            let expected =
                format!("none with optimizer = {by}; give its own momentum or betas in the table optimizer");
            return Err(check.refuse("momentum", momentum.mu, expected));
        }
        let usual = match &by {
            Optimizer::Adam(Adam { amsgrad: false, .. }) | Optimizer::Muon(_) => CorrectionAt::Step,
            _ => CorrectionAt::INSIDE,
        };
        let at = correction.unwrap_or(usual);
        if let CorrectionAt::Gradient { scale } = at {
            let expected = "a positive number: the size of a typical gradient";
            check.number("correction.scale", scale, scale > 0.0, expected)?;
            if scale != 1.0 && !by.is_preconditioned() {
                let expected = "1 with sgd, whose steps are in proportion to gradients";
                return Err(check.refuse("correction.scale", scale, expected));
            }
        }
        if let Some(most) = *clip {
            check.number("clip", most, most > 0.0, "a positive number")?;
        }
        if let Some(rounds) = *share_moments {
            check.at_least_one("share_moments", rounds)?;
            if !by.is_preconditioned() {
                let expected = "none with sgd, which has no second moments; use adamw, amsgrad or muon";
                return Err(check.refuse("share_moments", rounds, expected));
            }
        }
        Ok(Self { by, at, clip: *clip, share_moments: *share_moments })
    }

    /// The state of the optimiser; m of a momentum is in the units of the direction.
    pub(in crate::methods) fn needs(&self, unit: Unit) -> Needs {
        let state: &[_] = match (&self.by, unit) {
            (Optimizer::Sgd, _) => &[],
            (Optimizer::Momentum(_), Unit::Fixed) => &[("m", Unit::Fixed)],
            (Optimizer::Momentum(_), Unit::StepSize) => &[("m", Unit::StepSize)],
            (Optimizer::Adam(Adam { amsgrad: true, .. }), _) => {
                &[("m", Unit::Fixed), ("v", Unit::Fixed), ("v_max", Unit::Fixed)]
            }
            (Optimizer::Adam(_) | Optimizer::Muon(_), _) => &[("m", Unit::Fixed), ("v", Unit::Fixed)],
        };
        Needs { state, scratch: &[] }
    }

    /// 1 - mu: in the long run, a constant direction moves x by 1/(1 - mu) times as much.
    pub(in crate::methods) fn slack(&self) -> f64 {
        match self.by {
            Optimizer::Momentum(momentum) => 1.0 - momentum.mu,
            Optimizer::Sgd | Optimizer::Adam(_) | Optimizer::Muon(_) => 1.0,
        }
    }

    /// `g = grad f(x)`, clipped.
    pub(in crate::methods) fn gradient(&self, s: &mut Step, x: Vector, g: Vector) -> Result<(), AgentsError> {
        s.gradient(x, g)?;
        self.clip.map_or(Ok(()), |most| s.clip(g, most))
    }

    /// The `number`-th step of x, along a direction, with its state from vector m on. Heavy ball is written with the momentum before the
    /// step, so that the sum is that of the plain step plus one more term.
    pub(in crate::methods) fn step(
        &self,
        s: &mut Step,
        x: Vector,
        m: Vector,
        direction: &Direction,
        number: u64,
    ) -> Result<(), AgentsError> {
        let (a, p) = (direction.scale, direction.terms());
        let mut terms = [(0.0, m); Direction::MOST_TERMS + 2];
        let mut used = p.len();
        for (term, (b, v)) in terms.iter_mut().zip(p) {
            *term = (-a * b, *v);
        }
        let rule = match &self.by {
            Optimizer::Sgd | Optimizer::Momentum(_) => None,
            Optimizer::Adam(adam) => Some(OptimiserRule::Adam(*adam)),
            Optimizer::Muon(Muon { momentum, nesterov, rest, .. }) => {
                Some(OptimiserRule::Muon { momentum: *momentum, nesterov: *nesterov, rest: *rest })
            }
        };
        if let Some(rule) = rule {
            return s.optimise(&self.preconditioned(direction, (x, m), rule, (s.step_size, number)));
        }
        if let Optimizer::Momentum(Momentum { mu, .. }) = self.by {
            terms[used] = (-a * mu, m);
            used += 1;
        }
        if let Some(shift) = direction.shift {
            terms[used] = shift;
            used += 1;
        }
        match self.by {
            Optimizer::Momentum(Momentum { mu, nesterov: true }) => {
                s.combine(m, mu, p)?;
                s.combine(x, 1.0, &terms[..used])
            }
            Optimizer::Momentum(Momentum { mu, nesterov: false }) => {
                s.combine(x, 1.0, &terms[..used])?;
                s.combine(m, mu, p)
            }
            _ => s.combine(x, 1.0, &terms[..used]),
        }
    }

    /// The `number`-th step of x along its own gradient, for methods without a correction in it.
    pub(in crate::methods) fn uncorrected_step(
        &self,
        s: &mut Step,
        x: Vector,
        (g, m): (Vector, Vector),
        number: u64,
    ) -> Result<(), AgentsError> {
        self.gradient(s, x, g)?;
        self.step(s, x, m, &Correction::None.direction(self.at, s.step_size, g, g), number)
    }

    /// The step of an optimiser that divides by the size of gradients: its direction is in units of gradients.
    fn preconditioned(
        &self,
        direction: &Direction,
        (x, state): (Vector, Vector),
        rule: OptimiserRule,
        (step_size, number): (f64, u64),
    ) -> OptimiserStep {
        let scale = if let CorrectionAt::Gradient { scale } = self.at { scale } else { 1.0 };
        let (gradient, correction) = (direction.terms()[0], direction.terms().get(1));
        let inner = correction.map_or(0.0, |(b, _)| scale * b / gradient.0);
        let shift = direction.shift.map_or(0.0, |(a, _)| a);
        OptimiserStep {
            x,
            g: gradient.1,
            inner: correction.map(|(_, c)| *c),
            shift: direction.shift.map(|(_, c)| c),
            state,
            by: Stepping { rule, step_size, number, inner, shift },
        }
    }

    /// After the exchange of every K-th round: moves the second moments of agents halfway to the mean of their neighbours', with
    /// the optimiser's state from vector m on. The half keeps them positive, whatever is rounded.
    pub(in crate::methods) fn share(&self, s: &mut Step, m: Vector, free: Vector) -> Result<(), AgentsError> {
        match self.share_moments {
            Some(rounds) if (s.round + 1).is_multiple_of(rounds) => {
                let is_largest = matches!(self.by, Optimizer::Adam(Adam { amsgrad: true, .. }));
                let v = Vector(m.0 + if is_largest { 2 } else { 1 });
                s.pull(&[(v, free)])?;
                s.combine(v, 1.0, &[(0.5, free)])
            }
            _ => Ok(()),
        }
    }

    /// An error if it cannot be used on this network.
    pub(in crate::methods) fn check(&self, method: &str, network: &Network) -> Result<(), InvalidParameter> {
        let Some(rounds) = self.share_moments else { return Ok(()) };
        let weights = network.rows();
        let is_negative = |i: usize| weights.row(i).iter().any(|&(j, w)| j != i && w < 0.0);
        if (0..weights.rows()).any(is_negative) {
            let expected = "none with negative weights, which would make second moments negative; use mixing = \"metropolis\"";
            return Err(Checker(method).refuse("share_moments", rounds, expected));
        }
        Ok(())
    }

    /// The optimiser, if it steps along matrices.
    pub(in crate::methods) fn muon(&self) -> Option<&Muon> {
        if let Optimizer::Muon(muon) = &self.by { Some(muon) } else { None }
    }
}
