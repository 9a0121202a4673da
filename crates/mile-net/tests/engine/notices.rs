//! What agents say about themselves reaches all others that are up, also while they wait for one that is not.

use std::time::{Duration, Instant};

use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::work;
use mile_net::status::{Activity, Status};

use crate::lab::{BOTH, HANG, Lab};

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the status knows, from the last seconds, that exactly these agents wait, and for whom.
fn knows(status: &Status, waiting: &[(usize, &[usize])]) -> bool {
    let fresh = |agent: usize| {
        let mut all = status.notices.iter();
        all.find(|posted| posted.notice.agent == agent && posted.age_s < 3.0).map(|posted| &posted.notice)
    };
    let waits = |(agent, others): &(usize, &[usize])| {
        let awaited = |notice: &mile_net::notice::Notice| -> Vec<usize> {
            notice.edges.iter().filter(|edge| edge.waiting.is_some()).map(|edge| edge.id).collect()
        };
        fresh(*agent).is_some_and(|notice| notice.activity == Activity::Waiting && awaited(notice) == *others)
    };
    waiting.iter().all(waits)
}

#[test]
fn an_agent_knows_who_waits_for_whom_in_the_whole_network_and_who_has_ended() {
    for by in BOTH {
        let lab = Lab::new(Topology::Ring, 6, 50).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        // Two of six are down: the others are a path 3, 4, 5, 0, cut off at both its ends.
        let (down, up) = ([1, 2], [0, 3, 4, 5]);
        let start = |agent: usize| {
            let mut settings = lab.settings(agent);
            settings.notices = Some(6);
            lab.start(agent, settings)
        };
        let engines: Vec<_> = up.iter().map(|agent| start(*agent)).collect();
        let reporters: Vec<_> = engines.iter().map(|(engine, _)| engine.reporter()).collect();
        let (lab, method) = (&lab, &method);
        let run = |agent: usize, (mut engine, from): (mile_net::engine::NetworkEngine<f32>, _)| {
            let state = work(&lab.job(agent, method, 12), from, &mut engine).unwrap();
            engine.leave().unwrap();
            (agent, state)
        };
        let mut states = std::thread::scope(|scope| {
            let mut threads: Vec<_> = up
                .into_iter()
                .zip(engines)
                .map(|(agent, engine)| scope.spawn(move || run(agent, engine)))
                .collect();
            // Each waits for a neighbour that waits for another, and so on to one that is down.
            for reporter in &reporters {
                until("all know of all", || knows(&reporter(), &[(0, &[1]), (3, &[2])]));
                let status = reporter();
                assert_eq!(status.notices.len(), 4, "nobody has heard of the others: {status:?}");
                let sees = |agent: usize, neighbour: usize| {
                    let posted = status.notices.iter().find(|posted| posted.notice.agent == agent).unwrap();
                    posted.notice.edges.iter().find(|edge| edge.id == neighbour).unwrap().linked
                };
                assert!(sees(4, 5) && sees(5, 0) && !sees(0, 1) && !sees(3, 2));
            }
            threads.extend(down.map(|agent| {
                let engine = start(agent);
                scope.spawn(move || run(agent, engine))
            }));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        states.sort_by_key(|(agent, _)| *agent);
        lab.check(method, 12, &states.into_iter().map(|(_, state)| state).collect::<Vec<_>>());
        let ended = |status: &Status, agent: usize| {
            let mut all = status.notices.iter();
            all.any(|posted| posted.notice.agent == agent && posted.notice.activity == Activity::Done)
        };
        let (four, five) = (reporters[2](), reporters[3]());
        assert!(ended(&four, 4) && ended(&five, 5), "each of itself");
        assert!(ended(&four, 5) || ended(&five, 4), "and one of the other: {four:?} {five:?}");
    }
}

#[test]
fn agents_that_do_not_gossip_say_nothing() {
    let lab = Lab::new(Topology::Path, 2, 5);
    let (engine, _) = lab.start(0, lab.settings(0));
    assert!(engine.status().notices.is_empty());
}
