//! The weight decay of a problem on the device.

use mile::block;
use mile::problems::Problem;
use mile::real::Real;

/// The term `(w/2) |x|^2` of every `f_i`, which the losses and gradients of samples do not include: everything that adds it is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightDecay(f64);

impl WeightDecay {
    /// The weight decay of a problem that has a device form.
    pub(crate) fn of<T: Real>(problem: &dyn Problem<T>) -> Self {
        Self(problem.device_form().map_or(0.0, |form| form.weight_decay()))
    }

    /// The factor w, if it is not 0: `w x` is added to a gradient at x.
    pub(crate) fn factor(self) -> Option<f64> {
        (self.0 != 0.0).then_some(self.0)
    }

    /// What it adds to the loss of a model.
    pub(crate) fn loss<T: Real>(self, x: &[T]) -> f64 {
        self.factor().map_or(0.0, |factor| 0.5 * factor * block::norm_sq(x))
    }

    /// Adds its gradient at the mean of the models to the mean of the gradients there.
    pub(crate) fn add_gradient<T: Real>(self, gradient: &mut [f64], mean: &[f64]) {
        if let Some(factor) = self.factor() {
            let terms = mean.iter().map(|x| factor * T::of(*x).wide());
            gradient.iter_mut().zip(terms).for_each(|(g, term)| *g += term);
        }
    }
}
