//! An agent between two neighbours that send anything: it does not panic, uses no more memory than allowed, and adds
//! up what was sent.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mile::membership::Edge;
use mile_net::frame::{Head, Kind};
use mile_net::handshake::{Hello, Mark, Terms, VERSION};
use mile_net::outbox::{Message, MessageForm};
use mile_net::protocol::{Arrival, Limits, Memory, MissingPolicy, Protocol, Setup};

const DIM: usize = 3;

#[derive(Arbitrary, Debug)]
enum Event {
    Open { link: u8, upper: bool, dialled: bool },
    Close { link: u8 },
    Hello { link: u8, incarnation: u8, exchange: u8, offset: u8, durable: u8, honest: bool },
    Data { link: u8, exchange: u8, offset: u8, elements: u8 },
    Gossip { link: u8, exchange: u64, numbers: u8 },
    Have { link: u8, exchange: u64, round: u64 },
    Decide { link: u8, from: u64, to: u64, used: bool },
    Refuse { link: u8, text: Vec<u8> },
    Verdict { link: u8, exchange: u64, payload: Vec<u8> },
    Write { link: u8 },
    Begin { up: u8, gossip: bool },
    Finish,
    Durable,
    Tick { by: u16 },
    Save,
}

fn terms() -> Terms {
    Terms { run: "fuzz".into(), dim: DIM, precision: "f32".into(), facts: BTreeMap::new() }
}

fn control(session: &mut Protocol<f32>, link: u8, kind: Kind, (a, b): (u64, u64), payload: Vec<u8>, now: u64) {
    let head = Head { kind, length: payload.len(), a, b };
    if Head::decode::<f32>(&head.encode()).is_ok()
        && session.received(link.into(), Arrival::Control(head, payload), now).is_err()
    {
        session.closed(link.into(), now);
    }
}

fuzz_target!(|input: (bool, Vec<Event>)| {
    let (skips, events) = input;
    let setup = Setup {
        me: 1,
        incarnation: 1,
        terms: terms(),
        neighbours: BTreeMap::from([(0, Edge::lasting(0.25)), (2, Edge::lasting(0.5))]),
        on_missing: if skips { MissingPolicy::Skip { after: 100 } } else { MissingPolicy::Wait },
        limits: Limits::of(1),
        memory: Memory::default(),
    };
    let mut session: Protocol<f32> = Protocol::new(setup, 0);
    let (mut now, mut next, mut busy) = (0, 0, false);
    let mut neighbours: BTreeMap<u64, usize> = BTreeMap::new();
    for event in events {
        match event {
            Event::Open { link, upper, dialled } if !neighbours.contains_key(&link.into()) => {
                let id = if upper { 2 } else { 0 };
                neighbours.insert(link.into(), id);
                session.opened(link.into(), id, dialled);
            }
            Event::Open { .. } => {}
            Event::Close { link } => session.closed(link.into(), now),
            Event::Hello { link, incarnation, exchange, offset, durable, honest } => {
                let from = neighbours.get(&link.into()).copied().unwrap_or(0);
                let hello = Hello {
                    version: VERSION,
                    from,
                    to: usize::from(honest),
                    incarnation: incarnation.into(),
                    terms: terms(),
                    weight: if from == 0 { 0.25 } else { 0.5 },
                    skips,
                    checkpoint_every: 1,
                    outbox: Limits::of(1).outbox,
                    durable: Mark { exchange: durable.into(), round: durable.into() },
                    exchange: exchange.into(),
                    offset: offset.into(),
                };
                let text = serde_json::to_vec(&hello).unwrap();
                control(&mut session, link, Kind::Hello, (0, 0), text, now);
            }
            Event::Data { link, exchange, offset, elements } => {
                if session.may_read(link.into()) {
                    let piece = vec![1.0; elements.max(1).into()];
                    let (exchange, offset) = (exchange.into(), offset.into());
                    let arrival = Arrival::Data { exchange, offset, piece };
                    if session.received(link.into(), arrival, now).is_err() {
                        session.closed(link.into(), now);
                    }
                }
            }
            Event::Gossip { link, exchange, numbers } => {
                let numbers = vec![0; 8 * usize::from(numbers)];
                control(&mut session, link, Kind::Gossip, (exchange, 0), numbers, now);
            }
            Event::Have { link, exchange, round } => {
                control(&mut session, link, Kind::Have, (exchange, round), Vec::new(), now);
            }
            Event::Decide { link, from, to, used } => {
                control(&mut session, link, Kind::Decide, (from, to), vec![used.into()], now);
            }
            Event::Refuse { link, text } => {
                control(&mut session, link, Kind::Refuse, (0, 0), text, now);
            }
            Event::Verdict { link, exchange, payload } => {
                control(&mut session, link, Kind::Verdict, (exchange, 0), payload, now);
            }
            Event::Write { link } => {
                let _ = session.next_frame(link.into());
            }
            Event::Begin { up, gossip } if !busy => {
                let both = [(0, 0.25), (2, 0.5)].into_iter();
                let up: Vec<(usize, f64)> = both.filter(|(id, _)| up >> id & 1 == 1).collect();
                let mark = Mark { exchange: next, round: next };
                let gossip = if gossip { vec![0.5; 2] } else { Vec::new() };
                let message = Message { mark, vectors: vec![0.0; DIM], form: MessageForm::Whole, gossip };
                session.begin(message, &up, vec![vec![f32::NAN; DIM]], now);
                busy = true;
                next += 1;
            }
            Event::Begin { .. } => {}
            Event::Finish => {
                if let Some(finished) = session.finish() {
                    busy = false;
                    // Every element sent here is one, every own element zero: the sum is that of the weights.
                    let weight: f32 = finished.used.iter().map(|id| if *id == 0 { 0.25 } else { 0.5 }).sum();
                    assert_eq!(finished.sums, [[weight; DIM]]);
                }
            }
            Event::Durable if !busy => session.durable(Mark { exchange: next, round: next }),
            Event::Durable => {}
            Event::Tick { by } => {
                now += u64::from(by);
                session.tick(now);
            }
            Event::Save => {
                if session.unsaved_decisions().is_some() {
                    session.decisions_saved();
                }
            }
        }
        for (link, _) in session.closing() {
            session.closed(link, now);
        }
        let _ = session.neighbour_statuses();
        let memory = session.memory(Mark::default());
        assert!(memory.outbox.len() as u64 <= next);
    }
});
