//! Local optimisers with memory: AdamW, AMSGrad and Muon.
//!
//! With the gradient g of an agent, the part c of a correction that passes through the optimiser and the part e that is added after it:
//!
//! ```text
//! h = g + b c
//! AdamW:    m = b1 m + (1 - b1) h ;  v = b2 v + (1 - b2) h h ;  s = (m/(1 - b1^k)) / (sqrt(v/(1 - b2^k)) + eps)
//! AMSGrad:  the same with max(v_max, v), kept as v_max, in place of v in s
//! Muon:     m = mu m + (1 - mu) h ;  s = 0.2 sqrt(larger side) orthogonal(m)       (Nesterov: of (1 - mu) h + mu m)
//! x = (1 - alpha decay) x - alpha s + a e
//! ```
//!
//! for the k-th step. AdamW: Loshchilov, Hutter 2019; AMSGrad: Reddi, Kale, Kumar 2018; both as in PyTorch. Muon: Jordan et al. 2024, with
//! the factor of Liu et al. 2025, with which a step is as large as AdamW's, so that both have one step size: Muon steps along matrices, and
//! everything else (biases, norms, embeddings) as AdamW does.
//!
//! The state stays with its agent. Elementwise steps are one pass over memory ([`adam`]); products and roots are rounded one by
//! one, so that they have the same bits on every machine.

mod elementwise;
mod orthogonal;

use std::ops::Range;

use crate::block;
use crate::real::Real;

pub use self::elementwise::{AdamNumbers, AdamRows, CLIP_LEAST, adam, clip, norm_lanes, row_norm};
pub use self::orthogonal::{muon_scale, orthogonalise};

/// AdamW or AMSGrad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// The shares b1 and b2 that the running means of gradients and of their squares keep.
    pub betas: [f64; 2],
    /// What is added to the root.
    pub eps: f64,
    /// Weight decay that does not pass through the preconditioner.
    pub decay: f64,
    /// Whether the largest mean of squares so far counts: AMSGrad.
    pub amsgrad: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], eps: 1e-8, decay: 0.0, amsgrad: false }
    }
}

/// Muon, with AdamW for what is not a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Muon {
    /// The share mu that the running mean of gradients keeps.
    pub momentum: f64,
    /// Whether Nesterov's form is orthogonalised.
    pub nesterov: bool,
    /// AdamW for everything else; its weight decay is that of matrices too.
    pub rest: Adam,
    /// Matrices whose names contain one of these words are left to AdamW.
    pub exclude: Vec<String>,
}

impl Default for Muon {
    fn default() -> Self {
        let exclude = ["embed", "wte", "wpe", "head"].map(str::to_owned).to_vec();
        Self { momentum: 0.95, nesterov: true, rest: Adam::default(), exclude }
    }
}

/// A matrix within the variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixPart {
    /// Its entries.
    pub range: Range<usize>,
    /// Rows and columns; entries follow each other row by row.
    pub shape: [usize; 2],
}

/// The numbers of an optimiser, as a step needs them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptimiserRule {
    /// All elements by AdamW or AMSGrad.
    Adam(Adam),
    /// The matrices of the problem by Muon.
    Muon {
        /// The share that the running mean of gradients keeps.
        momentum: f64,
        /// Whether Nesterov's form is orthogonalised.
        nesterov: bool,
        /// Elements that are not in matrices.
        rest: Adam,
    },
}

impl OptimiserRule {
    /// AdamW or AMSGrad for elements that are not in matrices.
    pub fn elements(self) -> Adam {
        match self {
            Self::Adam(adam) | Self::Muon { rest: adam, .. } => adam,
        }
    }
}

/// The numbers of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepping {
    /// The optimiser.
    pub rule: OptimiserRule,
    /// Step size alpha.
    pub step_size: f64,
    /// The number k of this step, from 1 on.
    pub number: u64,
    /// The factor b of what is added to gradients before the optimiser.
    pub inner: f64,
    /// The factor a of what is added to models after it.
    pub shift: f64,
}

/// A step on the rows of one agent; `matrices`, in the order of the variable, are those that Muon steps along.
///
/// # Panics
/// If a row is shorter than the model, or matrices overlap or lie beyond it.
pub fn take_step<T: Real>(mut rows: AdamRows<'_, T>, by: &Stepping, matrices: &[MatrixPart]) {
    let numbers = AdamNumbers::of(by);
    let OptimiserRule::Muon { momentum, nesterov, .. } = by.rule else {
        return adam(rows, &numbers);
    };
    let mut done = 0;
    for MatrixPart { range, shape } in matrices {
        adam(rows.part(done..range.start), &numbers);
        step_matrix(rows.part(range.clone()), *shape, by, momentum, nesterov);
        done = range.end;
    }
    let all = rows.x.len();
    adam(rows.part(done..all), &numbers);
}

/// [`take_step`] for the rows of several agents, which follow each other, on all threads: elements are divided among them, or agents
/// where a step needs their matrices whole.
///
/// # Panics
/// As [`take_step`].
pub fn take_steps<T: Real>(rows: AdamRows<'_, T>, dim: usize, by: &Stepping, matrices: &[MatrixPart]) {
    let piece = match by.rule {
        OptimiserRule::Adam(_) => block::CHUNK,
        OptimiserRule::Muon { .. } => dim.max(1),
    };
    let pieces = rows.x.len().div_ceil(piece);
    if pieces <= 1 {
        return take_step(rows, by, matrices);
    }
    let (first, second) = rows.split_at(pieces / 2 * piece);
    rayon::join(|| take_steps(first, dim, by, matrices), || take_steps(second, dim, by, matrices));
}

/// `m = mu m + (1 - mu) h ;  x = (1 - alpha decay) x - alpha s + a e`, with s along m or, in Nesterov's form, along `(1 - mu) h + mu m`.
fn step_matrix<T: Real>(rows: AdamRows<'_, T>, shape: [usize; 2], by: &Stepping, mu: f64, nesterov: bool) {
    let AdamRows { x, m, g, inner, shift, .. } = rows;
    let mut s = g.to_vec();
    if let Some(c) = inner {
        block::combine(&mut s, 1.0, &[(by.inner, c)]);
    }
    block::combine(m, mu, &[(1.0 - mu, &s)]);
    let (of_h, of_m) = if nesterov { (1.0 - mu, mu) } else { (0.0, 1.0) };
    block::combine(&mut s, of_h, &[(of_m, m)]);
    orthogonalise(&mut s, shape);
    let along = (-by.step_size * muon_scale(shape), &s[..]);
    let keep = 1.0 - by.step_size * by.rule.elements().decay;
    match shift {
        Some(e) => block::combine(x, keep, &[along, (by.shift, e)]),
        None => block::combine(x, keep, &[along]),
    }
}
