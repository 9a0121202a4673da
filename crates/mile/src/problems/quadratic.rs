//! Generated quadratic objectives: `f_i(x) = 1/2 (x - b_i)' H_i (x - b_i)`.

use rand::RngExt;
use rand_distr::StandardNormal;

use super::{DeviceForm, Failure, Problem};
use crate::block;
use crate::random::{Purpose, stream};
use crate::real::Real;

/// Quadratic objectives with curvatures between 1/condition and 1, so L = 1.
///
/// `H_i = R_i' D R_i`, where the diagonal D is evenly spaced on a logarithmic scale and R_i is a random reflection
/// per agent, so that one gradient costs O(n). The minimiser `b_i` is a common random point plus `heterogeneity`
/// times a random vector per agent.
#[derive(Clone, Debug)]
pub struct Quadratic<T> {
    dim: usize,
    curvature: Vec<T>,
    /// The unit normal of each agent's reflection `R = I - 2 u u'`.
    normals: Vec<Vec<T>>,
    /// The minimiser of each agent.
    minimisers: Vec<Vec<T>>,
}

/// A parameter of a quadratic problem that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: expected {expected}, got {got}")]
#[non_exhaustive]
pub struct InvalidQuadratic {
    /// Name of the parameter.
    pub key: &'static str,
    /// The value given.
    pub got: f64,
    /// The values allowed.
    pub expected: &'static str,
}

impl<T: Real> Quadratic<T> {
    /// Generates the objectives of all agents from a seed.
    pub fn new(
        agents: usize,
        dim: usize,
        condition: f64,
        heterogeneity: f64,
        seed: u64,
    ) -> Result<Self, InvalidQuadratic> {
        Self::hosting(&|_| true, agents, dim, condition, heterogeneity, seed)
    }

    /// The same, but with only the objectives of the agents hosted here generated; the others cannot be evaluated.
    pub fn hosting(
        is_here: &dyn Fn(usize) -> bool,
        agents: usize,
        dim: usize,
        condition: f64,
        heterogeneity: f64,
        seed: u64,
    ) -> Result<Self, InvalidQuadratic> {
        let refuse = |key, got, expected| Err(InvalidQuadratic { key, got, expected });
        if dim == 0 {
            return refuse("dim", 0.0, "a whole number from 1");
        }
        if !(condition >= 1.0 && condition.is_finite()) {
            return refuse("condition", condition, "a finite number from 1");
        }
        if !(heterogeneity >= 0.0 && heterogeneity.is_finite()) {
            return refuse("heterogeneity", heterogeneity, "a finite number of at least 0");
        }
        let spacing = |k: usize| if dim == 1 { 1.0 } else { k as f64 / (dim - 1) as f64 };
        let curvature = (0..dim).map(|k| T::of(condition.powf(spacing(k) - 1.0))).collect();
        let gaussian = |index: u64, step: u64| -> Vec<f64> {
            let mut random = stream(seed, Purpose::Data, index, step);
            (0..dim).map(|_| random.sample(StandardNormal)).collect()
        };
        let common = gaussian(u64::MAX, 0);
        let agent = |i: usize| {
            if !is_here(i) {
                return (Vec::new(), Vec::new());
            }
            let u = gaussian(i as u64, 0);
            let norm = u.iter().map(|v| v * v).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            let normal: Vec<T> = u.iter().map(|v| T::of(v / norm)).collect();
            let own = gaussian(i as u64, 1);
            let minimiser = common.iter().zip(&own).map(|(c, o)| T::of(c + heterogeneity * o)).collect();
            (normal, minimiser)
        };
        let (normals, minimisers) = (0..agents).map(agent).unzip();
        Ok(Self { dim, curvature, normals, minimisers })
    }

    /// The normal and the minimiser of an agent.
    fn of(&self, agent: usize) -> Result<(&[T], &[T]), Failure> {
        match (&self.normals[agent][..], &self.minimisers[agent][..]) {
            ([], _) => Err(format!("the data of agent {agent} are on another rank").into()),
            found => Ok(found),
        }
    }

    /// The diagonal D of all agents.
    pub fn curvature(&self) -> &[T] {
        &self.curvature
    }

    /// The unit normal u of each agent's reflection `R = I - 2 u u'`.
    pub fn normals(&self) -> &[Vec<T>] {
        &self.normals
    }

    /// The minimiser of each agent.
    pub fn minimisers(&self) -> &[Vec<T>] {
        &self.minimisers
    }
}

impl<T: Real> Problem<T> for Quadratic<T> {
    fn agents(&self) -> usize {
        self.normals.len()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn loss(&self, agent: usize, x: &[T]) -> Result<f64, Failure> {
        let (u, b) = self.of(agent)?;
        let along: f64 = (0..self.dim).map(|k| u[k].wide() * (x[k].wide() - b[k].wide())).sum();
        let reflected = |k: usize| x[k].wide() - b[k].wide() - 2.0 * along * u[k].wide();
        Ok((0..self.dim).map(|k| 0.5 * self.curvature[k].wide() * reflected(k).powi(2)).sum())
    }

    /// `R D R (x - b)`, R being its own inverse.
    fn gradient(&self, agent: usize, x: &[T], gradient: &mut [T]) -> Result<(), Failure> {
        let (u, b) = self.of(agent)?;
        block::combine(gradient, 0.0, &[(1.0, x), (-1.0, b)]);
        reflect(u, gradient);
        gradient.iter_mut().zip(&self.curvature).for_each(|(g, d)| *g *= *d);
        reflect(u, gradient);
        Ok(())
    }

    fn device_form(&self) -> Option<DeviceForm<'_, T>> {
        Some(DeviceForm::Quadratic(self))
    }
}

/// `v <- (I - 2 u u') v`.
fn reflect<T: Real>(u: &[T], v: &mut [T]) {
    let along = -2.0 * block::dot(u, v).wide();
    block::combine(v, 1.0, &[(along, u)]);
}
