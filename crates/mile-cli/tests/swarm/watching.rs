//! The whole network, as one agent sees it: in the terminal and on its page.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::common::{RunningCommand, TestFolder, text, wait_for};
use crate::manual::{agent, edit, emit};

const RING: &str = r#"
name = "a <ring>"
rounds = 40
eval_every = 4
[network]
agents = 6
[problem]
kind = "quadratic"
dim = 7
[agent]
transport = "tcp"
[[algorithm]]
name = "mile"
step_size = 0.2
"#;

/// Six agents on a ring, of which 1 and 2 are not started. Agent 4 serves its page.
fn with_a_third_down() -> (TestFolder, Vec<RunningCommand>, u16) {
    let folder = TestFolder::with(RING);
    emit(&folder, 6);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    folder.succeed(&["keygen", "--token", "out/agents/4/token"]);
    edit(
        &folder,
        4,
        "snapshots = false",
        &format!("snapshots = false\npage_token = \"token\"\npage = \"127.0.0.1:{port}\""),
    );
    let agents = [0, 3, 4, 5].map(|k| agent(&folder, k)).into();
    wait_for(|| folder.path("out/agents/4/status.sock").exists().then_some(()), "agent 4 to listen");
    (folder, agents, port)
}

fn watch(folder: &TestFolder, agent: usize) -> Value {
    let output = folder.mile(&["watch", &format!("out/agents/{agent}"), "--once", "--format", "json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn states(view: &Value) -> Vec<&str> {
    view["agents"].as_array().into_iter().flatten().filter_map(|agent| agent["state"].as_str()).collect()
}

fn wait_until_seen(folder: &TestFolder, agent: usize) -> Value {
    let expected = ["waiting", "down", "down", "waiting", "waiting", "waiting"];
    let look = || Some(watch(folder, agent)).filter(|view| states(view) == expected);
    wait_for(look, "the agents to hear of each other")
}

#[test]
fn any_agent_knows_who_waits_for_whom_with_a_third_of_the_agents_down() {
    let (folder, mut agents, port) = with_a_third_down();
    for one in [0, 4] {
        let view = wait_until_seen(&folder, one);
        let said = |agent: usize| &view["agents"][agent]["said"];
        assert_eq!(
            (&said(0)["waits_for"], &said(3)["waits_for"]),
            (&vec![1].into(), &vec![2].into()),
            "{view}"
        );
        assert!(said(1).is_null() && said(0)["waits_s"].as_f64().unwrap() > 0.0, "{view}");
        let linked = |i: usize, j: usize| {
            let mut edges = view["edges"].as_array().unwrap().iter();
            edges.find(|edge| edge["ends"] == serde_json::json!([i, j])).unwrap()["linked"].clone()
        };
        assert_eq!([linked(3, 4), linked(4, 5), linked(0, 5)], [true, true, true]);
        assert_eq!([linked(0, 1), linked(2, 3)], [false, false]);
        assert!(linked(1, 2).is_null(), "nobody can be asked");
    }
    let shown = text(&folder.succeed(&["watch", "out/agents/0", "--once"]).stdout);
    assert!(shown.contains("4 of 6 agents up; 2 down: 1, 2"), "{shown}");
    assert!(shown.lines().take(12).all(|line| line.chars().count() <= 80), "{shown}");
    the_page_needs_its_token(&folder, port);
    agents.extend([1, 2].map(|k| agent(&folder, k)));
    for agent in &mut agents {
        assert_eq!(agent.end(), Some(0), "{}", agent.log());
    }
    let folders: Vec<String> = (0..6).map(|k| format!("out/agents/{k}")).collect();
    let mut all = vec!["watch", "--once", "--format", "json"];
    all.extend(folders.iter().map(String::as_str));
    let over: Value = serde_json::from_slice(&folder.succeed(&all).stdout).unwrap();
    assert_eq!(states(&over), ["finished"; 6], "{over}");
    folder.succeed(&["run", "e.toml", "--out", "one"]);
    folder.succeed(&["gather", "out", "--out", "all", "--experiment", "e.toml"]);
    assert_eq!(folder.finals("one"), folder.finals("all"), "watching changes no bit");
}

fn the_page_needs_its_token(folder: &TestFolder, port: u16) {
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/").contains("403"));
    assert!(get("/0123456789abcdef0123456789abcdef/state?version=").contains("403"));
    let url = page(folder, port);
    let path = url.trim().split_once(&port.to_string()).unwrap().1.to_owned();
    let state = get(&format!("{path}state?version="));
    assert!(state.contains("2 down: 1, 2") && state.contains("a &lt;ring&gt;"), "{state}");
    let none = folder.mile(&["watch", "out/agents/0", "--page"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("agent.page_token"), "{}", text(&none.stderr));
}

/// The address of the page of agent 4.
fn page(folder: &TestFolder, port: u16) -> String {
    let url = text(&folder.succeed(&["watch", "out/agents/4", "--page"]).stdout);
    assert!(url.starts_with(&format!("http://127.0.0.1:{port}/")), "{url}");
    url.trim().to_owned()
}

#[test]
fn a_page_without_a_good_token_is_not_served() {
    let folder = TestFolder::with(RING);
    emit(&folder, 6);
    edit(&folder, 0, "snapshots = false", "snapshots = false\npage = \"127.0.0.1:0\"");
    let refused = |names: &str| {
        let output = folder.mile(&["agent", "out/agents/0/agent.toml"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(names), "{}", text(&output.stderr));
    };
    refused("agent.page_token");
    edit(&folder, 0, "snapshots = false", "snapshots = false\npage_token = \"token\"");
    refused("token");
    std::fs::write(folder.path("out/agents/0/token"), "short").unwrap();
    refused("token");
}

fn browser() -> PathBuf {
    let named = std::env::var_os("MILE_BROWSER").map(PathBuf::from);
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    let found = named.or_else(|| on_path().find(|file| file.is_file()));
    found.expect("a browser: install chromium, or name one in MILE_BROWSER")
}

#[test]
#[ignore = "needs a browser: install chromium or set MILE_BROWSER, and add --include-ignored"]
fn the_page_of_an_agent_shows_in_a_browser_which_agents_are_down() {
    let browser = browser();
    let (folder, _agents, port) = with_a_third_down();
    wait_until_seen(&folder, 4);
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--dump-dom", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", folder.path("profile").display()))
        .arg(page(&folder, port))
        .output()
        .unwrap();
    let (dom, stderr) = (text(&output.stdout), text(&output.stderr));
    let console: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    assert!(dom.contains("live, seen by agent 4"), "{dom}");
    assert!(dom.contains("4 of 6 agents up; 2 down: 1, 2"), "{dom}");
    assert_eq!(dom.matches("class=\"agent down\"").count(), 2);
    assert_eq!(dom.matches("class=\"agent waiting\"").count(), 4);
    assert_eq!(dom.matches("class=\"edge linked\"").count(), 3);
    assert!(dom.matches("class=\"wait\"").count() >= 2, "0 waits for 1, and 3 for 2");
    assert!(dom.contains("a &lt;ring&gt;") && !dom.contains("<ring>"));
}
