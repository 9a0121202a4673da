//! `step_size = "auto"` for every method, on networks of all kinds, with every loss whose curvature has a bound: runs reach the optimum
//! of all rows together, or come as near to it as the method can, and no advice warns of what was chosen.

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
const ROWS: usize = 12;
const COLUMNS: usize = 3;
/// Most rounds of a run.
const ROUNDS: usize = 8_000;
const LOSSES: [Loss; 6] = [
    Loss::LeastSquares,
    Loss::Logistic,
    Loss::NonconvexLogistic,
    Loss::Softmax { classes: 4 },
    Loss::Huber { delta: 0.3 },
    Loss::Welsch { c: 3.0 },
];
/// Of a ring with these weights, as it is, with edges that change, and with edges that drop.
const NETWORKS: [&str; 8] = [
    "mixing = 'metropolis'",
    "mixing = 'metropolis'\ntime_varying = 'random-matching'",
    "mixing = 'metropolis'\ntime_varying = 'matchings'",
    "mixing = 'metropolis'\ndrop_rate = 0.3",
    "mixing = 'lazy-metropolis'",
    "mixing = 'lazy-metropolis'\ntime_varying = 'random-matching'",
    "mixing = 'fdla'",
    "mixing = 'fdla'\ntime_varying = 'matchings'",
];

/// Rows of agents whose columns have different scales, so that their Hessians differ, and whose targets lie far from zero, so that the
/// curvature of a robust loss at the start is not the largest.
fn table(loss: Loss) -> Table<f64> {
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
                Loss::Logistic | Loss::NonconvexLogistic => {
                    if line > 3.5 {
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
    Table::new(COLUMNS, (0..AGENTS).map(shard).collect(), objective, Batch::Full).unwrap()
}

/// A table with the optimum of all its rows.
struct Data {
    loss: Loss,
    table: Arc<Table<f64>>,
    /// f at the start and at the optimum.
    values: [f64; 2],
}

impl Data {
    fn new(loss: Loss) -> Self {
        let table = table(loss);
        let mut x = vec![0.0; table.dim()];
        let start = table.objective(&x).unwrap();
        let mut mean = vec![0.0; x.len()];
        let mut own = vec![0.0; x.len()];
        for _ in 0..100_000 {
            mean.fill(0.0);
            for agent in 0..AGENTS {
                table.gradient(agent, &x, &mut own).unwrap();
                mean.iter_mut().zip(&own).for_each(|(m, g)| *m += g / AGENTS as f64);
            }
            if block::norm_sq(&mean) < 1e-24 {
                break;
            }
            x.iter_mut().zip(&mean).for_each(|(x, g)| *x -= 0.5 * g);
        }
        assert!(block::norm_sq(&mean) < 1e-18, "{loss:?} {mean:?}");
        Self { loss, values: [start, table.objective(&x).unwrap()], table: Arc::new(table) }
    }

    fn plan(&self, network: &str, entry: &Entry, step_size: &str) -> Result<Plan, String> {
        let problem: Arc<dyn Problem<f64>> = self.table.clone();
        let given: Arc<dyn Objectives> = Arc::new(FixedProblem::new("rows", problem).with_version("1"));
        let kinds = Kinds::none().with("rows", move |_, _| Ok(given.clone()));
        let steps = if entry.has_local_steps() { "local_steps = 3\n" } else { "" };
        let text = format!(
            "[network]\nagents = {AGENTS}\n{network}\n[problem]\nkind = 'rows'\n\
             [[algorithm]]\nname = '{}'\nstep_size = {step_size}\n{steps}",
            entry.name
        );
        let spec =
            Spec::read_with(&text.parse().unwrap(), Path::new(""), &kinds, &Catalogue::default()).unwrap();
        Plan::new(spec).map_err(|error| error.to_string())
    }

    /// How far the agents are from the optimum: f of their mean above it and their mean squared distance from the mean, the former
    /// relative to the start.
    fn errors(&self, x: &[f64]) -> [f64; 2] {
        let dim = self.table.dim();
        let mean = block::mean_row(x, dim);
        let apart = |row: &[f64]| row.iter().zip(&mean).map(|(x, m)| (x - m).powi(2)).sum::<f64>();
        let disagreement = x.chunks_exact(dim).map(apart).sum::<f64>() / AGENTS as f64;
        let above = self.table.objective(&mean).unwrap() - self.values[1];
        [above / (self.values[0] - self.values[1]), disagreement]
    }

    /// The errors of a run when it has converged, or at its end.
    fn run(&self, plan: &Plan) -> (usize, [f64; 2]) {
        let method = plan.method(plan.jobs()[0]).unwrap();
        let start = vec![0.0; AGENTS * self.table.dim()];
        let mut agents = Simulator::new(&*self.table, plan.network(), &*method, &start, 0).unwrap();
        let schedule = Schedule::constant(plan.spec.algorithms[0].schedule.step_size);
        let mut run = Run::start(&*method, schedule, &mut agents).unwrap();
        for round in 1..ROUNDS {
            run.round(&mut agents).unwrap();
            if round.is_multiple_of(100) {
                let errors = self.errors(agents.vector(Vector(0)));
                if !errors.iter().all(|error| *error < 1e6) || errors.iter().all(|error| *error < 1e-6) {
                    return (round, errors);
                }
            }
        }
        (ROUNDS, self.errors(agents.vector(Vector(0))))
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

/// What is wrong with a method on a network with a loss; none if nothing is. A method that is unstable there is refused, or advice says so.
fn fault(data: &Data, network: &str, entry: &Entry) -> Option<String> {
    let cell = format!("{} on {network:?} with {:?}", entry.name, data.loss);
    let plan = match data.plan(network, entry, "'auto'") {
        Ok(plan) => plan,
        // With a number it is refused too, or unstable.
        Err(refusal) => {
            let is_right =
                data.plan(network, entry, "0.1").is_ok_and(|plan| !is_unstable(&plan) && is_stable(&plan));
            return is_right.then(|| format!("{cell}: refused: {refusal}"));
        }
    };
    let step_size = plan.spec.algorithms[0].schedule.step_size;
    let advice = advise(&plan).unwrap().of_algorithms;
    let worst = advice.first().map(|(_, advice)| advice);
    if is_unstable(&plan) {
        let is_silent = worst.is_none_or(|advice| advice.severity < Severity::Caution);
        return is_silent.then(|| format!("{cell}: unstable without a word"));
    }
    let (rounds, [above, disagreement]) = data.run(&plan);
    let found = format!("{cell}: step size {step_size}, {rounds} rounds: {above:e} {disagreement:e}");
    println!("{found}");
    let enough = if entry.exact { [1e-6, 1e-6] } else { [0.2, 5.0] };
    if !(above < enough[0] && disagreement < enough[1]) {
        return Some(found);
    }
    let is_warned =
        |advice: &&Advice| advice.severity == Severity::Warning || advice.parameter == "step_size";
    worst.filter(is_warned).map(|advice| format!("{cell}: step size {step_size}: {}", advice.message))
}

/// Every method on every network, and with every loss.
#[test]
fn the_automatic_step_size_reaches_the_optimum_for_every_method_network_and_loss() {
    let data = LOSSES.map(Data::new);
    let methods: Vec<&Entry> = catalogue::ALL.iter().filter(|entry| !entry.has_server()).collect();
    let mut cells = Vec::new();
    for (m, method) in methods.iter().enumerate() {
        // The limits of methods that communicate at random steps take a second each.
        let every = if method.takes("probability") { 5 } else { 1 };
        for (n, network) in NETWORKS.iter().enumerate().step_by(every) {
            cells.push((&data[(m + n) % LOSSES.len()], *network, *method));
        }
    }
    for entry in catalogue::ALL.iter().filter(|entry| entry.has_server()) {
        cells.extend(data.iter().map(|data| (data, "topology = 'complete'", entry)));
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((data, network, entry)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.extend(fault(data, network, entry));
        }
        found
    };
    let found: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
