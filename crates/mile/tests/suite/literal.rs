//! Every recursion written a second time, densely, from its paper: nothing here uses the library's
//! verbs, methods or state.

use mile::graph::Topology;
use mile::methods::Variant;
use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Problem};
use mile::random::{Purpose, stream};
use rand::RngExt;

use crate::common::*;

pub type Mat = nalgebra::DMatrix<f64>;

/// A problem and a network, as matrices.
#[derive(Clone)]
pub struct Dense<'a> {
    problem: &'a dyn Problem<f64>,
    pub w: Mat,
    pub alpha: f64,
}

impl<'a> Dense<'a> {
    pub fn new(problem: &'a dyn Problem<f64>, network: &Network, alpha: f64) -> Self {
        let n = network.agents();
        Self { problem, w: Mat::from_fn(n, n, |i, j| network.mixing().weight(i, j)), alpha }
    }

    pub fn identity(&self) -> Mat {
        Mat::identity(self.w.nrows(), self.w.nrows())
    }

    /// Rows `grad f_i(x_i)`.
    pub fn g(&self, x: &Mat) -> Mat {
        let mut out = Mat::zeros(x.nrows(), x.ncols());
        for i in 0..x.nrows() {
            let row: Vec<f64> = x.row(i).iter().copied().collect();
            let mut g = vec![0.0; row.len()];
            self.problem.gradient(i, &row, &mut g).unwrap();
            (0..g.len()).for_each(|k| out[(i, k)] = g[k]);
        }
        out
    }

    /// `alpha grad f`.
    pub fn ag(&self, x: &Mat) -> Mat {
        self.alpha * self.g(x)
    }
}

pub fn matrix(rows: &[f64], dim: usize) -> Mat {
    Mat::from_fn(rows.len() / dim, dim, |i, k| rows[i * dim + k])
}

pub fn flat(x: &Mat) -> Vec<f64> {
    (0..x.nrows()).flat_map(|i| x.row(i).iter().copied().collect::<Vec<_>>()).collect()
}

/// MILE, the paper's two-step recursion; `mixes(t)` says when.
fn two_step(d: &Dense, first: Mat, x0: &Mat, m: &Mat, tau: usize, rounds: usize) -> Vec<Vec<f64>> {
    let (mut before, mut x, mut out) = (x0.clone(), first, Vec::new());
    for t in 0.. {
        let v = 2.0 * &x - &before - d.ag(&x) + d.ag(&before);
        before = x;
        if t % tau == 0 {
            x = m * v;
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

fn mile(d: &Dense, x0: &Mat, tau: usize, xi: f64, rounds: usize) -> Vec<Vec<f64>> {
    let w = (1.0 - xi) * d.identity() + xi * &d.w;
    two_step(d, x0 - d.ag(x0), x0, &w, tau, rounds)
}

fn decoupled(d: &Dense, x0: &Mat, tau: usize, xi: f64, gamma: f64, rounds: usize) -> Vec<Vec<f64>> {
    let lap = d.identity() - &d.w;
    let (mut x, mut c, mut out) = (x0 - d.ag(x0), Mat::zeros(x0.nrows(), x0.ncols()), Vec::new());
    for t in 0..(rounds - 1) * tau + 1 {
        let v = &x - d.ag(&x) + &c;
        if t % tau == 0 {
            let gap = &lap * &v;
            x = &v - gamma * &gap;
            c -= xi * &gap;
            out.push(flat(&x));
        } else {
            x = v;
        }
    }
    out
}

fn led(d: &Dense, x0: &Mat, tau: usize, beta: f64, rounds: usize) -> Vec<Vec<f64>> {
    let (mut x, mut y) = (x0.clone(), Mat::zeros(x0.nrows(), x0.ncols()));
    let mut round = || {
        let mut phi = x.clone();
        for _ in 0..tau {
            phi = &phi - d.ag(&phi) - beta * &y;
        }
        x = &d.w * &phi;
        y += &phi - &x;
        flat(&x)
    };
    (0..rounds).map(|_| round()).collect()
}

fn k_gt(d: &Dense, x0: &Mat, k: usize, eta_s: f64, rounds: usize) -> Vec<Vec<f64>> {
    let (mut x, mut c) = (x0.clone(), Mat::zeros(x0.nrows(), x0.ncols()));
    let mut round = || {
        let mut u = x.clone();
        for _ in 0..k {
            u = &u - d.ag(&u) - d.alpha * &c;
        }
        let z = (1.0 / (k as f64 * d.alpha)) * (&x - &u);
        c = &c - &z + &d.w * &z;
        x = &d.w * (&x - (eta_s * k as f64 * d.alpha) * &z);
        flat(&x)
    };
    (0..rounds).map(|_| round()).collect()
}

/// Gradient tracking with matrices (W1, W2, W3, W4) when `mixes(t)`, the identity otherwise.
fn tracking(
    d: &Dense,
    x0: &Mat,
    matrices: [&Mat; 4],
    mixes: impl Fn(usize) -> bool,
    rounds: usize,
) -> Vec<Vec<f64>> {
    let (mut x, mut y, mut out) = (x0.clone(), d.g(x0), Vec::new());
    let identity = d.identity();
    for t in 0.. {
        let [w1, w2, w3, w4] = if mixes(t) { matrices } else { [&identity; 4] };
        let next = w1 * &x - d.alpha * (w2 * &y);
        y = w3 * &y + w4 * (d.g(&next) - d.g(&x));
        x = next;
        if mixes(t) {
            out.push(flat(&x));
        }
        if out.len() == rounds {
            break;
        }
    }
    out
}

fn extra(d: &Dense, x0: &Mat, rounds: usize) -> Vec<Vec<f64>> {
    let half = 0.5 * (d.identity() + &d.w);
    let (mut before, mut x) = (x0.clone(), &d.w * x0 - d.ag(x0));
    let mut out = vec![flat(&x)];
    while out.len() < rounds {
        let next = &x + &d.w * &x - &half * &before - d.ag(&x) + d.ag(&before);
        before = std::mem::replace(&mut x, next);
        out.push(flat(&x));
    }
    out
}

fn ed(d: &Dense, x0: &Mat, rounds: usize) -> Vec<Vec<f64>> {
    let half = 0.5 * (d.identity() + &d.w);
    let (mut x, mut psi) = (x0.clone(), x0.clone());
    let mut round = || {
        let next = &x - d.ag(&x);
        let phi = &next + &x - &psi;
        psi = next;
        x = &half * phi;
        flat(&x)
    };
    (0..rounds).map(|_| round()).collect()
}

fn d2(d: &Dense, x0: &Mat, m: &Mat, rounds: usize) -> Vec<Vec<f64>> {
    let first = m * (x0 - d.ag(x0));
    let mut out = vec![flat(&first)];
    out.extend(two_step(d, first, x0, m, 1, rounds - 1));
    out
}

fn coin(p: f64, t: usize) -> bool {
    stream(3, Purpose::Coin, 0, t as u64).random_bool(p)
}

/// Scaffnew's form of ProxSkip, with h = -y/alpha; `mix` is what an exchange does to z.
fn scaffnew(
    d: &Dense,
    x0: &Mat,
    p: f64,
    beta: f64,
    coin: impl Fn(usize) -> bool,
    mix: impl Fn(&Mat) -> Mat,
    rounds: usize,
) -> Vec<Vec<f64>> {
    let (mut x, mut h, mut out) = (x0.clone(), Mat::zeros(x0.nrows(), x0.ncols()), Vec::new());
    assert!(p > 0.0);
    for t in 0.. {
        let hat = &x - d.alpha * (d.g(&x) - &h);
        if coin(t) {
            x = mix(&hat);
            h += (beta / d.alpha) * (&x - &hat);
            out.push(flat(&x));
            if out.len() == rounds {
                break;
            }
        } else {
            x = hat;
        }
    }
    out
}

fn gossip(w: &Mat, z: &Mat, eta: f64, k: usize) -> Mat {
    let (mut before, mut now) = (z.clone(), z.clone());
    for _ in 0..k {
        let next = (1.0 + eta) * (w * &now) - eta * &before;
        before = std::mem::replace(&mut now, next);
    }
    now
}

/// SCAFFOLD with a server that holds x and c.
fn scaffold(d: &Dense, x0: &Mat, k: usize, eta_g: f64, rounds: usize) -> Vec<Vec<f64>> {
    let (n, dim) = (x0.nrows(), x0.ncols());
    let mean = |m: &Mat| Mat::from_fn(1, dim, |_, c| m.column(c).iter().sum::<f64>() / n as f64);
    let spread = |m: &Mat| Mat::from_fn(n, dim, |_, c| m[(0, c)]);
    let (mut x, mut c, mut ci) = (mean(x0), Mat::zeros(1, dim), Mat::zeros(n, dim));
    let mut round = || {
        let mut y = spread(&x);
        for _ in 0..k {
            y = &y - d.alpha * (d.g(&y) - &ci + spread(&c));
        }
        let plus = &ci - spread(&c) + (1.0 / (k as f64 * d.alpha)) * (spread(&x) - &y);
        c += mean(&(&plus - &ci));
        ci = plus;
        x += eta_g * (mean(&y) - &x);
        flat(&spread(&x))
    };
    (0..rounds).map(|_| round()).collect()
}

fn dsgd(d: &Dense, x0: &Mat, tau: usize, cta: bool, rounds: usize) -> Vec<Vec<f64>> {
    let mut x = x0.clone();
    let mut round = || {
        if cta {
            x = &d.w * &x - d.ag(&x);
        } else {
            (0..tau).for_each(|_| x = &x - d.ag(&x));
            x = &d.w * &x;
        }
        flat(&x)
    };
    (0..rounds).map(|_| round()).collect()
}

pub const ROUNDS: usize = 40;
const ALPHA: f64 = 0.05;

/// Production against the literal form, on the lazy ring from scattered starts.
pub fn agree(name: &str, parameters: Parameters, literal: impl Fn(&Dense, &Mat) -> Vec<Vec<f64>>) {
    agree_on(&ring(Rule::LazyMetropolis), &scattered(AGENTS, DIM), name, parameters, literal);
}

/// The same on another network, from another start.
pub fn agree_on(
    network: &Network,
    start: &[f64],
    name: &str,
    parameters: Parameters,
    literal: impl Fn(&Dense, &Mat) -> Vec<Vec<f64>>,
) {
    let problem = nonconvex(network.agents(), DIM, Batch::Full);
    let method = build(name, &parameters, network);
    let production = trajectory(&problem, network, &*method, start, ALPHA, ROUNDS);
    let dense = Dense::new(&problem, network, ALPHA);
    let expected = literal(&dense, &matrix(start, DIM));
    let difference = distance(&production, &expected);
    assert!(difference < 1e-11, "{name} {parameters:?}: {difference:e}");
}

#[test]
fn mile_is_the_papers_two_step_recursion() {
    for steps in [1, 2, 3, 5, 7, 10] {
        let weight = 1.8 / (steps as f64 + 3.0);
        agree("mile", xi(steps, weight), |d, x| mile(d, x, steps as usize, weight, ROUNDS));
    }
}

#[test]
fn decoupled_mile_is_its_matrix_form() {
    for (steps, weight, gamma) in [(1, 0.4, 1.0), (5, 0.1, 0.7), (10, 0.03, 1.0)] {
        let parameters = Parameters { gamma: Some(gamma), ..xi(steps, weight) };
        agree("mile", parameters, |d, x| decoupled(d, x, steps as usize, weight, gamma, ROUNDS));
    }
}

/// The matrix form with the weight xi(r) = from (to/from)^(min(r, rounds)/rounds) of round r; without gamma it is xi(r).
fn with_growing_weight(
    d: &Dense,
    x0: &Mat,
    tau: usize,
    (from, to, rounds): (f64, f64, usize),
    gamma: Option<f64>,
) -> Vec<Vec<f64>> {
    let (mut x, mut c, mut out) = (x0 - d.ag(x0), Mat::zeros(x0.nrows(), x0.ncols()), Vec::new());
    while out.len() < ROUNDS {
        let v = &x - d.ag(&x) + &c;
        let weight = from * (to / from).powf(out.len().min(rounds) as f64 / rounds as f64);
        let mixed = &d.w * &v;
        x = &v + (gamma.unwrap_or(weight)) * (&mixed - &v);
        c += weight * (&mixed - &v);
        out.push(flat(&x));
        (1..tau).for_each(|_| x = &x - d.ag(&x) + &c);
    }
    out
}

#[test]
fn mile_with_a_growing_weight_is_its_matrix_form() {
    for gamma in [None, Some(0.9)] {
        let parameters = Parameters { gamma, ..growing(4, 0.01, 0.2, 25) };
        agree("mile", parameters, |d, x| with_growing_weight(d, x, 4, (0.01, 0.2, 25), gamma));
    }
}

/// The weight of every edge from whole differences, as in the text: a running mean of their cosines at every agent, in which
/// the k-th, k > 1, has the share max(1/10, 1/(k - 1)); first elements are left out.
fn with_weights_of_the_edges(d: &Dense, x0: &Mat, tau: usize, most: f64, gamma: f64) -> Vec<Vec<f64>> {
    let (n, dim) = (x0.nrows(), x0.ncols());
    let (mut x, mut c, mut out) = (x0 - d.ag(x0), Mat::zeros(n, dim), Vec::new());
    let (mut r, mut last) = (vec![0.0; n], Mat::zeros(n, dim));
    while out.len() < ROUNDS {
        let v = &x - d.ag(&x) + &c;
        x = v.clone();
        let (mut sums, mut weights) = (vec![0.0; n], vec![0.0; n]);
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j) {
            let w = d.w[(i, j)];
            let rho = f64::max(0.0, 0.5 * (r[i] + r[j]));
            let (mut both, mut now, mut before) = (0.0, 0.0, 0.0);
            for k in 0..dim {
                let difference = v[(j, k)] - v[(i, k)];
                x[(i, k)] += gamma * w * difference;
                c[(i, k)] += most * rho * w * difference;
                if k > 0 {
                    let earlier = last[(j, k)] - last[(i, k)];
                    both += difference * earlier;
                    now += difference * difference;
                    before += earlier * earlier;
                }
            }
            sums[i] += if before > 0.0 { w * both / (now * before).sqrt() } else { 0.0 };
            weights[i] += w;
        }
        if !out.is_empty() {
            let share = f64::max(0.1, 1.0 / out.len() as f64);
            (0..n).for_each(|i| r[i] += share * (sums[i] / weights[i] - r[i]));
        }
        last = v;
        out.push(flat(&x));
        (1..tau).for_each(|_| x = &x - d.ag(&x) + &c);
    }
    out
}

#[test]
fn mile_with_an_adaptive_weight_is_its_form_edge_by_edge() {
    for (steps, most, gamma) in [(1, 0.4, 1.0), (4, 0.2, 0.9), (10, 0.03, 1.0)] {
        agree("mile", adaptive(steps, most, gamma), |d, x| {
            with_weights_of_the_edges(d, x, steps as usize, most, gamma)
        });
    }
}

#[test]
fn led_is_its_recursion() {
    agree("led", tau(5), |d, x| led(d, x, 5, 0.2, ROUNDS));
    agree("led", tau(3).with("beta", 0.1), |d, x| led(d, x, 3, 0.1, ROUNDS));
}

#[test]
fn k_gt_is_its_recursion() {
    agree("k-gt", tau(5), |d, x| k_gt(d, x, 5, 1.0, ROUNDS));
    agree("k-gt", tau(4).with("eta_s", 0.5), |d, x| k_gt(d, x, 4, 0.5, ROUNDS));
    agree("dec-fedtrack", tau(5), |d, x| k_gt(d, x, 5, 1.0, ROUNDS));
}

#[test]
fn periodical_gt_is_gradient_tracking_with_w_at_the_last_of_k_steps() {
    agree("periodical-gt", tau(4), |d, x| {
        tracking(d, x, [&d.w, &d.w, &d.w, &d.identity()], |t| t % 4 == 3, ROUNDS)
    });
}

#[test]
fn gta_is_its_four_matrices() {
    for communications in [1, 2, 3] {
        let parameters = || tau(3).with("communications", communications);
        let z = |d: &Dense| (1..communications).fold(d.w.clone(), |z, _| z * &d.w);
        let first = |t: usize| t.is_multiple_of(3);
        agree("gta-1", parameters(), |d, x| {
            tracking(d, x, [&z(d), &d.identity(), &z(d), &d.identity()], first, ROUNDS)
        });
        agree("gta-2", parameters(), |d, x| {
            tracking(d, x, [&z(d), &z(d), &z(d), &d.identity()], first, ROUNDS)
        });
        agree("gta-3", parameters(), |d, x| tracking(d, x, [&z(d); 4], first, ROUNDS));
    }
}

#[test]
fn diging_and_push_pull_are_time_varying_gradient_tracking() {
    for name in ["diging", "push-pull"] {
        for steps in [1usize, 5] {
            agree(name, tau(steps as u64), |d, x| {
                let identity = d.identity();
                tracking(d, x, [&d.w, &identity, &d.w, &identity], |t| t % steps == 0, ROUNDS)
            });
        }
    }
}

#[test]
fn the_methods_without_local_steps_are_their_recursions() {
    agree("extra", Parameters::default(), |d, x| extra(d, x, ROUNDS));
    agree("ed", Parameters::default(), |d, x| ed(d, x, ROUNDS));
    agree("d2", Parameters::default(), |d, x| d2(d, x, &d.w, ROUNDS));
    agree("nids", Parameters::default(), |d, x| {
        let half = 0.5 * (d.identity() + &d.w);
        two_step(d, x - d.ag(x), x, &half, 1, ROUNDS)
    });
    agree("gradient-tracking", Parameters::default(), |d, x| {
        tracking(d, x, [&d.w, &d.w, &d.w, &d.identity()], |_| true, ROUNDS)
    });
    agree("dsgd", Parameters::default(), |d, x| dsgd(d, x, 1, false, ROUNDS));
    let cta = Parameters::default().with("variant", Variant::Cta);
    agree("dsgd", cta, |d, x| dsgd(d, x, 1, true, ROUNDS));
    agree("local-dsgd", tau(5), |d, x| dsgd(d, x, 5, false, ROUNDS));
}

#[test]
fn proxskip_is_scaffnew() {
    agree("proxskip", tau(4), |d, x| {
        let half = 0.5 * (d.identity() + &d.w);
        scaffnew(d, x, 0.25, 0.25, |t| coin(0.25, t), |z| &half * z, ROUNDS)
    });
    let parameters = Parameters::default().with("probability", 0.3).with("chi", 2.0).with("beta", 0.2);
    agree("proxskip", parameters, |d, x| {
        let quarter = 0.75 * d.identity() + 0.25 * &d.w;
        scaffnew(d, x, 0.3, 0.2, |t| coin(0.3, t), |z| &quarter * z, ROUNDS)
    });
}

#[test]
fn mg_skip_is_proxskip_with_accelerated_gossip() {
    for k in [1usize, 2, 3] {
        let network = ring(Rule::LazyMetropolis);
        let extremes = network.extremes();
        let l = extremes.lambda_2.abs().max(extremes.lambda_n.abs());
        let root = (1.0 - l * l).sqrt();
        let eta = if k == 1 { 0.0 } else { (1.0 - root) / (1.0 + root) };
        let parameters = tau(4).with("gossip", k as u64);
        agree("mg-skip", parameters, |d, x| {
            let mix = |z: &Mat| 0.5 * (z + gossip(&d.w, z, eta, k));
            scaffnew(d, x, 0.25, 0.25, |t| coin(0.25, t), mix, ROUNDS)
        });
    }
}

#[test]
fn scaffold_is_what_its_server_would_do() {
    let complete = network(Topology::Complete, AGENTS, Rule::Metropolis);
    let common: Vec<f64> = scattered::<f64>(1, DIM).repeat(AGENTS);
    for eta in [1.0, 0.6] {
        let parameters = tau(5).with("eta_s", eta);
        agree_on(&complete, &common, "scaffold", parameters, |d, x| scaffold(d, x, 5, eta, ROUNDS));
    }
}

/// MILE is ProxSkip with beta = 1, M = W~, and a coin that falls when t mod tau = 0.
#[test]
fn mile_is_proxskip_with_a_deterministic_coin() {
    let (steps, weight) = (5usize, 0.2);
    agree("mile", xi(steps as u64, weight), |d, x| {
        let w = (1.0 - weight) * d.identity() + weight * &d.w;
        scaffnew(d, &(x - d.ag(x)), 1.0, 1.0, |t| t % steps == 0, |z| &w * z, ROUNDS)
    });
}
