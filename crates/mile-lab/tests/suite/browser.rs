//! The report and the live view in a real browser. Tests that need one are ignored unless asked for.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mile_lab::execute::execute;
use mile_lab::observer::{Observer, Silent};
use mile_lab::plan::{Job, Plan};
use mile_lab::record::Record;
use mile_lab::report::write_report;
use mile_lab::serve::LiveView;
use mile_lab::spec::Spec;
use mile_lab::store::{JobStatus, Outcome};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

const EXPERIMENT: &str = r#"
name = "seen in a browser"
seeds = [0, 1]
rounds = 12
eval_every = 3
[network]
agents = 4
[problem]
kind = "images"
model = "linear"
eval_samples = 10
partition = { kind = "dirichlet", alpha = 1.0 }
[[algorithm]]
name = "mile"
label = "MILE <1> & \"co\""
step_size = 0.1
[[algorithm]]
name = "led"
step_size = 1e12
"#;

/// A table with held-out rows of two classes, which has the most columns of results, and labels that are long.
const TABLE: &str = r#"
name = "a table in a browser"
seeds = [0, 1]
rounds = 4
[network]
agents = 3
[problem]
kind = "table"
data = "rows.csv"
target = "y"
loss = "logistic"
l2 = 0.01
test = 0.25
[[algorithm]]
name = "mile"
label = "MILE, decoupled incomprehensibilities"
step_size = 0.1
[[algorithm]]
name = "local-dsgd"
step_size = 0.1
"#;

/// The browser to test with. Tests that need one are ignored unless asked for, so that a run without a browser says so.
pub(crate) fn browser() -> PathBuf {
    let named = std::env::var_os("MILE_BROWSER").map(PathBuf::from);
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    let found = named.or_else(|| on_path().find(|file| file.is_file()));
    found.expect("a browser: install chromium, or name one in MILE_BROWSER")
}

pub(crate) fn open(browser: &Path, profile: &Path, url: &str, more: &[&str]) -> Child {
    Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--window-size=1200,900"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the browser wrote, after it was ended.
pub(crate) fn close(mut child: Child) -> (String, String) {
    let _ = child.kill();
    let (mut out, mut err) = (String::new(), String::new());
    let _ = child.stdout.take().unwrap().read_to_string(&mut out);
    let _ = child.stderr.take().unwrap().read_to_string(&mut err);
    let _ = child.wait();
    (out, err)
}

fn plan() -> Plan {
    Plan::new(Spec::parse(EXPERIMENT, Path::new(""), &[]).unwrap()).unwrap()
}

pub(crate) fn console(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// Looks at the report as a person would, in a frame as wide as a phone and in one as wide as a desktop screen.
const CHECK: &str = include_str!("browser.html");

/// Serves the report and the page that looks at it, until that says what it found.
async fn serve_until_found(listener: tokio::net::TcpListener, report: String) -> Value {
    let (found, mut answers) = mpsc::unbounded_channel::<Bytes>();
    loop {
        let stream = tokio::select! {
            answer = answers.recv() => return serde_json::from_slice(&answer.unwrap()).unwrap(),
            accepted = listener.accept() => accepted.unwrap().0,
        };
        let (found, report) = (found.clone(), report.clone());
        tokio::spawn(async move {
            let said = Mutex::new(None);
            let page = service_fn(async |request: Request<Incoming>| {
                let text = match request.uri().path() {
                    "/found" => {
                        *said.lock().unwrap() = Some(request.into_body().collect().await?.to_bytes());
                        "thanks".to_owned()
                    }
                    "/report.html" => report.clone(),
                    _ => CHECK.to_owned(),
                };
                let kind = (CONTENT_TYPE, "text/html; charset=utf-8");
                let response = Response::builder().header(kind.0, kind.1).body(Full::new(Bytes::from(text)));
                Ok::<_, hyper::Error>(response.unwrap())
            });
            let mut http = http1::Builder::new();
            let _ = http.keep_alive(false).serve_connection(TokioIo::new(stream), page).await;
            // Only now, so that the browser has its answer.
            said.into_inner().unwrap().into_iter().for_each(|text| found.send(text).unwrap());
        });
    }
}

#[test]
#[ignore = "needs a browser: install chromium or set MILE_BROWSER, and add --include-ignored"]
fn the_report_can_be_read_on_a_phone_and_on_a_desk() {
    let browser = browser();
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile");
    // The coefficient of c is small, so that its interval has many digits.
    let row = |k: usize| {
        format!("{},{},{},{}\n", k % 7, k % 5, 137 * (k % 11), if k.is_multiple_of(3) { "yes" } else { "no" })
    };
    let rows: String = (0..60).map(row).collect();
    std::fs::write(folder.path().join("rows.csv"), format!("a,b,c,y\n{rows}")).unwrap();
    let table = Plan::new(Spec::parse(TABLE, folder.path(), &[]).unwrap()).unwrap();
    let runs = [(plan(), "images"), (table, "table")].map(|(plan, name)| {
        let run = folder.path().join(name);
        execute(&plan, &run, false, &Silent, &AtomicBool::new(false)).unwrap();
        run
    });
    let report = folder.path().join("report.html");
    write_report(&runs, &report).unwrap();
    let report = std::fs::read_to_string(report).unwrap();
    assert!(!report.contains("src=\"http") && !report.contains("href=\"http"), "nothing is fetched");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let child = open(&browser, &profile, &url, &["--remote-debugging-port=0"]);
    let limit = Duration::from_secs(50);
    let found = runtime.block_on(async { timeout(limit, serve_until_found(listener, report)).await });
    let found = found.expect("the browser did not answer");
    let (_, stderr) = close(child);
    assert!(console(&stderr).is_empty(), "{:?}", console(&stderr));
    assert!(found.is_array(), "{found}");
    for look in found.as_array().unwrap() {
        assert_eq!(look["overflow"], 0, "the page does not scroll sideways: {look}");
        let is_desk = look["width"].as_u64().unwrap() > 1000;
        assert_eq!(look["scrolling"], serde_json::json!([]), "every table is seen whole: {look}");
        // Results, costs and every seed, of two runs.
        assert!(look["tables"].as_u64().unwrap() >= 6, "{look}");
        let unfolded = if is_desk { look["tables"].clone() } else { 0.into() };
        assert_eq!(look["heads"], unfolded, "rows are folded on a phone: {look}");
        assert_eq!(look["spilled"], serde_json::json!([]), "no word leaves its cell: {look}");
        assert_eq!(look["broken"], serde_json::json!([]), "no word of a table is broken: {look}");
        assert!(look["charts"].as_u64().unwrap() >= 9 + 15, "{look}");
        assert_eq!(look["charts"], look["figures"], "one axis of each figure is shown: {look}");
        assert_eq!(look["cut"], serde_json::json!([]), "no text leaves its figure: {look}");
        assert!(look["narrowest"].as_f64().unwrap() > 300.0, "{look}");
        assert!(look["text"].as_f64().unwrap() > 8.0, "{look}");
        let tip = look["tip"].as_str().unwrap();
        assert!(tip.contains("communication rounds") && tip.contains("MILE <1> & \"co\":"), "{tip}");
        assert!(look["dots"].as_u64().unwrap() >= 1, "{look}");
        assert_eq!((&look["axis"], &look["hidden"]), (&"bytes_sent".into(), &"none".into()), "{look}");
        assert_ne!(look["light"][0], look["dark"][0]);
        for theme in ["light", "dark"] {
            assert!(look[theme][1].as_f64().unwrap() > 4.5, "numbers in cells can be read, {theme}: {look}");
        }
        assert_eq!(look["labels"], true);
        assert!(look["words"].as_str().unwrap().contains("led (round"), "the divergence is said: {look}");
    }
}

/// Delays the first record until a page polls the live view.
struct Patient<'v>(&'v LiveView);

impl Observer for Patient<'_> {
    fn opened(&self, records: &[Record], outcomes: &[Outcome]) {
        self.0.opened(records, outcomes);
    }
    fn recorded(&self, job: Job, record: &Record) {
        let begun = Instant::now();
        while !self.0.is_watched() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.0.recorded(job, record);
    }
    fn ended(&self, job: Job, outcome: &Outcome) {
        self.0.ended(job, outcome);
    }
}

#[test]
#[ignore = "needs a browser: install chromium or set MILE_BROWSER, and add --include-ignored"]
fn the_live_view_fills_as_records_arrive_and_says_when_it_is_over() {
    let browser = browser();
    let folder = tempfile::tempdir().unwrap();
    let plan = plan();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let view = LiveView::start(listener, &plan, &folder.path().join("run")).unwrap();
    let url = format!("http://{}/", view.address());
    // Time for the page is virtual: it polls without a pause. The limit is far above the polls of a slow run.
    let manner = ["--dump-dom", "--virtual-time-budget=600000000"];
    let child = open(&browser, &folder.path().join("profile"), &url, &manner);
    execute(&plan, &folder.path().join("run"), false, &Patient(&view), &AtomicBool::new(false)).unwrap();
    view.finish();
    let output = child.wait_with_output().unwrap();
    let (dom, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(console(&stderr).is_empty(), "{:?}", console(&stderr));
    assert!(dom.contains("finished: 4 of 4 runs"), "the end is said");
    assert!(
        dom.contains("class=\"panel\"") && dom.contains("Results of every seed"),
        "figures and tables are there"
    );
}

fn ask(view: &LiveView, request: &str) -> String {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(view.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A request whose answer comes in one piece.
fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")
}

#[test]
fn what_was_stopped_and_runs_again_is_not_reported_as_stopped() {
    struct StopAtOnce<'a>(&'a AtomicBool);
    impl Observer for StopAtOnce<'_> {
        fn advanced(&self, _: Job, _: u64) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = plan();
    let stop = AtomicBool::new(false);
    let outcomes = execute(&plan, folder.path(), false, &StopAtOnce(&stop), &stop).unwrap();
    assert!(outcomes.iter().any(|outcome| outcome.status == JobStatus::Stopped));
    let view = LiveView::start(TcpListener::bind("127.0.0.1:0").unwrap(), &plan, folder.path()).unwrap();
    // Told to stop before it begins, it shows its initial state.
    execute(&plan, folder.path(), true, &view, &AtomicBool::new(true)).unwrap();
    let state = ask(&view, &get("/state?version=", "localhost"));
    let over = outcomes.iter().filter(|outcome| outcome.status != JobStatus::Stopped).count();
    assert!(state.contains(&format!("live: {over} of 4 runs finished")));
    assert!(!state.contains("stopped early"));
    view.finish();
}

#[test]
fn the_live_view_says_how_much_time_is_left() {
    let (folder, plan) = (tempfile::tempdir().unwrap(), plan());
    let view = LiveView::start(TcpListener::bind("127.0.0.1:0").unwrap(), &plan, folder.path()).unwrap();
    let says_it = || ask(&view, &get("/state?version=", "localhost")).contains(" left\"");
    let job = plan.jobs()[0];
    view.advanced(job, 0);
    assert!(!says_it(), "no round has been made, so no pace is known");
    view.advanced(job, 1);
    assert!(says_it());
    view.finish();
}

#[test]
fn the_live_view_answers_this_machine_only_and_reads_only() {
    let folder = tempfile::tempdir().unwrap();
    let view = LiveView::start(TcpListener::bind("127.0.0.1:0").unwrap(), &plan(), folder.path()).unwrap();
    let ask = |request: &str| ask(&view, request);
    let get = |path: &str, host: &str| ask(&get(path, host));
    assert!(get("/", "localhost:1").contains("200 OK"));
    assert!(get("/state?version=", "127.0.0.1").contains("\"version\""));
    assert!(get("/", "attacker.example").contains("403"));
    assert!(get("/config.toml", "localhost").contains("404"));
    assert!(
        ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .contains("405")
    );
    view.finish();
}

#[test]
fn clients_that_ask_for_nothing_keep_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let view = LiveView::start(TcpListener::bind("127.0.0.1:0").unwrap(), &plan(), folder.path()).unwrap();
    let idle: Vec<_> = (0..40).map(|_| std::net::TcpStream::connect(view.address()).unwrap()).collect();
    assert!(ask(&view, &get("/state?version=", "localhost")).contains("\"version\""));
    assert!(view.is_watched());
    view.finish();
    // All are closed with the server: reading ends.
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}
