//! Step sizes that change: sums stay zero, exact methods stay exact.

use mile::block;
use mile::methods::catalogue::{self, Parameters};
use mile::mixing::Rule;
use mile::problems::Batch;
use mile::run::Run;
use mile::schedule::{Decay, Schedule};
use mile::simulator::Simulator;

use crate::common::*;

fn schedules() -> [Schedule; 3] {
    let constant = Schedule::constant(0.1);
    [
        constant.clone().with_warmup(30),
        constant.clone().with_decay(Decay::Step { every: 50, factor: 0.5 }),
        constant.with_warmup(10).with_decay(Decay::Cosine { rounds: 200, floor: 0.3 }),
    ]
}

/// From a stationary point with its corrections, no schedule moves an exact method away.
#[test]
fn exact_methods_stay_exact_under_every_schedule() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let network = ring(Rule::LazyMetropolis);
    let exact = catalogue::ALL.iter().filter(|entry| entry.exact && !entry.has_server());
    for entry in exact {
        let steps = entry.has_local_steps().then_some(4);
        let parameters = Parameters { local_steps: steps, ..Parameters::default() };
        let method = entry.build(&parameters, &network, 3).unwrap();
        for mut schedule in schedules() {
            if method.layout().state.iter().any(|(name, _)| *name == "y") || entry.name == "diging" {
                schedule.step_size = 0.05;
            }
            // Settle at the base step size, then let the schedule run from its first round on.
            let base = schedule.step_size;
            let mut agents =
                Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
            let mut settle = Run::start(&*method, Schedule::constant(base), &mut agents).unwrap();
            while gradient_norm(&problem, agents.model(0)) > 1e-12 || settle.progress().round < 3_000 {
                settle.round(&mut agents).unwrap();
                assert!(settle.progress().round < 100_000, "{} does not settle", entry.name);
            }
            let mut progress = *settle.progress();
            progress.round = 0;
            let mut run = Run::resume(&*method, schedule.clone(), progress);
            let mut away = 0.0f64;
            for _ in 0..250 {
                run.round(&mut agents).unwrap();
                away = away.max(gradient_norm(&problem, agents.model(0)));
                away = away.max(block::consensus_error(agents.models(), DIM).sqrt());
            }
            assert!(away < 1e-9, "{} under {schedule:?}: {away:e}", entry.name);
        }
    }
}

#[test]
fn corrections_sum_to_zero_while_the_step_size_changes() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Size(2));
    let network = ring(Rule::LazyMetropolis);
    for name in ["mile", "led", "proxskip", "ed", "extra", "nids", "mg-skip"] {
        let method = build(name, &Parameters::default(), &network);
        for schedule in schedules() {
            let mut agents =
                Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
            let mut run = Run::start(&*method, schedule, &mut agents).unwrap();
            for _ in 0..300 {
                run.step(&mut agents).unwrap();
                let mean = block::mean_row(agents.vector(vector(&*method, "c")), DIM);
                assert!(mean.iter().all(|m| m.abs() < 1e-13), "{name}: {mean:?}");
            }
        }
    }
}

/// Without the rescaling, a change of the step size throws MILE off its stationary point: a control.
#[test]
fn a_correction_that_is_not_rescaled_is_wrong() {
    let problem = nonconvex::<f64>(AGENTS, DIM, Batch::Full);
    let network = ring(Rule::LazyMetropolis);
    let method = build("mile", &tau(4), &network);
    let mut agents = Simulator::new(&problem, &network, &*method, &scattered(AGENTS, DIM), 3).unwrap();
    let mut run = Run::start(&*method, Schedule::constant(0.1), &mut agents).unwrap();
    for _ in 0..4_000 {
        run.round(&mut agents).unwrap();
    }
    let mut progress = *run.progress();
    progress.step_size = 0.05; // claims that the corrections already belong to the new step size
    let mut wrong = Run::resume(&*method, Schedule::constant(0.05), progress);
    wrong.round(&mut agents).unwrap();
    wrong.round(&mut agents).unwrap();
    assert!(block::consensus_error(agents.models(), DIM).sqrt() > 1e-3);
}
