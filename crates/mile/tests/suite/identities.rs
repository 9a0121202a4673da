//! Which methods are equivalent, and which are not.

use mile::agents::Vector;
use mile::graph::Topology;
use mile::methods::OuterMomentum;
use mile::methods::catalogue::Parameters;
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Failure, Problem};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile::varying::TimeVarying;

use crate::common::*;

const ROUNDS: usize = 30;
const ALPHA: f64 = 0.05;

fn go(network: &Network, name: &str, parameters: Parameters, start: &[f64]) -> Vec<Vec<f64>> {
    let problem = nonconvex(network.agents(), DIM, Batch::Full);
    trajectory(&problem, network, &*build(name, &parameters, network), start, ALPHA, ROUNDS)
}

#[track_caller]
fn same(a: &[Vec<f64>], b: &[Vec<f64>]) {
    let difference = distance(a, b);
    assert!(difference <= 2e-13, "{difference:e}");
}

#[track_caller]
fn different(a: &[Vec<f64>], b: &[Vec<f64>]) {
    let difference = distance(a, b);
    assert!(difference > 1e-3, "{difference:e}");
}

fn lazy() -> Network {
    ring(Rule::LazyMetropolis)
}

fn none() -> Parameters {
    Parameters::default()
}

fn starts() -> Vec<f64> {
    scattered(AGENTS, DIM)
}

#[test]
fn nids_is_mile_with_one_step_and_one_half() {
    let (nids, mile) = (go(&lazy(), "nids", none(), &starts()), go(&lazy(), "mile", xi(1, 0.5), &starts()));
    assert_eq!(distance(&nids, &mile), 0.0);
}

#[test]
fn ed_is_not_mile_because_its_first_step_is_mixed() {
    let (network, start) = (lazy(), starts());
    different(&go(&network, "ed", none(), &start), &go(&network, "mile", xi(1, 0.5), &start));

    // With x(0) = Wb (x(-1) - alpha G) and the correction that ED has then, MILE goes where ED goes.
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let mile = build("mile", &xi(1, 0.5), &network);
    let ed = go(&network, "ed", none(), &start);
    let mut agents = Simulator::new(&problem, &network, &*mile, &start, 3).unwrap();
    let mut run = Run::start(&*mile, Schedule::constant(ALPHA), &mut agents).unwrap();
    let unmixed = agents.models().to_vec();
    agents.vector_mut(Vector(0)).copy_from_slice(&ed[0]);
    for k in 0..unmixed.len() {
        agents.vector_mut(Vector(1))[k] = ed[0][k] - unmixed[k];
    }
    let mut rest = Vec::new();
    for _ in 1..ROUNDS {
        run.round(&mut agents).unwrap();
        rest.push(agents.models().to_vec());
    }
    same(&rest, &ed[1..]);
}

#[test]
fn mile_with_two_steps_is_led_with_its_damped_matrix() {
    let weight = 0.3;
    let led = tau(2).with("beta", 1.0);
    let damped = damped(&lazy(), weight);
    same(&go(&lazy(), "mile", xi(2, weight), &starts()), &go(&damped, "led", led, &starts()));
}

#[test]
fn mile_with_any_steps_is_led_started_after_the_first_exchange() {
    for (steps, weight) in [(1, 0.5), (3, 0.3), (7, 0.15)] {
        let (network, start) = (lazy(), starts());
        let problem = nonconvex(AGENTS, DIM, Batch::Full);
        let mile = build("mile", &xi(steps, weight), &network);
        let mut agents = Simulator::new(&problem, &network, &*mile, &start, 3).unwrap();
        let mut run = Run::start(&*mile, Schedule::constant(ALPHA), &mut agents).unwrap();
        run.round(&mut agents).unwrap();

        let damped = damped(&network, weight);
        let led = build("led", &tau(steps).with("beta", 1.0), &damped);
        let mut others = Simulator::new(&problem, &damped, &*led, agents.models(), 3).unwrap();
        let mut other = Run::start(&*led, Schedule::constant(ALPHA), &mut others).unwrap();
        others.vector_mut(Vector(1)).copy_from_slice(agents.vector(Vector(1)));
        for _ in 0..ROUNDS {
            run.round(&mut agents).unwrap();
            other.round(&mut others).unwrap();
            same(&[agents.models().to_vec()], &[others.models().to_vec()]);
        }
    }
}

#[test]
fn decoupled_mile_spans_the_family() {
    let (network, start) = (lazy(), starts());
    let decoupled = |xi_: f64, gamma: f64| Parameters { gamma: Some(gamma), ..xi(2, xi_) };
    same(&go(&network, "mile", decoupled(0.3, 0.3), &start), &go(&network, "mile", xi(2, 0.3), &start));
    // With two steps the start-up is the first of LED's two, so the phases agree too.
    same(&go(&network, "mile", decoupled(0.5, 1.0), &start), &go(&network, "led", tau(2), &start));
    same(&go(&network, "mile", decoupled(1e-300, 1.0), &start), &go(&network, "local-dsgd", tau(2), &start));
}

#[test]
fn led_contains_d2_ed_and_scaffold() {
    let (network, start) = (lazy(), starts());
    let one = || tau(1).with("beta", 1.0);
    same(&go(&network, "led", one(), &start), &go(&network, "d2", none(), &start));
    let half = damped(&network, 0.5);
    same(&go(&half, "led", one(), &start), &go(&network, "ed", none(), &start));
    same(&go(&half, "d2", none(), &start), &go(&network, "ed", none(), &start));
    let complete = network_of(Topology::Complete);
    let common = scattered::<f64>(1, DIM).repeat(AGENTS);
    same(&go(&complete, "led", tau(5), &common), &go(&complete, "scaffold", tau(5), &common));
    same(&go(&complete, "k-gt", tau(5), &common), &go(&complete, "scaffold", tau(5), &common));
}

fn network_of(topology: Topology) -> Network {
    network(topology, AGENTS, Rule::Metropolis)
}

#[test]
fn with_one_step_k_gt_and_periodical_gt_are_gradient_tracking() {
    let (network, start) = (lazy(), starts());
    let reference = go(&network, "gradient-tracking", none(), &start);
    for name in ["k-gt", "periodical-gt", "gta-2", "dec-fedtrack"] {
        same(&go(&network, name, tau(1), &start), &reference);
    }
    different(&go(&network, "diging", tau(1), &start), &reference);
}

#[test]
fn gta_1_and_push_pull_are_diging() {
    let (network, start) = (lazy(), starts());
    for steps in [1, 4] {
        let diging = go(&network, "diging", tau(steps), &start);
        same(&go(&network, "gta-1", tau(steps), &start), &diging);
        same(&go(&network, "push-pull", tau(steps), &start), &diging);
    }
}

#[test]
fn gta_2_and_3_on_the_complete_graph_are_gradient_descent() {
    let complete = network_of(Topology::Complete);
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let mut x = scattered::<f64>(1, DIM);
    let common = x.repeat(AGENTS);
    let mut descent = Vec::new();
    for _ in 0..ROUNDS {
        let (mut g, mut sum) = (vec![0.0; DIM], vec![0.0; DIM]);
        for agent in 0..AGENTS {
            problem.gradient(agent, &x, &mut g).unwrap();
            sum.iter_mut().zip(&g).for_each(|(s, g)| *s += g / AGENTS as f64);
        }
        x.iter_mut().zip(&sum).for_each(|(x, g)| *x -= ALPHA * g);
        descent.push(x.repeat(AGENTS));
    }
    for name in ["gta-2", "gta-3"] {
        same(&go(&complete, name, tau(1), &common), &descent);
    }
}

#[test]
fn proxskip_that_never_skips_is_ed() {
    let parameters = none().with("probability", 1.0);
    same(&go(&lazy(), "proxskip", parameters, &starts()), &go(&lazy(), "ed", none(), &starts()));
}

#[test]
fn extra_is_not_ed_but_obeys_its_recursion_without_gradients() {
    let (network, start) = (lazy(), starts());
    different(&go(&network, "extra", none(), &start), &go(&network, "ed", none(), &start));

    struct Flat;
    impl Problem<f64> for Flat {
        fn agents(&self) -> usize {
            AGENTS
        }
        fn dim(&self) -> usize {
            DIM
        }
        fn loss(&self, _: usize, _: &[f64]) -> Result<f64, Failure> {
            Ok(0.0)
        }
        fn gradient(&self, _: usize, _: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
            gradient.fill(0.0);
            Ok(())
        }
    }
    let x = trajectory(&Flat, &network, &*build("extra", &none(), &network), &start, ALPHA, ROUNDS);
    let half = damped(&network, 0.5);
    for k in 2..ROUNDS {
        for i in 0..AGENTS {
            for c in 0..DIM {
                let at = |r: usize, j: usize| x[r][j * DIM + c];
                let expected: f64 = (0..AGENTS)
                    .map(|j| half.mixing().weight(i, j) * (2.0 * at(k - 1, j) - at(k - 2, j)))
                    .sum();
                assert!((at(k, i) - expected).abs() < 1e-13);
            }
        }
    }
}

/// xi = 1 is exact diffusion with local steps: it diverges exactly when l_N < (tau - 2)/(tau + 2).
#[test]
fn without_a_small_weight_local_steps_diverge() {
    let grows = |network: &Network, steps: u64| {
        let problem = nonconvex(AGENTS, DIM, Batch::Full);
        let method = build("mile", &xi(steps, 1.0), network);
        let path = trajectory(&problem, network, &*method, &starts(), 1e-3, 400);
        path[399].iter().any(|v| v.abs() > 1e6 || !v.is_finite())
    };
    let (lazy, plain) = (lazy(), ring(Rule::Metropolis));
    assert!(grows(&lazy, 5) && grows(&lazy, 10));
    assert!(!grows(&lazy, 2) && !grows(&lazy, 3));
    assert!(grows(&plain, 2) && grows(&plain, 5));
    // The paper's weight fixes it.
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let method = build("mile", &tau(5), &plain);
    let path = trajectory(&problem, &plain, &*method, &starts(), 1e-3, 400);
    assert!(path[399].iter().all(|v| v.abs() < 10.0));
}

#[test]
fn a_weight_that_grows_to_itself_is_constant_even_after_its_rounds() {
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let network = ring(Rule::LazyMetropolis);
    let start = scattered(AGENTS, DIM);
    let path = |parameters: Parameters| {
        trajectory(&problem, &network, &*build("mile", &parameters, &network), &start, 0.1, 40)
    };
    assert_eq!(path(growing(5, 0.1, 0.1, 9)), path(xi(5, 0.1)));
    // What a weight will be in a later round does not matter before it: an extended run keeps its bits.
    let (short, long) = (path(growing(5, 0.01, 0.04, 20)), path(growing(5, 0.01, 0.16, 40)));
    assert!(distance(&short[..20], &long[..20]) < 1e-13 && distance(&short[..21], &long[..21]) < 1e-13);
    assert!(distance(&short, &long) > 1e-6);
}

fn with_outer(parameters: Parameters, momentum: f64, step_size: f64) -> Parameters {
    Parameters { outer: Some(OuterMomentum { momentum, step_size }), ..parameters }
}

#[test]
fn diloco_noloco_and_gasloc_without_their_outer_step_are_local_dsgd() {
    let (complete, start) = (network_of(Topology::Complete), starts());
    let plain = || with_outer(tau(4), 0.0, 1.0);
    let dsgd = go(&complete, "local-dsgd", tau(4), &start);
    assert!(distance(&go(&complete, "diloco", plain(), &start), &dsgd) <= 2e-13);
    let dsgd = go(&lazy(), "local-dsgd", tau(4), &start);
    same(&go(&lazy(), "noloco", plain(), &start), &dsgd);
    same(&go(&lazy(), "gasloc", plain(), &start), &dsgd);
    for name in ["noloco", "gasloc"] {
        different(&go(&lazy(), name, tau(4), &start), &dsgd);
    }
}

#[test]
fn diloco_is_local_dsgd_with_outer_momentum_on_the_complete_graph() {
    let (complete, start) = (network_of(Topology::Complete), starts());
    let dsgd = go(&complete, "local-dsgd", with_outer(tau(4), 0.9, 0.7), &start);
    assert_eq!(go(&complete, "diloco", tau(4), &start), dsgd);
}

/// Momentum on what is gossiped is Nesterov's momentum on the progress of rounds where there is nothing to gossip about.
#[test]
fn gasloc_is_diloco_for_an_agent_that_agrees_with_all_others() {
    let alone = network(Topology::Complete, 1, Rule::Metropolis);
    let (start, outer) = (scattered(1, DIM), || with_outer(tau(4), 0.6, 0.8));
    same(&go(&alone, "gasloc", outer(), &start), &go(&alone, "diloco", outer(), &start));
    // Among different agents only one of them mixes what the momentum adds.
    let outer_dsgd = go(&lazy(), "local-dsgd", outer(), &starts());
    different(&go(&lazy(), "gasloc", outer(), &starts()), &outer_dsgd);
}

/// Where a method settles, from an arbitrary start.
fn settled(network: &Network, name: &str, parameters: Parameters) -> Vec<Vec<f64>> {
    let problem = nonconvex(AGENTS, DIM, Batch::Full);
    let method = build(name, &parameters, network);
    let mut path = trajectory(&problem, network, &*method, &starts(), 0.02, 6_000);
    vec![path.pop().unwrap()]
}

#[test]
fn diloco_and_noloco_settle_where_local_dsgd_does() {
    let complete = network_of(Topology::Complete);
    let dsgd = settled(&complete, "local-dsgd", tau(4));
    assert!(distance(&settled(&complete, "diloco", tau(4)), &dsgd) < 1e-12);
    let dsgd = settled(&lazy(), "local-dsgd", tau(4));
    assert!(distance(&settled(&lazy(), "noloco", tau(4)), &dsgd) < 1e-12);
    // In GASLoC gradients count eta times there.
    assert!(distance(&settled(&lazy(), "gasloc", with_outer(tau(4), 0.5, 1.0)), &dsgd) < 1e-12);
    assert!(distance(&settled(&lazy(), "gasloc", with_outer(tau(4), 0.5, 0.7)), &dsgd) > 1e-3);
}

#[test]
fn motef_without_momentum_and_compression_is_diging() {
    let plain = || Parameters { momentum: Some(0.0), ..none() };
    same(&go(&lazy(), "motef", plain(), &starts()), &go(&lazy(), "diging", tau(1), &starts()));
    different(&go(&lazy(), "motef", none(), &starts()), &go(&lazy(), "diging", tau(1), &starts()));
}

#[test]
fn fspda_on_a_fixed_graph_is_extra() {
    let network = ring(Rule::Metropolis);
    same(&go(&network, "fspda", none(), &starts()), &go(&network, "extra", none(), &starts()));
}

/// The first round of LT-ADMM has no exchange before it.
#[test]
fn lt_admm_with_one_local_step_is_fspda_from_an_unmixed_first_step() {
    let (network, rho) = (lazy(), 0.8);
    let admm = go(&network, "lt-admm", tau(1).with("rho", rho), &starts());
    let fspda =
        go(&network, "fspda", Parameters { gamma: Some(rho), ..none().with("beta", 0.5 * rho) }, &admm[0]);
    same(&admm[1..], &fspda[..ROUNDS - 1]);
}

/// f_i(x) = b_i' x: the gradients do not depend on where they are taken.
struct Linear;

impl Problem<f64> for Linear {
    fn agents(&self) -> usize {
        AGENTS
    }
    fn dim(&self) -> usize {
        DIM
    }
    fn loss(&self, agent: usize, x: &[f64]) -> Result<f64, Failure> {
        Ok(x.iter().map(|x| x * (agent as f64 - 3.0)).sum())
    }
    fn gradient(&self, agent: usize, _: &[f64], gradient: &mut [f64]) -> Result<(), Failure> {
        gradient.iter_mut().enumerate().for_each(|(k, g)| *g = agent as f64 - 3.0 + 0.1 * k as f64);
        Ok(())
    }
}

/// FSPDA's x with the weights (gamma + xi, xi) is the v that decoupled MILE sends with (gamma, xi), on any edges: they differ only in where
/// gradients are taken, before or after the exchange.
#[test]
fn fspda_is_decoupled_mile_up_to_the_order_of_exchange_and_step() {
    let (weight, gamma) = (0.05, 0.8);
    let mile = Parameters { gamma: Some(gamma), ..xi(1, weight) };
    let fspda = Parameters { gamma: Some(gamma + weight), ..none().with("beta", weight) };
    let dropping = ring(Rule::Metropolis).with_drop_rate(0.4).unwrap();
    let pairs = ring(Rule::Metropolis).with_time_varying(TimeVarying::RandomMatching).unwrap();
    for network in [lazy(), dropping, pairs] {
        let path = |problem: &dyn Problem<f64>| {
            let mile = build("mile", &mile, &network);
            let mixed = trajectory(problem, &network, &*mile, &starts(), ALPHA, ROUNDS);
            // MILE's first v: two steps without an exchange.
            let mut v = starts();
            for _ in 0..2 {
                let mut g = [0.0; DIM];
                for (agent, x) in v.chunks_exact_mut(DIM).enumerate() {
                    problem.gradient(agent, x, &mut g).unwrap();
                    x.iter_mut().zip(g).for_each(|(x, g)| *x -= ALPHA * g);
                }
            }
            let fspda = build("fspda", &fspda, &network);
            let mut sent = vec![v.clone()];
            sent.extend(trajectory(problem, &network, &*fspda, &v, ALPHA, ROUNDS - 1));
            // x = v + gamma (W v - v), with the edges of the round.
            let (mut rows, mut after) = (network.rows(), Vec::new());
            for (round, v) in sent.iter().enumerate() {
                network.rows_in_round(3, round as u64, &mut rows);
                let pulled = |i: usize, k: usize| -> f64 {
                    rows.row(i).iter().map(|(j, w)| w * (v[j * DIM + k] - v[i * DIM + k])).sum()
                };
                after.push((0..v.len()).map(|p| v[p] + gamma * pulled(p / DIM, p % DIM)).collect());
            }
            (mixed, after)
        };
        let (mile, fspda) = path(&Linear);
        same(&mile, &fspda);
        let (mile, fspda) = path(&nonconvex(AGENTS, DIM, Batch::Full));
        different(&mile, &fspda);
    }
}
