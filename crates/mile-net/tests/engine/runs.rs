//! Runs to the end, disturbed and undisturbed, give the simulator's bits.

use mile::graph::Topology;
use mile::method::Method;
use mile::methods::{GradientTracking, MgSkip, Mile};

use crate::lab::{Dies, Lab};

#[test]
fn a_ring_gives_the_simulators_bits() {
    let lab = Lab::new(Topology::Ring, 4, 300);
    let method = Mile::new(3, 0.2).unwrap();
    let states = lab.all(&method, 12);
    lab.check(&method, 12, &states);
}

#[test]
fn several_vectors_several_exchanges_and_messages_of_many_frames_do_too() {
    for k in 0..2 {
        let mut lab = Lab::new(Topology::Star, 4, 150_000);
        lab.gossip_every = k;
        let skip = MgSkip::new(2, 0.5, Some(3), &lab.network).unwrap();
        let methods: [&dyn Method; 2] = [&GradientTracking, &skip];
        let method = methods[k as usize];
        let states = lab.all(method, 4);
        lab.check(method, 4, &states);
    }
}

#[test]
fn agents_whose_plug_is_pulled_come_back_and_nothing_has_happened() {
    let lab = Lab::new(Topology::Ring, 4, 5000);
    let method = Mile::new(2, 0.2).unwrap();
    let rounds = 20;
    let states = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|agent| {
                let (lab, method) = (&lab, &method);
                scope.spawn(move || {
                    // Two neighbours at about the same time, one of them twice.
                    if agent == 1 {
                        lab.victim(1, method, rounds, Dies::Exchange(5));
                        lab.victim(1, method, rounds, Dies::Round(9));
                    }
                    if agent == 2 {
                        lab.victim(2, method, rounds, Dies::Round(6));
                    }
                    lab.agent(agent, method, rounds).0
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    lab.check(&method, rounds, &states);
}

#[test]
fn rare_checkpoints_need_a_deeper_outbox_and_get_it() {
    let mut lab = Lab::new(Topology::Path, 3, 2000);
    lab.checkpoint_every = 4;
    let method = Mile::new(2, 0.2).unwrap();
    let states = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|agent| {
                let (lab, method) = (&lab, &method);
                scope.spawn(move || {
                    if agent == 1 {
                        lab.victim(1, method, 14, Dies::Exchange(6));
                    }
                    lab.agent(agent, method, 14).0
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    lab.check(&method, 14, &states);
}
