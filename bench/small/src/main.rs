//! Times runs of five methods on a small problem: ten agents on a ring, 40 x 12 least squares each.
//!
//! `bench-small data FILE` writes the data, as numbers of 64 bits that other programs can read. `bench-small run FILE RUNS DIR`
//! prints one JSON object, the milliseconds of each run, and leaves the agents' final points in DIR. `run.py` calls both, and
//! decent-bench with the same data.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use mile::methods::catalogue::{self, Parameters};
use mile::problems::{Batch, Loss, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::{Network, Rule, Run, Schedule, Simulator, Topology};
use rand::RngExt;
use rand_distr::StandardNormal;

const AGENTS: usize = 10;
const ROWS: usize = 40;
const DIM: usize = 12;
const ROUNDS: u64 = 500;
const SEED: u64 = 1;
/// Names in the catalogue, step sizes, and local steps of the methods that have them. `peer.py` has the same.
const METHODS: [(&str, f64, Option<u64>); 5] = [
    ("k-gt", 0.02, Some(5)),
    ("led", 0.02, Some(5)),
    ("ed", 0.1, None),
    ("extra", 0.1, None),
    ("nids", 0.1, None),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["data", file] => fs::write(file, bytes(&data())).expect("the data are written"),
        ["run", file, runs, directory] => {
            let problem = problem(&numbers(&fs::read(file).expect("the data are read")));
            println!("{}", measure(&problem, runs.parse().expect("a number of runs"), Path::new(directory)));
        }
        _ => {
            eprintln!("usage: bench-small data FILE | bench-small run FILE RUNS DIR");
            std::process::exit(2);
        }
    }
}

/// For each agent its features, row after row, and then its targets: a common linear model, shifted for each agent, and noise.
fn data() -> Vec<f64> {
    let mut random = stream(SEED, Purpose::Data, 0, 0);
    let mut normal = |scale: f64| scale * random.sample::<f64, _>(StandardNormal);
    let common: [f64; DIM] = std::array::from_fn(|_| normal(1.0));
    let mut data = Vec::new();
    for _ in 0..AGENTS {
        let own = common.map(|model| model + normal(0.5));
        let features: Vec<f64> = (0..ROWS * DIM).map(|_| normal(1.0)).collect();
        let exact = |row: &[f64]| row.iter().zip(&own).map(|(a, x)| a * x).sum::<f64>();
        let targets: Vec<f64> = features.chunks(DIM).map(|row| exact(row) + normal(0.1)).collect();
        data.extend(features.into_iter().chain(targets));
    }
    data
}

fn problem(data: &[f64]) -> Table<f64> {
    assert_eq!(data.len(), AGENTS * ROWS * (DIM + 1), "the data of ten agents");
    let shard = |agent: &[f64]| {
        let (features, targets) = agent.split_at(ROWS * DIM);
        Shard { features: features.to_vec(), targets: targets.to_vec(), ..Shard::default() }
    };
    let shards = data.chunks(ROWS * (DIM + 1)).map(shard).collect();
    Table::new(DIM, shards, TableObjective::new(Loss::LeastSquares, 0.0), Batch::Full).expect("a problem")
}

/// Milliseconds of each run, from the starting point to the final points. Methods take turns.
fn measure(problem: &Table<f64>, runs: usize, directory: &Path) -> serde_json::Value {
    let ring = Topology::Ring.build(AGENTS, 0).expect("a ring");
    let ring = Network::new(ring, Rule::Metropolis).expect("weights");
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..runs {
        for (name, step_size, local_steps) in METHODS {
            let parameters = Parameters { local_steps, ..Parameters::default() };
            let entry = catalogue::find(name).expect("a method");
            let method = entry.build(&parameters, &ring, SEED).expect("its parameters");
            let begun = Instant::now();
            let mut agents = Simulator::new(problem, &ring, &*method, &[0.0; DIM], SEED).expect("agents");
            let mut run = Run::start(&*method, Schedule::constant(step_size), &mut agents).expect("a start");
            for _ in 0..ROUNDS {
                run.round(&mut agents).expect("a round");
            }
            times.entry(name).or_default().push(begun.elapsed().as_secs_f64() * 1e3);
            fs::write(directory.join(name), bytes(agents.models())).expect("the final points are written");
        }
    }
    serde_json::json!(times)
}

fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect()
}
