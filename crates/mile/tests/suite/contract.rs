//! Laws that every method obeys. Adding a method is adding a row (`contract_rows.rs`).

use std::collections::BTreeSet;

use mile::block;
use mile::compression::Compression;
use mile::method::Method;
use mile::methods::OuterMomentum;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::problems::{Batch, Problem, Quadratic};
use mile::real::Real;
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use rayon::prelude::*;

use crate::common::*;
use crate::contract_rows::{End, Row, rows};

fn every_row(law: impl Fn(&Row) + Sync + Send) {
    rows().par_iter().for_each(law);
}

fn run<'m>(method: &'m dyn Method, step_size: f64, agents: &mut Simulator<impl Real>) -> Run<'m> {
    Run::start(method, Schedule::constant(step_size), agents).unwrap()
}

#[test]
fn there_is_a_row_for_every_built_in_method() {
    let tested: BTreeSet<_> = rows().iter().map(|row| row.name).collect();
    let built_in: BTreeSet<_> = catalogue::ALL.iter().map(|entry| &*entry.name).collect();
    assert_eq!(tested, built_in);
}

#[test]
fn exact_methods_bring_every_agent_to_a_common_stationary_point() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    every_row(|row| {
        if row.end != End::Exact {
            return;
        }
        let (network, start) = (row.network(), row.start(AGENTS, DIM));
        let method = build(row.name, &row.parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &start, 3).unwrap();
        let mut run = run(&*method, row.step_size, &mut agents);
        for _ in 0..row.rounds {
            run.round(&mut agents).unwrap();
        }
        for agent in 0..AGENTS {
            let gradient = gradient_norm(&problem, agents.model(agent));
            assert!(gradient < 1e-9, "{}: agent {agent} has gradient norm {gradient:e}", row.what());
        }
        let apart = block::consensus_error(agents.models(), DIM).sqrt();
        assert!(apart < 1e-9, "{}: consensus error {apart:e}", row.what());
    });
}

/// A method that is not exact settles too, at a point that is not stationary.
#[test]
fn methods_that_are_not_exact_settle_at_a_wrong_point() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    every_row(|row| {
        if row.end != End::Biased {
            return;
        }
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let path =
            trajectory(&problem, &network, &*method, &row.start(AGENTS, DIM), row.step_size, row.rounds);
        let [.., before, last] = &path[..] else { unreachable!() };
        assert!(
            distance(std::slice::from_ref(before), std::slice::from_ref(last)) < 1e-13,
            "{} moves",
            row.what()
        );
        let gradient = gradient_norm(&problem, &block::mean_row(last, DIM));
        let apart = block::consensus_error(last, DIM).sqrt();
        assert!(gradient > 1e-4, "{}: gradient norm {gradient:e}", row.what());
        // With a server they agree, at a point that is wrong nevertheless.
        assert_eq!(apart > 1e-3, !row.has_server(), "{}: consensus error {apart:e}", row.what());
    });
}

fn column_means(block: &[f64]) -> Vec<f64> {
    block::mean_row(block, DIM)
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-13)
}

#[test]
fn corrections_sum_to_zero_and_trackers_have_the_mean_gradient_at_every_step() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    every_row(|row| {
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &row.start(AGENTS, DIM), 3).unwrap();
        let mut run = run(&*method, row.step_size, &mut agents);
        for t in 0..120 {
            run.step(&mut agents).unwrap();
            for name in row.zero_sum {
                let mean = column_means(agents.vector(vector(&*method, name)));
                assert!(close(&mean, &[0.0; DIM]), "{}: {name} at step {t}: {mean:?}", row.what());
            }
            if row.tracks {
                let mean = column_means(agents.vector(vector(&*method, "y")));
                let expected = mean_gradient(&problem, agents.models());
                assert!(close(&mean, &expected), "{}: y at step {t}", row.what());
            }
        }
    });
}

fn mean_gradient(problem: &dyn Problem<f64>, models: &[f64]) -> Vec<f64> {
    let mut rows = vec![0.0; models.len()];
    for (agent, (x, g)) in models.chunks_exact(DIM).zip(rows.chunks_exact_mut(DIM)).enumerate() {
        problem.gradient(agent, x, g).unwrap();
    }
    column_means(&rows)
}

/// `mean x(t+1) = mean x(t) - alpha mean grad f(x(t))`.
#[test]
fn the_average_descends_along_the_mean_gradient_at_every_step() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    every_row(|row| {
        let (moving, holds) = row.moves;
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &row.start(AGENTS, DIM), 3).unwrap();
        let mut run = run(&*method, row.step_size, &mut agents);
        let (mut mixed, mut broken) = (true, false);
        for _ in 0..120 {
            let before = agents.vector(vector(&*method, if mixed { "x" } else { moving })).to_vec();
            mixed = run.step(&mut agents).unwrap();
            let after = agents.vector(vector(&*method, if mixed { "x" } else { moving }));
            let g = mean_gradient(&problem, &before);
            let expected: Vec<f64> =
                column_means(&before).iter().zip(&g).map(|(x, g)| x - row.step_size * g).collect();
            broken |= !close(&column_means(after), &expected);
        }
        assert_eq!(!broken, holds, "{}", row.what());
    });
}

#[test]
fn costs_are_what_the_method_spends() {
    let problem = nonconvex::<f32>(AGENTS, DIM, Batch::Full);
    every_row(|row| {
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &row.start(AGENTS, DIM), 3).unwrap();
        let mut run = run(&*method, row.step_size, &mut agents);
        let begun = run.progress().costs.gradient_evals;
        assert!(begun == 0 || begun == AGENTS as u64, "{}: start-up", row.what());
        for _ in 0..20 {
            run.round(&mut agents).unwrap();
        }
        let progress = run.progress();
        let messages = 2 * network.graph().edges().count() as u64;
        assert_eq!(progress.costs.vectors_sent, 20 * row.sent, "{}: sent", row.what());
        assert_eq!(progress.costs.exchanges, 20 * row.exchanges, "{}: exchanges", row.what());
        let whole = row.sent * DIM as u64 * 4 + row.beside as u64 * 8;
        // The first message is whole, and the next whole one comes later than this.
        let compressed = |by: Compression| row.sent * by.message_bytes::<f32>(DIM) as u64;
        let later = row.parameters.compression.map_or(whole, compressed);
        assert_eq!(progress.costs.bytes_sent, messages * (whole + 19 * later), "{}: bytes", row.what());
        assert_eq!(progress.costs.gradient_evals, begun + progress.step * AGENTS as u64, "{}", row.what());
        assert_eq!(method.layout().state.len(), row.stored, "{}: stored", row.what());
    });
}

fn resumed_equals_uninterrupted<T: Real>() {
    let problem = nonconvex::<T>(AGENTS, DIM, Batch::Size(3));
    every_row(|row| {
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let schedule = Schedule::constant(row.step_size).with_warmup(4);
        let new = || Simulator::new(&problem, &network, &*method, &row.start(AGENTS, DIM), 3).unwrap();
        let mut whole = new();
        let mut run = Run::start(&*method, schedule.clone(), &mut whole).unwrap();
        let state = |agents: &Simulator<T>| -> Vec<Vec<T>> {
            (0..method.layout().state.len())
                .map(|k| agents.vector(mile::agents::Vector(k)).to_vec())
                .collect()
        };
        let (mut saved, mut progress) = (Vec::new(), *run.progress());
        for t in 0..60 {
            if t == 23 {
                (saved, progress) = (state(&whole), *run.progress());
            }
            run.step(&mut whole).unwrap();
        }
        let mut second = new();
        for (k, vector) in saved.iter().enumerate() {
            second.vector_mut(mile::agents::Vector(k)).copy_from_slice(vector);
        }
        let mut resumed = Run::resume(&*method, schedule, progress);
        while resumed.progress().step < run.progress().step {
            resumed.step(&mut second).unwrap();
        }
        assert_eq!(resumed.progress(), run.progress(), "{}", row.what());
        assert!(state(&whole) == state(&second), "{}", row.what());
    });
}

#[test]
fn a_resumed_run_is_bit_equal_to_the_uninterrupted_one() {
    resumed_equals_uninterrupted::<f64>();
    resumed_equals_uninterrupted::<f32>();
}

#[test]
fn single_precision_gets_as_close_as_it_can() {
    let problem = nonconvex::<f32>(AGENTS, DIM, Batch::Full);
    every_row(|row| {
        if row.end == End::Open {
            return;
        }
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &row.start(AGENTS, DIM), 3).unwrap();
        let mut run = run(&*method, row.step_size, &mut agents);
        for _ in 0..row.rounds {
            run.round(&mut agents).unwrap();
        }
        let gradient = gradient_norm(&problem, &block::mean_row(agents.models(), DIM));
        assert_eq!(gradient < 1e-5, row.end == End::Exact, "{}: {gradient:e}", row.what());
    });
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let dim = 5_000; // large enough for every kernel to use its threads
    let problem = nonconvex::<f32>(AGENTS, dim, Batch::Full);
    for row in rows() {
        let network = row.network();
        let method = build(row.name, &row.parameters, &network);
        let result = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let start = row.start(AGENTS, dim);
                let mut agents = Simulator::new(&problem, &network, &*method, &start, 3).unwrap();
                let mut run = run(&*method, 1e-3, &mut agents);
                run.round(&mut agents).unwrap();
                run.round(&mut agents).unwrap();
                let metrics = (block::consensus_error(agents.models(), dim), block::norm_sq(agents.models()));
                (agents.models().to_vec(), metrics)
            })
        };
        let one = result(1);
        assert!(one == result(2) && one == result(5), "{}", row.what());
    }
}

#[test]
fn one_agent_alone_reaches_its_own_minimum() {
    let problem = Quadratic::<f64>::new(1, DIM, 10.0, 1.0, 0).unwrap();
    every_row(|row| {
        if row.end == End::Open {
            return;
        }
        let network = row.network_of(1);
        let method = build(row.name, &row.parameters, &network);
        let mut agents = Simulator::new(&problem, &network, &*method, &scattered(1, DIM), 3).unwrap();
        let mut run = run(&*method, row.step_size, &mut agents);
        for _ in 0..row.rounds {
            run.round(&mut agents).unwrap();
        }
        let gradient = gradient_norm(&problem, agents.model(0));
        assert!(gradient < 1e-9, "{}: {gradient:e}", row.what());
        assert_eq!(run.progress().costs.bytes_sent, 0);
    });
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let ring = ring(Rule::Metropolis);
    let refused = |name: &str, parameters: Parameters| {
        catalogue::find(name).unwrap().build(&parameters, &ring, 0).unwrap_err().parameter
    };
    for entry in catalogue::ALL.iter().filter(|entry| entry.has_local_steps()) {
        assert_eq!(refused(&entry.name, tau(0)), "local_steps", "{}", entry.name);
    }
    for name in ["extra", "ed", "nids", "dsgd", "gradient-tracking"] {
        assert_eq!(refused(name, tau(2)), "local_steps", "{name}");
    }
    for bad in [0.0, -0.1, 1.5, f64::NAN] {
        assert_eq!(refused("mile", xi(10, bad)), "xi");
        assert_eq!(refused("mile", Parameters { gamma: Some(bad), ..tau(5) }), "gamma");
        assert_eq!(refused("led", tau(5).with("beta", bad)), "beta");
        assert_eq!(refused("proxskip", tau(5).with("probability", bad)), "probability");
        assert_eq!(refused("mg-skip", tau(5).with("probability", bad)), "probability");
    }
    assert_eq!(refused("k-gt", tau(5).with("eta_s", 0.0)), "eta_s");
    assert_eq!(refused("proxskip", tau(5).with("chi", 0.5)), "chi");
    assert_eq!(refused("gta-2", tau(5).with("communications", 0)), "communications");
    assert_eq!(refused("mg-skip", tau(5).with("gossip", 0)), "gossip");
    assert_eq!(refused("mg-skip", tau(5).with("gossip", 2.0)), "gossip");
    assert_eq!(refused("led", tau(5).with("bta", 0.1)), "bta");
    for name in ["scaffold", "diloco"] {
        assert_eq!(refused(name, tau(5)), "network");
    }
    for name in ["lt-admm", "dinno"] {
        assert_eq!(refused(name, tau(5).with("rho", 0.0)), "rho");
        assert_eq!(refused(name, tau(5).with("rho", f64::INFINITY)), "rho");
    }
    for name in ["diloco", "noloco", "gasloc"] {
        let outer =
            |momentum, step_size| Parameters { outer: Some(OuterMomentum { momentum, step_size }), ..tau(5) };
        assert_eq!(refused(name, outer(1.0, 0.7)), "outer.momentum");
        assert_eq!(refused(name, outer(0.5, 0.0)), "outer.step_size");
    }
    for bad in [0.0, f64::NAN] {
        for name in ["gasloc", "fspda", "motef"] {
            assert_eq!(refused(name, Parameters { gamma: Some(bad), ..Parameters::default() }), "gamma");
        }
        assert_eq!(refused("fspda", Parameters::default().with("beta", bad)), "beta");
    }
    assert_eq!(refused("d2", Parameters::default()), "mixing");
}
