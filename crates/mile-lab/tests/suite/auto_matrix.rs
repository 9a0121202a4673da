//! `step_size = "auto"` for every method, mixing matrix, way in which networks vary, and loss whose curvature has a bound: runs reach the
//! optimum of all rows together, or come as near to it as the method can, unless they are refused or warned of because they are unstable.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mile::agents::Vector;
use mile::block;
use mile::methods::catalogue::{self, Catalogue, Entry};
use mile::problems::{Batch, Loss, Problem, Shard, Table, TableObjective};
use mile::random::{Purpose, stream};
use mile::run::Run;
use mile::schedule::Schedule;
use mile::simulator::Simulator;
use mile_lab::advice::advise;
use mile_lab::objectives::{FixedProblem, Kinds, Objectives};
use mile_lab::plan::Plan;
use mile_lab::spec::Spec;
use mile_theory::advice::{Advice, Severity};
use mile_theory::drops::growth_under_drops;
use mile_theory::mixed;
use mile_theory::modes::Modes;
use mile_theory::stability::contraction;
use rand::RngExt;

const AGENTS: usize = 5;
/// Those of a hypercube.
const PAIRED: usize = 4;
const ROWS: usize = 8;
const COLUMNS: usize = 3;
/// Most rounds of a run of a method that reaches the optimum, and of one that does not.
const ROUNDS: usize = 8_000;
const INEXACT_ROUNDS: usize = 400;
const LOSSES: [Loss; 6] = [
    Loss::LeastSquares,
    Loss::Logistic,
    Loss::NonconvexLogistic,
    Loss::Softmax { classes: 3 },
    Loss::Huber { delta: 0.3 },
    Loss::Welsch { c: 3.0 },
];
/// A ring with a chord, so that agents have different numbers of neighbours and every rule gives other weights.
const GRAPH: &str = "topology = 'file'\nedges = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [0, 2]]";
const MIXINGS: [&str; 6] = ["metropolis", "lazy-metropolis", "max-degree", "best-constant", "fdla", "file"];
const VARYING: [&str; 4] = [
    "",
    "time_varying = 'random-matching'",
    "time_varying = 'matchings'",
    "time_varying = ['first.txt', 'second.txt']",
];
const EDGE_LOSSES: [&str; 3] =
    ["drop_rate = 0.3", "bursts = { begin = 0.1, end = 0.4 }", "absence = { begin = 0.05, end = 0.4 }"];
/// The files that networks name.
const FILES: [(&str, &str); 3] =
    [("first.txt", "0 1\n2 3\n0 4\n"), ("second.txt", "1 2\n3 4\n0 2\n"), ("matrix.txt", MATRIX)];
const MATRIX: &str =
    "0.3 0.2 0.3 0 0.2\n0.2 0.6 0.2 0 0\n0.3 0.2 0.2 0.3 0\n0 0 0.3 0.4 0.3\n0.2 0 0 0.3 0.5\n";

/// A method, with its own keys.
struct Row {
    entry: &'static Entry,
    keys: &'static str,
}

/// A network, with the number of its agents.
struct Cell {
    agents: usize,
    network: String,
    /// Whether every loss is tried on it.
    all_losses: bool,
}

/// Every mixing matrix with every way to vary, graphs that set the weights, rings, whose smallest eigenvalue is near that of the
/// worst networks, and edges that are lost in every way.
fn networks() -> Vec<Cell> {
    let cell = |agents, network: String| Cell { agents, network, all_losses: true };
    let mut cells = Vec::new();
    for mixing in MIXINGS {
        let matrix = if mixing == "file" { "matrix = 'matrix.txt'\n" } else { "" };
        let of = |varying| cell(AGENTS, format!("{GRAPH}\nmixing = '{mixing}'\n{matrix}{varying}"));
        cells.extend(VARYING.map(of));
    }
    cells.push(cell(PAIRED, "time_varying = 'one-peer-hypercube'".into()));
    cells.push(cell(AGENTS, "time_varying = 'base-k'".into()));
    cells.extend(VARYING[..3].iter().map(|varying| cell(AGENTS, format!("topology = 'ring'\n{varying}"))));
    let whole = VARYING.map(|varying| (AGENTS, format!("{GRAPH}\n{varying}")));
    let own = [
        (PAIRED, "time_varying = 'one-peer-hypercube'".to_owned()),
        (AGENTS, "time_varying = 'base-k'".to_owned()),
    ];
    for (agents, network) in whole.iter().chain(&own) {
        let of = |lost| Cell { all_losses: false, ..cell(*agents, format!("{network}\n{lost}")) };
        cells.extend(EDGE_LOSSES.map(of));
    }
    cells
}

/// Rows of agents whose columns have different scales, so that their Hessians differ, and whose targets lie far from zero, so that the
/// curvature of a robust loss at the start is not the largest.
fn table(loss: Loss, agents: usize) -> Table<f64> {
    let shard = |agent: usize| {
        let mut random = stream(3, Purpose::Data, agent as u64, 0);
        let mut shard = Shard::default();
        for row in 0..ROWS {
            let mut values = [1.0; COLUMNS];
            for (k, value) in values.iter_mut().enumerate().take(COLUMNS - 1) {
                let scale = if (agent + k).is_multiple_of(2) { 1.0 } else { 0.3 };
                *value = scale * (2.0 * random.random::<f64>() - 1.0);
            }
            let line = 3.0 + values[0] - 2.0 * values[1] + 0.3 * agent as f64 + 0.5 * random.random::<f64>();
            shard.features.extend(values);
            shard.targets.push(match loss {
                Loss::Softmax { classes } => ((row + agent * (row % 2)) % classes) as f64,
                // No plane separates the classes.
                Loss::Logistic | Loss::NonconvexLogistic => {
                    if (line > 3.5) != (row == 0) {
                        1.0
                    } else {
                        -1.0
                    }
                }
                _ => line,
            });
        }
        shard
    };
    let objective = TableObjective { intercept: true, ..TableObjective::new(loss, 0.05) };
    Table::new(COLUMNS, (0..agents).map(shard).collect(), objective, Batch::Full).unwrap()
}

/// A table with the optimum of all its rows.
struct Data {
    loss: Loss,
    agents: usize,
    table: Arc<Table<f64>>,
    /// f at the start and at the optimum.
    values: [f64; 2],
    /// The L for which `"auto"` chooses.
    smoothness: f64,
}

impl Data {
    fn new(loss: Loss, agents: usize) -> Self {
        let table = table(loss, agents);
        let mut x = vec![0.0; table.dim()];
        let start = table.objective(&x).unwrap();
        let mut mean = vec![0.0; x.len()];
        let mut own = vec![0.0; x.len()];
        for _ in 0..100_000 {
            mean.fill(0.0);
            for agent in 0..agents {
                table.gradient(agent, &x, &mut own).unwrap();
                mean.iter_mut().zip(&own).for_each(|(m, g)| *m += g / agents as f64);
            }
            if block::norm_sq(&mean) < 1e-24 {
                break;
            }
            x.iter_mut().zip(&mean).for_each(|(x, g)| *x -= 0.5 * g);
        }
        assert!(block::norm_sq(&mean) < 1e-18, "{loss:?} {mean:?}");
        let values = [start, table.objective(&x).unwrap()];
        let data = Self { loss, agents, values, table: Arc::new(table), smoothness: 0.0 };
        let plan = data.plan(Path::new(""), "", &row("dsgd"), "'auto'").unwrap();
        Self { smoothness: advise(&plan).unwrap().smoothness.unwrap(), ..data }
    }

    fn plan(&self, folder: &Path, network: &str, method: &Row, step_size: &str) -> Result<Plan, String> {
        let problem: Arc<dyn Problem<f64>> = self.table.clone();
        let given: Arc<dyn Objectives> = Arc::new(FixedProblem::new("rows", problem).with_version("1"));
        let kinds = Kinds::none().with("rows", move |_, _| Ok(given.clone()));
        let Row { entry, keys } = method;
        let steps = if entry.has_local_steps() { "local_steps = 3\n" } else { "" };
        let text = format!(
            "[network]\nagents = {}\n{network}\n[problem]\nkind = 'rows'\n\
             [[algorithm]]\nname = '{}'\nstep_size = {step_size}\n{steps}{keys}",
            self.agents, entry.name
        );
        let spec = Spec::read_with(&text.parse().unwrap(), folder, &kinds, &Catalogue::default()).unwrap();
        Plan::new(spec).map_err(|error| error.to_string())
    }

    /// The step size that `"auto"` chose for this loss, in units of 1/L.
    fn step_times_smoothness(&self, plan: &Plan) -> f64 {
        plan.spec.algorithms[0].schedule.step_size * self.smoothness
    }

    /// How far the agents are from the optimum: f of their mean above it and their mean squared distance from the mean, the former
    /// relative to the start.
    fn errors(&self, x: &[f64]) -> [f64; 2] {
        let dim = self.table.dim();
        let mean = block::mean_row(x, dim);
        let apart = |row: &[f64]| row.iter().zip(&mean).map(|(x, m)| (x - m).powi(2)).sum::<f64>();
        let disagreement = x.chunks_exact(dim).map(apart).sum::<f64>() / self.agents as f64;
        let above = self.table.objective(&mean).unwrap() - self.values[1];
        [above / (self.values[0] - self.values[1]), disagreement]
    }

    /// The errors of a run when it has converged, or their means over the second half of this many rounds.
    fn run(&self, plan: &Plan, step_size: f64, rounds: usize) -> (usize, [f64; 2]) {
        let method = plan.method(plan.jobs()[0]).unwrap();
        let start = vec![0.0; self.agents * self.table.dim()];
        let mut agents = Simulator::new(&*self.table, plan.network(), &*method, &start, 0).unwrap();
        let mut run = Run::start(&*method, Schedule::constant(step_size), &mut agents).unwrap();
        let mut late = Vec::new();
        for round in 1..=rounds {
            run.round(&mut agents).unwrap();
            if round.is_multiple_of(50) {
                let errors = self.errors(agents.vector(Vector(0)));
                if !errors.iter().all(|error| *error < 1e6) || errors.iter().all(|error| *error < 1e-6) {
                    return (round, errors);
                }
                late.extend((2 * round > rounds).then_some(errors));
            }
        }
        let mean = |k: usize| late.iter().map(|errors| errors[k]).sum::<f64>() / late.len() as f64;
        (rounds, [mean(0), mean(1)])
    }
}

/// Whether agents that hardly curve drift apart with this method on this network, whatever the step size.
fn is_unstable(plan: &Plan) -> bool {
    let (method, network) = (plan.method(plan.jobs()[0]).unwrap(), plan.network());
    match network.varies() {
        true => !growth_under_drops(&*method, network, 0).unwrap().is_stable(),
        false => contraction(&Modes::of(&*method).unwrap(), network.spectrum()).unwrap() > 1.0 - 1e-9,
    }
}

/// Whether a small step is stable in the simulation with curvature.
fn is_stable(plan: &Plan) -> bool {
    let method = plan.method(plan.jobs()[0]).unwrap();
    mixed::is_stable(&*method, plan.network(), 0.05, 0).unwrap()
}

/// What is wrong with a method on a network; nothing if each loss reaches its optimum without a warning, or if the method is unstable there and
/// refused or warned of. The step size of the first loss is chosen; those of the others follow from it, since the loss counts by its L only
/// ([`of_the_loss_only_its_curvature_counts`]).
fn faults(data: &[&Data], folder: &Path, network: &str, method: &Row) -> Vec<String> {
    let Row { entry, keys } = method;
    let cell = format!("{} {keys} on {network:?}", entry.name);
    let plan = match data[0].plan(folder, network, method, "'auto'") {
        Ok(plan) => plan,
        // With a number it is refused too, or unstable.
        Err(refusal) => {
            println!("{cell}: refused: {refusal}");
            let given = data[0].plan(folder, network, method, "0.1");
            let is_right = given.is_ok_and(|plan| !is_unstable(&plan) && is_stable(&plan));
            return is_right.then(|| format!("{cell}: refused: {refusal}")).into_iter().collect();
        }
    };
    let advice = advise(&plan).unwrap().of_algorithms;
    if let Some((_, Advice { severity, parameter, message, .. })) = advice.first()
        && *severity >= Severity::Caution
    {
        println!("{cell}: {severity:?}: {message}");
        if *parameter != "step_size" && is_unstable(&plan) {
            return Vec::new();
        }
        if *parameter == "step_size" || *severity == Severity::Warning {
            return vec![format!("{cell}: {message}")];
        }
    }
    let step_times_smoothness = data[0].step_times_smoothness(&plan);
    let (most, enough) = if entry.exact { (ROUNDS, [1e-6, 1e-6]) } else { (INEXACT_ROUNDS, [0.2, 5.0]) };
    let mut faults = Vec::new();
    for data in data {
        let step_size = step_times_smoothness / data.smoothness;
        let (rounds, [above, disagreement]) = data.run(&plan, step_size, most);
        let found = format!(
            "{cell} with {:?}: step size {step_size}, {rounds} rounds: {above:e} {disagreement:e}",
            data.loss
        );
        println!("{found}");
        if !(above < enough[0] && disagreement < enough[1]) {
            faults.push(found);
        }
    }
    faults
}

fn row(name: &str) -> Row {
    Row { entry: catalogue::ALL.iter().find(|entry| entry.name == name).unwrap(), keys: "" }
}

/// The methods without a server, with their own weights, and MILE with those that are chosen for the network.
fn methods() -> Vec<Row> {
    let all = catalogue::ALL.iter().filter(|entry| !entry.has_server());
    let chosen = ["xi = 'auto'\ngamma = 'auto'", "xi = 'adaptive'"];
    let mile = chosen.map(|keys| Row { keys, ..row("mile") });
    all.map(|entry| Row { entry, keys: "" }).chain(mile).collect()
}

/// A folder with the files that networks name.
fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    FILES.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

#[test]
fn of_the_loss_only_its_curvature_counts() {
    let data = LOSSES.map(|loss| Data::new(loss, AGENTS));
    for name in ["mile", "k-gt", "extra"] {
        let chosen = |data: &Data| {
            let plan = data.plan(Path::new(""), "drop_rate = 0.1", &row(name), "'auto'").unwrap();
            data.step_times_smoothness(&plan)
        };
        let all: Vec<f64> = data.iter().map(chosen).collect();
        // Step sizes are rounded down to four digits.
        assert!(all.iter().all(|step| (step / all[0] - 1.0).abs() < 1e-3), "{name} {all:?}");
    }
}

#[test]
fn the_automatic_step_size_reaches_the_optimum_for_every_method_network_and_loss() {
    let folder = files();
    let data = [AGENTS, PAIRED].map(|agents| LOSSES.map(|loss| Data::new(loss, agents)));
    let of = |cell: &Cell, k: usize| -> Vec<&Data> {
        let data = data.iter().find(|data| data[0].agents == cell.agents).unwrap();
        if cell.all_losses { data.iter().collect() } else { vec![&data[k % data.len()]] }
    };
    let mut cells = Vec::new();
    for (k, cell) in networks().into_iter().enumerate() {
        let methods = methods().into_iter().enumerate();
        cells.extend(methods.map(|(m, method)| (of(&cell, k + m), cell.network.clone(), method)));
    }
    let complete = Cell { agents: AGENTS, network: "topology = 'complete'".into(), all_losses: true };
    let servers = catalogue::ALL.iter().filter(|entry| entry.has_server());
    let servers = servers.map(|entry| Row { entry, keys: "" });
    cells.extend(servers.map(|method| (of(&complete, 0), complete.network.clone(), method)));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((data, network, method)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.extend(faults(data, folder.path(), network, method));
        }
        found
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
