//! The page of a network in a real browser, narrow and wide, light and dark.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mile::graph::Topology;
use mile_lab::serve::{GuardedPage, Look};
use mile_lab::watch::{AgentState, AgentView, EdgeView, NetworkView, Said};
use serde_json::Value;

use crate::browser::{browser, close, console, open};

const CHECK: &str = include_str!("browser_network.html");
const TOKEN: &str = "0123456789abcdef";
const STATES: [AgentState; 7] = [
    AgentState::Computing,
    AgentState::Waiting,
    AgentState::Leaving,
    AgentState::Finished,
    AgentState::Diverged,
    AgentState::Down,
    AgentState::Silent,
];

/// Fourteen agents on a ring, two in each state.
fn view() -> NetworkView {
    let agent = |id: usize| AgentView {
        id,
        state: STATES[id % 7],
        said: (id % 7 != 6).then(|| Said {
            age_s: 0.4,
            round: 123_456 + id as u64,
            starts: 1,
            own_loss: Some(1.25e-7),
            bytes: (987_654_321, 987_654_321),
            waits_for: if id % 7 == 1 { vec![id + 1, 0, 5] } else { Vec::new() },
            for_s: 8.0,
        }),
    };
    let edge = |i: usize| EdgeView {
        ends: (i.min((i + 1) % 14), i.max((i + 1) % 14)),
        linked: [Some(true), Some(false), None][i % 3],
    };
    NetworkView {
        run: "a network of agents with a long name".into(),
        agents: (0..14).map(agent).collect(),
        edges: (0..14).map(edge).collect(),
        topology: Some(Topology::Ring),
        rounds: Some(200_000),
        estimate: Some((0.25, 1e-9)),
        notes: vec![
            "agent 0, edge to agent 13: no answer from a-machine-with-a-long-name.example.org:7100".into(),
        ],
    }
}

/// A request to the page, without its head.
fn ask(page: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(page).unwrap();
    write!(stream, "GET /{TOKEN}/{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Serves the page that looks, and below `/page/` what it looks at, until it says what it found.
fn serve_until_found(listener: &TcpListener, page: SocketAddr) -> Value {
    listener.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    loop {
        let Ok((mut stream, _)) = listener.accept() else {
            assert!(begun.elapsed() < Duration::from_secs(60), "the browser did not answer");
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let (mut request, mut part) = (String::new(), [0; 4096]);
        let whole = |request: &str| match request.split_once("\r\n\r\n") {
            Some((head, _)) if head.starts_with("GET") => true,
            Some((_, body)) => body.ends_with(']'),
            None => false,
        };
        while !whole(&request) {
            match stream.read(&mut part) {
                Ok(count) if count > 0 => request += &String::from_utf8_lossy(&part[..count]),
                _ => break,
            }
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let body = match path.strip_prefix("/page/") {
            Some(rest) if rest.starts_with("state") => ask(page, rest),
            Some(_) => ask(page, ""),
            None => CHECK.to_owned(),
        };
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        if path == "/found" {
            return serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        }
    }
}

#[test]
#[ignore = "needs a browser: install chromium or set MILE_BROWSER, and add --include-ignored"]
fn the_page_of_a_network_can_be_read_on_a_phone_and_on_a_desk_in_light_and_dark() {
    let browser = browser();
    let look =
        || Look { title: "a network".into(), status: "live, seen by agent 3".into(), html: view().html() };
    let page = GuardedPage::start(TcpListener::bind("127.0.0.1:0").unwrap(), TOKEN.into(), look).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let child = open(&browser, &folder.path().join("profile"), &url, &["--remote-debugging-port=0"]);
    let found = serve_until_found(&listener, page.address());
    let (_, stderr) = close(child);
    assert!(console(&stderr).is_empty(), "{:?}", console(&stderr));
    assert_eq!(found.as_array().map(Vec::len), Some(3), "{found}");
    for look in found.as_array().unwrap() {
        assert_eq!(look["overflow"], 0, "the page does not scroll sideways: {look}");
        assert_eq!(look["agents"], 14, "{look}");
        assert_eq!(look["status"], "live, seen by agent 3");
        assert!(look["graph"].as_f64().unwrap() > 300.0, "{look}");
        for theme in ["light", "dark"] {
            let least = |what: &str| look[theme][what].as_f64().unwrap();
            assert!(least("numbers") > 3.0, "numbers can be read, {theme}: {look}");
            assert!(least("nodes") > 3.0 && least("edges") > 2.5, "all can be seen, {theme}: {look}");
        }
    }
}
