//! A page behind a token, which shows what changes: at `/TOKEN/`, and nothing at any other path.
//!
//! The page polls the server once a second, as the live view of a run does. The server is read-only.

use std::hint::black_box;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use super::http::{Answer, Server};
use super::is_allowed_host;
use crate::error::LabError;
use crate::report::lasting_page;

/// What a page shows at one moment.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The title of the page.
    pub title: String,
    /// What it says beside its name.
    pub status: String,
    /// Its body.
    pub html: String,
}

/// A page that is served until this is dropped.
pub struct GuardedPage {
    address: SocketAddr,
    _server: Server,
}

impl GuardedPage {
    /// Serves what `look` returns to those who know the token.
    pub fn start(
        listener: TcpListener,
        token: String,
        look: impl Fn() -> Look + Send + Sync + 'static,
    ) -> Result<Self, LabError> {
        let failed = || LabError::io(Path::new("the page of the network"), "serve");
        let address = listener.local_addr().map_err(failed())?;
        let answer = move |request: &Request<Incoming>| answer(request, address, &token, &look);
        let server = Server::start(listener, answer).map_err(failed())?;
        Ok(Self { address, _server: server })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn answer(request: &Request<Incoming>, address: SocketAddr, token: &str, look: &dyn Fn() -> Look) -> Answer {
    let text = |status, body: &str| Answer { status, kind: "text/plain", body: body.to_owned() };
    if !is_allowed_host(request, address) {
        return text(StatusCode::FORBIDDEN, "forbidden: requests must be addressed to localhost\n");
    }
    let path = request.uri().path().trim_start_matches('/');
    let Some((_, page)) = path.split_once('/').filter(|(given, _)| is_same(given, token)) else {
        return text(
            StatusCode::FORBIDDEN,
            "forbidden: the address of this page has a token; mile watch FOLDER --page prints it\n",
        );
    };
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n");
    }
    let status = StatusCode::OK;
    match page {
        "" => Answer { status, kind: "text/html", body: lasting_page(&look().title) },
        "state" => {
            let known = request.uri().query().and_then(|query| query.strip_prefix("version="));
            Answer { status, kind: "application/json", body: state(&look(), known.unwrap_or_default()) }
        }
        _ => text(StatusCode::NOT_FOUND, "not found; there is one page\n"),
    }
}

fn state(look: &Look, known: &str) -> String {
    let version = format!("{:08x}", crc32c::crc32c(look.html.as_bytes()));
    if known == version {
        return json!({ "version": version, "over": false, "status": look.status }).to_string();
    }
    json!({ "version": version, "over": false, "status": look.status, "html": look.html }).to_string()
}

/// Whether two texts are equal, in a time that depends on their lengths only.
fn is_same(given: &str, token: &str) -> bool {
    let (given, token) = (given.as_bytes(), token.as_bytes());
    let differs = given.iter().zip(token).fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
    given.len() == token.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn only_the_same_text_is_the_same() {
        assert!(is_same("0123456789abcdef", "0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdef0", "1123456789abcdef", "0123456789abcdee"] {
            assert!(!is_same(other, "0123456789abcdef"), "{other}");
        }
    }

    #[test]
    fn the_page_is_served_to_those_who_know_the_token_and_to_nobody_else() {
        let look =
            || Look { title: "a <run>".into(), status: "3 agents up".into(), html: "<p>all</p>".into() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let page = GuardedPage::start(listener, "sesame-0123456789".into(), look).unwrap();
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(page.address()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let get = |path: &str, host: &str| ask(&format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n"));
        let here = get("/sesame-0123456789/", "localhost");
        assert!(here.contains("200 OK") && here.contains("a &lt;run&gt;"), "{here}");
        let state = get("/sesame-0123456789/state?version=", "127.0.0.1");
        assert!(state.contains("3 agents up") && state.contains("<p>all</p>"), "{state}");
        let version = state.split("\"version\":\"").nth(1).unwrap().split('"').next().unwrap();
        let same = get(&format!("/sesame-0123456789/state?version={version}"), "127.0.0.1");
        assert!(same.contains("3 agents up") && !same.contains("<p>all</p>"), "{same}");
        for path in
            ["/", "/state", "/sesame-0123456788/", "/sesame-0123456789", "//", "/x/sesame-0123456789/"]
        {
            let refused = get(path, "localhost");
            assert!(refused.contains("403") && !refused.contains("all</p>"), "{path}: {refused}");
        }
        assert!(get("/sesame-0123456789/", "attacker.example").contains("403"));
        assert!(get("/sesame-0123456789/key", "localhost").contains("404"));
        let post = "POST /sesame-0123456789/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert!(ask(post).contains("405"));
    }
}
