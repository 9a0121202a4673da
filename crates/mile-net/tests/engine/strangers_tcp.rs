//! By TCP: keys that are not listed, listed keys that misbehave, connections that are not TLS, and how connections end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mile::graph::Topology;
use mile::methods::Mile;
use mile_net::agent::work;
use mile_net::engine::{NetworkEngine, Transport, tls_client};
use mile_net::frame::{HEAD, Head, Kind};
use mile_net::keys::{PublicKey, SecretKey};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::lab::Lab;
use crate::strangers::{LONG, greeting, nonsense, runtime};

type Tls = TlsStream<TcpStream>;

/// The kinds of frames that only this transport has.
const ALIVE: u8 = 254;
const CLOSE: u8 = 255;

async fn connect_as(config: Arc<ClientConfig>, at: SocketAddr) -> std::io::Result<Tls> {
    let stream = TcpStream::connect(at).await?;
    TlsConnector::from(config).connect(ServerName::IpAddress(at.ip().into()), stream).await
}

async fn connect(key: &SecretKey, to: PublicKey, at: SocketAddr) -> Tls {
    let config = tls_client(key, to).unwrap();
    timeout(LONG, connect_as(config, at)).await.expect("in time").unwrap()
}

/// What is received from an end that closes silently.
const SILENCE: &str = "nothing";

/// The last word of the other end.
async fn last_word(stream: &mut Tls) -> String {
    let heard = async {
        let mut head = [0; HEAD];
        while stream.read_exact(&mut head).await.is_ok() {
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let mut payload = vec![0; length];
            if stream.read_exact(&mut payload).await.is_err() {
                break;
            }
            if head[0] == CLOSE {
                return String::from_utf8(payload).unwrap();
            }
        }
        SILENCE.to_owned()
    };
    timeout(LONG, heard).await.expect("an answer")
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs agent 0, whose engine is given, and agent 1 to the end.
fn run_to_the_end(lab: &Lab, mut engine: NetworkEngine<f32>, from: mile_net::agent::StartFrom<f32>) {
    let method = Mile::new(2, 0.2).unwrap();
    let states = std::thread::scope(|scope| {
        let other = scope.spawn(|| lab.agent(1, &method, 8).0);
        let state = work(&lab.job(0, &method, 8), from, &mut engine).unwrap();
        engine.leave().unwrap();
        [state, other.join().unwrap()]
    });
    lab.check(&method, 8, &states);
}

#[test]
fn a_stranger_is_told_so_and_has_no_effect() {
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let (engine, from) = lab.start(0, lab.settings(0));
    let told = runtime().block_on(async {
        let mut stream = connect(&SecretKey::generate(), lab.keys[0].public(), lab.addresses[0]).await;
        last_word(&mut stream).await
    });
    assert_ne!(told, SILENCE);
    assert_eq!(engine.status().refused.strangers, 1);
    run_to_the_end(&lab, engine, from);
}

#[test]
fn a_listed_neighbour_that_talks_nonsense_is_told_why_and_the_run_goes_on() {
    let lab = Lab::new(Topology::Path, 3, 100).over(Transport::Tcp);
    let method = Mile::new(2, 0.2).unwrap();
    let (mut engine, from) = lab.start(1, lab.settings(1));
    let cases = nonsense(&lab);
    let count = cases.len() as u64;
    runtime().block_on(async {
        for words in cases {
            let mut stream = connect(&lab.keys[2], lab.keys[1].public(), lab.addresses[1]).await;
            for word in words {
                stream.write_all(&word).await.unwrap();
            }
            stream.flush().await.unwrap();
            assert_ne!(last_word(&mut stream).await, SILENCE);
        }
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

/// A client that has no key to show.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[tokio_rustls::rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn without_a_key_with_another_protocol_and_without_tls_there_is_no_link() {
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let (engine, from) = lab.start(0, lab.settings(0));
    let (to, at) = (lab.keys[0].public(), lab.addresses[0]);
    let base = tls_client(&lab.keys[1], to).unwrap();
    let changed = |change: &dyn Fn(&mut ClientConfig)| {
        let mut config = (*base).clone();
        change(&mut config);
        Arc::new(config)
    };
    let configs = [
        changed(&|config| config.client_auth_cert_resolver = Arc::new(Nobody)),
        changed(&|config| config.alpn_protocols = vec![b"http/1.1".to_vec()]),
        changed(&|config| config.alpn_protocols.clear()),
    ];
    runtime().block_on(async {
        for config in configs {
            // Such a client may think that the handshake is over before the other end has looked at it.
            if let Ok(mut stream) = connect_as(config, at).await {
                let _ = stream.write_all(&greeting(&lab, 1, 0)).await;
                let mut answer = Vec::new();
                let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the end");
                assert!(answer.is_empty(), "{answer:?}");
            }
        }
        for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4000], &[0x16, 3, 1, 0xff, 0xff]] {
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(nonsense).await.unwrap();
            // Alerts of TLS may come, but nothing else, and then the end.
            let mut answer = Vec::new();
            let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the end");
            assert!(answer.len() < 20, "{answer:?}");
        }
    });
    wait_until("all are counted", || engine.status().refused.broken == 6);
    assert!(!engine.status().neighbours[0].linked);
    run_to_the_end(&lab, engine, from);
}

#[test]
fn silent_connections_are_few_and_end_and_the_run_continues() {
    let lab = Lab::new(Topology::Path, 2, 20_000).over(Transport::Tcp);
    let (engine, from) = lab.start(0, lab.settings(0));
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let before = threads();
    let silent: Vec<std::net::TcpStream> =
        (0..100).map(|_| std::net::TcpStream::connect(lab.addresses[0]).unwrap()).collect();
    wait_until("most are turned away", || engine.status().refused.flooded >= 60);
    assert!(threads() < before + 50, "no thread for each of them");
    run_to_the_end(&lab, engine, from);
    drop(silent);
}

/// Opens connections from an address of this machine, as fast as they are accepted, and never says a word, until it is told to stop.
fn flood(from: [u8; 4], at: SocketAddr, stop: &AtomicBool) {
    let mut open: VecDeque<std::net::TcpStream> = VecDeque::new();
    while !stop.load(Relaxed) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        if socket.connect(&at.into()).is_ok() {
            open.push_back(socket.into());
        }
        if open.len() > 400 {
            open.pop_front();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn half_open_connections_from_several_addresses_do_not_keep_out_a_neighbour_without_an_address() {
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let mut settings = lab.settings(0);
    settings.neighbours.values_mut().for_each(|peer| peer.addresses.clear());
    let (engine, from) = lab.start(0, settings);
    let (stop, at) = (AtomicBool::new(false), lab.addresses[0]);
    std::thread::scope(|scope| {
        for host in 2..14 {
            let stop = &stop;
            scope.spawn(move || flood([127, 0, 0, host], at, stop));
        }
        // More than there are places for: the flood goes on while the neighbour comes.
        wait_until("handshakes are ended to make room", || engine.status().refused.flooded > 400);
        run_to_the_end(&lab, engine, from);
        stop.store(true, Relaxed);
    });
}

/// The engine of agent 1, and a connection to it by agent 0, whose greeting it has accepted. The end with the larger number waits some
/// seconds before it dials again.
fn greeted(lab: &Lab) -> (NetworkEngine<f32>, Tls, tokio::runtime::Runtime) {
    let (engine, _) = lab.start(1, lab.settings(1));
    let runtime = runtime();
    let stream = runtime.block_on(async {
        let mut stream = connect(&lab.keys[0], lab.keys[1].public(), lab.addresses[1]).await;
        stream.write_all(&greeting(lab, 0, 1)).await.unwrap();
        stream.flush().await.unwrap();
        stream
    });
    wait_until("they are linked", || engine.status().neighbours[0].linked);
    (engine, stream, runtime)
}

/// Why the link of an engine has ended, once it has.
fn why(engine: &NetworkEngine<f32>) -> String {
    wait_until("the link has ended", || !engine.status().neighbours[0].linked);
    engine.status().neighbours[0].trouble.clone().expect("a reason")
}

#[test]
fn a_connection_that_is_dropped_and_one_that_is_closed_are_told_apart() {
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let (engine, stream, _runtime) = greeted(&lab);
    drop(stream);
    let said = why(&engine);
    let dropped = said;
    drop(engine);
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let (engine, mut stream, runtime) = greeted(&lab);
    let rest = runtime.block_on(async {
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        timeout(LONG, stream.read_to_end(&mut rest)).await.expect("the end").map(|_| rest)
    });
    // The other end closes cleanly, too.
    assert!(rest.is_ok(), "{rest:?}");
    assert_ne!(why(&engine), dropped);
}

#[test]
fn a_silent_neighbour_is_lost_and_one_that_shows_life_is_not() {
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let (engine, mut stream, runtime) = greeted(&lab);
    let mut alive = [0; HEAD];
    alive[0] = ALIVE;
    runtime.block_on(async {
        // For longer than a silent link lasts, and until the other end has shown life three times.
        let begun = Instant::now();
        let mut heard = 0;
        while heard < 3 || begun.elapsed() < Duration::from_secs(4) {
            assert!(begun.elapsed() < LONG, "{heard} signs of life");
            stream.write_all(&alive).await.unwrap();
            stream.flush().await.unwrap();
            let mut bytes = [0; 4096];
            if let Ok(read) = timeout(Duration::from_millis(400), stream.read(&mut bytes)).await {
                let signs = bytes[..read.unwrap()].chunks(HEAD).filter(|head| head[0] == ALIVE).count();
                heard += signs;
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(engine.status().neighbours[0].linked, "{:?}", engine.status());
    // Without another sign the link ends, although the connection is there.
    assert!(why(&engine).contains("2.5 s"), "{}", why(&engine));
    drop(stream);
}

#[test]
fn a_frame_that_closes_is_checked_before_it_is_read() {
    let lab = Lab::new(Topology::Path, 2, 100).over(Transport::Tcp);
    let (engine, mut stream, runtime) = greeted(&lab);
    let mut close = Head { kind: Kind::Refuse, length: u32::MAX as usize, a: 9, b: 0 }.encode();
    close[0] = CLOSE;
    runtime.block_on(async {
        stream.write_all(&close).await.unwrap();
        stream.write_all(&[b'x'; 70_000]).await.unwrap();
        stream.flush().await.unwrap();
    });
    let said = why(&engine);
    assert!(said.contains("code 9"), "{said}");
}
