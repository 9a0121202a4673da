//! Runs to the end, disturbed and undisturbed, give the simulator's bits.

use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mile::agents::AgentsError;
use mile::compression::Compression;
use mile::graph::Topology;
use mile::method::Method;
use mile::methods::{Ed, GradientTracking, LocalDsgd, MgSkip, Mile, ProxNids};
use mile::problems::{Batch, Draw, Failure, Loss, Problem, Shard, Table, TableObjective};
use mile::robust::Robust;
use mile::schedule::Weight;
use mile_net::agent::{AgentJob, StartFrom, work};
use mile_net::engine::{Departure, NetworkEngineError, Pace, Settings, Transport};
use mile_net::outbox::LARGE;

use crate::lab::{BOTH, Dies, Lab, cause};

#[test]
fn a_ring_gives_the_simulators_bits() {
    for by in BOTH {
        let lab = Lab::new(Topology::Ring, 4, 300).over(by);
        let method = Mile::new(3, 0.2).unwrap();
        let states = lab.all(&method, 12);
        lab.check(&method, 12, &states);
    }
}

#[test]
fn several_vectors_several_exchanges_and_messages_of_many_frames_do_too() {
    for (k, by) in [(0, Transport::Quic), (1, Transport::Quic), (0, Transport::Tcp), (1, Transport::Tcp)] {
        let mut lab = Lab::new(Topology::Star, 4, 150_000).over(by);
        lab.gossip_every = k;
        let skip = MgSkip::new(2, 0.5, Some(3), &lab.network).unwrap();
        let methods: [&dyn Method; 2] = [&GradientTracking, &skip];
        let method = methods[k as usize];
        let states = lab.all(method, 4);
        lab.check(method, 4, &states);
    }
}

#[test]
fn proximal_steps_do_too_and_methods_without_one_are_refused() {
    let mut lab = Lab::new(Topology::Ring, 3, 40);
    let shard = |agent: u16| Shard {
        features: (0..120u16).map(|k| f32::from(k * (agent + 3) % 17 * (k % 5)) / 60.0 - 0.5).collect(),
        targets: vec![1.0, -1.0, f32::from(agent)],
        ..Shard::default()
    };
    let objective = TableObjective { l1: 0.1, ..TableObjective::new(Loss::LeastSquares, 0.1) };
    let table = Table::new(40, (0..3).map(shard).collect(), objective, Batch::Full).unwrap();
    lab.problem = Box::new(table);
    for method in [&Ed as &dyn Method, &ProxNids] {
        let states = lab.all(method, 40);
        lab.check(method, 40, &states);
        let zeros = states[0].vectors[0].iter().filter(|x| **x == 0.0).count();
        assert!((1..40).contains(&zeros), "{zeros} zeros");
        let seen = states[0].gossip.estimate();
        assert!(seen.grad_norm_sq.is_none() && seen.loss > 0.0, "{seen:?}");
        std::fs::remove_dir_all(lab.folder(0).parent().unwrap()).unwrap();
    }
    let (mut engine, from) = lab.start(0, lab.settings(0));
    assert!(work(&lab.job(0, &GradientTracking, 3), from, &mut engine).is_err(), "it has no proximal step");
}

#[test]
fn agents_whose_plug_is_pulled_come_back_and_nothing_has_happened() {
    for by in BOTH {
        let lab = Lab::new(Topology::Ring, 4, 5000).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        let rounds = 20;
        // Two neighbours at about the same time, one of them twice.
        let victims = [(1, Dies::Exchange(5)), (1, Dies::Round(9)), (2, Dies::Round(6))];
        lab.check(&method, rounds, &lab.all_but(&method, rounds, &victims));
    }
}

/// Messages are bytes in place of elements; after the victim's death they are sent again from its checkpoint.
#[test]
fn compressed_messages_are_sent_again_after_a_death() {
    for by in [Compression::Fp16, Compression::EightBit, Compression::TopK(0.05)] {
        let lab = Lab::new(Topology::Ring, 4, 1_501).over(Transport::Tcp);
        let method = Mile::decoupled(2, 0.01, 0.3).unwrap().with_compression(Some(by)).unwrap();
        lab.check(&method, 9, &lab.all_but(&method, 9, &[(1, Dies::Exchange(5))]));
    }
}

/// Messages that are read from the checkpoint by those that send them: also while they are sent for the first time.
#[test]
fn large_messages_are_sent_from_the_checkpoint_after_a_death() {
    for (by, every) in [(Transport::Quic, 1), (Transport::Tcp, 1), (Transport::Tcp, 3)] {
        let mut lab = Lab::new(Topology::Path, 3, LARGE / 4 + 3).over(by);
        lab.checkpoint_every = every;
        let method = Mile::new(1, 0.4).unwrap();
        let victims = [(0, Dies::Round(3)), (1, Dies::Exchange(4)), (1, Dies::Round(6))];
        lab.check(&method, 7, &lab.all_but(&method, 7, &victims));
    }
}

#[test]
fn a_message_that_has_changed_on_disk_is_not_sent() {
    let lab = Lab::new(Topology::Path, 2, LARGE / 4).over(Transport::Tcp);
    let method = Mile::new(1, 0.4).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.victim(1, &method, 9, Dies::Round(4)));
        let (mut engine, from) = lab.start(0, lab.settings(0));
        let state = work(&lab.job(0, &method, 4), from, &mut engine).unwrap();
        other.join().unwrap();
        let path = lab.folder(0).join("checkpoint.safetensors");
        let mut file = std::fs::File::options().write(true).open(path).unwrap();
        // Vectors are in the order of their names: c, the message, x.
        file.seek(SeekFrom::End(-(LARGE as i64) - 8)).unwrap();
        file.write_all(&[1, 2, 3, 4]).unwrap();
        let returned = scope.spawn(|| {
            let timeout = Some(Duration::from_secs(20));
            let (mut engine, from) = lab.start(1, Settings { timeout, ..lab.settings(1) });
            work(&lab.job(1, &method, 4), from, &mut engine).map(|state| state.progress.round)
        });
        let error = work(&lab.job(0, &method, 9), StartFrom::State(state), &mut engine).unwrap_err();
        let damaged = cause(&*error, |engine| match engine {
            NetworkEngineError::Checkpoint(error) => Some(error.to_string()),
            _ => None,
        });
        let said = damaged.unwrap_or_else(|| panic!("{error}"));
        assert!(said.contains("a part of outbox.3 has changed"), "{said}");
        drop(engine);
        // It waits for its neighbour until the timeout.
        assert!(returned.join().unwrap().is_err());
    });
}

/// The messages of all neighbours are kept until all of them are here; after the victim's death they are sent again.
#[test]
fn robust_exchanges_have_the_bits_of_one_process_after_a_death() {
    let robust = |by| LocalDsgd::new(2).unwrap().with_robust(Some(by)).unwrap();
    for method in [robust(Robust::Clip { byzantine: 1 }), robust(Robust::TrimmedMean { byzantine: 1 })] {
        let lab = Lab::new(Topology::Complete, 4, 1_501).over(Transport::Tcp);
        lab.check(&method, 9, &lab.all_but(&method, 9, &[(1, Dies::Exchange(5))]));
    }
    let lab = Lab::new(Topology::Ring, 4, 1_501).over(Transport::Tcp);
    let method = Mile::new(2, 0.2).unwrap().with_robust(Some(Robust::Threshold(0.3))).unwrap();
    lab.check(&method, 9, &lab.all_but(&method, 9, &[(2, Dies::Exchange(4))]));
}

#[test]
fn an_agent_that_is_killed_in_its_last_round_finds_its_neighbour_when_it_is_back_and_both_end_for_good() {
    for by in BOTH {
        let lab = Lab::new(Topology::Path, 2, 50).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lab.agent(0, &method, 5));
            // Its neighbour may have finished all its rounds by now, and stays.
            lab.victim(1, &method, 5, Dies::Round(5));
            let departures = [lab.agent(1, &method, 5).1, other.join().unwrap().1];
            assert_eq!(departures, [Departure::default(), Departure::default()]);
        });
        // Both know that the other needs nothing more: otherwise it would be named as unconfirmed after the linger time.
        for agent in 0..2 {
            assert_eq!(lab.agent(agent, &method, 5).1, Departure::default());
        }
        // With more rounds both continue.
        lab.check(&method, 8, &lab.all(&method, 8));
    }
}

#[test]
fn rare_checkpoints_need_a_deeper_outbox_and_get_it() {
    let mut lab = Lab::new(Topology::Path, 3, 2000).over(Transport::Tcp);
    lab.checkpoint_every = 4;
    // Whose messages have a summary before the vector.
    let method = Mile::with_weights(2, Weight::Adaptive(0.2), Some(0.9)).unwrap();
    lab.check(&method, 14, &lab.all_but(&method, 14, &[(1, Dies::Exchange(6))]));
}

#[test]
fn checkpoints_as_often_as_they_cost_little_give_the_same_bits_after_a_death() {
    let mut lab = Lab::new(Topology::Path, 3, 50).over(Transport::Tcp);
    (lab.checkpoint_every, lab.pace) = (7, Pace::Time);
    let method = Mile::new(2, 0.2).unwrap();
    let victims = [(1, Dies::Exchange(20)), (1, Dies::Round(33)), (2, Dies::Exchange(29))];
    lab.check(&method, 40, &lab.all_but(&method, 40, &victims));
}

/// A problem that can be evaluated only a limited number of times.
struct Failing<'a> {
    problem: &'a dyn Problem<f32>,
    samples: AtomicU64,
    losses: AtomicU64,
}

impl Problem<f32> for Failing<'_> {
    fn agents(&self) -> usize {
        self.problem.agents()
    }

    fn dim(&self) -> usize {
        self.problem.dim()
    }

    fn loss(&self, agent: usize, x: &[f32]) -> Result<f64, Failure> {
        if self.losses.fetch_sub(1, Relaxed) == 0 {
            return Err("the data are gone".into());
        }
        self.problem.loss(agent, x)
    }

    fn gradient(&self, agent: usize, x: &[f32], gradient: &mut [f32]) -> Result<(), Failure> {
        self.problem.gradient(agent, x, gradient)
    }

    fn sample_gradient(
        &self,
        agent: usize,
        x: &[f32],
        draw: Draw,
        gradient: &mut [f32],
    ) -> Result<(), Failure> {
        if self.samples.fetch_sub(1, Relaxed) == 0 {
            return Err("the data are gone".into());
        }
        self.problem.sample_gradient(agent, x, draw, gradient)
    }
}

#[test]
fn an_objective_that_fails_ends_the_agent_with_its_number_and_keeps_the_checkpoint() {
    for (samples, losses) in [(9, 1000), (1000, 5)] {
        let lab = Lab::new(Topology::Path, 2, 50);
        let method = Mile::new(2, 0.2).unwrap();
        let states = std::thread::scope(|scope| {
            let other = scope.spawn(|| lab.agent(0, &method, 9).0);
            let (mut engine, from) = lab.start(1, lab.settings(1));
            let failing = Failing { problem: &*lab.problem, samples: samples.into(), losses: losses.into() };
            let job = AgentJob { problem: &failing, ..lab.job(1, &method, 9) };
            let error = work(&job, from, &mut engine).unwrap_err();
            let Some(AgentsError::Objective { agent: 1, source }) = error.downcast_ref() else {
                panic!("{error}")
            };
            assert_eq!(source.to_string(), "the data are gone");
            drop(engine);
            let kept = lab.open(1).unwrap().load::<f32>(1, &lab.terms).unwrap().state.unwrap();
            assert_eq!(kept.progress.round, 4, "of the last round that was whole");
            let (state, _) = lab.agent(1, &method, 9);
            [other.join().unwrap(), state]
        });
        lab.check(&method, 9, &states);
    }
}
