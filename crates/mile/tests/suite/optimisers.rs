//! Methods with AdamW, AMSGrad and Muon in their local steps: their recursions written a second time, where they end, and what changes nothing.

use std::ops::Range;

use mile::methods::catalogue::{self, Parameters};
use mile::methods::{CorrectionAt, LocalSteps, Momentum, Optimizer};
use mile::mixing::Rule;
use mile::optimiser::{Adam, Muon};
use mile::problems::{Batch, Failure, NamedTensors, Problem, TensorPart};
use mile::run::Run;
use mile::schedule::{Decay, Schedule};
use mile::simulator::Simulator;

use crate::common::*;
use crate::literal::{Dense, Mat, agree, flat, matrix};

const ROUNDS: usize = 40;
const STEP: CorrectionAt = CorrectionAt::Step;

fn gradient(scale: f64) -> CorrectionAt {
    CorrectionAt::Gradient { scale }
}

fn zeros(x: &Mat) -> Mat {
    Mat::zeros(x.nrows(), x.ncols())
}

fn adam(amsgrad: bool) -> Adam {
    Adam { betas: [0.8, 0.95], eps: 1e-3, decay: 0.02, amsgrad }
}

fn with(parameters: Parameters, optimizer: Optimizer, correction: Option<CorrectionAt>) -> Parameters {
    let local = LocalSteps { optimizer: Some(optimizer), correction, ..LocalSteps::default() };
    Parameters { local, ..parameters }
}

/// AdamW and AMSGrad as their papers have them: the step for the direction h, and the decay of x.
struct Literal {
    by: Adam,
    m: Mat,
    v: Mat,
    largest: Mat,
    k: i32,
}

impl Literal {
    fn new(x: &Mat, by: Adam) -> Self {
        Self { by, m: zeros(x), v: zeros(x), largest: zeros(x), k: 0 }
    }

    fn step(&mut self, x: &Mat, h: &Mat, alpha: f64) -> Mat {
        let Adam { betas: [b1, b2], eps, decay, amsgrad } = self.by;
        self.k += 1;
        self.m = b1 * &self.m + (1.0 - b1) * h;
        self.v = b2 * &self.v + (1.0 - b2) * h.component_mul(h);
        self.largest = self.largest.zip_map(&self.v, f64::max);
        let squares = if amsgrad { &self.largest } else { &self.v };
        let (m, v) = (&self.m / (1.0 - b1.powi(self.k)), squares / (1.0 - b2.powi(self.k)));
        x - alpha * (decay * x + m.zip_map(&v, |m, v| m / (v.sqrt() + eps)))
    }
}

/// A local step with the correction c, in units of x, inside or outside.
fn local(d: &Dense, by: &mut Literal, x: &Mat, c: &Mat, at: CorrectionAt) -> Mat {
    match at {
        CorrectionAt::Gradient { scale } => by.step(x, &(d.g(x) - (scale / d.alpha) * c), d.alpha),
        _ => by.step(x, &d.g(x), d.alpha) + c,
    }
}

fn mile(
    d: &Dense,
    x0: &Mat,
    (tau, xi, gamma): (usize, f64, f64),
    by: Adam,
    at: CorrectionAt,
) -> Vec<Vec<f64>> {
    let (mut c, mut by, mut out) = (zeros(x0), Literal::new(x0, by), Vec::new());
    let mut x = local(d, &mut by, x0, &c, at);
    for t in 0..(ROUNDS - 1) * tau + 1 {
        x = local(d, &mut by, &x, &c, at);
        if t % tau == 0 {
            let gap = &x - &d.w * &x;
            c -= xi * &gap;
            x -= gamma * &gap;
            out.push(flat(&x));
        }
    }
    out
}

fn led(d: &Dense, x0: &Mat, (tau, beta): (usize, f64), by: Adam, at: CorrectionAt) -> Vec<Vec<f64>> {
    let (mut x, mut y, mut by) = (x0.clone(), zeros(x0), Literal::new(x0, by));
    let mut round = || {
        let mut phi = x.clone();
        (0..tau).for_each(|_| phi = local(d, &mut by, &phi, &(-beta * &y), at));
        x = &d.w * &phi;
        y += &phi - &x;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn k_gt(d: &Dense, x0: &Mat, k: usize, by: Adam, at: CorrectionAt) -> Vec<Vec<f64>> {
    let (mut x, mut c, mut by) = (x0.clone(), zeros(x0), Literal::new(x0, by));
    let mut round = || {
        let mut u = x.clone();
        (0..k).for_each(|_| u = local(d, &mut by, &u, &(-d.alpha * &c), at));
        let z = (&x - &u) / (k as f64 * d.alpha);
        c += &d.w * &z - &z;
        x = &d.w * u;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn methods_with_adam_are_their_recursions_wherever_the_correction_acts() {
    for (amsgrad, at) in [(false, STEP), (true, STEP), (false, gradient(1.0)), (true, gradient(0.3))] {
        let (by, optimizer) = (adam(amsgrad), Optimizer::Adam(adam(amsgrad)));
        let with = |parameters| with(parameters, optimizer.clone(), Some(at));
        for (tau, weight, gamma) in [(1, 0.1, 0.9), (4, 0.05, 1.0), (4, 0.1, 0.1)] {
            let parameters = Parameters { gamma: Some(gamma), ..xi(tau, weight) };
            agree("mile", with(parameters), |d, x| mile(d, x, (tau as usize, weight, gamma), by, at));
        }
        agree("led", with(tau(4).with("beta", 0.1)), |d, x| led(d, x, (4, 0.1), by, at));
        agree("led", with(tau(4)), |d, x| led(d, x, (4, 0.1), by, at));
        agree("k-gt", with(tau(4)), |d, x| k_gt(d, x, 4, by, at));
    }
    let plain = |parameters| with(parameters, Optimizer::Adam(adam(false)), None);
    agree("local-dsgd", plain(tau(4)), |d, x| {
        let (mut x, mut by) = (x.clone(), Literal::new(x, adam(false)));
        let mut round = || {
            (0..4).for_each(|_| x = by.step(&x, &d.g(&x), d.alpha));
            x = &d.w * &x;
            flat(&x)
        };
        (0..ROUNDS).map(|_| round()).collect()
    });
}

/// A correction that is added after heavy ball: `m = mu m + alpha g ; v = x - m + c`.
#[test]
fn a_correction_can_act_after_momentum_too() {
    let heavy = Optimizer::Momentum(Momentum { mu: 0.7, nesterov: false });
    let parameters = Parameters { gamma: Some(0.9), ..xi(4, 0.02) };
    agree("mile", with(parameters, heavy, Some(STEP)), |d, x0| {
        let (mut c, mut m, mut out) = (zeros(x0), zeros(x0), Vec::new());
        let mut step = |x: &Mat, c: &Mat| {
            m = 0.7 * &m + d.ag(x);
            x - &m + c
        };
        let mut x = step(x0, &c);
        for t in 0..(ROUNDS - 1) * 4 + 1 {
            x = step(&x, &c);
            if t % 4 == 0 {
                let gap = &x - &d.w * &x;
                c -= 0.02 * &gap;
                x -= 0.9 * &gap;
                out.push(flat(&x));
            }
        }
        out
    });
}

#[test]
fn sgd_is_the_method_as_it_is_to_the_bit() {
    let (problem, network) = (nonconvex(AGENTS, DIM, Batch::Size(3)), ring(Rule::LazyMetropolis));
    let go = |name: &str, parameters: &Parameters| {
        let method = build(name, parameters, &network);
        trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.1, ROUNDS)
    };
    for (name, parameters) in
        [("mile", xi(4, 0.2)), ("led", tau(4)), ("k-gt", tau(4)), ("local-dsgd", tau(4))]
    {
        let expected = go(name, &parameters);
        assert!(go(name, &with(parameters.clone(), Optimizer::Sgd, None)) == expected, "{name}");
        let wide = LocalSteps { clip: Some(1e6), ..LocalSteps::default() };
        assert!(go(name, &Parameters { local: wide, ..parameters.clone() }) == expected, "{name}");
        let narrow = LocalSteps { clip: Some(0.1), ..LocalSteps::default() };
        assert!(distance(&go(name, &Parameters { local: narrow, ..parameters.clone() }), &expected) > 1e-3);
        let heavy = Optimizer::Momentum(Momentum { mu: 0.3, nesterov: true });
        let short = with_momentum(parameters.clone(), 0.3, true);
        assert!(go(name, &with(parameters, heavy, None)) == go(name, &short), "{name}");
    }
    // Without a memory it does not matter where the correction acts.
    let (inside, outside) =
        (with(xi(4, 0.2), Optimizer::Sgd, Some(gradient(1.0))), with(xi(4, 0.2), Optimizer::Sgd, Some(STEP)));
    assert!(go("mile", &inside) == go("mile", &outside));
}

/// The worst agent's gradient norm after `rounds` rounds.
fn worst(
    problem: &dyn Problem<f64>,
    name: &str,
    parameters: &Parameters,
    schedule: Schedule,
    rounds: usize,
) -> f64 {
    let network = ring(Rule::LazyMetropolis);
    let (method, dim) = (build(name, parameters, &network), problem.dim());
    let start = scattered(AGENTS, dim);
    let mut agents = Simulator::new(problem, &network, &*method, &start, 3).unwrap();
    let mut run = Run::start(&*method, schedule, &mut agents).unwrap();
    (0..rounds).for_each(|_| run.round(&mut agents).unwrap());
    (0..AGENTS).map(|agent| gradient_norm(problem, agents.model(agent))).fold(0.0, f64::max)
}

#[test]
fn adam_comes_near_with_a_correction_and_stays_away_without() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let by = || Optimizer::Adam(Adam::default());
    let mile = |weight, at| with(Parameters { gamma: Some(0.9), ..xi(5, weight) }, by(), Some(at));
    let go =
        |name, parameters: Parameters| worst(&problem, name, &parameters, Schedule::constant(0.003), 4000);
    let (inside, outside) = (go("mile", mile(0.003, gradient(1.0))), go("mile", mile(0.05, STEP)));
    let without = go("local-dsgd", with(tau(5), by(), None));
    assert!(inside < 0.01, "gradient: {inside:e}");
    assert!(without > 0.05, "none: {without:e}");
    // On the step, the mean of preconditioned gradients vanishes, and sharing the preconditioners makes that the mean gradient.
    let mut shared = mile(0.05, STEP);
    shared.local.share_moments = Some(1);
    let shared = go("mile", shared);
    assert!(
        shared < 0.2 * outside && outside < 0.7 * without,
        "step: {outside:e}, shared: {shared:e}, none: {without:e}"
    );
}

/// A problem whose variable is matrices of 2 x 2 and a vector.
struct Shaped<P>(P);

const MATRIX: Range<usize> = 0..4;

impl<P: Problem<f64>> Problem<f64> for Shaped<P> {
    fn agents(&self) -> usize {
        self.0.agents()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        self.0.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        self.0.gradient(agent, x, gradient)
    }

    fn tensors(&self) -> Option<&dyn NamedTensors<f64>> {
        Some(self)
    }
}

impl<P: Problem<f64>> NamedTensors<f64> for Shaped<P> {
    fn parts(&self) -> Vec<TensorPart> {
        let part = |name: &str, range: Range<usize>, matrix| TensorPart {
            name: name.to_owned(),
            shape: vec![range.len()],
            range,
            matrix,
        };
        vec![part("layer.weight", MATRIX, Some([2, 2])), part("layer.bias", 4..self.dim(), None)]
    }
}

/// The five steps of Newton and Schulz on a matrix of 2 x 2.
fn orthogonal(row: &[f64]) -> Mat {
    let mut x = Mat::from_row_slice(2, 2, row);
    x /= x.norm() + 1e-7;
    for _ in 0..5 {
        let a = &x * x.transpose();
        x = 3.4445 * &x + (-4.7750 * &a + 2.0315 * &a * &a) * &x;
    }
    x
}

#[test]
fn muon_steps_along_orthogonal_matrices_and_leaves_the_rest_to_adam() {
    let problem = Shaped(nonconvex::<f64>(AGENTS, DIM, Batch::Full));
    // Few, since the iteration enlarges small singular values, and with them what was rounded.
    let (network, rounds) = (ring(Rule::LazyMetropolis), 10);
    for nesterov in [false, true] {
        let muon = Muon { momentum: 0.8, nesterov, rest: adam(false), exclude: Vec::new() };
        let parameters = with(Parameters { gamma: Some(0.9), ..xi(3, 0.05) }, Optimizer::Muon(muon), None);
        let method = build("mile", &parameters, &network);
        let start = scattered(AGENTS, DIM);
        let found = trajectory(&problem, &network, &*method, &start, 0.05, rounds);
        let d = Dense::new(&problem, &network, 0.05);
        let x0 = matrix(&start, DIM);
        let (mut mean, mut by, mut c, mut out) =
            (zeros(&x0), Literal::new(&x0, adam(false)), zeros(&x0), Vec::new());
        let mut step = |x: &Mat, c: &Mat| {
            let g = d.g(x);
            let mut moved = by.step(x, &g, d.alpha);
            mean = 0.8 * &mean + 0.2 * &g;
            let along = if nesterov { 0.2 * &g + 0.8 * &mean } else { mean.clone() };
            for agent in 0..AGENTS {
                let row: Vec<f64> = MATRIX.map(|k| along[(agent, k)]).collect();
                let s = flat(&orthogonal(&row));
                let length = 0.2 * 2f64.sqrt();
                MATRIX.for_each(|k| {
                    moved[(agent, k)] = (1.0 - 0.05 * 0.02) * x[(agent, k)] - 0.05 * length * s[k]
                });
            }
            moved + c
        };
        let mut x = step(&x0, &c);
        for t in 0..(rounds - 1) * 3 + 1 {
            x = step(&x, &c);
            if t % 3 == 0 {
                let gap = &x - &d.w * &x;
                c -= 0.05 * &gap;
                x -= 0.9 * &gap;
                out.push(flat(&x));
            }
        }
        assert!(distance(&found, &out) < 1e-10, "{:e}", distance(&found, &out));
    }
}

#[test]
fn muon_with_falling_steps_comes_near_a_stationary_point_and_only_with_a_correction() {
    let problem = Shaped(nonconvex::<f64>(AGENTS, DIM, Batch::Full));
    let muon = || Optimizer::Muon(Muon::default());
    let falling = || Schedule::constant(0.02).with_decay(Decay::Cosine { rounds: 4000, floor: 0.0 });
    let corrected = with(Parameters { gamma: Some(0.9), ..xi(5, 0.003) }, muon(), Some(gradient(1.0)));
    let with_it = worst(&problem, "mile", &corrected, falling(), 3990);
    let without = worst(&problem, "local-dsgd", &with(tau(5), muon(), None), falling(), 3990);
    assert!(with_it < 0.02 && without > 5.0 * with_it, "{with_it:e} {without:e}");
}

#[test]
fn what_is_out_of_range_or_has_no_meaning_is_refused_by_name() {
    let network = ring(Rule::LazyMetropolis);
    let refused = |name: &str, parameters: Parameters| {
        let entry = catalogue::find(name).unwrap();
        entry.build(&parameters, &network, 0).unwrap_err().parameter
    };
    let steps = |change: &dyn Fn(&mut LocalSteps)| {
        let mut local =
            LocalSteps { optimizer: Some(Optimizer::Adam(Adam::default())), ..LocalSteps::default() };
        change(&mut local);
        Parameters { local, ..tau(5) }
    };
    let by = |adam: Adam| with(tau(5), Optimizer::Adam(adam), None);
    for name in ["mile", "led", "k-gt", "local-dsgd"] {
        assert_eq!(refused(name, by(Adam { betas: [1.0, 0.9], ..Adam::default() })), "optimizer.betas");
        assert_eq!(refused(name, by(Adam { betas: [0.9, f64::NAN], ..Adam::default() })), "optimizer.betas");
        assert_eq!(refused(name, by(Adam { eps: 0.0, ..Adam::default() })), "optimizer.eps");
        assert_eq!(refused(name, by(Adam { decay: -1.0, ..Adam::default() })), "optimizer.decay");
        let muon = Muon { momentum: 1.0, ..Muon::default() };
        assert_eq!(refused(name, with(tau(5), Optimizer::Muon(muon), None)), "optimizer.momentum");
        assert_eq!(refused(name, steps(&|local| local.clip = Some(0.0))), "clip");
        assert_eq!(refused(name, steps(&|local| local.share_moments = Some(0))), "share_moments");
        assert_eq!(refused(name, with_momentum(steps(&|_| ()), 0.9, false)), "momentum");
        let sgd =
            |local: &mut LocalSteps| *local = LocalSteps { share_moments: Some(2), ..LocalSteps::default() };
        assert_eq!(refused(name, steps(&sgd)), "share_moments");
    }
    assert_eq!(refused("mile", steps(&|local| local.correction = Some(gradient(0.0)))), "correction.scale");
    assert_eq!(refused("mile", with(tau(5), Optimizer::Sgd, Some(gradient(2.0)))), "correction.scale");
    let penalised = Parameters { penalty: true, ..by(Adam::default()) };
    assert_eq!(refused("local-dsgd", penalised), "optimizer");
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let method = build("mile", &with(tau(5), Optimizer::Muon(Muon::default()), None), &network);
    let error = Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).err().unwrap();
    assert!(matches!(error, mile::engine::HostError::Matrices), "{error}");
}
