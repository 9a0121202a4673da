//! Agents one by one, together and on threads; long rounds; functions on vectors.

use super::*;
use crate::graph::Topology;
use crate::methods::catalogue::{self, Parameters};
use crate::mixing::Rule;
use crate::problems::{Batch, Loss, Quadratic, Shard, Table, TableObjective};
use crate::run::Run;
use crate::schedule::{Schedule, Weight};

#[test]
fn agents_one_by_one_together_and_on_threads_get_the_same_bits() {
    let ring = Network::new(Topology::Ring.build(16, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    let complete = Network::new(Topology::Complete.build(16, 0).unwrap(), Rule::Metropolis).unwrap();
    let shaky = ring.with_drop_rate(0.2).unwrap();
    for (dim, together) in [(5, true), (200, false)] {
        let smooth = Quadratic::<f64>::new(16, dim, 10.0, 1.0, 0).unwrap();
        let shards = (0..16).map(|k| Shard {
            features: vec![0.1; dim],
            targets: vec![f64::from(k)],
            ..Shard::default()
        });
        let objective = TableObjective { l1: 0.3, ..TableObjective::new(Loss::LeastSquares, 0.1) };
        let sparse = Table::new(dim, shards.collect(), objective, Batch::Full).unwrap();
        let with = |penalty| catalogue::ALL.iter().map(move |entry| (entry, penalty, None));
        let adaptive = (catalogue::find("mile").unwrap(), false, Some(Weight::Adaptive(0.1)));
        for (entry, penalty, xi) in with(false).chain(with(true)).chain([adaptive]) {
            if penalty && !entry.takes_penalty() {
                continue;
            }
            let problem: &dyn Problem<f64> = if penalty { &sparse } else { &smooth };
            let network = if entry.has_server() { &complete } else { &shaky };
            let parameters = Parameters { penalty, xi, ..Parameters::default() };
            let method = entry.build(&parameters, network, 0).unwrap();
            let [one, several] = [false, true].map(|threads| {
                let mut agents = Simulator::new(problem, network, &*method, &vec![0.5; dim], 0).unwrap();
                agents.pool = Pool { is_worth: Some(threads) };
                assert_eq!(agents.together(), together && !threads);
                let mut run = Run::start(&*method, Schedule::constant(0.01), &mut agents).unwrap();
                (0..5).for_each(|_| run.round(&mut agents).unwrap());
                let states = method.layout().state.len();
                (0..states).map(|v| agents.vector(Vector(v)).to_vec()).collect::<Vec<_>>()
            });
            assert_eq!(one, several, "{} with {dim} columns, penalty: {penalty}", entry.name);
        }
    }
}

#[test]
fn a_long_round_is_carried_out_in_parts_and_can_be_interrupted() {
    let network = Network::new(Topology::Ring.build(12, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    let method = catalogue::find("mile").unwrap();
    let parameters = Parameters { local_steps: Some(700), ..Parameters::default() };
    let method = method.build(&parameters, &network, 0).unwrap();
    for dim in [5, 300] {
        let problem = Quadratic::<f64>::new(12, dim, 10.0, 1.0, 0).unwrap();
        let run = |by_steps: bool| {
            let mut agents = Simulator::new(&problem, &network, &*method, &vec![0.5; dim], 0).unwrap();
            let mut run = Run::start(&*method, Schedule::constant(0.001), &mut agents).unwrap();
            while run.progress().round < 2 {
                match by_steps {
                    true => drop(run.step(&mut agents).unwrap()),
                    false => run.round(&mut agents).unwrap(),
                }
            }
            agents.models().to_vec()
        };
        assert_eq!(run(true), run(false), "{dim} columns");
    }
    let problem = Quadratic::<f64>::new(12, 5, 10.0, 1.0, 0).unwrap();
    let mut agents = Simulator::new(&problem, &network, &*method, &[0.5; 5], 0).unwrap();
    let mut run = Run::start(&*method, Schedule::constant(0.001), &mut agents).unwrap();
    let asked = std::cell::Cell::new(0);
    run.round(&mut agents).unwrap();
    let interrupted = run.round_unless(&mut agents, &|| {
        asked.set(asked.get() + 1);
        asked.get() > 30
    });
    assert!(matches!(interrupted, Err(AgentsError::Interrupted)));
    assert_eq!((run.progress().step, run.progress().round), (31, 1));
}

#[test]
fn a_function_is_applied_to_whole_vectors() {
    struct Twice;
    impl BlockFunction for Twice {
        fn apply(&self, rows: usize, vectors: BlocksMut<'_>) -> Result<(), crate::agents::Failure> {
            let BlocksMut::F32(mut vectors) = vectors else { return Err("in single precision".into()) };
            assert_eq!((rows, vectors.len(), vectors[0].len()), (4, 2, 12));
            let [x, y] = &mut vectors[..] else { return Err("two vectors".into()) };
            x.iter_mut().zip(y.iter_mut()).for_each(|(x, y)| (*x, *y) = (*y, 2.0 * *x));
            Ok(())
        }
    }
    let network = Network::new(Topology::Ring.build(4, 0).unwrap(), Rule::LazyMetropolis).unwrap();
    let method = catalogue::find("mile").unwrap().build(&Parameters::default(), &network, 0).unwrap();
    let problem = Quadratic::<f32>::new(4, 3, 10.0, 1.0, 0).unwrap();
    let mut agents = Simulator::new(&problem, &network, &*method, &[1.0, 2.0, 3.0], 0).unwrap();
    // Deferred verbs come first.
    agents.combine(Vector(1), 0.0, &[(10.0, Vector(0))]).unwrap();
    agents.apply(&Twice, &[Vector(0), Vector(1)]).unwrap();
    assert_eq!(agents.vector(Vector(0))[..3], [10.0, 20.0, 30.0]);
    assert_eq!(agents.vector(Vector(1))[9..], [2.0, 4.0, 6.0]);
    let mut counting =
        Simulator::new(&problem, &network, &*method, &[1.0, 2.0, 3.0], 0).unwrap().without_functions();
    counting.apply(&Twice, &[Vector(0), Vector(1)]).unwrap();
    assert_eq!(counting.vector(Vector(0))[..3], [1.0, 2.0, 3.0]);
    for wrong in [&[Vector(0), Vector(0)][..], &[Vector(99)]] {
        assert!(matches!(agents.apply(&Twice, wrong), Err(AgentsError::Method(_))));
    }
}
