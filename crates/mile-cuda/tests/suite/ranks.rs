//! Agents over ranks, each with its own device, against all agents on one device: states and measurements have the same bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mile::agents::Vector;
use mile::compression::Compression;
use mile::engine::{Engine, EvaluatedModels};
use mile::graph::{Graph, Topology};
use mile::method::Method;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::network::Network;
use mile::problems::{Batch, Loss, Problem, Quadratic};
use mile::ranks::{Ranks, Together};
use mile::real::Real;
use mile::run::Run;
use mile::schedule::{Schedule, Weight};
use mile_cuda::device::{Device, DeviceError};
use mile_cuda::emulated::Order;
use mile_cuda::{GpuAgents, GpuRank, Stack};
use mile_ranks::placement::Placement;
use mile_ranks::threads::Threads;

use crate::common::*;
use crate::direct::Direct;
use crate::methods::table;

const X: Vector = Vector(0);
const AGENTS: usize = 7;

/// Agents in a ring with a chord, numbered so that neighbours are far apart.
fn network(name: &str, drop_rate: f64) -> Network {
    if catalogue::WITH_SERVER.contains(&name) {
        return network_for(name, AGENTS);
    }
    let ring = Topology::Ring.build(AGENTS, 1).unwrap();
    let edges = ring.edges().chain([(0, 2)]).map(|(i, j)| (i * 3 % AGENTS, j * 3 % AGENTS));
    let network = Network::new(Graph::from_edges(AGENTS, edges).unwrap(), Rule::LazyMetropolis).unwrap();
    network.with_drop_rate(drop_rate).unwrap()
}

/// What is measured over all agents.
type Measured = (Vec<f64>, [f64; 3], Option<EvaluatedModels>, Option<Vec<f64>>, Vec<f64>);

/// Four rounds, with the last one watched; returns what is measured, and the bytes sent from here.
fn drive<T: Real>(
    together: Together<'_>,
    method: &dyn Method,
    engine: &mut dyn Engine<T>,
) -> (Measured, u64) {
    let schedule = Schedule::constant(0.05).with_warmup(2);
    let mut run = Run::start(method, schedule, engine).unwrap();
    for round in 0..4 {
        if round == 3 {
            engine.watch();
        }
        run.round(engine).unwrap();
        assert!(engine.norm_sq(together, X).unwrap() > 0.0);
    }
    let numbers = [
        engine.norm_sq(together, X).unwrap(),
        engine.consensus_error(together, X).unwrap(),
        engine.drift().unwrap(),
    ];
    let row = engine.row(together, X, AGENTS - 1).unwrap().into_iter().map(Real::wide).collect();
    let evaluated = engine.evaluate(together, X, &[2, AGENTS - 1]).unwrap();
    let measured = (
        engine.mean(together, X).unwrap(),
        numbers,
        evaluated,
        engine.mean_gradient(together, X).unwrap(),
        row,
    );
    (measured, run.progress().costs.bytes_sent)
}

/// Where messages are: in the memory of the devices of some ranks, and in the host's elsewhere.
struct Way {
    /// One of these for each rank.
    device: fn() -> Arc<dyn Device>,
    is_direct: fn(usize) -> bool,
}

/// Compares ranks with one device; `part` is the problem as a rank has it, with the data of its own agents only.
fn same<T: Real, P: Problem<T>>(
    problem: &dyn Problem<T>,
    part: &(dyn Fn(&[usize]) -> P + Sync),
    name: &str,
    parameters: &Parameters,
    ranks: &[usize],
) {
    let through_host = Way { device: gpu_or_cpu, is_direct: |_| false };
    same_by(&through_host, problem, part, name, parameters, ranks);
}

fn same_by<T: Real, P: Problem<T>>(
    way: &Way,
    problem: &dyn Problem<T>,
    part: &(dyn Fn(&[usize]) -> P + Sync),
    name: &str,
    parameters: &Parameters,
    ranks: &[usize],
) {
    let drops = name == "mile" && parameters.compression.is_none();
    let network = network(name, if drops { 0.2 } else { 0.0 });
    let method = build(name, parameters, &network);
    let dim = problem.dim();
    let start = random::<T>(AGENTS * dim, 50);
    let mut alone = GpuAgents::new((way.device)(), problem, &network, &*method, &start, SEED).unwrap();
    let (expected, expected_bytes) = drive(ALONE, &*method, &mut alone);
    let state = 0..method.layout().state.len();
    let states: Vec<Vec<T>> = state.clone().map(|k| alone.vector(Vector(k)).unwrap().into_owned()).collect();
    for count in ranks {
        let placement = Arc::new(Placement::of(network.graph(), *count));
        let found = Threads::run(*count, |rank| {
            let hosted = placement.agents(rank.rank()).to_vec();
            let own = part(&hosted);
            let start: Vec<T> = hosted.iter().flat_map(|k| start[k * dim..(k + 1) * dim].to_vec()).collect();
            let stack = Stack::new((way.device)()).unwrap();
            let is_direct = (way.is_direct)(rank.rank());
            let rank = Arc::new(Direct { rank, is_direct, exchanges: AtomicUsize::new(0) });
            let place = (rank.clone(), placement.clone());
            let mut engine = GpuRank::new(&stack, place, &own, &network, &*method, &start, SEED).unwrap();
            let (measured, bytes) = drive(Together::of(&*rank), &*method, &mut engine);
            let exchanges = rank.exchanges.load(Ordering::Relaxed);
            assert_eq!(exchanges > 0, is_direct && *count > 1, "{name}, {count} ranks");
            let vectors: Vec<Vec<T>> =
                state.clone().map(|k| engine.vector(Vector(k)).unwrap().into_owned()).collect();
            (measured, bytes, vectors)
        });
        for (rank, (measured, _, vectors)) in found.iter().enumerate() {
            assert_eq!(*measured, expected, "{name}, {count} ranks");
            for (row, agent) in placement.agents(rank).iter().enumerate() {
                for (vector, expected) in vectors.iter().zip(&states) {
                    let (own, other) = (&vector[row * dim..][..dim], &expected[agent * dim..][..dim]);
                    assert!(own == other, "{name}, {count} ranks, agent {agent}");
                }
            }
        }
        assert_eq!(found.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), expected_bytes, "{name}");
    }
}

#[test]
fn agents_are_placed_in_another_order_in_these_tests() {
    assert!(!Placement::of(network("mile", 0.0).graph(), 3).is_in_order());
}

#[test]
fn every_method_with_tables_whose_rows_are_divided_among_ranks() {
    for entry in catalogue::ALL {
        let local_steps = entry.has_local_steps().then_some(3);
        let parameters = Parameters { local_steps, ..Parameters::default() };
        let problem = || table::<f64>(AGENTS, 5, Loss::NonconvexLogistic, 0.0, Batch::Epoch(4));
        same(&problem(), &|_| problem(), &entry.name, &parameters, &[3]);
        if entry.takes_own_steps() {
            let own = (0..AGENTS).map(|agent| [1, 3, 3, 2][agent % 4]).collect::<Vec<_>>();
            same(&problem(), &|_| problem(), &entry.name, &parameters.with_own_steps(own), &[3]);
        }
    }
}

#[test]
fn any_number_of_ranks_in_both_precisions_with_adaptive_weights_and_penalties() {
    let two = || Parameters { local_steps: Some(2), ..Parameters::default() };
    let adaptive = Parameters { xi: Some(Weight::Adaptive(0.2)), ..two() };
    let penalised = Parameters { penalty: true, ..two() };
    let eight = Parameters { compression: Some(Compression::EightBit), ..two() };
    let largest = Parameters { compression: Some(Compression::TopK(0.4)), ..two() };
    for (name, parameters, l1) in [
        ("mile", two(), 0.0),
        ("mile", adaptive, 0.0),
        ("mile", eight, 0.0),
        ("local-dsgd", largest, 0.0),
        ("local-dsgd", penalised, 0.1),
    ] {
        let single = || table::<f32>(AGENTS, 6, Loss::Logistic, l1, Batch::Size(3));
        same(&single(), &|_| single(), name, &parameters, &[1, 2, 3, AGENTS]);
        let double = || table::<f64>(AGENTS, 5, Loss::Softmax { classes: 3 }, l1, Batch::Full);
        same(&double(), &|_| double(), name, &parameters, &[2]);
    }
}

/// An emulated device's memory is the host's, so messages can be sent from there.
fn cpu() -> Arc<dyn Device> {
    emulated(Order::Forwards).expect("a C++ compiler")
}

/// Whether `CXX=none` skips the tests that need the CPU as a device.
fn is_left_out() -> bool {
    emulated(Order::Forwards).is_none()
}

#[test]
fn messages_between_the_memories_of_devices_have_the_bits_of_those_through_the_host() {
    if is_left_out() {
        return;
    }
    let two = || Parameters { local_steps: Some(2), ..Parameters::default() };
    let adaptive = Parameters { xi: Some(Weight::Adaptive(0.2)), ..two() };
    let eight = Parameters { compression: Some(Compression::EightBit), ..two() };
    // One vector over edges that drop, two at once, summaries before the rows, and messages that the CPU mostly makes.
    let methods = [("mile", two()), ("k-gt", two()), ("mile", adaptive), ("mile", eight)];
    // On all ranks, and where one end of a message does not know about devices.
    let ways: [fn(usize) -> bool; 2] = [|_| true, |rank| rank % 2 == 1];
    for (name, parameters) in methods {
        for is_direct in ways {
            let way = Way { device: cpu, is_direct };
            let single = || table::<f32>(AGENTS, 6, Loss::Logistic, 0.0, Batch::Size(3));
            same_by(&way, &single(), &|_| single(), name, &parameters, &[2, AGENTS]);
        }
        let way = Way { device: cpu, is_direct: |_| true };
        let problem = Quadratic::<f64>::new(AGENTS, 2_051, 10.0, 1.0, 0).unwrap();
        same_by(&way, &Unknown(&problem), &|_| Unknown(&problem), name, &parameters, &[3]);
    }
}

#[test]
fn quadratics_and_problems_without_a_device_form() {
    // The squares of a row are summed by two blocks from 4,096 numbers on.
    for (dim, ranks) in [(3, 3), (4_099, 2)] {
        let all = |_: usize| true;
        let quadratic = |is_here: &dyn Fn(usize) -> bool| {
            Quadratic::<f32>::hosting(is_here, AGENTS, dim, 10.0, 1.0, 0).unwrap()
        };
        let part = |hosted: &[usize]| quadratic(&|agent| hosted.contains(&agent));
        same(&quadratic(&all), &part, "k-gt", &Parameters::default(), &[ranks]);
    }
    let problem = Quadratic::<f64>::new(AGENTS, 9, 10.0, 1.0, 0).unwrap();
    same(&Unknown(&problem), &|_| Unknown(&problem), "mile", &Parameters::default(), &[2]);
}

#[test]
fn networks_whose_samples_are_divided_among_ranks() {
    let single = || crate::networks::decayed::<f32>(AGENTS, Batch::Size(4));
    same(&single(), &|hosted| single().hosting(hosted), "mile", &Parameters::default(), &[3]);
    // The agents have different numbers of samples, and a batch is all of them.
    let double = || crate::networks::decayed::<f64>(AGENTS, Batch::Full);
    same(&double(), &|hosted| double().hosting(hosted), "dsgd", &Parameters::default(), &[2]);
}

#[test]
fn agents_that_do_not_fit_next_to_those_of_other_ranks_are_refused() {
    let device = devices().swap_remove(0);
    let problem = Quadratic::<f64>::new(2, 4, 10.0, 1.0, 0).unwrap();
    let stack = Stack::new(device).unwrap();
    let available = stack.device().available().unwrap() as usize;
    // Three vectors of four numbers of eight bytes, and the problem's own.
    let agents = available / 100 * 45 / 96;
    assert!(stack.check(&problem, 3, agents, 2).is_ok());
    let error = stack.check(&problem, 3, agents, 3).unwrap_err();
    assert!(matches!(error, DeviceError::Memory { .. }), "{error}");
}

/// Experiments over ranks against one device: records, states and exported models; and a run that continues with another number of ranks.
#[cfg(feature = "lab")]
mod lab {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use mile_cuda::{GpuEngines, GpuRankEngines};
    use mile_lab::execute::execute;
    use mile_lab::observer::Silent;
    use mile_lab::plan::Plan;
    use mile_lab::record::Record;
    use mile_lab::spec::Spec;
    use mile_lab::store::read_records;

    use super::*;

    fn gpu() -> GpuEngines {
        GpuEngines::on(|| Ok(cpu()), |_| ()).unwrap()
    }

    fn run(ranks: usize, text: &str, out: &Path, resume: bool) {
        let parsed = || Spec::parse(text, Path::new(""), &[]).unwrap();
        let run = |plan: &Plan| {
            let outcomes = execute(plan, out, resume, &Silent, &AtomicBool::new(false)).unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.error.is_none()));
        };
        if ranks == 1 {
            return run(&Plan::new(parsed()).unwrap().on(Arc::new(gpu())));
        }
        Threads::run(ranks, |rank| {
            run(&Plan::spread(parsed(), Arc::new(GpuRankEngines::on(Arc::new(rank), gpu()))).unwrap());
        });
    }

    /// The records without times, and the files of the last states.
    fn contents(folder: &Path) -> (Vec<Record>, Vec<(String, Vec<u8>)>) {
        let mut records = read_records(folder).unwrap();
        records.iter_mut().for_each(|record| record.wall_s = 0.0);
        let files = std::fs::read_dir(folder.join("final")).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: std::path::PathBuf| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
        };
        let mut files: Vec<_> = files.map(read).collect();
        files.sort();
        (records, files)
    }

    #[test]
    fn run_directories_equal_those_of_one_device_and_runs_continue_with_other_ranks() {
        if is_left_out() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let rows: String = (0..60).map(|k| format!("{},{},{}\n", k % 7, k * k % 11, k * 3 % 2)).collect();
        std::fs::write(home.path().join("all.csv"), format!("a,b,y\n{rows}")).unwrap();
        let table = format!(
            "kind = 'table'\ndata = '{}'\ntarget = 'y'\nloss = 'logistic'\ntest = 0.3\nbatch = 4\n",
            home.path().join("all.csv").display()
        );
        let npy = |name: &str, descr: &str, shape: &str, numbers: Vec<u8>| {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
            let length = (header.len() as u16).to_le_bytes();
            let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &numbers].concat();
            std::fs::write(home.path().join(name), bytes).unwrap();
        };
        let inputs = (0..50 * 4).flat_map(|k| ((k * 7919 % 2003) as f32 / 1000.0).to_le_bytes()).collect();
        npy("x.npy", "<f4", "(50, 4)", inputs);
        npy("y.npy", "|u1", "(50,)", (0..50).map(|k| (k * 31 % 7 % 3) as u8).collect());
        let arrays = format!(
            "kind = 'arrays'\ninputs = '{0}/x.npy'\ntargets = '{0}/y.npy'\ntest = 0.2\nbatch = 4\n",
            home.path().display()
        );
        for (name, problem, precision) in [("table", &table, "f64"), ("arrays", &arrays, "f32")] {
            let text = |rounds: u64| {
                format!(
                    "rounds = {rounds}\neval_every = 2\neval_agents = 2\nprecision = '{precision}'\n[network]\nagents = 5\ntopology = 'ring'\n[problem]\n\
                     {problem}[[algorithm]]\nname = 'mile'\nstep_size = 0.05\nlocal_steps = 2\n"
                )
            };
            let at = |ranks: usize| home.path().join(format!("{name}-{ranks}"));
            run(1, &text(4), &at(1), false);
            assert_eq!(contents(&at(1)).0.len(), 3);
            run(2, &text(4), &at(2), false);
            assert!(contents(&at(2)) == contents(&at(1)), "{name}");
            run(1, &text(2), &at(3), false);
            run(3, &text(4), &at(3), true);
            assert!(contents(&at(3)) == contents(&at(1)), "{name}, resumed");
        }
    }
}
