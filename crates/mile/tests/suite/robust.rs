//! Exchanges that limit what malicious neighbours can do: literal forms, limit cases, and what stays exact.

use mile::compression::Compression;
use mile::graph::Topology;
use mile::methods::Variant;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::Batch;
use mile::robust::Robust;
use mile::varying::TimeVarying;

use crate::common::*;
use crate::literal::{Dense, Mat, agree_on, flat};

fn with(by: Robust, parameters: Parameters) -> Parameters {
    Parameters { robust: Some(by), ..parameters }
}

/// Graphs whose agents have at least six neighbours, with unequal weights too.
fn dense() -> [Network; 2] {
    [network(Topology::Complete, AGENTS, Rule::LazyMetropolis), {
        let edges = (0..9usize).flat_map(|i| (0..i).map(move |j| (j, i)));
        // Agents 0, 1 and 2 have eight neighbours, the others six or seven.
        let edges = edges.filter(|e| ![(3, 8), (4, 7), (5, 8), (6, 7), (3, 4), (5, 6)].contains(e));
        Network::new(mile::Graph::from_edges(9, edges).unwrap(), Rule::Metropolis).unwrap()
    }]
}

/// CS+ as its paper has it, with the weights of edges: the differences to the neighbours in order of their length, and the largest that
/// leaves out at least 2 B.
fn clipped(w: &Mat, x: &Mat, byzantine: usize) -> Mat {
    let n = x.nrows();
    let mut next = x.clone();
    for i in 0..n {
        let mut near: Vec<(f64, usize)> = (0..n)
            .filter(|j| *j != i && w[(i, *j)] != 0.0)
            .map(|j| ((x.row(j) - x.row(i)).norm(), j))
            .collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut weights: Vec<f64> = near.iter().map(|(_, j)| w[(i, *j)]).collect();
        weights.sort_by(|a, b| b.total_cmp(a));
        let most = weights.iter().sum::<f64>() - 2.0 * weights[..byzantine].iter().sum::<f64>();
        let mut within = 0.0;
        let mut threshold = 0.0;
        for (far, j) in &near {
            within += w[(i, *j)];
            threshold = if within <= most + 1e-12 { *far } else { threshold };
        }
        for (far, j) in &near {
            let shorter = (x.row(*j) - x.row(i)) * f64::min(1.0, threshold / far);
            let moved = next.row(i) + w[(i, *j)] * shorter;
            next.set_row(i, &moved);
        }
    }
    next
}

/// The trimmed mean, element by element: the sorted values without the first and the last, each with its weight.
fn trimmed(w: &Mat, x: &Mat, byzantine: usize) -> Mat {
    Mat::from_fn(x.nrows(), x.ncols(), |i, k| {
        let mut values: Vec<(f64, f64)> =
            (0..x.nrows()).filter(|j| *j != i && w[(i, *j)] != 0.0).map(|j| (x[(j, k)], w[(i, j)])).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let kept = &values[byzantine..values.len() - byzantine];
        let own = 1.0 - kept.iter().map(|(_, w)| w).sum::<f64>();
        own * x[(i, k)] + kept.iter().map(|(v, w)| v * w).sum::<f64>()
    })
}

fn local(d: &Dense, x0: &Mat, tau: usize, mix: impl Fn(&Mat) -> Mat) -> Vec<Vec<f64>> {
    let mut x = x0.clone();
    let mut round = || {
        for _ in 0..tau {
            x = &x - d.ag(&x);
        }
        x = mix(&x);
        flat(&x)
    };
    (0..crate::literal::ROUNDS).map(|_| round()).collect()
}

#[test]
fn local_dsgd_with_robust_exchanges_is_its_recursion() {
    for network in dense() {
        let start = scattered(network.agents(), DIM);
        for byzantine in [0, 1, 2] {
            let parameters = |by| with(by, tau(3));
            agree_on(&network, &start, "local-dsgd", parameters(Robust::Clip { byzantine }), |d, x0| {
                local(d, x0, 3, |x| clipped(&d.w, x, byzantine))
            });
            agree_on(
                &network,
                &start,
                "local-dsgd",
                parameters(Robust::TrimmedMean { byzantine }),
                |d, x0| local(d, x0, 3, |x| trimmed(&d.w, x, byzantine)),
            );
            agree_on(
                &network,
                &start,
                "dsgd",
                with(Robust::Clip { byzantine }, Parameters::default()),
                |d, x0| local(d, x0, 1, |x| clipped(&d.w, x, byzantine)),
            );
        }
    }
}

/// MILE edge by edge: the difference of two agents, no longer than the threshold, is added at one end and subtracted at the other.
fn mile_by_edges(d: &Dense, x0: &Mat, tau: usize, weights: (f64, f64), threshold: f64) -> Vec<Vec<f64>> {
    let (n, (xi, gamma)) = (x0.nrows(), weights);
    let (mut x, mut c, mut out) = (x0 - d.ag(x0), Mat::zeros(n, x0.ncols()), Vec::new());
    for t in 0.. {
        let v = &x - d.ag(&x) + &c;
        x = v.clone();
        if t % tau != 0 {
            continue;
        }
        for (i, j) in (0..n).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let difference = v.row(j) - v.row(i);
            let far = difference.norm();
            let flow =
                if far > threshold { difference * (threshold / far) } else { difference } * d.w[(i, j)];
            for (k, sign) in [(i, 1.0), (j, -1.0)] {
                let [moved, corrected] = [x.row(k) + &flow * (sign * gamma), c.row(k) + &flow * (sign * xi)];
                x.set_row(k, &moved);
                c.set_row(k, &corrected);
            }
        }
        out.push(flat(&x));
        if out.len() == crate::literal::ROUNDS {
            return out;
        }
    }
    out
}

#[test]
fn mile_with_one_threshold_is_its_form_edge_by_edge() {
    let ring = ring(Rule::LazyMetropolis);
    let start = scattered(AGENTS, DIM);
    for (steps, threshold) in [(1, 0.1), (4, 0.1), (4, 1.0), (4, 1e9)] {
        let parameters =
            Parameters { gamma: Some(0.7), ..with(Robust::Threshold(threshold), xi(steps, 0.1)) };
        agree_on(&ring, &start, "mile", parameters, |d, x0| {
            mile_by_edges(d, x0, steps as usize, (0.1, 0.7), threshold)
        });
    }
}

#[test]
fn nobody_malicious_and_an_infinite_threshold_change_no_bit() {
    let network = network(Topology::Complete, AGENTS, Rule::LazyMetropolis);
    let problem = nonconvex(AGENTS, DIM, Batch::Size(3));
    let run = |name: &str, parameters: &Parameters| {
        let method = build(name, parameters, &network);
        trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.05, 30)
    };
    let none = [
        Robust::Clip { byzantine: 0 },
        Robust::TrimmedMean { byzantine: 0 },
        Robust::Threshold(f64::INFINITY),
    ];
    let cta = Parameters::default().with("variant", Variant::Cta);
    for (name, parameters) in [("local-dsgd", tau(4)), ("dsgd", Parameters::default()), ("dsgd", cta)] {
        let plain = run(name, &parameters);
        for by in none {
            assert!(plain == run(name, &with(by, parameters.clone())), "{name}, {by}");
        }
        assert!(plain != run(name, &with(Robust::Clip { byzantine: 1 }, parameters)), "{name}");
    }
    let parameters = Parameters { gamma: Some(0.8), ..xi(4, 0.1) };
    let plain = run("mile", &parameters);
    assert!(plain == run("mile", &with(Robust::Threshold(f64::INFINITY), parameters.clone())));
    assert!(plain != run("mile", &with(Robust::Threshold(0.1), parameters)));
}

/// Once all differences are shorter than the threshold, a state moves as it does without one.
#[test]
fn mile_with_a_threshold_ends_with_the_steps_of_mile() {
    let network = ring(Rule::LazyMetropolis);
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let parameters = Parameters { gamma: Some(0.8), ..xi(4, 0.1) };
    let method = build("mile", &with(Robust::Threshold(0.2), parameters.clone()), &network);
    let path = trajectory(&problem, &network, &*method, &scattered(AGENTS, DIM), 0.1, 400);
    let apart = |models: &Vec<f64>| {
        let row = |i: usize| &models[i % AGENTS * DIM..][..DIM];
        let far = |i: usize| row(i).iter().zip(row(i + 1)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        (0..AGENTS).map(far).fold(0.0, f64::max)
    };
    assert!(apart(&path[0]) > 1.0 && apart(&path[399]) < 0.01, "{} {}", apart(&path[0]), apart(&path[399]));
}

#[test]
fn what_cannot_be_protected_is_refused_by_name() {
    let ring = ring(Rule::Metropolis);
    let complete = network(Topology::Complete, AGENTS, Rule::Metropolis);
    let refused = |name: &str, parameters: Parameters, network: &Network| {
        catalogue::find(name).unwrap().build(&parameters, network, 0).unwrap_err().parameter
    };
    let clip = |byzantine| Robust::Clip { byzantine };
    for by in [clip(1), Robust::TrimmedMean { byzantine: 1 }] {
        assert_eq!(refused("local-dsgd", with(by, tau(5)), &ring), "exchange.byzantine");
        assert_eq!(refused("mile", with(by, tau(5)), &complete), "exchange");
    }
    assert_eq!(refused("dsgd", with(clip(4), Parameters::default()), &complete), "exchange.byzantine");
    let varying = complete.clone().with_time_varying(TimeVarying::RandomMatching).unwrap();
    assert_eq!(refused("local-dsgd", with(clip(1), tau(5)), &varying), "exchange.byzantine");
    for bad in [0.0, -1.0, f64::NAN] {
        assert_eq!(refused("mile", with(Robust::Threshold(bad), tau(5)), &ring), "exchange.threshold");
    }
    let compressed = Parameters { compression: Some(Compression::EightBit), ..tau(5) };
    assert_eq!(refused("local-dsgd", with(clip(1), compressed), &complete), "exchange");
    assert_eq!(refused("mile", with(Robust::Threshold(1.0), adaptive(5, 0.1, 0.8)), &ring), "exchange");
}
