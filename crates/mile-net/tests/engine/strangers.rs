//! By QUIC: keys that are not listed, listed keys that misbehave, and floods: refused, without effect on the run.

use std::net::SocketAddr;
use std::time::Duration;

use iroh::endpoint::{Connection, ConnectionError, presets};
use iroh::{Endpoint, EndpointAddr, PublicKey, SecretKey};
use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::work;
use mile_net::engine::{ALPN, quic_settings};
use mile_net::frame::{HEAD, Head, Kind, control};
use mile_net::handshake::{Hello, Mark, VERSION};

use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::lab::{HANG, Lab};

pub(crate) const LONG: Duration = HANG;

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn endpoint(key: SecretKey) -> Endpoint {
    Endpoint::builder(presets::Minimal)
        .secret_key(key)
        .transport_config(quic_settings())
        .clear_ip_transports()
        .bind_addr("127.0.0.1:0")
        .unwrap()
        .bind()
        .await
        .unwrap()
}

async fn connect(from: &Endpoint, key: PublicKey, at: SocketAddr) -> Result<Connection, String> {
    let address = EndpointAddr::new(key).with_ip_addr(at);
    from.connect(address, ALPN).await.map_err(|error| format!("{error:?}"))
}

fn reason(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(close) => String::from_utf8_lossy(&close.reason).into_owned(),
        other => other.to_string(),
    }
}

/// Says something to an agent and listens to what it says last.
async fn say(from: &Endpoint, key: PublicKey, at: SocketAddr, words: &[Vec<u8>]) -> String {
    let connection = timeout(LONG, connect(from, key, at)).await.unwrap().unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    for word in words {
        send.write_all(word).await.unwrap();
    }
    let heard = async {
        let mut head = [0; HEAD];
        while receive.read_exact(&mut head).await.is_ok() {
            let Ok(head) = Head::decode::<f32>(&head) else { break };
            let mut payload = vec![0; head.length];
            if receive.read_exact(&mut payload).await.is_err() {
                break;
            }
            if head.kind == Kind::Refuse {
                return String::from_utf8(payload).unwrap();
            }
        }
        reason(&connection.closed().await)
    };
    timeout(LONG, heard).await.expect("an answer")
}

/// The first frame of a neighbour that keeps to the protocol.
pub(crate) fn greeting(lab: &Lab, from: usize, to: usize) -> Vec<u8> {
    let hello = Hello {
        version: VERSION,
        from,
        to,
        incarnation: 0,
        terms: lab.terms.clone(),
        weight: lab.network.mixing().weight(from, to),
        skips: false,
        checkpoint_every: 1,
        outbox: 64,
        durable: Mark::default(),
        exchange: 0,
        offset: 0,
    };
    control(Kind::Hello, 0, 0, &serde_json::to_vec(&hello).unwrap())
}

/// What agent 2 of three on a path may say to agent 1, and what it is told.
pub(crate) fn nonsense(lab: &Lab) -> Vec<Vec<Vec<u8>>> {
    let greeting = greeting(lab, 2, 1);
    let head = |kind, length, a, b| Head { kind, length, a, b }.encode().to_vec();
    vec![
        vec![vec![99; 24]],
        vec![vec![1, 1, 0, 0, 0, 0, 0, 0], vec![0; 16]],
        vec![head(Kind::Hello, 1 << 30, 0, 0)],
        vec![head(Kind::Data, 400, 0, 0), vec![0; 400]],
        vec![control(Kind::Hello, 0, 0, b"{\"version\": 1")],
        vec![greeting.clone(), greeting.clone()],
        vec![greeting.clone(), head(Kind::Data, u32::MAX as usize, 0, 0)],
        vec![greeting.clone(), head(Kind::Data, 401, 0, 0)],
        vec![greeting.clone(), head(Kind::Data, 400, 0, 3), vec![0; 400]],
        vec![greeting.clone(), control(Kind::Decide, 0, 5, &[0])],
    ]
}

#[test]
fn a_stranger_is_told_so_and_has_no_effect() {
    let lab = Lab::new(Topology::Path, 2, 100);
    let method = Mile::new(2, 0.2).unwrap();
    let (mut engine, from) = lab.start(0, lab.settings(0));
    let told = runtime().block_on(async {
        let stranger = endpoint(SecretKey::generate()).await;
        match connect(&stranger, lab.keys[0].public(), lab.addresses[0]).await {
            Ok(connection) => reason(&timeout(LONG, connection.closed()).await.unwrap()),
            Err(error) => error,
        }
    });
    assert!(!told.is_empty());
    assert_eq!(engine.status().refused.strangers, 1);
    let states = std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.agent(1, &method, 8).0);
        let state = work(&lab.job(0, &method, 8), from, &mut engine).unwrap();
        engine.leave().unwrap();
        [state, other.join().unwrap()]
    });
    lab.check(&method, 8, &states);
}

#[test]
fn a_listed_neighbour_that_talks_nonsense_is_told_why_and_the_run_goes_on() {
    let lab = Lab::new(Topology::Path, 3, 100);
    let method = Mile::new(2, 0.2).unwrap();
    let (mut engine, from) = lab.start(1, lab.settings(1));
    let cases = nonsense(&lab);
    let count = cases.len() as u64;
    runtime().block_on(async {
        let neighbour = endpoint(lab.keys[2].clone()).await;
        for words in cases {
            let answer = say(&neighbour, lab.keys[1].public(), lab.addresses[1], &words).await;
            assert!(!answer.is_empty());
        }
        neighbour.close().await;
    });
    let status = engine.status();
    assert_eq!(status.refused.faults, count, "{status:?}");
    assert!(status.neighbours[1].refusal.is_some(), "{status:?}");
    let states = std::thread::scope(|scope| {
        let (lab, method) = (&lab, &method);
        let [zero, two] = [0, 2].map(|agent| scope.spawn(move || lab.agent(agent, method, 8).0));
        let state = work(&lab.job(1, method, 8), from, &mut engine).unwrap();
        assert_eq!(engine.status().neighbours[1].refusal, None);
        engine.leave().unwrap();
        [zero.join().unwrap(), state, two.join().unwrap()]
    });
    lab.check(&method, 8, &states);
}

#[test]
fn a_neighbour_that_claims_an_absurd_exchange_is_shown_as_far_ahead() {
    let lab = Lab::new(Topology::Path, 2, 100);
    let (engine, _) = lab.start(0, lab.settings(0));
    let claimed = 1 << 63;
    runtime().block_on(async {
        let neighbour = endpoint(lab.keys[1].clone()).await;
        let connection = connect(&neighbour, lab.keys[0].public(), lab.addresses[0]).await.unwrap();
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(&greeting(&lab, 1, 0)).await.unwrap();
        let head = Head { kind: Kind::Data, length: 400, a: claimed, b: 0 };
        send.write_all(&[&head.encode()[..], &[0; 400]].concat()).await.unwrap();
        let shown = async {
            while engine.status().neighbours[0].exchange != claimed {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, shown).await.expect("its exchange is shown");
        assert_eq!(engine.status().neighbours[0].lag, -i64::MAX);
    });
}

#[test]
fn a_flood_of_connections_does_not_stop_the_run() {
    let lab = Lab::new(Topology::Path, 2, 20_000);
    let method = Mile::new(2, 0.2).unwrap();
    let (mut engine, from) = lab.start(0, lab.settings(0));
    let flood = runtime();
    let (at, key) = (lab.addresses[0], lab.keys[0].public());
    flood.block_on(async {
        let strangers = [endpoint(SecretKey::generate()).await, endpoint(SecretKey::generate()).await];
        for k in 0..200 {
            let stranger = strangers[k % 2].clone();
            tokio::spawn(async move {
                if let Ok(connection) = connect(&stranger, key, at).await {
                    connection.closed().await;
                }
            });
        }
        // A listed one that opens links and says nothing: only a limited number are kept.
        let listed = endpoint(lab.keys[1].clone()).await;
        for _ in 0..20 {
            let listed = listed.clone();
            tokio::spawn(async move {
                let Ok(connection) = connect(&listed, key, at).await else { return };
                let Ok((mut send, _receive)) = connection.open_bi().await else { return };
                let _ = send.write_all(&[1]).await;
                connection.closed().await;
            });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    });
    let states = std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.agent(1, &method, 10).0);
        let state = work(&lab.job(0, &method, 10), from, &mut engine).unwrap();
        let refused = engine.status().refused;
        assert!(refused.strangers + refused.flooded > 0, "{refused:?}");
        flood.shutdown_background();
        engine.leave().unwrap();
        [state, other.join().unwrap()]
    });
    lab.check(&method, 10, &states);
}
