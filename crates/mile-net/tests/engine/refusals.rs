//! Two agents that do not agree on what the run is refuse each other, and both say why.

use std::time::{Duration, Instant};

use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::{Failure, Host, RoundEnd, StartFrom, work};
use mile_net::engine::{NetworkEngine, NetworkEngineError, Settings, Transport};
use mile_net::handshake::{Mark, Terms};
use mile_net::outbox::Message;
use mile_net::protocol::{Finished, Memory, MissingPolicy};

use crate::lab::{BOTH, HANG, Lab, cause};

/// What both ends show after a while, when agent 1 is started with something changed.
fn refusals(by: Transport, change: impl FnOnce(&mut Settings, &mut Terms)) -> [String; 2] {
    let lab = Lab::new(Topology::Path, 2, 30).over(by);
    let (mut settings, mut terms) = (lab.settings(1), lab.terms.clone());
    change(&mut settings, &mut terms);
    let engines = [
        NetworkEngine::start(
            lab.settings(0),
            lab.open(0).unwrap(),
            lab.terms.clone(),
            Memory::<f32>::default(),
        )
        .unwrap(),
        NetworkEngine::start(settings, lab.open(1).unwrap(), terms, Memory::<f32>::default()).unwrap(),
    ];
    let begun = Instant::now();
    loop {
        let refusal = |engine: &NetworkEngine<f32>| engine.status().neighbours[0].refusal.clone();
        if let (Some(here), Some(there)) = (refusal(&engines[0]), refusal(&engines[1])) {
            assert!(engines.iter().all(|engine| !engine.status().neighbours[0].linked));
            return [here, there];
        }
        assert!(begun.elapsed() < HANG, "nobody was refused");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn both_name(texts: &[String; 2], what: &[&str]) {
    for text in texts {
        assert!(what.iter().all(|what| text.contains(what)), "{text} does not name {what:?}");
    }
}

#[test]
fn another_step_size_is_refused_by_name_at_both_ends() {
    for by in BOTH {
        let texts = refusals(by, |_, terms| {
            terms.facts.insert("step_size".into(), "0.2".into());
        });
        both_name(&texts, &["step_size", "0.1", "0.2"]);
    }
}

#[test]
fn another_run_another_dimension_and_asymmetric_weights_are_refused() {
    both_name(&refusals(Transport::Quic, |_, terms| terms.run = "other".into()), &["lab", "other"]);
    both_name(&refusals(Transport::Tcp, |_, terms| terms.dim = 31), &["30", "31"]);
    let halve = |settings: &mut Settings, _: &mut Terms| {
        settings.neighbours.values_mut().for_each(|peer| peer.edge.weight /= 2.0);
    };
    both_name(&refusals(Transport::Quic, halve), &["0.5", "0.25"]);
    let skip =
        |settings: &mut Settings, _: &mut Terms| settings.on_missing = MissingPolicy::Skip { after: 1000 };
    both_name(&refusals(Transport::Tcp, skip), &["on_missing", "skip-edge"]);
}

#[test]
fn a_listed_key_in_the_wrong_role_is_refused() {
    for by in BOTH {
        both_name(&refusals(by, |settings, _| settings.me = 2), &["agent 2"]);
    }
}

#[test]
fn settings_that_cannot_be_meant_are_refused_at_the_start() {
    let lab = Lab::new(Topology::Ring, 3, 5);
    let start = |change: &dyn Fn(&mut Settings)| {
        let mut settings = lab.settings(0);
        change(&mut settings);
        let started =
            NetworkEngine::start(settings, lab.open(0).unwrap(), lab.terms.clone(), Memory::<f32>::default());
        started.err().expect("settings that are refused")
    };
    let own = lab.keys[0].public();
    let contradicts = |error: NetworkEngineError| match error {
        NetworkEngineError::Settings(text) => text,
        other => panic!("{other}"),
    };
    contradicts(start(&|settings| settings.me = 1));
    contradicts(start(&|settings| settings.neighbours.get_mut(&1).unwrap().key = own));
    let same = |settings: &mut Settings| {
        let key = settings.neighbours[&1].key;
        settings.neighbours.get_mut(&2).unwrap().key = key;
    };
    contradicts(start(&same));
    assert!(contradicts(start(&|settings| settings.relay = Some("not a url".into()))).contains("relay"));
    let relayed = |settings: &mut Settings| {
        (settings.transport, settings.relay) = (Transport::Tcp, Some("https://relay.example.org".into()));
    };
    let text = contradicts(start(&relayed));
    assert!(text.contains("agent.relay") && text.contains("agent.transport"), "{text}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start(&|settings| {
        (settings.transport, settings.listen) = (Transport::Tcp, taken.local_addr().unwrap());
    });
    assert!(matches!(error, NetworkEngineError::Bind { .. }), "{error}");
    assert_eq!(error.address_error(), Some(std::io::ErrorKind::AddrInUse), "{error}");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = start(&|settings| settings.listen = taken.local_addr().unwrap());
    assert!(matches!(error, NetworkEngineError::Bind { .. }), "{error}");
    assert_eq!(error.address_error(), Some(std::io::ErrorKind::AddrInUse), "{error}");
}

#[test]
fn an_agent_with_the_wrong_settings_saves_nothing_and_continues_with_the_right_ones() {
    let lab = Lab::new(Topology::Path, 2, 30);
    let method = Mile::new(2, 0.2).unwrap();
    let mut wrong = lab.terms.clone();
    wrong.facts.insert("step_size".into(), "0.2".into());
    std::thread::scope(|scope| {
        let right = scope.spawn(|| lab.agent(0, &method, 5).0);
        let mut settings = lab.settings(1);
        settings.timeout = Some(Duration::from_millis(1500));
        let mut engine =
            NetworkEngine::start(settings, lab.open(1).unwrap(), wrong, Memory::default()).unwrap();
        let start = StartFrom::Point(vec![0.5; 30], Mark::default());
        let error = work(&lab.job(1, &method, 5), start, &mut engine).unwrap_err();
        let who = cause(&*error, |error| match error {
            NetworkEngineError::TimedOut { who, .. } => Some(who),
            _ => None,
        });
        assert!(who.is_some_and(|who| who[0].contains("step_size")), "{error}");
        drop(engine);
        let other = lab.agent(1, &method, 5).0;
        lab.check(&method, 5, &[right.join().unwrap(), other]);
    });
}

/// What agent 0 says about its link to agent 1, once it says something.
fn trouble(by: Transport, change: impl FnOnce(&mut Settings)) -> String {
    let lab = Lab::new(Topology::Path, 2, 30).over(by);
    let mut settings = lab.settings(0);
    change(&mut settings);
    let engine =
        NetworkEngine::start(settings, lab.open(0).unwrap(), lab.terms.clone(), Memory::<f32>::default())
            .unwrap();
    let begun = Instant::now();
    loop {
        if let Some(why) = engine.status().neighbours[0].trouble.clone() {
            return why;
        }
        assert!(begun.elapsed() < HANG, "nothing is said");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_reason_for_a_missing_link_is_reported() {
    let at = |address: String| {
        move |settings: &mut Settings| {
            settings.neighbours.values_mut().for_each(|peer| peer.addresses = vec![address.clone()]);
        }
    };
    for (by, packets) in [(Transport::Quic, "UDP"), (Transport::Tcp, "TCP")] {
        let said = trouble(by, |_| {});
        assert!(said.contains("127.0.0.1:") && said.contains(packets), "{said}");
        let said = trouble(by, at("no-such-host.invalid:7100".into()));
        assert!(said.contains("no-such-host.invalid:7100"), "{said}");
        // Sockets to which the system lets everybody talk, and nobody answers.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = if by == Transport::Quic { silent.local_addr() } else { listening.local_addr() };
        let said = trouble(by, at(address.unwrap().to_string()));
        assert!(said.contains("127.0.0.1:") && said.contains(packets), "{said}");
        let clear = |settings: &mut Settings| {
            settings.neighbours.values_mut().for_each(|peer| peer.addresses.clear())
        };
        assert!(!trouble(by, clear).is_empty());
    }
}

#[test]
fn an_agent_whose_neighbour_has_another_transport_is_told_which_key_to_look_at() {
    for (by, other) in [(Transport::Quic, Transport::Tcp), (Transport::Tcp, Transport::Quic)] {
        let lab = Lab::new(Topology::Path, 2, 30).over(other);
        let neighbour = NetworkEngine::start(
            lab.settings(1),
            lab.open(1).unwrap(),
            lab.terms.clone(),
            Memory::<f32>::default(),
        );
        let address = lab.addresses[1].to_string();
        let said = trouble(by, |settings| {
            settings.neighbours.values_mut().for_each(|peer| peer.addresses = vec![address.clone()]);
        });
        let name = if by == Transport::Quic { "agent.transport \"quic\"" } else { "agent.transport \"tcp\"" };
        assert!(said.contains(&address) && said.contains(name), "{said}");
        drop(neighbour);
    }
}

#[test]
fn a_stranger_at_a_neighbours_address_is_reported_as_such() {
    for by in BOTH {
        let lab = Lab::new(Topology::Path, 2, 30).over(by);
        let mut settings = lab.settings(1);
        settings.key = mile_net::keys::SecretKey::generate();
        let start = |agent: usize, settings: Settings| {
            NetworkEngine::start(
                settings,
                lab.open(agent).unwrap(),
                lab.terms.clone(),
                Memory::<f32>::default(),
            )
            .unwrap()
        };
        let engines = [start(0, lab.settings(0)), start(1, settings)];
        let begun = Instant::now();
        loop {
            let edge = engines[0].status().neighbours[0].clone();
            if edge.trouble.is_some_and(|why| why.contains("key")) {
                break;
            }
            assert!(begun.elapsed() < HANG, "{:?}", engines[0].status());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An agent whose messages are not what it computed.
struct Liar {
    engine: NetworkEngine<f32>,
    says: f32,
}

impl Host<f32> for Liar {
    fn buffer(&mut self) -> Vec<f32> {
        self.engine.buffer()
    }

    fn exchange(
        &mut self,
        mut message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        message.vectors[17] = self.says;
        self.engine.exchange(message, up, sums)
    }

    fn round_over(&mut self, end: &RoundEnd<'_, f32>) -> Result<(), Failure> {
        self.engine.round_over(end)
    }
}

#[test]
fn a_message_that_is_not_finite_or_far_off_is_refused_and_its_sender_named_at_both_ends() {
    for (by, says, named) in [(Transport::Tcp, f32::NAN, "NaN"), (Transport::Quic, 1e30, "1e30")] {
        let lab = Lab::new(Topology::Path, 2, 30).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        let impatient =
            |agent: usize| Settings { timeout: Some(Duration::from_secs(2)), ..lab.settings(agent) };
        let (mut honest, from) = lab.start(0, impatient(0));
        let (engine, other) = lab.start(1, impatient(1));
        let mut liar = Liar { engine, says };
        std::thread::scope(|scope| {
            let (lab, method) = (&lab, &method);
            let lies = scope.spawn(|| {
                let given_up = work(&lab.job(1, method, 5), other, &mut liar).is_err();
                (given_up, liar.engine.status().neighbours[0].clone())
            });
            let error = work(&lab.job(0, method, 5), from, &mut honest).unwrap_err();
            let who = cause(&*error, |error| match error {
                NetworkEngineError::TimedOut { round, who } => Some((*round, who.clone())),
                _ => None,
            });
            let (round, who) = who.unwrap_or_else(|| panic!("{error}"));
            assert!(round == 0 && who[0].contains("agent 1") && who[0].contains(named), "{who:?}");
            let status = honest.status();
            let refused = &status.neighbours[0];
            assert!(refused.refused_messages > 0, "{refused:?}");
            assert!(refused.refused_why.as_ref().is_some_and(|why| why.contains(named)), "{refused:?}");
            let metrics = status.prometheus();
            assert!(!metrics.contains("mile_refused_messages{agent=\"0\",neighbour=\"1\"} 0"), "{metrics}");
            assert_eq!(status.saved_round, None, "no checkpoint of what was refused");
            let (given_up, told) = lies.join().unwrap();
            assert!(given_up && told.refusal.is_some_and(|why| why.contains(named)));
        });
    }
}

/// An agent that writes no checkpoints, and so confirms nothing.
struct Forgetful(NetworkEngine<f32>);

impl Host<f32> for Forgetful {
    fn buffer(&mut self) -> Vec<f32> {
        self.0.buffer()
    }

    fn exchange(
        &mut self,
        message: Message<f32>,
        up: &[(usize, f64)],
        sums: Vec<Vec<f32>>,
    ) -> Result<Finished<f32>, Failure> {
        self.0.exchange(message, up, sums)
    }

    fn round_over(&mut self, _: &RoundEnd<'_, f32>) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn a_neighbour_that_never_confirms_is_waited_for_when_the_outbox_is_full_and_not_before() {
    for by in BOTH {
        let lab = Lab::new(Topology::Path, 2, 30).over(by);
        let method = Mile::new(2, 0.2).unwrap();
        let impatient =
            |agent: usize| Settings { timeout: Some(Duration::from_secs(2)), ..lab.settings(agent) };
        let (mut engine, from) = lab.start(0, impatient(0));
        let (other, start) = lab.start(1, impatient(1));
        let mut forgetful = Forgetful(other);
        std::thread::scope(|scope| {
            let (lab, method) = (&lab, &method);
            let neighbour =
                scope.spawn(move || work(&lab.job(1, method, 100), start, &mut forgetful).is_err());
            let error = work(&lab.job(0, method, 100), from, &mut engine).unwrap_err();
            let round = cause(&*error, |error| match error {
                NetworkEngineError::TimedOut { round, .. } => Some(*round),
                _ => None,
            });
            assert_eq!(round, Some(lab.settings(0).limits.outbox - 1), "{error}");
            assert!(neighbour.join().unwrap());
        });
    }
}
