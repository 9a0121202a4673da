use super::*;
use crate::block;
use crate::engine::Engine;
use crate::graph::Topology;
use crate::membership::Present;
use crate::method::Method;
use crate::methods::catalogue::{self, Parameters};
use crate::mixing::Rule;
use crate::network::Network;
use crate::problems::{Problem, Quadratic};
use crate::robust::Robust;
use crate::run::Run;
use crate::schedule::Schedule;
use crate::simulator::Simulator;

const DIM: usize = 6;
const ROWS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 3.0, 2.0, 1.0, 0.0, 1.0, 2.0];

fn attack(agents: &[usize], kind: AttackKind) -> Attack {
    Attack { agents: agents.to_vec(), kind, strength: kind.usual_strength() }
}

fn said(kind: AttackKind, attacker: usize, round: u64) -> Vec<f64> {
    Seen::of(&attack(&[7], kind), (3, round), &ROWS, DIM).to_all(attacker).unwrap()
}

#[test]
fn attackers_say_what_the_formulas_say() {
    let mean = [2.0, 2.0, 2.0, 2.0, 3.0, 4.0];
    assert_eq!(said(AttackKind::SignFlip, 7, 0), mean.map(|m| -m));
    assert_eq!(said(AttackKind::Alie, 7, 0), [1.0, 2.0, 1.0, 0.0, 1.0, 2.0]);
    let poisoned = said(AttackKind::Slow, 7, 0);
    let by: Vec<f64> = poisoned.iter().zip(mean).map(|(said, mean)| said - mean).collect();
    assert_eq!(by.iter().filter(|by| **by == 0.0).count(), 3);
    assert!(by.iter().all(|by| *by == 0.0 || (by - 0.3).abs() < 1e-15), "{by:?}");
    assert_eq!(poisoned, said(AttackKind::Slow, 7, 9));
    let noise = said(AttackKind::Noise, 7, 4);
    assert_eq!(noise, said(AttackKind::Noise, 7, 4));
    assert!(noise != said(AttackKind::Noise, 7, 5) && noise != said(AttackKind::Noise, 8, 4));
}

#[test]
fn dissensus_of_strength_one_undoes_what_honest_neighbours_do() {
    let attack = Attack { strength: 1.0, ..attack(&[7], AttackKind::Dissensus) };
    let seen = Seen::of(&attack, (3, 0), &ROWS, DIM);
    assert!(seen.to_all(7).is_none());
    let (own, other) = ROWS.split_at(DIM);
    let honest = [(0.3, other), (0.1, own)];
    let lie = seen.to_one(own, &honest, 0.2);
    let mut moved = vec![0.0; DIM];
    let heard = [(0.3, other), (0.1, own), (0.2, &lie[..])];
    block::pull_row(&mut moved, own, heard.iter().map(|(w, v)| (*w, *v, false)));
    assert!(moved.iter().all(|moved| moved.abs() < 1e-15), "{moved:?}");
}

fn build(name: &str, parameters: Parameters, network: &Network) -> Box<dyn Method> {
    catalogue::find(name).unwrap().build(&parameters, network, 0).unwrap()
}

fn drive(method: &dyn Method, engine: &mut dyn Engine<f64>, rounds: usize) -> (Vec<f64>, u64) {
    let mut run = Run::start(method, Schedule::constant(0.1), engine).unwrap();
    (0..rounds).for_each(|_| run.round(engine).unwrap());
    (engine.vector(crate::agents::Vector(0)).unwrap().into_owned(), run.progress().costs.bytes_sent)
}

#[test]
fn without_attackers_the_bits_are_those_of_the_simulator() {
    let problem = Quadratic::<f64>::new(7, 5, 10.0, 1.0, 1).unwrap();
    let network = Network::new(Topology::Complete.build(7, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    let robust = Parameters { robust: Some(Robust::Clip { byzantine: 2 }), ..Parameters::default() };
    let drops = network.clone().with_drop_rate(0.3).unwrap();
    for (name, parameters, network) in [
        ("mile", Parameters::default(), &drops),
        ("k-gt", Parameters::default(), &network),
        ("local-dsgd", robust, &network),
    ] {
        let method = build(name, parameters, network);
        let mut simulator = Simulator::new(&problem, network, &*method, &[0.5; 5], 2).unwrap();
        let nobody = attack(&[], AttackKind::SignFlip);
        let mut attacked = Attacked::new(&problem, network, &*method, &[0.5; 5], 2, &nobody).unwrap();
        assert_eq!(drive(&*method, &mut attacked, 8), drive(&*method, &mut simulator, 8), "{name}");
    }
}

/// The norm of the gradient of the honest agents' f at the mean of their models.
fn gradient_norm(problem: &dyn Problem<f64>, honest: &[usize], models: &[f64]) -> f64 {
    let present = Present::new(problem, honest);
    let (dim, mean) = (problem.dim(), block::mean_row(models, problem.dim()));
    let (mut sum, mut g) = (vec![0.0; dim], vec![0.0; dim]);
    for agent in 0..honest.len() {
        present.gradient(agent, &mean, &mut g).unwrap();
        sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / honest.len() as f64);
    }
    block::norm_sq(&sum).sqrt()
}

/// Two of twelve agents attack on the complete graph.
#[test]
fn a_robust_exchange_bounds_what_attackers_do_and_a_plain_one_does_not() {
    let problem = Quadratic::<f64>::new(12, 5, 5.0, 0.3, 1).unwrap();
    let network = Network::new(Topology::Complete.build(12, 0).unwrap(), Rule::Metropolis).unwrap();
    let end = |kind: AttackKind, strength: f64, name: &str, robust: Option<Robust>| {
        let method =
            build(name, Parameters { robust, local_steps: Some(2), ..Parameters::default() }, &network);
        let attack = Attack { strength, ..attack(&[3, 8], kind) };
        let mut engine = Attacked::new(&problem, &network, &*method, &[0.0; 5], 2, &attack).unwrap();
        let (models, _) = drive(&*method, &mut engine, 600);
        assert_eq!(models.len(), 10 * 5);
        gradient_norm(&problem, &attack.honest(12), &models)
    };
    let clip = Some(Robust::Clip { byzantine: 2 });
    let trimmed = Some(Robust::TrimmedMean { byzantine: 2 });
    for (kind, strength) in [(AttackKind::SignFlip, 4.0), (AttackKind::Noise, 10.0), (AttackKind::Slow, 0.3)]
    {
        let plain = end(kind, strength, "local-dsgd", None);
        for robust in [clip, trimmed] {
            let protected = end(kind, strength, "local-dsgd", robust);
            assert!(protected < 0.5 * plain, "{kind:?}: {protected} with {robust:?}, {plain} without");
        }
    }
    // Corrections integrate what is sent: the drift has no bound, and a threshold only limits its speed.
    let integrated = end(AttackKind::Slow, 0.3, "mile", None);
    let forgetting = end(AttackKind::Slow, 0.3, "local-dsgd", None);
    let limited = end(AttackKind::Slow, 0.3, "mile", Some(Robust::Threshold(0.01)));
    assert!(
        integrated > 20.0 * forgetting && limited < 0.2 * integrated,
        "{integrated} {forgetting} {limited}"
    );
}
