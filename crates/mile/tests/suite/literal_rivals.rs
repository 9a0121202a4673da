//! The recursions of LT-ADMM, DiNNO, FSPDA, MoTEF, DiLoCo, NoLoCo and GASLoC written a second time, densely: ADMM with its edge variables, pairs
//! with their means, and servers with their state.

use mile::compression::Compression;
use mile::graph::Topology;
use mile::methods::OuterMomentum;
use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::network::Network;
use mile::varying::TimeVarying;

use crate::common::*;
use crate::literal::{Dense, Mat, ROUNDS, agree, agree_on, flat};
use crate::public_copies::{eight_bits, two_largest};

/// A starting point that all agents share.
fn common_start() -> Vec<f64> {
    scattered(1, DIM).repeat(AGENTS)
}

fn outer(parameters: Parameters, momentum: f64, step_size: f64) -> Parameters {
    Parameters { outer: Some(OuterMomentum { momentum, step_size }), ..parameters }
}

/// Graphs of agents with different numbers of neighbours, and a ring with equal weights.
fn graphs() -> [Network; 3] {
    [
        ring(Rule::MaxDegree),
        network(Topology::Star, AGENTS, Rule::Metropolis),
        network(Topology::Grid, AGENTS, Rule::LazyMetropolis),
    ]
}

/// LT-ADMM with a variable for each end of an edge, from z_ij = rho w_ij x_i. The penalty is taken at the model of the last exchange, or
/// moves with the local steps.
fn lt_admm(d: &Dense, x0: &Mat, tau: usize, rho: f64, moving: bool) -> Vec<Vec<f64>> {
    let (n, dim) = (x0.nrows(), x0.ncols());
    let weight = |i: usize, j: usize| if i == j { 0.0 } else { rho * d.w[(i, j)] };
    let mut x = x0.clone();
    let mut z: Vec<Mat> = (0..n).map(|i| Mat::from_fn(n, dim, |j, k| weight(i, j) * x0[(i, k)])).collect();
    let mut round = || {
        let at_exchange = x.clone();
        for _ in 0..tau {
            let (place, g) = (if moving { x.clone() } else { at_exchange.clone() }, d.ag(&x));
            x -= Mat::from_fn(n, dim, |i, k| {
                let penalty: f64 = (0..n).map(|j| weight(i, j) * place[(i, k)] - z[i][(j, k)]).sum();
                g[(i, k)] + penalty
            });
        }
        let message = |i: usize, j: usize, k: usize| z[i][(j, k)] - 2.0 * weight(i, j) * x[(i, k)];
        let next = |i: usize| Mat::from_fn(n, dim, |j, k| 0.5 * (z[i][(j, k)] - message(j, i, k)));
        z = (0..n).map(next).collect();
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn lt_admm_needs_no_edge_variables() {
    for network in graphs() {
        for (steps, rho) in [(1, 0.8), (5, 0.3)] {
            let parameters = tau(steps).with("rho", rho);
            agree_on(&network, &common_start(), "lt-admm", parameters, |d, x| {
                lt_admm(d, x, steps as usize, rho, false)
            });
        }
    }
    agree_on(&ring(Rule::MaxDegree), &common_start(), "lt-admm", tau(5), |d, x| {
        lt_admm(d, x, 5, 1.0 / (5.0 * 2.0 / 3.0), false)
    });
}

/// DiNNO as in the paper: the exchange comes first, and every agent knows its neighbours' models. An agent whose weights sum to less than those
/// of others is its own neighbour with the rest.
fn dinno(d: &Dense, x0: &Mat, tau: usize, rho: f64) -> Vec<Vec<f64>> {
    let (n, dim) = (x0.nrows(), x0.ncols());
    let degree = (0..n).map(|i| 1.0 - d.w[(i, i)]).fold(0.0, f64::max);
    let weight = |i: usize, j: usize| match i == j {
        true => rho / d.alpha * (degree - (1.0 - d.w[(i, i)])),
        false => rho / d.alpha * d.w[(i, j)],
    };
    let (mut x, mut p) = (x0.clone(), Mat::zeros(n, dim));
    let mut round = || {
        let known = x.clone();
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            (0..dim).for_each(|k| p[(i, k)] += weight(i, j) * (known[(i, k)] - known[(j, k)]));
        }
        for _ in 0..tau {
            let g = d.g(&x);
            let h = Mat::from_fn(n, dim, |i, k| {
                let middle = |j: usize| 0.5 * (known[(i, k)] + known[(j, k)]);
                let penalty: f64 = (0..n).map(|j| 2.0 * weight(i, j) * (x[(i, k)] - middle(j))).sum();
                g[(i, k)] + p[(i, k)] + penalty
            });
            x -= d.alpha * h;
        }
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn dinno_is_its_recursion_with_the_models_of_the_neighbours() {
    for network in graphs() {
        for (steps, rho) in [(1, 0.3), (5, 0.2)] {
            let parameters = tau(steps).with("rho", rho);
            agree_on(&network, &common_start(), "dinno", parameters, |d, x| dinno(d, x, steps as usize, rho));
        }
    }
    agree_on(&ring(Rule::MaxDegree), &common_start(), "dinno", tau(5), |d, x| {
        dinno(d, x, 5, 0.2 / (2.0 / 3.0))
    });
}

#[test]
fn lt_admm_whose_penalty_moves_with_the_local_steps_is_dinno_with_half_of_the_rho() {
    agree_on(&ring(Rule::MaxDegree), &common_start(), "dinno", tau(5).with("rho", 0.15), |d, x| {
        lt_admm(d, x, 5, 0.3, true)
    });
}

/// The edges of a round as a matrix of weights.
fn weights_in_round(network: &Network, round: usize, weight: impl Fn(usize, usize) -> f64) -> Mat {
    let n = network.agents();
    let is_up = |i: usize, j: usize| {
        i != j && network.graph().has_edge(i, j) && network.edge_is_up(3, i, j, round as u64)
    };
    let edges = Mat::from_fn(n, n, |i, j| if is_up(i, j) { weight(i, j) } else { 0.0 });
    Mat::from_fn(n, n, |i, j| if i == j { 1.0 - edges.row(i).sum() } else { edges[(i, j)] })
}

/// FSPDA-SA in the letters of the paper, with its sign or the printed one.
fn fspda(d: &Dense, x0: &Mat, network: &Network, (gamma, eta, beta): (f64, f64, f64)) -> Vec<Vec<f64>> {
    let (mut x, mut l) = (x0.clone(), Mat::zeros(x0.nrows(), x0.ncols()));
    let mut round = |r: usize| {
        let w = weights_in_round(network, r, |i, j| network.mixing().weight(i, j));
        let gap = &w * &x - &x;
        x = &x - d.ag(&x) - eta * &l + gamma * &gap;
        l -= beta * &gap;
        flat(&x)
    };
    (0..ROUNDS).map(&mut round).collect()
}

#[test]
fn fspda_is_its_recursion_on_random_edges() {
    let dropping = ring(Rule::Metropolis).with_drop_rate(0.4).unwrap();
    let pairs = ring(Rule::Metropolis).with_time_varying(TimeVarying::RandomMatching).unwrap();
    for network in [ring(Rule::Metropolis), dropping, pairs] {
        let parameters = Parameters { gamma: Some(0.9), ..Parameters::default().with("beta", 0.06) };
        agree_on(&network, &scattered(AGENTS, DIM), "fspda", parameters, |d, x| {
            fspda(d, x, &network, (0.9, 0.3, 0.2))
        });
    }
}

#[test]
fn fspda_as_printed_would_diverge() {
    let network = ring(Rule::Metropolis);
    agree_on(&network, &scattered(AGENTS, DIM), "fspda", Parameters::default(), |d, x| {
        let apart = |path: &[Vec<f64>]| mile::block::consensus_error(&path[ROUNDS - 1], DIM);
        let (right, printed) =
            (fspda(d, x, &network, (1.0, 1.0, 0.5)), fspda(d, x, &network, (1.0, 1.0, -0.5)));
        assert!(apart(&right) < 1.0 && apart(&printed) > 1e6);
        right
    });
}

/// MoTEF with the copies that all agents know; the first messages are whole.
fn motef(d: &Dense, x0: &Mat, lambda: f64, gamma: f64, compress: impl Fn(&mut [f64])) -> Vec<Vec<f64>> {
    let dim = x0.ncols();
    let mut x = x0.clone();
    let (mut h, mut m) = (x0.clone(), d.g(x0));
    let (mut v, mut g) = (m.clone(), m.clone());
    let catch_up = |copy: &mut Mat, of: &Mat| {
        for i in 0..copy.nrows() {
            let mut told: Vec<f64> = (0..dim).map(|k| of[(i, k)] - copy[(i, k)]).collect();
            compress(&mut told);
            (0..dim).for_each(|k| copy[(i, k)] += told[k]);
        }
    };
    let mut round = || {
        x += gamma * (&d.w * &h - &h) - d.alpha * &v;
        catch_up(&mut h, &x);
        let next = (1.0 - lambda) * &m + lambda * d.g(&x);
        v += gamma * (&d.w * &g - &g) + &next - &m;
        m = next;
        catch_up(&mut g, &v);
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn motef_is_its_recursion_with_two_public_copies() {
    let with = |momentum, compression, gamma| Parameters {
        momentum: Some(momentum),
        compression,
        gamma: Some(gamma),
        ..Parameters::default()
    };
    agree("motef", with(0.8, None, 0.6), |d, x| motef(d, x, 0.2, 0.6, |_| ()));
    agree("motef", Parameters::default(), |d, x| motef(d, x, 0.1, 1.0, |_| ()));
    agree("motef", with(0.9, Some(Compression::EightBit), 0.7), |d, x| motef(d, x, 0.1, 0.7, eight_bits));
    agree("motef", with(0.5, Some(Compression::TopK(0.4)), 0.3), |d, x| motef(d, x, 0.5, 0.3, two_largest));
}

/// DiLoCo with a server that holds the model and the momentum.
fn diloco(d: &Dense, x0: &Mat, tau: usize, mu: f64, eta: f64) -> Vec<Vec<f64>> {
    let (n, dim) = (x0.nrows(), x0.ncols());
    let mean = |m: &Mat| Mat::from_fn(1, dim, |_, k| m.column(k).sum() / n as f64);
    let spread = |m: &Mat| Mat::from_fn(n, dim, |_, k| m[(0, k)]);
    let (mut server, mut u) = (mean(x0), Mat::zeros(1, dim));
    let mut round = || {
        let mut x = spread(&server);
        (0..tau).for_each(|_| x = &x - d.ag(&x));
        let gradient = &server - mean(&x);
        u = mu * &u + &gradient;
        server -= eta * (gradient + mu * &u);
        flat(&spread(&server))
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn diloco_is_what_its_server_would_do() {
    let complete = network(Topology::Complete, AGENTS, Rule::Metropolis);
    agree_on(&complete, &common_start(), "diloco", tau(4), |d, x| diloco(d, x, 4, 0.9, 0.7));
    let parameters = outer(tau(3), 0.5, 1.2);
    agree_on(&complete, &common_start(), "diloco", parameters, |d, x| diloco(d, x, 3, 0.5, 1.2));
}

/// NoLoCo as in the authors' code, with the means of the progress and of the slow weights.
fn noloco(d: &Dense, x0: &Mat, tau: usize, (mu, eta): (f64, f64), w: impl Fn(usize) -> Mat) -> Vec<Vec<f64>> {
    let (mut phi, mut m) = (x0.clone(), Mat::zeros(x0.nrows(), x0.ncols()));
    let mut round = |r: usize| {
        let mut theta = phi.clone();
        (0..tau).for_each(|_| theta = &theta - d.ag(&theta));
        let (progress, w) = (&theta - &phi, w(r));
        m = mu * &m + eta * (&w * progress) + eta * (&w * &phi - &phi);
        phi += &m;
        flat(&phi)
    };
    (0..ROUNDS).map(&mut round).collect()
}

#[test]
fn noloco_averages_in_pairs_or_mixes() {
    agree("noloco", tau(5), |d, x| noloco(d, x, 5, (0.5, 0.7), |_| d.w.clone()));
    agree("noloco", outer(tau(2), 0.3, 0.9), |d, x| noloco(d, x, 2, (0.3, 0.9), |_| d.w.clone()));
    for topology in [Topology::Ring, Topology::Complete] {
        let all = network(topology, AGENTS, Rule::Metropolis);
        for varying in [TimeVarying::RandomMatching, TimeVarying::matchings(all.graph())] {
            let pairs = all.clone().with_time_varying(varying).unwrap();
            agree_on(&pairs, &scattered(AGENTS, DIM), "noloco", tau(5), |d, x| {
                noloco(d, x, 5, (0.5, 0.7), |round| weights_in_round(&pairs, round, |_, _| 0.5))
            });
        }
    }
}

/// GASLoC with the Laplacian Lap = I - W.
fn gasloc(
    d: &Dense,
    x0: &Mat,
    tau: usize,
    (mu, eta, gamma): (f64, f64, f64),
    w: impl Fn(usize) -> Mat,
) -> Vec<Vec<f64>> {
    let (mut theta, mut old) = (x0.clone(), x0.clone());
    let mut round = |r: usize| {
        let mut x = theta.clone();
        (0..tau).for_each(|_| x = &x - d.ag(&x));
        let p = &theta + eta * (x - &theta);
        let lap = d.identity() - w(r);
        theta = &p - gamma * (lap * &p) + mu * (&p - &old);
        old = p;
        flat(&theta)
    };
    (0..ROUNDS).map(&mut round).collect()
}

#[test]
fn gasloc_is_gossip_with_momentum_on_what_is_gossiped() {
    agree("gasloc", tau(5), |d, x| gasloc(d, x, 5, (0.5, 0.7, 1.0), |_| d.w.clone()));
    let parameters = Parameters { gamma: Some(0.8), ..outer(tau(2), 0.3, 1.1) };
    agree("gasloc", parameters, |d, x| gasloc(d, x, 2, (0.3, 1.1, 0.8), |_| d.w.clone()));
    let pairs = ring(Rule::Metropolis).with_time_varying(TimeVarying::RandomMatching).unwrap();
    agree_on(&pairs, &scattered(AGENTS, DIM), "gasloc", tau(3), |d, x| {
        gasloc(d, x, 3, (0.5, 0.7, 1.0), |round| weights_in_round(&pairs, round, |_, _| 0.5))
    });
}
