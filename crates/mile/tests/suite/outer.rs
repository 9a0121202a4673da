//! Methods with outer momentum: their recursions written a second time, DiLoCo's with a server, and what changes nothing.

use mile::graph::Topology;
use mile::methods::OuterMomentum;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::problems::Batch;

use crate::common::*;
use crate::literal::{Dense, Mat, agree, flat, matrix};

const ROUNDS: usize = 40;

fn zeros(x: &Mat) -> Mat {
    Mat::zeros(x.nrows(), x.ncols())
}

fn outer(momentum: f64, step_size: f64, parameters: Parameters) -> Parameters {
    Parameters { outer: Some(OuterMomentum { momentum, step_size }), ..parameters }
}

/// Nesterov's momentum as PyTorch's SGD has it: `b = mu b + e ; a - eta (e + mu b)` for the progress e.
struct Nesterov {
    b: Mat,
    mu: f64,
    eta: f64,
}

impl Nesterov {
    fn new(x: &Mat, (mu, eta): (f64, f64)) -> Self {
        Self { b: zeros(x), mu, eta }
    }

    fn step(&mut self, a: &Mat, e: &Mat) -> Mat {
        self.b = self.mu * &self.b + e;
        a - self.eta * (e + self.mu * &self.b)
    }
}

fn mile(d: &Dense, x0: &Mat, (tau, xi, gamma): (usize, f64, f64), numbers: (f64, f64)) -> Vec<Vec<f64>> {
    let (mut x, mut c, mut momentum) = (x0.clone(), zeros(x0), Nesterov::new(x0, numbers));
    let mut round = |steps: usize| {
        let a = x.clone();
        let mut v = x.clone();
        for _ in 0..steps {
            v = &v - d.ag(&v) + &c;
        }
        let y = momentum.step(&a, &(&a - &v));
        let gap = &y - &d.w * &y;
        c -= xi * &gap;
        x = &y - gamma * &gap;
        flat(&x)
    };
    // The first round has the start-up step and one more.
    (0..ROUNDS).map(|k| round(if k == 0 { 2 } else { tau })).collect()
}

fn led(d: &Dense, x0: &Mat, (tau, beta): (usize, f64), numbers: (f64, f64)) -> Vec<Vec<f64>> {
    let (mut x, mut y, mut momentum) = (x0.clone(), zeros(x0), Nesterov::new(x0, numbers));
    let mut round = || {
        let mut phi = x.clone();
        (0..tau).for_each(|_| phi = &phi - d.ag(&phi) - beta * &y);
        let sent = momentum.step(&x, &(&x - phi));
        x = &d.w * &sent;
        y += sent - &x;
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

fn k_gt(d: &Dense, x0: &Mat, k: usize, numbers: (f64, f64)) -> Vec<Vec<f64>> {
    let (mut x, mut c, mut momentum) = (x0.clone(), zeros(x0), Nesterov::new(x0, numbers));
    let mut round = || {
        let mut u = x.clone();
        (0..k).for_each(|_| u = &u - d.ag(&u) - d.alpha * &c);
        let e = &x - u;
        let z = (1.0 / (k as f64 * d.alpha)) * &e;
        c += &d.w * &z - &z;
        x = &d.w * momentum.step(&x, &e);
        flat(&x)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

/// DiLoCo: the server steps along the mean of the agents' progress, and all agents start from its model.
fn diloco(d: &Dense, x0: &Mat, tau: usize, numbers: (f64, f64)) -> Vec<Vec<f64>> {
    let (mut server, mut momentum) = (x0.clone(), Nesterov::new(x0, numbers));
    let mut round = || {
        let mut x = server.clone();
        (0..tau).for_each(|_| x = &x - d.ag(&x));
        let mean = &d.w * (&server - x);
        server = momentum.step(&server, &mean);
        flat(&server)
    };
    (0..ROUNDS).map(|_| round()).collect()
}

#[test]
fn a_round_moves_along_the_momentum_of_its_progress_before_it_is_sent() {
    for numbers in [(0.5, 0.7), (0.3, 1.0), (0.0, 0.6)] {
        let with = |parameters| outer(numbers.0, numbers.1, parameters);
        for (tau, weight, gamma) in [(1, 0.1, 0.9), (4, 0.05, 1.0), (4, 0.1, 0.1)] {
            let parameters = Parameters { gamma: Some(gamma), ..xi(tau, weight) };
            agree("mile", with(parameters), |d, x| mile(d, x, (tau as usize, weight, gamma), numbers));
        }
        agree("led", with(tau(4).with("beta", 0.1)), |d, x| led(d, x, (4, 0.1), numbers));
        agree("k-gt", with(tau(4)), |d, x| k_gt(d, x, 4, numbers));
    }
    // The default weight is smaller by what progress gains.
    agree("led", outer(0.5, 1.0, tau(4)), |d, x| led(d, x, (4, 0.125), (0.5, 1.0)));
}

#[test]
fn local_dsgd_on_the_complete_graph_is_diloco() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let network = network(Topology::Complete, AGENTS, Rule::Metropolis);
    let start = scattered(1, DIM).repeat(AGENTS);
    let method = build("local-dsgd", &outer(0.6, 0.7, tau(4)), &network);
    let found = trajectory(&problem, &network, &*method, &start, 0.05, ROUNDS);
    let dense = Dense::new(&problem, &network, 0.05);
    let apart = |numbers| distance(&found, &diloco(&dense, &matrix(&start, DIM), 4, numbers));
    assert!(apart((0.6, 0.7)) < 1e-13, "{:e}", apart((0.6, 0.7)));
    assert!(apart((0.6, 0.8)) > 1e-3);
}

#[test]
fn an_outer_step_of_one_without_momentum_is_none_to_the_bit() {
    let (problem, network) = (nonconvex(AGENTS, DIM, Batch::Size(3)), ring(Rule::LazyMetropolis));
    let go = |name: &str, parameters: &Parameters| {
        let method = build(name, parameters, &network);
        trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.1, ROUNDS)
    };
    for (name, parameters) in
        [("mile", xi(4, 0.2)), ("led", tau(4)), ("k-gt", tau(4)), ("local-dsgd", tau(4))]
    {
        let expected = go(name, &parameters);
        let none = outer(0.0, 1.0, parameters.clone());
        assert!(go(name, &none) == expected, "{name}");
        let stored = |parameters: &Parameters| build(name, parameters, &network).layout().state.len();
        assert_eq!(stored(&none), stored(&parameters), "{name}");
        assert!(distance(&go(name, &outer(0.3, 0.9, parameters)), &expected) > 1e-3, "{name}");
    }
}

#[test]
fn what_is_out_of_range_or_has_no_meaning_is_refused_by_name() {
    let network = ring(Rule::LazyMetropolis);
    let refused = |name: &str, parameters: Parameters| {
        let entry = catalogue::find(name).unwrap();
        entry.build(&parameters, &network, 0).unwrap_err().parameter
    };
    for name in ["mile", "led", "k-gt", "local-dsgd"] {
        for momentum in [1.0, -0.1, f64::NAN] {
            assert_eq!(refused(name, outer(momentum, 0.7, tau(5))), "outer.momentum", "{name}");
        }
        for step_size in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(name, outer(0.5, step_size, tau(5))), "outer.step_size", "{name}");
        }
    }
    assert_eq!(refused("k-gt", outer(0.5, 0.7, tau(5).with("eta_s", 0.5))), "eta_s");
    let penalised = Parameters { penalty: true, ..outer(0.5, 0.7, tau(5)) };
    assert_eq!(refused("local-dsgd", penalised), "outer");
}
