//! Exchanges in pairs: the limit for two agents, and that what is called stable for more does not grow.

use mile::graph::{Graph, Topology};
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::readiness::{Readiness, Speeds};
use mile::time::{Law, Line, TimeModel};
use mile_theory::advice::{AdvisedRun, Severity};
use mile_theory::pairs::{MEASURED, advise, limit};

const EXCHANGES: usize = 12_000;

/// Who exchanges with whom.
fn pairs(graph: &Graph, seconds: &[Law], local_steps: &[u64]) -> Vec<[usize; 2]> {
    let model = TimeModel::new(seconds.to_vec(), Line::constant(0.0, f64::INFINITY)).unwrap();
    let speeds = Speeds { model, seed: 1, local_steps: local_steps.to_vec(), bytes: 0 };
    Readiness::new(graph, speeds).take(EXCHANGES).map(|pairing| pairing.agents).collect()
}

/// The logarithm of the growth of x and c in an exchange, without gradients and without what all agents have in common.
fn growth(pairs: &[[usize; 2]], local_steps: &[u64], xi: f64, gamma: f64) -> f64 {
    let n = local_steps.len();
    let mut x: Vec<f64> = (0..n).map(|i| ((7 * i + 3) % 11) as f64 - 5.0).collect();
    let mut c: Vec<f64> = (0..n).map(|i| 0.01 * (((5 * i + 1) % 7) as f64 - 3.0)).collect();
    let mut sum = 0.0;
    for (k, &[i, j]) in pairs.iter().enumerate() {
        for agent in [i, j] {
            x[agent] += local_steps[agent] as f64 * c[agent];
        }
        let half = 0.5 * (x[j] - x[i]);
        for (agent, d) in [(i, half), (j, -half)] {
            x[agent] += gamma * d;
            c[agent] += xi * d;
        }
        if k % 32 == 0 {
            for row in [&mut x, &mut c] {
                let mean = row.iter().sum::<f64>() / n as f64;
                row.iter_mut().for_each(|value| *value -= mean);
            }
            let size =
                (x.iter().map(|x| x * x).sum::<f64>() + c.iter().map(|c| 100.0 * c * c).sum::<f64>()).sqrt();
            if size == 0.0 {
                return f64::NEG_INFINITY;
            }
            if k > EXCHANGES / 4 {
                sum += size.ln();
            }
            x.iter_mut().chain(&mut c).for_each(|value| *value /= size);
        }
    }
    sum / EXCHANGES as f64
}

#[test]
fn the_limit_of_two_agents_is_where_they_begin_to_grow() {
    let graph = Topology::Path.build(2, 0).unwrap();
    for gamma in [0.25, 0.5, 0.9] {
        for local_steps in [[10, 10], [1, 12]] {
            let all = pairs(&graph, &[Law::Constant(1.0)], &local_steps);
            let at = |share: f64| {
                let xi = share * limit(&local_steps, gamma);
                growth(&all, &local_steps, xi, gamma)
            };
            assert!(at(0.98) < 0.0 && at(1.02) > 0.0, "{gamma} {local_steps:?}: {} {}", at(0.98), at(1.02));
        }
    }
}

#[test]
fn what_is_called_stable_for_more_agents_does_not_grow_and_three_times_as_much_may() {
    let mixed = [1, 10, 3, 7, 2, 5, 10, 10, 4, 2, 1, 9, 10, 3, 5, 8];
    let mut grew = 0;
    for (topology, agents) in [
        (Topology::Path, 3),
        (Topology::Path, 10),
        (Topology::Ring, 6),
        (Topology::Ring, 16),
        (Topology::Star, 6),
        (Topology::Torus, 16),
        (Topology::Complete, 8),
    ] {
        let graph = topology.build(agents, 0).unwrap();
        let straggler = |agent| Law::Constant(if agent == 1 { 10.0 } else { 1.0 + (agent % 2) as f64 });
        let speeds = [
            vec![Law::Constant(1.0)],
            vec![Law::Uniform { from: 0.5, to: 1.5 }],
            (0..agents).map(straggler).collect(),
        ];
        for (seconds, steps) in speeds
            .iter()
            .flat_map(|seconds| [(seconds, vec![10; agents]), (seconds, mixed[..agents].to_vec())])
        {
            let all = pairs(&graph, seconds, &steps);
            for gamma in [0.25, 0.5, 1.0] {
                let xi = limit(&steps, gamma);
                assert_eq!(xi, MEASURED * gamma / 10.0);
                let found = growth(&all, &steps, xi, gamma);
                assert!(
                    found < 0.0,
                    "{topology:?} of {agents}, {seconds:?}, {steps:?}, gamma {gamma}: {found}"
                );
                grew += usize::from(growth(&all, &steps, 3.0 * xi, gamma) > 0.0);
            }
        }
    }
    assert!(grew > 10, "the limit is of no use: only {grew} grew at three times as much");
}

#[test]
fn advice_names_the_weight_and_the_step_size() {
    let entry = catalogue::find("mile").unwrap();
    let advice = |agents: usize, xi: f64, step_size: f64| {
        let network = Network::new(Topology::Path.build(agents, 0).unwrap(), Rule::Metropolis).unwrap();
        let parameters = Parameters {
            pairs: true,
            local_steps: Some(10),
            xi: Some(xi.into()),
            gamma: Some(1.0),
            ..Parameters::default()
        };
        let (parameters, smoothness) = (&parameters, Some(1.0));
        let run = AdvisedRun { entry, parameters, network: &network, step_size, smoothness, seed: 0 };
        let found = advise(&run).unwrap();
        found.into_iter().map(|advice| (advice.parameter, advice.severity)).collect::<Vec<_>>()
    };
    assert_eq!(advice(6, 0.02, 0.1), []);
    assert_eq!(advice(6, 0.05, 0.1), [("xi", Severity::Caution)]);
    assert_eq!(advice(2, 0.19, 0.1), []);
    assert_eq!(advice(2, 0.21, 0.1), [("xi", Severity::Warning)]);
    assert_eq!(advice(6, 0.02, 2.0), [("step_size", Severity::Warning)]);
}
