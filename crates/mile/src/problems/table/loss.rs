//! The loss of a row, and its derivative.

use super::products::{Products, SIDE_BY_SIDE};
use super::{InvalidTable, softmax};
use crate::exp::{exp_or_infinity, log_one_plus_exp, one_minus_exp_minus, one_over_one_plus_exp};
use crate::problems::metric::Metric;
use crate::real::Real;

/// Replaces products by a function of them and their targets, of which there are whole vectors. A macro, not a closure, which would be a
/// function without the vector instructions of the caller.
macro_rules! replace {
    ($products:expr, $targets:expr, |$p:ident, $b:ident| $value:expr) => {{
        let (products, _) = $products.as_chunks_mut::<SIDE_BY_SIDE>();
        let (targets, _) = $targets.as_chunks::<SIDE_BY_SIDE>();
        for (products, targets) in products.iter_mut().zip(targets) {
            for k in 0..SIDE_BY_SIDE {
                let ($p, $b) = (products[k], targets[k]);
                products[k] = $value;
            }
        }
    }};
}

/// The loss function of a row with target b, as a function of its product p = a'x (for [`Softmax`](Self::Softmax), its products).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Least squares: `(p - b)^2/2`.
    LeastSquares,
    /// Logistic loss for two classes: `log(1 + exp(-b p))`, b in {-1, 1}.
    Logistic,
    /// Logistic loss with a bounded, nonconvex penalty.
    NonconvexLogistic,
    /// Multinomial logistic regression: `log sum_c exp(p_c) - p_b`, where b in 0..C is the number of a class and
    /// `p_c = a'x_c`. The variable is the coefficients of class 0, one for each column, then those of class 1, and so on.
    Softmax {
        /// Number of classes C.
        classes: usize,
    },
    /// Poisson regression for counts with mean `exp(p)`: `exp(p) - b p`, b >= 0.
    Poisson,
    /// Huber's loss: `r^2/2` for residuals `r = p - b` up to delta, `delta (|r| - delta/2)` beyond.
    Huber {
        /// The residual beyond which it is linear.
        delta: f64,
    },
    /// Welsch's loss, bounded and nonconvex: `c^2/2 (1 - exp(-(r/c)^2))` with `r = p - b`.
    Welsch {
        /// The scale of residuals: those of several c hardly count.
        c: f64,
    },
}

impl Loss {
    /// Numbers of the variable for each column: the number of classes for [`Softmax`](Self::Softmax), otherwise 1.
    pub fn classes(self) -> usize {
        match self {
            Self::Softmax { classes } => classes,
            _ => 1,
        }
    }

    /// The largest absolute second derivative with respect to the product p, over all p and b; for several classes the largest
    /// eigenvalue of the second derivatives. None if it has no bound.
    pub fn largest_curvature(self) -> Option<f64> {
        match self {
            // Beyond delta, or far from b, the last two curve less.
            Self::LeastSquares | Self::Huber { .. } | Self::Welsch { .. } => Some(1.0),
            // q (1 - q) with the probability q of a class.
            Self::Logistic | Self::NonconvexLogistic => Some(0.25),
            // diag(q) - q q', largest where two classes have half of the probability each.
            Self::Softmax { .. } => Some(0.5),
            // exp(p).
            Self::Poisson => None,
        }
    }

    /// What is measured with it on held-out rows.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Logistic | Self::NonconvexLogistic => &[Metric::Accuracy, Metric::Auc, Metric::TestLoss],
            Self::Softmax { .. } => &[Metric::Accuracy, Metric::TestLoss],
            Self::LeastSquares | Self::Huber { .. } | Self::Welsch { .. } => {
                &[Metric::Rmse, Metric::R2, Metric::TestLoss]
            }
            Self::Poisson => &[Metric::Rmse, Metric::TestLoss],
        }
    }

    /// Checks its parameters.
    pub(super) fn check(self) -> Result<(), InvalidTable> {
        let positive = |key, got: f64| {
            let expected = "a finite number above 0";
            if got > 0.0 && got.is_finite() {
                Ok(())
            } else {
                Err(InvalidTable::Parameter { key, got, expected })
            }
        };
        match self {
            Self::Softmax { classes } if classes < 2 => {
                let expected = "a whole number of at least 2";
                Err(InvalidTable::Parameter { key: "classes", got: classes as f64, expected })
            }
            Self::Huber { delta } => positive("delta", delta),
            Self::Welsch { c } => positive("c", c),
            _ => Ok(()),
        }
    }

    /// Whether it accepts a target.
    pub(super) fn takes<T: Real>(self, target: T) -> bool {
        let b = target.wide();
        match self {
            Self::LeastSquares | Self::Huber { .. } | Self::Welsch { .. } => true,
            Self::Logistic | Self::NonconvexLogistic => b.abs() == 1.0,
            Self::Softmax { classes } => b >= 0.0 && b < classes as f64 && b.fract() == 0.0,
            Self::Poisson => b >= 0.0 && b.is_finite(),
        }
    }

    /// Which targets it accepts, in words.
    pub(super) fn targets(self) -> String {
        match self {
            Self::LeastSquares | Self::Huber { .. } | Self::Welsch { .. } => "a number".into(),
            Self::Logistic | Self::NonconvexLogistic => "-1 or 1, as a logistic loss needs".into(),
            Self::Softmax { classes } => format!("the number of a class, from 0 to {}", classes - 1),
            Self::Poisson => "a finite number of at least 0, as a Poisson loss needs".into(),
        }
    }

    /// Replaces the products of rows, `products[c][row]` for class c, by `scale` times the derivatives of the rows' losses with respect to them.
    #[inline(always)]
    pub(super) fn slopes<T: Real>(self, scale: T, products: &mut [Products<T>], targets: &[T]) {
        if let Self::Softmax { .. } = self {
            return softmax::slopes(scale, products, targets);
        }
        let products = &mut products[0];
        match self {
            Self::LeastSquares => replace!(products, targets, |p, b| scale * (p - b)),
            Self::Poisson => replace!(products, targets, |p, b| scale * (exp_or_infinity(p) - b)),
            Self::Huber { delta } => {
                let delta = T::of(delta);
                replace!(products, targets, |p, b| {
                    // Comparisons that are false for NaN, not `min` and `max`, which would drop it.
                    let r = p - b;
                    let r = if r > delta { delta } else { r };
                    scale * if r < -delta { -delta } else { r }
                });
            }
            Self::Welsch { c } => {
                let c = T::of(c);
                replace!(products, targets, |p, b| {
                    let r = p - b;
                    let u = r / c;
                    scale * (r * (-u * u).exp_in_plain_arithmetic())
                });
            }
            Self::Logistic | Self::NonconvexLogistic | Self::Softmax { .. } => {
                replace!(products, targets, |p, b| scale * (-b * one_over_one_plus_exp(b * p)));
            }
        }
    }

    /// Overwrites the first of the rows' products, `products[0][row]`, with their losses.
    #[inline(always)]
    pub(super) fn values<T: Real>(self, products: &mut [Products<f64>], targets: &[T]) {
        if let Self::Softmax { .. } = self {
            return softmax::values(products, targets);
        }
        let products = &mut products[0];
        match self {
            Self::LeastSquares => replace!(products, targets, |p, b| 0.5 * (p - b.wide()).powi(2)),
            Self::Poisson => replace!(products, targets, |p, b| exp_or_infinity(p) - b.wide() * p),
            Self::Huber { delta } => replace!(products, targets, |p, b| {
                let r = (p - b.wide()).abs();
                if r > delta { delta * (r - 0.5 * delta) } else { 0.5 * r * r }
            }),
            Self::Welsch { c } => replace!(products, targets, |p, b| {
                let u = (p - b.wide()) / c;
                0.5 * c * c * one_minus_exp_minus(u * u)
            }),
            Self::Logistic | Self::NonconvexLogistic | Self::Softmax { .. } => {
                replace!(products, targets, |p, b| log_one_plus_exp(-b.wide() * p));
            }
        }
    }
}
