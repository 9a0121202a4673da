//! What a neighbour can make an agent keep, and whom an agent says it waits for.

use std::collections::BTreeMap;

use mile::membership::Edge;
use mile_net::frame::{HEAD, Head};
use mile_net::handshake::{Mark, Terms};
use mile_net::outbox::{Message, MessageForm};
use mile_net::protocol::{Arrival, Fault, Limits, Memory, MissingPolicy, Outgoing, Protocol, Setup};
use mile_net::status::Awaited;

pub(crate) const DIM: usize = 6;

fn session(me: usize, neighbours: &[usize], limits: Limits, memory: Memory<f32>) -> Protocol<f32> {
    started(me, 1, neighbours, limits, memory)
}

fn started(
    me: usize,
    incarnation: u64,
    neighbours: &[usize],
    limits: Limits,
    memory: Memory<f32>,
) -> Protocol<f32> {
    let terms = Terms { run: "limits".into(), dim: DIM, precision: "f32".into(), facts: BTreeMap::new() };
    let setup = Setup {
        me,
        incarnation,
        terms,
        neighbours: neighbours.iter().map(|id| (*id, Edge::lasting(0.25))).collect(),
        on_missing: MissingPolicy::Wait,
        limits,
        memory,
    };
    Protocol::new(setup, 0).with_pieces_of(2)
}

pub(crate) fn begin(session: &mut Protocol<f32>, round: u64, up: &[usize]) {
    let mark = Mark { exchange: round, round };
    let vectors = vec![round as f32; DIM];
    let up: Vec<(usize, f64)> = up.iter().map(|id| (*id, 0.25)).collect();
    session.begin(
        Message { mark, vectors, form: MessageForm::Whole, gossip: Vec::new() },
        &up,
        vec![vec![0.0; DIM]],
        0,
    );
}

pub(crate) fn arrival(frame: Outgoing<f32>) -> Arrival<f32> {
    match frame {
        Outgoing::Control(bytes) => {
            let (head, payload) = bytes.split_first_chunk::<HEAD>().unwrap();
            Arrival::Control(Head::decode::<f32>(head).unwrap(), payload.to_vec())
        }
        Outgoing::Data { head, message, from, to } => {
            let piece = message.read(from..to).expect("readable").into_owned();
            Arrival::Data { exchange: head.a, offset: head.b, piece }
        }
    }
}

/// Delivers everything that two sessions have to send each other, as far as they accept it.
pub(crate) fn deliver(link: u64, a: &mut Protocol<f32>, b: &mut Protocol<f32>) {
    loop {
        let mut moved = false;
        for turn in 0..2 {
            let (from, to) = if turn == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            while to.may_read(link)
                && let Some(frame) = from.next_frame(link)
            {
                to.received(link, arrival(frame), 0).unwrap();
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

#[test]
fn only_those_who_are_truly_missing_are_waited_for() {
    let limits = Limits::of(1);
    let mut ours = session(0, &[1, 2, 3], limits, Memory::default());
    let mut others = [2, 3].map(|id| session(id, &[0], limits, Memory::default()));
    begin(&mut ours, 0, &[1, 2, 3]);
    let waited = |session: &Protocol<f32>| -> Vec<usize> {
        let statuses = session.neighbour_statuses().into_iter();
        statuses.filter(|status| status.waiting == Some(Awaited::Message)).map(|status| status.id).collect()
    };
    assert_eq!(waited(&ours), [1, 2, 3]);
    for (link, other) in others.iter_mut().enumerate() {
        begin(other, 0, &[0]);
        ours.opened(link as u64, link + 2, true);
        other.opened(link as u64, 0, false);
        deliver(link as u64, &mut ours, other);
    }
    // The messages of 2 and 3 are here, as far as they are accepted before that of 1.
    assert_eq!(waited(&ours), [1]);
    assert!(ours.finish().is_none());
    let mut first = session(1, &[0], limits, Memory::default());
    begin(&mut first, 0, &[0]);
    ours.opened(9, 1, true);
    first.opened(9, 0, false);
    deliver(9, &mut ours, &mut first);
    for (link, other) in others.iter_mut().enumerate() {
        deliver(link as u64, &mut ours, other);
    }
    assert_eq!(waited(&ours), [0; 0]);
    assert!(ours.finish().is_some());
}

#[test]
fn a_neighbour_that_confirms_nothing_is_waited_for_at_a_limit_and_what_is_kept_is_bounded() {
    let limits = Limits { outbox: 5, ..Limits::of(1) };
    let mut ours = session(0, &[1], limits, Memory::default());
    let mut other = session(1, &[0], Limits { outbox: 1000, ..limits }, Memory::default());
    ours.opened(0, 1, true);
    other.opened(0, 0, false);
    let mut done = 0;
    for round in 0..20 {
        begin(&mut ours, round, &[1]);
        begin(&mut other, round, &[0]);
        deliver(0, &mut ours, &mut other);
        assert!(other.finish().is_some(), "it has no reason to wait: it is sent confirmations");
        if ours.finish().is_none() {
            break;
        }
        ours.durable(Mark { exchange: round + 1, round: round + 1 });
        done += 1;
    }
    assert_eq!(done, 4, "the fifth round is not over until something is confirmed");
    let status = &ours.neighbour_statuses()[0];
    assert_eq!(status.waiting, Some(Awaited::Confirmation), "{status:?}");
    assert_eq!(ours.memory(Mark { exchange: 4, round: 4 }).outbox.len(), 5);
    // It confirms at last.
    other.durable(Mark { exchange: 3, round: 3 });
    deliver(0, &mut ours, &mut other);
    assert!(ours.finish().is_some());
    assert_eq!(ours.memory(Mark { exchange: 5, round: 5 }).outbox.len(), 2);
    assert_eq!(ours.neighbour_statuses()[0].waiting, None);
}

#[test]
fn a_copy_is_accepted_if_it_is_not_older_than_what_is_kept_otherwise_its_age_is_reported() {
    let limits = Limits { keep: 3, ..Limits::of(1) };
    let mut ours = session(0, &[1], limits, Memory::default());
    let mut other = session(1, &[0], limits, Memory::default());
    ours.opened(0, 1, true);
    other.opened(0, 0, false);
    let mut copies = vec![Memory::default()];
    for round in 0..10 {
        begin(&mut ours, round, &[1]);
        begin(&mut other, round, &[0]);
        deliver(0, &mut ours, &mut other);
        assert!(ours.finish().is_some() && other.finish().is_some());
        let mark = Mark { exchange: round + 1, round: round + 1 };
        ours.durable(mark);
        copies.push(other.memory(mark));
        other.durable(mark);
        deliver(0, &mut ours, &mut other);
    }
    ours.closed(0, 0);
    let mut answer = |round: usize, link: u64| {
        let mut back = session(1, &[0], limits, copies[round].clone());
        ours.opened(link, 1, true);
        back.opened(link, 0, false);
        let greeting = back.next_frame(link).unwrap();
        let outcome = ours.received(link, arrival(greeting), 0);
        ours.closed(link, 0);
        outcome.map_err(|fault| fault.to_string())
    };
    assert_eq!(answer(10, 1), Ok(()));
    assert_eq!(answer(7, 2), Ok(()));
    let refused = answer(6, 3).unwrap_err();
    assert!(
        ["round 6", "round 10", "round 7", "keep = 3"].iter().all(|name| refused.contains(name)),
        "{refused}"
    );
}

#[test]
fn two_processes_with_one_key_are_noticed_and_both_ends_say_so() {
    let limits = Limits::of(1);
    let mut ours = session(0, &[1], limits, Memory::default());
    // A copy of the folder of an agent that still runs, started beside it.
    let [mut original, mut copy] = [5, 6].map(|start| started(1, start, &[0], limits, Memory::default()));
    for (link, other) in [(0, &mut original), (1, &mut copy)] {
        ours.opened(link, 1, false);
        other.opened(link, 0, true);
        deliver(link, &mut ours, other);
    }
    assert!(ours.is_in_use(1), "the later start takes its place");
    assert!(matches!(&ours.closing()[..], [(0, Fault::Superseded(_))]));
    ours.closed(0, 0);
    original.closed(0, 0);
    ours.opened(2, 1, false);
    original.opened(2, 0, true);
    let hello = arrival(original.next_frame(2).unwrap());
    let Err(Fault::RefusedByUs(why)) = ours.received(2, hello, 0) else { panic!("two are not one") };
    assert!(why.contains("agent 1") && why.contains("start 5") && why.contains("start 6"), "{why}");
    assert_eq!(ours.neighbour_statuses()[0].refusal, Some(why));
    assert!(ours.is_in_use(1));
}
