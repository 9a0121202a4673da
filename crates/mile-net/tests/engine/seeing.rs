//! What users see, and when waiting ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::work;
use mile_net::engine::NetworkEngineError;
use mile_net::protocol::MissingPolicy;
use mile_net::status::{self, Activity, StatusError};

use crate::lab::{BOTH, HANG, Lab, cause};

#[test]
fn the_socket_says_who_is_waited_for_and_the_metrics_too() {
    let lab = Lab::new(Topology::Path, 2, 50);
    let method = Mile::new(2, 0.2).unwrap();
    let mut settings = lab.settings(0);
    let socket = lab.folder(0).join("status");
    settings.status = Some(socket.clone());
    settings.metrics = Some("127.0.0.1:0".parse().unwrap());
    let (mut engine, from) = lab.start(0, settings);
    engine.expect_rounds(6);
    let metrics = engine.metrics_address().unwrap();
    let states = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let state = work(&lab.job(0, &method, 6), from, &mut engine).unwrap();
            let done = status::ask(&socket).unwrap();
            assert_eq!((done.round, done.rounds), (6, Some(6)));
            let received = done.neighbours[0].received;
            assert_eq!(received.payload, 6 * 50 * 4, "{done:?}");
            assert_eq!(received.gossip, 6 * 8 * (4 + 2 * 50), "{done:?}");
            assert!(received.protocol > 6 * 3 * 24, "{done:?}");
            assert!(done.estimate.is_some_and(|estimate| estimate.loss.is_finite()));
            engine.leave().unwrap();
            state
        });
        let begun = Instant::now();
        let waiting = loop {
            let status = status::ask(&socket).unwrap();
            if status.activity == Activity::Waiting {
                break status;
            }
            assert!(begun.elapsed() < HANG, "{status:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        let edge = &waiting.neighbours[0];
        assert_eq!((waiting.agent, waiting.run.as_str(), waiting.round), (0, "lab", 0));
        assert_eq!((edge.id, edge.linked, edge.waiting), (1, false, Some(status::Awaited::Message)));
        let mut stream = TcpStream::connect(metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.") && text.contains("mile_waiting{agent=\"0\"} 1"), "{text}");
        assert!(text.contains("mile_linked{agent=\"0\",neighbour=\"1\"} 0"), "{text}");
        assert!(text.contains("mile_agent_info{agent=\"0\",run=\"lab\"} 1"), "{text}");
        for name in ["mile_own_loss", "mile_resident_bytes", "mile_spent_seconds", "mile_refused_messages"] {
            assert!(text.contains(name), "{name} in {text}");
        }
        let other = lab.agent(1, &method, 6).0;
        [first.join().unwrap(), other]
    });
    lab.check(&method, 6, &states);
    assert!(!socket.exists(), "the socket goes with the agent");
    assert!(matches!(status::ask(&socket), Err(StatusError::Silent { .. })));
}

#[test]
fn waiting_ends_with_an_error_that_names_whom_if_a_limit_is_set() {
    let lab = Lab::new(Topology::Path, 2, 50);
    let method = Mile::new(2, 0.2).unwrap();
    let mut settings = lab.settings(0);
    settings.timeout = Some(Duration::from_millis(300));
    let (mut engine, from) = lab.start(0, settings);
    let error = work(&lab.job(0, &method, 6), from, &mut engine).unwrap_err();
    let who = cause(&*error, |error| match error {
        NetworkEngineError::TimedOut { round: 0, who } => Some(who),
        _ => None,
    });
    assert!(who.is_some_and(|who| who.len() == 1 && who[0].contains("agent 1")), "{error}");
}

#[test]
fn an_agent_does_not_stay_for_ever_for_neighbours_that_are_gone() {
    for by in BOTH {
        let lab = Lab::new(Topology::Path, 2, 50).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        let run = |agent: usize, rounds: u64| {
            let mut settings = lab.settings(agent);
            settings.linger = Duration::from_millis(100);
            let (mut engine, from) = lab.start(agent, settings);
            work(&lab.job(agent, &method, rounds), from, &mut engine).unwrap();
            engine
        };
        std::thread::scope(|scope| {
            let gone = scope.spawn(|| run(1, 2));
            let staying = run(0, 2);
            drop(gone.join().unwrap());
            let departure = staying.leave().unwrap();
            assert!(departure.unconfirmed.iter().all(|id| *id == 1));
        });
        let (engine, _) = lab.start(0, lab.settings(0));
        assert_eq!(engine.status().round, 2, "what is on disk");
    }
}

#[test]
fn an_edge_is_skipped_by_both_ends_or_by_neither() {
    for by in BOTH {
        let lab = Lab::new(Topology::Path, 3, 50).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        let run = |agent: usize, rounds: u64, pause: Duration| {
            std::thread::sleep(pause);
            let mut settings = lab.settings(agent);
            settings.on_missing = MissingPolicy::Skip { after: 200 };
            let (mut engine, from) = lab.start(agent, settings);
            let state = work(&lab.job(agent, &method, rounds), from, &mut engine).unwrap();
            let skipped: Vec<_> =
                engine.status().neighbours.iter().map(|edge| (edge.id, edge.skipped)).collect();
            (state, skipped, engine.leave().unwrap())
        };
        let results = std::thread::scope(|scope| {
            let pauses = [0, 0, 1500].map(Duration::from_millis);
            let threads: Vec<_> = pauses
                .into_iter()
                .enumerate()
                .map(|(agent, pause)| scope.spawn(move || run(agent, 12, pause)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let skipped = |agent: usize, other: usize| {
            results[agent].1.iter().find(|(id, _)| *id == other).map(|(_, count)| *count).unwrap()
        };
        assert_eq!(skipped(0, 1), skipped(1, 0));
        assert_eq!(skipped(1, 2), skipped(2, 1));
        assert!(skipped(1, 2) > 0, "agent 2 was late");
    }
}

#[test]
fn clients_of_the_metrics_that_never_ask_take_no_threads_and_keep_nobody_out() {
    let lab = Lab::new(Topology::Path, 2, 5);
    let mut settings = lab.settings(0);
    settings.metrics = Some("127.0.0.1:0".parse().unwrap());
    let (engine, _) = lab.start(0, settings);
    let metrics = engine.metrics_address().unwrap();
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let before = threads();
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(metrics).unwrap()).collect();
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
    // A fraction of the time for which each of the others may be silent, one after the other.
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("mile_round{agent=\"0\"} 0"), "{text}");
    // Other tests start threads meanwhile, but not one for each of these clients.
    assert!(threads() < before + idle.len(), "{before} threads before, {} now", threads());
}

#[test]
fn agents_whose_addresses_are_of_ipv6_link_although_they_listen_on_all_of_ipv4() {
    for by in BOTH {
        let lab = Lab::new(Topology::Path, 2, 20).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        let run = |agent: usize| {
            let mut settings = lab.settings(agent);
            settings.listen = format!("0.0.0.0:{}", lab.addresses[agent].port()).parse().unwrap();
            let other = format!("[::1]:{}", lab.addresses[1 - agent].port());
            settings.neighbours.values_mut().for_each(|peer| peer.addresses = vec![other.clone()]);
            let (mut engine, from) = lab.start(agent, settings);
            let state = work(&lab.job(agent, &method, 4), from, &mut engine).unwrap();
            engine.leave().unwrap();
            state
        };
        let run = &run;
        let states = std::thread::scope(|scope| {
            let threads = [0, 1].map(|agent| scope.spawn(move || run(agent)));
            threads.map(|thread| thread.join().unwrap())
        });
        lab.check(&method, 4, &states);
    }
}
