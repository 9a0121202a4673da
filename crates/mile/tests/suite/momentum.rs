//! Methods with momentum: their recursions written a second time, which of them are equivalent, and step sizes that change.
//!
//! The literal forms keep the momentum in units of gradients, as PyTorch does, where the library's primal-dual methods keep it in
//! units of x.

use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::problems::{Batch, Problem, Quadratic};
use mile::run::Run;
use mile::schedule::{Decay, Schedule};
use mile::simulator::Simulator;

use crate::common::*;
use crate::literal::{Dense, Mat, agree, flat, matrix};

const ROUNDS: usize = 40;
const MU: f64 = 0.7;

fn zeros(x: &Mat) -> Mat {
    Mat::zeros(x.nrows(), x.ncols())
}

/// A momentum buffer in units of gradients.
struct Buffer {
    b: Mat,
    mu: f64,
    nesterov: bool,
}

impl Buffer {
    fn new(x: &Mat, mu: f64, nesterov: bool) -> Self {
        Self { b: zeros(x), mu, nesterov }
    }

    /// The direction of a step whose gradient is `g`.
    fn direction(&mut self, g: Mat) -> Mat {
        self.b = self.mu * &self.b + &g;
        if self.nesterov { g + self.mu * &self.b } else { self.b.clone() }
    }
}

/// MILE with h = -c/alpha, at a step size that may change from round to round.
fn mile(
    d: &mut Dense,
    x0: &Mat,
    (tau, weight, gamma): (usize, f64, f64),
    mut buffer: Buffer,
    step_size: impl Fn(u64) -> f64,
    rounds: usize,
) -> Vec<Vec<f64>> {
    let (mut x, mut h, mut out) = (x0.clone(), zeros(x0), Vec::new());
    d.alpha = step_size(0);
    let first = buffer.direction(d.g(&x));
    x -= d.alpha * first;
    for t in 0.. {
        d.alpha = step_size(out.len() as u64);
        let v = &x - d.alpha * buffer.direction(d.g(&x) + &h);
        if t % tau == 0 {
            let gap = &v - &d.w * &v;
            x = &v - gamma * &gap;
            h += (weight / d.alpha) * &gap;
            out.push(flat(&x));
            if out.len() == rounds {
                break;
            }
        } else {
            x = v;
        }
    }
    out
}

fn led(d: &Dense, x0: &Mat, tau: usize, beta: f64, mut buffer: Buffer) -> Vec<Vec<f64>> {
    let (mut x, mut y) = (x0.clone(), zeros(x0));
    let mut round = || {
        let mut phi = x.clone();
        for _ in 0..tau {
            phi -= d.alpha * buffer.direction(d.g(&phi) + (beta / d.alpha) * &y);
        }
        x = &d.w * &phi;
        y += &phi - &x;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn k_gt(d: &Dense, x0: &Mat, k: usize, mut buffer: Buffer) -> Vec<Vec<f64>> {
    let (mut x, mut c) = (x0.clone(), zeros(x0));
    let mut round = || {
        let mut u = x.clone();
        for _ in 0..k {
            u -= d.alpha * buffer.direction(d.g(&u) + &c);
        }
        let z = ((1.0 - buffer.mu) / (k as f64 * d.alpha)) * (&x - &u);
        c += &d.w * &z - &z;
        x = &d.w * &u;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn local_dsgd(d: &Dense, x0: &Mat, tau: usize, mut buffer: Buffer) -> Vec<Vec<f64>> {
    let mut x = x0.clone();
    let mut round = || {
        (0..tau).for_each(|_| x -= d.alpha * buffer.direction(d.g(&x)));
        x = &d.w * &x;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn qg_dsgdm(d: &Dense, x0: &Mat, mu: f64, nesterov: bool) -> Vec<Vec<f64>> {
    let (mut x, mut slow) = (x0.clone(), zeros(x0));
    let mut round = || {
        let g = d.g(&x);
        let heavy = mu * &slow + &g;
        let direction = if nesterov { g + mu * &heavy } else { heavy };
        let next = &d.w * (&x - d.alpha * direction);
        slow = mu * &slow + ((1.0 - mu) / d.alpha) * (&x - &next);
        x = next;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn decentlam(d: &Dense, x0: &Mat, mu: f64) -> Vec<Vec<f64>> {
    let (mut x, mut m) = (x0.clone(), zeros(x0));
    let mut round = || {
        let g = (1.0 / d.alpha) * (&x - &d.w * (&x - d.ag(&x)));
        m = mu * &m + g;
        x -= d.alpha * &m;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn momentum_tracking(d: &Dense, x0: &Mat, mu: f64) -> Vec<Vec<f64>> {
    let (mut x, mut u, mut c) = (x0.clone(), zeros(x0), zeros(x0));
    let mut round = || {
        u = mu * &u + d.g(&x);
        x = &d.w * &x - d.alpha * (&u - &c);
        c = &d.w * (&c - &u) + &u;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn edm(d: &Dense, x0: &Mat, mu: f64) -> Vec<Vec<f64>> {
    let half = 0.5 * (d.identity() + &d.w);
    let (mut x, mut psi, mut m) = (x0.clone(), x0.clone(), zeros(x0));
    let mut round = || {
        m = mu * &m + (1.0 - mu) * d.g(&x);
        let next = &x - d.alpha * &m;
        let phi = &next + &x - &psi;
        psi = next;
        x = &half * phi;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn the_correction_goes_through_the_momentum() {
    for nesterov in [false, true] {
        let heavy = |parameters| with_momentum(parameters, MU, nesterov);
        let buffer = |x: &Mat| Buffer::new(x, MU, nesterov);
        for (tau, weight, gamma) in [(1, 0.05, 0.9), (4, 0.05, 1.0), (4, 0.1, 0.1)] {
            let parameters = Parameters { gamma: Some(gamma), ..xi(tau, weight) };
            agree("mile", heavy(parameters), |d, x| {
                let mut own = d.clone();
                mile(&mut own, x, (tau as usize, weight, gamma), buffer(x), |_| d.alpha, ROUNDS)
            });
        }
        agree("led", heavy(tau(4).with("beta", 0.06)), |d, x| led(d, x, 4, 0.06, buffer(x)));
        agree("k-gt", heavy(tau(4)), |d, x| k_gt(d, x, 4, buffer(x)));
        agree("local-dsgd", heavy(tau(4)), |d, x| local_dsgd(d, x, 4, buffer(x)));
        agree("qg-dsgdm", heavy(Parameters::default()), |d, x| qg_dsgdm(d, x, MU, nesterov));
    }
    let heavy = || Parameters { momentum: Some(MU), ..Parameters::default() };
    agree("decentlam", heavy(), |d, x| decentlam(d, x, MU));
    agree("momentum-tracking", heavy(), |d, x| momentum_tracking(d, x, MU));
    agree("edm", heavy(), |d, x| edm(d, x, MU));
}

#[test]
fn led_uses_a_smaller_default_weight_with_momentum() {
    for (mu, nesterov, tau_, expected) in [
        (0.5, false, 4, 0.125),
        (0.9, false, 4, 0.01 / 1.8),
        (0.9, true, 4, 0.01 / 1.62),
        (0.9, false, 20, 0.005),
    ] {
        agree("led", with_momentum(tau(tau_), mu, nesterov), |d, x| {
            led(d, x, tau_ as usize, expected, Buffer::new(x, mu, nesterov))
        });
    }
}

fn go(name: &str, parameters: &Parameters, step_size: f64, batch: Batch) -> Vec<Vec<f64>> {
    let (problem, network) = (nonconvex(AGENTS, DIM, batch), ring(Rule::LazyMetropolis));
    let method = build(name, parameters, &network);
    trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), step_size, ROUNDS)
}

#[test]
fn without_momentum_it_is_the_plain_method_to_the_bit() {
    let decoupled = || Parameters { gamma: Some(0.9), ..xi(4, 0.1) };
    let plain = [
        ("mile", xi(4, 0.2)),
        ("mile", decoupled()),
        ("led", tau(4)),
        ("k-gt", tau(4)),
        ("local-dsgd", tau(4)),
    ];
    for (name, parameters) in plain {
        let expected = go(name, &parameters, 0.1, Batch::Size(3));
        for nesterov in [false, true] {
            // 0 is the plain method, without a vector for the momentum; the smallest number has the vector and no effect.
            for mu in [0.0, f64::MIN_POSITIVE] {
                let found = go(name, &with_momentum(parameters.clone(), mu, nesterov), 0.1, Batch::Size(3));
                assert!(found == expected, "{name}, momentum {mu:e}, nesterov: {nesterov}");
            }
            let far = go(name, &with_momentum(parameters.clone(), 0.3, nesterov), 0.1, Batch::Size(3));
            assert!(distance(&far, &expected) > 1e-3, "{name}: momentum does nothing");
        }
    }
}

#[test]
fn momentum_methods_without_momentum_are_known_methods() {
    let none = || Parameters { momentum: Some(0.0), ..Parameters::default() };
    let same = |name: &str, other: &str, parameters: Parameters| {
        let found =
            distance(&go(name, &none(), 0.05, Batch::Full), &go(other, &parameters, 0.05, Batch::Full));
        assert!(found < 2e-13, "{name} and {other}: {found:e}");
    };
    same("edm", "ed", Parameters::default());
    same("qg-dsgdm", "dsgd", Parameters::default());
    same("decentlam", "dsgd", Parameters::default());
}

/// Both average in the same way, but they are not the same method: EDM's correction bypasses the momentum.
#[test]
fn mile_with_momentum_has_the_average_of_edm_and_is_another_method() {
    let problem = Quadratic::<f64>::new(AGENTS, DIM, 1.0, 1.0, 0).unwrap(); // all Hessians are the identity
    let network = ring(Rule::LazyMetropolis);
    let (start, mu, alpha) = (scattered(AGENTS, DIM), 0.3, 0.2);
    let path = |name: &str, parameters: Parameters, step_size: f64, rounds: usize| {
        let method = build(name, &parameters, &network);
        trajectory(&problem, &network, &*method, &start, step_size, rounds)
    };
    let ours = with_momentum(Parameters { gamma: Some(0.5), ..xi(1, 0.5) }, mu, false);
    // EDM's gradients have the weight 1 - mu, and MILE's start-up is one step.
    let ours = path("mile", ours, (1.0 - mu) * alpha, ROUNDS);
    let theirs = path("edm", Parameters { momentum: Some(mu), ..Parameters::default() }, alpha, ROUNDS + 1);
    let averages = |path: &[Vec<f64>]| path.iter().map(|x| mile::block::mean_row(x, DIM)).collect::<Vec<_>>();
    assert!(distance(&averages(&ours), &averages(&theirs[1..])) < 1e-13);
    assert!(distance(&ours, &theirs[1..]) > 1e-2);
}

#[test]
fn biased_momentum_methods_have_the_fixed_points_of_dsgd() {
    let (problem, network) = (nonconvex(AGENTS, DIM, Batch::Full), ring(Rule::LazyMetropolis));
    let last = |name: &str| {
        let method = build(name, &Parameters::default(), &network);
        trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.05, 4_000).split_off(3_999)
    };
    let dsgd = last("dsgd");
    for name in ["qg-dsgdm", "decentlam"] {
        let apart = distance(&last(name), &dsgd);
        assert!(apart < 1e-11, "{name}: {apart:e}");
    }
}

/// The momentum is rescaled with the step size as the corrections are: it is that of a buffer in units of gradients.
#[test]
fn a_step_size_that_changes_gives_what_a_buffer_of_gradients_gives() {
    let (problem, network) = (nonconvex(AGENTS, DIM, Batch::Full), ring(Rule::LazyMetropolis));
    let start = scattered(AGENTS, DIM);
    let schedule = Schedule::constant(0.05).with_warmup(3).with_decay(Decay::Step { every: 5, factor: 0.5 });
    for nesterov in [false, true] {
        let parameters = with_momentum(Parameters { gamma: Some(0.9), ..xi(4, 0.04) }, MU, nesterov);
        let method = build("mile", &parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &start, 3).unwrap();
        let mut run = Run::start(&*method, schedule.clone(), &mut agents).unwrap();
        let mut found = Vec::new();
        for _ in 0..ROUNDS {
            run.round(&mut agents).unwrap();
            found.push(agents.models().to_vec());
        }
        let mut dense = Dense::new(&problem, &network, 0.05);
        let x = matrix(&start, DIM);
        let buffer = Buffer::new(&x, MU, nesterov);
        let expected = mile(&mut dense, &x, (4, 0.04, 0.9), buffer, |round| schedule.at(round), ROUNDS);
        assert!(distance(&found, &expected) < 1e-12, "{:e}", distance(&found, &expected));
        // Without a schedule it goes elsewhere, which shows that this test can fail.
        let constant = mile(&mut dense, &x, (4, 0.04, 0.9), Buffer::new(&x, MU, nesterov), |_| 0.05, ROUNDS);
        assert!(distance(&found, &constant) > 1e-3);
    }
    assert!(problem.dim() == DIM);
}

#[test]
fn momentum_out_of_range_is_refused_by_name() {
    let network = ring(Rule::LazyMetropolis);
    let refused = |name: &str, parameters: Parameters| {
        let entry = mile::methods::catalogue::find(name).unwrap();
        entry.build(&parameters, &network, 0).unwrap_err().parameter
    };
    for mu in [1.0, -0.1, f64::NAN] {
        for name in ["mile", "led", "k-gt", "local-dsgd", "edm", "decentlam", "qg-dsgdm", "momentum-tracking"]
        {
            let given = Parameters { momentum: Some(mu), ..Parameters::default() };
            assert_eq!(refused(name, given), "momentum", "{name}");
        }
    }
    assert_eq!(refused("mile", Parameters { nesterov: Some(true), ..tau(5) }), "nesterov");
    let penalised = Parameters { penalty: true, momentum: Some(0.9), ..tau(5) };
    assert_eq!(refused("local-dsgd", penalised), "momentum");
}
